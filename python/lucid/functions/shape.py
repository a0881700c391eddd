"""Other shapes of the same elements, and tensors put together or taken apart.

What only rearranges a tensor (reshape, permute, slice and what is made of them) returns a view:
writing to it writes to the tensor. ``expand``, ``repeat``, ``cat`` and the like return new tensors.
Negative axes count from the end; an axis that does not exist raises OutOfRangeError.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from lucid import _C
from lucid._C import Tensor, emit
from lucid._C import view as make_view
from lucid.functions.arguments import (
    Size,
    as_int,
    broadcast_shapes,
    cast,
    infer_shape,
    is_broadcastable,
    normalize_dim,
    normalize_dims,
    normalize_new_dim,
    reshaped,
    shape_from,
)
from lucid.functions.dtypes import promote_types

__all__ = [
    "broadcast_tensors",
    "broadcast_to",
    "cat",
    "chunk",
    "clone",
    "concat",
    "concatenate",
    "contiguous",
    "detach",
    "diagonal",
    "expand",
    "flatten",
    "flip",
    "hstack",
    "meshgrid",
    "movedim",
    "narrow",
    "permute",
    "ravel",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "select",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "swapdims",
    "t",
    "tile",
    "transpose",
    "unbind",
    "unflatten",
    "unsqueeze",
    "view",
    "vstack",
]


def reshape(input: Tensor, *shape: Size) -> Tensor:
    """View with another shape of as many elements, in row-major order.

    Args:
        shape: sizes, or one sequence of them; one may be -1 and is then found.

    Raises: ShapeError if the numbers of elements differ.
    """
    sizes = shape_from("reshape", shape)
    if -1 in sizes:
        sizes = infer_shape("reshape", sizes, input.numel())
    return make_view("reshape", input, shape=sizes)


def view(input: Tensor, *size: Size) -> Tensor:
    """``reshape``: every tensor is dense, so that each shape of as many elements is a view."""
    return reshape(input, *size)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """View with the axes ``start_dim`` to ``end_dim`` merged; a 0-d tensor becomes (1,).

    Raises: UserError if ``start_dim`` comes after ``end_dim``.
    """
    ndim, shape = input.ndim, input.shape
    start = normalize_dim("flatten", start_dim, ndim)
    end = normalize_dim("flatten", end_dim, ndim)
    if start > end:
        raise _C.UserError(
            f"flatten: start_dim comes after end_dim: got {start_dim} and {end_dim}; swap them"
        )
    merged = math.prod(shape[start : end + 1])
    return make_view("reshape", input, shape=(*shape[:start], merged, *shape[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """View with one axis: ``reshape(input, -1)``."""
    return make_view("reshape", input, shape=(input.numel(),))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """View with the axis ``dim`` split into ``sizes``, of which one may be -1.

    Raises: ShapeError if their product is not the axis' size.
    """
    dim = normalize_dim("unflatten", dim, input.ndim)
    shape = input.shape
    parts = infer_shape("unflatten", shape_from("unflatten", (sizes,)), shape[dim])
    if math.prod(parts) != shape[dim]:
        raise _C.ShapeError(
            f"unflatten: the sizes do not fit: got {parts} for size {shape[dim]}; "
            f"use sizes whose product is {shape[dim]}"
        )
    return make_view("reshape", input, shape=(*shape[:dim], *parts, *shape[dim + 1 :]))


def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """View without the axes of size 1: all of them, or those of ``dim`` that have size 1."""
    shape = input.shape
    if dim is None:
        return make_view("reshape", input, shape=tuple([n for n in shape if n != 1]))
    named = (dim,) if isinstance(dim, int) else tuple(dim)
    dims = normalize_dims("squeeze", named, input.ndim) if named else ()
    kept = tuple([n for d, n in enumerate(shape) if n != 1 or d not in dims])
    return make_view("reshape", input, shape=kept)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """View with a new axis of size 1 at ``dim``; -1 appends it."""
    shape = input.shape
    dim = normalize_new_dim("unsqueeze", dim, len(shape))
    return make_view("reshape", input, shape=(*shape[:dim], 1, *shape[dim:]))


def permute(input: Tensor, *dims: Size) -> Tensor:
    """View with the axes in the order ``dims``, which names each once.

    Raises: UserError if an axis is missing or named twice.
    """
    given = shape_from("permute", dims)
    ndim = input.ndim
    order = tuple([normalize_dim("permute", d, ndim) for d in given])
    if len(order) != ndim or len(set(order)) != ndim:
        raise _C.UserError(
            f"permute: dims must name each axis once: got {given} for a tensor of shape "
            f"{tuple(input.shape)}"
        )
    return make_view("permute", input, dims=order)


def transpose(input: Tensor, dim0: int | None = None, dim1: int | None = None) -> Tensor:
    """View with the axes ``dim0`` and ``dim1`` swapped; without both, all axes are reversed."""
    ndim = input.ndim
    order = list(range(ndim))
    if dim0 is None or dim1 is None:
        if dim0 is not dim1:
            raise _C.UserError("transpose: one axis is missing; give both dim0 and dim1, or none")
        return make_view("permute", input, dims=order[::-1])
    first = normalize_dim("transpose", dim0, ndim)
    second = normalize_dim("transpose", dim1, ndim)
    if ndim:
        order[first], order[second] = second, first
    return make_view("permute", input, dims=order)


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """``transpose(input, axis0, axis1)``."""
    return transpose(input, axis0, axis1)


def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """``transpose(input, dim0, dim1)``."""
    return transpose(input, dim0, dim1)


def t(input: Tensor) -> Tensor:
    """View of a matrix with its axes swapped; fewer axes stay. Raises: ShapeError for more."""
    if input.ndim > 2:
        raise _C.ShapeError(
            f"t: more than two axes: got shape {tuple(input.shape)}; use transpose or mT"
        )
    return make_view("permute", input, dims=tuple(range(input.ndim))[::-1])


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """View with the axes ``source`` at the places ``destination``; the others keep their order.

    Raises: UserError if the two differ in length or name an axis twice.
    """
    ndim = input.ndim
    sources = normalize_dims("movedim", (source,) if isinstance(source, int) else source, ndim)
    places = (destination,) if isinstance(destination, int) else destination
    targets = normalize_dims("movedim", places, ndim)
    if len(sources) != len(targets):
        raise _C.UserError(f"movedim: lengths differ: got {source} and {destination}")
    rest = iter([d for d in range(ndim) if d not in sources])
    at = dict(zip(targets, sources, strict=True))
    order = [at[d] if d in at else next(rest) for d in range(ndim)]
    return make_view("permute", input, dims=order)


def slice_axis(input: Tensor, dim: int, start: int, size: int, step: int = 1) -> Tensor:
    """View of ``size`` elements of one axis: start, start + step, ...; nothing is checked."""
    ndim = input.ndim
    starts, steps, sizes = [0] * ndim, [1] * ndim, list(input.shape)
    starts[dim], steps[dim], sizes[dim] = start, step, size
    return make_view("slice", input, starts=starts, sizes=sizes, steps=steps)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """View of the elements start .. start + length - 1 of the axis ``dim``.

    Raises: OutOfRangeError if they are not all there, or for a 0-d tensor.
    """
    if input.ndim == 0:
        raise _C.OutOfRangeError("narrow: a 0-d tensor has no axis; give one with an axis")
    dim = normalize_dim("narrow", dim, input.ndim)
    size = input.shape[dim]
    first = as_int("narrow", "start", start)
    if first < 0:
        first += size
    if first < 0 or length < 0 or first + length > size:
        raise _C.OutOfRangeError(
            f"narrow: out of range: got start {start}, length {length} for size {size}"
        )
    return slice_axis(input, dim, first, length)


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """View of one place of the axis ``dim``, which goes.

    Raises: OutOfRangeError.
    """
    shape = input.shape
    if not shape:
        raise _C.OutOfRangeError("select: a 0-d tensor has no axis; use item() to read it")
    dim = normalize_dim("select", dim, len(shape))
    size = shape[dim]
    place = operator.index(index)
    if not -size <= place < size:
        raise _C.OutOfRangeError(f"index: out of range: got {place} for axis {dim} of size {size}")
    row = slice_axis(input, dim, place % size, 1)
    return make_view("reshape", row, shape=shape[:dim] + shape[dim + 1 :])


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of each place of the axis ``dim``, which goes."""
    if input.ndim == 0:
        raise _C.OutOfRangeError("unbind: a 0-d tensor has no axis; give one with an axis")
    dim = normalize_dim("unbind", dim, input.ndim)
    return tuple([select(input, dim, i) for i in range(input.shape[dim])])


def split(
    input: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Views of consecutive pieces of the axis ``dim``.

    Args:
        split_size_or_sections: the size of every piece (the last may be smaller), or all sizes.

    Raises: UserError if the size is not positive or the sizes do not add up to the axis' size.
    """
    dim = normalize_dim("split", dim, input.ndim)
    if input.ndim == 0:
        raise _C.OutOfRangeError("split: a 0-d tensor has no axis; give one with an axis")
    size = input.shape[dim]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step < 0 or (step == 0 and size):
            raise _C.UserError(f"split: the size of a piece must be positive: got {step}")
        sizes = [min(step, size - start) for start in range(0, size, step or 1)] or [size]
    else:
        sizes = list(shape_from("split", (split_size_or_sections,)))
        if sum(sizes) != size or any(n < 0 for n in sizes):
            raise _C.UserError(
                f"split: the sizes do not add up to the axis: got {sizes} for size {size}"
            )
    pieces = []
    start = 0
    for n in sizes:
        pieces.append(slice_axis(input, dim, start if n else 0, n))
        start += n
    return tuple(pieces)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most ``chunks`` pieces of equal size; the last may be smaller.

    Raises: UserError if ``chunks`` is not positive.
    """
    if chunks < 1:
        raise _C.UserError(f"chunk: chunks must be positive: got {chunks}")
    dim = normalize_dim("chunk", dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if size == 0:
        return split(input, [0] * chunks, dim)
    return split(input, -(-size // chunks), dim)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """View of the elements [i, i + offset] of the axes ``dim1`` and ``dim2``, as a last axis.

    Raises: UserError if both name one axis.
    """
    ndim = input.ndim
    first = normalize_dim("diagonal", dim1, ndim)
    second = normalize_dim("diagonal", dim2, ndim)
    if first == second:
        raise _C.UserError(f"diagonal: dim1 and dim2 are one axis: got {dim1} and {dim2}")
    rest = [d for d in range(ndim) if d not in (first, second)]
    rows, columns = input.shape[first], input.shape[second]
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    start = (offset if offset >= 0 else -offset * columns) if count else 0
    moved = make_view("permute", input, dims=(*rest, first, second))
    flat = make_view("reshape", moved, shape=(*moved.shape[:-2], rows * columns))
    return slice_axis(flat, len(rest), start, count, columns + 1)


def expand(input: Tensor, *size: Size) -> Tensor:
    """``input`` repeated along its axes of size 1 and new leading axes; a copy, not a view.

    Args:
        size: the wanted sizes, or one sequence; -1 keeps the axis' own.

    Raises: ShapeError if the shapes do not fit.
    """
    target = list(shape_from("expand", size))
    shape = input.shape
    new = len(target) - len(shape)
    for d in range(max(new, 0), len(target)):
        if target[d] == -1:
            target[d] = shape[d - new]
    return _broadcast("expand", input, tuple(target))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """``expand(input, other.shape)``."""
    return _broadcast("expand_as", input, tuple(other.shape))


def broadcast_to(input: Tensor, shape: Sequence[int]) -> Tensor:
    """``expand(input, shape)``."""
    return expand(input, tuple(shape))


def _broadcast(op: str, input: Tensor, shape: tuple[int, ...]) -> Tensor:
    if any(n < 0 for n in shape) or not is_broadcastable(input.shape, shape):
        raise _C.ShapeError(
            f"{op}: shapes do not fit: got {tuple(input.shape)} for {shape}; "
            "each axis must have that size or 1"
        )
    return emit("broadcast_to", input, shape=shape)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors, broadcast to their common shape. Raises: ShapeError."""
    shape = broadcast_shapes("broadcast_tensors", [x.shape for x in tensors])
    return tuple([emit("broadcast_to", x, shape=shape) for x in tensors])


def contiguous(input: Tensor) -> Tensor:
    """``input`` itself: every tensor is dense and in row-major order."""
    return input


def clone(input: Tensor) -> Tensor:
    """New tensor with the same elements; the gradient flows back to ``input``."""
    return emit("reshape", input, shape=input.shape)


def detach(input: Tensor) -> Tensor:
    """The same elements without their history; shares the tensor's cell, so writes show in both."""
    return input.detach()


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along the axis ``dim``.

    Args:
        tensors: at least one; equal shapes but for the axis ``dim``. One of shape (0,) is ignored.

    Returns: a tensor of the promoted dtype.
    Raises: UserError for no tensors, ShapeError if the shapes do not fit.
    """
    parts = list(tensors)
    if not parts:
        raise _C.UserError("cat: no tensors are given; give at least one")
    if any(x.ndim == 0 for x in parts):
        raise _C.ShapeError("cat: a tensor has no axis; use stack for 0-d tensors")
    dtype = parts[0].dtype
    for x in parts[1:]:
        if x.dtype is not dtype:
            dtype = promote_types(dtype, x.dtype)
    parts = [x for x in parts if x.shape != (0,)] or parts[:1]
    dim = normalize_dim("cat", dim, parts[0].ndim)
    return emit("concat", *[cast(x, dtype) for x in parts], dim=dim)


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """``cat(tensors, dim)``."""
    return cat(tensors, dim)


def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """``cat(tensors, dim)``."""
    return cat(tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors, all of one shape, side by side along a new axis ``dim``.

    Raises: UserError for no tensors, ShapeError if the shapes differ.
    """
    parts = list(tensors)
    if not parts:
        raise _C.UserError("stack: no tensors are given; give at least one")
    shape = parts[0].shape
    for x in parts:
        if x.shape != shape:
            raise _C.ShapeError(
                f"stack: shapes differ: {tuple(shape)} and {tuple(x.shape)}; reshape one first"
            )
    dim = normalize_new_dim("stack", dim, len(shape))
    wide = (*shape[:dim], 1, *shape[dim:])
    return cat([emit("reshape", x, shape=wide) for x in parts], dim)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """``cat`` along the second axis, or the only one; 0-d tensors count as (1,)."""
    parts = [x if x.ndim else emit("reshape", x, shape=(1,)) for x in tensors]
    return cat(parts, 1 if parts and parts[0].ndim > 1 else 0)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """``cat`` along the first axis; tensors of fewer axes count as one row."""
    rows = [x if x.ndim > 1 else emit("reshape", x, shape=(1, x.numel())) for x in tensors]
    return cat(rows, 0)


def repeat(input: Tensor, *repeats: Size) -> Tensor:
    """The whole tensor, ``repeats`` times along each axis; extra numbers make leading axes.

    Raises: ShapeError for fewer numbers than axes.
    """
    counts = shape_from("repeat", repeats)
    shape = input.shape
    if len(counts) < len(shape) or any(n < 0 for n in counts):
        raise _C.ShapeError(
            f"repeat: got {counts} for shape {tuple(shape)}; give 0 or more for each axis"
        )
    shape = (1,) * (len(counts) - len(shape)) + tuple(shape)
    result = reshaped(input, shape)
    for dim, count in enumerate(counts):
        if count != 1:
            result = _repeat_axis(result, dim, count, interleaved=False)
    return result if result is not input else clone(input)


def _repeat_axis(input: Tensor, dim: int, count: int, interleaved: bool) -> Tensor:
    """One axis as a block ``count`` times, or each of its elements ``count`` times in a row."""
    shape = input.shape
    head, size, tail = shape[:dim], shape[dim], shape[dim + 1 :]
    # Leading and trailing axes are merged, as a tensor has at most eight.
    before, after = math.prod(head), math.prod(tail)
    block = (before, size, 1, after) if interleaved else (before, 1, size, after)
    wide = (before, size, count, after) if interleaved else (before, count, size, after)
    many = emit("broadcast_to", emit("reshape", input, shape=block), shape=wide)
    return emit("reshape", many, shape=(*head, size * count, *tail))


def tile(input: Tensor, *dims: Size) -> Tensor:
    """``repeat``, where missing leading numbers are 1."""
    counts = shape_from("tile", dims)
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


def repeat_interleave(input: Tensor, repeats: int | Tensor, dim: int | None = None) -> Tensor:
    """Each element along ``dim`` repeated in place; None flattens first.

    Args:
        repeats: a number, or an int64 tensor with one number for each element of the axis, which
            is eager only, since the result's shape depends on its values.

    Raises: TraceError for a tensor of repeats in a trace, ShapeError if its size does not fit.
    """
    if dim is None:
        input, dim = emit("reshape", input, shape=(input.numel(),)), 0
    dim = normalize_dim("repeat_interleave", dim, input.ndim)
    if not isinstance(repeats, Tensor):
        return _repeat_axis(input, dim, as_int("repeat_interleave", "repeats", repeats), True)
    from lucid.functions.indexing import repeated_places

    return emit("take", input, repeated_places(repeats, input.shape[dim]), dim=dim)


def flip(input: Tensor, *dims: Size) -> Tensor:
    """A copy with the order along each of ``dims`` reversed."""
    axes = normalize_dims("flip", shape_from("flip", dims), input.ndim) if dims else ()
    shape = input.shape
    back = [d in axes and n > 0 for d, n in enumerate(shape)]
    starts = [n - 1 if b else 0 for b, n in zip(back, shape, strict=True)]
    steps = [-1 if b else 1 for b in back]
    return emit("slice", input, starts=starts, sizes=shape, steps=steps)


def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """A copy with elements moved ``shifts`` places along ``dims``; what leaves the end comes first.

    Args:
        dims: None rolls the flattened tensor.

    Raises: UserError if the numbers of shifts and dims differ.
    """
    amounts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None:
        flat = emit("reshape", input, shape=(input.numel(),))
        return emit("reshape", _roll_axis(flat, sum(amounts), 0), shape=input.shape)
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(axes) != len(amounts):
        raise _C.UserError(f"roll: lengths differ: got shifts {amounts} and dims {axes}")
    result = input
    for amount, dim in zip(amounts, axes, strict=True):
        result = _roll_axis(result, amount, normalize_dim("roll", dim, input.ndim))
    return result if result is not input else clone(input)


def _roll_axis(input: Tensor, shift: int, dim: int) -> Tensor:
    size = input.shape[dim] if input.ndim else 0
    shift = shift % size if size else 0
    if shift == 0:
        return clone(input)
    last = slice_axis(input, dim, size - shift, shift)
    first = slice_axis(input, dim, 0, size - shift)
    return emit("concat", last, first, dim=dim)


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of the grid that 1-d tensors span: the i-th result varies along axis i.

    Args:
        indexing: ``"ij"``, or ``"xy"`` to swap the first two axes of each result.

    Raises: ShapeError for a tensor of more than one axis, UserError for another ``indexing``.
    """
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        tensors = tuple(tensors[0])
    axes = [x for x in tensors if isinstance(x, Tensor)]
    if indexing not in ("ij", "xy"):
        raise _C.UserError(f"meshgrid: unknown indexing: got {indexing!r}; use 'ij' or 'xy'")
    if any(x.ndim > 1 for x in axes):
        raise _C.ShapeError("meshgrid: a tensor has more than one axis; flatten it first")
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(axes)
    for x, place in zip(axes, order, strict=True):
        shape[place] = x.numel()
    grids = []
    for x, place in zip(axes, order, strict=True):
        line = [x.numel() if d == place else 1 for d in range(len(axes))]
        grids.append(emit("broadcast_to", emit("reshape", x, shape=line), shape=shape))
    return tuple(grids)
