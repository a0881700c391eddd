"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

DeviceLike = _C.device | str | None


class _RunningNorm(Module):
    """Scale, shift and running statistics of (num_features,) channels."""

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        size = (num_features,)
        if affine:
            self.weight = Parameter(fn.ones(size, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(fn.zeros(size, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", fn.zeros(size, device=device, dtype=dtype))
            self.register_buffer("running_var", fn.ones(size, device=device, dtype=dtype))
            count = fn.zeros((), device=device, dtype=_C.int64)
            self.register_buffer("num_batches_tracked", count)
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the variance to 1 and the count to 0."""
        if self.running_mean is None or self.running_var is None:
            return
        init.zeros_(self.running_mean)
        init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Reset the running statistics, the scale to 1 and the shift to 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input(self, input: Tensor) -> None:
        if input.ndim not in self._ranks:
            wanted = " or ".join(f"{rank}D" for rank in self._ranks)
            raise _C.ShapeError(
                f"{self._get_name()}: expected {wanted} input: got shape {tuple(input.shape)}"
            )

    def extra_repr(self) -> str:
        """Shows the arguments."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.batch_norm`; counts the batch in training mode."""
        self._check_input(input)
        is_tracking = self.training and self.track_running_stats
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if is_tracking and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.assign_(self.num_batches_tracked + 1)
                if self.momentum is None:
                    # The mean of all batches so far weighs the new one by 1 / count.
                    count = self.num_batches_tracked
                    is_wide = count.device.type == "cpu"  # metal has no float64
                    momentum = 1.0 / count.to(_C.float64 if is_wide else _C.float32)
        uses_batch = self.training or (self.running_mean is None and self.running_var is None)
        keeps_stats = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keeps_stats else None,
            self.running_var if keeps_stats else None,
            self.weight,
            self.bias,
            uses_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over the batch: input and output (N, C) or (N, C, L).

    Args:
        num_features: C. ``weight`` (C,) starts at 1, ``bias`` (C,) at 0.
        momentum: share of a new batch in the running statistics; None: the mean of all.
        affine: whether there are weight and bias. bias: whether there is a bias beside the weight.
        track_running_stats: False uses the batch's statistics in evaluation too.

    Raises: UserError for one value a channel in training.
    Source: Ioffe, Szegedy 2015, arXiv:1502.03167.
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise each channel over batch and plane: input and output (N, C, H, W).

    Arguments as :class:`BatchNorm1d`.
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise each channel over batch and volume: input and output (N, C, D, H, W).

    Arguments as :class:`BatchNorm1d`.
    """

    _ranks = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.instance_norm`."""
        self._check_input(input)
        is_single = input.ndim == self._ranks[0]
        output = F.instance_norm(
            input.unsqueeze(0) if is_single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return output.squeeze(0) if is_single else output


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each sample: input and output (N, C, L) or (C, L).

    Source: Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022.
    """

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each sample: input and output (N, C, H, W) or (C, H, W).

    Source: Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022.
    """

    _ranks = (3, 4)


def _trailing_shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)


class LayerNorm(Module):
    """Normalise the trailing axes, then scale and shift.

    Input and output: (..., *normalized_shape). ``weight`` starts at 1, ``bias`` at 0, both
    (*normalized_shape).

    Args:
        elementwise_affine: whether there are weight and bias.
        bias: whether there is a bias beside the weight.

    Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        if elementwise_affine:
            self.weight = Parameter(fn.ones(shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        if elementwise_affine and bias:
            self.bias = Parameter(fn.zeros(shape, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.layer_norm`."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shows the arguments."""
        text = f"{self.normalized_shape}, eps={self.eps}"
        affine = f"elementwise_affine={self.elementwise_affine}"
        return f"{text}, {affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divide the trailing axes by their root mean square, then scale.

    Input and output: (..., *normalized_shape). ``weight`` (*normalized_shape) starts at 1.
    ``eps`` None means the machine epsilon of the input's dtype.

    Source: Zhang, Sennrich 2019, arXiv:1910.07467.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _trailing_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(fn.ones(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)

    def reset_parameters(self) -> None:
        """Set the scale to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.rms_norm`."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shows the arguments."""
        text = f"{self.normalized_shape}, eps={self.eps}"
        return f"{text}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalise groups of channels of each sample, then scale and shift.

    Input and output: (N, num_channels, ...). ``weight`` starts at 1, ``bias`` at 0, both
    (num_channels,).

    Raises: UserError if ``num_groups`` does not divide ``num_channels``.
    Source: Wu, He 2018, arXiv:1803.08494.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups <= 0 or num_channels % num_groups != 0:
            raise _C.UserError(
                f"GroupNorm: num_channels must be divisible by num_groups: "
                f"got {num_channels} and {num_groups}"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        if affine:
            self.weight = Parameter(fn.ones((num_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(fn.zeros((num_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.group_norm`."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shows the arguments."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
