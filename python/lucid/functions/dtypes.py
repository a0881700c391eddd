"""Element types: their names and aliases, numeric limits, and the promotion rule."""

from __future__ import annotations

import builtins
from typing import NamedTuple

import numpy

from lucid import _C
from lucid._C import (
    Tensor,
    bfloat16,
    bool_,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)

__all__ = [
    "bfloat16",
    "bool",
    "bool_",
    "can_cast",
    "double",
    "dtype",
    "finfo",
    "float",
    "float16",
    "float32",
    "float64",
    "half",
    "iinfo",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "long",
    "promote_types",
    "result_type",
    "short",
    "uint8",
]

_Int = builtins.int
_Float = builtins.float
_Bool = builtins.bool


class _Facts(NamedTuple):
    name: str
    category: _Int  # 0 bool, 1 integer, 2 floating
    bits: _Int
    numpy: str | None  # None: NumPy has no such type


_FACTS: dict[dtype, _Facts] = {
    bool_: _Facts("bool", 0, 8, "bool"),
    uint8: _Facts("uint8", 1, 8, "uint8"),
    int8: _Facts("int8", 1, 8, "int8"),
    int16: _Facts("int16", 1, 16, "int16"),
    int32: _Facts("int32", 1, 32, "int32"),
    int64: _Facts("int64", 1, 64, "int64"),
    float16: _Facts("float16", 2, 16, "float16"),
    bfloat16: _Facts("bfloat16", 2, 16, None),
    float32: _Facts("float32", 2, 32, "float32"),
    float64: _Facts("float64", 2, 64, "float64"),
}
_BY_NAME: dict[str, dtype] = {facts.name: key for key, facts in _FACTS.items()}
_BY_PYTHON: dict[object, dtype] = {
    builtins.bool: bool_,
    builtins.int: int64,
    builtins.float: float64,
}
_ORDER = list(_FACTS)


def dtype_name(of: dtype) -> str:
    """``"float32"``."""
    return _FACTS[of].name


def dtype_from_name(name: str) -> dtype:
    """The dtype of that name. Raises: DtypeError."""
    if name not in _BY_NAME:
        raise _C.DtypeError(f"dtype: unknown name: got {name!r}; use one of {sorted(_BY_NAME)}")
    return _BY_NAME[name]


def as_dtype(value: object) -> dtype:
    """A dtype given as such or as Python's ``bool``, ``int`` (int64) or ``float`` (float64).

    Raises: ArgumentTypeError.
    """
    if isinstance(value, dtype):
        return value
    if value in _BY_PYTHON:
        return _BY_PYTHON[value]
    raise _C.ArgumentTypeError(f"dtype: expected a dtype such as lucid.float32: got {value!r}")


def is_floating(of: dtype) -> _Bool:
    """True for float16, bfloat16, float32 and float64."""
    return of.is_floating_point


def is_integer(of: dtype) -> _Bool:
    """True for the integer types; bool is none."""
    return _FACTS[of].category == 1


def size_bytes(of: dtype) -> _Int:
    """Bytes of one element."""
    return _FACTS[of].bits // 8


def numpy_name(of: dtype) -> str | None:
    """NumPy's name of the type; None where NumPy has none (bfloat16)."""
    return _FACTS[of].numpy


def scalar_dtype(value: _Float) -> dtype:
    """The dtype that a Python number gets on its own: bool, int64 or the default float."""
    if isinstance(value, builtins.bool):
        return bool_
    return int64 if isinstance(value, builtins.int) else _C.get_default_dtype()


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that holds the values of both: bool < integers < floating.

    uint8 with a signed type gives the next larger signed one, float16 with bfloat16 float32.
    """
    if type1 == type2:
        return type1
    low, high = sorted((type1, type2), key=_ORDER.index)
    if _FACTS[low].category != _FACTS[high].category:
        return high
    if low == uint8 and high == int8:
        return int16
    return float32 if high == bfloat16 else high


def result_type(tensor1: Tensor | _Float, tensor2: Tensor | _Float) -> dtype:
    """The dtype of an element-wise operation on two operands.

    Tensors with axes decide first, then 0-d tensors, then Python numbers: one of a later kind
    matters only if its category (bool, integer, floating) is higher.
    """
    ranks: list[dtype | None] = [None, None, None]
    for operand in (tensor1, tensor2):
        if isinstance(operand, Tensor):
            rank, own = (0 if operand.ndim else 1), operand.dtype
        else:
            rank, own = 2, scalar_dtype(operand)
        seen = ranks[rank]
        ranks[rank] = own if seen is None else promote_types(seen, own)
    result: dtype | None = None
    for candidate in ranks:
        if candidate is None:
            continue
        if result is None or _FACTS[candidate].category > _FACTS[result].category:
            result = candidate
    assert result is not None
    return result


def can_cast(from_: dtype, to: dtype) -> _Bool:
    """True if an in-place result of ``from_`` may go into a tensor of ``to``.

    Floating results do not go into integers, nor numbers into bool.
    """
    return _FACTS[from_].category <= _FACTS[to].category


class finfo:
    """Limits of a floating dtype (None: the default dtype).

    ``bits``; ``eps``: distance from 1 to the next number; ``max``, ``min``: largest and lowest
    finite numbers; ``tiny`` = ``smallest_normal``; ``resolution``: decimal digits, as a number.
    Raises: DtypeError for other dtypes.
    """

    # IEEE 754-2019 table 3.5; bfloat16 has float32's exponent and 8 bits of precision.
    _PRECISION = {float16: (11, 15), bfloat16: (8, 127), float32: (24, 127), float64: (53, 1023)}

    def __init__(self, type: dtype | None = None) -> None:
        of = _C.get_default_dtype() if type is None else as_dtype(type)
        if of not in self._PRECISION:
            raise _C.DtypeError(f"finfo: not a floating dtype: got {dtype_name(of)}; use iinfo")
        precision, top = self._PRECISION[of]
        self.bits = _FACTS[of].bits
        self.dtype = dtype_name(of)
        self.eps = 2.0 ** (1 - precision)
        self.max = (2.0 - self.eps) * 2.0**top
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - top)
        digits = _Int((precision - 1) * 0.30102999566398120)  # log10(2)
        self.resolution = 10.0**-digits

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer dtype: ``bits``, ``min``, ``max``. Raises: DtypeError for others."""

    def __init__(self, type: dtype) -> None:
        of = as_dtype(type)
        if not is_integer(of):
            raise _C.DtypeError(f"iinfo: not an integer dtype: got {dtype_name(of)}; use finfo")
        limits = numpy.iinfo(_FACTS[of].name)
        self.bits = _FACTS[of].bits
        self.dtype = dtype_name(of)
        self.min = _Int(limits.min)
        self.max = _Int(limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


half = float16
float = float32
double = float64
short = int16
int = int32
long = int64
bool = bool_
