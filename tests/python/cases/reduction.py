"""Reductions and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .case import (
    HALVES,
    INF,
    NAN,
    Array,
    OpCase,
    apart,
    bools,
    integers,
    normal,
    positive,
    uniform,
    values,
)

Function = Callable[..., Any]


def over(function: Function) -> Function:
    """A NumPy reduction with the attributes' names."""

    def reduce(x: Array, dims: list[int], keepdim: bool) -> Array:
        return function(x, axis=tuple(dims), keepdims=keepdim)

    return reduce


def reduced(
    op: str, function: Function, source: Any, dims: list[int], keepdim: bool = False, **more: Any
) -> OpCase:
    return OpCase(
        op,
        (source,),
        over(function),
        {"dims": dims, "keepdim": keepdim},
        label=f"{source.text} {dims} {keepdim}",
        **more,
    )


def reductions(op: str, function: Function, sample: Any, **more: Any) -> list[OpCase]:
    """The patterns of axes, over numbers that the function takes."""
    shape = (2, 3, 4)
    some = [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2], [2, 0]]
    rows = [reduced(op, function, sample(*shape), dims, **more) for dims in some]
    rows += [reduced(op, function, sample(*shape), dims, True, **more) for dims in some[1:]]
    rows += [
        reduced(op, function, sample(), [], **more),
        reduced(op, function, sample(1, 5), [0], **more),
        reduced(op, function, sample(0, 3), [1], **more),
        reduced(op, function, sample(131), [0], **{**more, "grad": False}),
        reduced(op, function, sample(7, 33), [0], **{**more, "grad": False}),
        reduced(op, function, sample(7, 33), [1], **{**more, "grad": False}),
    ]
    return rows


def half_rows(op: str, function: Function) -> list[OpCase]:
    return [reduced(op, function, normal(5, 9, dtype=d), [1], grad=False) for d in HALVES]


def integer_rows(op: str, function: Function) -> list[OpCase]:
    return [
        reduced(op, function, integers(3, 5, dtype=d), [1])
        for d in ("uint8", "int8", "int16", "int32", "int64")
    ]


def extreme_rows(op: str, function: Function) -> list[OpCase]:
    return [
        *reductions(op, function, apart),
        *half_rows(op, function),
        *integer_rows(op, function),
        reduced(op, function, values([[1.0, NAN, 2.0], [INF, 0.0, -INF]]), [1], grad=False),
        reduced(op, function, values([NAN, 1.0]), [0], grad=False),
        reduced(op, function, bools(3, 5), [1]),
    ]


def sum_as(dtype: str) -> Function:
    def function(x: Array, axis: Any, keepdims: bool) -> Array:
        return np.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)

    return function


def prod_as(dtype: str) -> Function:
    def function(x: Array, axis: Any, keepdims: bool) -> Array:
        return np.prod(x, axis=axis, keepdims=keepdims, dtype=dtype)

    return function


def nearly_one(*shape: int) -> Any:
    return uniform(*shape, low=0.8, high=1.2)


SUMS = [
    *reductions("sum", np.sum, normal),
    *half_rows("sum", np.sum),
    *[
        reduced("sum", sum_as(d), integers(3, 5, dtype=d), [1])
        for d in ("uint8", "int8", "int16", "int32", "int64")
    ],
    reduced("sum", np.sum, normal(3, 0), [1]),
    reduced("sum", np.sum, values([[1.0, INF], [INF, -INF], [NAN, 1.0]]), [1], grad=False),
    # Sums in float16 itself would stop at 2048.
    reduced("sum", np.sum, values(np.ones(4096), "float16"), [0], grad=False),
    reduced(
        "sum",
        np.sum,
        values(np.full(5000, 0.1)),
        [0],
        grad=False,
        tolerance=3e-6,
        reason="16 running sums of 312 equal terms, which all round alike",
    ),
    *reductions("prod", np.prod, nearly_one),
    reduced("prod", np.prod, values([[0.0, 2.0, -3.0], [0.0, 0.0, 2.0], [1.5, -1.0, 2.0]]), [1]),
    reduced("prod", np.prod, normal(3, 0), [1]),
    *half_rows("prod", np.prod),
    *[reduced("prod", prod_as(d), integers(3, 5, dtype=d), [1]) for d in ("int32", "int64")],
]


def arg(function: Function) -> Function:
    def reduce(x: Array, dim: int, keepdim: bool) -> Array:
        return np.asarray(function(x, axis=dim, keepdims=keepdim))

    return reduce


def arg_case(op: str, source: Any, dim: int, keepdim: bool = False) -> OpCase:
    function = np.argmax if op == "argmax" else np.argmin
    return OpCase(
        op,
        (source,),
        arg(function),
        {"dim": dim, "keepdim": keepdim},
        grad=False,
        dtype="int64",
        label=f"{source.text} {dim} {keepdim}",
    )


def arg_rows(op: str) -> list[OpCase]:
    return [
        arg_case(op, normal(7), 0),
        arg_case(op, normal(3, 5), 1, True),
        arg_case(op, normal(3, 5, 4), 1),
        arg_case(op, normal(33, 5), 0),
        arg_case(op, normal(0, 5), 1),
        arg_case(op, integers(50, low=0, high=3), 0),
        arg_case(op, integers(50, low=0, high=3, dtype="uint8"), 0),
        arg_case(op, values([[1.0, NAN, 5.0, NAN], [0.0, -0.0, 0.0, -0.0]]), 1),
        arg_case(op, values([[INF, INF], [-INF, -INF]]), 1),
        arg_case(op, normal(33, dtype="bfloat16"), 0),
    ]


def test_rows(op: str, function: Function) -> list[OpCase]:
    return [
        reduced(op, function, source, dims, grad=False, dtype="bool")
        for source, dims in (
            (bools(3, 4), [1]),
            (bools(3, 4), [0, 1]),
            (bools(3, 4), []),
            (values([[True, True], [False, True], [False, False]], "bool"), [1]),
            (values([[0.0, -0.0], [NAN, 0.0], [1.0, 2.0]]), [1]),
            (integers(3, 2, low=0, high=2), [1]),
            (bools(0, 3), [0]),
            (bools(), []),
        )
    ]


def finite_case(*sources: Any) -> OpCase:
    return OpCase(
        "all_finite",
        sources,
        lambda *arrays: np.asarray(all(bool(np.isfinite(x).all()) for x in arrays)),
        grad=False,
        dtype="bool",
        tolerance=0,
    )


FINITE = [
    finite_case(normal(3, 5)),
    finite_case(normal(2), normal(0), normal(), normal(40, dtype="bfloat16")),
    finite_case(values([3.4028235e38, -3.4028235e38, 1e-45, -0.0])),
    *[
        finite_case(normal(7), values([1.0] * 9 + [bad], dtype=dtype))
        for dtype in (*HALVES, "float32", "float64")
        for bad in (INF, -INF, NAN, 60000.0)
    ],
]

REDUCTIONS = [
    *FINITE,
    *SUMS,
    *extreme_rows("amax", np.max),
    *extreme_rows("amin", np.min),
    *arg_rows("argmax"),
    *arg_rows("argmin"),
    *test_rows("any", np.any),
    *test_rows("all", np.all),
]


def matmul(a: Array, b: Array, transpose_a: bool, transpose_b: bool) -> Array:
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    return np.matmul(left, right)


def product(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, **more: Any
) -> OpCase:
    letters = "tn"[not transpose_a] + "tn"[not transpose_b]
    return OpCase(
        "matmul",
        (a, b),
        matmul,
        {"transpose_a": transpose_a, "transpose_b": transpose_b},
        label=f"{letters} {a.text},{b.text}",
        **more,
    )


def products(
    sizes: tuple[int, int, int],
    lead_a: tuple[int, ...] = (),
    lead_b: tuple[int, ...] = (),
    **more: Any,
) -> list[OpCase]:
    """A product in its four forms of transposition."""
    m, k, n = sizes
    rows = []
    for ta in (False, True):
        for tb in (False, True):
            a = normal(*lead_a, *((k, m) if ta else (m, k)))
            b = normal(*lead_b, *((n, k) if tb else (k, n)))
            rows.append(product(a, b, ta, tb, **more))
    return rows


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = x @ weight.T
    return y if bias is None else y + bias


# A product's terms cancel, so that its error is large beside the result: sqrt(k) roundings.
LONG = {"grad": False, "tolerance": 3e-6, "reason": "sums of hundreds of terms"}

PRODUCTS = [
    *products((3, 4, 5)),
    *products((1, 1, 1)),
    *products((1, 7, 3)),
    *products((3, 7, 1)),
    *products((2, 3, 4), (2,), (2,)),
    *products((2, 3, 4), (2, 1), (3,)),
    *products((2, 3, 4), (3,), ()),
    *products((2, 3, 2), (), (2, 2)),
    *products((3, 0, 2)),
    *products((0, 3, 2)),
    *products((2, 2, 2), (0,), (1,)),
    *products((17, 33, 9), **LONG),
    *products((65, 130, 67), **LONG),
    *products((129, 257, 96), **LONG),
    *products((31, 70, 33), (3,), (3,), **LONG),
    *[product(normal(5, 9, dtype=d), normal(9, 7, dtype=d), grad=False) for d in HALVES],
    *[product(integers(3, 4, dtype=d), integers(4, 5, dtype=d)) for d in ("int32", "int64")],
    product(values([[1.0, INF], [0.0, NAN]]), values([[1.0, 0.0], [0.0, 2.0]]), grad=False),
    OpCase("linear", (normal(3, 4), normal(5, 4), normal(5)), linear),
    OpCase("linear", (normal(3, 4), normal(5, 4), None), linear),
    OpCase("linear", (normal(4), normal(5, 4), normal(5)), linear),
    OpCase("linear", (normal(2, 3, 4), normal(5, 4), normal(5)), linear),
    OpCase("linear", (normal(0, 4), normal(5, 4), normal(5)), linear),
    OpCase("linear", (normal(3, 0), normal(5, 0), normal(5)), linear),
    OpCase("linear", (normal(1, 4), normal(1, 4), normal(1)), linear),
    OpCase("linear", (normal(33, 70), normal(65, 70), normal(65)), linear, **LONG),
    OpCase("linear", (normal(130, 257), normal(96, 257), normal(96)), linear, **LONG),
    *[
        OpCase(
            "linear",
            (normal(3, 9, dtype=d), normal(5, 9, dtype=d), normal(5, dtype=d)),
            linear,
            grad=False,
        )
        for d in HALVES
    ],
    OpCase(
        "linear", (positive(3, 4, dtype="float64"), normal(5, 4, dtype="float64"), None), linear
    ),
]

CASES = [*REDUCTIONS, *PRODUCTS]
