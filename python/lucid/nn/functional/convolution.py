"""Convolutions and transposed convolutions over one, two or three spatial axes."""

from __future__ import annotations

from lucid import _C
from lucid._C import Tensor
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import IntOrInts, require_tensors, to_tuple, with_batch

_Pads = tuple[tuple[int, ...], tuple[int, ...]]


def _same_padding(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> _Pads:
    """Padding before and after each axis that keeps its size; an odd one goes after."""
    totals = tuple(step * (size - 1) for size, step in zip(kernel, dilation, strict=True))
    low = tuple(total // 2 for total in totals)
    high = tuple(total - before for total, before in zip(totals, low, strict=True))
    return low, high


def _padding(
    op: str,
    padding: str | IntOrInts,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> _Pads:
    """Resolve a number, numbers or a rule's name to the padding of both ends."""
    if not isinstance(padding, str):
        both = to_tuple(op, "padding", padding, len(kernel))
        return both, both
    if padding == "valid":
        none = (0,) * len(kernel)
        return none, none
    if padding != "same":
        raise _C.UserError(f"{op}: padding must be 'same', 'valid' or ints: got {padding!r}")
    if any(step != 1 for step in stride):
        raise _C.UserError(f"{op}: padding='same' is not supported for strides: got {stride}")
    return _same_padding(kernel, dilation)


def _convolution(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntOrInts,
    padding: str | IntOrInts,
    dilation: IntOrInts,
    groups: int,
) -> Tensor:
    """The convolution node over ``rank`` spatial axes; one axis runs as a plane of height 1."""
    op = f"conv{rank}d"
    batched, added = with_batch(op, input, rank)
    require_tensors(op, weight=weight)
    if weight.ndim != rank + 2:
        raise _C.ShapeError(
            f"{op}: weight must have {rank + 2} axes: got shape {tuple(weight.shape)}"
        )
    kernel = tuple(weight.shape[2:])
    steps = to_tuple(op, "stride", stride, rank)
    spread = to_tuple(op, "dilation", dilation, rank)
    low, high = _padding(op, padding, kernel, steps, spread)
    if rank == 1:
        batched, weight = batched.unsqueeze(2), weight.unsqueeze(2)
        steps, spread = (1, *steps), (1, *spread)
        low, high = (0, *low), (0, *high)
    output = _C.emit(
        "convolution",
        batched,
        weight,
        bias,
        stride=steps,
        padding_low=low,
        padding_high=high,
        dilation=spread,
        groups=groups,
    )
    if rank == 1:
        output = output.squeeze(2)
    return output.squeeze(0) if added else output


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over one spatial axis; arguments as :func:`conv2d`.

    Args:
        input: (N, C, L) or (C, L).
        weight: (O, C / groups, K).
        bias: (O,); None means 0.

    Returns: (N, O, L_out) or (O, L_out).
    """
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over two spatial axes.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        weight: (O, C / groups, KH, KW), same dtype.
        bias: (O,); None means 0.
        stride, dilation: one int or one per axis, in elements.
        padding: zeros at both ends, one int or one per axis; "valid" is 0; "same" keeps
            the size (stride 1 only), and of an odd total the extra zero goes after.
        groups: input and output channels are split into this many independent parts.

    Returns: (N, O, H_out, W_out) or (O, H_out, W_out),
        H_out = (H + padding - dilation * (KH - 1) - 1) // stride + 1, padding of both ends.
    Raises: ShapeError if the shapes do not fit, UserError for a bad ``padding``.
    Source: Dumoulin, Visin 2016, arXiv:1603.07285, chapter 2.
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over three spatial axes; arguments as :func:`conv2d`.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        weight: (O, C / groups, KD, KH, KW).

    Returns: (N, O, D_out, H_out, W_out) or without N.
    """
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups)


def _transposed_sizes(
    input: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Spatial sizes of a transposed convolution's output."""
    return tuple(
        (size - 1) * step - 2 * pad + wide * (length - 1) + more + 1
        for size, length, step, pad, more, wide in zip(
            input.shape[2:],
            weight.shape[2:],
            stride,
            padding,
            output_padding,
            dilation,
            strict=True,
        )
    )


@autocast_as("low")
def _transposed(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntOrInts,
    padding: IntOrInts,
    output_padding: IntOrInts,
    groups: int,
    dilation: IntOrInts,
) -> Tensor:
    """The adjoint of the convolution with the same arguments, plus a bias."""
    op = f"conv_transpose{rank}d"
    batched, added = with_batch(op, input, rank)
    require_tensors(op, weight=weight)
    if weight.ndim != rank + 2 or weight.shape[0] != batched.shape[1]:
        raise _C.ShapeError(
            f"{op}: weight must be (in_channels, out_channels / groups, kernel): "
            f"got {tuple(weight.shape)} for input {tuple(input.shape)}"
        )
    steps = to_tuple(op, "stride", stride, rank)
    pads = to_tuple(op, "padding", padding, rank)
    extra = to_tuple(op, "output_padding", output_padding, rank)
    spread = to_tuple(op, "dilation", dilation, rank)
    if any(more >= max(step, wide) for more, step, wide in zip(extra, steps, spread, strict=True)):
        raise _C.UserError(
            f"{op}: output_padding must be smaller than stride or dilation: "
            f"got {extra} for stride {steps}, dilation {spread}"
        )
    spatial = _transposed_sizes(batched, weight, steps, pads, extra, spread)
    # Less padding after the end says the same of the extra rows; what then lies beyond the
    # last window is zero.
    high = tuple(max(pad - more, 0) for pad, more in zip(pads, extra, strict=True))
    beyond = tuple(max(more - pad, 0) for pad, more in zip(pads, extra, strict=True))
    spatial = tuple(size - more for size, more in zip(spatial, beyond, strict=True))
    if rank == 1:
        batched, weight = batched.unsqueeze(2), weight.unsqueeze(2)
        steps, spread = (1, *steps), (1, *spread)
        pads, high, spatial, beyond = (0, *pads), (0, *high), (1, *spatial), (0, *beyond)
    channels = weight.shape[1] * groups
    output = _C.emit(
        "convolution_input_grad",
        batched,
        weight,
        input_shape=(batched.shape[0], channels, *spatial),
        stride=steps,
        padding_low=pads,
        padding_high=high,
        dilation=spread,
        groups=groups,
    )
    if any(beyond):
        output = _C.emit("pad", output, low=(0,) * output.ndim, high=(0, 0, *beyond), value=0)
    if bias is not None:
        output = output + bias.reshape(1, channels, *(1 for _ in spatial))
    if rank == 1:
        output = output.squeeze(2)
    return output.squeeze(0) if added else output


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The adjoint of :func:`conv1d`; see :func:`conv_transpose2d`."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The adjoint of :func:`conv2d` with the same stride, padding and dilation.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (C, O / groups, KH, KW).
        bias: (O,); None means 0.
        output_padding: rows and columns added at the end of the output.

    Returns: (N, O, H_out, W_out),
        H_out = (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1.
    Raises: ShapeError if the shapes do not fit, UserError for a bad ``output_padding``.
    Source: Dumoulin, Visin 2016, arXiv:1603.07285, chapter 4.
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)
