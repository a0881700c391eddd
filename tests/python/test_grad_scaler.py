"""GradScaler: PyTorch's protocol, the scale's trajectory, steps left out, and compiled steps."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import lucid
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.amp import GradScaler
from lucid.compile import counters, make_step
from zoo import mlp, regression

INF, NAN = math.inf, math.nan


def parameter(*values: float) -> Tensor:
    return lucid.tensor(list(values), requires_grad=True)


def run(scaler: GradScaler, optimizer: optim.Optimizer, param: Tensor, factor: float) -> None:
    """One step of the loss factor * sum(param)."""
    optimizer.zero_grad()
    scaler.scale((param * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


# Written out from PyTorch 2.13's rule: a step whose gradients are not all finite multiplies the
# scale by the backoff and starts the count anew; the growth_interval-th good one in a row
# multiplies by the growth factor; the scale is float32 and never grows to inf.
TRAJECTORIES: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("good", {"init_scale": 4.0, "growth_interval": 2}, [1, 1, 1, 1, 1], [4, 8, 8, 16, 16]),
    ("bad", {"init_scale": 4.0, "growth_interval": 2}, [INF, NAN, -INF], [2, 1, 0.5]),
    (
        "a bad one starts the count anew",
        {"init_scale": 8.0, "growth_interval": 3},
        [1, 1, NAN, 1, 1, 1, 1],
        [8, 8, 4, 4, 4, 8, 8],
    ),
    (
        "factors",
        {"init_scale": 3.0, "growth_factor": 1.5, "backoff_factor": 0.25, "growth_interval": 1},
        [1, INF, 1],
        [4.5, 1.125, 1.6875],
    ),
    (
        "rounded to float32",
        {"init_scale": 1.0, "growth_factor": 1.1, "growth_interval": 1},
        [1, 1],
        [1.10000002384185791015625, 1.21000003814697265625],
    ),
    (
        "no growth to inf",
        {"init_scale": 2.0**127, "growth_interval": 1},
        [2.0**-20, 2.0**-20],
        [2.0**127, 2.0**127],
    ),
]


@pytest.mark.parametrize(
    ("options", "factors", "scales"),
    [row[1:] for row in TRAJECTORIES],
    ids=[row[0] for row in TRAJECTORIES],
)
def test_trajectory(options: dict[str, Any], factors: list[float], scales: list[float]) -> None:
    scaler, param = GradScaler(**options), parameter(1.0, 2.0)
    optimizer = optim.SGD([param], lr=0.0)
    found = []
    for factor in factors:
        run(scaler, optimizer, param, factor)
        found.append(scaler.get_scale())
    assert found == scales


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_step_left_out_touches_nothing(dtype: str, bad: float) -> None:
    params = [lucid.ones(5, dtype=getattr(lucid, dtype)).requires_grad_() for _ in range(3)]
    optimizer = optim.Adam(params, lr=0.1)
    scaler = GradScaler(init_scale=8.0)

    def step(factor: float) -> Any:
        optimizer.zero_grad()
        scaler.scale(params[0].sum() + params[1].sum() + params[2][2] * factor).backward()
        result = scaler.step(optimizer)
        scaler.update()
        return result

    step(1.0)
    before = copy.deepcopy((optimizer.state_dict(), [p.tolist() for p in params]))
    assert step(bad) is None
    after = (optimizer.state_dict(), [p.tolist() for p in params])
    assert after[1] == before[1]
    for number, state in before[0]["state"].items():
        for name, value in state.items():
            now = after[0]["state"][number][name]
            assert (now == value).all() if isinstance(value, Tensor) else now == value
    assert scaler.get_scale() == 4.0
    step(1.0)
    assert params[0].tolist() != before[1][0]


def test_equals_unscaled_training() -> None:
    """With a power of 2 as scale nothing is rounded otherwise."""
    found = []
    for scaler in (GradScaler(init_scale=1024.0), GradScaler(enabled=False)):
        lucid.manual_seed(1)
        model = mlp()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for i in range(5):
            x, t = regression(i)
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), t)).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append([p.tolist() for p in model.parameters()])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_unscale_divides_in_place(dtype: str) -> None:
    param = lucid.ones(3, dtype=getattr(lucid, dtype)).requires_grad_()
    unused = parameter(1.0)
    optimizer = optim.SGD([param, unused], lr=0.5)
    scaler = GradScaler(init_scale=3.0)
    scaler.scale((param * 6.0).sum()).backward()
    gradient = param.grad
    assert gradient is not None and gradient.tolist() == [18.0] * 3
    scaler.unscale_(optimizer)
    assert param.grad is gradient
    assert gradient.dtype == param.dtype
    assert gradient.tolist() == pytest.approx([6.0] * 3, rel=1e-6 if dtype != "bfloat16" else 0)
    assert unused.grad is None
    scaler.step(optimizer)
    assert param.tolist() == pytest.approx([-2.0] * 3)


def test_scale_of_iterables() -> None:
    scaler = GradScaler(init_scale=2.0)
    a, b = lucid.tensor(1.0), lucid.tensor([2.0, 3.0])
    found = scaler.scale([a, (b, [a])])
    assert isinstance(found, list) and isinstance(found[1], tuple)
    assert [found[0].item(), found[1][0].tolist(), found[1][1][0].item()] == [2.0, [4.0, 6.0], 2.0]
    assert [t.item() for t in scaler.scale(t for t in (a, a))] == [2.0, 2.0]
    assert scaler.scale(lucid.tensor(1.0, dtype=lucid.float16)).dtype is lucid.float32
    disabled = GradScaler(enabled=False)
    assert disabled.scale(a) is a and disabled.get_scale() == 1.0


def test_two_optimizers_share_a_scale() -> None:
    good, bad = parameter(1.0), parameter(1.0)
    first, second = optim.SGD([good], lr=0.5), optim.SGD([bad], lr=0.5)
    scaler = GradScaler(init_scale=4.0)
    scaler.scale(good.sum() + (bad * INF).sum()).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (good.item(), bad.item(), scaler.get_scale()) == (0.5, 1.0, 2.0)


def test_settings_and_new_scale() -> None:
    scaler = GradScaler("cpu", 8.0, 3.0, 0.25, 7)
    assert scaler.is_enabled() and not GradScaler(enabled=False).is_enabled()
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor()) == (3.0, 0.25)
    assert scaler.get_growth_interval() == 7
    scaler.set_growth_factor(2.0)
    scaler.set_backoff_factor(0.5)
    scaler.set_growth_interval(1)
    scaler.scale(lucid.tensor(1.0))
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    scaler.update(lucid.tensor([16.0]))
    assert scaler.scale(lucid.tensor(1.0)).item() == 16.0
    param = parameter(1.0)
    run(scaler, optim.SGD([param], lr=0.1), param, 1.0)
    assert scaler.get_scale() == 32.0


def test_state_dict() -> None:
    scaler, param = GradScaler(init_scale=8.0, growth_interval=3), parameter(1.0)
    optimizer = optim.SGD([param], lr=0.1)
    for _ in range(2):
        run(scaler, optimizer, param, 1.0)
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 2,
    }
    for other in (GradScaler(), pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        other.load_state_dict(state)
        assert other.get_scale() == 8.0
        run(other, optimizer, param, 1.0)
        assert other.get_scale() == 16.0
    used = GradScaler(init_scale=2.0)
    used.scale(lucid.tensor(1.0))
    used.load_state_dict(state)
    assert used.scale(lucid.tensor(1.0)).item() == 8.0
    assert GradScaler(enabled=False).state_dict() == {}
    GradScaler(enabled=False).load_state_dict({})


def test_disabled_steps() -> None:
    param = parameter(1.0)
    optimizer = optim.SGD([param], lr=0.5)
    run(GradScaler(enabled=False), optimizer, param, 1.0)
    assert param.item() == 0.5
    assert GradScaler(enabled=False).step(optimizer, lambda: 3.0) == 3.0


def test_protocol_of_a_step_that_unscales_itself() -> None:
    scaler, optimizer = GradScaler(init_scale=4.0), optim.SGD([parameter(1.0)], lr=0.1)
    assert scaler._scale_value() == 4.0
    scaler._check_step(optimizer)
    scaler._report(optimizer, found_inf=True)
    with pytest.raises(lucid.AutogradError, match="already called"):
        scaler._report(optimizer, found_inf=False)
    with pytest.raises(lucid.AutogradError, match="already called"):
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    assert GradScaler(enabled=False)._scale_value() == 1.0


# ---------------------------------------------------------------- compiled steps


def test_compiled_step_runs_once_for_a_constant_scale() -> None:
    model = mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    step = make_step(model, F.cross_entropy, fallback="error")
    scaler = GradScaler(growth_interval=4)
    runs = []
    for i in range(8):
        optimizer.zero_grad()
        with lucid.autocast("cpu", lucid.float16):
            loss = step(*regression(i))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        runs.append(step.timing()["runs"])
    counts = [int(b - a) for a, b in zip([0, *runs], runs, strict=False)]
    # A second run where the scale is new: at the start, and after it has grown.
    assert counts == [2, 1, 1, 1, 2, 1, 1, 1]


def test_check_is_one_operation() -> None:
    params = [parameter(1.0) for _ in range(50)]
    optimizer = optim.SGD(params, lr=0.1)
    scaler = GradScaler(init_scale=1.0)
    scaler.scale(lucid.stack(params).sum()).backward()
    before = counters()["eager_dispatches"]
    scaler.unscale_(optimizer)
    assert counters()["eager_dispatches"] - before == 1


@pytest.mark.parametrize("low", [lucid.bfloat16, lucid.float16], ids=lambda d: d.name)
def test_compiled_equals_eager_with_bad_steps(low: lucid.dtype) -> None:
    found = []
    for compiled in (False, True):
        lucid.manual_seed(4)
        model = mlp()
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        step = make_step(model, F.cross_entropy, fallback="error")
        scaler = GradScaler(init_scale=2.0**15, growth_interval=2)
        values: list[Any] = []
        for i in range(8):
            x, t = regression(i)
            x = x * (1e30 if i in (2, 5) else 1.0)
            optimizer.zero_grad()
            with lucid.autocast("cpu", low):
                loss = step(x, t) if compiled else F.cross_entropy(model(x), t)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            values.append((str(loss.item()), scaler.get_scale()))
        values += [p.tolist() for p in model.parameters()]
        found.append(values)
    assert found[0] == found[1]
    if low is lucid.float16:
        assert [v[1] for v in found[0][:8]].count(2.0**15) < 8


def test_all_finite_over_many_elements() -> None:
    x = lucid.ones(100_003)
    assert lucid._C.emit("all_finite", x, lucid.ones(2).half()).item() is True
    for place in (0, 70_001, 100_002):
        y = x.clone()
        y[place] = NAN
        assert lucid._C.emit("all_finite", x, y).item() is False
