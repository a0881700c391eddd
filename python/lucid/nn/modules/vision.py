"""Resampling and rearranging layers."""

from __future__ import annotations

from collections.abc import Sequence

from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn.functional._arguments import IntOrInts
from lucid.nn.modules.module import Module


class Upsample(Module):
    """Resample the spatial axes of (N, C, ...); arguments of ``functional.interpolate``."""

    def __init__(
        self,
        size: IntOrInts | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = (
            tuple(float(factor) for factor in scale_factor)
            if isinstance(scale_factor, Sequence)
            else None
            if scale_factor is None
            else float(scale_factor)
        )
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.interpolate`."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """Shows the size or the factor, and the mode."""
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor}, mode={self.mode!r}"
        return f"size={self.size}, mode={self.mode!r}"


class PixelShuffle(Module):
    """(N, C r^2, H, W) to (N, C, H r, W r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.pixel_shuffle`."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """Shows the factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(N, C, H r, W r) to (N, C r^2, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.pixel_unshuffle`."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """Shows the factor."""
        return f"downscale_factor={self.downscale_factor}"


class _Windows(Module):
    """Geometry of the windows of a plane."""

    def __init__(
        self,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def extra_repr(self) -> str:
        """Shows the geometry."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(_Windows):
    """(N, C, H, W) to (N, C * KH * KW, windows)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.unfold`."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """(N, C * KH * KW, windows) to (N, C, *output_size)."""

    def __init__(
        self,
        output_size: IntOrInts,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.fold`."""
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """Shows the sizes."""
        return f"output_size={self.output_size}, {super().extra_repr()}"
