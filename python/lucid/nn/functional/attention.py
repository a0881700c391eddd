"""Scaled dot-product attention."""

from __future__ import annotations

import math

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import require_tensors
from lucid.nn.functional.activation import softmax
from lucid.nn.functional.dropout import check_probability, dropout


def causal_mask(rows: int, columns: int, device: _C.device) -> Tensor:
    """(rows, columns) bool: column j is allowed for row i where j <= i."""
    row = fn.arange(rows, device=device).reshape(rows, 1)
    column = fn.arange(columns, device=device).reshape(1, columns)
    return column <= row


def masked_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """-inf where a bool mask is False, or the sum with a floating-point mask."""
    if mask.dtype == _C.bool_:
        return fn.where(mask, scores, -math.inf)
    return scores + mask


def _with_dropout(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """softmax(q k^T scale + mask) v in plain nodes; a row with nothing allowed gives 0."""
    scores = fn.matmul(query, key.transpose(-2, -1)) * scale
    if mask is None:
        return fn.matmul(dropout(softmax(scores, dim=-1), dropout_p), value)
    scores = masked_scores(scores, mask)
    is_empty = fn.amax(scores.detach(), dim=-1, keepdim=True) == -math.inf
    weights = softmax(fn.where(is_empty, 0.0, scores), dim=-1)
    weights = fn.where(is_empty, 0.0, weights)
    return fn.matmul(dropout(weights, dropout_p), value)


def _match_batch(query: Tensor, other: Tensor) -> Tensor:
    """Broadcast the leading axes of ``other`` to the query's."""
    leading = tuple(query.shape[:-2])
    if tuple(other.shape[:-2]) == leading:
        return other
    return fn.broadcast_to(other, (*leading, *other.shape[-2:]))


def _check(query: Tensor, key: Tensor, value: Tensor, has_both_masks: bool) -> None:
    op = "scaled_dot_product_attention"
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise _C.ShapeError(f"{op}: operands must have at least 2 axes: got {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise _C.ShapeError(f"{op}: expected (..., T, D), (..., S, D), (..., S, E): got {shapes}")
    if has_both_masks:
        raise _C.UserError(f"{op}: attn_mask must not be given when is_causal=True; join them")


@autocast_as("low")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T * scale + mask) value.

    Args:
        query: (..., T, D). key: (..., S, D). value: (..., S, E). One floating dtype.
        attn_mask: broadcasts to (..., T, S); bool: True may be attended to; floating
            point: added to the scores.
        dropout_p: probability of dropping a weight, always applied (pass 0 in evaluation).
        is_causal: row i attends to columns j <= i.
        scale: None means 1 / sqrt(D).
        enable_gqa: repeat the key's and value's heads (axis -3) to the query's number.

    Returns: (..., T, E). A row with nothing allowed is 0.
    Raises: ShapeError if the shapes do not fit, UserError for a mask with ``is_causal``.
    Source: Vaswani and others 2017, arXiv:1706.03762, equation 1.
    """
    op = "scaled_dot_product_attention"
    require_tensors(op, query=query, key=key, value=value)
    check_probability(op, dropout_p)
    _check(query, key, value, is_causal and attn_mask is not None)
    if scale is None and query.shape[-1] == 0:
        raise _C.ShapeError(
            f"{op}: the last axis of query and key is empty, so there is no scale 1 / sqrt(D): got "
            f"query {tuple(query.shape)}; pass scale="
        )
    if attn_mask is not None and not (attn_mask.dtype == _C.bool_ or attn_mask.is_floating_point()):
        raise _C.DtypeError(
            f"scaled_dot_product_attention: attn_mask must be bool or floating: got "
            f"{attn_mask.dtype}; convert it with .bool()"
        )
    if enable_gqa:
        key = fn.repeat_interleave(key, query.shape[-3] // key.shape[-3], dim=-3)
        value = fn.repeat_interleave(value, query.shape[-3] // value.shape[-3], dim=-3)
    key, value = _match_batch(query, key), _match_batch(query, value)
    if attn_mask is not None and attn_mask.dtype not in (_C.bool_, query.dtype):
        attn_mask = attn_mask.to(query.dtype)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if dropout_p == 0.0 and (attn_mask is None or not attn_mask.requires_grad):
        output, _ = _C.emit(
            "attention", query, key, value, attn_mask, causal=is_causal, scale=factor
        )
        return output
    if is_causal:
        attn_mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
    return _with_dropout(query, key, value, attn_mask, dropout_p, factor)
