"""Sizes, buffers and thread counts that fit nothing: the same bits, and no cliff of speed.

Times are compared with times of the same work in a friendlier form, the fastest of many each; the
bounds are far above what is measured, so that only a cliff (a copy element by element, threads that
wait for each other) fails.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import make_step
from test_bit_equality import bits
from zoo import floats, labels

_MOST_TIMES = 8.0


@pytest.fixture(autouse=True)
def _same_threads_after() -> Iterator[None]:
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)


def times_as_long(run: Callable[[], Any], other: Callable[[], Any], rounds: int = 15) -> float:
    """The fastest of many runs over the fastest of the other's, which take turns with them."""
    fastest = [float("inf")] * 2
    for _ in range(rounds):
        for i, function in enumerate((run, other)):
            start = time.perf_counter()
            function()
            fastest[i] = min(fastest[i], time.perf_counter() - start)
    return fastest[0] / fastest[1]


def whole_step(call: Callable[..., Tensor], model: nn.Module, *batch: Tensor) -> list[bytes]:
    """Bits of the loss and of all gradients."""
    model.zero_grad()
    loss = call(*batch)
    loss.backward()
    return [bits(loss), *(bits(p.grad) for p in model.parameters())]


def perceptron(inputs: int, hidden: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, classes)
    )


def images(height: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(5 * (height - 1) * (width - 1), 3),
    )


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("rows", [1, 2, 31, 97])
@pytest.mark.parametrize("sizes", [(1, 1, 2), (7, 13, 3), (127, 131, 137), (509, 3, 11)])
def test_odd_sizes(rows: int, sizes: tuple[int, int, int]) -> None:
    model = perceptron(*sizes)
    batch = floats(1, rows, sizes[0]), labels(1, sizes[2], rows)
    step = make_step(model, F.cross_entropy, fallback="error")
    wanted = whole_step(lambda x, t: F.cross_entropy(model(x), t), model, *batch)
    assert whole_step(step, model, *batch) == wanted


@pytest.mark.parametrize("shape", [(2, 3, 7, 11), (3, 3, 2, 31), (1, 3, 13, 13)])
def test_odd_images(shape: tuple[int, int, int, int]) -> None:
    lucid.manual_seed(0)
    models = [images(*shape[2:]) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    batch = floats(1, *shape), labels(1, 3, shape[0])
    step = make_step(models[1], F.cross_entropy, fallback="error")
    wanted = whole_step(lambda x, t: F.cross_entropy(models[0](x), t), models[0], *batch)
    assert whole_step(step, models[1], *batch) == wanted


def test_no_rows() -> None:
    model = perceptron(7, 5, 3)
    batch = floats(1, 0, 7), floats(2, 0, 3)
    step = make_step(model, lambda y, t: ((y - t) ** 2).sum(), fallback="error")
    found = whole_step(step, model, *batch)
    assert all(not np.frombuffer(one, np.float32).any() for one in found)
    assert found == whole_step(lambda x, t: ((model(x) - t) ** 2).sum(), model, *batch)


@pytest.mark.parametrize("channels", [(0, 4), (3, 0)], ids=["none in", "none out"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batch", [1, 16])
def test_no_channels(channels: tuple[int, int], transposed: bool, batch: int) -> None:
    x = floats(1, batch, channels[0], 8, 8)
    weight = floats(2, *(channels if transposed else channels[::-1]), 3, 3)
    x.requires_grad_()
    weight.requires_grad_()
    y = (F.conv_transpose2d if transposed else F.conv2d)(x, weight, padding=1)
    y.sum().backward()
    assert y.shape == (batch, channels[1], 8, 8)
    assert not any(one.numpy().any() for one in (y.detach(), x.grad, weight.grad))


def test_huge_vectors() -> None:
    n = (1 << 22) + 1
    x = floats(1, n)
    x.requires_grad_()
    (x.tanh() * x).mean().backward()
    wanted = np.tanh(x.detach().numpy().astype(np.float64))
    wanted = (wanted + x.detach().numpy() * (1 - wanted**2)) / n
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=2e-5, atol=1e-12)


def test_prime_products_are_about_as_fast_as_round_ones() -> None:
    def product(rows: int, inner: int, columns: int) -> Callable[[], Any]:
        a, b = floats(1, rows, inner), floats(2, inner, columns)
        return lambda: a @ b

    assert times_as_long(product(251, 257, 263), product(256, 256, 256)) < _MOST_TIMES


def test_prime_rows_are_about_as_fast_as_round_ones() -> None:
    def normalized(rows: int, width: int) -> Callable[[], Any]:
        x = floats(1, rows, width)
        return lambda: F.softmax(F.layer_norm(x, (width,)), -1)

    assert times_as_long(normalized(1021, 251), normalized(1024, 256)) < _MOST_TIMES


# ---------------------------------------------------------------- buffers


def shifted(array: np.ndarray[Any, Any], offset: int) -> np.ndarray[Any, Any]:
    """A copy whose first byte lies so many bytes behind a cache line."""
    memory = np.zeros(array.nbytes + offset + 64, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    view = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert view.ctypes.data % 64 == offset % 64
    return view


IMPORTS: dict[str, Callable[[Any], Tensor]] = {
    "from_numpy": lucid.from_numpy,
    "from_dlpack": lucid.from_dlpack,
    "tensor": lucid.tensor,
}


@pytest.mark.parametrize("offset", [1, 2, 4, 20, 63])
@pytest.mark.parametrize("how", IMPORTS)
def test_unaligned_buffers(how: str, offset: int) -> None:
    model = perceptron(61, 29, 7)
    x, target = floats(1, 33, 61), labels(1, 7, 33)
    step = make_step(model, F.cross_entropy, fallback="error")
    wanted = whole_step(step, model, x, target)
    moved = IMPORTS[how](shifted(x.numpy(), offset))
    moved_target = IMPORTS[how](shifted(target.numpy(), offset))
    assert whole_step(step, model, moved, moved_target) == wanted
    assert step.cache_info()["entries"] == 1


def test_strided_views() -> None:
    model = perceptron(61, 29, 7)
    target = labels(1, 7, 33)
    whole = np.random.default_rng(0).standard_normal((66, 122)).astype(np.float32)
    step = make_step(model, F.cross_entropy, fallback="error")
    wanted = whole_step(step, model, lucid.tensor(whole[::2, 1::2].copy()), target)
    assert whole_step(step, model, lucid.tensor(whole[::2, 1::2]), target) == wanted


def test_unaligned_buffers_are_not_slow() -> None:
    aligned = lucid.from_numpy(shifted(floats(1, 512, 512).numpy(), 0))
    moved = lucid.from_numpy(shifted(aligned.numpy(), 4))
    weight = floats(2, 512, 512)

    def work(x: Tensor) -> Callable[[], Any]:
        return lambda: (x @ weight).tanh().sum()

    assert times_as_long(work(moved), work(aligned)) < _MOST_TIMES


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("count", [1, 3, 5, 16, 64])
def test_any_number_of_threads_gives_the_same_bits(count: int) -> None:
    model = perceptron(127, 251, 61)
    batch = floats(1, 131, 127), labels(1, 61, 131)
    step = make_step(model, F.cross_entropy, fallback="error")
    wanted = whole_step(step, model, *batch)
    lucid.set_num_threads(count)
    assert whole_step(step, model, *batch) == wanted
    assert whole_step(lambda x, t: F.cross_entropy(model(x), t), model, *batch) == wanted


def test_more_threads_than_cores_are_not_slow() -> None:
    model = perceptron(256, 512, 64)
    batch = floats(1, 256, 256), labels(1, 64, 256)
    step = make_step(model, F.cross_entropy, fallback="error")

    def with_threads(count: int) -> Callable[[], Any]:
        def run() -> None:
            lucid.set_num_threads(count)
            step(*batch).backward()

        return run

    with_threads(16)()
    assert times_as_long(with_threads(16), with_threads(1), rounds=25) < _MOST_TIMES


def test_threads_change_while_steps_run() -> None:
    model = perceptron(127, 251, 61)
    batch = floats(1, 131, 127), labels(1, 61, 131)
    step = make_step(model, F.cross_entropy, fallback="error")
    wanted = whole_step(step, model, *batch)
    found: list[list[bytes]] = []
    done = threading.Event()

    def train() -> None:
        try:
            for _ in range(60):
                found.append(whole_step(step, model, *batch))
        finally:
            done.set()

    worker = threading.Thread(target=train)
    worker.start()
    changes = 0
    while not done.is_set():
        lucid.set_num_threads(1 + changes % 7)
        changes += 1
        done.wait(1e-4)
    worker.join()
    assert changes > 0 and len(found) == 60
    assert all(one == wanted for one in found)


# ---------------------------------------------------------------- large graphs


class Residual(nn.Module):
    """Many small blocks: all that takes time is to compile them."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(blocks)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


def test_compile_time_grows_with_the_nodes() -> None:
    x, target = floats(1, 4, 8), floats(2, 4, 8)

    def seconds(blocks: int) -> float:
        step = make_step(Residual(blocks), F.mse_loss, fallback="error")
        start = time.thread_time()
        step.compile(x, target)
        return time.thread_time() - start

    seconds(10)
    was_enabled = gc.isenabled()
    gc.disable()  # its share depends on what other tests left
    try:
        few = min(seconds(100) for _ in range(4))
        many = min(seconds(800) for _ in range(3))
    finally:
        if was_enabled:
            gc.enable()
    # Linear is 8; a pass that looks at all pairs of nodes would come near to 64.
    assert many < 24 * few
