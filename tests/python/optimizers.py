"""Every optimizer with options that use all of it, and what is compared after its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
from lucid import Tensor
from test_bit_equality import bits, state_bits

Make = Callable[[Any], optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, maximize=True),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "lion": lambda p: optim.Lion(p, lr=0.01),
}


def optimizer_bits(optimizer: optim.Optimizer) -> dict[Any, Any]:
    """Counts and tensors of the state, by number of the parameter."""
    state = optimizer.state_dict()["state"]
    return {
        number: {k: bits(v) if isinstance(v, Tensor) else v for k, v in values.items()}
        for number, values in state.items()
    }


def everything(model: nn.Module, optimizer: optim.Optimizer, scaler: Any = None) -> dict[str, Any]:
    """All that a training step may change."""
    return {
        "model": state_bits(model),
        "optimizer": optimizer_bits(optimizer),
        "generator": lucid.get_rng_state().tolist(),
        "scaler": None if scaler is None else scaler.state_dict(),
    }
