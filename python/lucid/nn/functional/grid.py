"""Sampling of images at positions that a tensor names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.arguments import as_int
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import require_tensors

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
# The parameter of the cubic kernel, as PyTorch has it.
_CUBIC = -0.75


class _Tap(NamedTuple):
    """Along one axis: which element is read for each position, its weight, and if it is there."""

    element: Tensor
    weight: Tensor | None
    is_inside: Tensor | None


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions that an affine map takes those of an image to, for :func:`grid_sample`.

    Args:
        theta: (N, 2, 3) for images, (N, 3, 4) for volumes.
        size: (N, C, H, W) or (N, C, D, H, W) of the result of ``grid_sample``.
        align_corners: -1 and 1 are the centres of the outer elements, not their outer edges; None
            means False.

    Returns: (N, H, W, 2) or (N, D, H, W, 3), with x first.
    Raises: ShapeError if ``theta`` does not go with ``size``.
    Source: Jaderberg and others 2015, arXiv:1506.02025, equation 1.
    """
    require_tensors("affine_grid", theta=theta)
    size = [as_int("affine_grid", "size", n) for n in size]
    rank = len(size) - 2
    if rank not in (2, 3) or any(n <= 0 for n in size):
        raise _C.ShapeError(f"affine_grid: size must be 4 or 5 positive sizes: got {tuple(size)}")
    if tuple(theta.shape) != (size[0], rank, rank + 1):
        raise _C.ShapeError(
            f"affine_grid: theta does not go with size {tuple(size)}: got shape "
            f"{tuple(theta.shape)}; it must be {(size[0], rank, rank + 1)}"
        )
    spatial = tuple(size[2:])
    axes = []
    for axis in reversed(range(rank)):  # x first
        line = _centres(spatial[axis], bool(align_corners), theta)
        shape = [1] * rank
        shape[axis] = spatial[axis]
        axes.append(fn.broadcast_to(line.reshape(*shape), spatial))
    axes.append(fn.ones(spatial, dtype=theta.dtype, device=theta.device))
    places = fn.stack(axes, dim=-1).reshape(1, -1, rank + 1)
    found = fn.matmul(places, theta.transpose(1, 2))
    return found.reshape(size[0], *spatial, rank)


def _centres(count: int, align_corners: bool, like: Tensor) -> Tensor:
    """The centres of ``count`` elements that fill -1 to 1."""
    if count == 1:
        return fn.zeros(1, dtype=like.dtype, device=like.device)
    line = fn.linspace(-1.0, 1.0, count, dtype=like.dtype, device=like.device)
    return line if align_corners else line * (count - 1) / count


@autocast_as("float32")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Elements of an image, or of a volume, at the positions of ``grid``.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W), floating point.
        grid: (N, H', W', 2) or (N, D', H', W', 3), of the same dtype: x, y (and z) from -1 to 1.
        mode: "bilinear" (between all neighbours), "nearest", or "bicubic" (images only).
        padding_mode: what is outside: "zeros", the "border", or the "reflection" at it.
        align_corners: as in :func:`affine_grid`.

    Returns: (N, C, H', W') or (N, C, D', H', W').
    Raises: ShapeError if the shapes do not fit, DtypeError if the dtypes differ, UserError for a
        mode.
    Source: Jaderberg and others 2015, arXiv:1506.02025, section 3.3; Keys 1981 (bicubic).
    """
    rank = _check_sample(input, grid, mode, padding_mode)
    spatial = tuple(input.shape[2:])
    taps: list[list[_Tap]] = []
    for axis in range(rank):
        place = grid.select(-1, rank - 1 - axis)
        place = _unnormalized(place, spatial[axis], bool(align_corners))
        taps.append(_taps(place, spatial[axis], mode, padding_mode, bool(align_corners)))
    batch, channels = input.shape[0], input.shape[1]
    flat = input.reshape(batch, channels, math.prod(spatial))
    total: Tensor | None = None
    for chosen in itertools.product(*taps):
        found = _picked(flat, chosen, spatial)
        total = found if total is None else total + found
    assert total is not None
    return total.reshape(batch, channels, *grid.shape[1:-1])


def _check_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> int:
    """The number of spatial axes of good arguments."""
    require_tensors("grid_sample", input=input, grid=grid)
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim:
        raise _C.ShapeError(
            f"grid_sample: input and grid must both have 4 or 5 axes: got shapes "
            f"{tuple(input.shape)} and {tuple(grid.shape)}"
        )
    if grid.shape[0] != input.shape[0] or grid.shape[-1] != rank:
        raise _C.ShapeError(
            f"grid_sample: grid must be ({input.shape[0]}, ..., {rank}) for an input of shape "
            f"{tuple(input.shape)}: got {tuple(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise _C.ShapeError(
            f"grid_sample: the image must not be empty: got shape {tuple(input.shape)}"
        )
    if input.dtype != grid.dtype:
        raise _C.DtypeError(
            f"grid_sample: input and grid must have one dtype: got {input.dtype.name} and "
            f"{grid.dtype.name}; convert one with .to()"
        )
    if mode not in _MODES or (mode == "bicubic" and rank == 3):
        raise _C.UserError(
            f"grid_sample: mode must be bilinear, nearest or, for images, bicubic: got {mode!r}"
        )
    if padding_mode not in _PADDINGS:
        raise _C.UserError(
            f"grid_sample: padding_mode must be one of {', '.join(_PADDINGS)}: got {padding_mode!r}"
        )
    return rank


def _unnormalized(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Positions from -1 to 1 as places among ``size`` elements."""
    if align_corners:
        return (place + 1) / 2 * (size - 1)
    return ((place + 1) * size - 1) / 2


def _bounded(place: Tensor, size: int) -> Tensor:
    """Places moved to the nearest element; no gradient at the border, as in PyTorch."""
    inner = fn.where(place < size - 1, place, float(size - 1))
    return fn.where(inner > 0, inner, 0.0)


def _reflected(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Places reflected at the centres or the outer edges of the outer elements, then bounded."""
    low = 0.0 if align_corners else -0.5
    span = float(size - 1 if align_corners else size)
    if span == 0:
        return fn.zeros_like(place)
    distance = fn.abs(place - low)
    flips = fn.floor(distance / span).detach()
    rest = distance - flips * span
    is_even = fn.remainder(flips, 2.0) == 0
    return _bounded(fn.where(is_even, rest + low, span - rest + low), size)


def _padded(place: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "border":
        return _bounded(place, size)
    if padding_mode == "reflection":
        return _reflected(place, size, align_corners)
    return place


def _tap(place: Tensor, weight: Tensor | None, size: int, padding_mode: str) -> _Tap:
    """One element, at a place that is a whole number."""
    index = fn.where(place > 0, fn.where(place < size - 1, place, float(size - 1)), 0.0)
    is_inside = None
    if padding_mode == "zeros":
        is_inside = fn.logical_and(place >= 0, place <= size - 1)
    return _Tap(index.detach().to(_C.int64), weight, is_inside)


def _taps(
    place: Tensor, size: int, mode: str, padding_mode: str, align_corners: bool
) -> list[_Tap]:
    """What is read along one axis."""
    if mode == "bicubic":
        low = fn.floor(place).detach()
        return [
            _tap(
                _padded(low + shift, size, padding_mode, align_corners),
                weight,
                size,
                padding_mode,
            )
            for shift, weight in zip((-1, 0, 1, 2), _cubic_weights(place - low), strict=True)
        ]
    place = _padded(place, size, padding_mode, align_corners)
    if mode == "nearest":
        whole = fn.round(place)
        # 1, with a gradient of 0 for the grid, as in PyTorch.
        one = 1 + (whole - whole.detach())
        return [_tap(whole.detach(), one, size, padding_mode)]
    low = fn.floor(place).detach()
    share = place - low
    return [
        _tap(low, 1 - share, size, padding_mode),
        _tap(low + 1, share, size, padding_mode),
    ]


def _cubic_weights(t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The cubic kernel at t + 1, t, 1 - t and 2 - t."""
    a = _CUBIC

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _picked(flat: Tensor, chosen: Sequence[_Tap], spatial: tuple[int, ...]) -> Tensor:
    """The elements of one combination of taps, times their weights: (N, C, places)."""
    index: Tensor | None = None
    weight: Tensor | None = None
    is_inside: Tensor | None = None
    for tap, size in zip(chosen, spatial, strict=True):
        index = tap.element if index is None else index * size + tap.element
        if tap.weight is not None:
            weight = tap.weight if weight is None else weight * tap.weight
        if tap.is_inside is not None:
            is_inside = (
                tap.is_inside if is_inside is None else fn.logical_and(is_inside, tap.is_inside)
            )
    assert index is not None
    batch, channels = flat.shape[0], flat.shape[1]
    places = math.prod(index.shape[1:])  # not -1, which an empty batch does not tell
    flat_index = fn.broadcast_to(index.reshape(batch, 1, places), (batch, channels, places))
    found = _C.emit("gather", flat, flat_index, dim=2)
    if weight is not None:
        found = found * weight.reshape(batch, 1, places)
    if is_inside is not None:
        found = fn.where(is_inside.reshape(batch, 1, places), found, 0.0)
    return found
