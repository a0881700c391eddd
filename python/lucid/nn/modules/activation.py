"""Activation layers; each calls its functional form."""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter


class _Plain(Module):
    """An activation without arguments."""


class _Inplace(Module):
    """An activation whose only argument is ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Shows ``inplace`` when set."""
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(x, 0). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.relu`."""
        return F.relu(input, self.inplace)


class ReLU6(_Inplace):
    """min(max(x, 0), 6). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.relu6`."""
        return F.relu6(input, self.inplace)


class SELU(_Inplace):
    """Self-normalising ELU. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.selu`."""
        return F.selu(input, self.inplace)


class SiLU(_Inplace):
    """x * sigmoid(x). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.silu`."""
        return F.silu(input, self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x)). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.mish`."""
        return F.mish(input, self.inplace)


class Hardswish(_Inplace):
    """x * relu6(x + 3) / 6. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.hardswish`."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.hardsigmoid`."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Tanh(_Plain):
    """Hyperbolic tangent. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.tanh`."""
        return F.tanh(input)


class Sigmoid(_Plain):
    """1 / (1 + exp(-x)). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.sigmoid`."""
        return F.sigmoid(input)


class LogSigmoid(_Plain):
    """log(sigmoid(x)). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.logsigmoid`."""
        return F.logsigmoid(input)


class Softsign(_Plain):
    """x / (1 + |x|). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.softsign`."""
        return F.softsign(input)


class Tanhshrink(_Plain):
    """x - tanh(x). Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.tanhshrink`."""
        return F.tanhshrink(input)


class LeakyReLU(Module):
    """x where x > 0, else ``negative_slope`` * x. Input and output: any shape."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.leaky_relu`."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """Shows the slope, and ``inplace`` when set."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x where x > 0, else ``alpha`` * (exp(x) - 1). Input and output: any shape."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.elu`."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Shows ``alpha``, and ``inplace`` when set."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(Module):
    """x where x > 0, else ``alpha`` * (exp(x / alpha) - 1). Input and output: any shape."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.celu`."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Shows ``alpha``, and ``inplace`` when set."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x * Phi(x), exact or by its tanh approximation. Input and output: any shape."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.gelu`."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """Shows ``approximate``."""
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta. Input and output: any shape."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.softplus`."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Shows both arguments."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Module):
    """x limited to [``min_val``, ``max_val``]. Input and output: any shape."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if min_val >= max_val:
            raise _C.UserError(
                f"Hardtanh: max_val must be larger than min_val: got {min_val} and {max_val}"
            )
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.hardtanh`."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """Shows the limits, and ``inplace`` when set."""
        limits = f"min_val={self.min_val}, max_val={self.max_val}"
        return limits + (", inplace=True" if self.inplace else "")


class Threshold(Module):
    """x where x > ``threshold``, else ``value``. Input and output: any shape."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.threshold`."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """Shows the arguments."""
        shown = f"threshold={self.threshold}, value={self.value}"
        return shown + (", inplace=True" if self.inplace else "")


class Hardshrink(Module):
    """x where \\|x\\| > ``lambd``, else 0. Input and output: any shape."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.hardshrink`."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Shows ``lambd``."""
        return str(self.lambd)


class Softshrink(Module):
    """x moved towards 0 by ``lambd``. Input and output: any shape."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.softshrink`."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Shows ``lambd``."""
        return str(self.lambd)


class _Along(Module):
    """An activation along one axis."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """Shows the axis."""
        return f"dim={self.dim}"


class Softmax(_Along):
    """exp(x) / sum(exp(x)) along ``dim``. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.softmax`."""
        return F.softmax(input, self.dim)


class Softmin(_Along):
    """softmax(-x) along ``dim``. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.softmin`."""
        return F.softmin(input, self.dim)


class LogSoftmax(_Along):
    """log(softmax(x)) along ``dim``. Input and output: any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.log_softmax`."""
        return F.log_softmax(input, self.dim)


class GLU(Module):
    """a * sigmoid(b), the halves of the input along ``dim``; that axis is halved."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.glu`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """Shows the axis."""
        return f"dim={self.dim}"


class PReLU(Module):
    """x where x > 0, else a learned slope times x.

    Input and output: (N, C, ...). ``weight``: (num_parameters,), 1 or C slopes, first ``init``.
    """

    weight: Parameter

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(fn.full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set every slope to ``init``."""
        self.weight.data.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.prelu`."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Shows the number of slopes."""
        return f"num_parameters={self.num_parameters}"
