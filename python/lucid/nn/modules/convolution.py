"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.functional._arguments import IntOrInts, to_tuple
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """Arguments, weights and printing that all convolutions share."""

    weight: Parameter
    bias: Parameter | None
    _rank: int
    _is_transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts,
        padding: str | IntOrInts,
        dilation: IntOrInts,
        output_padding: IntOrInts,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: _C.device | str | None,
        dtype: _C.dtype | None,
    ) -> None:
        super().__init__()
        op, rank = type(self).__name__, self._rank
        self._check(op, in_channels, out_channels, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = to_tuple(op, "kernel_size", kernel_size, rank)
        self.stride = to_tuple(op, "stride", stride, rank)
        self.padding: str | tuple[int, ...] = (
            padding if isinstance(padding, str) else to_tuple(op, "padding", padding, rank)
        )
        self.dilation = to_tuple(op, "dilation", dilation, rank)
        self.output_padding = to_tuple(op, "output_padding", output_padding, rank)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check_padding(op)
        first, second = out_channels, in_channels // groups
        if self._is_transposed:
            first, second = in_channels, out_channels // groups
        shape = (first, second, *self.kernel_size)
        self.weight = Parameter(fn.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fn.empty((out_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @staticmethod
    def _check(
        op: str, in_channels: int, out_channels: int, groups: int, padding_mode: str
    ) -> None:
        if groups <= 0:
            raise _C.UserError(f"{op}: groups must be a positive integer: got {groups}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups != 0:
                raise _C.UserError(
                    f"{op}: {name} must be divisible by groups: got {channels} and {groups}"
                )
        if padding_mode not in _PADDING_MODES:
            raise _C.UserError(
                f"{op}: padding_mode must be one of {_PADDING_MODES}: got {padding_mode!r}"
            )

    def _check_padding(self, op: str) -> None:
        if not isinstance(self.padding, str):
            return
        if self.padding not in ("same", "valid"):
            raise _C.UserError(
                f"{op}: padding must be 'same', 'valid' or ints: got {self.padding!r}"
            )
        if self.padding == "same" and any(step != 1 for step in self.stride):
            raise _C.UserError(
                f"{op}: padding='same' is not supported for strides: got {self.stride}"
            )

    def reset_parameters(self) -> None:
        """Draw new weights from the default generator, uniform in +-1 / sqrt(fan_in)."""
        # With a = sqrt(5) the bound sqrt(6 / ((1 + a^2) fan_in)) is 1 / sqrt(fan_in).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _pads_by_mode(self) -> tuple[int, ...]:
        """The padding of both ends in ``F.pad``'s order, last axis first."""
        pads: list[int] = []
        for axis in reversed(range(self._rank)):
            if self.padding == "valid":
                low = high = 0
            elif self.padding == "same":
                total = self.dilation[axis] * (self.kernel_size[axis] - 1)
                low, high = total // 2, total - total // 2
            else:
                low = high = int(self.padding[axis])
            pads += [low, high]
        return tuple(pads)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input after a padding other than zeros, and the padding that is left."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return F.pad(input, self._pads_by_mode(), mode=self.padding_mode), 0

    def extra_repr(self) -> str:
        """Shows the arguments that differ from their defaults, as PyTorch does."""
        rank = self._rank
        text = (
            f"{self.in_channels}, {self.out_channels}, "
            f"kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != (0,) * rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * rank:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * rank:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Direct(_Convolution):
    """Convolutions in PyTorch's argument order."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )


class Conv1d(_Direct):
    """Cross-correlation over one axis.

    Input: (N, in_channels, L) or (in_channels, L). Output: (N, out_channels, L_out).
    ``weight`` (out_channels, in_channels / groups, K) and ``bias`` (out_channels,) start
    uniform in +-1 / sqrt(in_channels / groups * K). Arguments as :class:`Conv2d`.
    """

    _rank = 1

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.conv1d`."""
        padded, padding = self._padded(input)
        return F.conv1d(
            padded, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv2d(_Direct):
    """Cross-correlation over two axes.

    Input: (N, in_channels, H, W) or (in_channels, H, W). Output: (N, out_channels, H_out, W_out).
    ``weight`` (out_channels, in_channels / groups, KH, KW) and ``bias`` (out_channels,) start
    uniform in +-1 / sqrt(in_channels / groups * KH * KW).

    Args:
        kernel_size, stride, dilation: one int or one per axis, in elements.
        padding: at both ends, one int or one per axis, "same" or "valid".
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        groups: divides both numbers of channels.

    Raises: UserError for arguments that do not fit.
    """

    _rank = 2

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.conv2d`."""
        padded, padding = self._padded(input)
        return F.conv2d(
            padded, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv3d(_Direct):
    """Cross-correlation over three axes.

    Input: (N, in_channels, D, H, W) or without N. Output: (N, out_channels, D_out, H_out, W_out).
    ``weight`` (out_channels, in_channels / groups, KD, KH, KW) and ``bias`` (out_channels,) start
    uniform in +-1 / sqrt(in_channels / groups * KD * KH * KW). Arguments as :class:`Conv2d`.
    """

    _rank = 3

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.conv3d`."""
        padded, padding = self._padded(input)
        return F.conv3d(
            padded, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class _Transposed(_Convolution):
    """Transposed convolutions in PyTorch's argument order."""

    _is_transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise _C.UserError(
                f"{type(self).__name__}: only padding_mode='zeros' is defined: got {padding_mode!r}"
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """The output padding that gives ``output_size``; None means the layer's own."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self._rank :]
        spatial = tuple(input.shape[-self._rank :])
        assert not isinstance(self.padding, str)
        return tuple(
            wanted[axis]
            - (spatial[axis] - 1) * self.stride[axis]
            + 2 * self.padding[axis]
            - self.dilation[axis] * (self.kernel_size[axis] - 1)
            - 1
            for axis in range(self._rank)
        )


class ConvTranspose1d(_Transposed):
    """The adjoint of :class:`Conv1d`.

    Input: (N, in_channels, L). Output: (N, out_channels, L_out).
    ``weight`` (in_channels, out_channels / groups, K).
    """

    _rank = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """See :func:`lucid.nn.functional.conv_transpose1d`."""
        assert not isinstance(self.padding, str)
        return F.conv_transpose1d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
        )


class ConvTranspose2d(_Transposed):
    """The adjoint of :class:`Conv2d`.

    Input: (N, in_channels, H, W). Output: (N, out_channels, H_out, W_out).
    ``weight`` (in_channels, out_channels / groups, KH, KW).
    """

    _rank = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """See :func:`lucid.nn.functional.conv_transpose2d`."""
        assert not isinstance(self.padding, str)
        return F.conv_transpose2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
        )
