"""PyTorch, eager, with the settings its users choose for speed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn
import torch.optim
import workloads

from contestants.models import make_model, make_optimizer, with_buffers

torch.set_num_threads(int(os.environ["BENCH_THREADS"]))


def prepare_in(
    workload: str, mode: str, memory_format: torch.memory_format, compiled: bool = False
) -> Callable[[], Any]:
    """A step with images and convolution weights in the given memory format.

    With `compiled`, torch.compile makes loss and gradients; the update is PyTorch's fused one.
    """
    model = make_model(torch, workload)
    start = {name: torch.from_numpy(a) for name, a in workloads.parameters(workload).items()}
    model.load_state_dict(with_buffers(model, start))
    x_array, target_array = workloads.inputs(workload)
    x, target = torch.from_numpy(x_array), torch.from_numpy(target_array.reshape(-1))
    if x.dim() == 4:
        x = x.contiguous(memory_format=memory_format)
        model = model.to(memory_format=memory_format)
    loss_fn = torch.nn.CrossEntropyLoss()
    parameters = list(model.parameters())
    optimizer = make_optimizer(torch, mode, parameters, fused=True)

    def loss_of(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = loss_fn(model(x), target)
        return loss

    loss_of_batch = torch.compile(loss_of) if compiled else loss_of

    def step() -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = None
        loss = loss_of_batch(x, target)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss

    return step


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    return prepare_in(workload, mode, torch.contiguous_format)


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}
