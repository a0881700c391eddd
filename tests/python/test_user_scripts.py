"""Training scripts as a user writes them: the compiled run equals the eager one bit for bit."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor, autograd
from lucid.compile import make_step
from zoo import floats, labels

MakeStep = Callable[[nn.Module, Callable[..., Any]], Callable[..., Tensor]]


def eager_step(model: nn.Module, loss_fn: Callable[..., Any]) -> Callable[..., Tensor]:
    """What a compiled step stands for."""
    return lambda *args: loss_fn(model(args[0]), *args[1:])


def compiled_step(model: nn.Module, loss_fn: Callable[..., Any]) -> Callable[..., Tensor]:
    """A step that raises where it cannot be compiled."""
    return make_step(model, loss_fn, fallback="error")


def seen(value: Any) -> Any:
    """Tensors as dtype, shape and bytes, also inside lists, dicts and modules."""
    if isinstance(value, Tensor):
        return (value.dtype.name, value.shape, value.detach().numpy().tobytes())
    if isinstance(value, nn.Module):
        grads = {k: seen(p.grad) for k, p in value.named_parameters()}
        return (seen(value.state_dict()), grads)
    if isinstance(value, dict):
        return {k: seen(v) for k, v in value.items()}
    return [seen(v) for v in value] if isinstance(value, (list, tuple)) else value


def train(
    make: MakeStep,
    model: nn.Module,
    loss_fn: Callable[..., Any],
    batches: list[tuple[Any, ...]],
    each: Callable[[int], Any] = lambda i: None,
) -> list[Any]:
    """Adam over the batches; ``each(i)`` runs between backward and update."""
    step, optimizer = make(model, loss_fn), optim.Adam(model.parameters(), lr=0.01)
    found = []
    for i, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = step(*batch)
        loss.backward()
        found.append(seen([loss, model]))
        each(i)
        optimizer.step()
    return found


def mlp(seed: int = 0, inputs: int = 4, outputs: int = 3) -> nn.Module:
    """Two linear layers that depend on the seed only."""
    lucid.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs))


def rows(count: int = 4, width: int = 4) -> list[tuple[Any, ...]]:
    """Batches of inputs and classes."""
    return [(floats(i, 5, width), labels(i, 3, 5)) for i in range(count)]


class Weighted(nn.Module):
    """Two weights, a buffer and a forward of the row's own."""

    total: Tensor

    def __init__(self, forward: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(lucid.tensor([1.0, 2.0]))
        self.register_buffer("total", lucid.tensor([3.0, 4.0]))
        self.calls = forward

    def forward(self, x: Any) -> Tensor:
        return self.calls(self, x)


def repeat(make: MakeStep, model: nn.Module, between: Callable[[int], Any], n: int = 3) -> Any:
    """Losses, gradients and state of ``n`` steps on one input, with changes in between."""
    step, found = make(model, lambda y: y.sum()), []
    for i in range(n):
        model.zero_grad()
        loss = step(lucid.tensor([3.0, 4.0]))
        if loss.requires_grad:
            loss.backward()
        found.append(seen([loss, model]))
        between(i)
    return found


# ------------------------------------------------------------ whole scripts


def gan(make: MakeStep) -> Any:
    """Two networks that stand in each other's losses, frozen and thawed in turn."""
    generator, critic = mlp(1, 3, 4), mlp(2, 4, 1)
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (generator, critic)]
    learn_real = make(critic, lambda y, fake: (F.softplus(-y) + F.softplus(critic(fake))).mean())
    learn_fake = make(generator, lambda fake: F.softplus(-critic(fake)).mean())
    found = []
    for i in range(4):
        noise = floats(i, 5, 3)
        critic.requires_grad_(True)
        optimizers[1].zero_grad()
        first = learn_real(floats(50 + i, 5, 4), generator(noise).detach())
        first.backward()
        optimizers[1].step()
        critic.requires_grad_(False)
        optimizers[0].zero_grad()
        second = learn_fake(noise)
        second.backward()
        optimizers[0].step()
        found.append(seen([first, second, generator, critic]))
    return found


def gradient_penalty(make: MakeStep) -> Any:
    """autograd.grad inside the loss, with its history."""
    critic = mlp(0, 4, 1)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = critic

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.critic(x), x

    def loss(output: tuple[Tensor, Tensor]) -> Tensor:
        y, x = output
        (slope,) = autograd.grad(y.sum(), x, create_graph=True)
        assert slope is not None
        return y.mean() + ((slope.norm(dim=1) - 1.0) ** 2).mean()

    return train(make, Both(), loss, [(floats(i, 5, 4).requires_grad_(),) for i in range(3)])


def gradient_as_constant(make: MakeStep) -> Any:
    """autograd.grad without create_graph has no history: its result is a constant."""
    model = mlp()
    first = model[0].weight  # type: ignore[index]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        (slope,) = autograd.grad(y.pow(2).sum(), first, retain_graph=True)
        return F.cross_entropy(y, t) + (slope * first).sum()

    return train(make, model, loss, rows())


def meta_learning(make: MakeStep) -> Any:
    """Two inner updates of which the outer loss takes the gradient."""

    def forward(m: Weighted, x: Tensor) -> Tensor:
        w = m.weight
        for _ in range(2):
            inner = (x[:3] @ w).pow(2).mean()
            (slope,) = autograd.grad(inner, w, create_graph=True)
            w = w - 0.1 * slope  # type: ignore[operator]
        return (x[3:] @ w).pow(2).mean()

    return train(make, Weighted(forward), lambda y: y, [(floats(i, 6, 2),) for i in range(3)])


def moving_average_teacher(make: MakeStep) -> Any:
    """A frozen copy in the loss that follows the model through ``data``."""
    model = mlp()
    teacher = copy.deepcopy(model).requires_grad_(False)

    def follow(i: int) -> None:
        for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
            mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)

    loss = lambda y, x: F.mse_loss(y, teacher(x))  # noqa: E731
    return train(make, model, loss, [(floats(i, 5, 4),) * 2 for i in range(4)], follow)


def sharpness_aware(make: MakeStep) -> Any:
    """Two steps an update, the weights moved in place in between."""
    model, found = mlp(), []
    step, optimizer = make(model, F.cross_entropy), optim.SGD(model.parameters(), lr=0.1)
    for batch in rows():
        optimizer.zero_grad()
        step(*batch).backward()
        moves = [0.05 * p.grad for p in model.parameters()]  # type: ignore[operator]
        with lucid.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        loss = step(*batch)
        loss.backward()
        with lucid.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        found.append(seen([loss, model]))
    return found


def accumulate_clip_schedule(make: MakeStep) -> Any:
    """Three micro-batches an update, clipped, with a falling rate."""
    model, found = mlp(), []
    step, optimizer = make(model, F.cross_entropy), optim.AdamW(model.parameters(), lr=0.05)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for i in range(4):
        optimizer.zero_grad()
        for x, t in rows(3):
            (step(x * (i + 1), t) / 3).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        found.append(seen([norm, model, schedule.get_last_lr()]))
    return found


def resume_from_a_checkpoint(make: MakeStep) -> Any:
    """Model and optimizer go back to a checkpoint; pickled and copied models train on."""
    model = nn.Sequential(mlp(), nn.BatchNorm1d(3))
    optimizer = optim.Adam(model.parameters(), lr=0.05, amsgrad=True)
    step, found = make(model, F.cross_entropy), []

    def go(step: Callable[..., Tensor], optimizer: optim.Optimizer) -> None:
        for batch in rows(2):
            optimizer.zero_grad()
            loss = step(*batch)
            loss.backward()
            optimizer.step()
            found.append(seen(loss))

    go(step, optimizer)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    go(step, optimizer)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(copy.deepcopy(saved[1]))
    again = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    go(step, optimizer)
    for other in again:
        fresh = optim.Adam(other.parameters(), lr=0.5, amsgrad=True)
        fresh.load_state_dict(copy.deepcopy(saved[1]))
        go(make(other, F.cross_entropy), fresh)
    assert found[2:4] == found[4:6] == found[6:8] == found[8:10]
    return found


def vector_quantizer(make: MakeStep) -> Any:
    """A codebook moved in place without gradients, and a straight-through estimator."""

    class Quantizer(nn.Module):
        codes: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.encode = mlp(0, 4, 2)
            self.register_buffer("codes", floats(3, 5, 2))

        def forward(self, x: Tensor) -> Tensor:
            z = self.encode(x)
            nearest = ((z[:, None] - self.codes[None]) ** 2).sum(-1).argmin(1)
            chosen = self.codes[nearest]
            with lucid.no_grad():
                hot = F.one_hot(nearest, 5).float()
                self.codes.add_(0.1 * (hot.t() @ z - self.codes * hot.sum(0)[:, None]))
            return z + (chosen - z).detach()

    loss = lambda y: y.pow(2).mean()  # noqa: E731
    return train(make, Quantizer(), loss, [(floats(i, 6, 4),) for i in range(4)])


def mixture_of_experts(make: MakeStep) -> Any:
    """topk, scatter and a python sum over a ModuleList."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([mlp(k) for k in range(3)])
            self.gate = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores = self.gate(x)
            best, which = scores.topk(2, dim=-1)
            share = lucid.zeros_like(scores).scatter(1, which, F.softmax(best, -1))
            parts = [share[:, k : k + 1] * e(x) for k, e in enumerate(self.experts)]
            return sum(parts[1:], parts[0])

    lucid.manual_seed(1)
    return train(make, Mixture(), F.cross_entropy, rows())


def penalty_from_named_parameters(make: MakeStep) -> Any:
    """The loss reads the model's parameters and constants that are replaced between steps."""
    model = mlp()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}

    def keep(i: int) -> None:
        for n, p in model.named_parameters():
            old[n] = p.detach().clone()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        parts = [((p - old[n]) ** 2).sum() for n, p in model.named_parameters()]
        return F.cross_entropy(y, t) + sum(parts[1:], parts[0])

    return train(make, model, loss, rows(), keep)


def seeds_of_backward(make: MakeStep) -> Any:
    """Scaled, squared, cancelled and nan seeds, and partial backwards."""
    model, found = mlp(), []
    step, (x, t) = make(model, F.cross_entropy), rows(1)[0]
    uses: list[Callable[[Tensor], Any]] = [
        lambda loss: loss.backward(),
        lambda loss: (loss * 3.0).backward(),
        lambda loss: (loss * loss).backward(),
        lambda loss: (loss - loss).backward(),
        lambda loss: (loss * float("nan")).backward(),
        lambda loss: lucid.log(loss).backward(),
        lambda loss: loss.backward(lucid.tensor(0.0)),
        lambda loss: loss.backward(inputs=[model[2].bias]),  # type: ignore[index]
    ]
    for use in uses:
        model.zero_grad()
        use(step(x, t))
        found.append(seen(model))
    return found


def freeze_and_thaw(make: MakeStep) -> Any:
    """Layers and single parameters are frozen and thawed midway."""
    model = mlp()
    first, bias = model[0], model[2].bias  # type: ignore[index]
    changes = {
        1: lambda: first.requires_grad_(False),
        3: lambda: first.requires_grad_(True),
        5: lambda: setattr(bias, "requires_grad", False),
        6: lambda: setattr(bias, "requires_grad", True),
    }
    return train(make, model, F.cross_entropy, rows(8), lambda i: changes.get(i, lambda: None)())


# ------------------------------------------------------------ state


def buffer_assigned(make: MakeStep) -> Any:
    """A buffer is assigned and then read; a counter and a queue are moved in place."""

    def forward(m: Weighted, x: Tensor) -> Tensor:
        m.total = m.total * 0.5 + x.detach()
        return x * m.weight * m.total

    return repeat(make, Weighted(forward), lambda i: None)


def buffer_filled(make: MakeStep) -> Any:
    """A buffer that was registered as None is assigned by each call."""

    def forward(m: Weighted, x: Tensor) -> Tensor:
        m.last = x * 2.0
        return x * m.weight * m.last

    model = Weighted(forward)
    model.register_buffer("last", None)
    return repeat(make, model, lambda i: None)


def buffer_held_while_assigned(make: MakeStep) -> Any:
    """The forward holds the old buffer while it assigns a new one."""

    def forward(m: Weighted, x: Tensor) -> Tensor:
        old = m.total
        m.total = m.total * 2.0 + x.detach()
        return x * m.weight * old + m.total

    return repeat(make, Weighted(forward), lambda i: None)


def attribute_of_an_object(make: MakeStep) -> Any:
    """The forward reads numbers of an object that is no module."""
    options = types.SimpleNamespace(gain=2.0)
    model = Weighted(lambda m, x: x * m.weight * options.gain)
    return repeat(make, model, lambda i: setattr(options, "gain", options.gain + 1.0))


def attribute_of_a_loss_object(make: MakeStep) -> Any:
    """The loss is an object whose number changes."""

    class Loss:
        def __init__(self) -> None:
            self.gain = 1.0

        def __call__(self, y: Tensor) -> Tensor:
            return y.sum() * self.gain

    loss, model = Loss(), Weighted(lambda m, x: x * m.weight)
    step, found = make(model, loss), []
    for gain in (1.0, 2.0, 5.0):
        loss.gain = gain
        found.append(seen(step(lucid.tensor([3.0, 4.0]))))
    return found


def inputs_that_alias(make: MakeStep) -> Any:
    """Two arguments are one tensor, and it is changed in place."""

    def forward(m: Weighted, pair: tuple[Tensor, Tensor]) -> Tensor:
        pair[0].add_(1.0)
        return pair[1] * m.weight

    step, found = make(Weighted(forward), lambda y: y.sum()), []
    a, b = lucid.zeros(2), lucid.ones(2)
    for pair in ((a, b), (a, a), (a, a.detach())):
        found.append(seen([step(pair), a, b]))
    return found


def penalty_at_a_new_leaf(make: MakeStep) -> Any:
    """The usual gradient penalty: a leaf is made inside the loss."""
    critic = mlp(0, 4, 1)

    def loss(y: Tensor, fake: Tensor) -> Tensor:
        between = (0.5 * fake).detach().requires_grad_()
        (slope,) = autograd.grad(critic(between).sum(), between, create_graph=True)
        assert slope is not None
        return y.mean() + ((slope.norm(dim=1) - 1.0) ** 2).mean()

    return train(make, critic, loss, [(floats(i, 5, 4), floats(i + 9, 5, 4)) for i in range(3)])


SCRIPTS = [
    freeze_and_thaw,
    buffer_held_while_assigned,
    attribute_of_an_object,
    attribute_of_a_loss_object,
    inputs_that_alias,
    penalty_at_a_new_leaf,
    gan,
    gradient_penalty,
    gradient_as_constant,
    meta_learning,
    moving_average_teacher,
    sharpness_aware,
    accumulate_clip_schedule,
    resume_from_a_checkpoint,
    vector_quantizer,
    mixture_of_experts,
    penalty_from_named_parameters,
    seeds_of_backward,
    buffer_assigned,
    buffer_filled,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
def test_script(script: Callable[[MakeStep], Any]) -> None:
    assert script(compiled_step) == script(eager_step)


# ------------------------------------------------------------ what a trace refuses, unharmed


def _swap(m: Weighted, x: Tensor) -> Tensor:
    m.total, m.other = m.other, m.total
    return x * m.weight * m.total


def _drop(m: Weighted, x: Tensor) -> Tensor:
    y = x * m.weight * m.total
    m.total = None  # type: ignore[assignment]
    return y


def _grow(m: Weighted, x: Tensor) -> Tensor:
    m.total = lucid.cat([m.total, x])
    return x * m.weight * m.total.sum()


def _seed(m: Weighted, x: Tensor) -> Tensor:
    lucid.manual_seed(3)
    return F.dropout(x * m.weight)


def _restore(m: Weighted, x: Tensor) -> Tensor:
    lucid.set_rng_state(lucid.tensor([1, 0]))
    return F.dropout(x * m.weight)


BUFFER = (
    "Weighted.{name}: a compiled step can give a buffer only a new value that it has computed, of "
    "the same shape and dtype: got {got} for {old}; assign it outside of the step, or use copy_"
)
PAIR = "float32[2] from outside"
GENERATOR = (
    "{op}: a compiled step cannot set a generator's state, its runs only move it on; "
    "set it before the step is called"
)


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (_swap, BUFFER.format(name="total", got=PAIR, old=PAIR)),
        (_drop, BUFFER.format(name="total", got="None", old=PAIR)),
        (_grow, BUFFER.format(name="total", got="float32[4]", old=PAIR)),
        (_seed, GENERATOR.format(op="manual_seed")),
        (_restore, GENERATOR.format(op="set_rng_state")),
    ],
    ids=["swap", "drop", "grow", "seed", "restore"],
)
def test_refused(forward: Callable[[Any, Tensor], Tensor], text: str) -> None:
    model = Weighted(forward)
    model.register_buffer("other", lucid.ones(2))
    before, generator = seen(model), lucid.get_rng_state().tolist()
    buffers = dict(model.named_buffers())
    with pytest.raises(lucid.TraceError) as caught:
        compiled_step(model, lambda y: y.sum())(lucid.tensor([3.0, 4.0]))
    message, _, place = str(caught.value).partition("\n  at ")
    assert message == text
    assert place.rpartition(":")[0] == __file__
    assert seen(model) == before
    assert all(model.get_buffer(k) is v for k, v in buffers.items())
    assert lucid.get_rng_state().tolist() == generator
    # The same model without the guard of "error" trains eagerly.
    with pytest.warns(lucid.compile.FallbackWarning):
        make_step(model, lambda y: y.sum(), fallback="warn")(lucid.tensor([3.0, 4.0])).backward()


# ------------------------------------------------------------ single answers


def test_median_shares_its_gradient_among_equal_elements() -> None:
    """As PyTorch does for the median of all elements; along an axis it goes to the index."""
    x = lucid.tensor([1.0, 1.0, 1.0, 0.0, 2.0, 1.0]).requires_grad_()
    x.median().backward()
    assert x.grad.tolist() == [0.25, 0.25, 0.25, 0.0, 0.0, 0.25]
    x.grad = None
    x.median(0).values.backward()
    assert x.grad is not None
    assert sorted(x.grad.tolist()) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert lucid.tensor([1.0, float("nan"), 0.0]).median().isnan().item()
    assert lucid.tensor([3, 1, 2]).median().item() == 2


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: F.interpolate(lucid.ones(1, 1, 2, 2), size=(0, 1)),
            lucid.ShapeError,
            "interpolate: spatial sizes must be positive: got (2, 2) to (0, 1); give a larger "
            "input, size or scale_factor",
        ),
        (
            lambda: F.interpolate(lucid.ones(1, 1, 2, 2), scale_factor=0.0),
            lucid.ShapeError,
            "interpolate: spatial sizes must be positive: got (2, 2) to (0, 0); give a larger "
            "input, size or scale_factor",
        ),
        (
            lambda: F.one_hot(lucid.tensor([-1, -2])),
            lucid.OutOfRangeError,
            "one_hot: a class is negative: the largest is -1; use classes from 0 on",
        ),
    ],
)
def test_bad_calls(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def test_arguments_that_share_memory_through_a_view() -> None:
    def forward(m: Weighted, pair: tuple[Tensor, Tensor]) -> Tensor:
        pair[0].add_(1.0)
        return pair[1] * m.weight

    a = lucid.zeros(2)
    with pytest.raises(lucid.TraceError) as caught:
        compiled_step(Weighted(forward), lambda y: y.sum())((a, a.view(2)))
    assert str(caught.value).partition("\n")[0] == (
        "make_step: argument 0 of the step was changed in place and shares memory with another "
        "argument; clone it first"
    )
    assert a.tolist() == [0.0, 0.0]
