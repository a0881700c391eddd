"""What the tests of diagnose share."""

from __future__ import annotations

from pathlib import Path

import lucid

__all__ = ["floats", "place"]


def floats(*shape: int, requires_grad: bool = False) -> lucid.Tensor:
    """Ones; only their type counts."""
    return lucid.ones(shape, requires_grad=requires_grad)


def place(file: str, marker: str) -> str:
    """``file:line`` of the line that ends with the comment ``# marker``."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    found = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {marker}")]
    assert len(found) == 1, marker
    return f"{file}:{found[0]}"
