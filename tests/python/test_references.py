"""Functions, modules and optimizers against values recorded from PyTorch 2.13.

tools/record_references.py records them from the same cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
from cases.case import Array
from lucid import Tensor, nn, optim
from op_running import to_numpy
from reference_cases import FUNCTIONS, FunctionCase
from reference_modules import MODULES, OPTIMIZERS, ModuleCase, OptimizerCase

FOLDER = Path(__file__).parent / "references"
# Over the largest value of an array; some units in the last place. A whole trajectory or a module
# of several operations gathers more of them than one function.
FUNCTION_TOLERANCE = {"float32": 2e-6, "float64": 1e-13}
MODULE_TOLERANCE = {"float32": 5e-6, "float64": 2e-13}
# A float64 result against a record that is not exact to the last places.
COARSE_TOLERANCE = 1e-7
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


def unpack(family: str) -> dict[str, dict[str, Array]]:
    """The recorded arrays by case and name, floating ones as float64."""
    records: dict[str, dict[str, Array]] = {}
    with np.load(FOLDER / f"{family}.npz") as packed:
        parts = {kind: packed[kind] for kind in packed}
    used = dict.fromkeys(parts, 0)
    for line in bytes(parts["contents"]).decode().splitlines():
        case, name, kind, sizes = line.split("|")
        shape = tuple(int(n) for n in sizes.split(",") if n)
        count = int(np.prod(shape))
        array = parts[kind][used[kind] : used[kind] + count].reshape(shape)
        used[kind] += count
        is_floating = kind.startswith("float")
        records.setdefault(case, {})[name] = array.astype(np.float64) if is_floating else array
    return records


RECORDED = {family: unpack(family) for family in ("functions", "modules", "optimizers")}


def to_tensor(array: Array, dtype: str) -> Tensor:
    is_floating = array.dtype.kind == "f"
    tensor = lucid.tensor(array.astype(dtype) if is_floating else array)
    return tensor.requires_grad_(is_floating)


def check(found: Tensor | None, wanted: Array, tolerance: float, what: str) -> None:
    assert found is not None, what
    assert tuple(found.shape) == wanted.shape, what
    array = to_numpy(found)
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(array, wanted, err_msg=what)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(array[~finite], wanted[~finite], err_msg=what)
    scale = np.max(np.abs(wanted[finite]), initial=1e-3)
    np.testing.assert_allclose(
        array[finite], wanted[finite], rtol=0, atol=tolerance * scale, err_msg=what
    )


def numbered(record: dict[str, Array], prefix: str) -> list[Array]:
    """The arrays prefix0, prefix1, ..."""
    found = []
    while f"{prefix}{len(found)}" in record:
        found.append(record[f"{prefix}{len(found)}"])
    return found


def check_results(record: dict[str, Array], prefix: str, result: Any, tolerance: float) -> None:
    """Compares results, and differentiates their weighted sum."""
    outputs = list(result) if isinstance(result, tuple) else [result]
    wanted = numbered(record, f"{prefix}output")
    assert len(outputs) == len(wanted)
    total = lucid.zeros(())
    for i, (output, value) in enumerate(zip(outputs, wanted, strict=True)):
        check(output, value, tolerance, f"{prefix}output {i}")
        if output.requires_grad:
            weight = lucid.tensor(record[f"{prefix}weight{i}"]).to(output.dtype)
            total = total + lucid.sum(output * weight)
    if total.requires_grad:
        total.backward()


def check_grads(
    record: dict[str, Array], prefix: str, inputs: list[Tensor], tolerance: float
) -> None:
    for i, tensor in enumerate(inputs):
        name = f"{prefix}grad{i}"
        if name in record:
            check(tensor.grad, record[name], tolerance, name)


@DTYPES
@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda c: c.name)
def test_function(case: FunctionCase, dtype: str) -> None:
    record = RECORDED["functions"][case.name]
    inputs = [to_tensor(array, dtype) for array in numbered(record, "input")]
    library: Any = lucid
    for part in filter(None, case.namespace.split(".")):
        library = getattr(library, part)
    tolerance = max(FUNCTION_TOLERANCE[dtype], COARSE_TOLERANCE if case.coarse else 0.0)
    check_results(record, "", case.run(library, *inputs), tolerance)
    check_grads(record, "", inputs, tolerance)


@DTYPES
@pytest.mark.parametrize("case", MODULES, ids=lambda c: c.name)
def test_module(case: ModuleCase, dtype: str) -> None:
    record = RECORDED["modules"][case.name]
    tolerance = MODULE_TOLERANCE[dtype]
    module = case.build(nn).to(getattr(lucid, dtype))
    module.train(case.training)
    state = dict([*module.named_parameters(), *module.named_buffers()])
    starts = {name.removeprefix("start ") for name in record if name.startswith("start ")}
    assert starts == {name for name, value in state.items() if value.dtype.is_floating_point}
    with lucid.no_grad():
        for name in starts:
            state[name].copy_(lucid.tensor(record[f"start {name}"]).to(state[name].dtype))
    for call in range(case.calls):
        inputs = [to_tensor(array, dtype) for array in numbered(record, f"{call} input")]
        check_results(record, f"{call} ", case.run(module, *inputs), tolerance)
        check_grads(record, f"{call} ", inputs, tolerance)
    for name, parameter in module.named_parameters():
        if f"grad {name}" in record:
            check(parameter.grad, record[f"grad {name}"], tolerance, f"gradient of {name}")
        else:
            assert parameter.grad is None, name
    for name, buffer in module.named_buffers():
        check(buffer, record[f"end {name}"], tolerance, name)


@DTYPES
@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda c: c.name)
def test_optimizer(case: OptimizerCase, dtype: str) -> None:
    record = RECORDED["optimizers"][case.name]
    parameters = [
        nn.Parameter(to_tensor(array, dtype).detach()) for array in numbered(record, "start")
    ]
    optimizer = case.build(optim, parameters)
    tolerance = max(MODULE_TOLERANCE[dtype], COARSE_TOLERANCE if case.coarse else 0.0)
    for step in range(case.steps):
        for i, parameter in enumerate(parameters):
            if f"{step} grad{i}" in record:
                parameter.grad = to_tensor(record[f"{step} grad{i}"], dtype).detach()
        optimizer.step()
        for i, parameter in enumerate(parameters):
            what = f"step {step}, parameter {i}"
            check(parameter, record[f"{step} value{i}"], tolerance, what)
