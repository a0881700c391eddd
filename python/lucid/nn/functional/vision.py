"""Resampling and rearranging of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import IntOrInts, require_tensors, to_tuple
from lucid.nn.functional.padding import pad, take_rows
from lucid.nn.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Move channels into space: (..., C r^2, H, W) to (..., C, H r, W r).

    Raises: ShapeError if r^2 does not divide the channels.
    Source: Shi and others 2016, arXiv:1609.05158, equation 4.
    """
    require_tensors("pixel_shuffle", input=input)
    factor = upscale_factor
    if input.ndim < 3 or input.shape[-3] % (factor * factor) != 0:
        raise _C.ShapeError(
            f"pixel_shuffle: channels must be a multiple of {factor * factor}: "
            f"got shape {tuple(input.shape)}"
        )
    *leading, channels, height, width = input.shape
    channels //= factor * factor
    n = len(leading)
    split = input.reshape(*leading, channels, factor, factor, height, width)
    mixed = split.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return mixed.reshape(*leading, channels, height * factor, width * factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of :func:`pixel_shuffle`: (..., C, H r, W r) to (..., C r^2, H, W)."""
    require_tensors("pixel_unshuffle", input=input)
    factor = downscale_factor
    if input.ndim < 3 or input.shape[-2] % factor or input.shape[-1] % factor:
        raise _C.ShapeError(
            f"pixel_unshuffle: height and width must be multiples of {factor}: "
            f"got shape {tuple(input.shape)}"
        )
    *leading, channels, height, width = input.shape
    height, width = height // factor, width // factor
    n = len(leading)
    split = input.reshape(*leading, channels, height, factor, width, factor)
    mixed = split.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return mixed.reshape(*leading, channels * factor * factor, height, width)


def _windows(
    op: str,
    kernel_size: IntOrInts,
    dilation: IntOrInts,
    stride: IntOrInts,
    padded: tuple[int, int],
    device: _C.device,
) -> tuple[Tensor, int, int]:
    """Flat positions in the padded plane of every (window element, window): with their counts."""
    kernel = to_tuple(op, "kernel_size", kernel_size, 2)
    spread = to_tuple(op, "dilation", dilation, 2)
    steps = to_tuple(op, "stride", stride, 2)
    counts = tuple(
        (size - wide * (length - 1) - 1) // step + 1
        for size, length, wide, step in zip(padded, kernel, spread, steps, strict=True)
    )
    if min(counts) < 1:
        raise _C.ShapeError(f"{op}: no window of {kernel} fits the padded size {padded}")

    def along(axis: int) -> Tensor:
        """(kernel, count) positions along one axis."""
        inner = fn.arange(kernel[axis], device=device).reshape(-1, 1) * spread[axis]
        return inner + fn.arange(counts[axis], device=device).reshape(1, -1) * steps[axis]

    rows = along(0).reshape(kernel[0], 1, counts[0], 1) * padded[1]
    columns = along(1).reshape(1, kernel[1], 1, counts[1])
    return (rows + columns).reshape(-1), kernel[0] * kernel[1], counts[0] * counts[1]


def unfold(
    input: Tensor,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Copy every window of an image into a column.

    Args:
        input: (N, C, H, W).
        kernel_size, dilation, padding, stride: one int or one per axis, in elements.

    Returns: (N, C * KH * KW, L), L the number of windows in row-major order.
    Raises: ShapeError if no window fits.
    """
    require_tensors("unfold", input=input)
    if input.ndim != 4:
        raise _C.ShapeError(f"unfold: input must be (N, C, H, W): got {tuple(input.shape)}")
    low = to_tuple("unfold", "padding", padding, 2)
    padded = pad(input, (low[1], low[1], low[0], low[0]))
    samples, channels, height, width = padded.shape
    index, elements, windows = _windows(
        "unfold", kernel_size, dilation, stride, (height, width), input.device
    )
    plane = padded.reshape(samples, channels, height * width)
    return _C.emit("take", plane, index, dim=2).reshape(samples, channels * elements, windows)


def fold(
    input: Tensor,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Add the columns of :func:`unfold` back into an image of ``output_size``.

    Args:
        input: (N, C * KH * KW, L).

    Returns: (N, C, *output_size); overlapping windows add up.
    Raises: ShapeError if the columns do not fit the size.
    """
    require_tensors("fold", input=input)
    size = to_tuple("fold", "output_size", output_size, 2)
    low = to_tuple("fold", "padding", padding, 2)
    height, width = size[0] + 2 * low[0], size[1] + 2 * low[1]
    index, elements, windows = _windows(
        "fold", kernel_size, dilation, stride, (height, width), input.device
    )
    if input.ndim != 3 or input.shape[1] % elements != 0 or input.shape[2] != windows:
        raise _C.ShapeError(
            f"fold: expected (N, C * {elements}, {windows}): got {tuple(input.shape)}"
        )
    samples, channels = input.shape[0], input.shape[1] // elements
    plane = fn.zeros((samples, channels, height * width), dtype=input.dtype, device=input.device)
    source = input.reshape(samples, channels, elements * windows)
    image = _C.emit("index_add", plane, index, source, dim=2)
    image = image.reshape(samples, channels, height, width)
    return image.narrow(2, low[0], size[0]).narrow(3, low[1], size[1])


def _nearest(size: int, count: int, ratio: float, is_exact: bool) -> list[int]:
    """The source element of each output element; "exact" takes it at the pixel's centre."""
    offset = 0.5 if is_exact else 0.0
    return [min(int(math.floor((index + offset) * ratio)), size - 1) for index in range(count)]


def _linear_along(
    input: Tensor, axis: int, count: int, ratio: float, align_corners: bool
) -> Tensor:
    """Linear interpolation along one axis between the two neighbours of each position."""
    size = input.shape[axis]
    if align_corners:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
        positions = [index * step for index in range(count)]
    else:
        positions = [max((index + 0.5) * ratio - 0.5, 0.0) for index in range(count)]
    lower = [min(int(position), size - 1) for position in positions]
    upper = [min(index + 1, size - 1) for index in lower]
    shares = [position - index for position, index in zip(positions, lower, strict=True)]
    shape = tuple(count if index == axis else 1 for index in range(input.ndim))
    share = fn.tensor(shares, dtype=input.dtype, device=input.device).reshape(shape)
    first = take_rows(input, lower, axis)
    return first * (1.0 - share) + take_rows(input, upper, axis) * share


def _target_sizes(
    spatial: tuple[int, ...],
    size: IntOrInts | None,
    scale_factor: float | Sequence[float] | None,
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Output sizes and, if the caller gave scales, those."""
    rank = len(spatial)
    if (size is None) == (scale_factor is None):
        raise _C.UserError("interpolate: exactly one of size and scale_factor must be given")
    if size is not None:
        return to_tuple("interpolate", "size", size, rank), (None,) * rank
    assert scale_factor is not None
    scales = tuple(scale_factor) if isinstance(scale_factor, Sequence) else (scale_factor,) * rank
    if len(scales) != rank:
        raise _C.UserError(f"interpolate: scale_factor must be 1 or {rank} numbers: got {scales}")
    sizes = tuple(int(math.floor(n * scale)) for n, scale in zip(spatial, scales, strict=True))
    return sizes, scales


def interpolate(
    input: Tensor,
    size: IntOrInts | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample the spatial axes.

    Args:
        input: (N, C, L) or (N, C, H, W), floating point.
        size: output size, one int or one per axis; or
        scale_factor: output size over input size.
        mode: "nearest", "nearest-exact", "linear" (3 axes), "bilinear" (4 axes), "area".
        align_corners: the corner elements keep their places ("linear", "bilinear").
        recompute_scale_factor: positions follow from the sizes, not from the factor.

    Returns: (N, C, *output size).
    Raises: UserError for arguments that exclude each other, UnsupportedError for another mode.
    """
    require_tensors("interpolate", input=input)
    spatial = tuple(input.shape[2:])
    if antialias or mode not in ("nearest", "nearest-exact", "linear", "bilinear", "area"):
        raise _C.UnsupportedError(
            f"interpolate: mode={mode!r}, antialias={antialias} is not supported; "
            "use nearest, nearest-exact, linear, bilinear or area"
        )
    wanted_rank = {"linear": 1, "bilinear": 2}.get(mode, len(spatial))
    if len(spatial) not in (1, 2) or len(spatial) != wanted_rank:
        raise _C.ShapeError(f"interpolate: mode={mode!r} does not fit shape {tuple(input.shape)}")
    sizes, scales = _target_sizes(spatial, size, scale_factor)
    if min(*spatial, *sizes) < 1:
        raise _C.ShapeError(
            f"interpolate: spatial sizes must be positive: got {spatial} to {sizes}; "
            "give a larger input, size or scale_factor"
        )
    if mode == "area":
        pool = adaptive_avg_pool1d if len(spatial) == 1 else adaptive_avg_pool2d
        return pool(input, sizes)
    for axis, (length, count, scale) in enumerate(zip(spatial, sizes, scales, strict=True), 2):
        is_given = scale is not None and not recompute_scale_factor
        ratio = 1.0 / scale if scale is not None and is_given else length / count
        if mode.startswith("nearest"):
            indices = _nearest(length, count, ratio, mode == "nearest-exact")
            input = take_rows(input, indices, axis)
        else:
            input = _linear_along(input, axis, count, ratio, bool(align_corners))
    return input
