"""Transformer layers and stacks of them."""

from __future__ import annotations

import copy
from collections.abc import Callable

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.attention import MultiheadAttention
from lucid.nn.modules.container import ModuleList
from lucid.nn.modules.dropout import Dropout
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    """The function that ``activation`` names, or itself."""
    if not isinstance(activation, str):
        return activation
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise _C.UserError(
        f"Transformer: activation must be 'relu', 'gelu' or a callable: got {activation!r}"
    )


class TransformerEncoderLayer(Module):
    """Self-attention and a two-layer perceptron, each with a residual and a LayerNorm.

    Input and output: (T, N, d_model), or (N, T, d_model) with ``batch_first``.

    Args:
        d_model: size of a vector. nhead: heads, dividing ``d_model``.
        dim_feedforward: size of the perceptron's hidden layer.
        dropout: probability, in attention, perceptron and residuals.
        activation: "relu", "gelu" or a function.
        norm_first: normalise before each part instead of after it.
        bias: whether the linear layers and norms have biases.

    Source: Vaswani and others 2017, arXiv:1706.03762, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(
            d_model,
            nhead,
            dropout=dropout,
            bias=bias,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """One layer; masks as :class:`MultiheadAttention`'s."""
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask, is_causal))
        output: Tensor = self.norm2(x + self._feed_forward(x))
        return output

    def _attend(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        mixed, _ = self.self_attn(
            x,
            x,
            x,
            key_padding_mask=padding,
            need_weights=False,
            attn_mask=mask,
            is_causal=is_causal,
        )
        output: Tensor = self.dropout1(mixed)
        return output

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        output: Tensor = self.dropout2(self.linear2(hidden))
        return output


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's output, and a perceptron, with residuals.

    Input and output: (T, N, d_model), or (N, T, d_model) with ``batch_first``.
    Arguments as :class:`TransformerEncoderLayer`.

    Source: Vaswani and others 2017, arXiv:1706.03762, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()

        def attention() -> MultiheadAttention:
            return MultiheadAttention(
                d_model,
                nhead,
                dropout=dropout,
                bias=bias,
                batch_first=batch_first,
                device=device,
                dtype=dtype,
            )

        self.self_attn = attention()
        self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """One layer; ``memory`` (S, N, d_model) is the encoder's output."""

        def attend_self(x: Tensor) -> Tensor:
            mixed, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            output: Tensor = self.dropout1(mixed)
            return output

        def attend_memory(x: Tensor) -> Tensor:
            mixed, _ = self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                False,
                memory_mask,
                is_causal=memory_is_causal,
            )
            output: Tensor = self.dropout2(mixed)
            return output

        x = tgt
        if self.norm_first:
            x = x + attend_self(self.norm1(x))
            x = x + attend_memory(self.norm2(x))
            return x + self._feed_forward(self.norm3(x))
        x = self.norm1(x + attend_self(x))
        x = self.norm2(x + attend_memory(x))
        output: Tensor = self.norm3(x + self._feed_forward(x))
        return output

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        output: Tensor = self.dropout3(self.linear2(hidden))
        return output


def _copies(layer: Module, count: int) -> ModuleList:
    """``count`` independent copies of ``layer``, equal at first."""
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, one after the other.

    Args:
        norm: a last normalisation; None means none.
        enable_nested_tensor, mask_check: without effect, kept for PyTorch's argument order.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """All layers; masks as :class:`MultiheadAttention`'s."""
        output = src
        for layer in self.layers:
            output = layer(output, mask, src_key_padding_mask, bool(is_causal))
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, one after the other.

    Args:
        norm: a last normalisation; None means none.
    """

    def __init__(
        self,
        decoder_layer: TransformerDecoderLayer,
        num_layers: int,
        norm: Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """All layers; ``memory`` is the encoder's output."""
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                bool(tgt_is_causal),
                memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder, with a LayerNorm at the end of each.

    Input: src (S, N, d_model), tgt (T, N, d_model); first axes swapped with ``batch_first``.
    Output: tgt's shape. Every matrix starts Xavier uniform.

    Source: Vaswani and others 2017, arXiv:1706.03762.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.encoder: Module
        self.decoder: Module
        common = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        flags = (batch_first, norm_first, bias, device, dtype)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            encoder_norm = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
            encoder_layer = TransformerEncoderLayer(*common, *flags)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, encoder_norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_norm = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
            decoder_layer = TransformerDecoderLayer(*common, *flags)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, decoder_norm)
        for param in self.parameters():
            if param.ndim > 1:
                init.xavier_uniform_(param)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encode ``src``, then decode ``tgt``; masks as :class:`MultiheadAttention`'s."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        output: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
        return output

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: _C.device | str | None = None, dtype: _C.dtype | None = None
    ) -> Tensor:
        """(sz, sz): 0 where column <= row, else -inf."""
        full = fn.full((sz, sz), -float("inf"), device=device, dtype=dtype)
        return fn.triu(full, diagonal=1)
