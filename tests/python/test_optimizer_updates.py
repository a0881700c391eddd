"""Optimizers update all parameters by one executable, with the bits of single operations."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import compile_optimizer, make_step
from optimizers import OPTIMIZERS, everything, optimizer_bits
from test_bit_equality import bits, state_bits
from test_compile_function import spent
from zoo import floats


def train(model: nn.Module, optimizer: optim.Optimizer, x: Tensor) -> None:
    """One step on the squared output."""
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def adam(model: nn.Module, **options: Any) -> optim.Optimizer:
    return optim.Adam(model.parameters(), lr=0.01, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equal_to_one_operation_at_a_time(name: str, dtype: str) -> None:
    lucid.manual_seed(1)
    model = nn.Linear(5, 3).to(getattr(lucid, dtype))
    twin = copy.deepcopy(model)
    together, single = (OPTIMIZERS[name](list(m.parameters())) for m in (model, twin))
    for group in single.param_groups:
        group["foreach"] = False
    for i in range(7):
        x = floats(i, 4, 5).to(getattr(lucid, dtype))
        for m, optimizer in ((model, together), (twin, single)):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            if i == 3:
                m.bias.grad = None  # its counts fall behind
            optimizer.step()
            if i == 4:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert everything(model, together) == everything(twin, single), f"step {i}"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_warm_step_is_one_run(name: str) -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2))
    optimizer = OPTIMIZERS[name](model.parameters())
    for i in range(8):
        train(model, optimizer, floats(i, 4, 5))
    found = spent(optimizer.step)
    assert found["executable_runs"] == 1
    assert found["eager_dispatches"] == found["compilations"] == 0


def test_a_schedule_compiles_nothing() -> None:
    model = nn.Linear(5, 3)
    optimizer = adam(model)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    train(model, optimizer, floats(1, 4, 5))
    train(model, optimizer, floats(1, 4, 5))
    for _ in range(5):
        schedule.step()
        assert spent(optimizer.step)["compilations"] == 0


class _Halving(optim.SGD):
    """A learning rate that is no option of a group."""

    factor = 1.0

    def _numbers(self, group: Any, counters: dict[str, Any]) -> Any:
        numbers = super()._numbers(group, counters)
        numbers.scalars["lr"] *= self.factor
        return numbers


def _change_factor(optimizer: Any) -> None:
    optimizer.factor = 0.5


def _change_lr(optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.3


def _change_betas(optimizer: Any) -> None:
    optimizer.param_groups[0]["betas"][0] = 0.5


def _change_state(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["step"] = 50


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda p: _Halving(p, lr=0.1), _change_factor),
        (lambda p: optim.SGD(p, lr=0.1), _change_lr),
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), _change_lr),
        (lambda p: optim.Adam(p, lr=0.1), _change_lr),
        (lambda p: optim.Adam(p, betas=[0.9, 0.999]), _change_betas),
        (lambda p: optim.AdamW(p, lr=0.1), _change_state),
        (lambda p: optim.Lion(p, lr=0.1), _change_lr),
        (lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1), _change_state),
    ],
)
def test_a_change_between_warm_steps_is_seen(make: Any, change: Any) -> None:
    model = nn.Linear(5, 3)
    twin = copy.deepcopy(model)
    together, single = make(model.parameters()), make(twin.parameters())
    single.param_groups[0]["foreach"] = False
    for i in range(8):
        for m, optimizer in ((model, together), (twin, single)):
            train(m, optimizer, floats(i, 4, 5))
            if i == 4:
                change(optimizer)
        assert everything(model, together) == everything(twin, single), f"step {i}"


def test_numbers_that_stay_are_made_once() -> None:
    model = nn.Linear(5, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        train(model, optimizer, floats(i, 4, 5))
    assert spent(optimizer.step)["buffer_allocations"] == 0  # parameters are written in place


@pytest.mark.parametrize("change", ["other gradient", "no gradient", "foreach", "group", "order"])
def test_what_is_updated_is_seen_anew(change: str) -> None:
    model = nn.Linear(5, 3)
    spare = nn.Parameter(floats(9, 4))
    twin, twin_spare = copy.deepcopy(model), copy.deepcopy(spare)
    together = adam(nn.ParameterList([*model.parameters(), spare]))
    single = adam(nn.ParameterList([*twin.parameters(), twin_spare]))
    for i in range(8):
        for m, other, optimizer in ((model, spare, together), (twin, twin_spare, single)):
            optimizer.param_groups[0]["foreach"] = None if optimizer is together else False
            optimizer.zero_grad()
            m(floats(i, 4, 5)).square().sum().backward()
            if i < 4:
                optimizer.step()
                continue
            if change == "other gradient":
                other.grad = floats(i, 4)
            elif change == "no gradient":
                m.bias.grad = None
            elif change == "foreach":
                optimizer.param_groups[0]["foreach"] = False
            elif change == "group" and i == 4:
                optimizer.add_param_group({"params": [nn.Parameter(floats(3, 2))], "lr": 0.5})
            elif change == "order":
                optimizer.param_groups[0]["params"].reverse()
            optimizer.step()
        assert everything(model, together) == everything(twin, single), f"step {i}"


def test_a_step_in_a_trace_is_refused_when_warm() -> None:
    model = nn.Linear(5, 3)
    optimizer = adam(model)
    for i in range(3):
        train(model, optimizer, floats(i, 4, 5))
    before = state_bits(model)
    step = lucid.compile(lambda x: (optimizer.step(), x + 1)[1], fallback="error")
    with pytest.raises(lucid.TraceError, match="step was called inside a trace"):
        step(floats(1, 2))
    assert state_bits(model) == before


def test_an_option_changes_the_arithmetic() -> None:
    model, twin = (nn.Linear(5, 3) for _ in range(2))
    twin.load_state_dict(model.state_dict())
    together, single = adam(model), adam(twin, foreach=False)
    for i in range(6):
        for m, optimizer in ((model, together), (twin, single)):
            optimizer.param_groups[0]["weight_decay"] = 0.1 if 2 <= i < 4 else 0.0
            train(m, optimizer, floats(i, 4, 5))
        assert everything(model, together) == everything(twin, single)


def test_parameters_that_get_and_lose_gradients() -> None:
    model = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
    twin = copy.deepcopy(model)
    together, single = adam(model), adam(twin, foreach=False)
    choice = random.Random(1)
    for i in range(30):
        used = [k for k in range(4) if choice.random() < 0.5] or [0]
        for layers, optimizer in ((model, together), (twin, single)):
            optimizer.zero_grad()
            h = floats(i, 2, 3)
            for k in used:
                h = layers[k](h).tanh()
            h.sum().backward()
            optimizer.step()
        assert everything(model, together) == everything(twin, single), f"step {i}"


@pytest.mark.parametrize("foreach", [None, False])
def test_no_state_for_what_keeps_none(foreach: bool | None) -> None:
    model = nn.Linear(5, 3)
    model.bias.requires_grad_(False)
    plain = optim.SGD(model.parameters(), lr=0.1, foreach=foreach)
    train(model, plain, floats(1, 4, 5))
    assert plain.state_dict()["state"] == {}
    kept = adam(model, foreach=foreach)
    train(model, kept, floats(1, 4, 5))
    assert list(kept.state_dict()["state"]) == [0]


def test_groups_added_and_state_loaded() -> None:
    def make() -> tuple[nn.Module, optim.Optimizer]:
        lucid.manual_seed(2)
        model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3))
        return model, optim.AdamW(model[0].parameters(), lr=0.1)

    (model, together), (twin, single) = make(), make()
    single.param_groups[0]["foreach"] = False
    for i in range(6):
        for m, optimizer in ((model, together), (twin, single)):
            train(m, optimizer, floats(i, 4, 5))
            if i == 2:
                foreach = optimizer.param_groups[0]["foreach"]
                group = {"params": list(m[1].parameters()), "lr": 0.5, "foreach": foreach}
                optimizer.add_param_group(group)
            if i == 4:
                saved = copy.deepcopy(optimizer.state_dict())
                train(m, optimizer, floats(9, 4, 5))
                optimizer.load_state_dict(saved)
        assert everything(model, together) == everything(twin, single), f"step {i}"


def test_closure() -> None:
    model, twin = nn.Linear(5, 3), nn.Linear(5, 3)
    twin.load_state_dict(model.state_dict())
    optimizer, other = adam(model), adam(twin)
    x = floats(1, 4, 5)

    def closure() -> Tensor:
        assert lucid.is_grad_enabled()
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    assert bits(optimizer.step(closure)) == bits(twin(x).square().sum())
    train(twin, other, x)
    assert state_bits(model) == state_bits(twin)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies(copied: Any) -> None:
    model = nn.Linear(5, 3)
    optimizer = adam(model)
    train(model, optimizer, floats(1, 4, 5))
    twin, other = copied((model, optimizer))
    assert other.param_groups[0]["params"][0] is twin.weight
    for m, o in ((model, optimizer), (twin, other)):
        train(m, o, floats(2, 4, 5))
    assert everything(model, optimizer) == everything(twin, other)


def test_replaced_state_is_freed() -> None:
    model = nn.Linear(5, 3)
    optimizer = adam(model)
    for _ in range(2):
        train(model, optimizer, floats(1, 4, 5))
    old = weakref.ref(optimizer.state[model.weight]["exp_avg"])
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, floats(1, 4, 5))
    gc.collect()
    assert old() is None


class Failing(optim.SGD):
    """Its update fails for the second parameter."""

    @staticmethod
    def update(parameter: Tensor, *args: Any) -> Any:
        if parameter.ndim == 1:
            raise ZeroDivisionError
        return optim.SGD.update(parameter, *args)


def test_an_error_updates_nothing() -> None:
    model = nn.Linear(5, 3)
    optimizer = Failing(model.parameters(), lr=0.1, momentum=0.9)
    model(floats(1, 4, 5)).sum().backward()
    before = everything(model, optimizer)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    assert everything(model, optimizer) == before


def test_inside_a_trace_the_step_runs_eagerly() -> None:
    found = []
    for is_compiled in (True, False):
        lucid.manual_seed(3)
        model, inner = nn.Linear(3, 2), nn.Linear(3, 2)
        optimizer = adam(inner)
        inner(floats(5, 4, 3)).square().sum().backward()

        def loss(y: Tensor, x: Tensor) -> Tensor:
            optimizer.step()  # noqa: B023
            return (y - inner(x)).square().sum()  # noqa: B023

        step = make_step(model, loss, fallback="silent")
        for i in range(3):
            x = floats(i, 4, 3)
            step(x, x) if is_compiled else loss(model(x), x)
        found.append(everything(inner, optimizer))
        if is_compiled:
            assert "optimizer: step was called inside a trace" in step.explain()
    assert found[0] == found[1]
    assert found[0]["optimizer"][0]["step"] == 3


def test_compile_optimizer() -> None:
    model = nn.Linear(5, 3)
    optimizer = adam(model, foreach=False)
    assert compile_optimizer(optimizer) is optimizer
    train(model, optimizer, floats(1, 4, 5))
    assert spent(optimizer.step)["executable_runs"] == 1
    assert len(optimizer_bits(optimizer)) == 2
