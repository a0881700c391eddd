"""fused_step equals backward, clipping, scaling and the optimizer's step, bit for bit."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.amp import GradScaler
from lucid.compile import FusedStep, compile_optimizer, fused_step
from optimizers import OPTIMIZERS, Make, everything
from test_bit_equality import bits
from test_compile_function import spent
from zoo import WORKLOADS, Tied, Workload, floats, labels, normalized_mlp, token_loss

Change = Callable[[int, nn.Module, optim.Optimizer], None]


def eight_rows(seed: int) -> tuple[Tensor, Tensor]:
    """Eight rows of eight features, and classes."""
    return floats(seed, 8, 8), labels(seed, 4, 8)


def unfused(
    model: nn.Module,
    optimizer: optim.Optimizer,
    loss_fn: Callable[..., Any],
    batch: tuple[Any, ...],
    clip_norm: float | None,
    accumulate: int,
    scaler: GradScaler | None,
) -> Tensor:
    """The same step in ordinary code."""
    optimizer.zero_grad()
    total = None
    for i in range(accumulate):
        x, *extra = batch
        if accumulate > 1:
            rows = slice(i * len(x) // accumulate, (i + 1) * len(x) // accumulate)
            x, *extra = (tensor[rows] for tensor in batch)
        loss = loss_fn(model(x), *extra)
        loss = loss if accumulate == 1 else loss / accumulate
        (loss if scaler is None else scaler.scale(loss)).backward()
        total = loss.detach() if total is None else total + loss.detach()
    if scaler is not None:
        scaler.unscale_(optimizer)
    if clip_norm is not None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(params, clip_norm)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    assert total is not None
    return total


def compare(
    make: Make,
    *,
    model: Callable[[], nn.Module] = normalized_mlp,
    loss: Callable[..., Any] = F.cross_entropy,
    batch: Callable[[int], tuple[Any, ...]] = eight_rows,
    steps: int = 5,
    clip_norm: float | None = None,
    accumulate: int = 1,
    scaler: Callable[[], GradScaler] | None = None,
    groups: Callable[[Any], Any] = lambda m: m.parameters(),
    change: Change | None = None,
    fallback: str = "error",
) -> FusedStep:
    """Train twins, one fused, and compare all that a step changes; returns the fused step."""
    lucid.manual_seed(3)
    eager = model()
    twin = copy.deepcopy(eager)
    optimizers = make(groups(eager)), make(groups(twin))
    scalers = (None, None) if scaler is None else (scaler(), scaler())
    options: dict[str, Any] = {"clip_norm": clip_norm, "accumulate": accumulate}
    step = fused_step(twin, loss, optimizers[1], scaler=scalers[1], fallback=fallback, **options)
    for i in range(steps):
        inputs = batch(i)
        state = lucid.get_rng_state()
        wanted = unfused(eager, optimizers[0], loss, inputs, scaler=scalers[0], **options)
        after = everything(eager, optimizers[0], scalers[0])
        lucid.set_rng_state(state)
        assert bits(step(*inputs)) == bits(wanted), f"step {i}"
        found = everything(twin, optimizers[1], scalers[1])
        for what, value in after.items():
            assert found[what] == value, f"step {i}: {what}"
        assert all(p.grad is None for p in twin.parameters())
        if change is not None:
            change(i, eager, optimizers[0])
            change(i, twin, optimizers[1])
    return step


# ------------------------------------------------------------ equal to the unfused step


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_norm": 0.5},
        {"accumulate": 2},
        {"accumulate": 4, "clip_norm": 0.1},
        {"scaler": lambda: GradScaler(init_scale=1000.0, growth_interval=2, growth_factor=3.0)},
    ],
    ids=["plain", "clipped", "two parts", "four parts clipped", "scaled"],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, options: dict[str, Any]) -> None:
    compare(OPTIMIZERS[name], **options)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_workloads(workload: Workload) -> None:
    compare(
        OPTIMIZERS["adam"], model=workload.model, loss=workload.loss, batch=workload.batch, steps=3
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["momentum", "adamw", "radam"])
def test_other_dtypes(name: str, dtype: str) -> None:
    kind = getattr(lucid, dtype)
    scalers: list[Any] = [None]
    if dtype != "float16":
        scalers.append(lambda: GradScaler(init_scale=1000.0, growth_interval=2, growth_factor=3.0))
    for scaler in scalers:
        compare(
            OPTIMIZERS[name],
            model=lambda: nn.Linear(8, 4).to(kind),
            batch=lambda seed: (floats(seed, 8, 8).to(kind), labels(seed, 4, 8)),
            scaler=scaler,
            clip_norm=0.5,
        )


def test_parameter_groups() -> None:
    step = compare(
        OPTIMIZERS["adamw"],
        groups=lambda m: [
            {"params": list(m[0].parameters()), "lr": 0.1, "betas": (0.5, 0.6)},
            {"params": [*m[1].parameters(), *m[4].parameters()], "weight_decay": 0.0},
            {"params": list(m[8].parameters()), "maximize": True},
        ],
    )
    assert step.cache_info()["misses"] == 1


def test_schedules_compile_nothing() -> None:
    schedules: dict[int, Any] = {}

    def change(i: int, model: nn.Module, optimizer: optim.Optimizer) -> None:
        if id(optimizer) not in schedules:
            schedules[id(optimizer)] = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 20)
        schedules[id(optimizer)].step()

    assert compare(OPTIMIZERS["adamw"], change=change, steps=8).cache_info()["misses"] == 1


def change_decay(i: int, model: nn.Module, optimizer: optim.Optimizer) -> None:
    if i in (2, 4):
        optimizer.param_groups[0]["weight_decay"] = 0.1 if i == 2 else 0.0


def load(i: int, model: nn.Module, optimizer: optim.Optimizer) -> None:
    if i in (1, 4):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    if i == 2:
        model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items() if v.ndim}, False)


def freeze(i: int, model: nn.Module, optimizer: optim.Optimizer) -> None:
    if i in (1, 3):
        model.get_submodule("0").requires_grad_(i == 3)


@pytest.mark.parametrize("name", ["momentum", "adam", "nadam"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_decay, "option of the optimizer"),
        (load, "state of the optimizer"),
        (freeze, "requires_grad of Linear.weight"),
    ],
    ids=["option", "load", "freeze"],
)
def test_changes_between_steps(name: str, change: Change, reason: str) -> None:
    step = compare(OPTIMIZERS[name], change=change, steps=7)
    if name == "adam":
        assert f"because of another {reason}" in step.explain()


def test_a_new_group() -> None:
    def change(i: int, model: Any, optimizer: optim.Optimizer) -> None:
        if i == 2:
            optimizer.add_param_group({"params": list(model[8].parameters()), "lr": 0.5})

    step = compare(
        OPTIMIZERS["adam"],
        groups=lambda m: [p for layer in m[:8] for p in layer.parameters()],
        change=change,
    )
    assert "another list of the optimizer's groups" in step.explain()


def test_tied_weights() -> None:
    compare(
        OPTIMIZERS["adam"],
        model=Tied,
        loss=token_loss,
        batch=lambda seed: (labels(seed, 7, 9), labels(seed + 1, 7, 9)),
    )


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_batches_of_other_shapes(name: str) -> None:
    step = compare(
        OPTIMIZERS[name],
        batch=lambda seed: (floats(seed, 4 + seed % 3, 8), labels(seed, 4, 4 + seed % 3)),
        steps=9,
    )
    assert step.cache_info()["misses"] == 3 + (name == "momentum")


def test_empty_batches() -> None:
    step = compare(
        OPTIMIZERS["adam"],
        model=lambda: nn.Linear(8, 4),
        loss=lambda y, t: y.sum(),
        batch=lambda seed: (floats(seed, 0, 8), labels(seed, 4, 0)),
        accumulate=2,
    )
    assert step.cache_info()["misses"] == 1


def not_finite(seed: int) -> tuple[Tensor, Tensor]:
    """A batch that makes gradients of nan or inf at some seeds, the first ones among them."""
    x, t = eight_rows(seed)
    if seed in (0, 1, 4):
        x[0, 0] = float("inf" if seed else "nan")
    return x, t


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "clip_norm": 0.1}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_skipped_steps(name: str, options: dict[str, Any]) -> None:
    step = compare(
        OPTIMIZERS[name],
        model=lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)),
        batch=not_finite,
        scaler=lambda: GradScaler(init_scale=1024.0, growth_interval=2),
        steps=8,
        **options,
    )
    assert step.cache_info()["misses"] <= 2


def test_overflow_of_the_scaled_gradients() -> None:
    compare(
        OPTIMIZERS["adam"],
        scaler=lambda: GradScaler(init_scale=2.0**127, growth_interval=2),
        model=lambda: nn.Linear(8, 4),
        loss=lambda y, t: (y * 100.0).square().sum(),
        steps=30,
    )


def test_gradient_hooks_run_eagerly() -> None:
    handles: list[Any] = []

    def change(i: int, model: Any, optimizer: optim.Optimizer) -> None:
        if i == 1:
            handles.append(model[0].weight.register_hook(lambda gradient: gradient * 0.5))
        if i == 3:
            handles.pop().remove()

    step = compare(OPTIMIZERS["adam"], change=change, steps=6, fallback="silent")
    assert "has a gradient hook, which one executable does not call" in step.explain()
    assert step.cache_info()["hits"] == 3


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.1}, {"scaler": True}])
@pytest.mark.parametrize("fallback", ["error", "silent"])
def test_under_autocast(options: dict[str, Any], fallback: str) -> None:
    eager, twin = nn.Linear(8, 4), nn.Linear(8, 4)
    twin.load_state_dict(eager.state_dict())
    pair = [OPTIMIZERS["adamw"](m.parameters()) for m in (eager, twin)]
    scalers = [GradScaler(init_scale=1024.0) if options.get("scaler") else None for _ in pair]
    clip_norm = options.get("clip_norm")

    def loss(y: Tensor, t: Tensor) -> Tensor:
        if fallback == "silent":
            y.sum().item()  # cannot be traced
        return F.cross_entropy(y, t)

    def under(y: Tensor, t: Tensor) -> Tensor:
        with lucid.autocast("cpu", lucid.bfloat16):
            return loss(y, t)

    class Under(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with lucid.autocast("cpu", lucid.bfloat16):
                return eager(x)

    step = fused_step(
        twin, loss, pair[1], clip_norm=clip_norm, scaler=scalers[1], fallback=fallback
    )
    for i in range(4):
        batch = eight_rows(i)
        wanted = unfused(Under(), pair[0], under, batch, clip_norm, 1, scalers[0])
        with lucid.autocast("cpu", lucid.bfloat16):
            assert bits(step(*batch)) == bits(wanted)
        assert everything(twin, pair[1], scalers[1]) == everything(eager, pair[0], scalers[0])
    assert step.eager_only == (fallback == "silent")


# ------------------------------------------------------------ auxiliary results


@pytest.mark.parametrize("fallback", ["error", "silent"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_auxiliary_results(accumulate: int, fallback: str) -> None:
    model = nn.Linear(8, 4)
    optimizer = OPTIMIZERS["momentum"](model.parameters())

    def loss(y: Tensor, t: Tensor) -> tuple[Tensor, Any]:
        if fallback == "silent":
            y.sum().item()
        return F.cross_entropy(y, t), {"y": y, "rest": [1, t]}

    step = fused_step(
        model, loss, optimizer, has_aux=True, accumulate=accumulate, fallback=fallback
    )
    for i in range(3):
        x, t = eight_rows(i)
        wanted = model(x)
        value, aux = step(x, t)
        assert not value.requires_grad
        parts = [aux] if accumulate == 1 else aux
        assert len(parts) == accumulate
        assert bits(lucid.cat([part["y"] for part in parts])) == bits(wanted)
        assert not any(part["y"].requires_grad for part in parts)
        assert parts[0]["rest"][0] == 1


# ------------------------------------------------------------ one run, and what is kept


@pytest.mark.parametrize("scaler", [None, GradScaler(init_scale=128.0)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_warm_step_is_one_run(name: str, scaler: GradScaler | None) -> None:
    model = normalized_mlp()
    step = fused_step(
        model,
        F.cross_entropy,
        OPTIMIZERS[name](model.parameters()),
        scaler=scaler,
        clip_norm=1.0,
        accumulate=2,
        fallback="error",
    )
    batch = eight_rows(1)
    for _ in range(8):
        step(*batch)
    found = spent(lambda: step(*batch))
    assert found["executable_runs"] == 1
    assert found["eager_dispatches"] == found["compilations"] == 0


def test_gradients_that_were_there_stay() -> None:
    model = nn.Linear(8, 4)
    x, t = eight_rows(1)
    F.cross_entropy(model(x), t).backward()
    before = bits(model.weight.grad)
    fused_step(model, F.cross_entropy, OPTIMIZERS["adam"](model.parameters()))(x, t)
    assert bits(model.weight.grad) == before


def test_compile_optimizer_is_the_same() -> None:
    model = nn.Linear(8, 4)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    step = compile_optimizer(model, F.cross_entropy, optimizer, clip_norm=1.0)
    assert isinstance(step, FusedStep)
    assert step.clip_norm == 1.0


def test_steps_are_collected() -> None:
    model = nn.Linear(8, 4)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    step = fused_step(model, F.cross_entropy, optimizer)
    for seed in range(2):
        step(*eight_rows(seed))
    found = [weakref.ref(v) for v in (model, model.weight, optimizer, step)]
    del model, optimizer, step
    gc.collect()
    assert [reference() for reference in found] == [None] * 4


def test_replaced_state_is_freed() -> None:
    model = nn.Linear(8, 4)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    step = fused_step(model, F.cross_entropy, optimizer)
    step(*eight_rows(0))
    old = weakref.ref(optimizer.state[model.weight]["exp_avg"])
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(*eight_rows(1))
    gc.collect()
    assert old() is None


def test_memory_is_stable() -> None:
    model = nn.Linear(8, 4)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    step = fused_step(model, F.cross_entropy, optimizer)
    compiled = lucid.compile(model, dynamic=True)
    batches = [eight_rows(seed) for seed in range(3)]

    def train(steps: int) -> int:
        for i in range(steps):
            x, t = batches[i % 3]
            step(x, t)
            optimizer.zero_grad()
            F.cross_entropy(compiled(x), t).backward()
            optimizer.step()
        gc.collect()
        return len(gc.get_objects())

    counts = [train(steps) for steps in (10, 300, 10)]
    assert counts[2] <= counts[0] + 20


# ------------------------------------------------------------ errors


class Trap(nn.Module):
    """Fails after its inside has run, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = normalized_mlp()
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.inside(x)
        if self.fails:
            raise ZeroDivisionError
        return y


def fail_in_model(step: FusedStep, model: Any, x: Tensor, t: Tensor) -> None:
    model.fails = True
    try:
        step(x, t)
    finally:
        model.fails = False


ERRORS: list[tuple[str, Any, type[Exception]]] = [
    ("the model fails", fail_in_model, ZeroDivisionError),
    (
        "a class out of range",
        lambda step, m, x, t: step(x, lucid.full((8,), 99, dtype=lucid.int64)),
        lucid.OutOfRangeError,
    ),
    ("another number of classes", lambda step, m, x, t: step(x, t[:3]), lucid.ShapeError),
    ("another number of features", lambda step, m, x, t: step(x[:, :7], t), lucid.ShapeError),
    ("no input", lambda step, m, x, t: step(), lucid.ArgumentTypeError),
    ("an object", lambda step, m, x, t: step(x, object()), lucid.ArgumentTypeError),
    ("no gradients", lambda step, m, x, t: lucid.no_grad()(step)(x, t), lucid.UserError),
    ("odd parts", lambda step, m, x, t: step(x[:7], t[:7]), lucid.ShapeError),
    ("a leaf", lambda step, m, x, t: step(x.clone().requires_grad_(), t), lucid.UserError),
]


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("fallback", ["error", "silent"])
def test_errors_change_nothing(fallback: str, is_warm: bool, is_scaled: bool) -> None:
    model = Trap()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    scaler = GradScaler(init_scale=64.0) if is_scaled else None
    x, t = eight_rows(1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        if fallback == "silent":
            y.sum().item()
        return F.cross_entropy(y, t)

    step = fused_step(
        model, loss, optimizer, clip_norm=1.0, accumulate=2, scaler=scaler, fallback=fallback
    )
    if is_warm:
        step(x, t)
    for name, call, error in ERRORS:
        before = everything(model, optimizer, scaler)
        with pytest.raises(error):
            call(step, model, x, t)
        after = everything(model, optimizer, scaler)
        before["scaler"] = after["scaler"] = None if scaler is None else scaler.get_scale()
        assert after == before, name
        assert all(p.grad is None for p in model.parameters())
    step(x, t)


def test_an_update_that_fails_changes_nothing() -> None:
    class Failing(optim.Adam):
        @staticmethod
        def update(*args: Any) -> Any:
            raise ZeroDivisionError

    model = normalized_mlp()
    optimizer = Failing(model.parameters())
    step = fused_step(model, F.cross_entropy, optimizer, fallback="error")
    before = everything(model, optimizer)
    with pytest.raises(ZeroDivisionError):
        step(*eight_rows(1))
    assert everything(model, optimizer) == before
    assert optimizer.state_dict()["state"] == {}


# ------------------------------------------------------------ what a first user met


def test_a_step_that_writes_a_parameter_runs_as_eager() -> None:
    outcomes = []
    for is_fused in (False, True):
        lucid.manual_seed(0)
        model = nn.Linear(8, 4)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def loss_fn(y: Tensor, t: Tensor, model: nn.Linear = model) -> Tensor:
            loss = F.cross_entropy(y, t)
            with lucid.no_grad():
                model.bias.fill_(1.0)  # after the forward has read it
            return loss

        x, t = eight_rows(1)
        step = fused_step(model, loss_fn, optimizer, fallback="silent")
        for _ in range(3):
            if is_fused:
                step(x, t)
            else:
                unfused(model, optimizer, loss_fn, (x, t), None, 1, None)
        outcomes.append([bits(p) for p in model.parameters()])
    assert outcomes[0] == outcomes[1]


def test_calls_of_several_threads_take_turns() -> None:
    model = nn.Linear(8, 4)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    step = fused_step(model, F.cross_entropy, optimizer, fallback="error")
    x, t = eight_rows(2)
    step(x, t)
    threads = [threading.Thread(target=lambda: [step(x, t) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state["step"] for state in optimizer.state.values()] == [401, 401]


@pytest.mark.parametrize("is_fused", [False, True])
def test_an_option_that_is_no_number(is_fused: bool) -> None:
    model = nn.Linear(8, 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x, t = eight_rows(3)
    F.cross_entropy(model(x), t).backward()
    before = [bits(p) for p in model.parameters()]
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(lucid.ArgumentTypeError, match="optimizer: an option must be a number: got"):
        if is_fused:
            fused_step(model, F.cross_entropy, optimizer, fallback="error")(x, t)
        else:
            optimizer.step()
    assert [bits(p) for p in model.parameters()] == before
