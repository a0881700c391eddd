"""Element-wise arithmetic. Shapes broadcast as in NumPy and dtypes promote as in ``result_type``.

Every function takes tensors of any shape; a binary one also takes a number in place of one tensor.
Shapes that do not broadcast raise ShapeError, dtypes that an operation lacks raise DtypeError.
"""

from __future__ import annotations

import builtins
import math

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import Operand, cast
from lucid.functions.dtypes import finfo, iinfo, is_floating, result_type
from lucid.functions.precision import autocast_as

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "addcdiv",
    "addcmul",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "cos",
    "cosh",
    "div",
    "divide",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floor_divide",
    "fmod",
    "frac",
    "lerp",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logit",
    "maximum",
    "minimum",
    "mul",
    "multiply",
    "nan_to_num",
    "neg",
    "negative",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "xlogy",
]


def abs(input: Tensor) -> Tensor:
    """Absolute value; the gradient at 0 is 0."""
    return emit("abs", input)


def neg(input: Tensor) -> Tensor:
    """``-input``."""
    return emit("neg", input)


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1; nan stays nan."""
    return emit("sign", input)


def square(input: Tensor) -> Tensor:
    """``input * input``."""
    return emit("square", input)


def sqrt(input: Tensor) -> Tensor:
    """Square root; nan below 0. Integers give the default float."""
    return emit("sqrt", input)


def rsqrt(input: Tensor) -> Tensor:
    """``1 / sqrt(input)``. Integers give the default float."""
    return emit("rsqrt", input)


def reciprocal(input: Tensor) -> Tensor:
    """``1 / input``. Integers give the default float."""
    return emit("reciprocal", input)


def exp(input: Tensor) -> Tensor:
    """e to the power of ``input``. Integers give the default float."""
    return emit("exp", input)


def exp2(input: Tensor) -> Tensor:
    """``2 ** input``. Integers give the default float."""
    return emit("pow", 2.0, input)


def expm1(input: Tensor) -> Tensor:
    """``exp(input) - 1``, exact near 0. Integers give the default float."""
    return emit("expm1", input)


def log(input: Tensor) -> Tensor:
    """Natural logarithm; -inf at 0, nan below. Integers give the default float."""
    return emit("log", input)


def log1p(input: Tensor) -> Tensor:
    """``log(1 + input)``, exact near 0. Integers give the default float."""
    return emit("log1p", input)


def log2(input: Tensor) -> Tensor:
    """Logarithm to base 2. Integers give the default float."""
    return emit("log2", input)


def log10(input: Tensor) -> Tensor:
    """Logarithm to base 10. Integers give the default float."""
    return emit("log10", input)


def sin(input: Tensor) -> Tensor:
    """Sine; radians. Integers give the default float."""
    return emit("sin", input)


def cos(input: Tensor) -> Tensor:
    """Cosine; radians. Integers give the default float."""
    return emit("cos", input)


def tan(input: Tensor) -> Tensor:
    """Tangent; radians. Integers give the default float."""
    return emit("tan", input)


def asin(input: Tensor) -> Tensor:
    """Inverse sine in radians; nan outside [-1, 1]. Integers give the default float."""
    return emit("asin", input)


def acos(input: Tensor) -> Tensor:
    """Inverse cosine in radians; nan outside [-1, 1]. Integers give the default float."""
    return emit("acos", input)


def atan(input: Tensor) -> Tensor:
    """Inverse tangent in radians. Integers give the default float."""
    return emit("atan", input)


def sinh(input: Tensor) -> Tensor:
    """Hyperbolic sine. Integers give the default float."""
    return emit("sinh", input)


def cosh(input: Tensor) -> Tensor:
    """Hyperbolic cosine. Integers give the default float."""
    return emit("cosh", input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent. Integers give the default float."""
    return emit("tanh", input)


def asinh(input: Tensor) -> Tensor:
    """Inverse hyperbolic sine. Integers give the default float."""
    return emit("asinh", input)


def acosh(input: Tensor) -> Tensor:
    """Inverse hyperbolic cosine; nan below 1. Integers give the default float."""
    return emit("acosh", input)


def atanh(input: Tensor) -> Tensor:
    """Inverse hyperbolic tangent; nan outside [-1, 1]. Integers give the default float."""
    return emit("atanh", input)


def erf(input: Tensor) -> Tensor:
    """Error function. Integers give the default float."""
    return emit("erf", input)


def erfc(input: Tensor) -> Tensor:
    """``1 - erf(input)``, exact for large ``input``. Integers give the default float."""
    return emit("erfc", input)


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-input))``. Integers give the default float."""
    return emit("sigmoid", input)


def relu(input: Tensor) -> Tensor:
    """``max(input, 0)``; the gradient at 0 is 0."""
    return emit("relu", input)


def floor(input: Tensor) -> Tensor:
    """Largest integer not above ``input``; the gradient is 0."""
    return emit("floor", input)


def ceil(input: Tensor) -> Tensor:
    """Smallest integer not below ``input``; the gradient is 0."""
    return emit("ceil", input)


def trunc(input: Tensor) -> Tensor:
    """``input`` without its fraction; the gradient is 0."""
    return emit("trunc", input)


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Nearest integer, or multiple of 10**-decimals; halves go to the even one; gradient 0."""
    if decimals == 0:
        return emit("round", input)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return emit("div", emit("round", emit("mul", input, scale)), scale)
    return emit("mul", emit("round", emit("div", input, scale)), scale)


def frac(input: Tensor) -> Tensor:
    """``input - trunc(input)``."""
    return emit("sub", input, emit("trunc", input))


def add(input: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """``input + alpha * other``; of bools: or."""
    return emit("add", input, other if alpha == 1 else _scaled(other, alpha))


def sub(input: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """``input - alpha * other``."""
    return emit("sub", input, other if alpha == 1 else _scaled(other, alpha))


def _scaled(operand: Operand, alpha: float) -> Operand:
    return emit("mul", operand, alpha) if isinstance(operand, Tensor) else operand * alpha


def mul(input: Operand, other: Operand) -> Tensor:
    """``input * other``; of bools: and."""
    return emit("mul", input, other)


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``.

    Args:
        rounding_mode: None divides truly, integers give the default float; ``"trunc"`` drops the
            fraction and ``"floor"`` goes to the integer below, both keep integer dtypes.

    Raises: UserError for another mode.
    """
    if rounding_mode is None:
        return emit("div", input, other)
    if rounding_mode == "floor":
        return emit("floor_divide", input, other)
    if rounding_mode != "trunc":
        raise _C.UserError(
            f"div: unknown rounding_mode: got {rounding_mode!r}; use None, 'trunc' or 'floor'"
        )
    if is_floating(result_type(input, other)):
        return emit("trunc", emit("div", input, other))
    # What is left after the remainder of the dividend's sign is a multiple of the divisor.
    multiple = emit("sub", input, emit("fmod", input, other))
    return emit("floor_divide", multiple, other)


def floor_divide(input: Operand, other: Operand) -> Tensor:
    """Largest integer not above ``input / other``, in the operands' common dtype."""
    return emit("floor_divide", input, other)


def fmod(input: Operand, other: Operand) -> Tensor:
    """Remainder of the division; it has the sign of ``input`` (C's rule)."""
    return emit("fmod", input, other)


def remainder(input: Operand, other: Operand) -> Tensor:
    """Remainder of the division; it has the sign of ``other`` (Python's rule)."""
    return emit("remainder", input, other)


@autocast_as("float32")
def pow(input: Operand, exponent: Operand) -> Tensor:
    """``input`` to the power of ``exponent``.

    The exponents 2, 3, and of floating tensors 0.5, -0.5 and -1, are computed by products, roots
    and quotients, which are more exact and quicker than the general power.

    Raises: UserError for integers to a negative integer number.
    """
    if isinstance(exponent, Tensor) or not isinstance(input, Tensor):
        return emit("pow", input, exponent)
    if exponent == 2 and input.dtype is not _C.bool_:
        return emit("square", _with_number(input, exponent))
    if exponent == 3 and input.dtype is not _C.bool_:
        base = _with_number(input, exponent)
        return emit("mul", emit("square", base), base)
    if is_floating(input.dtype):
        root = _ROOTS.get(exponent)
        return emit("pow", input, exponent) if root is None else emit(root, input)
    if exponent < 0 and isinstance(exponent, int):
        raise _C.UserError(
            "pow: integers to negative integer powers are not allowed; convert the base "
            "with .float()"
        )
    return emit("pow", input, exponent)


_ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def _with_number(tensor: Tensor, number: float) -> Tensor:
    """``tensor`` in the dtype that an operation with ``number`` has."""
    return tensor if isinstance(number, int) else cast(tensor, result_type(tensor, number))


def atan2(input: Operand, other: Operand) -> Tensor:
    """Angle of the point (other, input) in radians, in [-pi, pi]."""
    return emit("atan2", input, other)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Inverse of ``sigmoid``: ``log(p / (1 - p))``.

    Args:
        eps: numbers are clamped to [eps, 1 - eps] first; None: 0 and 1 become -inf and inf.
    """
    p = input if eps is None else emit("clamp", input, eps, 1 - eps)
    return emit("log", emit("div", p, emit("sub", 1, p)))


def maximum(input: Operand, other: Operand) -> Tensor:
    """The larger of both; nan if one is nan. Equal values share the gradient."""
    return emit("maximum", input, other)


def minimum(input: Operand, other: Operand) -> Tensor:
    """The smaller of both; nan if one is nan. Equal values share the gradient."""
    return emit("minimum", input, other)


def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """``input`` kept within [min, max]; nan stays nan.

    Args:
        min, max: numbers or tensors that broadcast; None means no bound. ``max`` wins where
            ``min`` is larger.

    Returns: the common shape and dtype. The gradient is 1 inside and at the bounds, else 0.
    Raises: UserError if both bounds are None.
    """
    if min is None or max is None:
        if min is None and max is None:
            raise _C.UserError("clamp: no bound is given; give min, max or both")
        given = max if min is None else min
        assert given is not None
        lowest, highest = _limits(input, given)
        min = lowest if min is None else min
        max = highest if max is None else max
    return emit("clamp", input, min, max)


def _limits(input: Tensor, bound: Operand) -> tuple[float, float]:
    """Numbers that no element passes and that change no dtype."""
    if is_floating(result_type(input, bound)):
        return -math.inf, math.inf
    if input.dtype is _C.bool_:
        return 0, 1
    limits = iinfo(input.dtype)
    return limits.min, limits.max


def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """``clamp(input, min=min)``."""
    return clamp(input, min)


def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """``clamp(input, max=max)``."""
    return clamp(input, None, max)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """``input`` with nan and the infinities replaced; None means the largest finite numbers."""
    if not is_floating(input.dtype):
        return input
    limits = finfo(input.dtype)
    result = emit("where", emit("isnan", input), nan, input)
    top = limits.max if posinf is None else posinf
    result = emit("where", emit("eq", input, math.inf), top, result)
    bottom = limits.min if neginf is None else neginf
    return emit("where", emit("eq", input, -math.inf), bottom, result)


def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """``input + weight * (end - input)``, exact at both ends.

    Args:
        weight: number, or tensor that broadcasts.
    """
    span = emit("sub", end, input)
    if not isinstance(weight, Tensor):
        if builtins.abs(weight) < 0.5:
            return emit("add", input, emit("mul", span, weight))
        return emit("sub", end, emit("mul", span, 1 - weight))
    from_input = emit("add", input, emit("mul", span, weight))
    from_end = emit("sub", end, emit("mul", span, emit("sub", 1, weight)))
    return emit("where", emit("lt", emit("abs", weight), 0.5), from_input, from_end)


@autocast_as("widest")
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    product = emit("mul", tensor1, tensor2)
    return emit("add", input, product if value == 1 else emit("mul", product, value))


@autocast_as("widest")
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    quotient = emit("div", tensor1, tensor2)
    return emit("add", input, quotient if value == 1 else emit("mul", quotient, value))


@autocast_as("none")
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """``log(exp(input) + exp(other))`` without overflow; exact for infinities of one sign."""
    # max + log(1 + exp(-|difference|)); equal infinities have no difference to take.
    difference = emit("where", emit("eq", input, other), 0, emit("sub", input, other))
    rest = emit("log1p", emit("exp", emit("neg", emit("abs", difference))))
    return emit("add", emit("maximum", input, other), rest)


@autocast_as("none")
def xlogy(input: Operand, other: Operand) -> Tensor:
    """``input * log(other)``, and 0 where ``input`` is 0 unless ``other`` is nan."""
    zero = emit("eq", input, 0) if isinstance(input, Tensor) else input == 0
    outside = emit("logical_or", emit("le", other, 0), emit("eq", other, math.inf))
    # log is taken of 1 where the product is 0 by definition, so that no gradient is nan.
    inside = emit("where", emit("logical_and", zero, outside), 1, other)
    return emit("mul", input, emit("log", inside))


absolute = abs
negative = neg
subtract = sub
multiply = mul
divide = div
true_divide = div
clip = clamp
