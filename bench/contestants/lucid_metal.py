"""lucid on the metal device, the whole step compiled; the loss is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn
from lucid.compile import make_step

from contestants.lucid_eager import make_parts, training_step

__all__ = ["prepare", "versions"]


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model, x, target = make_parts(workload)
    model, x, target = model.to("metal"), x.to("metal"), target.to("metal")
    compiled = make_step(model, lucid.nn.CrossEntropyLoss(), fallback="error")
    submit = training_step(model, lambda: compiled(x, target), mode)

    def step() -> lucid.Tensor:
        loss = submit()
        lucid.metal.synchronize()
        return loss

    return step


def versions() -> dict[str, str]:
    return {"lucid": str(lucid.__version__), "lucid device": lucid.metal.get_device_name()}
