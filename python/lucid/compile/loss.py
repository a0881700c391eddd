"""What a model and a loss function take and may return."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.tree import flatten

__all__ = ["check_loss", "check_output", "input_names", "split_result"]


def input_names(count: int) -> list[str]:
    """What messages call the inputs of a step: ``x``, then those of the loss function."""
    return ["x", *(f"extra input {i}" for i in range(1, count))][:count]


def check_output(output: Any, what: str) -> None:
    """Refuse a model's result without any tensor; ``what`` begins the message."""
    leaves: list[Tensor] = []
    try:
        flatten(output, "output", leaves)
    except _C.ArgumentTypeError:
        return  # an object of the user's own; the loss function knows what to do with it
    if not leaves:
        raise _C.ArgumentTypeError(
            f"{what}: the model returned no tensor: got {type(output).__name__}; "
            "return the tensor that the loss function takes"
        )


def split_result(result: Any, has_aux: bool, what: str) -> tuple[Tensor, Any]:
    """The loss, checked, and the auxiliary results of what the loss function returned."""
    if not has_aux:
        return check_loss(result, what), None
    if not isinstance(result, tuple) or len(result) != 2:
        raise _C.ArgumentTypeError(
            f"{what}: with has_aux=True the loss function must return (loss, aux): "
            f"got {type(result).__name__}"
        )
    return check_loss(result[0], what), result[1]


def check_loss(loss: Any, what: str) -> Tensor:
    """Refuse a loss that is not one floating element."""
    if not isinstance(loss, Tensor):
        raise _C.ArgumentTypeError(
            f"{what}: the loss function must return one Tensor: got {type(loss).__name__}; "
            "add the parts up to one loss"
        )
    if loss.numel() != 1:
        raise _C.ShapeError(
            f"{what}: the loss must have one element: got shape {loss.shape}; "
            "reduce it with .mean() or .sum()"
        )
    if not loss.dtype.is_floating_point:
        raise _C.DtypeError(
            f"{what}: the loss must be floating: got {loss.dtype.name}; convert it with .float()"
        )
    return loss
