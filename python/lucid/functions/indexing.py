"""Elements picked or placed by integer tensors and masks. For ``x[...]`` see ``subscript``.

Index tensors are int32 or int64; a negative index counts from the end, one out of range raises
OutOfRangeError. Functions whose result's shape depends on data raise TraceError in a trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import (
    as_int,
    beside,
    broadcast_shapes,
    cast,
    is_broadcastable,
    normalize_dim,
    refuse_in_trace,
    reshaped,
)
from lucid.functions.comparison import fitting, masked_fill
from lucid.functions.data import to_array
from lucid.functions.dtypes import dtype_name, iinfo, is_floating, is_integer
from lucid.functions.precision import autocast_as

__all__ = [
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "masked_fill",
    "masked_select",
    "nonzero",
    "one_hot",
    "pad",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "take",
    "take_along_dim",
    "unique",
]

_DEPENDS = "the result's shape depends on data, which a compiled step cannot hold"


def from_positions(positions: NDArray[Any], like: Tensor) -> Tensor:
    """An int64 tensor of positions that NumPy found (eager only), on the device of ``like``."""
    made = _C.from_numpy(numpy.ascontiguousarray(positions, dtype="int64"), copy=True)
    return beside(made, like)


def repeated_places(repeats: Tensor, length: int) -> Tensor:
    """The place i ``repeats[i]`` times, for ``repeat_interleave``. Raises: as that says."""
    refuse_in_trace("repeat_interleave", _DEPENDS, "give repeats as a number")
    counts = to_array(repeats).reshape(-1)
    if len(counts) not in (1, length) or not is_integer(repeats.dtype) or (counts < 0).any():
        raise _C.ShapeError(
            f"repeat_interleave: repeats of shape {tuple(repeats.shape)} for size {length}; "
            "give one integer of 0 or more for each element"
        )
    return from_positions(numpy.repeat(numpy.arange(length), counts), repeats)


def _flat(input: Tensor) -> Tensor:
    return emit("reshape", input, shape=(input.numel(),))


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened ``input`` at ``index``, in the shape of ``index``."""
    return emit("take", _flat(input), index, dim=0)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The places ``index`` (1-d) of the axis ``dim``. Repeated ones add up their gradients.

    Raises: ShapeError if ``index`` has more than one axis.
    """
    dim = normalize_dim("index_select", dim, input.ndim)
    if index.ndim > 1:
        raise _C.ShapeError(
            f"index_select: index has more than one axis: got shape {tuple(index.shape)}; "
            "flatten it, or use x[index]"
        )
    if input.ndim == 0:
        return reshaped(take(input, index), ())
    return emit("take", input, reshaped(index, (index.numel(),)), dim=dim)


def gather(input: Tensor, dim: int | Tensor, index: Tensor | int) -> Tensor:
    """``result[..., i, ...] = input[..., index[..., i, ...], ...]`` along ``dim``.

    Args:
        dim, index: in either order; ``index`` has as many axes as ``input``, and no axis but
            ``dim`` is longer.

    Returns: ``index``'s shape and ``input``'s dtype.
    Raises: ShapeError if the shapes do not fit.
    """
    if isinstance(dim, Tensor):
        dim, index = index, dim
    assert isinstance(index, Tensor) and not isinstance(dim, Tensor)
    axis = normalize_dim("gather", dim, input.ndim)
    if input.ndim == 0:
        return reshaped(take(input, index), index.shape)
    return emit("gather", input, index, dim=axis)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` that broadcasts ``input`` and ``indices`` against each other but for ``dim``.

    Args:
        dim: None takes from the flattened tensor.

    Raises: ShapeError if the numbers of axes differ or the shapes do not broadcast.
    """
    if dim is None:
        return take(input, _flat(indices))
    if input.ndim != indices.ndim:
        raise _C.ShapeError(
            f"take_along_dim: numbers of axes differ: {tuple(input.shape)} and "
            f"{tuple(indices.shape)}; reshape one first"
        )
    axis = normalize_dim("take_along_dim", dim, input.ndim)
    ours, theirs = list(input.shape), list(indices.shape)
    ours[axis] = theirs[axis] = 1
    common = broadcast_shapes("take_along_dim", [tuple(ours), tuple(theirs)])

    def spread(x: Tensor) -> Tensor:
        shape = (*common[:axis], x.shape[axis], *common[axis + 1 :])
        return x if x.shape == shape else emit("broadcast_to", x, shape=shape)

    return emit("gather", spread(input), spread(indices), dim=axis)


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | float | None = None,
    *,
    value: float | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy of ``input`` with ``src`` at ``index`` along ``dim``; the last write wins.

    Args:
        index: as many axes as ``input``.
        src: at least as large as ``index`` along every axis, or a number (``value``, too).
        reduce: None writes, ``"add"`` adds to what is there.

    Raises: ShapeError if the shapes do not fit, UserError if there is nothing to write,
        UnsupportedError for another ``reduce``.
    """
    axis = normalize_dim("scatter", dim, input.ndim)
    written = value if src is None else src
    if written is None:
        raise _C.UserError("scatter: nothing to write; give src or value")
    if reduce not in (None, "add"):
        raise _C.UnsupportedError(f"scatter: reduce {reduce!r} is not available; use None or 'add'")
    return _scattered("scatter_add" if reduce else "scatter", input, axis, index, written)


@autocast_as("widest")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of ``input`` with ``src`` added at ``index`` along ``dim``, repeated ones in order.

    Arguments and errors as for ``scatter``.
    """
    axis = normalize_dim("scatter_add", dim, input.ndim)
    return _scattered("scatter_add", input, axis, index, src)


@autocast_as("widest")
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy of ``input`` whose elements at ``index`` are reduced with those of ``src``.

    Args:
        reduce: ``"sum"``, ``"mean"``, ``"amax"`` or ``"amin"``. Elements that are the largest (or
            smallest) share the gradient evenly.
        include_self: False takes the elements of ``src`` only, where there are some.

    Raises: UnsupportedError for another ``reduce``; otherwise as ``scatter``.
    """
    axis = normalize_dim("scatter_reduce", dim, input.ndim)
    if reduce not in _NEUTRAL:
        raise _C.UnsupportedError(
            f"scatter_reduce: reduce {reduce!r} is not available; use one of {', '.join(_NEUTRAL)}"
        )
    start = input
    if not include_self:
        neutral = _NEUTRAL[reduce](input.dtype)
        start = _scattered("scatter", input, axis, index, neutral)
    if reduce in ("amax", "amin"):
        op = "scatter_max" if reduce == "amax" else "scatter_min"
        return _scattered(op, start, axis, index, src)
    total = _scattered("scatter_add", start, axis, index, src)
    if reduce == "sum":
        return total
    own = beside(emit("full", shape=input.shape, dtype=input.dtype, value=int(include_self)), input)
    count = emit("maximum", _scattered("scatter_add", own, axis, index, 1), 1)
    return emit("div" if is_floating(input.dtype) else "floor_divide", total, count)


def _lowest(dtype: _C.dtype) -> float:
    return -math.inf if is_floating(dtype) else iinfo(dtype).min


def _highest(dtype: _C.dtype) -> float:
    return math.inf if is_floating(dtype) else iinfo(dtype).max


#: What leaves an element as it is, by the way of reducing.
_NEUTRAL: dict[str, Callable[[_C.dtype], float]] = {
    "sum": lambda dtype: 0,
    "mean": lambda dtype: 0,
    "amax": _lowest,
    "amin": _highest,
}


def _scattered(op: str, input: Tensor, dim: int, index: Tensor, src: Tensor | float) -> Tensor:
    if not isinstance(src, Tensor):
        number = fitting(src, input.dtype, op)
        src = beside(emit("full", shape=index.shape, dtype=input.dtype, value=number), input)
    elif src.shape != index.shape:
        sizes = index.shape
        fits = src.ndim == len(sizes) and all(a >= b for a, b in zip(src.shape, sizes, strict=True))
        if not fits:
            raise _C.ShapeError(
                f"{op}: src is smaller than index: {tuple(src.shape)} and {tuple(sizes)}; "
                "broadcast it first"
            )
        src = emit("slice", src, starts=[0] * len(sizes), sizes=sizes, steps=[1] * len(sizes))
    src = cast(src, input.dtype)
    if input.ndim == 0:
        flat = [reshaped(x, (1,)) for x in (input, index, src)]
        return reshaped(emit(op, *flat, dim=0), ())
    return emit(op, input, index, src, dim=dim)


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """A copy of ``input`` with ``alpha * source`` added at the places ``index`` of ``dim``.

    Args:
        index: (n,); repeated places add in order.
        source: ``input``'s shape with size n at ``dim``.

    Raises: ShapeError if the shapes do not fit.
    """
    axis = normalize_dim("index_add", dim, input.ndim)
    added = cast(source if alpha == 1 else emit("mul", source, alpha), input.dtype)
    return emit("index_add", input, reshaped(index, (index.numel(),)), added, dim=axis)


@autocast_as("widest")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of ``input`` with ``source`` at the places ``index`` of ``dim``; the last write wins.

    Arguments and errors as for ``index_add``.
    """
    axis = normalize_dim("index_copy", dim, input.ndim)
    return emit("scatter", input, _along(index, source.shape, axis), source, dim=axis)


def index_fill(input: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """A copy of ``input`` with the number ``value`` at the places ``index`` of ``dim``."""
    axis = normalize_dim("index_fill", dim, input.ndim)
    shape = list(input.shape)
    shape[axis] = index.numel()
    return _scattered("scatter", input, axis, _along(index, shape, axis), value)


def _along(index: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """1-d ``index`` along ``dim``, the same for every other position of ``shape``."""
    line = [index.numel() if d == dim else 1 for d in range(len(shape))]
    if not is_broadcastable(line, shape):
        raise _C.ShapeError(
            f"index_copy: {index.numel()} places for shape {tuple(shape)}; give one for each"
        )
    return emit("broadcast_to", emit("reshape", index, shape=line), shape=shape)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` is true, 1-d; both broadcast. Eager only.

    Raises: TraceError in a trace, DtypeError if ``mask`` is not bool.
    """
    refuse_in_trace("masked_select", _DEPENDS, "use where(mask, x, other)")
    if mask.dtype is not _C.bool_:
        raise _C.DtypeError(f"masked_select: mask is not bool: got {dtype_name(mask.dtype)}")
    shape = broadcast_shapes("masked_select", [input.shape, mask.shape])
    if input.shape != shape:
        input = emit("broadcast_to", input, shape=shape)
    wide = numpy.broadcast_to(to_array(mask), shape)
    return emit("take", _flat(input), from_positions(numpy.flatnonzero(wide), input), dim=0)


@overload
def nonzero(input: Tensor) -> Tensor: ...


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Positions of the elements that are not 0, in row-major order. Eager only.

    Returns: int64 (count, axes), or with ``as_tuple`` one tensor (count,) for each axis.
    Raises: TraceError in a trace.
    """
    refuse_in_trace("nonzero", _DEPENDS, "use where(condition, x, other)")
    mask = input if input.dtype is _C.bool_ else emit("ne", input, 0)
    array = to_array(mask)
    if as_tuple:
        return tuple([from_positions(x, input) for x in numpy.nonzero(numpy.atleast_1d(array))])
    return from_positions(numpy.argwhere(array), input)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The different elements (or slices along ``dim``) in order; no gradient. Eager only.

    Returns: the elements, and if asked for the int64 positions that rebuild ``input`` and the
    counts. Raises: TraceError in a trace.
    """
    refuse_in_trace("unique", _DEPENDS, "call it before the step")
    array = to_array(input)
    axis = None if dim is None else normalize_dim("unique", dim, input.ndim)
    values, inverse, counts = numpy.unique(
        array, return_inverse=True, return_counts=True, axis=axis
    )
    if axis is None:
        inverse = inverse.reshape(array.shape)
    elements = beside(_C.from_numpy(numpy.ascontiguousarray(values), copy=True), input)
    found = [cast(elements, input.dtype)]
    if return_inverse:
        found.append(from_positions(inverse, input))
    if return_counts:
        found.append(from_positions(counts, input))
    return found[0] if len(found) == 1 else tuple(found)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 zeros with a 1 at each class, along a new last axis.

    Args:
        tensor: int32 or int64 classes, 0 to num_classes - 1.
        num_classes: -1 takes the largest class plus 1, which is eager only.

    Raises: DtypeError for other dtypes, OutOfRangeError for a class out of range, TraceError for
        -1 in a trace.
    """
    if tensor.dtype not in (_C.int32, _C.int64):
        raise _C.DtypeError(
            f"one_hot: classes must be int32 or int64: got {dtype_name(tensor.dtype)}"
        )
    count = as_int("one_hot", "num_classes", num_classes)
    if count == -1:
        refuse_in_trace("one_hot", _DEPENDS, "give num_classes")
        if tensor.numel() == 0:
            raise _C.UserError("one_hot: no class to count from; give num_classes")
        dims = tuple(range(tensor.ndim))
        count = int(emit("amax", tensor, dims=dims, keepdim=False).item()) + 1
        if count < 1:
            raise _C.OutOfRangeError(
                f"one_hot: a class is negative: the largest is {count - 1}; use classes from 0 on"
            )
    zeros = beside(emit("full", shape=(*tensor.shape, count), dtype=_C.int64, value=0), tensor)
    ones = beside(emit("full", shape=(*tensor.shape, 1), dtype=_C.int64, value=1), tensor)
    # scatter counts negative classes from the end, so they are sent out of range.
    known = emit("where", emit("lt", tensor, 0), count, tensor)
    place = emit("reshape", known, shape=(*tensor.shape, 1))
    return emit("scatter", zeros, place, ones, dim=tensor.ndim)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """``input`` made larger (or, with negative numbers, smaller) at its last axes.

    Args:
        pad: (before, after) of the last axis, then of the one before it, and so on.
        mode: ``"constant"`` fills with ``value`` (0), ``"reflect"`` mirrors without the edge,
            ``"replicate"`` repeats the edge, ``"circular"`` goes on at the other end.

    Raises: UserError for a bad ``pad`` or ``mode``, ShapeError if an axis is too short.
    """
    amounts = [as_int("pad", "pad", n) for n in pad]
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise _C.UserError(
            f"pad: got {len(amounts)} numbers for a tensor of shape {tuple(input.shape)}; "
            "give two for each padded axis"
        )
    low, high = [0] * input.ndim, [0] * input.ndim
    for i in range(len(amounts) // 2):
        low[-1 - i], high[-1 - i] = amounts[2 * i : 2 * i + 2]
    if mode == "constant":
        return _pad_constant(input, low, high, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise _C.UserError(
            f"pad: unknown mode: got {mode!r}; use constant, reflect, replicate or circular"
        )
    result = input
    for dim in range(input.ndim):
        if low[dim] or high[dim]:
            places = _padded_places(mode, input.shape[dim], low[dim], high[dim])
            result = emit("take", result, beside(places, result), dim=dim)
    return result


def _pad_constant(input: Tensor, low: list[int], high: list[int], value: float) -> Tensor:
    shape = input.shape
    starts = [max(0, -n) for n in low]
    sizes = [n - s - max(0, -h) for n, s, h in zip(shape, starts, high, strict=True)]
    if min(sizes, default=0) < 0:
        raise _C.ShapeError(f"pad: more is cut off than there is: got shape {tuple(shape)}")
    if tuple(sizes) != tuple(shape):
        input = emit("slice", input, starts=starts, sizes=sizes, steps=[1] * len(sizes))
    low, high = [max(0, n) for n in low], [max(0, n) for n in high]
    return emit("pad", input, low=low, high=high, value=fitting(value, input.dtype, "pad"))


def _padded_places(mode: str, size: int, low: int, high: int) -> Tensor:
    """The place of the axis that each place of the padded axis shows."""
    limit = {"reflect": size - 1, "replicate": math.inf, "circular": size}[mode]
    if size == 0 or max(low, high) > limit or size + low + high < 0:
        raise _C.ShapeError(f"pad: {mode} by {low} and {high} is too much for size {size}")
    count = size + low + high
    places = emit("arange", start=-low, step=1, count=count, dtype=_C.int64)
    if mode == "circular":
        return emit("remainder", places, size)
    if mode == "replicate":
        return emit("clamp", places, 0, size - 1)
    from_end = emit("abs", emit("sub", size - 1, emit("abs", places)))
    return emit("sub", size - 1, from_end)
