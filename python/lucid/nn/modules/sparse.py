"""Embedding: a learned table that is looked up by index."""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter


class Embedding(Module):
    """Rows of a learned table.

    Input: any shape, int32 or int64, 0 to num_embeddings - 1. Output: (*input, embedding_dim).
    ``weight`` (num_embeddings, embedding_dim) starts normal with mean 0 and variance 1.

    Args:
        padding_idx: this row starts at 0 and gets no gradient.
        max_norm, norm_type, scale_grad_by_freq, sparse: only the defaults are supported.
        _weight: the first values of the table.

    Raises: OutOfRangeError for a ``padding_idx`` outside the table.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise _C.OutOfRangeError(
                    f"Embedding: padding_idx must be within num_embeddings: "
                    f"got {padding_idx} for {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            values = fn.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(values, requires_grad=not _freeze)
            self.reset_parameters()
            return
        if tuple(_weight.shape) != shape:
            raise _C.ShapeError(
                f"Embedding: weight must have shape {shape}: got {tuple(_weight.shape)}"
            )
        self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw a new table from the default generator."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.embedding`."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """A layer with the table ``embeddings`` (V, D), frozen unless ``freeze`` is False."""
        if embeddings.ndim != 2:
            raise _C.ShapeError(
                f"Embedding: embeddings must have 2 axes: got shape {tuple(embeddings.shape)}"
            )
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, _weight=embeddings, _freeze=freeze)

    def extra_repr(self) -> str:
        """Shows the sizes and the padding row."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class EmbeddingBag(Module):
    """Sums, means or maxima over bags of rows of a learned table.

    Input: (B, N), or (N,) and offsets (B,); int32 or int64. Output: (B, embedding_dim).
    ``weight`` (num_embeddings, embedding_dim) starts normal with mean 0 and variance 1.

    Args:
        mode: "sum", "mean" or "max"; "max" takes (B, N) only.
        include_last_offset: offsets has (B + 1,) elements, the last one the end.
        padding_idx: elements with this index do not count; the row starts at 0.
        max_norm, norm_type, scale_grad_by_freq, sparse: only the defaults are supported.
        _weight: the first values of the table.

    Raises: OutOfRangeError for a ``padding_idx`` outside the table.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: _C.device | str | None = None,
        dtype: _C.dtype | None = None,
    ) -> None:
        super().__init__()
        table = Embedding(
            num_embeddings, embedding_dim, padding_idx, _weight=_weight, device=device, dtype=dtype
        )
        self.weight = table.weight
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = table.padding_idx

    def reset_parameters(self) -> None:
        """Draw a new table from the default generator."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """See :func:`lucid.nn.functional.embedding_bag`."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Shows the sizes, the mode and the padding row."""
        text = f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
