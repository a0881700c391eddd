"""autograd.Function inside of compiled steps: traced through, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import Tensor, nn
from lucid.autograd import Function, grad
from lucid.compile import FallbackWarning, counters, custom_op, make_step

Loss = Callable[[Tensor, Tensor], Tensor]
SCALE = lucid.full((4,), 1.5)
LIMIT = 0.05


class Round(Function):
    """Straight-through estimator: rounds, and hands the gradient on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: int) -> Tensor:
        return lucid.round(x * levels) / levels

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Reverse(Function):
    """Gradient reversal (Ganin and Lempitsky 2015, arXiv:1409.7495): its result is its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return -gradient * ctx.strength, None


class Clamp(Function):
    """The identity with a clamped gradient; the limit is a global."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.clamp(-LIMIT, LIMIT)


class Two(Function):
    """x y, x + y and the signs of x; the gradient of the product is scaled by an outside tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:
        ctx.save_for_backward(x, y)
        ctx.set_materialize_grads(False)
        signs = (x > 0).long()
        ctx.mark_non_differentiable(signs)
        return x * y, x + y, signs

    @staticmethod
    def backward(ctx: Any, product: Tensor | None, total: Tensor | None, signs: None) -> Any:
        x, y = ctx.saved_tensors
        assert signs is None
        gx = total
        gy = None
        if product is not None:
            gx = product * y * SCALE if gx is None else gx + product * y * SCALE
            if ctx.needs_input_grad[1]:
                gy = product * x
        return gx, gy


class Exp(Function):
    """exp, whose gradient reads its own result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return gradient * y


class Dropped(Function):
    """Zeros where a random mask says so, and in its gradient by an assignment in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = lucid.rand_like(x) < 0.5
        ctx.save_for_backward(mask)
        return x.masked_fill(mask, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (mask,) = ctx.saved_tensors
        gradient = gradient.clone()
        gradient.masked_fill_(mask, 0.0)
        gradient.mul_(2.0)
        return gradient


class Outer(Function):
    """Calls another function and a custom operation inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = Exp.apply(x)
        ctx.save_for_backward(y)
        return halved(y)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return halved(gradient) * Clamp.apply(y)


@custom_op("traced::halved", pure=True)
def halved(x: Any) -> Any:
    return (x / 2).astype(x.dtype)


@halved.shape
def _(x: Any) -> Any:
    return x.shape, x.dtype


def mse(y: Tensor, t: Tensor) -> Tensor:
    return (y - t).square().mean()


def penalty(y: Tensor, t: Tensor) -> Tensor:
    (slope,) = grad(Exp.apply(y).sum(), y, create_graph=True)
    assert slope is not None
    return slope.square().mean() + mse(y, t)


def penalty_of_two(y: Tensor, t: Tensor) -> Tensor:
    product, total, _ = Two.apply(y, t * y)
    (slope,) = grad((product * total).sum(), y, create_graph=True)
    assert slope is not None
    return slope.square().mean()


def constant_slope(y: Tensor, t: Tensor) -> Tensor:
    (slope,) = grad(Exp.apply(y).sum(), y, retain_graph=True)
    assert slope is not None
    return mse(y * slope, t)


def without_history(y: Tensor, t: Tensor) -> Tensor:
    with lucid.no_grad():
        weight = Exp.apply(y)
    return mse(y * weight, t) + mse(Exp.apply(t), t)


ste = Round.apply

LOSSES: dict[str, Loss] = {
    "straight-through": lambda y, t: mse(Round.apply(y, 4), t),
    "alias of apply": lambda y, t: mse(ste(y, 4), t),
    "gradient reversal": lambda y, t: mse(Reverse.apply(y, 0.3), t),
    "the loss itself": lambda y, t: Reverse.apply(mse(y, t), 2.0),
    "clamped": lambda y, t: mse(Clamp.apply(y) * 3, t),
    "used twice": lambda y, t: mse(Clamp.apply(Clamp.apply(y) * 2), t),
    "side by side": lambda y, t: mse(Clamp.apply(y) * Round.apply(y, 8), t),
    "first output": lambda y, t: mse(Two.apply(y, y + t)[0], t),
    "second output": lambda y, t: mse(Two.apply(y, y + t)[1], t),
    "all outputs": lambda y, t: sum((p.float().mean() for p in Two.apply(y, y + t)), mse(y, t)),
    "one input wanted": lambda y, t: mse(Two.apply(y, t)[0], t),
    "second input wanted": lambda y, t: mse(Two.apply(t, y)[0], t),
    "same input twice": lambda y, t: mse(Two.apply(y, y)[0], t),
    "saved result": lambda y, t: mse(Exp.apply(y), t),
    "random, in place": lambda y, t: mse(Dropped.apply(y), t),
    "nested": lambda y, t: mse(Outer.apply(y), t),
    "gradient penalty": penalty,
    "penalty of several": penalty_of_two,
    "gradient as a constant": constant_slope,
    "no_grad": without_history,
    "no use of the result": lambda y, t: mse(y, t) + 0 * Exp.apply(y).detach().mean(),
}


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 4)
    )


def batch() -> tuple[Tensor, Tensor]:
    return lucid.randn(5, 6), lucid.randn(5, 4)


def after_step(
    model: nn.Module, run: Callable[..., Tensor], inputs: tuple[Tensor, ...], scale: float = 1.0
) -> list[Any]:
    """Bytes of the loss, the gradients and the state after one step from the same generator."""
    lucid.manual_seed(7)
    model.zero_grad()
    loss = run(*inputs)
    (loss / scale).backward()
    grads = [p.grad for p in model.parameters()]
    return [
        loss.detach().numpy().tobytes(),
        [None if g is None else g.numpy().tobytes() for g in grads],
        {k: v.numpy().tobytes() for k, v in model.state_dict().items()},
        lucid.get_rng_state().tolist(),
    ]


def check_equal(
    model: nn.Module, loss: Callable[..., Tensor], inputs: tuple[Tensor, ...], segments: int = 1
) -> Any:
    """Three steps, eager and compiled, from the same state: all the same bits. Returns the step."""
    step = make_step(model, loss, segments=segments, fallback="error")
    for scale in (1.0, 3.0, 1.0):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        expected = after_step(model, lambda x, *extra: loss(model(x), *extra), inputs, scale)
        model.load_state_dict(state)
        assert after_step(model, step, inputs, scale) == expected
    assert "with_gradient" not in step.graph_dump()
    return step


@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize("name", LOSSES)
def test_equal_to_eager(name: str, segments: int) -> None:
    lucid.manual_seed(0)
    check_equal(network(), LOSSES[name], batch(), segments)


class Quantized(nn.Module):
    """A layer whose weight is rounded, trained straight through."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        weight = Round.apply(self.linear.weight, self.levels)
        return nn.functional.linear(x, weight, self.linear.bias)


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_inside_of_segments(segments: int) -> None:
    model = nn.Sequential(nn.Linear(6, 4), Quantized(3), nn.Tanh(), Quantized(5))
    step = check_equal(model, mse, batch(), segments)
    assert step.cache_info()["misses"] == 1
    model[3].levels = 2
    check_equal(model, mse, batch(), segments)


class Adversarial(nn.Module):
    """Features with two heads, the second behind a gradient reversal."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(6, 8)
        self.label = nn.Linear(8, 4)
        self.domain = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x).relu()
        return self.label(features), self.domain(Reverse.apply(features, 0.5))


def test_adversarial_training() -> None:
    x, t = batch()
    domain = lucid.randint(0, 2, (5,))

    def loss(y: tuple[Tensor, Tensor], t: Tensor, domain: Tensor) -> Tensor:
        return mse(y[0], t) + nn.functional.cross_entropy(y[1], domain)

    check_equal(Adversarial(), loss, (x, t, domain))


class Codebook(nn.Module):
    """Nearest codes by a Function that moves the codes in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("codes", lucid.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = Nearest.apply(self.linear(x), self.codes)
        return result


class Nearest(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        distances = (x.unsqueeze(1) - codes.unsqueeze(0)).square().sum(-1)
        chosen = codes[distances.argmin(1)]
        codes.mul_(0.9)
        codes.add_(x.mean(0) * 0.1)
        return chosen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


def test_a_forward_that_writes_a_buffer() -> None:
    check_equal(Codebook(), mse, batch())


class Weighted(nn.Module):
    """The gradient goes through a parameter that only the backward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.gain = nn.Parameter(lucid.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gain

        class Gain(Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x * 1.0

            @staticmethod
            def backward(ctx: Any, gradient: Tensor) -> Tensor:
                return gradient * gain

        result: Tensor = Gain.apply(self.linear(x))
        return result


def test_a_parameter_that_only_the_backward_reads() -> None:
    model = Weighted()
    x, t = batch()
    step = check_equal(model, mse, (x, t))
    assert model.gain.grad is None
    with lucid.no_grad():
        model.gain.mul_(2.0)
    expected = after_step(model, lambda x, t: mse(model(x), t), (x, t))
    assert after_step(model, step, (x, t)) == expected
    assert step.cache_info()["misses"] == 1


def test_an_outside_tensor_is_fetched_anew() -> None:
    model, (x, t) = network(), batch()
    step = check_equal(model, LOSSES["first output"], (x, t))
    global SCALE
    before = SCALE
    try:
        SCALE = before * 2
        again = make_step(model, LOSSES["first output"], fallback="error")
        model.eval()
        assert after_step(model, step, (x, t)) == after_step(model, again, (x, t))
    finally:
        SCALE = before


def test_none_is_no_gradient() -> None:
    class Half(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            return x * weight

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return gradient, None

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.weight = nn.Parameter(lucid.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = Half.apply(self.linear(x), self.weight)
            return result

    model = Layer()
    step = check_equal(model, mse, batch())
    assert model.weight.grad is None
    assert step.memory()["parameters"] == 4 * (6 * 4 + 4 + 4)


def test_warm_step_is_one_run_and_equal_models_share_it() -> None:
    x, t = batch()
    models = [network(), network()]
    steps = [make_step(m, LOSSES["used twice"], fallback="error") for m in models]
    steps[0](x, t).backward()
    before = counters()
    steps[1](x, t).backward()
    after = counters()
    assert after["compilations"] == before["compilations"]
    models[1].zero_grad()
    before = counters()
    steps[1](x, t).backward()
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]


def test_auxiliary_results() -> None:
    model = nn.Linear(6, 4)
    x, t = batch()

    def loss(y: Tensor, t: Tensor) -> Any:
        z = Clamp.apply(y)
        return mse(z, t), {"detached": z.detach(), "plain": z * 2}

    step = make_step(model, loss, has_aux=True, fallback="error")
    found, aux = step(x, t)
    found.backward()
    y = model(x)
    assert aux["detached"].tolist() == y.tolist()
    assert aux["plain"].tolist() == (y * 2).tolist()


def test_without_gradients() -> None:
    model, (x, t) = network().eval(), batch()
    step = make_step(model, LOSSES["all outputs"], fallback="error")
    with lucid.no_grad():
        assert step(x, t).item() == LOSSES["all outputs"](model(x), t).item()


# ------------------------------------------------------------ what the signature sees


def test_a_global_of_the_backward() -> None:
    global LIMIT
    model, (x, t) = nn.Linear(6, 4), batch()
    step = make_step(model, LOSSES["clamped"], fallback="error")
    before = LIMIT
    try:
        for limit in (0.05, 0.5, 0.05):
            LIMIT = limit
            expected = after_step(model, lambda x, t: LOSSES["clamped"](model(x), t), (x, t))
            assert after_step(model, step, (x, t)) == expected
    finally:
        LIMIT = before
    assert step.cache_info()["misses"] == 2


def test_a_closure_and_a_class_attribute_of_the_backward() -> None:
    factor = 2.0

    class Times(Function):
        power = 1.0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * factor * Times.power

    model, (x, t) = nn.Linear(6, 4), batch()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return mse(Times.apply(y), t)

    step = make_step(model, loss, fallback="error")
    found = []
    for now in ((2.0, 1.0), (3.0, 1.0), (3.0, 0.5), (2.0, 1.0)):
        factor, Times.power = now
        expected = after_step(model, lambda x, t: loss(model(x), t), (x, t))
        assert after_step(model, step, (x, t)) == expected
        found.append(str(expected))
    assert len(set(found)) == 3
    assert step.cache_info()["misses"] == 3


def test_another_backward() -> None:
    class Changed(Clamp):
        pass

    def doubled(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2

    model, (x, t) = nn.Linear(6, 4), batch()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return mse(Changed.apply(y), t)

    step = make_step(model, loss, fallback="error")
    first = after_step(model, step, (x, t))
    Changed.backward = staticmethod(doubled)  # type: ignore[method-assign]
    second = after_step(model, step, (x, t))
    assert second == after_step(model, lambda x, t: loss(model(x), t), (x, t))
    assert second != first


# ------------------------------------------------------------ refusals and failures


class Asking(Function):
    """Computes with NumPy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return lucid.tensor(np.tanh(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Branching(Clamp):
    """Decides by a value of its gradient."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient if gradient.sum() > 0 else -gradient


@pytest.mark.parametrize(("function", "where"), [(Asking, "forward"), (Branching, "backward")])
def test_one_that_asks_for_values_runs_eagerly(function: Any, where: str) -> None:
    model, (x, t) = nn.Linear(6, 4), batch()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return mse(function.apply(y), t)

    step = make_step(model, loss, fallback="warn")
    pointer = f"{function.__name__}.{where} can work on values as a lucid.compile.custom_op"
    with pytest.warns(FallbackWarning, match=pointer):
        found = after_step(model, step, (x, t))
    assert found == after_step(model, lambda x, t: loss(model(x), t), (x, t))
    assert __file__ in step.explain()


def test_an_exception_of_the_backward_passes_through() -> None:
    class Broken(Clamp):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise KeyError("mine")

    model, (x, t) = network(), batch()
    state = {k: v.numpy().tobytes() for k, v in model.state_dict().items()}
    generator = lucid.get_rng_state().tolist()
    step = make_step(model, lambda y, t: mse(Broken.apply(y), t), fallback="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                step(x, t)
    assert {k: v.numpy().tobytes() for k, v in model.state_dict().items()} == state
    assert lucid.get_rng_state().tolist() == generator
    assert not lucid._C.is_tracing()
    assert all(p.grad is None for p in model.parameters())
    check_equal(model, LOSSES["clamped"], (x, t))


def test_a_tensor_that_outlives_its_trace_is_refused() -> None:
    kept: list[Tensor] = []

    class Keeping(Clamp):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * kept[0] if kept else x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            kept.append(gradient)
            return gradient

    model, (x, t) = nn.Linear(6, 4), batch()
    step = make_step(model, lambda y, t: mse(Keeping.apply(y), t), fallback="error")
    with pytest.raises(lucid.TraceError, match="the step changed variable kept"):
        step(x, t)
