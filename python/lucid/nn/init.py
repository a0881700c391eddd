"""Initialisers: each puts new values into a tensor in place, outside autograd, and returns it."""

from __future__ import annotations

import math

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4.0,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before a non-linearity are scaled.

    Args:
        nonlinearity: a function's name as in ``lucid.nn.functional``.
        param: the negative slope of "leaky_relu", 0.01 if None.

    Raises: UserError for an unknown name.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        raise _C.UserError(f"calculate_gain: unsupported nonlinearity {nonlinearity!r}")
    return _GAINS[nonlinearity]


def _put(tensor: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        tensor.assign_(value)
    return tensor


def _uniform_like(tensor: Tensor, generator: _C.Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) in the tensor's shape, dtype and device."""
    shape = tuple(tensor.shape)
    return fn.rand(shape, generator=generator, dtype=tensor.dtype, device=tensor.device)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: _C.Generator | None = None
) -> Tensor:
    """Uniform in [``a``, ``b``)."""
    with no_grad():
        return _put(tensor, _uniform_like(tensor, generator) * (b - a) + a)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: _C.Generator | None = None
) -> Tensor:
    """Normal with ``mean`` and standard deviation ``std``."""
    shape = tuple(tensor.shape)
    with no_grad():
        draw = fn.randn(shape, generator=generator, dtype=tensor.dtype, device=tensor.device)
        return _put(tensor, draw * std + mean)


def _inverse_erf(x: Tensor) -> Tensor:
    """erf^-1(x) for -1 < x < 1, relative error below 4e-7.

    Source: Giles 2011, "Approximating the erfinv function", GPU Computing Gems 2, table 4.
    """
    w = -fn.log((1.0 - x) * (1.0 + x))
    central = (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    )  # fmt: skip
    tail = (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    )  # fmt: skip

    def polynomial(coefficients: tuple[float, ...], at: Tensor) -> Tensor:
        total = fn.full_like(at, coefficients[0])
        for coefficient in coefficients[1:]:
            total = total * at + coefficient
        return total

    inner = polynomial(central, w - 2.5)
    outer = polynomial(tail, fn.sqrt(w) - 3.0)
    return fn.where(w < 5.0, inner, outer) * x


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: _C.Generator | None = None,
) -> Tensor:
    """Normal with ``mean`` and ``std``, limited to [``a``, ``b``], by the inverse distribution."""
    low = math.erf((a - mean) / (std * math.sqrt(2.0)))
    high = math.erf((b - mean) / (std * math.sqrt(2.0)))
    with no_grad():
        uniform = _uniform_like(tensor, generator) * (high - low) + low
        values = _inverse_erf(uniform) * (std * math.sqrt(2.0)) + mean
        return _put(tensor, fn.clamp(values, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element ``val``."""
    return _put(tensor, fn.full_like(tensor, val))


def ones_(tensor: Tensor) -> Tensor:
    """Every element 1."""
    return constant_(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """Every element 0."""
    return constant_(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix. Raises: ShapeError unless the tensor has two axes."""
    if tensor.ndim != 2:
        raise _C.ShapeError(f"eye_: tensor must have 2 axes: got shape {tuple(tensor.shape)}")
    rows, columns = tensor.shape
    return _put(tensor, fn.eye(rows, columns, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes its input through.

    Raises: ShapeError unless the tensor has 3 to 5 axes and ``groups`` divides the first.
    """
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups != 0:
        raise _C.ShapeError(
            f"dirac_: tensor must have 3 to 5 axes, the first divisible by groups: "
            f"got shape {tuple(tensor.shape)}, groups {groups}"
        )
    per_group = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    with no_grad():
        zeros_(tensor)
        for group in range(groups):
            for channel in range(min(per_group, tensor.shape[1])):
                place = (group * per_group + channel, channel, *centre)
                tensor[place] = 1.0
    return tensor


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs of one unit: (fan_in, fan_out)."""
    if tensor.ndim < 2:
        raise _C.ShapeError(
            "init: fan in and fan out need a tensor of at least 2 axes: got shape "
            f"{tuple(tensor.shape)}"
        )
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: _C.Generator | None = None
) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)).

    Source: Glorot, Bengio 2010, AISTATS, equation 16.
    """
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, generator: _C.Generator | None = None
) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot, Bengio 2010, AISTATS, equation 12.
    """
    std = gain * math.sqrt(2.0 / sum(_fans(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise _C.UserError(f"init: mode must be 'fan_in' or 'fan_out': got {mode!r}")
    fan = _fans(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: _C.Generator | None = None,
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan); ``a`` is the negative slope of "leaky_relu".

    Source: He and others 2015, arXiv:1502.01852, section 2.2.
    """
    if tensor.numel() == 0:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: _C.Generator | None = None,
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan).

    Source: He and others 2015, arXiv:1502.01852, section 2.2.
    """
    if tensor.numel() == 0:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: _C.Generator | None = None) -> Tensor:
    """A (semi-)orthogonal matrix; the axes after the first count as columns.

    The factorisation is done by NumPy on the host.

    Raises: ShapeError unless the tensor has at least two axes.
    Source: Saxe, McClelland, Ganguli 2013, arXiv:1312.6120.
    """
    if tensor.ndim < 2:
        raise _C.ShapeError(
            f"orthogonal_: tensor must have at least 2 axes: got shape {tuple(tensor.shape)}"
        )
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    draw = fn.randn((rows, columns), generator=generator, dtype=_C.float64, device="cpu").numpy()
    q, r = numpy.linalg.qr(draw if rows >= columns else draw.T)
    # The signs of R's diagonal make the distribution uniform (Mezzadri 2006, section 5).
    q = q * numpy.sign(numpy.diagonal(r))
    matrix = (q if rows >= columns else q.T) * gain
    value = fn.tensor(matrix, dtype=tensor.dtype, device=tensor.device)
    return _put(tensor, value.reshape(tuple(tensor.shape)))
