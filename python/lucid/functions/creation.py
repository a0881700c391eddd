"""New tensors: from data, filled, counted up, or shaped like another.

``dtype`` None means: that of the data, or the default float. ``device`` None means the default
device. ``requires_grad`` makes the result a leaf that collects a gradient (floating dtypes only).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import (
    DeviceLike,
    Size,
    as_int,
    beside,
    cast,
    converted,
    new_shape,
    place,
    place_new,
)
from lucid.functions.data import array_of, from_array
from lucid.functions.dtypes import as_dtype, dtype_name, is_floating, scalar_dtype
from lucid.functions.precision import autocast_as

__all__ = [
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tensor",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

_PLAIN = frozenset((bool, int, float))


def tensor(
    data: object,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with a copy of ``data``.

    Args:
        data: a number, nested lists of numbers, a NumPy array (keeps its dtype) or a tensor.
        dtype: None: bool, int64 or the default float for Python numbers, else the data's own.

    Returns: a leaf; its shape is that of the nesting.
    Raises: UserError where nested lists are ragged or a number does not fit into ``dtype``,
        TraceError for a NumPy array in a trace.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, Tensor):
        copy = emit("detach", data)
        result = copy if wanted is None else cast(copy, wanted)
    elif type(data) in _PLAIN:
        assert isinstance(data, int | float)
        kind = scalar_dtype(data) if wanted is None else wanted
        result = emit("full", shape=(), dtype=kind, value=_number(data, kind))
    else:
        result = from_array(*array_of(data, wanted), copy=True)
    return place_new(result, device, requires_grad)


def as_tensor(
    data: object, dtype: _C.dtype | None = None, device: DeviceLike | None = None
) -> Tensor:
    """``data`` as a tensor; a tensor of that dtype and device is returned as it is.

    A NumPy array is shared, not copied, where its dtype stays. Raises: as ``tensor``.
    """
    if isinstance(data, Tensor):
        return place(data, device) if dtype is None else converted(data, as_dtype(dtype), device)
    if isinstance(data, numpy.ndarray):
        shared = from_numpy(data)
        return place_new(shared if dtype is None else cast(shared, as_dtype(dtype)), device)
    return tensor(data, dtype, device)


def from_numpy(ndarray: NDArray[Any]) -> Tensor:
    """A tensor on the memory of a NumPy array, which it borrows: it never writes to it.

    Raises: ArgumentTypeError for another type, DtypeError for a dtype that lucid lacks,
        TraceError in a trace.
    """
    if not isinstance(ndarray, numpy.ndarray):
        raise _C.ArgumentTypeError(
            f"from_numpy: expected a NumPy array: got {type(ndarray).__name__}; use tensor"
        )
    return from_array(*array_of(ndarray, None, "from_numpy"), copy=False)


def from_dlpack(ext_tensor: object) -> Tensor:
    """A tensor on the memory of an object that exports DLPack, which it borrows.

    Raises: TraceError in a trace.
    """
    if isinstance(ext_tensor, Tensor):
        return emit("detach", ext_tensor)
    return from_numpy(numpy.from_dlpack(ext_tensor))  # type: ignore[arg-type]


def _number(value: float, dtype: _C.dtype) -> float:
    """``value`` as Python's number for ``dtype``."""
    if is_floating(dtype):
        return float(value)
    if dtype is _C.bool_:
        return bool(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _C.UserError(
            f"full: a number does not fit into {dtype_name(dtype)}: got {value}; use a float dtype"
        )
    return int(value)


def filled(
    op: str,
    size: Sequence[Size],
    value: float,
    dtype: _C.dtype | None,
    device: DeviceLike | None,
    requires_grad: bool,
) -> Tensor:
    """The tensor of that shape with ``value`` everywhere."""
    kind = _C.get_default_dtype() if dtype is None else as_dtype(dtype)
    result = emit("full", shape=new_shape(op, size), dtype=kind, value=_number(value, kind))
    return place_new(result, device, requires_grad)


def zeros(
    *size: Size,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros of shape ``size`` (numbers or one sequence). Raises: ShapeError for a negative size."""
    return filled("zeros", size, 0, dtype, device, requires_grad)


def ones(
    *size: Size,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones of shape ``size`` (numbers or one sequence). Raises: ShapeError for a negative size."""
    return filled("ones", size, 1, dtype, device, requires_grad)


def empty(
    *size: Size,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of shape ``size`` for later use; it holds zeros."""
    return filled("empty", size, 0, dtype, device, requires_grad)


def full(
    size: Size,
    fill_value: Tensor | float,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``fill_value`` everywhere.

    Args:
        fill_value: number or 0-d tensor.
        dtype: None takes that of ``fill_value``.

    Raises: ShapeError for a negative size, UserError if the value does not fit into ``dtype``.
    """
    if isinstance(fill_value, Tensor):
        value = fill_value if dtype is None else cast(fill_value, as_dtype(dtype))
        spread = emit("broadcast_to", emit("detach", value), shape=new_shape("full", (size,)))
        return place_new(spread, device or spread.device, requires_grad)
    kind = scalar_dtype(fill_value) if dtype is None else dtype
    return filled("full", (size,), fill_value, kind, device, requires_grad)


def zeros_like(
    input: Tensor,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros with the shape of ``input``, and its dtype and device where none is given."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones with the shape of ``input``, and its dtype and device where none is given."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor like ``input`` for later use; it holds zeros."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(
    input: Tensor,
    fill_value: float,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``fill_value`` with the shape of ``input``, and its dtype and device where none is given."""
    kind = input.dtype if dtype is None else as_dtype(dtype)
    result = emit("full", shape=input.shape, dtype=kind, value=_number(fill_value, kind))
    return place_new(result, input.device if device is None else device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The (n, m) matrix with 1 on the diagonal, else 0; ``m`` None means ``n``."""
    rows, columns = new_shape("eye", (n, n if m is None else m))
    kind = _C.get_default_dtype() if dtype is None else as_dtype(dtype)
    result = cast(emit("eq", _steps(rows, (rows, 1)), _steps(columns, (columns,))), kind)
    return place_new(result, device, requires_grad)


def _steps(count: int, shape: Sequence[int]) -> Tensor:
    """0 .. count - 1, int64, in that shape."""
    steps = emit("arange", start=0, step=1, count=count, dtype=_C.int64)
    return emit("reshape", steps, shape=shape)


def arange(
    start: float | Tensor,
    end: float | Tensor | None = None,
    step: float | Tensor = 1,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to but without ``end``; ``arange(end)`` starts at 0.

    Args:
        dtype: None: int64 if all three are integers, else the default float.

    Raises: UserError if ``step`` is 0, leads away from ``end``, or a bound is not finite.
    """
    first, last = (0, start) if end is None else (start, end)
    low, high, by = (x.item() if isinstance(x, Tensor) else x for x in (first, last, step))
    if dtype is None:
        whole = all(not isinstance(x, float | numpy.floating) for x in (low, high, by))
        kind = _C.int64 if whole else _C.get_default_dtype()
    else:
        kind = as_dtype(dtype)
    if by == 0 or not all(math.isfinite(x) for x in (low, high, by)):
        raise _C.UserError(
            f"arange: step is 0 or a bound is not finite: got start {low}, end {high}, step {by}"
        )
    if (high - low) * by < 0:
        raise _C.UserError(
            f"arange: step leads away from end: got start {low}, end {high}, step {by}; "
            "change the sign of step"
        )
    count = math.ceil((high - low) / by) if _has_fraction(low, high, by) else -((low - high) // by)
    if not is_floating(kind):
        low, by = int(low), int(by)
    result = emit("arange", start=low, step=by, count=int(count), dtype=kind)
    return place_new(result, device, requires_grad)


def _has_fraction(*numbers: float) -> bool:
    return any(isinstance(x, float) for x in numbers)


def linspace(
    start: float | Tensor,
    end: float | Tensor,
    steps: int,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``steps`` numbers at equal distances, both ends included exactly.

    Raises: UserError if ``steps`` is negative.
    """
    count = as_int("linspace", "steps", steps)
    if count < 0:
        raise _C.UserError(f"linspace: steps is negative: got {count}; use 0 or more")
    kind = _C.get_default_dtype() if dtype is None else as_dtype(dtype)
    wide = kind if is_floating(kind) else _C.float64
    low, high = (float(x.item() if isinstance(x, Tensor) else x) for x in (start, end))
    if count < 2:
        result = emit("full", shape=(count,), dtype=wide, value=low)
        return place_new(cast(result, kind), device, requires_grad)
    # The first half counts up from start and the second down from end, so that both are exact.
    by = (high - low) / (count - 1)
    half = count // 2
    up = emit("arange", start=0, step=1, count=half, dtype=wide)
    down = emit("arange", start=count - 1 - half, step=-1, count=count - half, dtype=wide)
    first = emit("add", emit("mul", up, by), low)
    second = emit("sub", high, emit("mul", down, by))
    return place_new(cast(emit("concat", first, second, dim=0), kind), device, requires_grad)


@autocast_as("none")
def logspace(
    start: float | Tensor,
    end: float | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``base`` to the powers ``linspace(start, end, steps)``."""
    kind = _C.get_default_dtype() if dtype is None else as_dtype(dtype)
    powers = emit("pow", base, linspace(start, end, steps, dtype=kind, device=device))
    return powers.requires_grad_() if requires_grad else powers


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes' elements on and below a diagonal, else 0.

    Args:
        diagonal: 0 is the main one, positive numbers lie above it.

    Raises: ShapeError for fewer than two axes.
    """
    return emit("where", _triangle("tril", "ge", input, diagonal), input, _zero(input))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes' elements on and above a diagonal, else 0. Arguments as for ``tril``."""
    return emit("where", _triangle("triu", "le", input, diagonal), input, _zero(input))


def _zero(input: Tensor) -> float:
    return False if input.dtype is _C.bool_ else 0


def _triangle(op: str, comparison: str, input: Tensor, diagonal: int) -> Tensor:
    """Mask of the elements whose row + diagonal compares with their column."""
    if input.ndim < 2:
        raise _C.ShapeError(
            f"{op}: fewer than two axes: got shape {tuple(input.shape)}; give a matrix"
        )
    rows, columns = input.shape[-2:]
    row = emit("arange", start=diagonal, step=1, count=rows, dtype=_C.int64)
    row = emit("reshape", row, shape=(rows, 1))
    mask = emit(comparison, row, _steps(columns, (columns,)))
    return beside(mask, input)
