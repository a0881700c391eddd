"""Updates write into the memory of what they update, but only if nobody else holds it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import numpy as np
import pytest
from custom_ops import one_input
from lucid import Tensor
from lucid.compile import counters, fused_step, make_step
from test_bit_equality import bits, state_bits
from test_step_threads import _switching, beside, threaded  # noqa: F401 (a fixture)

SIZE = 1000
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda params: optim.AdamW(params, lr=0.01),
    "amsgrad": lambda params: optim.Adam(params, lr=0.01, amsgrad=True),
    "rmsprop": lambda params: optim.RMSprop(params, lr=0.01, momentum=0.9, centered=True),
}


def address(tensor: Tensor) -> int:
    """Where a tensor's elements are; no array is held afterwards."""
    return int(tensor.detach().numpy().ctypes.data)


def parameter(size: int = SIZE) -> nn.Parameter:
    return nn.Parameter(lucid.tensor(np.linspace(-1, 1, size, dtype=np.float32)))


def state_of(optimizer: optim.Optimizer, param: Tensor) -> list[Tensor]:
    return [v for v in optimizer.state[param].values() if isinstance(v, Tensor)]


def allocations(run: Callable[[], object]) -> int:
    before = counters()["buffer_allocations"]
    run()
    return counters()["buffer_allocations"] - before


class Updated:
    """A parameter with an optimizer, past its first steps."""

    def __init__(self, make: Callable[[Any], optim.Optimizer] = OPTIMIZERS["adamw"]) -> None:
        self.param = parameter()
        self.optimizer = make([self.param])
        for _ in range(3):
            self.step()

    def step(self) -> None:
        self.param.grad = lucid.tensor(np.ones(self.param.shape, np.float32))
        self.optimizer.step()

    def addresses(self) -> list[int]:
        return [address(t) for t in (self.param, *state_of(self.optimizer, self.param))]


class Trained:
    """A model in a fused step, past its first calls."""

    def __init__(self) -> None:
        lucid.manual_seed(1)
        self.model = nn.Sequential(
            nn.Embedding(11, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)
        )
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.01)
        self.step = fused_step(self.model, F.cross_entropy, self.optimizer, fallback="error")
        self.x = lucid.tensor(np.arange(6))
        self.target = lucid.tensor(np.arange(6) % 5)
        for _ in range(3):
            self()

    def __call__(self) -> Tensor:
        return self.step(self.x, self.target)

    def tensors(self) -> list[Tensor]:
        params = list(self.model.parameters())
        return params + [t for p in params for t in state_of(self.optimizer, p)]


# ------------------------------------------------------------ memory is kept


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_update_keeps_memory(name: str) -> None:
    updated = Updated(OPTIMIZERS[name])
    before, values = updated.addresses(), bits(updated.param)
    for _ in range(3):
        updated.step()
    assert updated.addresses() == before
    assert bits(updated.param) != values


def test_fused_step_keeps_memory() -> None:
    trained = Trained()
    before = [address(t) for t in trained.tensors()]
    values = state_bits(trained.model)
    for _ in range(3):
        trained()
    assert [address(t) for t in trained.tensors()] == before
    after = state_bits(trained.model)
    assert all(after[name] != values[name] for name in values)


@pytest.mark.parametrize("kind", ["step", "fused_step"])
def test_allocations_do_not_grow_with_parameters(kind: str) -> None:
    def steady(num_layers: int) -> int:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(num_layers)))
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        x, target = lucid.tensor(np.ones((2, 4), np.float32)), lucid.tensor(np.array([0, 1]))
        step = fused_step(model, F.cross_entropy, optimizer, fallback="error")

        def run() -> int:
            if kind == "fused_step":
                return allocations(lambda: step(x, target))
            optimizer.zero_grad()
            F.cross_entropy(model(x), target).backward()
            return allocations(optimizer.step)

        return [run() for _ in range(5)][-1]

    assert steady(1) == steady(9)


# ------------------------------------------------------------ memory that others hold is left alone

HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda p: p.detach().numpy(),
    "dlpack": lambda p: np.from_dlpack(p.detach()),
    "data_of_another": lambda p: _with_data_of(p),
    "reshape": lambda p: p.detach().reshape(-1, 1) + 0.0,
    "clone": lambda p: p.detach().clone(),
    "array_of_clone": lambda p: p.detach().clone().numpy(),
    "from_numpy_of_array": lambda p: lucid.from_numpy(p.detach().numpy()),
    "deepcopy": lambda p: copy.deepcopy(p),
    "load_state_dict": lambda p: _loaded_from(p),
}


def _with_data_of(param: Tensor) -> Tensor:
    other = nn.Parameter(lucid.tensor(np.zeros(param.shape, np.float32)))
    other.data = param.data
    return other


def _loaded_from(param: Tensor) -> Tensor:
    layers = [nn.Linear(SIZE, 1, bias=False) for _ in range(2)]
    layers[0].weight.data = param.data.reshape(1, -1)
    layers[1].load_state_dict(layers[0].state_dict())
    return layers[1].weight


def held_bits(held: Any) -> bytes | None:
    return held.tobytes() if isinstance(held, np.ndarray) else bits(held)


@pytest.mark.parametrize("name", HOLDERS)
def test_what_others_hold_keeps_its_values(name: str) -> None:
    updated, twin = Updated(), Updated()
    held = HOLDERS[name](updated.param)
    before = held_bits(held)
    for _ in range(3):
        updated.step()
        twin.step()
    assert held_bits(held) == before
    assert bits(updated.param) == bits(twin.param) != before


def test_state_that_others_hold_keeps_its_values() -> None:
    updated = Updated()
    arrays = [t.numpy() for t in state_of(updated.optimizer, updated.param)]
    before = [a.copy() for a in arrays]
    updated.step()
    for array, value in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, value)


def test_snapshots_of_each_step_stay_apart() -> None:
    trained, twin = Trained(), Trained()
    snapshots, wanted = [], []
    for _ in range(4):
        snapshots.append([p.detach().numpy() for p in trained.model.parameters()])
        wanted.append([p.detach().numpy().copy() for p in twin.model.parameters()])
        trained()
        twin()
    for arrays, values in zip(snapshots, wanted, strict=True):
        for array, value in zip(arrays, values, strict=True):
            np.testing.assert_array_equal(array, value)


def test_borrowed_memory_is_never_written() -> None:
    array = np.linspace(-1, 1, SIZE, dtype=np.float32)
    for import_ in (lucid.from_numpy, lucid.from_dlpack):
        param = nn.Parameter(import_(array))
        optimizer = optim.SGD([param], lr=0.1)
        before = array.copy()
        for _ in range(3):
            param.grad = lucid.tensor(np.ones(SIZE, np.float32))
            optimizer.step()
            np.testing.assert_array_equal(array, before)


def test_values_saved_for_a_pending_backward_are_kept() -> None:
    updated, twin = Updated(), Updated()
    x = lucid.tensor(np.ones(SIZE, np.float32), requires_grad=True)
    losses = [lucid.sum(x * updated.param.detach() * x), lucid.sum(x * twin.param.detach() * x)]
    updated.step()
    (found,) = lucid.autograd.grad(losses[0], [x])
    (wanted,) = lucid.autograd.grad(losses[1], [x])
    assert bits(found) == bits(wanted)


def test_values_kept_by_a_compiled_step_are_kept() -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    step = make_step(model, F.cross_entropy, segments=2, fallback="error")
    x, target = lucid.tensor(np.ones((4, 6), np.float32)), lucid.tensor(np.array([0, 1, 2, 0]))
    for _ in range(3):
        optimizer.zero_grad()
        step(x, target).backward()
        optimizer.step()
    optimizer.zero_grad()
    params = list(model.parameters())
    wanted = [bits(g) for g in lucid.autograd.grad(step(x, target), params)]
    pending = step(x, target)
    for p in params:
        p.grad = lucid.ones_like(p.detach())
    optimizer.step()
    assert [bits(g) for g in lucid.autograd.grad(pending, params)] == wanted


def test_average_that_took_the_value_is_kept() -> None:
    updated = Updated()
    average = lucid.tensor(np.zeros(SIZE, np.float32))
    average.data = updated.param.data
    before = bits(average)
    updated.step()
    assert bits(average) == before != bits(updated.param)


def test_views_see_new_values_and_arrays_of_views_old_ones() -> None:
    updated = Updated()
    view, row = updated.param.detach().reshape(10, 100), updated.param.detach()[:7]
    arrays = [view.numpy(), row.numpy()]
    before = [a.copy() for a in arrays]
    updated.step()
    for array, value in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, value)
    assert view.numpy().tobytes() == bits(updated.param)
    np.testing.assert_array_equal(row.numpy(), updated.param.detach().numpy()[:7])


def test_tied_parameters_are_updated_once() -> None:
    first, second = parameter(), parameter()
    second.data = first.data
    optimizer = optim.SGD([first, second], lr=0.1)
    for _ in range(3):
        first.grad = lucid.tensor(np.ones(SIZE, np.float32))
        second.grad = lucid.tensor(np.full(SIZE, 2.0, np.float32))
        optimizer.step()
    value = np.linspace(-1, 1, SIZE, dtype=np.float32)
    np.testing.assert_allclose(first.detach().numpy(), value - 0.3, atol=1e-6)
    np.testing.assert_allclose(second.detach().numpy(), value - 0.6, atol=1e-6)


# ------------------------------------------------------------ compiled functions


def test_a_function_may_return_the_old_value_of_what_it_writes() -> None:
    state = lucid.tensor(np.arange(5, dtype=np.float32))

    @lucid.compile.compile
    def swap(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with lucid.no_grad():
            old = state.clone()
            alias = state.detach().reshape(5, 1) * 1.0
            state.copy_(x)
        return old, alias, state + 0.0

    kept = []
    for i in range(5):
        value = np.full(5, i, np.float32)
        kept.append(swap(lucid.tensor(value)))
    for i, (old, alias, new) in enumerate(kept):
        wanted = np.arange(5, dtype=np.float32) if i == 0 else np.full(5, i - 1, np.float32)
        np.testing.assert_array_equal(old.numpy(), wanted)
        np.testing.assert_array_equal(alias.numpy()[:, 0], wanted)
        np.testing.assert_array_equal(new.numpy(), np.full(5, i, np.float32))


def test_state_that_is_exchanged_between_cells() -> None:
    a = lucid.tensor(np.zeros(SIZE, np.float32))
    b = lucid.tensor(np.ones(SIZE, np.float32))

    @lucid.compile.compile
    def exchange() -> Tensor:
        with lucid.no_grad():
            old = a + 0.0
            a.copy_(b * 2.0)
            b.copy_(old - 1.0)
        return lucid.sum(a)

    x, y = 0.0, 1.0
    for _ in range(5):
        exchange()
        x, y = y * 2.0, x - 1.0
        assert set(a.numpy()) == {x}
        assert set(b.numpy()) == {y}


def test_results_that_are_the_new_value_stay_what_they_were() -> None:
    state = lucid.tensor(np.zeros(SIZE, np.float32))

    @lucid.compile.compile
    def advance() -> Tensor:
        with lucid.no_grad():
            state.add_(1.0)
        return state.clone()

    kept = [advance() for _ in range(4)]
    assert [set(k.numpy()) for k in kept] == [{1.0}, {2.0}, {3.0}, {4.0}]
    advance()
    assert set(state.numpy()) == {5.0}


# ------------------------------------------------------------ errors and threads


def test_an_operation_that_fails_behind_the_write_undoes_it() -> None:
    state = lucid.tensor(np.zeros(SIZE, np.float32))
    table = lucid.tensor(np.ones((4, 3), np.float32))

    @lucid.compile.compile
    def write_then_look_up(index: Tensor) -> Tensor:
        with lucid.no_grad():
            state.add_(1.0)
        return F.embedding(index, table) + state[:3]

    write_then_look_up(lucid.tensor(np.array([0, 3])))
    for _ in range(3):
        with pytest.raises(lucid.Error, match="17"):
            write_then_look_up(lucid.tensor(np.array([0, 17])))
        assert set(state.numpy()) == {1.0}
    write_then_look_up(lucid.tensor(np.array([0, 3])))
    assert set(state.numpy()) == {2.0}


@pytest.mark.parametrize("place", ["input", "target"])
def test_a_step_that_fails_changes_no_byte(place: str) -> None:
    trained = Trained()
    before = [bits(t) for t in trained.tensors()]
    addresses = [address(t) for t in trained.tensors()]
    good = trained.x, trained.target
    wrong = lucid.tensor(np.array([0, 1, 2, 3, 4, 99]))
    if place == "input":
        trained.x = wrong
    else:
        trained.target = wrong
    for _ in range(2):
        with pytest.raises(lucid.Error, match="99"):
            trained()
        assert [bits(t) for t in trained.tensors()] == before
    trained.x, trained.target = good
    trained()
    assert [address(t) for t in trained.tensors()] == addresses
    assert [bits(t) for t in trained.tensors()] != before


@threaded
def test_who_reads_while_another_thread_updates_sees_one_value() -> None:
    size = 400_000
    param = nn.Parameter(lucid.tensor(np.zeros(size, np.float32)))
    optimizer = optim.AdamW([param], lr=0.01)

    def update() -> None:
        for _ in range(60):
            param.grad = lucid.ones_like(param.detach())
            optimizer.step()

    def read() -> None:
        for tensor in (param, *state_of(optimizer, param)):
            array = tensor.detach().numpy()
            first = array[0]
            assert np.all(array == first)
            assert np.all(array == first)  # and keeps it
        with lucid.no_grad():
            total = (param * 0.0 + param).numpy()
        assert np.all(total == total[0])

    beside(update, read)


@threaded
def test_an_optimizer_in_several_threads_loses_no_update_of_its_own() -> None:
    params = [parameter(50_000) for _ in range(2)]
    optimizers = [optim.SGD([p], lr=0.5) for p in params]

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(40):
                params[i].grad = lucid.ones_like(params[i].detach())
                optimizers[i].step()

        return run

    twin = parameter(50_000)
    optimizer = optim.SGD([twin], lr=0.5)
    for _ in range(40):
        twin.grad = lucid.ones_like(twin.detach())
        optimizer.step()
    beside(work(0), work(0))  # races on one cell, but never crashes
    beside(work(1), lambda: float(params[1].detach().numpy()[0]))
    assert bits(params[1]) == bits(twin)


def train_beside_readers(model: nn.Module, x: Tensor) -> None:
    """A fused step in one thread; the others read the parameters and run the model."""
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    step = fused_step(model, F.mse_loss, optimizer, fallback="error")
    target = lucid.zeros_like(model(x).detach())
    step(x, target)

    def train() -> None:
        for _ in range(40):
            step(x, target)

    def read() -> None:
        for param in model.parameters():
            array = param.detach().numpy()
            assert array.tobytes() == array.tobytes()
        with lucid.no_grad():
            assert np.all(np.isfinite(model(x).numpy()))

    beside(train, read)


@threaded
def test_a_fused_step_beside_readers() -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    train_beside_readers(model, lucid.randn(32, 64))


def statistics_model() -> nn.Sequential:
    lucid.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8, momentum=None),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 5),
    )


def test_running_statistics_are_written_in_place() -> None:
    model, twin = statistics_model(), statistics_model()
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin)]
    step = fused_step(model, F.cross_entropy, optimizers[0], fallback="error")
    target = lucid.randint(0, 5, (4,))
    for i in range(4):
        x = lucid.randn(4, 3, 8, 8)
        before = [address(t) for t in model.state_dict().values()]
        spent = allocations(lambda: step(x, target))  # noqa: B023
        assert [address(t) for t in model.state_dict().values()] == before
        assert i < 2 or spent == 1  # the loss
        optimizers[1].zero_grad()
        F.cross_entropy(twin(x), target).backward()
        optimizers[1].step()
        assert state_bits(model) == state_bits(twin)


def test_statistics_that_somebody_holds_keep_their_values() -> None:
    model = statistics_model()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    step = fused_step(model, F.cross_entropy, optimizer, fallback="error")
    x, target = lucid.randn(4, 3, 8, 8), lucid.randint(0, 5, (4,))
    step(x, target)
    held = [b.numpy() for b in model.buffers()]
    before = [array.copy() for array in held]
    step(x, target)
    for array, values, buffer in zip(held, before, model.buffers(), strict=True):
        assert np.array_equal(array, values)
        assert not np.array_equal(buffer.numpy(), values)


def test_a_failing_step_leaves_the_statistics() -> None:
    model = statistics_model()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    step = fused_step(model, F.cross_entropy, optimizer, fallback="error")
    x = lucid.randn(4, 3, 8, 8)
    for _ in range(2):
        step(x, lucid.tensor([0, 1, 2, 3]))
    before = state_bits(model)
    with pytest.raises(lucid.OutOfRangeError):
        step(x, lucid.tensor([0, 1, 2, 99]))
    assert state_bits(model) == before


def test_a_step_whose_python_reads_what_it_updates_does_not_wait_for_itself() -> None:
    seen: list[float] = []

    def forward(x: Any) -> Any:
        seen.append(float(model.bias.detach().numpy()[0]))
        return x.copy()

    op = one_input("reads_the_bias", forward)

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return op(super().forward(x))  # type: ignore[no-any-return]

    model = Watched(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    step = fused_step(model, F.mse_loss, optimizer, fallback="error")
    wanted = []
    for _ in range(4):
        wanted.append(float(model.bias.detach().numpy()[0]))
        seen.clear()
        step(lucid.ones(4, 3), lucid.zeros(4, 2))
        assert set(seen) == {wanted[-1]}
    assert len(set(wanted)) == 4


@threaded
def test_one_fused_step_in_two_threads_beside_readers() -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    step = fused_step(model, F.mse_loss, optimizer, fallback="error")
    x, target = lucid.randn(16, 32), lucid.zeros(16, 8)
    step(x, target)

    def train() -> None:
        for _ in range(60):
            assert np.isfinite(step(x, target).item())

    beside(train, lambda: step(x, target))
