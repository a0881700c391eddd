"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence

from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn.functional._arguments import to_tuple
from lucid.nn.modules.module import Module


class _Pad(Module):
    """Pads the last axes by (low, high) pairs, last axis first; one int means everywhere."""

    _rank = 2
    _mode = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = to_tuple(type(self).__name__, "padding", padding, 2 * self._rank)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.pad`."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """Shows the padding."""
        return f"{self.padding}"


class ZeroPad2d(_Pad):
    """Pad the planes of (..., H, W) by zeros: (left, right, top, bottom)."""


class ConstantPad1d(_Pad):
    """Pad the rows of (..., L) by ``value``: (left, right)."""

    _rank = 1

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.pad`."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """Shows the padding and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(ConstantPad1d):
    """Pad the planes of (..., H, W) by ``value``: (left, right, top, bottom)."""

    _rank = 2


class ZeroPad1d(_Pad):
    """Pad the rows of (..., L) by zeros: (left, right)."""

    _rank = 1


class CircularPad1d(_Pad):
    """Pad the rows of (..., L) by their other end."""

    _rank = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """Pad the planes of (..., H, W) by their other end."""

    _mode = "circular"


class ReflectionPad1d(_Pad):
    """Pad the rows of (..., L) by their mirror image without the edge."""

    _rank = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pad the planes of (..., H, W) by their mirror image without the edge."""

    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pad the rows of (..., L) by their edge."""

    _rank = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pad the planes of (..., H, W) by their edge."""

    _mode = "replicate"
