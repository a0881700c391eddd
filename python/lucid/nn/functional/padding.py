"""Padding of the last axes by a constant or by the tensor's own elements."""

from __future__ import annotations

from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import require_tensors


def take_rows(input: Tensor, indices: Sequence[int], dim: int) -> Tensor:
    """Elements of axis ``dim`` chosen by a list known on the host."""
    index = fn.tensor(list(indices), dtype=_C.int64, device=input.device)
    return _C.emit("take", input, index, dim=dim)


def _source_indices(mode: str, size: int, low: int, high: int) -> list[int]:
    """Where each element of the padded axis comes from."""
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    if size == 0 or (limit is not None and max(low, high) > limit):
        raise _C.ShapeError(
            f"pad: {mode} padding does not fit: got ({low}, {high}) for an axis of size {size}"
        )
    positions = range(-low, size + high)
    if mode == "circular":
        return [position % size for position in positions]
    if mode == "replicate":
        return [min(max(position, 0), size - 1) for position in positions]
    last = size - 1
    return [last - abs(last - abs(position)) for position in positions]


def _pad_constant(input: Tensor, low: list[int], high: list[int], value: float) -> Tensor:
    """The pad node after negative padding has cut its part off."""
    for axis in range(input.ndim):
        cut_low, cut_high = max(-low[axis], 0), max(-high[axis], 0)
        if cut_low or cut_high:
            length = input.shape[axis] - cut_low - cut_high
            if length < 0:
                raise _C.ShapeError(
                    f"pad: negative padding exceeds axis {axis}: "
                    f"got ({low[axis]}, {high[axis]}) for shape {tuple(input.shape)}"
                )
            input = input.narrow(axis, cut_low, length)
    return _C.emit(
        "pad",
        input,
        low=tuple(max(size, 0) for size in low),
        high=tuple(max(size, 0) for size in high),
        value=value,
    )


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pad the last axes.

    Args:
        input: any shape.
        pad: (low, high) of the last axis, then of the one before, and so on; negative
            numbers cut ("constant" only).
        mode: "constant", "reflect", "replicate" or "circular".
        value: the constant; None means 0.

    Returns: the input's shape with each padded axis grown by low + high.
    Raises: ShapeError if the padding does not fit, UserError for an unknown mode.
    """
    require_tensors("pad", input=input)
    amounts = list(pad)
    if len(amounts) % 2 != 0 or len(amounts) > 2 * input.ndim:
        raise _C.UserError(
            f"pad: expected up to {input.ndim} pairs for shape {tuple(input.shape)}: "
            f"got {len(amounts)} numbers"
        )
    untouched = [0] * (input.ndim - len(amounts) // 2)
    low = untouched + amounts[::2][::-1]
    high = untouched + amounts[1::2][::-1]
    if mode == "constant":
        return _pad_constant(input, low, high, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise _C.UserError(
            f"pad: mode must be 'constant', 'reflect', 'replicate' or 'circular': got {mode!r}"
        )
    if min(amounts, default=0) < 0:
        raise _C.UserError(f"pad: negative padding needs mode='constant': got {tuple(pad)}")
    by_elements = _pad_by_elements if mode == "circular" else _pad_in_float32
    return by_elements(input, mode, low, high)


def _pad_by_elements(input: Tensor, mode: str, low: list[int], high: list[int]) -> Tensor:
    for axis in range(input.ndim):
        if low[axis] or high[axis]:
            indices = _source_indices(mode, input.shape[axis], low[axis], high[axis])
            input = take_rows(input, indices, axis)
    return input


# PyTorch lists reflection and replication, and not the others.
_pad_in_float32 = autocast_as("float32")(_pad_by_elements)
