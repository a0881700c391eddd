"""lucid with the whole step compiled; a step that cannot be compiled is an error here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid.nn
from lucid.compile import make_step

from contestants.lucid_eager import make_parts, training_step, versions

__all__ = ["prepare", "versions"]


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model, x, target = make_parts(workload)
    compiled = make_step(model, lucid.nn.CrossEntropyLoss(), fallback="error")
    return training_step(model, lambda: compiled(x, target), mode)
