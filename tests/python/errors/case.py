"""The form of a row in the table of errors, and short names for what the rows call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucid


@dataclass(frozen=True)
class ErrorCase:
    """A call, the class of the error and its exact text."""

    name: str
    call: Callable[[], Any]
    error: type[Exception]
    text: str


def f32(*shape: int) -> lucid.Tensor:
    """Zeros in float32."""
    return lucid.zeros(shape)


def f64(*shape: int) -> lucid.Tensor:
    """Zeros in float64."""
    return lucid.zeros(shape, dtype=lucid.float64)


def i64(*shape: int) -> lucid.Tensor:
    """Zeros in int64."""
    return lucid.zeros(shape, dtype=lucid.int64)


def truth(*shape: int) -> lucid.Tensor:
    """False everywhere."""
    return lucid.zeros(shape, dtype=lucid.bool_)


def leaf(*shape: int) -> lucid.Tensor:
    """Zeros that require a gradient."""
    return lucid.zeros(shape, requires_grad=True)


def emit(name: str, *inputs: Any, **attrs: Any) -> Any:
    """Calls an operation itself, below the functions that check first."""
    return lucid._C.emit(name, *inputs, **attrs)
