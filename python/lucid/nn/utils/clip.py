"""Limits on gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [tensor.grad for tensor in tensors if tensor.grad is not None]


def get_total_norm(
    tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of all elements of ``tensors`` together.

    Args:
        norm_type: the p of the norm; ``inf`` means the largest absolute value.
        error_if_nonfinite: raise if it is nan or infinite (reads the value).

    Returns: () tensor; 0 for no tensors.
    Raises: UserError for a norm that is not finite, if asked for.
    """
    norms = []
    for tensor in tensors:
        if norm_type == math.inf:
            norms.append(fn.amax(fn.abs(tensor)))
        elif norm_type == 2.0:
            norms.append(fn.sum(fn.square(tensor)))
        else:
            norms.append(fn.sum(fn.pow(fn.abs(tensor), norm_type)))
    if not norms:
        return fn.tensor(0.0)
    device = norms[0].device
    joined = fn.stack([norm if norm.device == device else norm.to(device) for norm in norms])
    if norm_type == math.inf:
        total = fn.amax(joined)
    elif norm_type == 2.0:
        total = fn.sqrt(fn.sum(joined))
    else:
        total = fn.pow(fn.sum(joined), 1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise _C.UserError(
            f"clip_grad_norm_: the total norm of order {norm_type} is not finite: got "
            f"{total.item()}; look for a gradient that is not, or pass "
            "error_if_nonfinite=False"
        )
    return total


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients, in place, so that their joint norm is at most ``max_norm``.

    Args:
        parameters: one tensor or several; those without a gradient are left out.
        norm_type: the p of the norm, or ``inf``.
        error_if_nonfinite: raise if the norm is nan or infinite.
        foreach: without effect, kept for PyTorch's argument order.

    Returns: () tensor, the norm before scaling.
    Raises: UserError for a norm that is not finite, if asked for.
    Source: Pascanu, Mikolov, Bengio 2012, arXiv:1211.5063, algorithm 1.
    """
    gradients = _gradients(parameters)
    with no_grad():
        total = get_total_norm(gradients, norm_type, error_if_nonfinite)
        if not gradients:
            return total
        for gradient, value in zip(gradients, clipped(gradients, max_norm, total), strict=True):
            gradient.assign_(value)
    return total


def clipped(gradients: Iterable[Tensor], max_norm: float, total: Tensor) -> list[Tensor]:
    """The gradients, whose joint norm is ``total``, scaled so that it is at most ``max_norm``."""
    # PyTorch's 1e-6 keeps the factor finite for gradients of zero.
    factor = fn.clamp(float(max_norm) / (total + 1e-6), max=1.0)
    result = []
    for gradient in gradients:
        local = factor if factor.device == gradient.device else factor.to(gradient.device)
        if local.dtype != gradient.dtype:
            local = local.to(gradient.dtype)
        result.append(gradient * local)
    return result


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of the gradients, in place, to +-``clip_value``."""
    limit = float(clip_value)
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.assign_(fn.clamp(gradient, -limit, limit))
