"""lucid, one operation at a time: what the compiled step replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn
import lucid.optim
import workloads

from contestants.models import make_model, make_optimizer, with_buffers


def make_parts(workload: str) -> tuple[lucid.nn.Module, lucid.Tensor, lucid.Tensor]:
    """The model with the workload's parameters, and its batch (x, target)."""
    model: lucid.nn.Module = make_model(lucid, workload)
    start = {name: lucid.tensor(a) for name, a in workloads.parameters(workload).items()}
    model.load_state_dict(with_buffers(model, start))
    x, target = workloads.inputs(workload)
    return model, lucid.tensor(x), lucid.tensor(target.reshape(-1))


def training_step(
    model: lucid.nn.Module, loss_of_batch: Callable[[], lucid.Tensor], mode: str
) -> Callable[[], lucid.Tensor]:
    """Clears the gradients, takes loss and gradients, and updates the parameters if asked to."""
    parameters = list(model.parameters())
    optimizer = make_optimizer(lucid, mode, parameters)

    def step() -> lucid.Tensor:
        for parameter in parameters:
            parameter.grad = None
        loss = loss_of_batch()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss

    return step


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model, x, target = make_parts(workload)
    loss_fn = lucid.nn.CrossEntropyLoss()
    return training_step(model, lambda: loss_fn(model(x), target), mode)


def versions() -> dict[str, str]:
    return {"lucid": str(lucid.__version__)}
