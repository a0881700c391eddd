"""Normalisation over batches, layers, groups and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.functions.arguments import normalize_dim
from lucid.functions.dtypes import finfo
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import channel_shape, require_tensors


def _moved(running: Tensor, batch: Tensor, momentum: float | Tensor) -> Tensor:
    """(1 - momentum) * running + momentum * batch, in the dtype of ``running``."""
    if batch.dtype != running.dtype:
        batch = batch.to(running.dtype)
    return running * (1.0 - momentum) + batch * momentum


def _update_running(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    count: int,
    momentum: float | Tensor,
) -> None:
    """Move the running statistics towards those of a batch of ``count`` values a channel."""
    with no_grad():
        if running_mean is not None:
            running_mean.assign_(_moved(running_mean, mean, momentum))
        if running_var is not None:
            unbiased = variance * (count / (count - 1))
            running_var.assign_(_moved(running_var, unbiased, momentum))


def _affine(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    """input * weight + bias, both reshaped to ``shape``; None means 1 and 0."""
    if weight is not None:
        input = input * weight.reshape(shape)
    if bias is not None:
        input = input + bias.reshape(shape)
    return input


def _is_half_beside_float32(input: Tensor, *parameters: Tensor | None) -> bool:
    """True for a half input with float32 parameters, as mixed precision has them."""
    is_half = input.dtype in (_C.float16, _C.bfloat16)
    return is_half and any(p is not None and p.dtype is _C.float32 for p in parameters)


def _batch_norm_inference(
    input: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """(x - mean) * (weight / sqrt(variance + eps)) + bias with given statistics."""
    shape = channel_shape(input)
    scale = fn.rsqrt(variance + eps)
    if scale.dtype != input.dtype:
        mean, scale = mean.to(input.dtype), scale.to(input.dtype)
    if weight is not None:
        scale = scale * weight
    output = (input - mean.reshape(shape)) * scale.reshape(shape)
    return output if bias is None else output + bias.reshape(shape)


@autocast_as("none")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel over the batch and the spatial axes, then scale and shift.

    Args:
        input: (N, C, ...), floating point.
        running_mean, running_var: (C,), used when not ``training``; moved in place by
            ``momentum`` towards the batch's mean and unbiased variance when ``training``.
        weight, bias: (C,); None means 1 and 0.
        training: use the batch's own statistics.
        momentum: share of the batch in the new running statistics.
        eps: added to the variance (units of input squared).

    Returns: shape and dtype of ``input``. The variance divides by N, not N - 1. A half input
        beside float32 parameters is computed in float32.
    Raises: UserError for one value a channel in training, or no statistics otherwise.
    Source: Ioffe, Szegedy 2015, arXiv:1502.03167, algorithm 1.
    """
    require_tensors("batch_norm", input=input)
    if input.ndim < 2:
        raise _C.ShapeError(f"batch_norm: input must be (N, C, ...): got {tuple(input.shape)}")
    if _is_half_beside_float32(input, weight, bias):
        statistics = (running_mean, running_var)
        wide = input.to(_C.float32)
        output = batch_norm(wide, *statistics, weight, bias, training, momentum, eps)
        return output.to(input.dtype)
    if not training:
        if running_mean is None or running_var is None:
            raise _C.UserError(
                "batch_norm: running_mean and running_var must be given when training=False"
            )
        return _batch_norm_inference(input, running_mean, running_var, weight, bias, eps)
    if input.numel() == 0:
        return _affine(input, weight, bias, channel_shape(input))
    count = input.numel() // input.shape[1]
    if count == 1:
        raise _C.UserError(
            "batch_norm: expected more than 1 value per channel when training: "
            f"got input {tuple(input.shape)}; use a larger batch, or eval()"
        )
    output, mean, variance, _ = _C.emit("batch_norm", input, weight, bias, eps=float(eps))
    if running_mean is not None or running_var is not None:
        _update_running(running_mean, running_var, mean, variance, count, momentum)
    return output


@autocast_as("none")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample over its spatial axes, then scale and shift.

    Args:
        input: (N, C, ...) with at least one spatial axis.
        running_mean, running_var, weight, bias, momentum, eps: as :func:`batch_norm`.
        use_input_stats: False takes the running statistics instead.

    Returns: shape and dtype of ``input``.
    Raises: UserError for a single spatial element.
    Source: Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022, equation 4.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    require_tensors("instance_norm", input=input)
    if input.ndim < 3:
        raise _C.ShapeError(f"instance_norm: input must be (N, C, ...): got {tuple(input.shape)}")
    if _is_half_beside_float32(input, weight, bias):
        statistics = (running_mean, running_var)
        wide = input.to(_C.float32)
        output = instance_norm(wide, *statistics, weight, bias, True, momentum, eps)
        return output.to(input.dtype)
    samples, channels = input.shape[0], input.shape[1]
    spatial = tuple(input.shape[2:])
    count = 1
    for size in spatial:
        count *= size
    if count == 1:
        raise _C.UserError(
            "instance_norm: expected more than 1 spatial element when training: "
            f"got input {tuple(input.shape)}"
        )
    if input.numel() == 0:
        return _affine(input, weight, bias, channel_shape(input))
    flat = input.reshape(1, samples * channels, *spatial)
    output, mean, variance, _ = _C.emit("batch_norm", flat, None, None, eps=float(eps))
    if running_mean is not None or running_var is not None:
        by_sample = (samples, channels)
        _update_running(
            running_mean,
            running_var,
            fn.mean(mean.reshape(by_sample), dim=0),
            fn.mean(variance.reshape(by_sample), dim=0),
            count,
            momentum,
        )
    return _affine(output.reshape(tuple(input.shape)), weight, bias, channel_shape(input))


def _check_trailing(op: str, input: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """Return ``normalized_shape`` as a tuple, which must end the input's shape."""
    require_tensors(op, input=input)
    trailing = tuple(normalized_shape)
    if len(trailing) == 0:
        raise _C.UserError(f"{op}: normalized_shape must name at least one axis")
    if tuple(input.shape[-len(trailing) :]) != trailing:
        raise _C.ShapeError(
            f"{op}: input must end in normalized_shape {trailing}: got shape {tuple(input.shape)}"
        )
    return trailing


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise the trailing axes to zero mean and unit variance, then scale and shift.

    Args:
        input: (..., *normalized_shape), floating point.
        weight, bias: (*normalized_shape), same dtype as ``input``; None means 1 and 0.
        eps: added to the variance (units of input squared).

    Returns: same shape and dtype as ``input``. The variance divides by N, not N - 1.
    Raises: ShapeError if shapes do not fit, DtypeError if dtypes differ.
    Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450, section 3.
    """
    trailing = _check_trailing("layer_norm", input, normalized_shape)
    output, _, _ = _C.emit("layer_norm", input, weight, bias, axes=len(trailing), eps=float(eps))
    return output


@autocast_as("float32")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each sample, then scale and shift each channel.

    Args:
        input: (N, C, ...), floating point.
        num_groups: divides C.
        weight, bias: (C,); None means 1 and 0.
        eps: added to the variance (units of input squared).

    Returns: shape and dtype of ``input``.
    Raises: ShapeError if ``num_groups`` does not divide C.
    Source: Wu, He 2018, arXiv:1803.08494, equation 7.
    """
    require_tensors("group_norm", input=input)
    if input.ndim < 2 or num_groups <= 0 or input.shape[1] % num_groups != 0:
        raise _C.ShapeError(
            f"group_norm: num_groups must divide the channels: "
            f"got {num_groups} for shape {tuple(input.shape)}"
        )
    if input.numel() == 0:
        return _affine(input, weight, bias, channel_shape(input))
    samples = input.shape[0]
    grouped = input.reshape(samples, num_groups, input.numel() // (samples * num_groups))
    output, _, _ = _C.emit("layer_norm", grouped, None, None, axes=1, eps=float(eps))
    return _affine(output.reshape(tuple(input.shape)), weight, bias, channel_shape(input))


@autocast_as("float32")
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide the trailing axes by their root mean square, then scale.

    Args:
        input: (..., *normalized_shape), floating point.
        weight: (*normalized_shape); None means 1.
        eps: added to the mean square; None means the dtype's machine epsilon.

    Returns: shape and dtype of ``input``.
    Raises: ShapeError if shapes do not fit.
    Source: Zhang, Sennrich 2019, arXiv:1910.07467, equation 4.
    """
    trailing = _check_trailing("rms_norm", input, normalized_shape)
    added = finfo(input.dtype).eps if eps is None else eps
    axes = tuple(range(input.ndim - len(trailing), input.ndim))
    mean_square = fn.mean(fn.square(input), dim=axes, keepdim=True)
    output = input * fn.rsqrt(mean_square + added)
    return output if weight is None else output * weight


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along ``dim``, which is taken as at least ``eps``.

    Args:
        input: any shape, floating point.

    Returns: shape and dtype of ``input``; a zero vector stays zero.
    """
    axis = normalize_dim("normalize", dim, input.ndim)
    if p == 2.0:
        # The bound stands inside the root, whose gradient at 0 is infinite.
        total = fn.sum(fn.square(input), dim=axis, keepdim=True)
        return input / fn.sqrt(fn.clamp(total, min=eps * eps))
    length = fn.norm(input, p, dim=axis, keepdim=True)
    return input / fn.clamp(length, min=eps)
