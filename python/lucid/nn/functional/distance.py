"""Distances and similarities between pairs of vectors."""

from __future__ import annotations

from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import require_tensors


@autocast_as("float32")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (|x1| |x2|) along ``dim``, each length taken as at least ``eps``.

    Args:
        x1, x2: shapes that broadcast, floating point.

    Returns: the broadcast shape without ``dim``.
    """
    require_tensors("cosine_similarity", x1=x1, x2=x2)
    product = fn.sum(x1 * x2, dim=dim)
    # The bound stands inside the root, whose gradient at 0 is infinite.
    length1 = fn.sqrt(fn.clamp(fn.sum(fn.square(x1), dim=dim), min=eps * eps))
    length2 = fn.sqrt(fn.clamp(fn.sum(fn.square(x2), dim=dim), min=eps * eps))
    return product / (length1 * length2)


@autocast_as("float32")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + ``eps`` along the last axis.

    Args:
        x1, x2: (N, D) or (D,), shapes that broadcast.

    Returns: (N,) or (), with a last axis of size 1 if ``keepdim``.
    """
    require_tensors("pairwise_distance", x1=x1, x2=x2)
    return fn.norm(x1 - x2 + eps, p, dim=-1, keepdim=keepdim)
