"""Activation functions: nodes of the graph where there is one, else composites."""

from __future__ import annotations

import warnings

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.arguments import normalize_dim
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import channel_shape, require_tensors

# Above this the softplus equals its argument in float64: log1p(exp(-40)) < 2^-52 * 40.
_EXACT_SOFTPLUS_THRESHOLD = 40.0


def _finish(input: Tensor, output: Tensor, inplace: bool) -> Tensor:
    """Return ``output``, put into ``input`` itself when ``inplace``."""
    if inplace:
        return input.assign_(output)
    return output


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), element by element; the gradient at 0 is 0.

    Args:
        input: any shape, any number dtype.
        inplace: put the result into ``input`` too.

    Returns: shape and dtype of ``input``.
    """
    return _finish(input, _C.emit("relu", input), inplace)


def relu_(input: Tensor) -> Tensor:
    """In-place form of :func:`relu`."""
    return relu(input, inplace=True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else ``negative_slope`` * x.

    Returns: shape and dtype of ``input``.
    Source: Maas, Hannun, Ng 2013, "Rectifier nonlinearities", section 2.
    """
    output = _C.emit("leaky_relu", input, negative_slope=float(negative_slope))
    return _finish(input, output, inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution function.

    Args:
        input: any shape, floating point.
        approximate: "none" uses erf; "tanh" the tanh approximation.

    Returns: shape and dtype of ``input``.
    Raises: UserError for another ``approximate``.
    Source: Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2.
    """
    if approximate not in ("none", "tanh"):
        raise _C.UserError(f"gelu: approximate must be 'none' or 'tanh': got {approximate!r}")
    return _C.emit("gelu", input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), also called swish.

    Returns: shape and dtype of ``input``.
    Source: Elfwing, Uchibe, Doya 2017, arXiv:1702.03118, equation 6.
    """
    return _finish(input, _C.emit("silu", input), inplace)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent; shape and dtype of ``input``."""
    return _C.emit("tanh", input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)); shape and dtype of ``input``."""
    return _C.emit("sigmoid", input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > ``threshold``.

    Returns: shape and dtype of ``input``.
    """
    return _C.emit("softplus", input, beta=float(beta), threshold=float(threshold))


@autocast_as("none")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow for any x; shape and dtype of ``input``."""
    return -softplus(-input, threshold=_EXACT_SOFTPLUS_THRESHOLD)


def _implicit_dim(name: str, ndim: int) -> int:
    """PyTorch's choice of axis when none is given, with its warning."""
    warnings.warn(
        f"{name}: the implicit choice of dim is deprecated; pass dim=...", UserWarning, stacklevel=4
    )
    return 0 if ndim in (0, 1, 3) else 1


def _along(name: str, input: Tensor, dim: int | None, dtype: _C.dtype | None) -> Tensor:
    """Emit softmax or log_softmax along ``dim``, after the cast to ``dtype``."""
    require_tensors(name, input=input)
    if dim is None:
        dim = _implicit_dim(name, input.ndim)
    axis = normalize_dim(name, dim, input.ndim)
    if dtype is not None and input.dtype != dtype:
        input = input.to(dtype)
    if input.ndim == 0:
        result = _C.emit(name, input.reshape(1), dim=0).reshape(())
    else:
        result = _C.emit(name, input, dim=axis)
    # Mixed precision may have made it another.
    return result if dtype is None or result.dtype == dtype else result.to(dtype)


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _C.dtype | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``, computed on x - max(x).

    Args:
        input: any shape, floating point.
        dim: the axis whose entries add up to 1.
        dtype: cast the input to this first.

    Returns: shape of ``input``. A row of only -inf is nan.
    Raises: OutOfRangeError if ``dim`` is no axis of ``input``.
    """
    return _along("softmax", input, dim, dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _C.dtype | None = None
) -> Tensor:
    """softmax(-x) along ``dim``; see :func:`softmax`."""
    return _along("softmax", -input, dim, dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _C.dtype | None = None
) -> Tensor:
    """x - logsumexp(x) along ``dim``; arguments as :func:`softmax`."""
    return _along("log_softmax", input, dim, dtype)


@autocast_as("none")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else ``alpha`` * (exp(x) - 1).

    Returns: shape and dtype of ``input``.
    Source: Clevert, Unterthiner, Hochreiter 2015, arXiv:1511.07289, equation 15.
    """
    # The clamp keeps exp finite, and so the gradient, where the other side is taken.
    negative = fn.expm1(fn.clamp(input, max=0.0)) * alpha
    return _finish(input, fn.where(input > 0, input, negative), inplace)


@autocast_as("none")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """scale * elu(x, alpha), the constants that keep mean 0 and variance 1.

    Returns: shape and dtype of ``input``.
    Source: Klambauer and others 2017, arXiv:1706.02515, equation 14.
    """
    alpha = 1.6732632423543772848170429916717
    scale = 1.0507009873554804934193349852946
    return _finish(input, elu(input, alpha) * scale, inplace)


@autocast_as("none")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else ``alpha`` * (exp(x / alpha) - 1); shape and dtype of ``input``.

    Raises: UserError if ``alpha`` is 0.
    Source: Barron 2017, arXiv:1704.07483, equation 2.
    """
    if alpha == 0:
        raise _C.UserError("celu: alpha must not be 0")
    negative = fn.expm1(fn.clamp(input, max=0.0) / alpha) * alpha
    return _finish(input, fn.where(input > 0, input, negative), inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x limited to [``min_val``, ``max_val``]; the gradient at the limits is 0.

    Returns: shape and dtype of ``input``.
    Raises: UserError if ``min_val`` > ``max_val``.
    """
    if min_val > max_val:
        raise _C.UserError(
            f"hardtanh: min_val must not exceed max_val: got {min_val} and {max_val}"
        )
    inside = fn.logical_and(input > min_val, input < max_val)
    limited = fn.clamp(input.detach(), min_val, max_val)
    return _finish(input, fn.where(inside, input, limited), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6); shape and dtype of ``input``.

    Source: Howard and others 2017, arXiv:1704.04861.
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6; shape and dtype of ``input``."""
    return _finish(input, hardtanh(input + 3.0, 0.0, 6.0) / 6.0, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6; shape and dtype of ``input``.

    Source: Howard and others 2019, arXiv:1905.02244, section 5.2.
    """
    return _finish(input, input * hardtanh(input + 3.0, 0.0, 6.0) / 6.0, inplace)


@autocast_as("none")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)); shape and dtype of ``input``.

    Source: Misra 2019, arXiv:1908.08681, equation 1.
    """
    return _finish(input, input * _C.emit("tanh", softplus(input)), inplace)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|); shape and dtype of ``input``."""
    return input / (fn.abs(input) + 1.0)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x); shape and dtype of ``input``."""
    return input - _C.emit("tanh", input)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where \\|x\\| > ``lambd``, else 0; shape and dtype of ``input``."""
    return fn.where(fn.abs(input) > lambd, input, 0.0)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by ``lambd``, 0 between; shape and dtype of ``input``."""
    shrunk = input - fn.sign(input) * lambd
    return fn.where(fn.abs(input) > lambd, shrunk, 0.0)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), a and b the two halves of ``input`` along ``dim``.

    Returns: the shape of ``input`` with ``dim`` halved.
    Raises: ShapeError if that axis has an odd size.
    Source: Dauphin and others 2016, arXiv:1612.08083, equation 1.
    """
    axis = normalize_dim("glu", dim, input.ndim)
    if input.ndim == 0 or input.shape[axis] % 2 != 0:
        raise _C.ShapeError(
            f"glu: the halved axis must have an even size: "
            f"got shape {tuple(input.shape)}, dim {dim}"
        )
    half = input.shape[axis] // 2
    gate = input.narrow(axis, half, half)
    return input.narrow(axis, 0, half) * _C.emit("sigmoid", gate)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > ``threshold``, else ``value``; shape and dtype of ``input``."""
    return _finish(input, fn.where(input > threshold, input, value), inplace)


@autocast_as("low")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else ``weight`` * x.

    Args:
        input: (N, C, ...), floating point.
        weight: (1,) or (C,), the learned slopes.

    Returns: shape and dtype of ``input``.
    Raises: ShapeError if ``weight`` has neither one nor C elements.
    Source: He and others 2015, arXiv:1502.01852, equation 1.
    """
    slopes = weight.numel()
    if slopes != 1:
        if input.ndim < 2 or input.shape[1] != slopes:
            raise _C.ShapeError(
                f"prelu: weight must have 1 or as many elements as input has channels: "
                f"got {slopes} for shape {tuple(input.shape)}"
            )
        weight = weight.reshape(channel_shape(input))
    else:
        weight = weight.reshape(())
    return fn.where(input > 0, input, input * weight)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution along ``dim``.

    Args:
        logits: any shape, unnormalised log probabilities.
        tau: temperature, > 0.
        hard: one-hot result whose gradient is that of the soft sample.
        eps: without effect, kept for PyTorch's argument order.

    Returns: shape and dtype of ``logits``.
    Source: Jang, Gu, Poole 2016, arXiv:1611.01144, equation 2.
    """
    axis = normalize_dim("gumbel_softmax", dim, logits.ndim)
    uniform = fn.rand_like(logits)
    gumbels = -fn.log(-fn.log(uniform))
    soft = softmax((logits + gumbels) / tau, dim=axis)
    if not hard:
        return soft
    index = fn.argmax(soft, dim=axis, keepdim=True)
    one_hot = _C.emit(
        "scatter", fn.zeros_like(soft), index, fn.ones_like(soft).narrow(axis, 0, 1), dim=axis
    )
    return one_hot - soft.detach() + soft
