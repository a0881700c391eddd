"""lucid with forward, backward and update in one executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid.nn
from lucid.compile import fused_step

from contestants.lucid_eager import make_parts, versions
from contestants.models import make_optimizer

__all__ = ["prepare", "versions"]


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model, x, target = make_parts(workload)
    optimizer = make_optimizer(lucid, mode, list(model.parameters()))
    step = fused_step(model, lucid.nn.CrossEntropyLoss(), optimizer, fallback="error")
    return lambda: step(x, target)
