"""Data from outside as tensors: Python's nested lists and NumPy's arrays, eager and in a trace."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import refuse_in_trace
from lucid.functions.dtypes import (
    dtype_from_name,
    dtype_name,
    is_floating,
    is_integer,
    numpy_name,
)

# NumPy's names of the dtypes that a tensor can hold.
_HELD = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)


def array_of(
    data: object, dtype: _C.dtype | None, op: str = "tensor"
) -> tuple[NDArray[Any], _C.dtype]:
    """``data`` as a NumPy array, and the dtype that its tensor shall have; ``op`` begins messages.

    Raises: UserError for ragged lists or numbers that do not fit, DtypeError for a dtype that lucid
    lacks, ArgumentTypeError for what holds no numbers, TraceError for an array in a trace.
    """
    is_listed = isinstance(data, list | tuple | range)
    if not is_listed and not isinstance(data, (numpy.generic, int, float)):
        refuse_in_trace(
            op,
            "a NumPy array inside a compiled step would be frozen into it",
            "pass it as an input of the step",
        )
    array = _listed(data) if is_listed else numpy.asarray(data)
    if dtype is None:
        dtype = _dtype_for(array, is_listed, op)
    if array.dtype.kind not in "biuf":
        raise _C.ArgumentTypeError(
            f"{op}: expected numbers: got {_described(data, array)}; give numbers, nested lists "
            "of numbers or a NumPy array"
        )
    return _converted(array, dtype), dtype


def _described(data: object, array: NDArray[Any]) -> str:
    return f"{type(data).__name__} of {array.dtype}"


def _listed(data: Any) -> NDArray[Any]:
    """Array of nested lists; tensors of one element in them count as numbers."""
    try:
        array = numpy.array(_without_tensors(data))
    except ValueError:
        _refuse_ragged(data)
        raise
    return array


def _without_tensors(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.tolist()
    if isinstance(data, list | tuple) and data and isinstance(data[0], list | tuple | Tensor):
        return [_without_tensors(x) for x in data]
    if isinstance(data, list | tuple) and any(isinstance(x, Tensor) for x in data):
        return [_without_tensors(x) for x in data]
    return data


def _refuse_ragged(data: Any) -> None:
    """Raises UserError at the first place whose shape is not that of its first neighbour."""

    def shape(item: Any, path: str) -> tuple[int, ...]:
        if isinstance(item, Tensor | numpy.ndarray):
            return tuple(item.shape)
        if not isinstance(item, list | tuple | range):
            return ()
        first: tuple[int, ...] | None = None
        for i, part in enumerate(item):
            found = shape(part, f"{path}[{i}]")
            if first is None:
                first = found
            elif found != first:
                raise _C.UserError(
                    f"tensor: the nested lists are ragged: {path}[{i}] has shape {found}, "
                    f"{path}[0] {first}; give every list one length"
                )
        return (len(item), *(first or ()))

    shape(data, "data")


def _dtype_for(array: NDArray[Any], is_listed: bool, op: str) -> _C.dtype:
    """Lists take bool, int64 or the default float; arrays keep their own dtype."""
    name = array.dtype.name
    if is_listed and (array.size == 0 or name == "float64"):
        return _C.get_default_dtype()
    if name not in _HELD:
        if array.dtype.kind in "OUSV":
            return _C.get_default_dtype()  # refused by the caller, which names the data
        raise _C.DtypeError(
            f"{op}: a dtype that lucid lacks: got {name}; convert the array with astype, "
            "for example to float32"
        )
    return dtype_from_name(name)


def _converted(array: NDArray[Any], dtype: _C.dtype) -> NDArray[Any]:
    """The array in NumPy's form of ``dtype``; bfloat16 stays float32 and is cast later."""
    name = numpy_name(dtype) or "float32"
    if array.dtype.name == name:
        return array
    if is_integer(dtype) and array.size:
        limits = numpy.iinfo(name)
        low, high = array.min(), array.max()
        if not (limits.min <= low and high <= limits.max):  # also refuses nan
            raise _C.UserError(
                f"tensor: a number does not fit into {dtype_name(dtype)}: got {low} to {high}; "
                "use a wider dtype"
            )
    with numpy.errstate(over="ignore"):
        return array.astype(name)


def to_array(x: Tensor) -> NDArray[Any]:
    """The elements as a read-only array on the tensor's memory; bfloat16 is given as float32.

    Raises: TraceError in a trace.
    """
    return _C._to_numpy(x)


def from_array(array: NDArray[Any], dtype: _C.dtype, copy: bool) -> Tensor:
    """Tensor of an array that ``array_of`` gave; a constant of the graph in a trace."""
    held = dtype if numpy_name(dtype) else _C.float32
    if _C.is_tracing():
        data = numpy.ascontiguousarray(array).tobytes()
        result = emit("constant", data=data, shape=array.shape, dtype=held)
    else:
        if not array.flags.c_contiguous or not array.dtype.isnative:
            array = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        result = _C.from_numpy(array, copy=copy)
    if held == dtype:
        return result
    assert is_floating(dtype)
    return emit("cast", result, dtype=dtype)
