"""Where elements are, and how often: among sorted numbers, in a set, by their value."""

from __future__ import annotations

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import Operand, as_int, beside, refuse_in_trace
from lucid.functions.creation import as_tensor
from lucid.functions.data import to_array
from lucid.functions.dtypes import dtype_name, is_integer
from lucid.functions.indexing import nonzero
from lucid.functions.shape import unsqueeze

__all__ = ["argwhere", "bincount", "bucketize", "isin", "searchsorted"]


def _places(below: Tensor, out_int32: bool) -> Tensor:
    dtype = _C.int32 if out_int32 else _C.int64
    count = emit("cast", below, dtype=dtype)
    return emit("sum", count, dims=(below.ndim - 1,), keepdim=False)


def searchsorted(
    sorted_sequence: Tensor,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Tensor:
    """Where each number would go into a sorted last axis, so that it stays sorted; no gradient.

    Each number is compared with the whole axis: time and memory grow with both.

    Args:
        sorted_sequence: (n,), or (..., n) with the leading axes of ``input``.
        input: numbers to look for.
        right: behind equal ones (``side="right"``), not before them.

    Returns: int64 places 0 to n in ``input``'s shape.
    Raises: ShapeError if the leading axes differ, UserError for an unknown ``side``.
    """
    if side not in (None, "left", "right"):
        raise _C.UserError(f"searchsorted: unknown side: got {side!r}; use 'left' or 'right'")
    wanted = as_tensor(input, None, sorted_sequence.device)
    line = sorted_sequence
    if line.ndim != 1:
        if tuple(line.shape[:-1]) != tuple(wanted.shape[:-1]):
            raise _C.ShapeError(
                f"searchsorted: leading axes differ: {tuple(line.shape)} and "
                f"{tuple(wanted.shape)}; reshape one first"
            )
        line = unsqueeze(line, -2)
    is_right = right or side == "right"
    below = emit("le" if is_right else "lt", line, unsqueeze(wanted, -1))
    return _places(below, out_int32)


def bucketize(
    input: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each number: ``searchsorted(boundaries, input)`` for boundaries (n,).

    Raises: ShapeError if ``boundaries`` has another number of axes.
    """
    if boundaries.ndim != 1:
        raise _C.ShapeError(
            f"bucketize: boundaries are not 1-d: got shape {tuple(boundaries.shape)}; flatten them"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements: Operand, test_elements: Operand, *, invert: bool = False) -> Tensor:
    """True where an element is one of ``test_elements``, or, with ``invert``, none of them.

    Each is compared with all: time and memory grow with both.
    """
    given = as_tensor(elements)
    tests = as_tensor(test_elements, None, given.device)
    line = emit("reshape", tests, shape=(tests.numel(),))
    found = emit("any", emit("eq", unsqueeze(given, -1), line), dims=(given.ndim,), keepdim=False)
    return emit("logical_not", found) if invert else found


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often 0, 1, ... occur, or the sums of their weights. Eager only.

    Args:
        input: (n,) integers of 0 or more.
        weights: (n,); the result has their dtype.
        minlength: the least size of the result.

    Raises: TraceError in a trace, DtypeError for a dtype that is not integer, ShapeError if the
        input is not 1-d, OutOfRangeError for a negative number.
    """
    refuse_in_trace(
        "bincount",
        "the result's shape depends on values",
        "add ones with index_add to zeros of a known size",
    )
    if not is_integer(input.dtype):
        raise _C.DtypeError(f"bincount: not an integer dtype: got {dtype_name(input.dtype)}")
    if input.ndim != 1:
        raise _C.ShapeError(f"bincount: not 1-d: got shape {tuple(input.shape)}; flatten it")
    numbers = to_array(input)
    if numbers.size and numbers.min() < 0:
        raise _C.OutOfRangeError(f"bincount: a number is negative: got {numbers.min()}")
    size = max(as_int("bincount", "minlength", minlength), int(numbers.max(initial=-1)) + 1)
    dtype = _C.int64 if weights is None else weights.dtype
    zeros = beside(emit("full", shape=(size,), dtype=dtype, value=0), input)
    ones = beside(emit("full", shape=input.shape, dtype=dtype, value=1), input)
    return emit("index_add", zeros, input, ones if weights is None else weights, dim=0)


def argwhere(input: Tensor) -> Tensor:
    """``nonzero(input)``. Eager only."""
    return nonzero(input)
