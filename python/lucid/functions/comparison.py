"""Comparisons, tests, logic, bits and selection. Shapes broadcast; tests give bool tensors.

None of the tests has a gradient; ``where`` passes it to the side that was taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import Operand, cast
from lucid.functions.dtypes import dtype_name, is_floating, is_integer, result_type

__all__ = [
    "all_finite",
    "allclose",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "eq",
    "equal",
    "ge",
    "gt",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "masked_fill",
    "ne",
    "where",
]


def eq(input: Operand, other: Operand) -> Tensor:
    """``input == other``."""
    return emit("eq", input, other)


def ne(input: Operand, other: Operand) -> Tensor:
    """``input != other``."""
    return emit("ne", input, other)


def lt(input: Operand, other: Operand) -> Tensor:
    """``input < other``."""
    return emit("lt", input, other)


def le(input: Operand, other: Operand) -> Tensor:
    """``input <= other``."""
    return emit("le", input, other)


def gt(input: Operand, other: Operand) -> Tensor:
    """``input > other``."""
    return emit("gt", input, other)


def ge(input: Operand, other: Operand) -> Tensor:
    """``input >= other``."""
    return emit("ge", input, other)


def isnan(input: Tensor) -> Tensor:
    """True where the element is not a number."""
    return emit("isnan", input)


def isinf(input: Tensor) -> Tensor:
    """True where the element is infinite."""
    return emit("isinf", input)


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """True if no element of any of the tensors is inf or nan; a 0-d bool, one operation for all.

    Raises: DtypeError for a tensor that is not floating, UserError for no tensors.
    """
    if not tensors:
        raise _C.UserError("all_finite: no tensors are given; give at least one")
    return emit("all_finite", *tensors)


def isfinite(input: Tensor) -> Tensor:
    """True where the element is neither infinite nor nan."""
    return emit("isfinite", input)


def logical_not(input: Tensor) -> Tensor:
    """True where the element is 0."""
    return emit("logical_not", input)


def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """True where both elements are not 0."""
    return emit("logical_and", input, other)


def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """True where one element or both are not 0."""
    return emit("logical_or", input, other)


def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """True where exactly one element is not 0."""
    return emit("logical_xor", input, other)


def bitwise_not(input: Tensor) -> Tensor:
    """Complement of the bits; of bools: not. Raises: DtypeError for floating tensors."""
    return emit("bitwise_not", input)


def bitwise_and(input: Operand, other: Operand) -> Tensor:
    """And of the bits of integers or bools. Raises: DtypeError for floating tensors."""
    return emit("bitwise_and", input, other)


def bitwise_or(input: Operand, other: Operand) -> Tensor:
    """Or of the bits of integers or bools. Raises: DtypeError for floating tensors."""
    return emit("bitwise_or", input, other)


def bitwise_xor(input: Operand, other: Operand) -> Tensor:
    """Exclusive or of the bits of integers or bools. Raises: DtypeError for floating tensors."""
    return emit("bitwise_xor", input, other)


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True where ``|input - other| <= atol + rtol * |other|``.

    Infinities are close to themselves only; nan to nan only with ``equal_nan``.
    """
    same = emit("eq", input, other)
    if not is_floating(result_type(input, other)):
        other = cast(other, _C.get_default_dtype())
    distance = emit("abs", emit("sub", input, other))
    bound = emit("add", emit("mul", emit("abs", other), rtol), atol)
    # An infinite distance is within no bound, not even within an infinite one.
    near = emit("logical_and", emit("le", distance, bound), emit("lt", distance, math.inf))
    result = emit("logical_or", same, near)
    if equal_nan:
        both = emit("logical_and", emit("isnan", input), emit("isnan", other))
        result = emit("logical_or", result, both)
    return result


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """True if ``isclose`` holds for every element. Raises: TraceError in a trace."""
    close = isclose(input, other, rtol, atol, equal_nan)
    return bool(emit("all", close, dims=tuple(range(close.ndim)), keepdim=False).item())


def equal(input: Tensor, other: Tensor) -> bool:
    """True if both have one shape and equal elements. Raises: TraceError in a trace."""
    if input.shape != other.shape:
        return False
    same = emit("eq", input, other)
    return bool(emit("all", same, dims=tuple(range(same.ndim)), keepdim=False).item())


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, input: Operand, other: Operand) -> Tensor: ...


def where(
    condition: Tensor, input: Operand | None = None, other: Operand | None = None
) -> Tensor | tuple[Tensor, ...]:
    """``input`` where ``condition`` is true, else ``other``.

    Args:
        condition: bool.
        input, other: tensors or numbers; all three broadcast. Without both, the positions of the
            true elements are returned, one int64 tensor for each axis, as by ``nonzero``.

    Raises: DtypeError if ``condition`` is not bool, UserError if only one of both is given.
    """
    if input is None or other is None:
        if input is not None or other is not None:
            raise _C.UserError("where: one side is missing; give both input and other, or neither")
        from lucid.functions.indexing import nonzero

        return nonzero(condition, as_tuple=True)
    return emit("where", condition, input, other)


def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """``input`` with ``value`` where ``mask`` is true; the dtype stays that of ``input``.

    Args:
        mask: bool, broadcasts with ``input``.
        value: number or 0-d tensor.

    Raises: DtypeError if ``value`` has a fraction and ``input`` has an integer dtype.
    """
    if isinstance(value, Tensor):
        return emit("where", mask, cast(value, input.dtype), input)
    return emit("where", mask, fitting(value, input.dtype, "masked_fill"), input)


def fitting(value: float, dtype: _C.dtype, op: str) -> float:
    """``value`` as a number that does not raise the dtype of what it is put into."""
    if is_floating(dtype):
        return value
    if is_integer(dtype) and value == value // 1:
        return int(value)
    if dtype is _C.bool_:
        return bool(value)
    raise _C.DtypeError(
        f"{op}: a number does not fit into {dtype_name(dtype)}: got {value}; cast the "
        "tensor or round the number"
    )
