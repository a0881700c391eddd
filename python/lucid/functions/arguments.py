"""Checks and conversions of arguments that many functions share: axes, shapes, dtypes, devices."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Iterable, Sequence

from lucid import _C
from lucid._C import Tensor, emit

Dims = int | Sequence[int] | None
Size = int | Sequence[int]
Operand = Tensor | float  # float covers int and bool
DeviceLike = _C.device | str

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def as_int(op: str, name: str, value: object) -> int:
    """An exact integer: Python's, NumPy's or a one-element integer tensor.

    Raises: ArgumentTypeError for anything else.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _C.ArgumentTypeError(
            f"{op}: {name} must be an integer: got {type(value).__name__}"
        ) from None


def count_axes(ndim: int) -> str:
    """``"1 axis"``, ``"2 axes"``: for messages."""
    return "1 axis" if ndim == 1 else f"{ndim} axes"


def normalize_dim(op: str, dim: int, ndim: int) -> int:
    """The axis counted from the front; a 0-d tensor counts as one axis.

    Raises: OutOfRangeError where there is no such axis.
    """
    if type(dim) is not int:
        dim = as_int(op, "dim", dim)
    if 0 <= dim < ndim:
        return dim
    span = ndim or 1
    if -span <= dim < span:
        return dim % span
    raise _C.OutOfRangeError(
        f"{op}: dim out of range: got {dim} for a tensor of {count_axes(ndim)}; "
        f"use {-span} to {span - 1}"
    )


def normalize_new_dim(op: str, dim: int, ndim: int) -> int:
    """The place of an axis to insert into a tensor of ``ndim`` axes, counted from the front.

    Raises: OutOfRangeError.
    """
    dim = as_int(op, "dim", dim)
    if not -ndim - 1 <= dim <= ndim:
        raise _C.OutOfRangeError(
            f"{op}: dim out of range: got {dim} for a tensor of {count_axes(ndim)}; "
            f"use {-ndim - 1} to {ndim}"
        )
    return dim % (ndim + 1)


def normalize_dims(op: str, dim: Dims, ndim: int) -> tuple[int, ...]:
    """The axes to reduce, counted from the front; None or an empty sequence means all.

    Raises: OutOfRangeError, UserError where an axis is named twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if type(dim) is int:
        return (normalize_dim(op, dim, ndim),) if ndim else _no_axis(op, dim)
    if not isinstance(dim, Sequence):
        dim = (as_int(op, "dim", dim),)
    dims = tuple(normalize_dim(op, d, ndim) for d in dim)
    if len(set(dims)) != len(dims):
        raise _C.UserError(f"{op}: an axis is named twice: got dim {tuple(dim)}; name each once")
    if ndim == 0:
        return ()
    return dims or tuple(range(ndim))


def _no_axis(op: str, dim: int) -> tuple[int, ...]:
    normalize_dim(op, dim, 0)
    return ()


def shape_from(op: str, size: Sequence[Size]) -> tuple[int, ...]:
    """The shape given as varargs or as one sequence; negative sizes are kept.

    Raises: ArgumentTypeError.
    """
    if len(size) == 1 and type(size[0]) is not int and isinstance(size[0], Sequence):
        size = size[0]
    for n in size:
        if type(n) is not int:
            return tuple([as_int(op, "size", n) for n in size])
    return tuple(size)  # type: ignore[arg-type]  # each is an int


def new_shape(op: str, size: Sequence[Size]) -> tuple[int, ...]:
    """As ``shape_from`` for a tensor that is made.

    Raises: ArgumentTypeError, ShapeError for a negative size.
    """
    shape = shape_from(op, size)
    for n in shape:
        if n < 0:
            raise _C.ShapeError(f"{op}: a size is negative: got {shape}; use sizes of 0 or more")
    return shape


def infer_shape(op: str, shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """``shape`` with its -1 replaced by the size that makes ``numel`` elements.

    Raises: ShapeError.
    """
    if -1 not in shape:
        return shape
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or known < 0:
        raise _C.ShapeError(f"{op}: more than one size is unknown: got {shape}; use -1 once")
    if known == 0 or numel % known:
        raise _C.ShapeError(
            f"{op}: -1 cannot be found: got shape {shape} for {numel} elements; "
            f"use sizes whose product divides {numel}"
        )
    place = shape.index(-1)
    return shape[:place] + (numel // known,) + shape[place + 1 :]


def broadcast_shapes(op: str, shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape under NumPy's broadcasting rule.

    Raises: ShapeError.
    """
    result: list[int] = []
    for shape in shapes:
        if len(shape) > len(result):
            result[:0] = [1] * (len(shape) - len(result))
        for place, n in enumerate(shape, len(result) - len(shape)):
            if result[place] == 1:
                result[place] = n
            elif n not in (1, result[place]):
                raise _C.ShapeError(
                    f"{op}: shapes differ: {shape} and {tuple(result)}; broadcast one of them first"
                )
    return tuple(result)


def is_broadcastable(shape: Sequence[int], target: Sequence[int]) -> bool:
    """True if ``shape`` can be broadcast to ``target``."""
    offset = len(target) - len(shape)
    return offset >= 0 and all(n in (1, target[offset + i]) for i, n in enumerate(shape))


def as_device(device: DeviceLike) -> _C.device:
    """The device object. Raises: DeviceError for an unknown name."""
    return device if isinstance(device, _C.device) else _C.device(device)


def set_default_device(device: DeviceLike | None) -> None:
    """Where tensors are made if no device is named; None means cpu.

    Raises: DeviceUnavailableError where the device does not exist.
    """
    _C.set_default_device(as_device("cpu" if device is None else device))


def get_default_device() -> _C.device:
    """Where tensors are made if no device is named."""
    return _C.get_default_device()


def place_new(tensor: Tensor, device: DeviceLike | None, requires_grad: bool = False) -> Tensor:
    """As :func:`place`; None means the default device."""
    return place(tensor, _C.get_default_device() if device is None else device, requires_grad)


def place(tensor: Tensor, device: DeviceLike | None, requires_grad: bool = False) -> Tensor:
    """A newly made tensor on ``device`` (None: where it is), with a gradient wanted or not.

    Raises: DeviceUnavailableError, DtypeError if an integer tensor should require a gradient.
    """
    if device is not None:
        wanted = as_device(device)
        if wanted != tensor.device:
            tensor = _C.to_device(tensor, wanted.type)
    return tensor.requires_grad_() if requires_grad else tensor


def beside(made: Tensor, like: Tensor) -> Tensor:
    """A newly made tensor on the device of ``like``."""
    return made if made.device == like.device else place(made, like.device)


def cast(tensor: Tensor, dtype: _C.dtype) -> Tensor:
    """``tensor`` itself if it has that dtype, else a converted copy."""
    # Each dtype is one object, so that identity is equality.
    return tensor if tensor.dtype is dtype else emit("cast", tensor, dtype=dtype)


def converted(tensor: Tensor, dtype: _C.dtype, device: DeviceLike | None) -> Tensor:
    """``tensor`` in ``dtype`` and on ``device`` (None: where it is)."""
    is_for_cpu = dtype is _C.float64 and device is not None and as_device(device).type == "cpu"
    # Only the cpu has float64: what comes from elsewhere moves first.
    return cast(place(tensor, device), dtype) if is_for_cpu else place(cast(tensor, dtype), device)


def reshaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape; not a view."""
    return tensor if tensor.shape == tuple(shape) else emit("reshape", tensor, shape=shape)


def user_line() -> str:
    """Place of the innermost call from outside the package, as a message ends with it, or ""."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"\n  at {frame.f_code.co_filename}:{frame.f_lineno}"


def user_stacklevel() -> int:
    """``stacklevel`` of a warning that the calling function gives: it names the user's line."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
        level += 1
    return level


def refuse_in_trace(op: str, why: str, remedy: str) -> None:
    """Raises TraceError, with the user's line, while a step is traced."""
    if _C.is_tracing():
        raise _C.TraceError(f"{op}: {why}; {remedy}{user_line()}")
