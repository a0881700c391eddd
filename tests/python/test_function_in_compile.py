"""autograd.Function inside of compiled functions and modules, whose results share one backward."""

from __future__ import annotations

import copy
import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import pytest
from lucid import Tensor, nn
from lucid.autograd import Function, grad, once_differentiable
from lucid.compile import FallbackWarning, counters
from test_traced_function import LOSSES, Clamp, Exp, Quantized, Round, Two, batch, network

Inputs = list[Tensor]


def inputs(rows: int = 3) -> Inputs:
    lucid.manual_seed(3)
    return [lucid.randn(rows, 4, requires_grad=True) for _ in range(2)]


def outcome(
    function: Callable[..., Any],
    tensors: Inputs,
    weights: list[float],
    others: Inputs | None = None,
) -> list[Any]:
    """Bytes of the results, and of the gradients of those with a weight other than 0."""
    leaves = [*tensors, *(others or [])]
    for leaf in leaves:
        leaf.grad = None
    lucid.manual_seed(11)
    found = function(*tensors)
    results = found if isinstance(found, tuple) else (found,)
    total = sum(
        ((r.square() * w).sum() for r, w in zip(results, weights, strict=True) if w),
        lucid.tensor(0.0),
    )
    total.backward()
    return [
        [r.detach().numpy().tobytes() for r in results],
        [None if leaf.grad is None else leaf.grad.numpy().tobytes() for leaf in leaves],
        [r.requires_grad for r in results],
    ]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_equal_to_eager(name: str) -> None:
    compiled = lucid.compile(LOSSES[name], fallback="error")
    for scale in (1.0, 3.0, 1.0):
        expected = outcome(LOSSES[name], inputs(), [scale])
        assert outcome(compiled, inputs(), [scale]) == expected
    assert compiled.cache_info()["misses"] == 1
    assert "with_gradient" not in compiled.graph_dump()


@pytest.mark.parametrize("name", LOSSES)
def test_modules_are_equal_to_eager(name: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return LOSSES[name](self.body(x), t)

    lucid.manual_seed(0)
    model = Net()
    twin = copy.deepcopy(model)
    compiled = lucid.compile(twin, fallback="error")
    x, t = batch()
    for _ in range(3):
        expected = outcome(model, [x, t], [1.0], list(model.parameters()))
        assert outcome(compiled, [x, t], [1.0], list(twin.parameters())) == expected


def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    product, total, signs = Two.apply(Exp.apply(x), y)
    return product.sin(), total, signs.float() * x, Clamp.apply(y.cos())


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_part_of_the_results(dynamic: bool) -> None:
    compiled = lucid.compile(several, dynamic=dynamic, fallback="error")
    for mask in itertools.product([0.0, 1.5], repeat=4):
        if any(mask):
            assert outcome(compiled, inputs(), list(mask)) == outcome(several, inputs(), list(mask))
    assert compiled.cache_info()["misses"] == 1


def test_dynamic_sizes_share_one_signature() -> None:
    compiled = lucid.compile(several, dynamic=True, fallback="error")
    for rows in (3, 5, 40):
        for mask in ([1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 0.0, 0.0]):
            assert outcome(compiled, inputs(rows), mask) == outcome(several, inputs(rows), mask)
    assert compiled.cache_info()["entries"] == 1


def test_a_warm_call_dispatches_nothing() -> None:
    compiled = lucid.compile(several, fallback="error")
    for _ in range(2):
        outcome(compiled, inputs(), [1.0, 1.0, 1.0, 1.0])
    tensors = inputs()
    seeds = [lucid.ones(3, 4) for _ in range(4)]
    before = counters()
    lucid.autograd.backward(compiled(*tensors), seeds)
    spent = {key: value - before[key] for key, value in counters().items()}
    assert (spent["executable_runs"], spent["compilations"]) == (2, 0)


def many(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = Exp.apply(x * y)
    return z, z * 2, z.sin(), Clamp.apply(x), y * 3


def test_of_many_results_all_together_or_each_alone() -> None:
    compiled = lucid.compile(many, fallback="error")
    for mask in ([1.0] * 5, *([float(i == j) for j in range(5)] for i in range(5))):
        assert outcome(compiled, inputs(), mask) == outcome(many, inputs(), mask)
    tensors = inputs()
    results = compiled(*tensors)
    with pytest.raises(lucid.UnsupportedError, match="of more than 4 results it is recorded"):
        (results[0] + results[2]).sum().backward()
    assert [t.grad for t in tensors] == [None, None]
    outcome(compiled, inputs(), [1.0] * 5)  # and it goes on


class Selective(Function):
    """None for an argument, and for one that is no tensor; results that have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, y: Tensor, flag: bool) -> Any:
        order = x.argsort(dim=1)
        count = (x * 2).detach()
        ctx.mark_non_differentiable(count)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(order, y)
        ctx.factor = factor
        return x * factor, order, count

    @staticmethod
    def backward(ctx: Any, main: Tensor | None, order: None, count: None) -> Any:
        assert order is None and count is None
        assert ctx.needs_input_grad in [(True, False, needs_y, False) for needs_y in (True, False)]
        if main is None:
            return None, None, None, None
        _, y = ctx.saved_tensors
        if not ctx.needs_input_grad[2]:
            return main * ctx.factor, None, None, None
        return main * ctx.factor * 2, None, main * y, None


@pytest.mark.parametrize("needs_y", [False, True])
def test_results_and_arguments_without_a_gradient(needs_y: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        main, order, count = Selective.apply(x, 3.0, y, True)
        return main, order.float(), count

    compiled = lucid.compile(function, fallback="error")
    found = []
    for run in (function, compiled):
        tensors = inputs()
        tensors[1].requires_grad_(needs_y)
        found.append(outcome(run, tensors, [1.0, 0.0, 0.0]))
    assert found[0] == found[1]
    assert found[1][2] == [True, False, False]
    assert (found[1][1][1] is not None) == needs_y


class Parts(Function):
    """The sine of one half, the other times three; where the largest is, and their product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        product = (x[:, :2] * x[:, 2:]).double()
        ctx.mark_non_differentiable(product)
        return x[:, :2].sin(), x[:, 2:] * 3, x.argmax(dim=1), product

    @staticmethod
    def backward(ctx: Any, left: Tensor, right: Tensor, place: Tensor, product: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        rows = x.shape[0]
        for gradient in (left, right):
            assert (gradient.dtype, gradient.shape) == (lucid.float32, (rows, 2))
        assert (place.dtype, place.shape) == (lucid.int64, (rows,))
        assert (product.dtype, product.shape) == (lucid.float64, (rows, 2))
        return lucid.cat([left * x[:, :2].cos(), right * 3 + place[:, None] + product.float()], 1)


def parts(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    left, right, _, product = Parts.apply(x)
    return left * y[:, :2], right, product


@pytest.mark.parametrize("dynamic", [False, True])
def test_absent_gradients_are_zeros_of_the_type_of_the_result(dynamic: bool) -> None:
    compiled = lucid.compile(parts, dynamic=dynamic, fallback="error")
    for rows in (3, 5):
        for mask in ([1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 0.0]):
            expected = outcome(parts, inputs(rows), mask)
            assert outcome(compiled, inputs(rows), mask) == expected
    x, y = inputs()
    parts(x, y)[1].sum().backward()
    assert x.grad is not None and y.grad is None
    assert x.grad.tolist() == [[0.0, 0.0, 3.0, 3.0]] * 3


def test_second_derivatives_with_absent_gradients() -> None:
    x, _ = inputs()
    left = Parts.apply(x)[0]
    (slope,) = grad(left.sum(), x, create_graph=True)
    assert slope is not None
    (curve,) = grad(slope.sum(), x)
    assert curve is not None
    expected = lucid.cat([-x[:, :2].sin(), lucid.zeros(3, 2)], dim=1)
    assert lucid.allclose(curve, expected, atol=1e-6)


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        assert not lucid.is_grad_enabled()
        x, y = ctx.saved_tensors
        scaled = gradient.clone()
        scaled.mul_(2.0)
        return scaled * y, scaled * x


def once(x: Tensor, y: Tensor) -> Tensor:
    return Once.apply(x.sin(), y)


def test_once_differentiable() -> None:
    compiled = lucid.compile(once, fallback="error")
    for _ in range(2):
        assert outcome(compiled, inputs(), [1.0]) == outcome(once, inputs(), [1.0])
    x, y = inputs()
    (slope,) = grad(once(x, y).square().sum(), x, create_graph=True)
    assert slope is not None and slope.requires_grad
    with pytest.raises(lucid.AutogradError, match="goes twice through a function"):
        slope.sum().backward()
    assert x.grad is None
    assert lucid.autograd.function.once_differentiable is once_differentiable


def test_once_differentiable_inside_a_trace() -> None:
    def penalty(x: Tensor, y: Tensor) -> Tensor:
        (slope,) = grad(once(x, y).square().sum(), x, create_graph=True)
        assert slope is not None
        return slope.square().sum()

    with pytest.raises(lucid.AutogradError, match="goes twice through a function"):
        lucid.compile(penalty, fallback="error")(*inputs())


class Hoards(Function):
    """Keeps what one backward computed for the next."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.kept = None
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Any:
        given = a if a is not None else b
        assert given is not None
        if ctx.kept is None:
            ctx.kept = given * 2
        return given + ctx.kept


def test_a_backward_that_reads_another_is_refused() -> None:
    with pytest.raises(lucid.TraceError, match="reads what another backward computed"):
        lucid.compile(lambda x: Hoards.apply(x), fallback="error")(inputs()[0])


class Counts(Function):
    """Changes an outside tensor in its backward, after its forward has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        COUNT.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        COUNT.add_(1)
        return gradient * 2


COUNT = lucid.zeros(())


def test_a_backward_that_writes_is_refused() -> None:
    with pytest.raises(lucid.TraceError, match="changed a tensor that outlives the step"):
        lucid.compile(lambda x: Counts.apply(x), fallback="error")(inputs()[0])
    assert COUNT.item() == 0


def test_a_rule_reads_a_tensor_that_the_forward_does_not() -> None:
    holder = {"slope": lucid.full((4,), 5.0)}

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * holder["slope"]

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return Scaled.apply(x) * y, y.exp()

    compiled = lucid.compile(function, fallback="error")
    for value in (5.0, 7.0):
        holder["slope"] = lucid.full((4,), value)
        for mask in ([1.0, 1.0], [1.0, 0.0], [0.0, 1.0]):
            assert outcome(compiled, inputs(), mask) == outcome(function, inputs(), mask)
    assert compiled.cache_info()["misses"] == 1


def test_two_threads_of_layers() -> None:
    model = nn.Sequential(nn.Linear(6, 4), Quantized(3), nn.Tanh(), Quantized(5))
    twin = copy.deepcopy(model)
    compiled = lucid.compile(twin, fallback="error")
    x = batch()[0]
    expected = outcome(model, [x], [1.0], list(model.parameters()))
    assert outcome(compiled, [x], [1.0], list(twin.parameters())) == expected
    with lucid.no_grad():
        assert compiled(x).numpy().tobytes() == model(x).numpy().tobytes()


class Forwards(Function):
    """Has no backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sort(dim=1).values


def test_a_function_without_a_backward_can_be_called() -> None:
    compiled = lucid.compile(lambda x: Forwards.apply(x) * 2)
    x = inputs()[0]
    with pytest.warns(FallbackWarning, match="raised NotImplementedError: Function: backward is"):
        found = compiled(x)
    assert found.tolist() == (Forwards.apply(x) * 2).tolist()
    with pytest.raises(NotImplementedError, match="backward is not defined"):
        found.sum().backward()
    with lucid.no_grad():
        assert compiled(x).tolist() == found.tolist()
    assert compiled.cache_info()["misses"] == 1  # without gradients it compiles


class Tool:
    """Something that a rule holds."""


def run_with_a_tool() -> weakref.ref[Tool]:
    """Compiles and runs a function whose rule holds a tool; only the rule knows it."""
    tool = Tool()

    class Uses(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.tool = tool
            return Round.apply(x, 4)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            assert isinstance(ctx.tool, Tool)
            return gradient

    lucid.compile(lambda x: Uses.apply(x), fallback="error")(inputs()[0]).sum().backward()
    return weakref.ref(tool)


def test_nothing_of_the_rule_outlives_its_trace() -> None:
    alive = run_with_a_tool()
    gc.collect()
    assert alive() is None
