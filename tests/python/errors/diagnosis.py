"""What diagnose refuses."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import nn, optim
from lucid.compile import diagnose, fused_step

from .case import ErrorCase, f32
from .tracing import traced


def diagnose_fused_step() -> None:
    model = nn.Linear(2, 2)
    step = fused_step(model, lambda y: y.sum(), optim.SGD(model.parameters(), lr=0.1))
    diagnose(step, f32(3, 2))


def summary(top: Any) -> None:
    diagnose(nn.Linear(2, 2), f32(3, 2)).summary(top)


CASES = [
    ErrorCase(
        "diagnose: a number",
        lambda: diagnose(3, f32(2)),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "diagnose: fn must be a module or a function: got int; make an instance first",
    ),
    ErrorCase(
        "diagnose: a class",
        lambda: diagnose(nn.Linear, f32(2)),
        lucid.ArgumentTypeError,
        "diagnose: fn must be a module or a function: got the class Linear; make an instance first",
    ),
    ErrorCase(
        "diagnose: inside a step",
        lambda: traced(lambda y: diagnose(nn.Linear(2, 2), y)),
        lucid.TraceError,
        "diagnose: called inside a compiled step; call it outside of the step",
    ),
    ErrorCase(
        "diagnose: fused step",
        diagnose_fused_step,
        lucid.UnsupportedError,
        (
            "diagnose: a fused step cannot be diagnosed; give it make_step(model, loss_fn), whose "
            "forward and backward are the same"
        ),
    ),
    ErrorCase(
        "diagnose: summary of none",
        lambda: summary(0),
        lucid.UserError,
        "summary: top must be a positive integer: got 0",
    ),
    ErrorCase(
        "diagnose: summary of a flag",
        lambda: summary(True),
        lucid.UserError,
        "summary: top must be a positive integer: got True",
    ),
]
