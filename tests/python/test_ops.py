"""Every row of the table of operations: values, gradients, second derivatives, compiled steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lucid
import numpy as np
import pytest
from cases.case import GENERATOR, Array, OpCase, Sample, normal, values
from lucid import Tensor, nn
from lucid.autograd import grad
from lucid.compile import counters, make_step
from op_cases import CASES
from op_running import (
    call,
    check_output,
    expected_dtypes,
    is_single,
    operands,
    reference,
    to_bytes,
    to_numpy,
)

DIFFERENTIABLE = {name: case for name, case in CASES.items() if case.grad_places()}
TWICE = {name: case for name, case in DIFFERENTIABLE.items() if case.second}
# Step of the central differences, and the error that it and rounding leave beside the largest
# slope: h^2 of the third derivative, and 2^-52 / h.
STEP = 1e-5
SLOPE_TOLERANCE = 1e-7
# Error of a float32 gradient beside the largest one: a chain of some operations.
SINGLE_TOLERANCE = 3e-6
# Operations without a gradient rule of their own here: their inputs are detached.
RULES_OF_OTHERS = ("custom_grad", "custom_impure_grad", "with_gradient")
# So many elements of each input are checked; more would cost time only.
MAX_CHECKED = 24


def is_large(case: OpCase) -> bool:
    """True if the row is enough work to be split among threads."""
    return sum(np.size(array) for array in case.arrays()) > 4000


def rows(cases: dict[str, OpCase]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def check_forward(case: OpCase, wide: bool) -> None:
    inputs = operands(case, wide)
    outputs = call(case, inputs, wide)
    dtypes = expected_dtypes(case, len(outputs), wide)
    tolerance = case.tolerance
    if wide and tolerance:
        tolerance *= 1e-7
    is_elementwise = lucid._C.op_info(case.op)["is_elementwise"]
    expected = reference(case, inputs) if case.numpy else (None,) * len(outputs)
    assert len(outputs) == len(expected)
    for got, value, dtype in zip(outputs, expected, dtypes, strict=True):
        if value is not None:
            check_output(got, value, dtype, tolerance, is_elementwise)


@rows(CASES)
def test_values_equal_numpy(case: OpCase) -> None:
    check_forward(case, wide=False)
    if is_single(case):
        check_forward(case, wide=True)


def some_elements(array: Array) -> list[tuple[int, ...]]:
    """All places, or a fixed choice of them."""
    places = list(np.ndindex(*array.shape))
    if len(places) <= MAX_CHECKED:
        return places
    chosen = np.random.default_rng(len(places)).choice(len(places), MAX_CHECKED, replace=False)
    return [places[i] for i in chosen]


def check_slopes(
    function: Callable[[list[Array]], float], at: Sequence[Array], slopes: Sequence[Array]
) -> None:
    """Compares slopes of a function of arrays with its central differences."""
    for place, (array, slope) in enumerate(zip(at, slopes, strict=True)):
        measured = {}
        for element in some_elements(array):
            moved = []
            for sign in (1, -1):
                arrays = [a.copy() for a in at]
                arrays[place][element] += sign * STEP
                moved.append(function(arrays))
            measured[element] = (moved[0] - moved[1]) / (2 * STEP)
        found = np.asarray([slope[element] for element in measured])
        wanted = np.asarray(list(measured.values()))
        scale = max(1.0, np.max(np.abs(wanted), initial=0.0))
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=SLOPE_TOLERANCE * scale, err_msg=f"input {place}"
        )


def widened_tensor(value: Any) -> Any:
    is_narrow = isinstance(value, Tensor) and value.dtype == lucid.float32
    return value.to(lucid.float64) if is_narrow else value


class Derivative:
    """A row as a function of the inputs that are differentiated.

    wide: in float64, from the values that float32 holds.
    """

    def __init__(self, case: OpCase, wide: bool = True) -> None:
        self.case = case
        self.wide = wide
        self.places = case.grad_places()
        self.inputs = [widened_tensor(v) if wide else v for v in operands(case)]
        self.at = [to_numpy(self.inputs[i]) for i in self.places]
        self.random = np.random.default_rng(7)

    def leaves(self, arrays: Sequence[Array], requires_grad: bool) -> list[Tensor]:
        made = [lucid.tensor(a) for a in arrays]
        return [t.requires_grad_(requires_grad) for t in made]

    def outputs(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """All outputs of the operation."""
        inputs = list(self.inputs)
        for place, leaf in zip(self.places, leaves, strict=True):
            inputs[place] = leaf
        return list(call(self.case, inputs, self.wide))

    def weights(self, outputs: Sequence[Tensor]) -> list[Array]:
        """Random weights of outputs: what is differentiated is the weighted sum."""
        drawn = [self.random.standard_normal(tuple(o.shape)) for o in outputs]
        return [w.astype(o.dtype.name) for w, o in zip(drawn, outputs, strict=True)]

    def gradients(
        self, leaves: list[Tensor], weights: list[Tensor], which: list[int], **options: Any
    ) -> list[Tensor | None]:
        """Gradients of the outputs at the places `which`."""
        outputs = self.outputs(leaves)
        chosen = [outputs[i] for i in which]
        return list(grad(chosen, leaves, weights, allow_unused=True, **options))


def differentiable(outputs: Sequence[Tensor]) -> list[int]:
    """Places of the outputs that have a gradient."""
    found = [i for i, output in enumerate(outputs) if output.requires_grad]
    assert found
    return found


def arrays_of(tensors: Sequence[Tensor | None], like: Sequence[Array]) -> list[Array]:
    return [
        np.zeros_like(a) if t is None else to_numpy(t) for t, a in zip(tensors, like, strict=True)
    ]


@rows(DIFFERENTIABLE)
def test_gradients_equal_differences(case: OpCase) -> None:
    row = Derivative(case)
    leaves = row.leaves(row.at, True)
    outputs = row.outputs(leaves)
    which = differentiable(outputs)
    weights = row.weights([outputs[i] for i in which])

    def total(arrays: list[Array]) -> float:
        values = row.outputs(row.leaves(arrays, False))
        return sum(
            float(np.sum(to_numpy(values[i]) * w)) for i, w in zip(which, weights, strict=True)
        )

    slopes = row.gradients(leaves, [lucid.tensor(w) for w in weights], which)
    for slope, leaf in zip(slopes, leaves, strict=True):
        assert slope is None or (slope.dtype, slope.shape) == (leaf.dtype, leaf.shape)
    check_slopes(total, row.at, arrays_of(slopes, row.at))


@rows({name: case for name, case in DIFFERENTIABLE.items() if is_single(case)})
def test_gradients_in_float32_equal_those_in_float64(case: OpCase) -> None:
    found = []
    for wide in (False, True):
        row = Derivative(case, wide)
        leaves = row.leaves(row.at, True)
        outputs = row.outputs(leaves)
        which = differentiable(outputs)
        weights = row.leaves(row.weights([outputs[i] for i in which]), False)
        found.append(arrays_of(row.gradients(leaves, weights, which), row.at))
    for narrow, wanted in zip(*found, strict=True):
        scale = max(1.0, np.max(np.abs(wanted), initial=0.0))
        np.testing.assert_allclose(narrow, wanted, rtol=0, atol=SINGLE_TOLERANCE * scale)


@rows(TWICE)
def test_second_derivatives_equal_differences(case: OpCase) -> None:
    row = Derivative(case)
    leaves = row.leaves(row.at, True)
    outputs = row.outputs(leaves)
    which = differentiable(outputs)
    weights = row.weights([outputs[i] for i in which])
    count = len(leaves)
    directions = [row.random.standard_normal(a.shape) for a in row.at]

    def total(arrays: list[Array]) -> float:
        moved = row.leaves(arrays[:count], True)
        slopes = row.gradients(moved, row.leaves(arrays[count:], False), which)
        return sum(
            float(np.sum(s * d)) for s, d in zip(arrays_of(slopes, row.at), directions, strict=True)
        )

    weight_leaves = row.leaves(weights, True)
    slopes = row.gradients(leaves, weight_leaves, which, create_graph=True)
    pairs = [(s, lucid.tensor(d)) for s, d in zip(slopes, directions, strict=True) if s is not None]
    curved = [(s, d) for s, d in pairs if s.requires_grad]
    at = [*row.at, *weights]
    second: list[Tensor | None] = [None] * len(at)
    if curved:
        roots, seeds = zip(*curved, strict=True)
        second = list(grad(roots, [*leaves, *weight_leaves], seeds, allow_unused=True))
    check_slopes(total, at, arrays_of(second, at))


class RowModule(nn.Module):
    """A row as a model: floating inputs and the weights of the outputs are parameters.

    The gradient of a weight is the output itself, so that equal gradients mean equal outputs.
    """

    def __init__(self, case: OpCase) -> None:
        super().__init__()
        self.case = case
        self.rest: list[Tensor] = []
        inputs = operands(case)
        for place, (source, value) in enumerate(zip(case.inputs, inputs, strict=True)):
            if isinstance(source, Sample) and source.is_floating:
                setattr(self, f"input{place}", nn.Parameter(value))
            elif isinstance(value, Tensor):
                self.rest.append(value)
        random = np.random.default_rng(3)
        for place, output in enumerate(call(case, inputs)):
            weight = lucid.tensor(random.standard_normal(tuple(output.shape)))
            dtype = output.dtype if output.dtype.is_floating_point else lucid.float32
            setattr(self, f"weight{place}", nn.Parameter(weight.to(dtype)))
        # A step needs a tensor as its input.
        self.rest = self.rest or [lucid.zeros(1)]

    def forward(self, rest: list[Tensor]) -> Tensor:
        inputs: list[Any] = []
        given = iter(rest)
        for place, (source, value) in enumerate(
            zip(self.case.inputs, operands_of(self.case), strict=True)
        ):
            if isinstance(source, Sample):
                value = getattr(self, f"input{place}") if source.is_floating else next(given)
            inputs.append(value)
        if self.case.op in RULES_OF_OTHERS:
            inputs = [i.detach() if isinstance(i, Tensor) else i for i in inputs]
        total = lucid.zeros((), dtype=lucid.float64)
        for place, output in enumerate(call(self.case, inputs)):
            weight = getattr(self, f"weight{place}")
            weighted = output.to(weight.dtype) * weight
            total = total + lucid.sum(weighted).to(lucid.float64)
        return total


def operands_of(case: OpCase) -> list[Any]:
    """The inputs that are no tensors, in their places."""
    random = lucid.default_generator
    return [
        None if isinstance(s, Sample) else s if s is None or isinstance(s, int | float) else random
        for s in case.inputs
    ]


def results(model: RowModule, run: Callable[[list[Tensor]], Tensor]) -> tuple[Any, Any]:
    """Bytes of the loss and of every gradient of one step, and what the step counted."""
    for parameter in model.parameters():
        parameter.grad = None
    lucid.manual_seed(GENERATOR.seed)
    before = counters()
    loss = run(model.rest)
    loss.backward()
    after = counters()
    changes = {name: after[name] - before[name] for name in after}
    return [to_bytes(loss), *[to_bytes(p.grad) for p in model.parameters()]], changes


def without_comments(text: str) -> str:
    return "\n".join(line.split("  #")[0].rstrip() for line in text.splitlines())


def check_compiled(model: RowModule) -> None:
    """Compares two compiled steps with the eager one, and the graph with its text."""
    step = make_step(model, lambda y: y, fallback="error")
    expected, _ = results(model, model)
    cold, _ = results(model, step)
    assert cold == expected
    warm, counted = results(model, step)
    assert warm == expected
    has_effects = step.cache[0].has_effects
    assert counted["executable_runs"] == (2 if has_effects else 1)  # forward, then backward
    assert counted["eager_dispatches"] == 0
    assert counted["compilations"] == 0
    if has_effects:
        return
    text = step.graph_dump()
    printed = lucid._C.parse_graph(text)
    assert lucid._C.parse_graph(printed) == printed
    assert without_comments(text) == without_comments(printed)


@rows(CASES)
def test_compiled_equals_eager(case: OpCase) -> None:
    check_compiled(RowModule(case))


@pytest.fixture
def num_threads() -> Iterator[None]:
    """Puts the number of threads back."""
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)


@pytest.mark.usefixtures("num_threads")
@rows({name: case for name, case in CASES.items() if is_large(case)})
def test_number_of_threads_changes_no_bit(case: OpCase) -> None:
    model = RowModule(case)
    found = []
    for count in (1, 2, 3):
        lucid.set_num_threads(count)
        found.append(results(model, model)[0])
    assert found == [found[0]] * 3


def test_planted_wrong_value_is_found() -> None:
    with pytest.raises(AssertionError, match="times what is allowed"):
        check_forward(OpCase("exp", (normal(3),), lambda x: np.exp(x) * (1 + 3e-6)), wide=False)


def test_planted_wrong_slope_is_found() -> None:
    # Of repeated indices only the last source is read; the rule gives each a gradient.
    repeated = OpCase("scatter", (normal(3), values([1, 1], "int64"), normal(2)), None, {"dim": 0})
    with pytest.raises(AssertionError, match="input 1"):
        test_gradients_equal_differences(repeated)


class DriftingModule(RowModule):
    """Gives another loss while it is traced."""

    def forward(self, rest: list[Tensor]) -> Tensor:
        loss = super().forward(rest)
        return loss * (1 + 2**-50) if lucid._C.is_tracing() else loss


def test_planted_drift_is_found() -> None:
    with pytest.raises(AssertionError):
        check_compiled(DriftingModule(CASES["exp-f32[3x5]"]))
