"""The form of a function that is compared with values recorded from PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases.case import Sample


@dataclass(frozen=True)
class FunctionCase:
    """A function of tensors; its result and the gradients of the floating inputs are recorded.

    coarse: why the recorded float64 values are only as good as float32; empty where they are not.
    """

    name: str
    run: Callable[..., Any]
    inputs: tuple[Sample, ...]
    namespace: str = "nn.functional"
    coarse: str = ""


def top(name: str, run: Callable[..., Any], *inputs: Sample) -> FunctionCase:
    """A function of the package's root."""
    return FunctionCase(name, run, inputs, namespace="")
