"""Pooling layers."""

from __future__ import annotations

from typing import Any

from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn.functional._arguments import IntOrInts
from lucid.nn.functional.pooling import OptionalSizes
from lucid.nn.modules.module import Module


class _MaxPool(Module):
    """Arguments of the maximum pools; ``stride`` None means ``kernel_size``."""

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """Shows the arguments."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """Largest value of each window: (N, C, L) to (N, C, L_out)."""

    def forward(self, input: Tensor) -> Any:
        """See :func:`lucid.nn.functional.max_pool1d`."""
        return F.max_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool2d(_MaxPool):
    """Largest value of each window: (N, C, H, W) to (N, C, H_out, W_out)."""

    def forward(self, input: Tensor) -> Any:
        """See :func:`lucid.nn.functional.max_pool2d`."""
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class AvgPool1d(Module):
    """Mean of each window: (N, C, L) to (N, C, L_out); ``stride`` None means ``kernel_size``."""

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = self.kernel_size if stride is None else _single(stride)
        self.padding = _single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.avg_pool1d`."""
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """Shows the geometry."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _single(value: IntOrInts) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class AvgPool2d(Module):
    """Mean of each window: (N, C, H, W) to (N, C, H_out, W_out).

    Args:
        stride: None means ``kernel_size``.
        count_include_pad: padding belongs to the count that the sum is divided by.
        divisor_override: divide every sum by this instead.
    """

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.avg_pool2d`."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """Shows the geometry."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Adaptive(Module):
    """A pool that is told the size of its output; None keeps an axis."""

    def __init__(self, output_size: OptionalSizes) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """Shows the output size."""
        return f"output_size={self.output_size}"


class _AdaptiveMax(_Adaptive):
    """One that takes the largest values; ``return_indices`` is refused where it runs."""

    def __init__(self, output_size: OptionalSizes, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveAvgPool1d(_Adaptive):
    """Mean of each bin: (N, C, L) to (N, C, output_size)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.adaptive_avg_pool1d`."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean of each bin: (N, C, H, W) to (N, C, *output_size)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.adaptive_avg_pool2d`."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Largest value of each bin: (N, C, L) to (N, C, output_size)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.adaptive_max_pool1d`."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Largest value of each bin: (N, C, H, W) to (N, C, *output_size)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.adaptive_max_pool2d`."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)
