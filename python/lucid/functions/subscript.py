"""``x[index]`` and ``x[index] = value``.

PyTorch's rules: integers and slices are applied first and give a view; then masks and integer
tensors pick elements and give a copy. Their common axes land where they were if they stood side by
side, else first. An assignment computes the whole new value and puts it into the tensor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy

from lucid import _C
from lucid._C import Tensor, emit, view
from lucid.functions.arguments import (
    beside,
    broadcast_shapes,
    cast,
    count_axes,
    is_broadcastable,
    refuse_in_trace,
    reshaped,
)
from lucid.functions.creation import as_tensor, tensor
from lucid.functions.data import to_array
from lucid.functions.dtypes import dtype_name, is_floating
from lucid.functions.indexing import from_positions
from lucid.functions.shape import select, slice_axis

_ONE_AXIS = frozenset((int, slice))
_LISTED = (list, tuple, numpy.ndarray)


class _Picked(NamedTuple):
    """A mask or integer tensor and the first axis that it indexes."""

    axis: int
    key: Tensor


class _Plan(NamedTuple):
    """An index, taken apart: a slice, a reshape, and what picks by tensors from the result."""

    starts: list[int]
    sizes: list[int]
    steps: list[int]
    shape: tuple[int, ...]
    picked: list[_Picked]


def _as_index(item: object) -> object:
    """A list or array as the tensor that indexes; anything else as it is.

    Raises: DtypeError for a tensor that is neither bool nor int64, int32, int16 or int8.
    """
    if isinstance(item, _LISTED):
        item = tensor(item, _C.int64) if isinstance(item, list) and not item else tensor(item)
    if not isinstance(item, Tensor):
        return item
    if is_floating(item.dtype) or item.dtype is _C.uint8:
        raise _C.DtypeError(
            f"index: an index tensor cannot be {dtype_name(item.dtype)}; "
            "use bool for a mask, int64 for positions"
        )
    return cast(item, _C.int64) if item.dtype in (_C.int8, _C.int16) else item


def _axes_of(item: object) -> int:
    """How many axes the item indexes."""
    if type(item) in _ONE_AXIS:
        return 1
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype is _C.bool_:
        return item.ndim
    return 1


def _spelled_out(index: object, ndim: int) -> list[object]:
    """The items with the ellipsis and the missing ones at the end replaced by full slices.

    Raises: OutOfRangeError for too many, UserError for two ellipses.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    consumed = 0
    for i, x in enumerate(items):
        if type(x) not in _ONE_AXIS:
            items[i] = x = _as_index(x)
        consumed += _axes_of(x)
    if consumed > ndim:
        raise _C.OutOfRangeError(
            f"index: too many indices: got {consumed} for a tensor of {count_axes(ndim)}"
        )
    gaps = [i for i, x in enumerate(items) if x is Ellipsis]
    if len(gaps) > 1:
        raise _C.UserError("index: more than one ellipsis; use '...' once")
    gap = gaps[0] if gaps else len(items)
    fill: list[object] = [slice(None)] * (ndim - consumed)
    return items[:gap] + fill + items[gap + 1 :]


def _bounds(item: slice, size: int) -> tuple[int, int, int]:
    """Start, count and step of a slice, as Python reads it. Raises: UserError for step 0."""
    try:
        start, stop, step = item.indices(size)
    except ValueError:
        raise _C.UserError("index: a slice has step 0; use another step") from None
    except TypeError:
        raise _C.ArgumentTypeError(f"index: slice bounds must be integers: got {item}") from None
    if step == 1:
        return (start, stop - start, 1) if stop > start else (0, 0, 1)
    count = len(range(start, stop, step))
    return (start, count, step) if count else (0, 0, 1)


def _place(item: object, axis: int, size: int) -> int:
    try:
        place = operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        raise _C.ArgumentTypeError(
            f"index: cannot index with {type(item).__name__}; use integers, slices, '...', None, "
            "masks or integer tensors"
        ) from None
    if not -size <= place < size:
        raise _C.OutOfRangeError(f"index: out of range: got {place} for axis {axis} of size {size}")
    return place % size


def _plan(x: Tensor, index: object) -> _Plan:
    old = x.shape
    starts, sizes, steps = [0] * len(old), list(old), [1] * len(old)
    shape: list[int] = []
    picked: list[_Picked] = []
    axis = 0
    for item in _spelled_out(index, len(old)):
        if isinstance(item, slice):
            starts[axis], sizes[axis], steps[axis] = _bounds(item, old[axis])
            shape.append(sizes[axis])
            axis += 1
        elif item is None or item is True:
            shape.append(1)
        elif item is False:
            picked.append(_Picked(len(shape), beside(tensor([], _C.int64), x)))
            shape.append(1)
        elif isinstance(item, Tensor):
            item = beside(item, x)
            axes = _axes_of(item)
            covered = tuple(old[axis : axis + axes])
            if item.dtype is _C.bool_ and tuple(item.shape) != covered:
                raise _C.ShapeError(
                    f"index: the mask has shape {tuple(item.shape)}, the axes that it covers "
                    f"{covered}; use a mask of that shape"
                )
            picked.append(_Picked(len(shape), item))
            shape.extend(covered)
            axis += axes
        else:
            starts[axis] = _place(item, axis, old[axis])
            sizes[axis] = 1
            axis += 1
    return _Plan(starts, sizes, steps, tuple(shape), picked)


def _takes_all(plan: _Plan, shape: Sequence[int]) -> bool:
    return plan.sizes == list(shape) and plan.steps == [1] * len(shape)


def get(x: Tensor, index: object) -> Tensor:
    """``x[index]``: a view for integers, slices, ``...`` and None; else a copy.

    Raises: OutOfRangeError, ShapeError if masks or index tensors do not fit, DtypeError for index
    tensors of other dtypes, TraceError for a mask in a trace.
    """
    if type(index) is int:
        return select(x, 0, index)
    if type(index) is slice and x.ndim:
        return slice_axis(x, 0, *_bounds(index, x.shape[0]))
    plan = _plan(x, index)
    result = x
    if not _takes_all(plan, x.shape):
        result = view("slice", x, starts=plan.starts, sizes=plan.sizes, steps=plan.steps)
    if result is x or plan.shape != tuple(plan.sizes):
        result = view("reshape", result, shape=plan.shape)
    return _take(result, plan.picked) if plan.picked else result


def _positions(picked: list[_Picked]) -> list[_Picked]:
    """Masks replaced by integer tensors, one for each axis that they cover.

    Raises: TraceError for a mask in a trace.
    """
    result: list[_Picked] = []
    for axis, index in picked:
        if index.dtype is not _C.bool_:
            result.append(_Picked(axis, index))
            continue
        refuse_in_trace(
            "index",
            "a bool mask picks a number of elements that depends on data, "
            "which a compiled step cannot hold",
            "use where(mask, x, other)",
        )
        found = numpy.nonzero(to_array(index))
        result.extend(_Picked(axis + i, from_positions(p, index)) for i, p in enumerate(found))
    return result


class _Layout(NamedTuple):
    """The indexed axes as one axis: how to bring a tensor into that form, and the places in it."""

    order: list[int]  # of the axes, the indexed ones side by side
    shape: tuple[int, ...]  # with the indexed axes merged into one
    axis: int  # that one
    places: Tensor  # in it, in the common shape of the index tensors


def _layout(x: Tensor, picked: list[_Picked]) -> _Layout:
    shape = x.shape
    axes = [p.axis for p in picked]
    rest = [d for d in range(x.ndim) if d not in axes]
    # 0-d tensors act as integers do: they have no say in where the common axes land.
    wide = [p.axis for p in picked if p.key.ndim]
    between = [d for d in rest if wide and wide[0] < d < wide[-1]]
    first = wide[0] if wide else axes[0]
    axis = 0 if between else sum(d < first for d in rest)
    merged = math.prod(shape[d] for d in axes)
    new_shape = (*[shape[d] for d in rest[:axis]], merged, *[shape[d] for d in rest[axis:]])
    return _Layout(rest[:axis] + axes + rest[axis:], new_shape, axis, _linear(shape, picked))


def _linear(shape: Sequence[int], picked: list[_Picked]) -> Tensor:
    """Row-major place within the indexed axes, in the common shape of the index tensors."""
    if len(picked) == 1:
        return picked[0].key
    try:
        broadcast_shapes("index", [p.key.shape for p in picked])
    except _C.ShapeError:
        shapes = ", ".join(str(tuple(p.key.shape)) for p in picked)
        raise _C.ShapeError(
            f"index: the index tensors do not broadcast: {shapes}; reshape one first"
        ) from None
    total: Tensor | None = None
    stride = 1
    for axis, index in reversed(picked):
        # A table look-up wraps negative places and refuses those out of range.
        table = emit("arange", start=0, step=stride, count=shape[axis], dtype=_C.int64)
        table = beside(table, index)
        term = emit("take", table, index, dim=0)
        total = term if total is None else emit("add", term, total)
        stride *= shape[axis]
    assert total is not None
    return total


def _merge(x: Tensor, layout: _Layout) -> Tensor:
    if layout.order != sorted(layout.order):
        x = emit("permute", x, dims=layout.order)
    return reshaped(x, layout.shape)


def _take(x: Tensor, picked: list[_Picked]) -> Tensor:
    if len(picked) == 1 and picked[0].key.dtype is _C.bool_ and picked[0].key.ndim == 0:
        return _take_scalar_mask(x, picked[0])
    layout = _layout(x, _positions(picked))
    return emit("take", _merge(x, layout), layout.places, dim=layout.axis)


def _take_scalar_mask(x: Tensor, picked: _Picked) -> Tensor:
    """``x`` with a new axis of size 1 or 0: a 0-d mask is true or false."""
    chosen = get(x, (slice(None),) * picked.axis + (bool(picked.key.item()),))
    return chosen


def put(x: Tensor, index: object, value: object) -> None:
    """``x[index] = value``; ``value`` is cast to ``x``'s dtype and broadcast.

    Of places named twice, the last one in row-major order wins. A mask with a value that broadcasts
    works in a trace, too.

    Raises: as ``get``, and ShapeError if ``value`` does not broadcast to the indexed part.
    """
    plan = _plan(x, index)
    if plan.picked:
        part = x
        if not _takes_all(plan, x.shape):
            part = emit("slice", x, starts=plan.starts, sizes=plan.sizes, steps=plan.steps)
        part = _put_picked(reshaped(part, plan.shape), plan.picked, value)
    else:
        part = _fitted(value, plan.shape, x)
    if 0 in plan.sizes:
        return
    part = reshaped(part, plan.sizes)
    if not _takes_all(plan, x.shape):
        part = emit("slice_update", x, part, starts=plan.starts, steps=plan.steps)
    x.assign_(part)


def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of ``input`` with ``values`` put at ``x[indices]``, or added there, in order.

    Raises: as ``x[indices] = values``.
    """
    if not accumulate:
        result = emit("reshape", input, shape=input.shape)
        put(result, tuple(indices), values)
        return result
    count = input.numel()
    line = beside(emit("arange", start=0, step=1, count=count, dtype=_C.int64), input)
    places = get(reshaped(line, input.shape), tuple(indices))
    added = _fitted(values, places.shape, input)
    parts = (reshaped(x, (x.numel(),)) for x in (input, places, added))
    return reshaped(emit("index_add", *parts, dim=0), input.shape)


def _as_value(value: object, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return cast(value, like.dtype)
    return beside(as_tensor(value, like.dtype), like)


def _fitted(value: object, shape: Sequence[int], like: Tensor) -> Tensor:
    """``value`` in ``like``'s dtype and in that shape; leading axes of size 1 may go.

    Raises: ShapeError.
    """
    if isinstance(value, (int, float)):
        number = value if is_floating(like.dtype) else int(value)
        return beside(emit("full", shape=shape, dtype=like.dtype, value=number), like)
    source = _as_value(value, like)
    old = tuple(source.shape)
    extra = max(0, len(old) - len(shape))
    if any(n != 1 for n in old[:extra]) or not is_broadcastable(old[extra:], shape):
        raise _C.ShapeError(
            f"index: the value has shape {old}, the indexed part {tuple(shape)}; "
            "broadcast or reshape it first"
        )
    source = reshaped(source, old[extra:])
    return source if old[extra:] == tuple(shape) else emit("broadcast_to", source, shape=shape)


def _put_picked(x: Tensor, picked: list[_Picked], value: object) -> Tensor:
    """``x`` with ``value`` at the picked places."""
    if len(picked) == 1 and picked[0].key.dtype is _C.bool_:
        filled = _put_mask(x, picked[0], value)
        if filled is not None:
            return filled
    layout = _layout(x, _positions(picked))
    merged = _merge(x, layout)
    head, tail = layout.shape[: layout.axis], layout.shape[layout.axis + 1 :]
    count = layout.places.numel()
    source = _fitted(value, (*head, *layout.places.shape, *tail), x)
    wide = (*head, count, *tail)
    line = (*[1] * len(head), count, *[1] * len(tail))
    places = reshaped(layout.places, line)
    if line != wide:
        places = emit("broadcast_to", places, shape=wide)
    merged = emit("scatter", merged, places, reshaped(source, wide), dim=layout.axis)
    return _unmerge(merged, layout, x.shape)


def _unmerge(merged: Tensor, layout: _Layout, shape: Sequence[int]) -> Tensor:
    """The inverse of ``_merge``."""
    apart = reshaped(merged, [shape[d] for d in layout.order])
    if layout.order == sorted(layout.order):
        return apart
    return emit("permute", apart, dims=[layout.order.index(d) for d in range(len(shape))])


def _put_mask(x: Tensor, picked: _Picked, value: object) -> Tensor | None:
    """``x`` with ``value`` where the mask is true; None if it has one element for each of them."""
    axis, mask = picked
    tail = x.ndim - axis - mask.ndim
    wide_mask = reshaped(mask, (*mask.shape, *[1] * tail))
    if isinstance(value, (int, float)):
        number = value if is_floating(x.dtype) else int(value)
        source = beside(emit("full", shape=(), dtype=x.dtype, value=number), x)
        return emit("where", wide_mask, source, x)
    source = _as_value(value, x)
    shape = tuple(source.shape)
    if len(shape) > tail:
        at = len(shape) - tail - 1
        if shape[at] != 1:
            return None
        shape = (*shape[:at], *[1] * mask.ndim, *shape[at + 1 :])
    while len(shape) > x.ndim and shape[0] == 1:
        shape = shape[1:]
    if not is_broadcastable(shape, x.shape):
        raise _C.ShapeError(
            f"index: the value has shape {tuple(source.shape)}, the masked tensor "
            f"{tuple(x.shape)}; give a number, or one that broadcasts"
        )
    return emit("where", wide_mask, reshaped(source, shape), x)
