"""Rows of the operations that stand for users' functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from lucid.compile import TensorSpec, custom_op

from .case import Array, OpCase, integers, normal

F32 = "float32[3, 4]"


@custom_op("cases::scaled_product", pure=True)
def scaled_product(x: Array, y: Array, *, scale: float) -> tuple[Array, Array]:
    """scale x y, and the signs of x."""
    return (scale * x * y).astype(x.dtype), np.sign(x).astype(np.int64)


@scaled_product.shape
def _(x: TensorSpec, y: TensorSpec, *, scale: float) -> Any:
    return [(x.shape, x.dtype), (x.shape, np.int64)]


@scaled_product.vjp
def _(grads: Any, inputs: Any, outputs: Any, *, scale: float) -> Any:
    assert grads[1] is None and outputs[1].dtype == np.int64
    x, y = inputs
    return (scale * grads[0] * y).astype(x.dtype), (scale * grads[0] * x).astype(x.dtype)


@custom_op("cases::first_row", pure=False)
def first_row(x: Array, rows: Array) -> Array:
    """The row of x that the first index names."""
    return np.asarray(x[rows[0]])


@first_row.shape
def _(x: TensorSpec, rows: TensorSpec) -> Any:
    return x.shape[1:], x.dtype


@first_row.vjp
def _(grads: Any, inputs: Any, outputs: Any) -> Any:
    x, rows = inputs
    grad = np.zeros_like(x)
    grad[rows[0]] = grads[0]
    return grad, None


def product(x: Array, y: Array, *_: Any, **attrs: Any) -> tuple[Array, Array]:
    return 1.5 * x * y, np.sign(x)


def product_grads(x: Array, y: Array, product: Array, sign: Array, g: Array, **_: Any) -> Any:
    return 1.5 * g * y, 1.5 * g * x


def row_grad(x: Array, rows: Array, row: Array, g: Array, **_: Any) -> Array:
    grad = np.zeros_like(x)
    grad[rows[0]] = g
    return grad


PRODUCT = {"function": "cases::scaled_product", "arguments": "scale=1.5"}
ROW = {"function": "cases::first_row", "arguments": ""}
X = normal(3, 4)

CASES = [
    OpCase(
        "custom",
        (X, normal(3, 4)),
        product,
        {**PRODUCT, "results": f"{F32}, int64[3, 4]", "has_gradient": True},
        second=False,
        dtype=("float32", "int64"),
    ),
    OpCase(
        "custom_grad",
        (X, X, X, integers(3, 4), X),
        product_grads,
        {**PRODUCT, "num_inputs": 2, "given": [0], "wanted": [0, 1]},
        grad=False,
        dtype=("float32", "float32"),
    ),
    OpCase(
        "custom_grad",
        (X, X, X, integers(3, 4), X),
        lambda *given, **attrs: product_grads(*given)[1],
        {**PRODUCT, "num_inputs": 2, "given": [0], "wanted": [1]},
        grad=False,
        label="one",
    ),
    OpCase(
        "custom_impure",
        (X, integers(2, low=0, high=3)),
        lambda x, rows, **attrs: x[rows[0]],
        {**ROW, "results": "float32[4]", "has_gradient": True},
        second=False,
    ),
    OpCase(
        "custom_impure_grad",
        (X, integers(2, low=0, high=3), normal(4), normal(4)),
        row_grad,
        {**ROW, "num_inputs": 2, "given": [0], "wanted": [0]},
        grad=False,
    ),
    OpCase(
        "with_gradient",
        (normal(2), X, integers(5)),
        lambda x, y, z, **attrs: (y, z),
        {"rule": 0, "num_outputs": 2},
        grad=False,
        dtype=("float32", "int64"),
        tolerance=0,
    ),
]
