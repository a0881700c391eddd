"""The compiled step equals the eager step bit for bit, over whole trainings."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import counters, make_step
from zoo import WORKLOADS, Workload, floats, labels, mlp, normalized_mlp, regression

STEPS = 20


def bits(tensor: Tensor | None) -> bytes | None:
    """The bytes of a tensor, or None for an absent one."""
    return None if tensor is None else tensor.detach().numpy().tobytes()


def state_bits(model: nn.Module) -> dict[str, bytes | None]:
    """Parameters and buffers by name."""
    return {k: bits(v) for k, v in model.state_dict().items()}


def grad_bits(model: nn.Module) -> dict[str, bytes | None]:
    """Gradients by name."""
    return {k: bits(p.grad) for k, p in model.named_parameters()}


def assert_same_training(
    model: nn.Module,
    loss_fn: Callable[..., Any],
    train: Callable[[Callable[..., Tensor], nn.Module, int], list[Tensor]],
    criterion: nn.Module | None = None,
) -> None:
    """Train twins, one eager and one compiled; ``train(step, model, i)`` does step i."""
    twin, twin_loss = copy.deepcopy((model, loss_fn if criterion is None else criterion))
    eager_loss = loss_fn if criterion is None else criterion
    compiled_loss = loss_fn if criterion is None else twin_loss
    compiled = make_step(twin, compiled_loss, fallback="error")

    def eager(x: Any, *extra: Any) -> Tensor:
        return eager_loss(model(x), *extra)  # type: ignore[no-any-return]

    state = lucid.get_rng_state()
    optimizers = [optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin)]
    eager_losses, compiled_losses = [], []
    for i in range(STEPS):
        optimizers[0].zero_grad()
        eager_losses.append([bits(v) for v in train(eager, model, i)])
        eager_losses.append(list(grad_bits(model).items()))
        optimizers[0].step()
    eager_rng = lucid.get_rng_state()
    lucid.set_rng_state(state)
    for i in range(STEPS):
        optimizers[1].zero_grad()
        compiled_losses.append([bits(v) for v in train(compiled, twin, i)])
        compiled_losses.append(list(grad_bits(twin).items()))
        optimizers[1].step()
    for i, (wanted, found) in enumerate(zip(eager_losses, compiled_losses, strict=True)):
        assert wanted == found, f"step {i // 2}: {'gradients' if i % 2 else 'losses'} differ"
    assert state_bits(model) == state_bits(twin)
    assert lucid.get_rng_state().tolist() == eager_rng.tolist()
    assert compiled.cache_info()["entries"] >= 1
    assert not compiled.eager_only


def one_batch(workload: Workload) -> Callable[..., list[Tensor]]:
    """A plain training step on the workload's i-th batch."""

    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        loss = step(*workload.batch(i))
        loss.backward()
        return [loss]

    return train


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_training_is_equal(workload: Workload) -> None:
    lucid.manual_seed(7)
    assert_same_training(workload.model(), workload.loss, one_batch(workload))


def test_micro_batches_with_a_scaled_loss() -> None:
    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        losses = []
        for k in range(3):
            loss = step(*regression(3 * i + k))
            (loss / 3).backward()
            losses.append(loss)
        return losses

    lucid.manual_seed(8)
    assert_same_training(normalized_mlp(), F.cross_entropy, train)


def test_sum_of_two_losses() -> None:
    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        a, b = step(*regression(2 * i)), step(*regression(2 * i + 1))
        (a + 0.1 * b).backward()
        return [a, b]

    lucid.manual_seed(9)
    assert_same_training(normalized_mlp(), F.cross_entropy, train)


def test_input_that_is_not_a_leaf() -> None:
    found: list[list[bytes | None]] = []

    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        source = floats(i, 6, 8).requires_grad_()
        loss = step(source * 2.0 + 1.0, labels(i, 4, 6))
        loss.backward()
        found.append([bits(source.grad)])
        return [loss]

    lucid.manual_seed(10)
    assert_same_training(mlp(), F.cross_entropy, train)
    assert found[:STEPS] == found[STEPS:]
    assert None not in found[0]


def test_criterion_with_parameters() -> None:
    class Criterion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(lucid.ones(4))

        def forward(self, y: Tensor, t: Tensor) -> Tensor:
            return F.cross_entropy(y * self.scale, t)

    criterion = Criterion()

    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        loss = step(*regression(i))
        loss.backward()
        return [loss]

    lucid.manual_seed(11)
    assert_same_training(mlp(), criterion, train, criterion)
    assert criterion.scale.grad is not None


def test_evaluation_between_training() -> None:
    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        loss = step(*regression(i))
        loss.backward()
        model.eval()
        with lucid.no_grad():
            held_out = step(*regression(100 + i))
        assert not held_out.requires_grad
        model.train()
        return [loss, held_out]

    lucid.manual_seed(12)
    assert_same_training(normalized_mlp(), F.cross_entropy, train)


def test_ragged_batches() -> None:
    def train(step: Callable[..., Tensor], model: nn.Module, i: int) -> list[Tensor]:
        rows = (6, 6, 3)[i % 3]
        loss = step(floats(i, rows, 8), labels(i, 4, rows))
        loss.backward()
        return [loss]

    lucid.manual_seed(13)
    assert_same_training(mlp(), F.cross_entropy, train)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_warm_step_is_one_run(workload: Workload) -> None:
    lucid.manual_seed(7)
    model = workload.model()
    step = make_step(model, workload.loss, fallback="error")
    batch = workload.batch(0)
    for _ in range(2):
        step(*batch).backward()
        for p in model.parameters():
            p.grad = None
    before = counters()
    step(*batch).backward()
    after = counters()
    spent = {k: after[k] - before[k] for k in after}
    assert spent["executable_runs"] == 1
    assert spent["eager_dispatches"] == 0
    assert spent["compilations"] == 0
    gradients = sum(p.grad is not None for p in model.parameters())
    written = spent["buffer_allocations"] - gradients - 1
    draws = int(any(isinstance(m, (nn.Dropout, nn.LSTM)) for m in model.modules()))
    states = sum(1 for name, _ in model.named_buffers() if model.training)
    assert written == draws + states
