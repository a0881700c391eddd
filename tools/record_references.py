"""Records what PyTorch 2.13 gives for reference_cases.py and reference_modules.py of tests/python.

Use, in an environment of its own with torch==2.13.0 and numpy:
    python tools/record_references.py
It writes tests/python/references/*.npz, all values in float64. The tests read these files and never
import PyTorch.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

TESTS = Path(__file__).resolve().parents[1] / "tests" / "python"
sys.path.insert(0, str(TESTS))

from reference_cases import FUNCTIONS, FunctionCase  # noqa: E402
from reference_modules import (  # noqa: E402
    MODULES,
    OPTIMIZERS,
    ModuleCase,
    OptimizerCase,
)

Arrays = dict[str, np.ndarray]
PARAMETER_SHAPES = ((3, 4), (5,), ())


def random_of(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def single(array: np.ndarray) -> np.ndarray:
    """Rounded to float32, so that float32 and float64 start from the same values."""
    if array.dtype.kind != "f":
        return array
    return array.astype(np.float32).astype(np.float64)


def draw(name: str, samples: tuple[Any, ...]) -> list[np.ndarray]:
    """Inputs, each floating one rounded to float32."""
    random = random_of(name)
    made = []
    for sample in samples:
        array = np.asarray(sample.make(random))
        made.append(single(array.astype(np.float64 if sample.is_floating else sample.dtype)))
    return made


def to_tensor(array: np.ndarray) -> torch.Tensor:
    tensor = torch.tensor(array)
    return tensor.requires_grad_(array.dtype.kind == "f")


def differentiate(record: Arrays, prefix: str, result: Any, random: np.random.Generator) -> None:
    """Records results and the weights that their sum is differentiated with."""
    outputs = list(result) if isinstance(result, tuple) else [result]
    total = torch.zeros((), dtype=torch.float64)
    for i, output in enumerate(outputs):
        record[f"{prefix}output{i}"] = output.detach().numpy()
        weight = single(random.standard_normal(tuple(output.shape)))
        record[f"{prefix}weight{i}"] = weight
        if output.requires_grad:
            total = total + torch.sum(output * torch.tensor(weight))
    if total.requires_grad:
        total.backward()


def record_function(case: FunctionCase) -> Arrays:
    record: Arrays = {}
    inputs = [to_tensor(array) for array in draw(case.name, case.inputs)]
    library: Any = torch
    for part in filter(None, case.namespace.split(".")):
        library = getattr(library, part)
    result = case.run(library, *inputs)
    for i, tensor in enumerate(inputs):
        record[f"input{i}"] = tensor.detach().numpy()
    differentiate(record, "", result, random_of("weights " + case.name))
    for i, tensor in enumerate(inputs):
        if tensor.grad is not None:
            record[f"grad{i}"] = tensor.grad.numpy()
    return record


def record_module(case: ModuleCase) -> Arrays:
    record: Arrays = {}
    random = random_of("parameters " + case.name)
    module = case.build(torch.nn).to(torch.float64)
    module.train(case.training)
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.dtype == torch.float64:
            drawn = random.standard_normal(tuple(value.shape)) * 0.5
            drawn = np.abs(drawn) + 0.5 if "var" in name else drawn
            with torch.no_grad():
                value.copy_(torch.tensor(single(drawn)))
            record[f"start {name}"] = value.detach().numpy().copy()
    for call in range(case.calls):
        inputs = [to_tensor(array) for array in draw(f"{case.name} {call}", case.inputs)]
        for i, tensor in enumerate(inputs):
            record[f"{call} input{i}"] = tensor.detach().numpy()
        differentiate(record, f"{call} ", case.run(module, *inputs), random)
        for i, tensor in enumerate(inputs):
            if tensor.grad is not None:
                record[f"{call} grad{i}"] = tensor.grad.numpy()
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            record[f"grad {name}"] = parameter.grad.numpy()
    for name, buffer in module.named_buffers():
        record[f"end {name}"] = buffer.numpy()
    return record


def record_optimizer(case: OptimizerCase) -> Arrays:
    record: Arrays = {}
    random = random_of(case.name)
    starts = [single(np.asarray(random.standard_normal(s))) for s in PARAMETER_SHAPES]
    parameters = [torch.nn.Parameter(torch.tensor(array)) for array in starts]
    optimizer = case.build(torch.optim, parameters)
    for i, start in enumerate(starts):
        record[f"start{i}"] = start
    for step in range(case.steps):
        for i, parameter in enumerate(parameters):
            # The last parameter has no gradient in the first two steps.
            if i == len(parameters) - 1 and step < 2:
                continue
            gradient = single(np.asarray(random.standard_normal(tuple(parameter.shape))))
            parameter.grad = torch.tensor(gradient)
            record[f"{step} grad{i}"] = gradient
        optimizer.step()
        for i, parameter in enumerate(parameters):
            record[f"{step} value{i}"] = parameter.detach().numpy().copy()
    return record


def pack(records: dict[str, Arrays]) -> Arrays:
    """All arrays end to end by kind of element, and a text that says where each stands."""
    parts: dict[str, list[np.ndarray]] = {}
    lines = []
    for case, record in records.items():
        for name, array in record.items():
            array = np.asarray(array)
            kind = array.dtype.name
            # Values that float32 holds are kept as such; they come back as float64.
            if kind == "float64" and np.array_equal(array, single(array), equal_nan=True):
                kind = "float32"
            shape = ",".join(map(str, array.shape))
            lines.append(f"{case}|{name}|{kind}|{shape}")
            parts.setdefault(kind, []).append(array.astype(kind).reshape(-1))
    packed = {kind: np.concatenate(arrays) for kind, arrays in parts.items()}
    packed["contents"] = np.frombuffer("\n".join(lines).encode(), np.uint8)
    return packed


def main() -> None:
    assert torch.__version__.startswith("2.13"), torch.__version__
    torch.manual_seed(0)
    torch.set_num_threads(1)
    families = (
        ("functions", {c.name: record_function(c) for c in FUNCTIONS}, FUNCTIONS),
        ("modules", {c.name: record_module(c) for c in MODULES}, MODULES),
        ("optimizers", {c.name: record_optimizer(c) for c in OPTIMIZERS}, OPTIMIZERS),
    )
    folder = TESTS / "references"
    folder.mkdir(exist_ok=True)
    for family, records, cases in families:
        assert len(records) == len(cases), f"{family}: two cases have one name"
        np.savez_compressed(folder / f"{family}.npz", **pack(records))


if __name__ == "__main__":
    main()
