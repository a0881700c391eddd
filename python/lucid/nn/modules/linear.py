"""Identity, reshaping and affine layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

DeviceLike = _C.device | str | None


class Identity(Module):
    """Returns its input; all arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """``input`` itself."""
        return input


class Flatten(Module):
    """Join the axes ``start_dim`` to ``end_dim``: (N, C, H, W) to (N, C * H * W) by default."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.flatten`."""
        return fn.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Shows the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split axis ``dim`` into ``unflattened_size``; one size may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.unflatten`."""
        return fn.unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Shows the axis and its parts."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """x W^T + b along the last axis.

    Input: (..., in_features). Output: (..., out_features).
    ``weight`` (out_features, in_features) and ``bias`` (out_features,) start uniform in
    +-1 / sqrt(in_features).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(fn.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fn.empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from the default generator."""
        # With a = sqrt(5) the bound sqrt(6 / ((1 + a^2) fan_in)) is 1 / sqrt(fan_in).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.linear`."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Shows the sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """y_o = x1^T W_o x2 + b_o.

    Input: (..., in1_features), (..., in2_features). Output: (..., out_features).
    ``weight`` (out_features, in1_features, in2_features) and ``bias`` (out_features,) start
    uniform in +-1 / sqrt(in1_features).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise _C.UserError(f"Bilinear: in1_features must be positive: got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(fn.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fn.empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from the default generator."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.bilinear`."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Shows the sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
