"""autocast: dtypes by the reference table, eager against compiled, modes, signatures, gradients."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from autocast_cases import LOW, ROWS, Row
from lucid import Tensor, autograd
from lucid.compile import make_step
from zoo import WORKLOADS, Workload, floats, labels, mlp, regression

HALVES = (lucid.bfloat16, lucid.float16)
LISTED = {
    "low": "attention convolution convolution_input_grad gru_layer linear lstm_layer matmul "
    "rnn_layer",
    "float32": "acos asin cosh cross_entropy cumsum exp expm1 layer_norm log log10 log1p log2 "
    "log_softmax pow prod reciprocal rsqrt sinh softmax softplus sum tan",
}


def bits(tensor: Tensor | None) -> Any:
    """Dtype and bytes of a tensor, or None for an absent one."""
    if tensor is None:
        return None
    return tensor.dtype.name, tensor.detach().float().numpy().tobytes()


# ---------------------------------------------------------------- dtypes


def test_policies_of_the_registry() -> None:
    found: dict[str, list[str]] = {}
    for name in lucid._C.op_names():
        found.setdefault(lucid._C.op_info(name)["autocast"], []).append(name)
    assert {k: " ".join(sorted(v)) for k, v in found.items() if k != "none"} == LISTED


@pytest.mark.parametrize("low", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_dtype(row: Row, low: lucid.dtype) -> None:
    a, b = floats(1, 4, 4), floats(2, 4, 4)
    calls = (
        (row.wide, a, b),
        (row.low, a.to(low), b.to(low)),
        (row.mixed, a, b.to(low)),
    )
    for wanted, x, y in calls:
        if wanted is None:
            continue
        with lucid.autocast("cpu", low):
            found = row.call(x, y)
        assert found.dtype.name == (low.name if wanted == LOW else wanted)


def test_low_results_are_those_of_cast_inputs() -> None:
    a, b = floats(1, 5, 7), floats(2, 7, 3)
    with lucid.autocast("cpu"):
        found = a @ b
    assert bits(found) == bits(a.bfloat16() @ b.bfloat16())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_float64_and_integers_are_left_alone(row: Row) -> None:
    x, y = floats(1, 4, 4).double(), floats(2, 4, 4).double()
    plain = row.call(x, y)
    with lucid.autocast("cpu"):
        found = row.call(x, y)
    assert found.dtype == plain.dtype
    assert found.numpy().tobytes() == plain.numpy().tobytes()
    with lucid.autocast("cpu"):
        assert lucid.arange(3).sum().dtype is lucid.int64


# ---------------------------------------------------------------- eager and compiled


def train(workload: Workload, low: lucid.dtype, compiled: bool, steps: int = 4) -> list[Any]:
    """The bits of every loss, gradient and parameter of a short training under autocast."""
    lucid.manual_seed(3)
    model = workload.model()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = make_step(model, workload.loss, fallback="error") if compiled else None
    found: list[Any] = []
    for i in range(steps):
        x, *extra = workload.batch(i)
        optimizer.zero_grad()
        with lucid.autocast("cpu", low):
            loss = step(x, *extra) if step else workload.loss(model(x), *extra)
        loss.backward()
        found.append(bits(loss))
        found.append({k: bits(p.grad) for k, p in model.named_parameters()})
        optimizer.step()
    found.append({k: bits(v) for k, v in model.state_dict().items()})
    return found


@pytest.mark.parametrize("low", HALVES, ids=lambda d: d.name)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_compiled_equals_eager(workload: Workload, low: lucid.dtype) -> None:
    assert train(workload, low, compiled=True) == train(workload, low, compiled=False)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_parameters_and_gradients_stay_float32(workload: Workload) -> None:
    *_, gradients, parameters = train(workload, lucid.bfloat16, compiled=True)
    assert {v[0] for v in gradients.values() if v is not None} == {"float32"}
    assert {v[0] for v in parameters.values()} <= {"float32", "int64"}


def test_inside_the_loss_function_and_the_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 4)

        @lucid.autocast("cpu")
        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            with lucid.autocast("cpu", enabled=False):
                return self.outer(h.float())

    def loss(y: Tensor, t: Tensor) -> Tensor:
        assert y.dtype is lucid.float32
        with lucid.autocast("cpu", lucid.float16):
            return F.cross_entropy(y @ y.T, t)

    workload = Workload("inside", Model, loss, lambda i: (floats(i, 4, 8), labels(i, 4, 4)))
    found = []
    for compiled in (False, True):
        lucid.manual_seed(0)
        model = Model()
        step = make_step(model, loss, fallback="error")
        x, t = workload.batch(0)
        value = step(x, t) if compiled else loss(model(x), t)
        value.backward()
        found.append([bits(value), *[bits(p.grad) for p in model.parameters()]])
        if compiled:
            text = step.graph_dump()
            assert "bfloat16" in text
            assert "float16" in text.replace("bfloat16", "")
            assert not lucid.is_autocast_enabled()
    assert found[0] == found[1]


def test_segments() -> None:
    results = []
    for segments in (1, 3):
        lucid.manual_seed(1)
        model = mlp()
        step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
        with lucid.autocast("cpu"):
            loss = step(*regression(0))
        loss.backward()
        results.append([bits(loss), *[bits(p.grad) for p in model.parameters()]])
    assert results[0] == results[1]


# ---------------------------------------------------------------- the backward


def test_backward_is_not_autocast() -> None:
    found = []
    for inside in (False, True):
        x = floats(1, 3, 4).requires_grad_()
        weight = floats(2, 4, 4).requires_grad_()
        with lucid.autocast("cpu"):
            loss = ((x @ weight).float().tanh() @ weight).exp().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        found.append([bits(x.grad), bits(weight.grad)])
    assert found[0] == found[1]


def test_hook_sees_autocast_off() -> None:
    seen = []
    x = floats(1, 3).requires_grad_()
    y = x * 2
    y.register_hook(lambda grad: seen.append(lucid.is_autocast_enabled()))
    with lucid.autocast("cpu"):
        y.sum().backward()
        assert lucid.is_autocast_enabled()
    assert seen == [False]


def test_functions_of_the_user_s_own() -> None:
    seen: list[Any] = []

    class Product(autograd.Function):
        @staticmethod
        @lucid.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @lucid.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Tensor) -> Any:
            a, b = ctx.saved_tensors
            seen.append(lucid.is_autocast_enabled())
            return (grad @ b.T).float(), (a.T @ grad).float()

    class Exponential(autograd.Function):
        @staticmethod
        @lucid.amp.custom_fwd(cast_inputs=lucid.float32)
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append((x.dtype, lucid.is_autocast_enabled()))
            ctx.save_for_backward(x.exp())
            return ctx.saved_tensors[0]

        @staticmethod
        @lucid.amp.custom_bwd
        def backward(ctx: Any, grad: Tensor) -> Any:
            seen.append(lucid.is_autocast_enabled())
            return (grad * ctx.saved_tensors[0]).bfloat16()

    a, b = floats(1, 2, 3).requires_grad_(), floats(2, 3, 2).requires_grad_()
    with lucid.autocast("cpu"):
        product = Product.apply(a, b)
        loss = Exponential.apply(product).sum()
    loss.backward()
    assert product.dtype is lucid.bfloat16
    assert seen == [(lucid.float32, False), False, True]
    x, y = a.detach().requires_grad_(), b.detach().requires_grad_()
    with lucid.autocast("cpu"):
        (x @ y).exp().sum().backward()
    assert bits(a.grad) == bits(x.grad) and bits(b.grad) == bits(y.grad)
    seen.clear()
    Exponential.apply(floats(1, 2).bfloat16())
    assert seen == [(lucid.bfloat16, False)]


def test_gradient_penalty() -> None:
    """autograd.grad inside the loss, eager and traced."""

    def loss(y: Tensor, x: Tensor) -> Tensor:
        (slope,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
        assert slope is not None
        return y.mean() + (slope**2).sum()

    found = []
    for compiled in (False, True):
        lucid.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        x = floats(1, 3, 4).requires_grad_()
        with lucid.autocast("cpu"):
            if compiled:
                value = make_step(model, loss, fallback="error")(x, x)
            else:
                value = loss(model(x), x)
        value.backward()
        found.append([bits(value), *[bits(p.grad) for p in model.parameters()]])
    assert found[0] == found[1]


# ---------------------------------------------------------------- the mode


def test_nested_and_restored() -> None:
    assert not lucid.is_autocast_enabled()
    with lucid.autocast("cpu", lucid.float16):
        assert lucid.is_autocast_enabled("cpu")
        assert not lucid.is_autocast_enabled("metal")
        assert lucid.get_autocast_dtype("cpu") is lucid.float16
        with lucid.autocast("cpu", enabled=False):
            assert not lucid.is_autocast_enabled("cpu")
            with lucid.autocast():
                assert lucid.is_autocast_enabled("cpu") and lucid.is_autocast_enabled("metal")
                assert lucid.get_autocast_dtype("cpu") is lucid.float16
        assert lucid.is_autocast_enabled("cpu")
    assert not lucid.is_autocast_enabled()
    assert lucid.get_autocast_dtype("cpu") is lucid.bfloat16
    assert lucid.get_autocast_dtype("metal") is lucid.float16


def test_an_exception_restores_the_mode() -> None:
    with pytest.raises(ZeroDivisionError), lucid.autocast("cpu", lucid.float16):
        raise ZeroDivisionError
    assert not lucid.is_autocast_enabled()
    with lucid.autocast("cpu"):
        with pytest.raises(lucid.ShapeError):
            F.binary_cross_entropy(lucid.ones(2, 3), lucid.ones(4, 3))
        with pytest.raises(lucid.ShapeError):
            lucid.addmm(lucid.ones(2), lucid.ones(2, 3), lucid.ones(2, 3))
        assert lucid.is_autocast_enabled("cpu")
    x = lucid.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: 1 / 0)
    with lucid.autocast("cpu"):
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()
        assert lucid.is_autocast_enabled("cpu")


def test_decorator_and_reuse() -> None:
    context = lucid.autocast("cpu")

    @context
    def product(a: Tensor, depth: int = 0) -> Tensor:
        return product(a, depth - 1) if depth else a @ a

    assert product.__name__ == "product"
    assert product(floats(1, 2, 2), 3).dtype is lucid.bfloat16
    assert not lucid.is_autocast_enabled()
    with context, context:
        assert lucid.is_autocast_enabled()
    assert not lucid.is_autocast_enabled()
    assert copy.deepcopy(context)(lambda: lucid.is_autocast_enabled("cpu"))()


def test_mode_is_per_thread() -> None:
    shared = lucid.autocast("cpu")
    seen: list[Any] = []
    barrier = threading.Barrier(2)

    def other() -> None:
        seen.append(lucid.is_autocast_enabled())
        with shared:
            barrier.wait()
            barrier.wait()
            seen.append(lucid.is_autocast_enabled())
        seen.append(lucid.is_autocast_enabled())

    with shared:
        thread = threading.Thread(target=other)
        thread.start()
        barrier.wait()
    off = not lucid.is_autocast_enabled()
    barrier.wait()
    thread.join()
    assert off
    assert seen == [False, True, False]


def test_another_dtype_warns_and_is_off() -> None:
    with pytest.warns(UserWarning, match="dtype must be bfloat16 or float16: got float32"):
        context = lucid.autocast("cpu", lucid.float32)
    with context:
        assert not lucid.is_autocast_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lucid.autocast("cpu", lucid.float32, enabled=False)


def test_warning_of_a_marked_function_names_the_user_s_line() -> None:
    for enabled in (False, True):
        with lucid.autocast("cpu", enabled=enabled), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            F.mse_loss(lucid.ones(2, 3), lucid.ones(3))
        assert [w.filename for w in seen] == [__file__]


def test_availability() -> None:
    assert lucid.amp.is_autocast_available("cpu")
    assert lucid.amp.autocast is lucid.autocast
    assert isinstance(lucid.amp.is_autocast_available("metal"), bool)


# ---------------------------------------------------------------- the signature


def modes(step: Callable[..., Tensor], x: Tensor, t: Tensor) -> None:
    step(x, t)
    with lucid.autocast("cpu"):
        step(x, t)
    with lucid.autocast("cpu", lucid.float16):
        step(x, t)


def test_signature() -> None:
    step = make_step(mlp(), F.cross_entropy, fallback="error")
    x, t = regression(0)
    modes(step, x, t)
    assert step.cache_info()["misses"] == 3
    assert step.explain().splitlines()[-1].endswith("because of another autocast")
    before = lucid.compile.counters()["compilations"]
    modes(step, x, t)
    with lucid.autocast("cpu", lucid.float16, enabled=False):
        step(x, t)
    assert step.cache_info()["misses"] == 3
    assert lucid.compile.counters()["compilations"] == before


def test_refusal_is_keyed_by_the_mode() -> None:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        if y.dtype is lucid.bfloat16:
            y.sum().item()
        return F.cross_entropy(y, t)

    step = make_step(mlp(), loss, fallback="silent")
    x, t = regression(0)
    modes(step, x, t)
    assert step.cache_info()["entries"] == 2
    assert step.explain().count("runs eagerly") == 1
    modes(step, x, t)
    assert step.explain().count("runs eagerly") == 1
