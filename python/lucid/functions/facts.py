"""Facts about tensors, and the numbers and names that scripts read from the package."""

from __future__ import annotations

import math

from lucid._C import Tensor

__all__ = [
    "Size",
    "e",
    "inf",
    "is_floating_point",
    "is_tensor",
    "nan",
    "newaxis",
    "numel",
    "pi",
]

Size: type = tuple
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None


def is_tensor(obj: object) -> bool:
    """True for a tensor, a parameter too."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """True for a floating dtype."""
    return input.dtype.is_floating_point


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()
