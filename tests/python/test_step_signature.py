"""What gives a step a new executable, what does not, and that the right numbers come out."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import cache_info, counters, make_step
from zoo import floats, labels

FACTOR = 1.0


@dataclasses.dataclass
class Options:
    """Read by the model; compared by content."""

    gain: float = 1.0


class Model(nn.Module):
    """Reads attributes of every watched kind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.dropout = nn.Dropout(0.0)
        self.scale = 1.0
        self.table = {"gains": [1.0, 2.0]}
        self.options = Options()

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(self.linear(x)) * self.scale
        return y * self.table["gains"][0] * self.options.gain


@dataclasses.dataclass
class Run:
    """A model, its compiled step and the same thing in eager code."""

    model: Model
    box: list[float]
    step: Callable[..., Tensor]

    def eager(self) -> Tensor:
        return F.cross_entropy(self.model(self.x), self.t) * self.box[0] * FACTOR

    @property
    def x(self) -> Tensor:
        return floats(1, 5, 4)

    @property
    def t(self) -> Tensor:
        return labels(1, 3, 5)

    def __call__(self) -> float:
        return float(self.step(self.x, self.t).item())


def make_run() -> Run:
    """A fresh run whose loss closes over a list and reads a global."""
    lucid.manual_seed(5)
    model, box = Model(), [1.0]
    step = make_step(model, lambda y, t: F.cross_entropy(y, t) * box[0] * FACTOR, fallback="error")
    return Run(model, box, step)


def entries(run: Run) -> int:
    """Number of signatures of the step."""
    return run.step.cache_info()["entries"]  # type: ignore[attr-defined, no-any-return]


def _set_global(run: Run) -> None:
    global FACTOR
    FACTOR = 3.0


NEW_ENTRY: dict[str, Callable[[Run], Any]] = {
    "attribute": lambda run: setattr(run.model, "scale", 2.0),
    "attribute of another type": lambda run: setattr(run.model, "scale", 1),
    "attribute of a child": lambda run: setattr(run.model.dropout, "p", 0.5),
    "nested list": lambda run: run.model.table["gains"].__setitem__(0, 5.0),
    "dataclass": lambda run: setattr(run.model.options, "gain", 4.0),
    "closure list": lambda run: run.box.__setitem__(0, 2.0),
    "global": _set_global,
    "eval": lambda run: run.model.eval(),
    "frozen parameter": lambda run: run.model.linear.bias.requires_grad_(False),
    "replaced module": lambda run: setattr(run.model, "linear", nn.Linear(4, 3)),
    "replaced parameter of another shape": lambda run: setattr(
        run.model, "linear", nn.Linear(4, 6)
    ),
    "removed bias": lambda run: setattr(run.model.linear, "bias", None),
    "hook": lambda run: run.model.linear.register_forward_hook(lambda m, a, y: y * 2.0),
    "pre-hook": lambda run: run.model.register_forward_pre_hook(lambda m, a: (a[0] + 1.0,)),
    "backward hook": lambda run: run.model.linear.register_full_backward_hook(lambda *args: None),
}


@pytest.mark.parametrize("name", NEW_ENTRY)
def test_new_entry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.FACTOR", 1.0)
    run = make_run()
    assert run() == run.eager().item()
    assert run() == run.eager().item()
    assert entries(run) == 1
    NEW_ENTRY[name](run)
    state = lucid.get_rng_state()
    wanted = run.eager().item()
    lucid.set_rng_state(state)
    assert run() == wanted
    assert entries(run) == 2
    assert "another" in run.step.explain()  # type: ignore[attr-defined]


def _optimizer_step(run: Run) -> None:
    run.step(run.x, run.t).backward()
    optim.SGD(run.model.parameters(), lr=0.1).step()


def _load(run: Run) -> None:
    other = Model()
    run.model.load_state_dict(other.state_dict())


def _replace_parameter(run: Run) -> None:
    run.model.linear.weight = nn.Parameter(floats(9, 3, 4))


def _set_data(run: Run) -> None:
    run.model.linear.weight.data = floats(8, 3, 4)


SAME_ENTRY: dict[str, Callable[[Run], Any]] = {
    "optimizer step": _optimizer_step,
    "load_state_dict": _load,
    "replaced parameter of the same shape": _replace_parameter,
    "data": _set_data,
    "copy_ under no_grad": lambda run: lucid.no_grad()(run.model.linear.weight.copy_)(
        floats(7, 3, 4)
    ),
    "train to train": lambda run: run.model.train(),
    "eval and back": lambda run: run.model.eval().train(),
    "attribute set to its own value": lambda run: setattr(run.model, "scale", 1.0),
    "an unrelated module": lambda run: nn.Linear(2, 2).eval(),
    "to cpu": lambda run: run.model.to("cpu"),
    "zero_grad": lambda run: run.model.zero_grad(),
}


@pytest.mark.parametrize("name", SAME_ENTRY)
def test_same_entry(name: str) -> None:
    run = make_run()
    assert run() == run.eager().item()
    SAME_ENTRY[name](run)
    before = counters()["compilations"]
    assert run() == run.eager().item()
    assert entries(run) == 1
    assert counters()["compilations"] == before


def test_arguments() -> None:
    run = make_run()
    x, t = run.x, run.t
    run.step(x, t)
    assert entries(run) == 1
    run.step(x[:3], t[:3])
    assert entries(run) == 2
    run.step(x, t.int())
    assert entries(run) == 3
    run.step(x.clone().requires_grad_(), t)
    assert entries(run) == 4
    with lucid.no_grad():
        run.step(x, t)
    assert entries(run) == 5
    hits = run.step.cache_info()["hits"]  # type: ignore[attr-defined]
    run.step(x, t)
    run.step(x[:3], t[:3])
    assert entries(run) == 5
    assert run.step.cache_info()["hits"] == hits + 2  # type: ignore[attr-defined]


def test_number_as_extra_input_and_as_tensor() -> None:
    model = nn.Linear(4, 1)
    step = make_step(model, lambda y, w: (y * w).sum(), fallback="error")
    x = floats(1, 3, 4)
    for weight in (1.0, 2.0, 1.0):
        assert step(x, weight).item() == (model(x) * weight).sum().item()
    assert step.cache_info()["entries"] == 2
    for weight in (1.0, 2.0, 3.0):
        assert step(x, lucid.tensor(weight)).item() == (model(x) * weight).sum().item()
    assert step.cache_info()["entries"] == 3


def test_same_tensor_twice_is_another_signature() -> None:
    model = nn.Linear(4, 4)
    step = make_step(model, lambda y, t: ((y - t) ** 2).sum(), fallback="error")
    x, t = floats(1, 3, 4), floats(2, 3, 4)
    step(x, x)
    assert step(x, t).item() == ((model(x) - t) ** 2).sum().item()
    assert step.cache_info()["entries"] == 2


def test_captured_tensor_is_fetched_at_each_call() -> None:
    model = nn.Linear(4, 3)
    weight = [floats(1, 3)]
    step = make_step(model, lambda y: (y * weight[0]).sum(), fallback="error")
    x = floats(2, 5, 4)
    for seed in range(3):
        weight[0] = floats(seed, 3)
        assert step(x).item() == (model(x) * weight[0]).sum().item()
    assert step.cache_info()["entries"] == 1


def test_untied_parameters_recompile() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    model = Pair()
    step = make_step(model, lambda y: y.sum(), fallback="error")
    x = floats(1, 2, 3)
    step(x).backward()
    model.b.weight = nn.Parameter(floats(4, 3, 3))
    assert step(x).item() == model(x).sum().item()
    assert step.cache_info()["entries"] == 2


def test_two_models_share_one_executable() -> None:
    lucid.compile.clear_cache()
    x, t = floats(1, 5, 4), labels(1, 3, 5)
    first = make_step(nn.Linear(4, 3), F.cross_entropy, fallback="error")
    first(x, t)
    before, hits = counters()["compilations"], cache_info()["hits"]
    second = make_step(nn.Linear(4, 3), F.cross_entropy, fallback="error")
    second(x, t)
    assert counters()["compilations"] == before
    assert cache_info()["hits"] == hits + 1


def test_loss_survives_the_cache() -> None:
    run = make_run()
    loss = run.step(run.x, run.t)
    run.step.clear_cache()  # type: ignore[attr-defined]
    lucid.compile.clear_cache()
    loss.backward()
    found = run.model.linear.weight.grad.numpy().copy()
    run.model.zero_grad()
    run.eager().backward()
    assert (found == run.model.linear.weight.grad.numpy()).all()


def test_batch_is_not_kept() -> None:
    run = make_run()
    x = floats(1, 5, 4)
    alive = weakref.ref(x)
    loss = run.step(x, run.t)
    loss.backward()
    del x
    gc.collect()
    assert alive() is None


def test_step_keeps_nothing_of_a_kept_loss() -> None:
    model = nn.Linear(256, 256)
    step = make_step(model, lambda y: y.sum(), fallback="error")
    x = floats(1, 4, 256)
    losses = []
    step(x).backward()
    model.zero_grad()
    before = lucid._C.memory_allocated()
    for _ in range(10):
        loss = step(x)
        loss.backward()
        losses.append(loss)
        model.zero_grad()
    assert lucid._C.memory_allocated() - before < 10 * 1024


def test_memory_and_timing() -> None:
    run = make_run()
    run()
    memory = run.step.memory()  # type: ignore[attr-defined]
    assert memory["parameters"] == 4 * (3 * 4 + 3)
    assert memory["inputs"] == 5 * 4 * 4 + 5 * 8 + 4
    assert memory["outputs"] == 4 + 4 * (3 * 4 + 3)
    assert memory["arena_peak"] > 0
    run()
    timing = run.step.timing()  # type: ignore[attr-defined]
    assert timing["runs"] == 2
    assert 0 < timing["compile_seconds"] < 1


def test_graph_dump_parses() -> None:
    run = make_run()
    run()
    text = run.step.graph_dump()  # type: ignore[attr-defined]
    assert "linear(" in text
    assert "test_step_signature.py" in text
    parsed = lucid._C.parse_graph(text)
    assert lucid._C.parse_graph(parsed) == parsed
