"""Functions, modules and optimizers on the metal device against values recorded from PyTorch."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
from cases.case import Array
from lucid import Tensor, nn, optim
from reference_cases import FUNCTIONS, FunctionCase
from reference_modules import MODULES, OPTIMIZERS, ModuleCase, OptimizerCase
from test_references import RECORDED, check, check_grads, numbered

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]

# Over the largest value of an array: float32 with sums of another order.
TOLERANCE = 3e-5


def to_metal(array: Array) -> Tensor:
    """A leaf on the device."""
    is_floating = array.dtype.kind == "f"
    tensor = lucid.tensor(array.astype(np.float32) if is_floating else array, device="metal")
    return tensor.requires_grad_(is_floating)


def check_results(record: dict[str, Array], prefix: str, result: Any) -> None:
    """Compares results, and differentiates their weighted sum."""
    outputs = list(result) if isinstance(result, tuple) else [result]
    total = lucid.zeros((), device="metal")
    for i, (output, value) in enumerate(
        zip(outputs, numbered(record, f"{prefix}output"), strict=True)
    ):
        assert output.device.type == "metal"
        check(output, value, TOLERANCE, f"{prefix}output {i}")
        if output.requires_grad:
            weight = to_metal(record[f"{prefix}weight{i}"]).detach()
            total = total + lucid.sum(output * weight)
    if total.requires_grad:
        total.backward()


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda c: c.name)
def test_function(case: FunctionCase) -> None:
    record = RECORDED["functions"][case.name]
    inputs = [to_metal(array) for array in numbered(record, "input")]
    library: Any = lucid
    for part in filter(None, case.namespace.split(".")):
        library = getattr(library, part)
    check_results(record, "", case.run(library, *inputs))
    check_grads(record, "", inputs, TOLERANCE)


@pytest.mark.parametrize("case", MODULES, ids=lambda c: c.name)
def test_module(case: ModuleCase) -> None:
    record = RECORDED["modules"][case.name]
    module = case.build(nn).to("metal")
    module.train(case.training)
    state = dict([*module.named_parameters(), *module.named_buffers()])
    with lucid.no_grad():
        for name in record:
            if name.startswith("start "):
                state[name.removeprefix("start ")].copy_(to_metal(record[name]).detach())
    for call in range(case.calls):
        inputs = [to_metal(array) for array in numbered(record, f"{call} input")]
        check_results(record, f"{call} ", case.run(module, *inputs))
        check_grads(record, f"{call} ", inputs, TOLERANCE)
    for name, parameter in module.named_parameters():
        if f"grad {name}" in record:
            check(parameter.grad, record[f"grad {name}"], TOLERANCE, f"gradient of {name}")
    for name, buffer in module.named_buffers():
        check(buffer, record[f"end {name}"], TOLERANCE, name)


@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda c: c.name)
def test_optimizer(case: OptimizerCase) -> None:
    record = RECORDED["optimizers"][case.name]
    parameters = [nn.Parameter(to_metal(array).detach()) for array in numbered(record, "start")]
    optimizer = case.build(optim, parameters)
    for step in range(case.steps):
        for i, parameter in enumerate(parameters):
            if f"{step} grad{i}" in record:
                parameter.grad = to_metal(record[f"{step} grad{i}"]).detach()
        optimizer.step()
        for i, parameter in enumerate(parameters):
            what = f"step {step}, parameter {i}"
            check(parameter, record[f"{step} value{i}"], TOLERANCE, what)
