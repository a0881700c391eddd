"""Multi-head attention."""

from __future__ import annotations

import math

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.functional.attention import causal_mask, masked_scores
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter


def _as_added(mask: Tensor, dtype: _C.dtype) -> Tensor:
    """A mask to add to the scores, from one whose True means "not allowed"."""
    if mask.dtype == _C.bool_:
        return fn.where(mask, -math.inf, fn.zeros_like(mask, dtype=dtype))
    return mask if mask.dtype == dtype else mask.to(dtype)


class MultiheadAttention(Module):
    """Several attentions side by side on projections of the inputs.

    Input: query (T, N, E), key (S, N, kdim), value (S, N, vdim); the first two axes swapped
    with ``batch_first``; without N for a single sample. Output: query's shape, and the weights
    (N, T, S), or (N, heads, T, S) if not averaged.

    ``in_proj_weight`` (3 E, E) starts Xavier uniform, ``in_proj_bias`` and ``out_proj.bias`` at
    0; with other key or value sizes there are q_proj_weight, k_proj_weight, v_proj_weight.

    Args:
        embed_dim: E. num_heads: divides E. dropout: probability of dropping a weight.
        kdim, vdim: sizes of the keys and values; None means E.
        add_bias_kv, add_zero_attn: only False is supported.

    Raises: UserError if the heads do not divide E, UnsupportedError for an option.
    Source: Vaswani and others 2017, arXiv:1706.03762, section 3.2.2.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self._check(embed_dim, num_heads, add_bias_kv, add_zero_attn)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def matrix(rows: int, columns: int) -> Parameter:
            return Parameter(fn.empty((rows, columns), device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = matrix(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = matrix(embed_dim, embed_dim)
            self.k_proj_weight = matrix(embed_dim, self.kdim)
            self.v_proj_weight = matrix(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            empty = fn.empty((3 * embed_dim,), device=device, dtype=dtype)
            self.in_proj_bias = Parameter(empty)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    @staticmethod
    def _check(embed_dim: int, num_heads: int, add_bias_kv: bool, add_zero_attn: bool) -> None:
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads != 0:
            raise _C.UserError(
                f"MultiheadAttention: embed_dim must be divisible by num_heads: "
                f"got {embed_dim} and {num_heads}"
            )
        for name, is_set in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if is_set:
                raise _C.UnsupportedError(
                    f"MultiheadAttention: {name} is not supported; leave it unset"
                )

    def _reset_parameters(self) -> None:
        """Draw new weights from the default generator."""
        for weight in self._weights():
            init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def _weights(self) -> list[Parameter]:
        if self.in_proj_weight is not None:
            return [self.in_proj_weight]
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (..., E); one product where the inputs are one tensor."""
        size = self.embed_dim
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            joint = F.linear(query, weight, bias)
            return tuple(joint.narrow(-1, part * size, size) for part in range(3))
        weights: list[Tensor] = (
            [weight.narrow(0, part * size, size) for part in range(3)]
            if weight is not None
            else list(self._weights())
        )
        return tuple(
            F.linear(
                source,
                weights[part],
                None if bias is None else bias.narrow(0, part * size, size),
            )
            for part, source in enumerate((query, key, value))
        )

    def _split_heads(self, tensor: Tensor) -> Tensor:
        """(N, T, E) to (N, heads, T, E / heads)."""
        samples, length, _ = tensor.shape
        split = tensor.reshape(samples, length, self.num_heads, self.head_dim)
        return split.permute(0, 2, 1, 3)

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> Tensor | None:
        """Join both masks into one that broadcasts to (N, heads, T, S); bool: True is allowed."""
        masks = []
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                # (N * heads, T, S)
                attn_mask = attn_mask.reshape(-1, self.num_heads, *attn_mask.shape[1:])
            masks.append(attn_mask)
        if key_padding_mask is not None:
            samples, length = key_padding_mask.shape
            masks.append(key_padding_mask.reshape(samples, 1, 1, length))
        if not masks:
            return None
        if all(mask.dtype == _C.bool_ for mask in masks):
            joint = masks[0] if len(masks) == 1 else fn.logical_or(masks[0], masks[1])
            return fn.logical_not(joint)
        added = [_as_added(mask, query.dtype) for mask in masks]
        return added[0] if len(added) == 1 else added[0] + added[1]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` to ``key`` and ``value``.

        Args:
            key_padding_mask: (N, S); bool: True keys are left out; else added to the scores.
            need_weights: also return the weights (slower: they are made in full).
            attn_mask: (T, S) or (N * heads, T, S); bool: True is not allowed; else added.
            average_attn_weights: mean of the weights over the heads.
            is_causal: ``attn_mask`` is the causal one; without a mask, apply it.

        Returns: (output, weights or None).
        """
        is_single = query.ndim == 2
        batch_axis = 0 if self.batch_first else 1
        is_self = query is key and key is value
        if is_single:
            query, key, value = self._each(
                lambda tensor: tensor.unsqueeze(0), query, key, value, is_self
            )
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif batch_axis == 1:
            query, key, value = self._each(
                lambda tensor: tensor.transpose(0, 1), query, key, value, is_self
            )
        causal = is_causal and (
            attn_mask is None or (key_padding_mask is None and not need_weights)
        )
        if causal:
            attn_mask = None
        heads = [self._split_heads(part) for part in self._project(query, key, value)]
        mask = self._mask(attn_mask, key_padding_mask, query)
        mixed, weights = self._attend(heads, mask, causal, need_weights)
        samples, _, length, _ = mixed.shape
        joined = mixed.permute(0, 2, 1, 3).reshape(samples, length, self.embed_dim)
        output: Tensor = self.out_proj(joined)
        if weights is not None and average_attn_weights:
            weights = fn.mean(weights, dim=1)
        if is_single:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return (output if batch_axis == 0 else output.transpose(0, 1)), weights

    @staticmethod
    def _each(
        change: object, query: Tensor, key: Tensor, value: Tensor, is_self: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply ``change`` to each input, keeping one tensor one."""
        assert callable(change)
        changed = change(query)
        if is_self:
            return changed, changed, changed
        return changed, change(key), change(value)

    def _attend(
        self, heads: list[Tensor], mask: Tensor | None, causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The attention of each head, and its weights if wanted."""
        query, key, value = heads
        dropout = self.dropout if self.training else 0.0
        if causal and mask is not None:
            rows, columns = query.shape[-2], key.shape[-2]
            allowed = causal_mask(rows, columns, query.device)
            mask = (
                fn.logical_and(mask, allowed)
                if mask.dtype == _C.bool_
                else masked_scores(mask, allowed)
            )
            causal = False
        if not need_weights:
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal), None
        scores = fn.matmul(query * (1.0 / math.sqrt(self.head_dim)), key.transpose(-2, -1))
        if causal:
            mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
        if mask is not None:
            scores = masked_scores(scores, mask)
        weights = F.dropout(F.softmax(scores, dim=-1), dropout)
        return fn.matmul(weights, value), weights
