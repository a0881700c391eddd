"""backward and grad: gradients of what eager code has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor

__all__ = ["backward", "grad"]


def _as_tuple(value: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _seeds(given: Any, count: int, what: str) -> tuple[Tensor | None, ...]:
    if given is None:
        return (None,) * count
    seeds = (given,) if isinstance(given, Tensor) else tuple(given)
    if len(seeds) != count:
        raise _C.UserError(f"{what}: {count} tensors need {count} gradients: got {len(seeds)}")
    return seeds


def _zeros_like(x: Tensor) -> Tensor:
    from lucid.functions import zeros_like  # which imports this package

    return zeros_like(x)


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of ``tensors`` to the ``grad`` of the leaves they depend on.

    Args:
        tensors: the roots; each without a gradient in ``grad_tensors`` has one element.
        grad_tensors: a gradient for each root (its shape and dtype), or None for 1.
        retain_graph: keep saved values, so that a second backward can follow.
        create_graph: record the backward, for second derivatives.
        inputs: only these leaves are added to.
    Raises: AutogradError if a root has no history; after any error no ``grad`` has changed.
    """
    roots = _as_tuple(tensors)
    only = () if inputs is None else _as_tuple(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    _C._backward(roots, _seeds(grad_tensors, len(roots), "backward"), retain, create_graph, only)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    *,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of ``outputs`` with respect to ``inputs``; nothing is accumulated.

    Args: as for :func:`backward`; ``allow_unused`` gives None for an input that the outputs do
        not depend on, where it is an error otherwise; ``materialize_grads`` gives zeros for it.
        ``only_inputs`` must be true.
    Returns: a tuple, one gradient for each input, with its shape and dtype.
    Raises: AutogradError, UserError for ``only_inputs=False``.
    """
    if not only_inputs:
        raise _C.UserError("grad: only_inputs must be True; use backward to add to all leaves")
    wanted = _as_tuple(inputs)
    may_miss = materialize_grads if allow_unused is None else allow_unused
    roots = _as_tuple(outputs)
    retain = create_graph if retain_graph is None else retain_graph
    seeds = _seeds(grad_outputs, len(roots), "grad")
    found = _C._grad(roots, wanted, seeds, retain, create_graph, may_miss or materialize_grads)
    if materialize_grads:
        pairs = zip(found, wanted, strict=True)
        found = tuple(_zeros_like(x) if g is None else g for g, x in pairs)
    if create_graph or not _C.is_tracing():
        return found
    # A trace records the backward with its history; without create_graph it is a constant.
    return tuple(None if g is None else g.detach() for g in found)
