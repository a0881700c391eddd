"""Sorting and what is read off a sorted axis: the largest, the k-th, the median."""

from __future__ import annotations

import math
from typing import NamedTuple, overload

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import as_int, cast, normalize_dim, reshaped
from lucid.functions.dtypes import is_floating

__all__ = ["ValuesIndices", "argsort", "kthvalue", "median", "sort", "topk"]


class ValuesIndices(NamedTuple):
    """Elements and their int64 positions along the axis that was searched."""

    values: Tensor
    indices: Tensor


def without_axis(input: Tensor, dim: int) -> Tensor:
    """``input`` without its axis ``dim`` of size 1."""
    shape = input.shape
    return emit("reshape", input, shape=shape[:dim] + shape[dim + 1 :])


def pick(input: Tensor, indices: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    """The elements at ``indices``, whose axis ``dim`` has size 1 and goes unless ``keepdim``."""
    values = emit("gather", input, indices, dim=dim)
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(without_axis(values, dim), without_axis(indices, dim))


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesIndices:
    """Elements in order along ``dim`` and where they were; both have ``input``'s shape.

    Equal elements keep their order, whatever ``stable`` says; nan counts as the largest.
    """
    dim = normalize_dim("sort", dim, input.ndim)
    if input.ndim == 0:
        flat = emit("sort", emit("reshape", input, shape=(1,)), dim=0, descending=descending)
        return ValuesIndices(reshaped(flat[0], ()), reshaped(flat[1], ()))
    return ValuesIndices(*emit("sort", input, dim=dim, descending=bool(descending)))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The positions that sort ``input`` along ``dim``: ``sort(...).indices``."""
    return sort(input, dim, descending).indices


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The ``k`` largest (or smallest) elements along ``dim``, always in order.

    Returns: values and int64 indices with size ``k`` at ``dim``; nan counts as the largest.
    Raises: OutOfRangeError unless 0 <= k <= size of the axis.
    """
    dim = normalize_dim("topk", dim, input.ndim)
    k = as_int("topk", "k", k)
    length = input.shape[dim] if input.ndim else 1
    if not 0 <= k <= length:
        raise _C.OutOfRangeError(f"topk: k out of range: got {k} for size {length}")
    if input.ndim == 0:
        return sort(input)
    values, indices = emit("sort", input, dim=dim, descending=bool(largest))
    return ValuesIndices(_part(values, dim, 0, k), _part(indices, dim, 0, k))


def _part(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    sizes = list(input.shape)
    sizes[dim] = length
    starts = [start if d == dim else 0 for d in range(input.ndim)]
    return emit("slice", input, starts=starts, sizes=sizes, steps=[1] * input.ndim)


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The ``k``-th smallest element (from 1) along ``dim`` and its position.

    Raises: OutOfRangeError unless 1 <= k <= size of the axis.
    """
    dim = normalize_dim("kthvalue", dim, input.ndim)
    k = as_int("kthvalue", "k", k)
    length = input.shape[dim] if input.ndim else 1
    if not 1 <= k <= length:
        raise _C.OutOfRangeError(f"kthvalue: k out of range: got {k} for size {length}")
    if input.ndim == 0:
        return sort(input)
    values, indices = emit("sort", input, dim=dim, descending=False)
    values, indices = _part(values, dim, k - 1, 1), _part(indices, dim, k - 1, 1)
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(without_axis(values, dim), without_axis(indices, dim))


@overload
def median(input: Tensor) -> Tensor: ...


@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The lower middle element; nan if there is one.

    Args:
        dim: None: of all elements, a 0-d tensor, whose gradient is shared evenly among equal
            elements; an axis: the pair ``(values, indices)``, with the gradient at the index.

    Raises: OutOfRangeError where there is no element.
    """
    if dim is None:
        flat = emit("reshape", input, shape=(input.numel(),))
        middle = _median(flat, 0, False).values
        return _shared(flat, middle) if is_floating(input.dtype) else middle
    dim = normalize_dim("median", dim, input.ndim)
    if input.ndim == 0:
        return sort(input)
    return _median(input, dim, keepdim)


def _shared(flat: Tensor, value: Tensor) -> Tensor:
    """``value``, tied to all elements equal to it: amax shares its gradient among them."""
    known = emit("detach", value)
    is_equal = emit("logical_or", emit("eq", flat, known), emit("isnan", flat))
    candidates = emit("where", is_equal, flat, -math.inf)
    return emit("amax", candidates, dims=(0,), keepdim=False)


def _median(input: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    length = input.shape[dim]
    if length == 0:
        raise _C.OutOfRangeError("median: the axis has no elements; give at least one")
    if not is_floating(input.dtype):
        return kthvalue(input, (length + 1) // 2, dim, keepdim)
    indices = emit("sort", input, dim=dim, descending=False)[1]
    nans = emit("sum", cast(emit("isnan", input), _C.int64), dims=(dim,), keepdim=True)
    # nan stands at the end, so the first one is at length - nans.
    first_nan = emit("sub", length, nans)
    place = emit("where", emit("gt", nans, 0), first_nan, (length - 1) // 2)
    return pick(input, emit("gather", indices, place, dim=dim), dim, keepdim)
