"""Choices that scripts make for a whole process, where this package has one answer only."""

from __future__ import annotations

from lucid import _C

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "set_float32_matmul_precision",
    "use_deterministic_algorithms",
]

_precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Taken for PyTorch's sake: every result here is deterministic, also with ``mode=False``."""


def are_deterministic_algorithms_enabled() -> bool:
    """True."""
    return True


def set_float32_matmul_precision(precision: str) -> None:
    """How far float32 products may be rounded: ``"highest"``, ``"high"`` or ``"medium"``.

    It is a permission that is not used: products of float32 are computed in float32.
    Raises: UserError for another name.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise _C.UserError(
            f"set_float32_matmul_precision: unknown precision: got {precision!r}; "
            "use highest, high or medium"
        )
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What ``set_float32_matmul_precision`` was given last, ``"highest"`` at first."""
    return _precision
