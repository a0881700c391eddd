"""Steps that outlive, or are outlived: changed models, cleared caches, threads, errors, forks."""

from __future__ import annotations

import copy
import dataclasses
import gc
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import pytest
from lucid import Tensor
from lucid.compile import FallbackWarning, RecompileWarning, cache_info, make_step
from test_bit_equality import bits, grad_bits, state_bits
from zoo import floats, labels


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Six rows of eight features and their classes."""
    return floats(seed, 6, 8), labels(seed, 4, 6)


def make_model(seed: int = 1) -> nn.Sequential:
    """Linear, batch norm and linear, whose values depend on the seed only."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    for i, parameter in enumerate(model.parameters()):
        parameter.data = floats(100 * seed + i, *parameter.shape)
    return model


def outcome(model: nn.Module, loss: Tensor) -> tuple[Any, ...]:
    """Loss, gradients and state after a backward; the gradients are dropped."""
    loss.backward()
    found = bits(loss), grad_bits(model), state_bits(model)
    model.zero_grad()
    return found


# ------------------------------------------------------------ a model that changes its structure


class Reading(nn.Module):
    """Has an attribute that may become a module, and one that may come into being."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.then: Any = F.relu

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.then(self.linear(x))
        return y * self.extra if hasattr(self, "extra") else y


STRUCTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any]]] = {
    "layer appended": (make_model, lambda m: m.append(nn.Linear(4, 4))),
    "layer removed": (make_model, lambda m: m.__delitem__(1)),
    "layer replaced": (make_model, lambda m: m.__setitem__(2, nn.Tanh())),
    "layer replaced by one of its kind": (make_model, lambda m: m.__setitem__(0, nn.Linear(8, 16))),
    "layer inserted": (make_model, lambda m: m.insert(1, nn.Linear(16, 16))),
    "parameter registered": (
        Reading,
        lambda m: m.register_parameter("extra", nn.Parameter(floats(5, 4))),
    ),
    "parameter assigned": (Reading, lambda m: setattr(m, "extra", nn.Parameter(floats(5, 4)))),
    "buffer registered": (Reading, lambda m: m.register_buffer("extra", floats(5, 4))),
    "tensor assigned": (Reading, lambda m: setattr(m, "extra", floats(5, 4))),
    "attribute becomes a module": (Reading, lambda m: setattr(m, "then", nn.Linear(4, 4))),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_changed_structure(name: str) -> None:
    lucid.manual_seed(4)
    make, change = STRUCTURES[name]
    model = make()
    step = make_step(model, F.cross_entropy, fallback="error")
    x, t = batch()
    outcome(model, step(x, t))
    change(model)
    twin = copy.deepcopy(model)
    for _ in range(2):
        wanted = outcome(twin, F.cross_entropy(twin(x), t))
        assert outcome(model, step(x, t)) == wanted
    assert step.cache_info()["entries"] == 2


# ------------------------------------------------------------ losses that outlive the rest


@pytest.mark.parametrize("segments", [1, 3])
def test_loss_outlives_caches_step_and_model(segments: int) -> None:
    twin = make_model()
    x, t = batch()
    F.cross_entropy(twin(x), t).backward()
    wanted = bits(twin[0].weight.grad)

    def loss_and_weight() -> tuple[Tensor, Tensor]:
        model = make_model()
        step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
        loss = step(x, t)
        step.clear_cache()
        return loss, model[0].weight

    loss, weight = loss_and_weight()
    lucid.compile.clear_cache()
    gc.collect()
    loss.backward()
    assert bits(weight.grad) == wanted


@pytest.mark.parametrize("segments", [1, 3])
def test_loss_outlives_every_parameter(segments: int) -> None:
    loss = make_step(make_model(), F.cross_entropy, segments=segments, fallback="error")(*batch())
    gc.collect()
    loss.backward()


def test_step_caches_are_bounded() -> None:
    model = nn.Linear(4, 1)
    step = make_step(model, lambda y, k: (y * k).sum(), fallback="error")
    x = floats(1, 3, 4)
    kept = step(x, -1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        for k in range(70):
            assert step(x, float(k)).item() == (model(x) * float(k)).sum().item()
        assert step.cache_info() == {"entries": 64, "hits": 0, "misses": 71, "max_entries": 64}
        kept.backward()
        assert model.weight.grad.tolist() == [(-x.sum(0)).tolist()]
        assert step(x, 0.0).item() == 0.0
        assert step(x, 69.0).item() == (model(x) * 69.0).sum().item()
    info = step.cache_info()
    assert (info["entries"], info["hits"], info["misses"]) == (64, 1, 72)


def test_process_cache_is_bounded() -> None:
    model = nn.Linear(4, 1)
    x = floats(1, 3, 4)

    def step_of(k: float) -> Any:
        return make_step(model, lambda y: (y * k).sum(), fallback="error")

    first = step_of(-1.0)
    kept = first(x)
    for k in range(cache_info()["max_entries"] + 10):
        step_of(float(k))(x)
    assert cache_info()["max_entries"] == 256
    assert cache_info()["entries"] == 256
    kept.backward()
    assert model.weight.grad.tolist() == [(-x.sum(0)).tolist()]
    assert first(x).item() == step_of(-1.0)(x).item() == (model(x) * -1.0).sum().item()


# ------------------------------------------------------------ backward, again and through


@pytest.mark.parametrize("segments", [1, 3])
def test_retained_graph(segments: int) -> None:
    model, twin = make_model(), make_model()
    step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
    losses = step(*batch()), F.cross_entropy(twin(batch()[0]), batch()[1])
    for loss in losses:
        loss.backward(retain_graph=True)
        (loss * 3.0).backward(retain_graph=True)
        loss.backward()
    assert grad_bits(model) == grad_bits(twin)
    with pytest.raises(lucid.AutogradError, match="pass retain_graph=True to that one"):
        losses[0].backward()
    assert grad_bits(model) == grad_bits(twin)


@pytest.mark.parametrize("segments", [1, 3])
def test_second_derivative_is_refused(segments: int) -> None:
    model = make_model()
    loss = make_step(model, F.cross_entropy, segments=segments, fallback="error")(*batch())
    text = "the gradients of a compiled step have no history"
    with pytest.raises(lucid.AutogradError, match=text):
        loss.backward(create_graph=True)
    with pytest.raises(lucid.AutogradError, match=text):
        lucid.autograd.grad(loss, list(model.parameters()), create_graph=True)
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("segments", [1, 2, 4])
@pytest.mark.parametrize("place", [0, 3])
def test_hook_that_raises(segments: int, place: int) -> None:
    model, twin = make_model(), make_model()
    step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
    x, t = batch()
    wanted = outcome(twin, F.cross_entropy(twin(x), t))
    assert outcome(model, step(x, t)) == wanted
    step(x, t).backward()
    F.cross_entropy(twin(x), t).backward()
    before = grad_bits(model)
    handle = model[place].weight.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(x, t).backward()
    F.cross_entropy(twin(x), t)
    assert grad_bits(model) == before
    handle.remove()
    assert outcome(model, step(x, t)) == outcome(twin, F.cross_entropy(twin(x), t))


# ------------------------------------------------------------ steps in steps


def test_step_inside_the_loss_of_another() -> None:
    model = make_model()
    x, t = batch()
    inner = make_step(model, F.cross_entropy, fallback="warn")
    text = "a compiled step was called inside the trace of another; call its model instead\n  at "

    def loss_fn(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t) + inner(x, t)

    for _ in range(2):  # the inner step is cold, then warm
        outer = make_step(model, loss_fn, fallback="error")
        before = state_bits(model)
        with pytest.raises(lucid.TraceError, match=text):
            outer(x, t)
        assert state_bits(model) == before
        assert not lucid._C.is_tracing()
        assert not inner.eager_only
        inner(x, t).backward()
    twin = copy.deepcopy(model)
    model.zero_grad()
    with pytest.warns(FallbackWarning, match=text):
        loss = make_step(model, loss_fn, fallback="warn")(x, t)
    wanted = F.cross_entropy(twin(x), t) + F.cross_entropy(twin(x), t)
    assert outcome(model, loss) == outcome(twin, wanted)


def test_step_calls_itself_in_its_loss() -> None:
    model = make_model()
    x, t = batch()
    steps: list[Any] = []
    step = make_step(model, lambda y, t: F.cross_entropy(y, t) + steps[0](x, t), fallback="error")
    steps.append(step)
    with pytest.raises(lucid.TraceError, match="inside the trace of another"):
        step(x, t)


def test_step_inside_a_gradient_hook() -> None:
    model, other = make_model(1), make_model(2)
    inner = make_step(other, F.cross_entropy, fallback="error")
    outer = make_step(model, F.cross_entropy, fallback="error")
    losses = []

    def hook(grad: Tensor) -> Tensor:
        losses.append(inner(*batch(3)))  # gradients are off in a hook
        with lucid.enable_grad():
            inner(*batch(3)).backward()
        return grad * 2.0

    outer(*batch()).backward()
    wanted = bits(model[0].weight.grad * 2.0)
    model.zero_grad()
    model[0].weight.register_hook(hook)
    for _ in range(2):
        outer(*batch()).backward()
        assert bits(model[0].weight.grad) == wanted
        model.zero_grad()
    assert [loss.requires_grad for loss in losses] == [False, False]
    twin = make_model(2)
    for _ in range(2):
        twin(batch(3)[0])
        F.cross_entropy(twin(batch(3)[0]), batch(3)[1]).backward()
    assert grad_bits(other) == grad_bits(twin)


def test_step_called_again_in_its_own_backward() -> None:
    model, twin = make_model(), make_model()
    step = make_step(model, F.cross_entropy, fallback="error")
    is_inside = []

    def hook(grad: Tensor) -> None:
        if is_inside:
            return
        is_inside.append(True)
        with lucid.enable_grad():
            step(*batch(5)).backward()

    model[0].weight.register_hook(hook)
    step(*batch()).backward()
    losses = [F.cross_entropy(twin(batch(i)[0]), batch(i)[1]) for i in (0, 5)]
    for loss in reversed(losses):
        loss.backward()
    assert grad_bits(model) == grad_bits(twin)


# ------------------------------------------------------------ interrupts and forks


@dataclasses.dataclass
class Options:
    """What a forward may change."""

    count: int = 0
    seen: list[Any] = dataclasses.field(default_factory=list)


class Interrupted(nn.Module):
    """Raises in its forward after it has changed all that it can."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.linear = nn.Linear(8, 4)
        self.register_buffer("average", lucid.zeros(8))
        self.calls = [0]
        self.table: dict[str, Any] = {"nested": [1.0], "set": {1}, "options": Options()}
        self.last: Any = None
        self.error: BaseException | None = KeyboardInterrupt()

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.norm(x), 0.5)
        if self.error is not None:
            self.average = x.mean(0)
            self.calls.append(1)
            self.table["nested"].append(2.0)
            self.table["set"].add(2)
            self.table["options"].seen.append(y)
            self.table["options"].count += 1
            self.table["new"] = y
            self.last = y
            random.random()
            raise self.error
        return self.linear(y)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interrupt_while_tracing(error: type[BaseException]) -> None:
    model = Interrupted()
    model.error = error()
    step = make_step(model, F.cross_entropy, fallback="warn")
    before, generators = state_bits(model), (lucid.get_rng_state().tolist(), random.getstate())
    with pytest.raises(error):
        step(*batch())
    assert state_bits(model) == before
    assert (lucid.get_rng_state().tolist(), random.getstate()) == generators
    assert (model.calls, model.last) == ([0], None)
    assert model.table == {"nested": [1.0], "set": {1}, "options": Options()}
    assert not lucid._C.is_tracing()
    assert not model.average.is_symbolic
    assert step.cache_info()["entries"] == 0
    model.error = None
    twin = copy.deepcopy(model)
    state = lucid.get_rng_state()
    found = outcome(model, step(*batch()))
    lucid.set_rng_state(state)
    assert found == outcome(twin, F.cross_entropy(twin(batch()[0]), batch()[1]))
    assert not step.eager_only


FORK = """
import os, signal
import lucid, lucid.nn as nn, lucid.nn.functional as F
from lucid.compile import make_step

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64))
step = make_step(model, F.cross_entropy, fallback="error")
x, t = lucid.randn(512, 256), lucid.randint(0, 64, (512,))
wanted = step(x, t)
wanted.backward()
grad = model[0].weight.grad.numpy().tobytes()
process = os.fork()
if process == 0:
    signal.alarm(30)
    model.zero_grad()
    loss = step(x, t)
    loss.backward()
    good = loss.item() == wanted.item() and model[0].weight.grad.numpy().tobytes() == grad
    good = good and F.cross_entropy(model(x), t).item() == wanted.item()
    fresh = make_step(model, lambda y, t: F.cross_entropy(y, t) * 2.0, fallback="error")
    good = good and fresh(x, t).item() == (wanted * 2.0).item()
    os._exit(0 if good else 3)
assert os.waitpid(process, 0)[1] == 0
assert step(x, t).item() == wanted.item()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fork without exec is for Linux only")
def test_fork_after_use() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
