"""Sums, means and maxima over bags of rows of a table."""

from __future__ import annotations

import math

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import from_front, require_tensors
from lucid.nn.functional.embedding import _padding_row

_OP = "embedding_bag"


def _check(
    input: Tensor,
    offsets: Tensor | None,
    mode: str,
    weights: Tensor | None,
    options: dict[str, bool],
) -> None:
    for name, is_set in options.items():
        if is_set:
            raise _C.UnsupportedError(f"{_OP}: {name} is not supported; leave it unset")
    if mode not in ("sum", "mean", "max"):
        raise _C.UserError(f"{_OP}: mode must be 'sum', 'mean' or 'max': got {mode!r}")
    if input.ndim not in (1, 2):
        raise _C.ShapeError(f"{_OP}: input must have 1 or 2 axes: got shape {tuple(input.shape)}")
    if (input.ndim == 1) != (offsets is not None):
        raise _C.UserError(
            f"{_OP}: offsets go with an input of 1 axis: got shape {tuple(input.shape)} "
            f"{'with' if offsets is not None else 'without'} offsets"
        )
    if offsets is not None and offsets.ndim != 1:
        raise _C.ShapeError(f"{_OP}: offsets must have 1 axis: got shape {tuple(offsets.shape)}")
    if mode == "max" and offsets is not None:
        raise _C.UnsupportedError(
            f"{_OP}: mode='max' with offsets is not supported; give bags of one size as (B, N), "
            "with padding_idx in the free places"
        )
    if weights is not None and mode != "sum":
        raise _C.UserError(f"{_OP}: per_sample_weights go with mode='sum': got {mode!r}")
    if weights is not None and weights.shape != input.shape:
        raise _C.ShapeError(
            f"{_OP}: per_sample_weights must have the shape of input: got "
            f"{tuple(weights.shape)} and {tuple(input.shape)}"
        )


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Reduce bags of rows of ``weight``, as ``embedding`` and a reduction in one.

    Args:
        input: (B, N) bags of one size, or (N,) with ``offsets``; int32 or int64, 0 to V - 1.
        weight: (V, D).
        offsets: (B,), where each bag starts: 0 first, never falling.
        mode: "sum", "mean" or "max"; "max" takes (B, N) only. An empty bag gives 0.
        per_sample_weights: factors in the shape of ``input``; with "sum" only.
        include_last_offset: ``offsets`` has (B + 1,) elements, the last one the end.
        padding_idx: elements with this index do not count, and the row gets no gradient.
        max_norm, norm_type, scale_grad_by_freq, sparse: only the defaults are supported.

    Returns: (B, D).
    Raises: ShapeError, UserError or UnsupportedError for arguments that do not fit, OutOfRangeError
        for an index or an offset out of range.
    """
    require_tensors(_OP, input=input, weight=weight)
    options = {
        "max_norm": max_norm is not None,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    _check(input, offsets, mode, per_sample_weights, options)
    rows = _C.emit("take", weight, from_front(_OP, input, weight.shape[0]), dim=0)
    counted = None
    if padding_idx is not None:
        counted = (input != _padding_row(padding_idx, weight.shape[0])).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if mode == "max":
        return _maximum(rows, counted)
    if counted is not None:
        rows = fn.where(counted, rows, 0.0)
    if offsets is None:
        total = fn.sum(rows, 1)
        share = (
            fn.ones(input.shape, device=input.device) if counted is None else counted.squeeze(-1)
        )
        counts = fn.sum(share, 1) if mode == "mean" else None
    else:
        total, counts = _by_offsets(rows, counted, offsets, include_last_offset, mode == "mean")
    if counts is None:
        return total
    # An empty bag: 0 divided by 1.
    return total / fn.clamp(counts, min=1).to(total.dtype).unsqueeze(-1)


def _maximum(rows: Tensor, counted: Tensor | None) -> Tensor:
    if rows.shape[1] == 0:
        return fn.sum(rows, 1)
    if counted is None:
        return fn.max(rows, 1).values
    found = fn.max(fn.where(counted, rows, -math.inf), 1).values
    return fn.where(fn.any(counted, 1), found, 0.0)


def _are_starts(offsets: Tensor) -> Tensor:
    """True if the offsets begin with 0 and never fall; an error if they are known and do not."""
    if offsets.shape[0] == 0:
        return fn.tensor(True, device=offsets.device)
    rises = offsets.narrow(0, 1, offsets.shape[0] - 1) >= offsets.narrow(0, 0, offsets.shape[0] - 1)
    found = fn.logical_and(fn.all(rises), offsets[0] == 0)
    if not _C.is_tracing() and not found:
        raise _C.OutOfRangeError(
            f"{_OP}: offsets must start with 0 and never fall: got {offsets.tolist()}"
        )
    return found


def _by_offsets(
    rows: Tensor, counted: Tensor | None, offsets: Tensor, has_end: bool, is_counted: bool
) -> tuple[Tensor, Tensor | None]:
    """Sums of the bags (B, D) and, if asked for, their numbers of elements (B,)."""
    length = rows.shape[0]
    bags = offsets.shape[0] - has_end
    if bags < 0:
        raise _C.ShapeError(
            f"{_OP}: offsets must have an element with include_last_offset: got (0,)"
        )
    # A bag's number is the number of bags that have begun, less one; after the end it is B.
    ones = fn.ones(offsets.shape, dtype=_C.int64, device=rows.device)
    begun = fn.zeros((length + 1,), dtype=_C.int64, device=rows.device)
    begun = fn.cumsum(_C.emit("scatter_add", begun, offsets.long(), ones, dim=0), 0)
    places = begun.narrow(0, 0, length) - 1
    # In a trace bad offsets are seen at the run: the place that they then get is out of range.
    places = fn.where(_are_starts(offsets), places, bags + 1)

    def gathered(values: Tensor) -> Tensor:
        start = fn.zeros((bags + 1, *values.shape[1:]), dtype=values.dtype, device=values.device)
        return _C.emit("index_add", start, places, values, dim=0).narrow(0, 0, bags)

    if not is_counted:
        return gathered(rows), None
    share = fn.ones((length,), dtype=_C.int64, device=rows.device)
    return gathered(rows), gathered(share if counted is None else counted.squeeze(-1).long())
