"""Caches that the first call of a forward fills: compiled from then on, with eager numbers."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import numpy as np
import pytest
from lazy_models import (
    CACHES,
    MODELS,
    TABLES,
    AttributeThatIsNone,
    Cached,
    CachedMethod,
    CacheOfPairs,
    DictBySize,
    FirstBatch,
    OfTheClass,
    empty_caches,
    mask_of,
    ramp,
    settings,
)
from lucid import Tensor
from lucid.compile import FallbackWarning, counters, diagnose, fused_step, make_step
from lucid.compile.caches import Held
from test_bit_equality import state_bits
from zoo import floats

METAL = pytest.param(
    "metal",
    marks=[
        pytest.mark.metal,
        pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
    ],
)


@pytest.fixture(autouse=True)
def emptied() -> None:
    empty_caches()


@pytest.mark.parametrize("maxsize", [None, 8])
def test_every_kind_of_result_is_seen(maxsize: int | None) -> None:
    kinds = [int, ramp(2), "text", None, str]
    cache = functools.lru_cache(maxsize=maxsize)(kinds.__getitem__)
    for place in range(len(kinds)):
        cache(place)
    assert Held(cache).results() == dict(enumerate(kinds))


def square(y: Tensor, t: Tensor) -> Tensor:
    return ((y - t[:, : y.shape[1]]) ** 2).mean()


Make = Callable[[nn.Module, str], Callable[..., Tensor]]


def compiled_step(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    return make_step(model, square, fallback=fallback)


def compiled_forward(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    forward = lucid.compile(model, fallback=fallback)
    return lambda x, t: square(forward(x), t)


def dynamic_forward(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    forward = lucid.compile(model, dynamic=True, fallback=fallback)
    return lambda x, t: square(forward(x), t)


def in_segments(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    return make_step(nn.Sequential(model, nn.Tanh()), square, segments=2, fallback=fallback)


def by_trial(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    return make_step(
        nn.Sequential(model, nn.Tanh()), square, segments="auto", fallback=fallback, candidates=[2]
    )


def eager(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    return lambda x, t: square(model(x), t)


def eager_segments(model: nn.Module, fallback: str) -> Callable[..., Tensor]:
    return lambda x, t: square(model(x).tanh(), t)


MAKERS: list[tuple[Make, Make]] = [
    (compiled_step, eager),
    (compiled_forward, eager),
    (dynamic_forward, eager),
    (in_segments, eager_segments),
    (by_trial, eager_segments),
]
SIZES = (3, 3, 5, 3, 5, 5)


def trained(model: type[Cached], make: Make, fallback: str, device: str = "cpu") -> list[Any]:
    """Losses, state and generator after some steps on batches of two sizes."""
    empty_caches()
    lucid.manual_seed(3)
    made = model().to(device)
    optimizer = optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    step = make(made, fallback)
    losses = []
    for seed, size in enumerate(SIZES):
        optimizer.zero_grad()
        loss = step(floats(seed, size, 4).to(device), floats(seed + 9, size, 4).to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, state_bits(made), lucid.get_rng_state().tolist()]


@pytest.mark.parametrize("fallback", ["error", "warn"])
@pytest.mark.parametrize(("make", "reference"), MAKERS, ids=[m.__name__ for m, _ in MAKERS])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_trains_as_eager_code_does(
    model: type[Cached], make: Make, reference: Make, fallback: str
) -> None:
    wanted = trained(model, reference, fallback)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(model, make, fallback) == wanted


@pytest.mark.parametrize("device", [METAL])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_trains_on_another_device(model: type[Cached], device: str) -> None:
    wanted = trained(model, eager, "error", device)
    found = trained(model, compiled_step, "error", device)
    assert found[0] == pytest.approx(wanted[0], rel=1e-4)
    assert found[2] == wanted[2]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_fused_step_trains_as_eager_code_does(model: type[Cached]) -> None:
    results = []
    for is_fused in (False, True):
        empty_caches()
        lucid.manual_seed(3)
        made = model()
        optimizer = optim.AdamW(made.parameters(), lr=0.1)
        step = fused_step(made, square, optimizer, fallback="error")
        losses = []
        for seed, size in enumerate(SIZES):
            args = floats(seed, size, 4), floats(seed + 9, size, 4)
            if is_fused:
                losses.append(step(*args).item())
                continue
            optimizer.zero_grad()
            loss = square(made(args[0]), args[1])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        results.append([losses, state_bits(made), lucid.get_rng_state().tolist()])
    assert results[0] == results[1]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_the_second_call_is_one_run(model: type[Cached]) -> None:
    made = model()
    step = make_step(made, square, fallback="error")
    args = floats(1, 3, 4), floats(2, 3, 4)
    step(*args).backward()
    assert step.cache_info() == {"entries": 1, "hits": 0, "misses": 1, "max_entries": 64}
    assert "; its first call ran eagerly, since it changed " in step.explain()
    made.zero_grad()
    before = counters()
    step(*args).backward()
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]
    assert after["compilations"] == before["compilations"]
    assert step.cache_info()["hits"] == 1


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_nothing_of_a_trace_is_left(model: type[Cached]) -> None:
    made = model()
    make_step(made, square, fallback="error")(floats(1, 3, 4), floats(2, 3, 4))
    held = [r for cache in CACHES for r in gc.get_referents(cache)]
    held += [item for table in held if isinstance(table, dict) for item in table.values()]
    assert not isinstance(made, CacheOfPairs) or any(isinstance(item, tuple) for item in held)
    held += [item for pair in held if isinstance(pair, tuple) for item in pair]
    held += [*TABLES.values(), OfTheClass.table, made.kept, *made.by_size.values(), *made.buffers()]
    assert not any(isinstance(value, Tensor) and value.is_symbolic for value in held)
    assert made(floats(1, 3, 4)).shape[0] == 3


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_compile_and_diagnose_change_nothing(model: type[Cached]) -> None:
    lucid.manual_seed(3)
    made = model()
    step = make_step(made, square, fallback="error")
    args = floats(1, 3, 4), floats(2, 3, 4)
    before, attributes = state_bits(made), repr(vars(made))
    generator, sizes = lucid.get_rng_state().tolist(), [c.cache_info().currsize for c in CACHES]
    assert diagnose(step, *args).compiled
    step.compile(*args)
    assert step.memory()["arena_peak"] > 0
    assert state_bits(made) == before
    assert repr(vars(made)) == attributes
    assert lucid.get_rng_state().tolist() == generator
    assert [c.cache_info().currsize for c in CACHES] == sizes
    assert (TABLES, OfTheClass.table) == ({}, None)
    step(*args).backward()


class CountingToo(AttributeThatIsNone):
    """Fills a cache, and counts its calls."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_what_changes_again_is_refused_and_undone() -> None:
    made = CountingToo()
    text = "the step changed attribute CountingToo.calls, which a compiled run would not repeat"
    step = make_step(made, square, fallback="error")
    args = floats(1, 3, 4), floats(2, 3, 4)
    for _ in range(2):
        with pytest.raises(lucid.TraceError, match=text):
            step(*args)
        assert made.calls == 0
        assert made.kept is None
    with pytest.warns(FallbackWarning, match=text) as warned:
        make_step(made, square, fallback="warn")(*args).backward()
    assert [warning.filename for warning in warned] == [__file__]
    assert made.calls == 1
    assert made.kept is not None


class Everything(Cached):
    """Changes all kinds of state, and counts."""

    def __init__(self, log: list[int]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.inner = nn.Linear(4, 1)
        self.optimizer = optim.AdamW(self.inner.parameters(), lr=0.1)
        self.plain = lucid.zeros(3, 4)
        self.row = self.plain[0]
        self.generator = lucid.Generator(5)
        self.random = np.random.default_rng(7)
        self.log = log

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x.detach()).sum().backward()
        self.optimizer.step()
        self.log.append(len(self.log))
        y = self.norm(self.linear(x)) * lucid.rand(3, 4, generator=self.generator)
        self.plain.copy_(y)
        self.random.random()
        self.inner.bias.requires_grad_(False)
        return F.dropout(y) * float(self.plain.sum() != 0)


def described(model: Everything) -> list[Any]:
    tensors = [*model.parameters(), *model.buffers(), model.plain, model.row]
    gradients = [t.grad.tolist() for t in model.inner.parameters() if t.grad is not None]
    optimizer = [
        {k: v.tolist() if isinstance(v, Tensor) else v for k, v in state.items()}
        for state in model.optimizer.state.values()
    ]
    generators = [lucid.get_rng_state().tolist(), model.generator.get_state()]
    numbers = [model.random.bit_generator.state, list(model.log)]
    history = [(t.requires_grad, t.is_leaf) for t in tensors]
    return [[t.tolist() for t in tensors], gradients, optimizer, generators, numbers, history]


@pytest.mark.parametrize("steps", [0, 1])
def test_an_eager_call_that_leads_nowhere_is_undone(steps: int) -> None:
    model = Everything([])
    for _ in range(steps):
        model.inner(floats(1, 3, 4)).sum().backward()
        model.optimizer.step()
    before, items = described(model), [floats(1, 3, 4)]

    def loss(y: Tensor, items: list[Any]) -> Tensor:
        items.append(len(items))
        return y.sum()

    with pytest.raises(lucid.TraceError):
        make_step(model, loss, fallback="error")(floats(1, 3, 4), items)
    assert described(model) == before
    assert len(items) == 1


def test_an_error_of_the_eager_call_is_raised_as_it_is() -> None:
    class Raises(AttributeThatIsNone):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            if not y.is_symbolic:
                raise KeyError("mine")
            return y

    made = Raises()
    args = floats(1, 3, 4), floats(2, 3, 4)
    with pytest.raises(KeyError, match="mine"):
        make_step(made, square, fallback="warn")(*args)
    assert made.kept is None
    with pytest.raises(lucid.TraceError, match="attribute Raises.kept"):
        make_step(made, square, fallback="error")(*args)
    assert made.kept is None


def test_what_a_cached_function_reads_and_holds_is_watched() -> None:
    made = CachedMethod()
    compiled = lucid.compile(made, fallback="error")
    x = floats(1, 3, 4)
    for scale in (2.0, 3.0):
        settings()["scale"] = scale
        CachedMethod.table.cache_clear()
        for _ in range(2):
            assert compiled(x).tolist() == (made.linear(x) * (ramp(4) * scale)).tolist()


@pytest.mark.parametrize("maxsize", [8, None])
def test_a_cache_that_was_cleared_is_filled_anew(maxsize: int | None) -> None:
    noise = functools.lru_cache(maxsize=maxsize)(lambda size: lucid.randn(size))
    compiled = lucid.compile(lambda x: x * noise(2), fallback="error")
    seen = []
    for _ in range(3):
        for _ in range(2):
            seen.append(compiled(lucid.ones(2)).tolist())
            assert seen[-1] == noise(2).tolist()
        noise.cache_clear()
        noise(2)
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4] == seen[5]


@pytest.mark.parametrize("maxsize", [2, None])
def test_results_from_before_a_refused_trace_stay(maxsize: int | None) -> None:
    table = functools.lru_cache(maxsize=maxsize)(ramp)
    first = table(3)
    compiled = lucid.compile(lambda x: (x * table(2)) * float(x.sum()), fallback="error")
    with pytest.raises(lucid.TraceError, match="float: the value of a tensor was asked for"):
        compiled(lucid.ones(2))
    assert table(3) is first
    assert table.cache_info().currsize == 1
    assert table(2).tolist() == [0.0, 1.0]
    assert [table(size).tolist()[-1] for size in (4, 5, 6, 2)] == [3.0, 4.0, 5.0, 1.0]


def test_a_trace_at_another_size_leaves_no_result() -> None:
    compiled = lucid.compile(lambda x: mask_of(len(x), device="cpu") @ x, True, fallback="error")
    for size in (5, 2, 3, 5):
        x = floats(size, size, 2)
        assert compiled(x).tolist() == (lucid.tril(lucid.ones(size, size)) @ x).tolist()
        assert mask_of(size, device="cpu").tolist() == lucid.tril(lucid.ones(size, size)).tolist()
    assert mask_of.cache_info().currsize == 3


@pytest.mark.parametrize("fallback", ["error", "warn"])
def test_an_update_that_fails_is_undone(fallback: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise ArithmeticError("mine")

    made = FirstBatch()
    before = state_bits(made)
    step = fused_step(made, square, optim.SGD(made.parameters(), lr=0.1), fallback=fallback)
    args = floats(1, 3, 4), floats(2, 3, 4)
    with monkeypatch.context() as patch:
        patch.setattr(type(step), "_update_eagerly", fails)
        with pytest.raises(ArithmeticError, match="mine"):
            step(*args)
    assert state_bits(made) == before
    assert not made.is_set
    step(*args)
    assert made.is_set


@pytest.mark.parametrize("is_dict", [False, True])
def test_threads_may_share_a_cache(is_dict: bool) -> None:
    table = functools.lru_cache(maxsize=4)(ramp)
    found: list[Any] = []

    def rows(size: int) -> Tensor:
        if not is_dict:
            return table(size)
        if size not in TABLES:
            TABLES[size] = ramp(size)
        return TABLES[size]

    def work(start: int) -> None:
        weight = nn.Linear(4, 4)
        step = make_step(weight, lambda y, t: (y[:, 0] * t * rows(len(y))).sum(), fallback="error")
        for i in range(6):
            size = 2 + (i + start) % 3
            x, t = floats(i, size, 4), floats(i + 9, size)
            try:
                found.append(step(x, t).item() - (weight(x)[:, 0] * t * ramp(size)).sum().item())
            except lucid.Error as error:
                found.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            table.cache_clear()
            TABLES.clear()
            threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == [0.0] * 180


def test_a_long_dict_keeps_nothing_of_a_trace() -> None:
    made = DictBySize()
    made.by_size = {-key: key for key in range(2000)}
    args = floats(1, 3, 4), floats(2, 3, 4)
    with pytest.raises(lucid.TraceError, match="read a tensor of shape"):
        make_step(made, square, fallback="error")(*args)
    assert 3 not in made.by_size
    with pytest.warns(FallbackWarning, match="read a tensor of shape"):
        loss = make_step(made, square, fallback="warn")(*args)
    assert loss.item() == square(made(args[0]), args[1]).item()
    assert not made.by_size[3].is_symbolic


@pytest.mark.parametrize("fallback", ["error", "silent"])
@pytest.mark.parametrize("model", [AttributeThatIsNone, CountingToo])
def test_a_batch_is_not_kept(model: type[Cached], fallback: str) -> None:
    step = make_step(model(), square, fallback=fallback)
    args = floats(1, 3, 4), floats(2, 3, 4)
    kept = weakref.ref(args[0])
    gc.collect()
    gc.disable()  # nothing that waits for it, either
    try:
        with contextlib.suppress(lucid.TraceError):
            step(*args)
        del args
        assert kept() is None
    finally:
        gc.enable()


class WarmingUp(Cached):
    """Counts its first calls."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def forward(self, x: Tensor) -> Tensor:
        if self.left > 0:
            self.left -= 1
        return self.linear(x)


@pytest.mark.parametrize("is_unsupported", [False, True])
def test_a_call_that_changes_attributes_is_no_reason_to_trace_again(
    is_unsupported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_trace(*args: Any) -> Any:
        raise AssertionError("traced again")

    made = WarmingUp(1000)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return square(y, t) * (float(t.sum()) if is_unsupported else 1.0)

    step = make_step(made, loss, fallback="warn")
    args = floats(1, 3, 4), floats(2, 3, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(*args)
        monkeypatch.setattr("lucid.compile.entries.trace", no_trace)
        for _ in range(4):
            step(*args)
    assert made.left == 995
    assert len(caught) == 1
    assert step.explain().count("runs eagerly") == 1


def test_a_warm_up_that_is_counted_ends_in_a_compiled_step() -> None:
    made = WarmingUp(3)
    step = make_step(made, square, fallback="silent")
    args = floats(1, 3, 4), floats(2, 3, 4)
    for _ in range(8):
        step(*args)
    assert made.left == 0
    assert step.cache_info()["entries"] == 1
    assert step.cache_info()["hits"] >= 2


@pytest.mark.parametrize("fallback", ["error", "warn", "silent"])
def test_a_limit_that_is_not_met_behind_a_cache_is_said(fallback: str) -> None:
    made = nn.Sequential(AttributeThatIsNone(), nn.Tanh())
    before = state_bits(made)
    for segments in (1, 2):
        step = make_step(made, square, segments=segments, memory_limit=1, fallback=fallback)
        with pytest.raises(lucid.UserError, match="memory_limit"):
            step(floats(1, 3, 4), floats(2, 3, 4))
        assert made[0].kept is None
        assert state_bits(made) == before
