"""Checks and conversions of arguments that several functional modules share."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from lucid import _C
from lucid._C import Tensor

IntOrInts = int | Sequence[int]


def to_tuple(op: str, name: str, value: IntOrInts, rank: int) -> tuple[int, ...]:
    """Return ``value`` as ``rank`` ints: an int (or a sequence of one) is repeated."""
    try:
        if isinstance(value, Sequence):
            numbers = tuple(operator.index(number) for number in value)
        else:
            numbers = (operator.index(value),)
    except TypeError:
        raise _C.ArgumentTypeError(
            f"{op}: {name} must be an int or {rank} ints: got {value!r}"
        ) from None
    if len(numbers) == 1:
        return numbers * rank
    if len(numbers) != rank:
        raise _C.UserError(f"{op}: {name} must be an int or {rank} ints: got {value!r}")
    return numbers


def require_tensors(op: str, **values: object) -> None:
    """Raise ArgumentTypeError naming the first of ``values`` that is not a tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise _C.ArgumentTypeError(
                f"{op}: {name} must be a Tensor: got {type(value).__name__}; "
                "make one with lucid.tensor"
            )


def with_batch(op: str, input: Tensor, spatial_rank: int) -> tuple[Tensor, bool]:
    """Return (N, C, *spatial) and whether a leading axis was added to (C, *spatial)."""
    require_tensors(op, input=input)
    if input.ndim == spatial_rank + 2:
        return input, False
    if input.ndim == spatial_rank + 1:
        return input.unsqueeze(0), True
    raise _C.ShapeError(
        f"{op}: input must have {spatial_rank + 1} or {spatial_rank + 2} axes: "
        f"got shape {tuple(input.shape)}"
    )


def channel_shape(input: Tensor) -> tuple[int, ...]:
    """Return (1, C, 1, ...), the shape that lines (C,) up with ``input`` (N, C, ...)."""
    return (1, input.shape[1], *(1 for _ in input.shape[2:]))


def from_front(op: str, index: Tensor, size: int) -> Tensor:
    """``index``, for a look-up that shall not count negative ones from the end.

    Raises: OutOfRangeError in the name of ``op`` for one outside of [0, size), DtypeError for an
        index that is neither int32 nor int64.
    """
    if index.dtype not in (_C.int32, _C.int64):
        raise _C.DtypeError(
            f"{op}: dtype does not fit an index: {index.dtype.name}; cast to int32 or int64 first"
        )
    return _C.emit("index_from_front", index, size=size, function=op)
