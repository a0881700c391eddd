"""The metal device against the cpu: operations, gradients and whole training steps.

On a Mac this runs on the GPU, elsewhere on the test double where the build has it.
"""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
from cases.case import Array, OpCase, RandomState, Sample
from lucid import Tensor, autograd, nn
from lucid.compile import custom_op, make_step
from op_cases import CASES
from op_running import call, operands, to_numpy

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]

# Error beside the largest value: sums of another order, functions of some units in the last place.
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5}

# What no graph of Metal computes. Eager calls run it on the cpu over the shared memory; a step
# that holds it is refused by name.
GAPS = (
    "no metal lowering for ",
    "too long to be sorted stably in a graph: ",
    "an input is empty",
)


def is_on_metal(case: OpCase) -> bool:
    """True unless the row needs float64."""
    dtypes = [i.dtype for i in case.inputs if isinstance(i, Sample)]
    return "float64" not in [*dtypes, case.attrs.get("dtype")] and "float64" not in case.dtype


# Operations whose kernels or rules are Python's own; test_python_operations_are_refused.
PYTHON_OPS = ("custom", "custom_impure", "custom_grad", "custom_impure_grad", "with_gradient")

# Of several nan in a window, Metal may name another one than the last.
OTHER_CHOICES = {"max_pool-values f32[1x1x2x4] [[2, 2], [2, 2], [0, 0], [1, 1], False]"}

ROWS = {
    name: case
    for name, case in CASES.items()
    if is_on_metal(case) and name not in OTHER_CHOICES and case.op not in PYTHON_OPS
}


def coarsest(case: OpCase) -> str:
    """The dtype whose rounding the row's results have."""
    dtypes = [i.dtype for i in case.inputs if isinstance(i, Sample)]
    dtypes += [case.attrs["dtype"]] if "dtype" in case.attrs else []
    return next((d for d in ("bfloat16", "float16") if d in dtypes), "float32")


def rows(cases: dict[str, OpCase]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def moved(value: Any) -> Any:
    return value.to("metal") if isinstance(value, Tensor) else value


def check_close(found: Tensor, expected: Tensor) -> None:
    """Raises AssertionError unless both are alike."""
    assert found.device.type == "metal"
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    check_arrays(to_numpy(found), to_numpy(expected), expected.dtype.name)


def check_arrays(got: Array, wanted: Array, dtype: str) -> None:
    """The error is measured beside the largest value, but infinities and nan must be alike."""
    if dtype not in TOLERANCES:
        np.testing.assert_array_equal(got, wanted)
        return
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    error = np.abs(got[finite] - wanted[finite])
    scale = max(1.0, np.max(np.abs(wanted[finite]), initial=0.0))
    assert np.max(error, initial=0.0) <= TOLERANCES[dtype] * scale


@rows(ROWS)
def test_eager_values_equal_the_cpu(case: OpCase) -> None:
    inputs = operands(case)
    expected = call(case, inputs)
    found = call(case, [moved(value) for value in inputs])
    for got, wanted in zip(found, expected, strict=True):
        if any(isinstance(value, Tensor) for value in inputs):
            check_close(got, wanted)


class RowModel(nn.Module):
    """A row whose floating inputs are parameters; the loss is a weighted sum of its outputs."""

    def __init__(self, case: OpCase) -> None:
        super().__init__()
        self.case = case
        inputs = operands(case)
        self.given = []
        for place, (source, value) in enumerate(zip(case.inputs, inputs, strict=True)):
            if isinstance(source, Sample) and source.is_floating:
                setattr(self, f"input{place}", nn.Parameter(value))
            elif isinstance(value, Tensor):
                self.given.append(value)
        random = np.random.default_rng(3)
        for place, output in enumerate(call(case, inputs)):
            weight = lucid.tensor(random.standard_normal(tuple(output.shape)).astype(np.float32))
            setattr(self, f"weight{place}", nn.Parameter(weight))
        self.given = self.given or [lucid.zeros(1)]

    def forward(self, given: list[Tensor]) -> Tensor:
        rest = iter(given)
        inputs: list[Any] = []
        for place, source in enumerate(self.case.inputs):
            if isinstance(source, Sample):
                parameter = getattr(self, f"input{place}", None)
                inputs.append(next(rest) if parameter is None else parameter)
            elif isinstance(source, RandomState):
                inputs.append(lucid.default_generator)
            else:
                inputs.append(source)
        total = lucid.zeros((), device=given[0].device)
        for place, output in enumerate(call(self.case, inputs)):
            total = total + lucid.sum(output.to(lucid.float32) * getattr(self, f"weight{place}"))
        return total


def gradients(case: OpCase, device: str) -> tuple[Tensor, dict[str, Array | None]]:
    """Loss and gradients of one compiled step."""
    model = RowModel(case)
    given = [value.to(device) for value in model.given]
    model.to(device)
    lucid.manual_seed(next((i.seed for i in case.inputs if isinstance(i, RandomState)), 0))
    step = make_step(model, lambda y: y, fallback="error")
    loss = step(given)
    loss.backward()
    found = {n: None if p.grad is None else to_numpy(p.grad) for n, p in model.named_parameters()}
    return loss, found


@rows(ROWS)
def test_step_equals_the_cpu(case: OpCase) -> None:
    expected_loss, expected = gradients(case, "cpu")
    try:
        loss, found = gradients(case, "metal")
    except lucid.UnsupportedError as error:
        assert any(gap in str(error) for gap in GAPS), error
        return
    assert loss.device.type == "metal"
    for name, wanted in expected.items():
        got = found[name]
        assert (got is None) == (wanted is None), name
        if got is not None and wanted is not None:
            check_arrays(got, wanted, coarsest(case))


def test_exceptions_are_rows() -> None:
    assert set(CASES) >= OTHER_CHOICES
    assert {case.op for case in CASES.values()} >= set(PYTHON_OPS)


def test_python_operations_are_refused() -> None:
    @custom_op("metal::double", pure=True)
    def double(x: np.ndarray) -> np.ndarray:
        return 2 * x

    @double.shape
    def _(x: Any) -> Any:
        return x.shape, x.dtype

    x = lucid.ones(3, device="metal")
    with pytest.raises(lucid.UnsupportedError, match="metal::double"):
        double(x)
    with pytest.raises(lucid.UnsupportedError, match="metal::double"):
        lucid.compile(double, fallback="error")(x)


class Doubled(autograd.Function):
    """Twice its input, with a gradient of three."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3.0


def test_functions_of_tensor_operations_are_traced() -> None:
    model = nn.Linear(2, 2).to("metal")
    step = make_step(model, lambda y: Doubled.apply(y).sum(), fallback="error")
    step(lucid.ones(1, 2, device="metal")).backward()
    assert model.weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]
