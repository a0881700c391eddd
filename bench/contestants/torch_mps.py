"""PyTorch, eager, on its MPS device; the device is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn
import workloads

from contestants.models import make_model, make_optimizer, with_buffers


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model = make_model(torch, workload)
    start = {name: torch.from_numpy(a) for name, a in workloads.parameters(workload).items()}
    model.load_state_dict(with_buffers(model, start))
    model = model.to("mps")
    x_array, target_array = workloads.inputs(workload)
    x = torch.from_numpy(x_array).to("mps")
    target = torch.from_numpy(target_array.reshape(-1)).to("mps")
    loss_fn = torch.nn.CrossEntropyLoss()
    parameters = list(model.parameters())
    optimizer = make_optimizer(torch, mode, parameters)

    def step() -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = None
        loss: torch.Tensor = loss_fn(model(x), target)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        torch.mps.synchronize()
        return loss

    return step


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}
