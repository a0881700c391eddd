"""Operators of tensors. An operand that is neither tensor nor number is left to its own type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions import comparison, creation, linear_algebra, pointwise
from lucid.functions.arguments import Operand
from lucid.functions.inplace import assign_result
from lucid.functions.precision import autocast_as

_Operator = Callable[..., Any]

# Python's name -> operation.
_ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _as_operand(value: object) -> Operand | None:
    """The operand that stands for a value of NumPy's types; None for other types."""
    if isinstance(value, Tensor | int | float):
        return value
    if isinstance(value, numpy.bool_ | numpy.integer | numpy.floating):
        number: float = value.item()
        return number
    return creation.as_tensor(value) if isinstance(value, numpy.ndarray) else None


def _retried(error: Exception, op: str, self: Tensor, other: object, is_reflected: bool) -> Any:
    """Called where dispatch refused a call: converts NumPy's types, else raises the error.

    Returns NotImplemented for other types, so that Python asks the other operand.
    """
    if isinstance(other, Tensor | int | float):
        raise error
    operand = _as_operand(other)
    if operand is None:
        return NotImplemented
    return emit(op, operand, self) if is_reflected else emit(op, self, operand)


def _forward(op: str) -> _Operator:
    def method(self: Tensor, other: Any) -> Any:
        try:
            return emit(op, self, other)
        except (TypeError, _C.Error) as error:
            return _retried(error, op, self, other, False)

    return method


def _reflected(op: str) -> _Operator:
    def method(self: Tensor, other: Any) -> Any:
        try:
            return emit(op, other, self)
        except (TypeError, _C.Error) as error:
            return _retried(error, op, self, other, True)

    return method


def _in_place(name: str, forward: _Operator) -> _Operator:
    def method(self: Tensor, other: object) -> Any:
        value = forward(self, other)
        return value if value is NotImplemented else assign_result(self, name, value)

    return method


def _power(self: Tensor, exponent: object) -> Any:
    operand = _as_operand(exponent)
    return NotImplemented if operand is None else pointwise.pow(self, operand)


def _matmul(self: Tensor, other: object) -> Any:
    return linear_algebra.matmul(self, other) if isinstance(other, Tensor) else NotImplemented


def _operators() -> dict[str, _Operator]:
    table: dict[str, _Operator] = {}
    for name, op in _ARITHMETIC.items():
        table[f"__{name}__"] = _forward(op)
        table[f"__r{name}__"] = _reflected(op)
        table[f"__i{name}__"] = _in_place(f"__i{name}__", table[f"__{name}__"])
    for name in _COMPARISONS:
        table[f"__{name}__"] = _forward(name)
    table["__pow__"] = _power
    table["__rpow__"] = _reflected("pow")
    table["__ipow__"] = _in_place("__ipow__", autocast_as("none")(_power))
    table["__matmul__"] = _matmul
    table["__neg__"] = pointwise.neg
    table["__pos__"] = lambda self: self
    table["__abs__"] = pointwise.abs
    table["__invert__"] = comparison.bitwise_not
    return table


OPERATORS = _operators()
