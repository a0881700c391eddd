"""Steps beside other threads: the same results, and nothing of theirs lost."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid.compile import make_step
from test_bit_equality import bits, state_bits
from test_step_lifetimes import batch, make_model


@pytest.fixture
def _switching() -> Iterator[None]:
    """Threads take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_threads(*functions: Callable[[], None]) -> None:
    """Run functions at once; raises the first of their errors."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(functions))

    def guarded(function: Callable[[], None]) -> None:
        barrier.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def beside(main: Callable[[], None], other: Callable[[], Any]) -> None:
    """Run ``main`` while two threads repeat ``other``."""
    is_over = threading.Event()

    def work() -> None:
        try:
            main()
        finally:
            is_over.set()

    def repeat() -> None:
        while not is_over.is_set():
            other()

    run_threads(work, repeat, repeat)


threaded = pytest.mark.usefixtures("_switching")


@threaded
@pytest.mark.parametrize("segments", [1, 3])
def test_one_step_in_several_threads(segments: int) -> None:
    model = make_model().eval()
    step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
    batches = [batch(i) for i in range(4)]
    wanted = [F.cross_entropy(model(x), t) for x, t in batches]
    losses = [bits(loss) for loss in wanted]
    parameters = list(model.parameters())
    grads = [[bits(g) for g in lucid.autograd.grad(loss, parameters)] for loss in wanted]

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(50):
                loss = step(*batches[i])
                assert bits(loss) == losses[i]
                assert [bits(g) for g in lucid.autograd.grad(loss, parameters)] == grads[i]

        return run

    run_threads(*[work(i) for i in range(4)])
    assert step.cache_info()["entries"] == 1


@threaded
def test_models_that_train_at_once() -> None:
    def trajectory(seed: int, compiled: bool) -> list[Any]:
        model = make_model(seed)
        step: Any = lambda x, t: F.cross_entropy(model(x), t)  # noqa: E731
        if compiled:
            step = make_step(model, F.cross_entropy, segments=1 + seed % 2, fallback="error")
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        record: list[Any] = []
        for i in range(20):
            optimizer.zero_grad()
            loss = step(*batch(10 * seed + i))
            loss.backward()
            optimizer.step()
            record.append(bits(loss))
        return [*record, state_bits(model)]

    wanted = {seed: trajectory(seed, compiled=False) for seed in range(4)}
    found: dict[int, list[Any]] = {}

    def work(seed: int) -> Callable[[], None]:
        return lambda: found.__setitem__(seed, trajectory(seed, compiled=True))

    run_threads(*[work(seed) for seed in range(4)])
    assert found == wanted


@threaded
def test_traces_of_a_shared_model_at_once() -> None:
    model = make_model()

    def work() -> None:
        for _ in range(30):
            make_step(model, F.cross_entropy, fallback="error")(*batch()).backward()

    run_threads(work, work, work)
    assert all(not tensor.is_symbolic for tensor in model.state_dict().values())
    # Steps of one model that run at once read the same statistics, as in eager code.
    assert 30 <= model[1].num_batches_tracked.item() <= 90


@threaded
def test_eager_forward_beside_a_trace() -> None:
    model = make_model()
    view = model[1].running_mean[2:5]

    def trace() -> None:
        for _ in range(30):
            make_step(model, F.cross_entropy, fallback="error")(*batch())

    def forward() -> None:
        with lucid.no_grad():
            model(batch()[0])
            assert not (view * 1.0).is_symbolic

    beside(trace, forward)
    assert view.tolist() == model[1].running_mean[2:5].tolist()


@threaded
def test_write_beside_a_trace_is_not_lost() -> None:
    model = make_model()
    counts = [0, 0]

    def trace() -> None:
        for _ in range(30):
            make_step(model, F.cross_entropy, fallback="error").compile(*batch())

    def write() -> None:
        with lucid.no_grad():
            model[1].num_batches_tracked.add_(1)
        counts[0] += 1

    is_over = threading.Event()

    def work() -> None:
        try:
            trace()
        finally:
            is_over.set()

    def repeat() -> None:
        while not is_over.is_set():
            write()

    run_threads(work, repeat)
    assert model[1].num_batches_tracked.item() == counts[0]


@threaded
def test_modules_made_beside_a_trace() -> None:
    model = make_model().eval()
    wanted = F.cross_entropy(model(batch()[0]), batch()[1]).item()
    step = make_step(model, F.cross_entropy, fallback="error")

    def trace() -> None:
        for _ in range(30):
            assert make_step(model, F.cross_entropy, fallback="error")(*batch()).item() == wanted
            assert step(*batch()).item() == wanted

    beside(trace, lambda: nn.Linear(2, 2))
    assert step.cache_info()["entries"] == 1


@threaded
def test_draws_of_another_thread_beside_a_trace() -> None:
    model = make_model()

    def trace() -> None:
        for _ in range(10):
            make_step(model, F.cross_entropy, fallback="error")(*batch())

    pause = threading.Event()

    def draw() -> None:
        random.random()
        pause.wait(0.002)

    beside(trace, draw)


@threaded
def test_modules_called_by_another_trace_do_not_count() -> None:
    shared, other = make_model(1), make_model(2)

    def work(model: nn.Module) -> Callable[[], None]:
        def run() -> None:
            for _ in range(20):
                step = make_step(model, F.cross_entropy, fallback="error")
                step(*batch())
                model[2].extra = object()
                step(*batch())
                assert step.cache_info()["entries"] == 2
                assert step.explain().endswith("another ReLU.extra")

        return run

    run_threads(work(shared), work(other))
