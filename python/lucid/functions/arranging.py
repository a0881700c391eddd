"""Further arrangements of elements, made of those in ``shape``.

Views and copies follow what each is made of; only ``diag`` of a matrix, ``flip`` and those that are
other names of a view are views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import (
    DeviceLike,
    as_int,
    beside,
    cast,
    normalize_dim,
    normalize_new_dim,
    place_new,
    reshaped,
)
from lucid.functions.data import from_array
from lucid.functions.dtypes import as_dtype
from lucid.functions.shape import cat, diagonal, flip, movedim, split

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "column_stack",
    "diag",
    "diag_embed",
    "dstack",
    "fliplr",
    "flipud",
    "moveaxis",
    "split_with_sizes",
    "tril_indices",
    "triu_indices",
    "unfold",
]


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on one diagonal, or (a view of) that diagonal of a matrix.

    Args:
        diagonal: 0 is the main one, positive ones are above it.

    Raises: ShapeError for another number of axes.
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise _C.ShapeError(
            f"diag: neither vector nor matrix: got shape {tuple(input.shape)}; "
            "use diagonal or diag_embed"
        )
    return _diagonal(input, diagonal)


_diagonal = diagonal  # ``diag`` has a parameter of that name


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros with the last axis of ``input`` on one diagonal.

    Args:
        offset: 0 is the main diagonal, positive ones are above it.
        dim1, dim2: the axes of the matrices in the result.

    Raises: UserError if both name one axis.
    """
    if input.ndim == 0:
        raise _C.ShapeError("diag_embed: a 0-d tensor has no axis; give a vector")
    ndim = input.ndim + 1
    first, second = (normalize_dim("diag_embed", d, ndim) for d in (dim1, dim2))
    if first == second:
        raise _C.UserError(f"diag_embed: dim1 and dim2 are one axis: got {dim1} and {dim2}")
    size = input.shape[-1] + abs(offset)
    rows = numpy.arange(input.shape[-1]) + max(0, -offset)
    places = rows * size + rows + offset
    line = (*input.shape[:-1], size * size)
    zeros = beside(emit("full", shape=line, dtype=input.dtype, value=0), input)
    index = beside(from_array(places, _C.int64, copy=True), input)
    wide = emit("broadcast_to", index, shape=input.shape)
    flat = emit("scatter", zeros, wide, input, dim=ndim - 2)
    square = emit("reshape", flat, shape=(*input.shape[:-1], size, size))
    return movedim(square, (-2, -1), (first, second))


def _places(
    op: str,
    shape: tuple[int, int],
    is_inside: Callable[[NDArray[Any]], NDArray[Any]],
    dtype: _C.dtype | None,
    device: DeviceLike | None,
) -> Tensor:
    """Rows and columns of the elements whose diagonal is inside, row by row."""
    if min(shape) < 0:
        raise _C.ShapeError(
            f"{op}: a size is negative: got {shape[0]} and {shape[1]}; use 0 or more"
        )
    rows, columns = numpy.indices(shape)
    inside = is_inside(columns - rows)
    found = from_array(numpy.stack([rows[inside], columns[inside]]), _C.int64, copy=True)
    return place_new(found if dtype is None else cast(found, as_dtype(dtype)), device)


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Rows and columns of the elements on and below a diagonal, int64 (2, count), row by row."""
    return _places("tril_indices", (row, col), lambda d: d <= offset, dtype, device)


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Rows and columns of the elements on and above a diagonal, int64 (2, count), row by row."""
    return _places("triu_indices", (row, col), lambda d: d >= offset, dtype, device)


def _at_least(count: int, tensors: tuple[Tensor | Sequence[Tensor], ...]) -> list[Tensor]:
    given = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    wide = []
    for x in given:
        assert isinstance(x, Tensor)
        shape = tuple(x.shape)
        if len(shape) < count:
            # A third axis comes last, as in NumPy; what is missing before it comes first.
            front = (1,) * (min(count, 2) - len(shape)) + shape
            shape = front + (1,) * (count - len(front))
        wide.append(reshaped(x, shape))
    return wide


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with at least one axis; one alone, several or a sequence as a tuple."""
    wide = _at_least(1, tensors)
    return wide[0] if isinstance(tensors[0], Tensor) and len(tensors) == 1 else tuple(wide)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with at least two axes, new ones first; one alone or a tuple."""
    wide = _at_least(2, tensors)
    return wide[0] if isinstance(tensors[0], Tensor) and len(tensors) == 1 else tuple(wide)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with at least three axes: a matrix gets a last one, a vector (1, n, 1)."""
    wide = _at_least(3, tensors)
    return wide[0] if isinstance(tensors[0], Tensor) and len(tensors) == 1 else tuple(wide)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side along the second axis; those of fewer axes are one column."""
    return cat([x if x.ndim > 1 else reshaped(x, (x.numel(), 1)) for x in tensors], 1)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """``cat`` along the third axis, after ``atleast_3d``."""
    return cat(_at_least(3, (tensors,)), 2)


def fliplr(input: Tensor) -> Tensor:
    """``flip`` of the second axis."""
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """``flip`` of the first axis."""
    return flip(input, 0)


def moveaxis(
    input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor:
    """``movedim(input, source, destination)``."""
    return movedim(input, source, destination)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``split(input, split_sizes, dim)``."""
    return split(input, split_sizes, dim)


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of one axis, each ``size`` long and ``step`` after the one before; a copy.

    Returns: the axis counts the windows, a new last axis their elements.
    Raises: OutOfRangeError if no window fits, UserError for a step below 1.
    """
    dim = normalize_dim("unfold", dimension, input.ndim)
    length = input.shape[dim] if input.ndim else 1
    if not 0 <= as_int("unfold", "size", size) <= length:
        raise _C.OutOfRangeError(f"unfold: no window of {size} fits an axis of size {length}")
    if as_int("unfold", "step", step) < 1:
        raise _C.UserError(f"unfold: step must be positive: got {step}")
    line = input if input.ndim else reshaped(input, (1,))
    count = (length - size) // step + 1
    places = numpy.arange(count)[:, None] * step + numpy.arange(size)
    index = beside(from_array(places, _C.int64, copy=True), input)
    windows = emit("take", line, index, dim=dim)
    return movedim(windows, dim + 1, normalize_new_dim("unfold", -1, line.ndim))
