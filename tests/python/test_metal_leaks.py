"""Nothing is left behind on the metal device, and a warm step does no more than it must."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import metal_host
import pytest
from lucid import Tensor
from lucid.compile import clear_cache, counters, fused_step, make_segmented_step, make_step
from test_metal_steps import moved
from zoo import floats, labels

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(
        not lucid.metal.is_available() or not metal_host.is_host(),
        reason="needs the double, which counts what is alive",
    ),
]
NUM_STEPS = 1000


class Net(nn.Module):
    """What a step may hold: batch norm's state, dropout's counters, an index table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.dropout(self.norm(self.table(x)).relu(), 0.3, self.training))


def batch(size: int = 6) -> tuple[Tensor, Tensor]:
    return moved((labels(1, 5, size), labels(2, 3, size)), "metal")


def alive() -> dict[str, int]:
    """Objects of the double and bytes of tensors, once nothing is in flight or pooled."""
    gc.collect()
    lucid.metal.synchronize()
    lucid.metal.empty_cache()
    return {**metal_host.live_objects(), "tensor_bytes": lucid.metal.memory_allocated()}


def steps_of(kind: str) -> Callable[[], Any]:
    """A call that makes one update by that kind of step."""
    lucid.manual_seed(1)
    model = Net().to("metal")
    opt = optim.Adam(model.parameters(), lr=0.01)
    data = batch()
    if kind == "fused":
        fused = fused_step(model, F.cross_entropy, opt, fallback="error")
        return lambda: fused(*data)
    if kind == "segments":
        stack = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).to("metal")
        data = moved((floats(1, 4, 6), labels(2, 3, 4)), "metal")
        opt = optim.Adam(stack.parameters(), lr=0.01)
        step = make_segmented_step(stack, F.cross_entropy, segments=2, fallback="error")
    else:
        limit = 500 if kind == "limit" else None
        step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")

    def run() -> None:
        opt.zero_grad()
        step(*data).backward()
        opt.step()

    return run


@pytest.mark.parametrize("kind", ["step", "fused", "segments", "limit"])
def test_steps_leave_nothing(kind: str) -> None:
    run = steps_of(kind)
    for _ in range(3):
        run()
    start = alive()
    for _ in range(NUM_STEPS if kind in ("step", "fused") else NUM_STEPS // 5):
        run()
    assert alive() == start


def test_failures_leave_nothing() -> None:
    run = steps_of("step")
    for _ in range(3):
        run()
    model = nn.Linear(3, 2).to("metal")
    x = floats(1, 4, 3).to("metal")
    step = make_step(model, lambda y: (y * y).mean(), fallback="error")
    step(x).backward()
    model.zero_grad()
    start = alive()
    for i in range(50):
        metal_host.ask("fail_next_command_buffer", b"out of luck")
        loss = step(x)
        with pytest.raises(lucid.InternalError, match="out of luck"):
            loss.item()
        loss.backward()
        with pytest.raises(lucid.InternalError, match="out of luck"):
            model.weight.grad.numpy()
        model.zero_grad()
        del loss
        if i % 2:
            run()
        assert step(x).item() > 0
    assert alive() == start


def test_compilations_leave_nothing() -> None:
    def compile_some(first: int) -> None:
        for size in range(first, first + 10):
            model = Net().to("metal")
            step = make_step(model, F.cross_entropy, fallback="error")
            step(*batch(size)).backward()
        clear_cache()

    compile_some(2)
    start = alive()
    compile_some(2)
    compile_some(12)
    assert alive() == start


def test_failed_compilations_leave_nothing() -> None:
    model = nn.Linear(3, 2).to("metal")
    x = floats(1, 4, 3).to("metal")

    def fail() -> None:
        clear_cache()
        step = make_step(model, lambda y: (y.exp() * y).mean(), fallback="error")
        metal_host.ask("fail_next_compilation", b"no luck")
        with pytest.raises(lucid.InternalError, match="the graph did not compile: no luck"):
            step(x)
        del step

    fail()
    start = alive()
    for _ in range(10):
        fail()
    assert alive() == start


def test_packages_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_COMPILE_CACHE_DIR", str(tmp_path))
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("metal")
    x = floats(1, 4, 3).to("metal")

    def load() -> None:
        clear_cache()
        make_step(model, lambda y: (y * y).mean(), fallback="error")(x).backward()
        model.zero_grad()
        clear_cache()

    load()  # stores
    load()
    start = alive()
    loads = metal_host.count("num_package_loads")
    for _ in range(10):
        load()
    assert metal_host.count("num_package_loads") == loads + 10
    assert alive() == start


def done() -> dict[str, int]:
    """What the double and the core have counted so far."""
    names = ("num_compilations", "num_encodings", "num_buffers_made")
    return {**{name: metal_host.count(name) for name in names}, **counters()}


@pytest.mark.parametrize("kind", ["step", "fused"])
def test_a_warm_step_does_no_more_than_it_must(kind: str) -> None:
    lucid.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2)).to("metal")
    opt = optim.SGD(model.parameters(), lr=0.01)
    data = moved((floats(1, 4, 3), labels(2, 2, 4)), "metal")
    if kind == "fused":
        fused = fused_step(model, F.cross_entropy, opt, fallback="error")
        run = lambda: fused(*data)  # noqa: E731
    else:
        step = make_step(model, F.cross_entropy, fallback="error")

        def run() -> Any:
            opt.zero_grad()
            loss = step(*data)
            loss.backward()
            return loss

    for _ in range(40):  # more than may be in flight: the pool holds what a step needs
        run()
    lucid.metal.synchronize()
    before = done()
    for _ in range(10):
        run()
        lucid.metal.synchronize()
    count = {name: total - before[name] for name, total in done().items()}
    assert count["num_compilations"] == count["compilations"] == 0
    assert count["num_encodings"] == count["executable_runs"] == 10
    assert count["eager_dispatches"] == 0
    assert count["num_buffers_made"] == 0
    # The loss and one gradient or new value of each parameter, and the generator's state, which the
    # host fills.
    assert count["buffer_allocations"] == 10 * (1 + 4 + 1)
