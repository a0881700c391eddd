"""Element-wise functions of two and three inputs: arithmetic, comparison, logic, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .case import (
    EDGES,
    HALVES,
    INF,
    INTEGERS,
    NAN,
    PAIRED_EDGES,
    Array,
    OpCase,
    apart,
    bools,
    column,
    integers,
    normal,
    positive,
    sweep,
    uniform,
    values,
)

Function = Callable[..., Any]

# Shapes of two inputs that broadcast against each other in each way that kernels tell apart.
BROADCASTS = (
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 1), (1, 4)),
    ((2, 1, 3), (4, 1)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((2, 3, 1, 2), (3, 2, 1)),
    ((0, 3), (3,)),
    ((1,), (0,)),
)


def arithmetic(op: str, function: Function, sample: Any = normal, **more: Any) -> list[OpCase]:
    """Rows of a function of two numbers."""
    rows = [OpCase(op, (sample(3, 5), sample(3, 5)), function, **more)]
    rows += [OpCase(op, (sample(*a), sample(*b)), function, **more) for a, b in BROADCASTS]
    rows += [
        OpCase(op, (sweep(2003), sweep(2003)), function, grad=False),
        OpCase(op, (uniform(2003, low=-9.0, high=9.0),) * 2, function, grad=False),
        OpCase(op, (sample(67), sample(67)), function, grad=False),
        OpCase(op, (sample(), sample()), function, **more),
        OpCase(op, (sample(7), 2.5), function, **more),
        OpCase(op, (2.5, sample(7)), function, dtype="float32", **more),
        # A number does not widen a tensor, an integer tensor does not widen a floating one.
        OpCase(op, (sample(4, dtype="bfloat16"), 2), function, grad=False),
        OpCase(op, (sample(4), integers(4, low=1)), function, **more),
        OpCase(op, (sample(4, dtype="float16"), sample(4)), function, grad=False, dtype="float32"),
        OpCase(op, (column(PAIRED_EDGES), values(PAIRED_EDGES)), function, grad=False),
    ]
    for dtype in HALVES:
        rows.append(OpCase(op, (sample(19, dtype=dtype),) * 2, function, grad=False))
    return rows


def integer_arithmetic(op: str, function: Function, low: int = -9) -> list[OpCase]:
    """Rows of a function of two integers; the second is not 0."""
    rows = [
        OpCase(op, (integers(41, low=low, dtype=d), integers(41, low=1, high=6, dtype=d)), function)
        for d in INTEGERS
    ]
    rows.append(OpCase(op, (integers(5, low=low, dtype="int8"), 3), function))
    mixed = (integers(5, low=low, dtype="int8"), integers(5, low=1, high=6, dtype="int32"))
    rows.append(OpCase(op, mixed, function, dtype="int32"))
    return rows


def true_pow(x: Array, y: Array) -> Array:
    return np.power(x, y)


ARITHMETIC = [
    *arithmetic("add", np.add),
    *arithmetic("sub", np.subtract),
    *arithmetic("mul", np.multiply),
    *arithmetic("div", np.divide, positive),
    *arithmetic("maximum", np.maximum),
    *arithmetic("minimum", np.minimum),
    *arithmetic("atan2", np.arctan2),
    *arithmetic("pow", true_pow, positive),
    *arithmetic("fmod", np.fmod, positive),
    *arithmetic("remainder", np.remainder, positive),
    *arithmetic("floor_divide", np.floor_divide, positive),
    *integer_arithmetic("add", np.add),
    *integer_arithmetic("sub", np.subtract),
    *integer_arithmetic("mul", np.multiply),
    *integer_arithmetic("maximum", np.maximum),
    *integer_arithmetic("minimum", np.minimum),
    *integer_arithmetic("fmod", np.fmod),
    *integer_arithmetic("remainder", np.remainder),
    *integer_arithmetic("floor_divide", np.floor_divide),
    *integer_arithmetic("pow", np.power),
    OpCase("add", (bools(9), bools(9)), np.logical_or),
    OpCase("mul", (bools(9), bools(9)), np.logical_and),
    OpCase("maximum", (bools(9), bools(9)), np.logical_or),
    OpCase("add", (values([2**31 - 1], "int32"), values([1], "int32")), np.add),
    OpCase("mul", (values([2**62 + 1], "int64"), values([6], "int64")), np.multiply),
    OpCase("div", (integers(9), integers(9, low=1)), np.divide, dtype="float32"),
    OpCase("pow", (normal(9), 2.0), true_pow),
    OpCase("pow", (normal(9), 3), true_pow),
    OpCase("pow", (positive(9), 0.5), true_pow),
    OpCase("pow", (positive(9), -1.0), true_pow),
    OpCase("pow", (positive(9), 0.0), true_pow),
    OpCase("pow", (values([0.0, 1.0, -2.0]), 2.0), true_pow),
    OpCase(
        "atan2",
        (values([0.0, -0.0, 0.0, -0.0]), values([1.0, 1.0, -1.0, -1.0])),
        np.arctan2,
        grad=False,
    ),
    OpCase("remainder", (apart(3, 5), values([2.0, -3.0, 1.25, -0.75, 7.0])), np.remainder),
    OpCase("fmod", (apart(3, 5), values([2.0, -3.0, 1.25, -0.75, 7.0])), np.fmod),
    OpCase("floor_divide", (apart(3, 5), values([2.0, -3.0, 1.25, -0.75, 7.0])), np.floor_divide),
    OpCase("maximum", (values(EDGES), 0.0), np.maximum, grad=False),
]


def comparison(op: str, function: Function) -> list[OpCase]:
    rows = [
        OpCase(op, (column(PAIRED_EDGES), values(PAIRED_EDGES)), function, grad=False),
        OpCase(
            op,
            (column(PAIRED_EDGES, "float64"), values(PAIRED_EDGES, "float64")),
            function,
            grad=False,
        ),
        OpCase(op, (normal(35), 0.0), function, grad=False),
        OpCase(op, (0.5, normal(5)), function, grad=False),
        OpCase(op, (integers(33, low=-2, high=3), integers(33, low=-2, high=3)), function),
        OpCase(op, (values([2**53 + 1], "int64"), values([2**53], "int64")), function),
        OpCase(op, (bools(9), bools(9)), function),
        OpCase(op, (normal(), normal()), function, grad=False),
        OpCase(op, (integers(4, dtype="int32"), normal(4)), function, grad=False),
    ]
    for a, b in BROADCASTS[:8]:
        rows.append(
            OpCase(op, (integers(*a, low=0, high=2), integers(*b, low=0, high=2)), function)
        )
    for dtype in HALVES:
        pair = (column(PAIRED_EDGES[:11], dtype), values(PAIRED_EDGES[:11], dtype))
        rows.append(OpCase(op, pair, function, grad=False))
    for dtype in ("uint8", "int8", "int16", "int32"):
        pair = (integers(33, high=3, dtype=dtype), integers(33, high=3, dtype=dtype))
        rows.append(OpCase(op, pair, function))
    return [as_bool(row) for row in rows]


def as_bool(row: OpCase) -> OpCase:
    return OpCase(row.op, row.inputs, row.numpy, grad=False, dtype="bool")


COMPARISONS = [
    *comparison("eq", np.equal),
    *comparison("ne", np.not_equal),
    *comparison("lt", np.less),
    *comparison("le", np.less_equal),
    *comparison("gt", np.greater),
    *comparison("ge", np.greater_equal),
    *comparison("logical_and", np.logical_and),
    *comparison("logical_or", np.logical_or),
    *comparison("logical_xor", np.logical_xor),
]


def bitwise(op: str, function: Function) -> list[OpCase]:
    rows = [OpCase(op, (integers(35, dtype=d), integers(35, dtype=d)), function) for d in INTEGERS]
    return [
        *rows,
        OpCase(op, (bools(9), bools(9)), function),
        OpCase(op, (integers(2, 3), integers(3)), function),
        OpCase(op, (integers(), integers(0)), function),
    ]


BITWISE = [
    *bitwise("bitwise_and", np.bitwise_and),
    *bitwise("bitwise_or", np.bitwise_or),
    *bitwise("bitwise_xor", np.bitwise_xor),
]


def clamp(x: Array, low: Any, high: Any) -> Array:
    return np.minimum(np.maximum(x, low), high)


SELECTION = [
    OpCase("where", (bools(3, 5), normal(3, 5), normal(3, 5)), np.where, dtype="float32"),
    OpCase("where", (bools(3, 1), normal(5), normal()), np.where, dtype="float32"),
    OpCase("where", (bools(), normal(2, 3), normal(3)), np.where, dtype="float32"),
    OpCase("where", (bools(2, 3, 4), normal(4), 0.0), np.where, dtype="float32"),
    OpCase("where", (bools(7), 1.0, normal(7)), np.where, dtype="float32"),
    OpCase("where", (bools(0, 3), normal(3), normal(0, 1)), np.where, dtype="float32"),
    OpCase("where", (bools(30), values(EDGES), -INF), np.where, grad=False, dtype="float32"),
    OpCase(
        "where",
        (bools(9), normal(9, dtype="float16"), normal(9, dtype="float16")),
        np.where,
        grad=False,
        dtype="float16",
    ),
    OpCase(
        "where",
        (bools(9), normal(9, dtype="bfloat16"), 0.0),
        np.where,
        grad=False,
        dtype="bfloat16",
    ),
    *[
        OpCase("where", (bools(9), integers(9, dtype=d), integers(9, dtype=d)), np.where, dtype=d)
        for d in INTEGERS
    ],
    OpCase("where", (bools(9), bools(9), bools(9)), np.where, dtype="bool"),
    OpCase("where", (bools(9), integers(9), normal(9)), np.where, dtype="float32"),
    OpCase("clamp", (apart(3, 5), -1.0, 1.5), clamp),
    OpCase("clamp", (apart(3, 5), apart(5, shift=0.3), 2.0), clamp, label="tensor bound"),
    OpCase(
        "clamp",
        (apart(3, 5), apart(5, shift=0.3), apart(3, 1, shift=0.4)),
        clamp,
        label="tensor bounds",
    ),
    OpCase("clamp", (values(EDGES), -1.0, 1.0), clamp, grad=False),
    OpCase("clamp", (values(EDGES), -INF, 2.0), clamp, grad=False),
    OpCase("clamp", (apart(7), 2.0, -1.0), clamp, label="crossed bounds"),
    OpCase("clamp", (apart(), 0.0, 1.0), clamp),
    OpCase("clamp", (normal(0, 3), 0.0, 1.0), clamp),
    OpCase("clamp", (normal(9, dtype="bfloat16"), 0.0, 1.0), clamp, grad=False),
    *[OpCase("clamp", (integers(19, dtype=d), 1, 5), clamp) for d in INTEGERS],
    OpCase("clamp", (values([NAN, 1.0]), 0.0, 0.5), clamp, grad=False),
]

CASES = [*ARITHMETIC, *COMPARISONS, *BITWISE, *SELECTION]
