"""MLX on the GPU, the whole step compiled by mx.compile. Perceptrons only; see MLX_WORKLOADS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import workloads
from mlx.utils import tree_flatten


def _model(workload: str) -> nn.Module:
    widths = workloads.MLP_WIDTHS[workload]
    layers: list[Any] = [nn.Linear(widths[0], widths[1])]
    for i in range(1, len(widths) - 1):
        layers += [nn.GELU() if workload == "mlp_wide" else nn.ReLU()]
        layers += [nn.Linear(widths[i], widths[i + 1])]
    model = nn.Sequential(*layers)
    weights = [
        (f"layers.{name}", mx.array(a)) for name, a in workloads.parameters(workload).items()
    ]
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def _optimizer(mode: str) -> Any:
    if mode == "sgd":
        return optimizers.SGD(learning_rate=1e-4, momentum=0.9)
    if mode == "adamw":
        return optimizers.AdamW(learning_rate=1e-5, weight_decay=0.01)
    return None


def prepare(workload: str, mode: str) -> Callable[[], Any]:
    model = _model(workload)
    optimizer = _optimizer(mode)
    x_array, target_array = workloads.inputs(workload)
    x, target = mx.array(x_array), mx.array(target_array.reshape(-1))

    def loss_of(x: mx.array, target: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(x), target, reduction="mean")

    state = [model.state] if optimizer is None else [model.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def run(x: mx.array, target: mx.array) -> tuple[mx.array, Any]:
        loss, gradients = nn.value_and_grad(model, loss_of)(x, target)
        if optimizer is not None:
            optimizer.update(model, gradients)
        return loss, gradients

    def step() -> mx.array:
        loss, gradients = run(x, target)
        mx.eval(loss, [g for _, g in tree_flatten(gradients)], state)
        return loss

    return step


def versions() -> dict[str, str]:
    return {"mlx": str(mx.__version__)}
