"""Maximum and average pooling over one or two spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import IntOrInts, to_tuple, with_batch

OptionalSizes = int | None | Sequence[int | None]


def _restore(output: Tensor, rank: int, added: bool) -> Tensor:
    """Undo the unit height of one spatial axis and the added batch axis."""
    if rank == 1:
        output = output.squeeze(2)
    return output.squeeze(0) if added else output


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    dilation: IntOrInts,
    ceil_mode: bool,
) -> tuple[Tensor, Tensor]:
    """Values and int32 positions of the maxima; one axis runs as a plane of height 1."""
    op = f"max_pool{rank}d"
    batched, added = with_batch(op, input, rank)
    kernel = to_tuple(op, "kernel_size", kernel_size, rank)
    steps = kernel if _is_absent(stride) else to_tuple(op, "stride", stride, rank)  # type: ignore[arg-type]
    pads = to_tuple(op, "padding", padding, rank)
    spread = to_tuple(op, "dilation", dilation, rank)
    if rank == 1:
        batched = batched.unsqueeze(2)
        kernel, steps, pads, spread = (1, *kernel), (1, *steps), (0, *pads), (1, *spread)
    output, indices = _C.emit(
        "max_pool",
        batched,
        kernel=kernel,
        stride=steps,
        padding=pads,
        dilation=spread,
        ceil_mode=ceil_mode,
    )
    return _restore(output, rank, added), _restore(indices, rank, added)


def _is_absent(stride: IntOrInts | None) -> bool:
    """PyTorch reads None and an empty sequence alike: the stride is the kernel size."""
    return stride is None or (isinstance(stride, Sequence) and len(stride) == 0)


def max_pool1d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Largest value of each window of (N, C, L) or (C, L); see :func:`max_pool2d`."""
    output, indices = _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode)
    return (output, indices.to(_C.int64)) if return_indices else output


def max_pool2d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Largest value of each window; the gradient goes to the first of equal maxima.

    Args:
        input: (N, C, H, W) or (C, H, W).
        kernel_size, stride, padding, dilation: one int or one per axis, in elements;
            ``stride`` None means ``kernel_size``; padding counts as -inf.
        ceil_mode: keep a last window that starts inside but ends outside.
        return_indices: also return the int64 positions in the flattened plane.

    Returns: (N, C, H_out, W_out) or without N, or a pair of that and the positions.
    Raises: ShapeError if a window does not fit.
    """
    output, indices = _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode)
    return (output, indices.to(_C.int64)) if return_indices else output


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Mean of each window; one axis runs as a plane of height 1."""
    op = f"avg_pool{rank}d"
    batched, added = with_batch(op, input, rank)
    kernel = to_tuple(op, "kernel_size", kernel_size, rank)
    steps = kernel if _is_absent(stride) else to_tuple(op, "stride", stride, rank)  # type: ignore[arg-type]
    pads = to_tuple(op, "padding", padding, rank)
    if divisor_override == 0:
        raise _C.UserError(f"{op}: divisor_override must not be 0")
    if rank == 1:
        batched = batched.unsqueeze(2)
        kernel, steps, pads = (1, *kernel), (1, *steps), (0, *pads)
    output = _C.emit(
        "avg_pool",
        batched,
        kernel=kernel,
        stride=steps,
        padding=pads,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor=divisor_override or 0,
    )
    return _restore(output, rank, added)


def avg_pool1d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of (N, C, L) or (C, L); see :func:`avg_pool2d`."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        kernel_size, stride, padding: one int or one per axis, in elements; ``stride`` None
            means ``kernel_size``; padding counts as 0.
        ceil_mode: keep a last window that starts inside but ends outside.
        count_include_pad: padding belongs to the count that the sum is divided by.
        divisor_override: divide every sum by this instead.

    Returns: (N, C, H_out, W_out) or without N.
    Raises: ShapeError if a window does not fit, UserError if ``divisor_override`` is 0.
    """
    return _avg_pool(
        2,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def _output_sizes(op: str, output_size: OptionalSizes, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """Resolve an adaptive output size: None keeps the axis."""
    sizes = (
        tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * len(spatial)
    )
    if len(sizes) == 1:
        sizes = sizes * len(spatial)
    if len(sizes) != len(spatial):
        raise _C.UserError(
            f"{op}: output_size must be one or {len(spatial)} ints: got {output_size}"
        )
    return tuple(
        size if wanted is None else wanted for wanted, size in zip(sizes, spatial, strict=True)
    )


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    """First element and length of each of ``count`` bins that cover ``size`` elements."""
    starts = [index * size // count for index in range(count)]
    ends = [-(-(index + 1) * size // count) for index in range(count)]
    return [(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _by_bins(
    input: Tensor, axis: int, count: int, reduce: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Reduce each bin of ``axis`` to one element; rectangles are done axis by axis."""
    size = input.shape[axis]
    if size == count:
        return input
    parts = [
        reduce(input.narrow(axis, start, length), axis) for start, length in _bins(size, count)
    ]
    return parts[0] if len(parts) == 1 else fn.cat(parts, dim=axis)


def _mean_of(part: Tensor, axis: int) -> Tensor:
    return fn.mean(part, dim=axis, keepdim=True)


def _max_of(part: Tensor, axis: int) -> Tensor:
    """Maximum along one of the last two axes through the node that picks the first one."""
    kernel = (part.shape[2], 1) if axis == 2 else (1, part.shape[3])
    output, _ = _C.emit(
        "max_pool",
        part,
        kernel=kernel,
        stride=kernel,
        padding=(0, 0),
        dilation=(1, 1),
        ceil_mode=False,
    )
    return output


def _adaptive(
    op: str,
    rank: int,
    input: Tensor,
    output_size: OptionalSizes,
    divided: Callable[[Tensor, tuple[int, ...]], Tensor],
    reduce: Callable[[Tensor, int], Tensor],
) -> Tensor:
    """Pool to ``output_size``: one node if it divides the input, else bin by bin."""
    batched, added = with_batch(op, input, rank)
    if rank == 1:
        batched = batched.unsqueeze(2)
    spatial = tuple(batched.shape[2:])
    sizes = _output_sizes(op, output_size, spatial[-rank:])
    if rank == 1:
        sizes = (1, *sizes)
    pairs = list(zip(spatial, sizes, strict=True))
    if all(count > 0 and size > 0 and size % count == 0 for size, count in pairs):
        output = divided(batched, tuple(size // count for size, count in pairs))
    elif any(size == 0 or count <= 0 for size, count in pairs):
        raise _C.ShapeError(f"{op}: cannot pool {spatial} to {sizes}; sizes must be positive")
    else:
        output = batched
        for axis in (3, 2):
            output = _by_bins(output, axis, sizes[axis - 2], reduce)
    return _restore(output, rank, added)


def _mean_divided(input: Tensor, kernel: tuple[int, ...]) -> Tensor:
    if kernel == tuple(input.shape[2:]):
        return fn.mean(input, dim=(2, 3), keepdim=True)
    return _avg_pool(2, input, kernel, None, 0, False, True, None)


def _max_divided(input: Tensor, kernel: tuple[int, ...]) -> Tensor:
    return _max_pool(2, input, kernel, None, 0, 1, False)[0]


def adaptive_avg_pool1d(input: Tensor, output_size: OptionalSizes) -> Tensor:
    """Mean of ``output_size`` bins of (N, C, L) or (C, L); see :func:`adaptive_avg_pool2d`."""
    return _adaptive("adaptive_avg_pool1d", 1, input, output_size, _mean_divided, _mean_of)


def adaptive_avg_pool2d(input: Tensor, output_size: OptionalSizes) -> Tensor:
    """Mean of as many bins as the output shall have.

    Args:
        input: (N, C, H, W) or (C, H, W), floating point.
        output_size: one size or one per axis; None keeps the axis. Bin i of n covers
            floor(i H / n) to ceil((i + 1) H / n), so neighbours may overlap.

    Returns: (N, C, *output_size) or without N.
    Raises: ShapeError for an empty axis.
    """
    return _adaptive("adaptive_avg_pool2d", 2, input, output_size, _mean_divided, _mean_of)


def adaptive_max_pool1d(
    input: Tensor, output_size: OptionalSizes, return_indices: bool = False
) -> Tensor:
    """Largest value of ``output_size`` bins of (N, C, L) or (C, L).

    Raises: UnsupportedError if ``return_indices``.
    """
    _refuse_indices("adaptive_max_pool1d", return_indices)
    return _adaptive("adaptive_max_pool1d", 1, input, output_size, _max_divided, _max_of)


def adaptive_max_pool2d(
    input: Tensor, output_size: OptionalSizes, return_indices: bool = False
) -> Tensor:
    """Largest value of each bin; bins and arguments as :func:`adaptive_avg_pool2d`.

    Raises: UnsupportedError if ``return_indices``.
    """
    _refuse_indices("adaptive_max_pool2d", return_indices)
    return _adaptive("adaptive_max_pool2d", 2, input, output_size, _max_divided, _max_of)


def _refuse_indices(op: str, return_indices: bool) -> None:
    if return_indices:
        raise _C.UnsupportedError(
            f"{op}: return_indices is not supported for bins of any size; use a max_pool with a "
            "kernel_size"
        )
