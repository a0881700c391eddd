"""Element-wise functions of one input, activations and casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .case import (
    EDGES,
    FLOATS,
    HALF_EDGES,
    HALVES,
    INF,
    INTEGERS,
    NAN,
    SIGNED,
    WIDE_EDGES,
    Array,
    OpCase,
    Sample,
    apart,
    bools,
    integers,
    normal,
    sweep,
    uniform,
    values,
)

Function = Callable[..., Any]

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(x) / (1 + np.exp(x)))


def gelu(x: Array, approximate: str) -> Array:
    # x Phi(x); Phi by erfc, which keeps its digits where Phi is small.
    if approximate == "none":
        slope = erfc(-x / math.sqrt(2)) / 2
    else:
        # (1 + tanh(u)) / 2 = sigmoid(2 u), which keeps its digits.
        slope = sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x * slope


def gelu_grad(grad: Array, x: Array, approximate: str) -> Array:
    if approximate == "none":
        slope = erfc(-x / math.sqrt(2)) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    else:
        scale = 2 * math.sqrt(2 / math.pi)
        share = sigmoid(scale * (x + 0.044715 * x**3))
        slope = share + x * share * (1 - share) * scale * (1 + 3 * 0.044715 * x**2)
    return grad * slope


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array, beta: float, threshold: float) -> Array:
    return np.where(beta * x > threshold, x, np.log1p(np.exp(beta * x)) / beta)


def leaky_relu(x: Array, negative_slope: float) -> Array:
    return np.where(x > 0, x, negative_slope * x)


def relu(x: Array) -> Array:
    # nan and -0 stay.
    return np.where(x < 0, np.zeros_like(x), x)


def exact(function: Function) -> Function:
    """A rounding function that leaves integers alone."""
    return lambda x: x if x.dtype.kind in "iu" else function(x)


def floating(op: str, function: Function, low: float, high: float, **more: Any) -> list[OpCase]:
    """Rows of a function of one input that is defined between low and high."""

    def inside(*shape: int, dtype: str = "float32") -> Sample:
        return uniform(*shape, low=low, high=high, dtype=dtype)

    attrs = more.get("attrs", {})
    far = more.pop("far", {})
    rows = [
        OpCase(op, (inside(3, 5),), function, **more),
        OpCase(op, (inside(),), function, **more),
        OpCase(op, (inside(0, 3),), function, **more),
        OpCase(op, (inside(67),), function, **{**more, "grad": False}),
        OpCase(op, (uniform(2003, low=-20.0, high=20.0),), function, attrs, grad=False, **far),
        OpCase(op, (sweep(2003),), function, attrs, grad=False, **far),
        OpCase(op, (values(EDGES),), function, **{**more, "grad": False}),
        OpCase(op, (values(WIDE_EDGES, "float64"),), function, attrs, grad=False),
        # Integers are taken to the default dtype first.
        OpCase(op, (integers(5, low=1, high=4, dtype="int32"),), function, attrs, dtype="float32"),
    ]
    for dtype in HALVES:
        rows.append(OpCase(op, (inside(3, 7, dtype=dtype),), function, attrs, grad=False))
        rows.append(OpCase(op, (values(HALF_EDGES, dtype),), function, attrs, grad=False))
    return rows


def gelu_grads(approximate: str) -> list[OpCase]:
    attrs = {"approximate": approximate}
    reason = "the slope passes through 0, and in the tail its two parts nearly cancel"
    wide = (normal(2003), uniform(2003, low=-20.0, high=20.0))
    return [
        OpCase("gelu_grad", (normal(3, 5), uniform(3, 5, low=-3.0, high=3.0)), gelu_grad, attrs),
        OpCase("gelu_grad", (normal(), normal()), gelu_grad, attrs),
        OpCase("gelu_grad", (normal(0, 3), normal(0, 3)), gelu_grad, attrs),
        OpCase("gelu_grad", wide, gelu_grad, attrs, grad=False, tolerance=4e-5, reason=reason),
        # Where halves round, a slope near 0 keeps no digit.
        *[
            OpCase(
                "gelu_grad",
                (normal(67, dtype=d), uniform(67, low=0.0, high=3.0, dtype=d)),
                gelu_grad,
                attrs,
                grad=False,
            )
            for d in HALVES
        ],
    ]


STEEP = {"tolerance": 3e-6, "reason": "exp multiplies the rounding of an argument near -700"}

FLOATING = [
    *floating("sqrt", np.sqrt, 0.5, 4.0),
    *floating("rsqrt", lambda x: 1 / np.sqrt(x), 0.5, 4.0),
    *floating("reciprocal", lambda x: 1 / x, 0.5, 4.0),
    *floating("exp", np.exp, -3.0, 3.0),
    *floating("expm1", np.expm1, -1.0, 1.0),
    *floating("log", np.log, 0.5, 4.0),
    *floating("log1p", np.log1p, -0.5, 2.0),
    *floating("log2", np.log2, 0.5, 4.0),
    *floating("log10", np.log10, 0.5, 4.0),
    *floating("sin", np.sin, -4.0, 4.0),
    *floating("cos", np.cos, -4.0, 4.0),
    *floating("tan", np.tan, -1.2, 1.2),
    *floating("asin", np.arcsin, -0.8, 0.8),
    *floating("acos", np.arccos, -0.8, 0.8),
    *floating("atan", np.arctan, -4.0, 4.0),
    *floating("sinh", np.sinh, -3.0, 3.0),
    *floating("cosh", np.cosh, -3.0, 3.0),
    *floating("tanh", np.tanh, -2.0, 2.0),
    *floating("asinh", np.arcsinh, -4.0, 4.0),
    *floating("acosh", np.arccosh, 1.5, 4.0),
    *floating("atanh", np.arctanh, -0.8, 0.8),
    *floating("erf", erf, -2.0, 2.0),
    *floating("erfc", erfc, -2.0, 2.0),
    *floating("sigmoid", sigmoid, -4.0, 4.0),
    *floating("gelu", gelu, -3.0, 3.0, attrs={"approximate": "none"}, far=STEEP),
    *floating("gelu", gelu, -3.0, 3.0, attrs={"approximate": "tanh"}, far=STEEP),
    *gelu_grads("none"),
    *gelu_grads("tanh"),
    *floating("silu", silu, -4.0, 4.0),
    *floating("softplus", softplus, -4.0, 4.0, attrs={"beta": 1.0, "threshold": 20.0}),
    *floating("softplus", softplus, 0.5, 3.0, attrs={"beta": 2.0, "threshold": 3.0}),
    *floating("leaky_relu", leaky_relu, 0.1, 3.0, attrs={"negative_slope": 0.01}),
    OpCase("leaky_relu", (apart(3, 5),), leaky_relu, {"negative_slope": -0.5}),
]


def numbers(op: str, function: Function, **more: Any) -> list[OpCase]:
    """Rows of an exact function of one input of any number dtype."""
    rows = [
        OpCase(op, (apart(3, 5),), function, **more),
        OpCase(op, (apart(),), function, **more),
        OpCase(op, (normal(0, 3),), function, **more),
        OpCase(op, (normal(131, scale=3.0),), function, tolerance=0, grad=False),
        OpCase(op, (values(EDGES),), function, tolerance=0, grad=False),
        OpCase(op, (values(WIDE_EDGES, "float64"),), function, tolerance=0, grad=False),
    ]
    for dtype in HALVES:
        rows.append(OpCase(op, (normal(21, dtype=dtype, scale=3.0),), function, grad=False))
        rows.append(OpCase(op, (values(HALF_EDGES, dtype),), function, grad=False))
    for dtype in INTEGERS:
        edge = np.iinfo(dtype)
        rows.append(OpCase(op, (integers(37, dtype=dtype),), function))
        rows.append(OpCase(op, (values([edge.min, edge.max, 0, 1], dtype),), function))
    return rows


NUMBERS = [
    *numbers("neg", np.negative),
    *numbers("abs", np.abs),
    *numbers("sign", np.sign),
    *numbers("square", np.square),
    *numbers("relu", relu),
    *numbers("floor", exact(np.floor)),
    *numbers("ceil", exact(np.ceil)),
    *numbers("round", exact(np.rint)),
    *numbers("trunc", exact(np.trunc)),
    OpCase("round", (values([0.5, 1.5, 2.5, -0.5, -1.5, 4.5]),), np.rint, grad=False, tolerance=0),
]


def predicate(op: str, function: Function) -> list[OpCase]:
    """Rows of a test of one floating or integer input."""
    return [
        OpCase(op, (source,), function, grad=False, dtype="bool")
        for source in (
            values(EDGES),
            values(WIDE_EDGES, "float64"),
            values(HALF_EDGES, "float16"),
            values(HALF_EDGES, "bfloat16"),
            integers(9, low=-1, high=2, dtype="int32"),
            integers(9, low=-1, high=2, dtype="int8"),
            values([True, False], "bool"),
            normal(),
            normal(0, 2),
            normal(35),
        )
    ]


PREDICATES = [
    *predicate("isnan", np.isnan),
    *predicate("isinf", np.isinf),
    *predicate("isfinite", np.isfinite),
    *predicate("logical_not", np.logical_not),
    *[OpCase("bitwise_not", (integers(17, dtype=d),), np.invert) for d in INTEGERS],
    OpCase("bitwise_not", (bools(5),), np.invert),
]


def cast(x: Array, dtype: str) -> Array:
    return x if dtype in FLOATS else x.astype(dtype)


def cast_case(source: Sample, dtype: str, **more: Any) -> OpCase:
    return OpCase("cast", (source,), cast, {"dtype": dtype}, dtype=dtype, **more)


CASTS = [
    cast_case(normal(3, 5), "float64"),
    cast_case(normal(3, 5, dtype="float64"), "float32"),
    cast_case(normal(), "float32"),
    cast_case(normal(0, 4), "float64"),
    *[cast_case(normal(33, dtype=d), e, grad=False) for d in FLOATS for e in FLOATS],
    *[cast_case(values(HALF_EDGES, d), e, grad=False) for d in FLOATS for e in FLOATS],
    *[cast_case(normal(33, dtype=d, scale=4.0), "int32", grad=False) for d in FLOATS],
    *[cast_case(normal(33, scale=4.0), d, grad=False) for d in SIGNED],
    cast_case(uniform(33, low=0.0, high=255.9), "uint8", grad=False),
    *[cast_case(values(HALF_EDGES, d), "bool", grad=False) for d in FLOATS],
    *[cast_case(integers(33, low=-200, high=200, dtype="int64"), d) for d in INTEGERS],
    *[cast_case(integers(33, dtype=d), e) for d in INTEGERS for e in ("float32", "int64")],
    *[cast_case(integers(9, low=-1, high=2, dtype=d), "bool") for d in INTEGERS],
    *[cast_case(bools(9), d) for d in ("bool", "int64", "uint8", *FLOATS)],
    # Rounded once from float64 and int64, not by way of float32.
    cast_case(
        values([1.0009765625 + 2**-12 + 1e-13, -2.5 - 2**-40], "float64"),
        "float32",
        grad=False,
        tolerance=0,
    ),
    cast_case(values([2**53 + 1, -(2**62) - 1, 16777217]), "float64", grad=False),
    # Beyond the integers' range no value is promised.
    OpCase(
        "cast",
        (values([NAN, INF, -INF, 1e20]),),
        None,
        {"dtype": "int32"},
        grad=False,
        dtype="int32",
    ),
]

CASES = [*FLOATING, *NUMBERS, *PREDICATES, *CASTS]
