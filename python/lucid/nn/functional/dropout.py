"""Random masks drawn from a generator's counter."""

from __future__ import annotations

import math

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import require_tensors

# -scale * alpha of SELU, the value that a dropped unit takes.
_SELU_NEGATIVE_LIMIT = -1.7580993408473766


def check_probability(op: str, p: float) -> None:
    """Raise UserError unless ``p`` is a probability."""
    if not 0.0 <= p <= 1.0:
        raise _C.UserError(f"{op}: p must be from 0 to 1: got {p}")


def _is_active(op: str, input: Tensor, p: float, training: bool) -> bool:
    """Check the arguments; tell whether anything is dropped at all."""
    require_tensors(op, input=input)
    check_probability(op, p)
    return training and p > 0.0


def _draw(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The dropout node with the default generator: (scaled values, mask of kept)."""
    output, mask = _C.emit("dropout", input, _C.default_generator, p=float(p))
    return output, mask


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability ``p`` and scale the others by 1 / (1 - p).

    Args:
        input: any shape, floating point.
        p: 0 to 1; 1 gives zeros.
        training: False returns ``input``.
        inplace: put the result into ``input`` too.

    Returns: shape and dtype of ``input``.
    Raises: UserError if ``p`` is no probability.
    Source: Srivastava and others 2014, JMLR 15, section 4 (scaled in training).
    """
    if not _is_active("dropout", input, p, training):
        return input
    output, _ = _draw(input, p)
    return input.assign_(output) if inplace else output


def _drop_channels(
    op: str, input: Tensor, p: float, training: bool, inplace: bool, leading: int
) -> Tensor:
    """Dropout with one draw for each index of the ``leading`` axes."""
    if not _is_active(op, input, p, training):
        return input
    shape = (*input.shape[:leading], *(1 for _ in input.shape[leading:]))
    ones = fn.ones(shape, dtype=input.dtype, device=input.device)
    output = input * _draw(ones, p)[0]
    return input.assign_(output) if inplace else output


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Drop whole channels of (N, C, L) or (C, L); see :func:`dropout`.

    Source: Tompson and others 2014, arXiv:1411.4280, section 3.2.
    """
    if input.ndim not in (2, 3):
        raise _C.ShapeError(f"dropout1d: input must have 2 or 3 axes: got {tuple(input.shape)}")
    return _drop_channels("dropout1d", input, p, training, inplace, input.ndim - 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Drop whole channels of (N, C, H, W); see :func:`dropout`.

    A tensor of three axes is read as (N, C, L), as PyTorch does.

    Source: Tompson and others 2014, arXiv:1411.4280, section 3.2.
    """
    if input.ndim not in (3, 4):
        raise _C.ShapeError(f"dropout2d: input must have 3 or 4 axes: got {tuple(input.shape)}")
    return _drop_channels("dropout2d", input, p, training, inplace, 2)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1 behind SELU.

    Args:
        input: any shape, floating point.

    Returns: shape and dtype of ``input``.
    Raises: UserError if ``p`` is no probability.
    Source: Klambauer and others 2017, arXiv:1706.02515, section 2, "New dropout technique".
    """
    if not _is_active("alpha_dropout", input, p, training):
        return input
    if p == 1.0:
        output = input * 0.0
    else:
        limit = _SELU_NEGATIVE_LIMIT
        scale = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * limit * limit))
        _, mask = _draw(fn.ones_like(input), p)
        output = fn.where(mask, input, limit) * scale - scale * limit * p
    return input.assign_(output) if inplace else output
