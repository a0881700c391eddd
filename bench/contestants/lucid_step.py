"""lucid with the whole step compiled; a step that cannot be compiled is an error here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import lucid.nn
from lucid.compile import make_step

from contestants.lucid_eager import make_parts, training_step, versions

__all__ = ["prepare", "versions"]


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model, x, target = make_parts(workload)
    compiled = make_step(model, lucid.nn.CrossEntropyLoss(), fallback="error")
    step: Any = training_step(model, lambda: compiled(x, target), mode)

    def tensor_bytes() -> int:
        """Gradients and the arena of the step: what it needs beyond parameters and batch."""
        memory = compiled.memory()
        return int(memory["outputs"] + memory["arena_peak"])

    step.tensor_bytes = tensor_bytes
    return cast("Callable[[], Any]", step)
