"""Custom operations that several tests use, and what they compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from lucid import Tensor, nn
from lucid.compile import CustomOp, TensorSpec, custom_op
from numpy.typing import NDArray

Array = NDArray[Any]
CALLS: list[str] = []


@custom_op("tests::softclip", pure=True)
def softclip(x: Array, *, limit: float) -> Array:
    """limit tanh(x / limit)."""
    CALLS.append("softclip")
    return (limit * np.tanh(x / limit)).astype(x.dtype)


@softclip.shape
def _(x: TensorSpec, *, limit: float) -> Any:
    return x.shape, x.dtype


@softclip.vjp
def _(grads: Any, inputs: Any, outputs: Any, *, limit: float) -> Any:
    CALLS.append("softclip'")
    slope = 1 - (outputs[0] / limit) ** 2
    return (grads[0] * slope).astype(inputs[0].dtype)


def one_input(name: str, forward: Callable[..., Any], pure: bool = True) -> CustomOp:
    op = custom_op(f"tests::{name}", pure=pure)(forward)
    op.shape(lambda x, **_: (x.shape, x.dtype))
    op.vjp(lambda grads, inputs, outputs, **_: grads[0].copy())
    return op


def gradients(model: nn.Module, loss: Tensor, scale: float) -> list[Any]:
    for parameter in model.parameters():
        parameter.grad = None
    (loss / scale).backward()
    found = [p.grad for p in model.parameters()]
    return [loss.detach().numpy().tobytes()] + [
        None if g is None else g.numpy().tobytes() for g in found
    ]
