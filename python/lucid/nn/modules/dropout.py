"""Dropout layers; in evaluation mode they return their input."""

from __future__ import annotations

from lucid._C import Tensor
from lucid.nn import functional as F
from lucid.nn.functional.dropout import check_probability
from lucid.nn.modules.module import Module


class _Dropout(Module):
    """Args: ``p`` is the probability of dropping, 0 to 1; UserError otherwise."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_probability(type(self).__name__, p)
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Shows the arguments."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero elements with probability ``p`` and scale the others by 1 / (1 - p); any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.dropout`."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """Drop whole channels of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.dropout1d`."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Drop whole channels of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.dropout2d`."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance behind SELU; any shape."""

    def forward(self, input: Tensor) -> Tensor:
        """See :func:`lucid.nn.functional.alpha_dropout`."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)
