"""Whole training steps on the metal device: models, optimizers, state, errors and asynchrony."""

from __future__ import annotations

import copy
import gc
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import counters, make_segmented_step, make_step
from zoo import WORKLOADS, Workload, floats, labels, mlp, normalized_mlp, regression

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]

# Relative error of float32 losses and parameters after a few steps: sums of another order.
TOLERANCE = 2e-4


def moved(value: Any, device: str) -> Any:
    """The batch on the device; containers keep their form."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, device) for item in value)
    return value


def trained(
    load: Workload, device: str, compiled: bool, steps: int = 3
) -> tuple[list[float], dict[str, Any]]:
    """Losses and final state of some steps."""
    lucid.manual_seed(5)
    model = load.model().to(device)
    # Not Adam: it makes full steps of gradients that are nothing but rounding.
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = make_step(model, load.loss, fallback="error")
    lucid.manual_seed(6)
    losses = []
    for seed in range(steps):
        batch = moved(load.batch(seed), device)
        opt.zero_grad()
        loss = step(*batch) if compiled else load.loss(model(batch[0]), *batch[1:])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, {name: np.array(t.numpy()) for name, t in model.state_dict().items()}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("load", WORKLOADS, ids=lambda load: load.name)
def test_training_equals_the_cpu(load: Workload, compiled: bool) -> None:
    expected_losses, expected = trained(load, "cpu", True)
    losses, found = trained(load, "metal", compiled)
    np.testing.assert_allclose(losses, expected_losses, rtol=TOLERANCE, atol=TOLERANCE)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=TOLERANCE, err_msg=name)


def test_the_example_of_the_specification() -> None:
    batches = [
        (floats(seed, 8, 784).to("metal"), labels(seed, 10, 8).to("metal")) for seed in range(3)
    ]
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to("metal")
    step = make_step(model, lambda y, t: F.cross_entropy(y, t))
    opt = optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        for x, t in batches:
            opt.zero_grad()
            loss = step(x, t)
            loss.backward()
            opt.step()
            losses.append(loss.item())
    assert loss.device.type == "metal"
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Lion"])
def test_optimizers_equal_the_cpu(kind: str) -> None:
    found = []
    for device in ("cpu", "metal"):
        parameter = nn.Parameter(floats(1, 5).to(device))
        opt = getattr(optim, kind)([parameter], lr=0.01)
        for seed in range(3):
            parameter.grad = floats(seed + 2, 5).to(device)
            opt.step()
        found.append(parameter.detach().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


def test_a_warm_step_is_one_run() -> None:
    model = mlp().to("metal")
    step = make_step(model, F.cross_entropy, fallback="error")
    batch = moved(regression(1), "metal")
    step(*batch).backward()
    model.zero_grad()
    before = counters()
    step(*batch).backward()
    after = counters()
    count = {name: after[name] - before[name] for name in after}
    outputs = 1 + len(list(model.parameters()))
    assert count["executable_runs"] == 1
    assert count["eager_dispatches"] == 0
    assert count["buffer_allocations"] == outputs


def test_segments_equal_the_whole() -> None:
    batch = moved(regression(1), "metal")
    whole = normalized_mlp().to("metal")
    parts = copy.deepcopy(whole)
    lucid.manual_seed(3)
    make_step(whole, F.cross_entropy, fallback="error")(*batch).backward()
    lucid.manual_seed(3)
    make_segmented_step(parts, F.cross_entropy, segments=3, fallback="error")(*batch).backward()
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=0, atol=1e-6)


def test_gradients_flow_between_devices() -> None:
    x = floats(1, 3).requires_grad_()
    (x.to("metal") * 2).cpu().sum().backward()
    assert x.grad.device.type == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2, 2])


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(lucid.DeviceError, match="add: tensors on two devices: metal and cpu"):
        floats(1, 3).to("metal") + floats(1, 3)


def test_float64_is_refused() -> None:
    with pytest.raises(lucid.UnsupportedError, match="float64; cast to float32 first"):
        lucid.zeros(2, dtype=lucid.float64).to("metal")
    with pytest.raises(lucid.UnsupportedError, match="cast: float64 does not exist on metal"):
        lucid.zeros(2, device="metal").double()


def test_a_copy_inside_a_step_is_refused() -> None:
    step = make_step(nn.Identity(), lambda y: y.cpu().sum(), fallback="error")
    with pytest.raises(lucid.TraceError, match="to: a copy from metal to cpu cannot be compiled"):
        step(floats(1, 3).to("metal").requires_grad_())


def test_memory_is_counted() -> None:
    gc.collect()  # what earlier tests left goes now, not between two readings
    lucid.metal.synchronize()
    before = lucid.metal.memory_allocated()
    x = lucid.zeros(1024, device="metal")
    assert lucid.metal.memory_allocated() == before + 4096
    del x
    assert lucid.metal.memory_allocated() == before
    assert lucid.metal.max_memory_allocated() >= before + 4096
    lucid.metal.reset_peak_memory_stats()
    assert lucid.metal.max_memory_allocated() == before
    lucid.metal.empty_cache()
    assert lucid.metal.get_device_name()


def test_a_label_out_of_range_is_refused_at_the_call() -> None:
    model = mlp().to("metal")
    step = make_step(model, F.cross_entropy, fallback="error")
    x, t = moved(regression(1), "metal")
    step(x, t)
    with pytest.raises(lucid.OutOfRangeError, match="cross_entropy: index out of range: 99"):
        step(x, t * 0 + 99)
    assert np.isfinite(step(x, t).item())


def test_an_index_that_a_step_computes_is_checked_by_it() -> None:
    table = lucid.nn.Parameter(floats(1, 4, 3).to("metal"))

    def loss(index: Tensor) -> Tensor:
        return F.embedding(index + 1, table).sum()

    step = make_step(nn.Identity(), loss, fallback="error")
    good = lucid.tensor([0, 1, 2], device="metal")
    step(good).item()
    with pytest.raises(lucid.OutOfRangeError, match="take: index out of range: 1 indices for size"):
        step(lucid.tensor([0, 1, 9], device="metal"))
    lucid.metal.synchronize()
    assert np.isfinite(step(good).item())


def test_indices_that_operations_make_need_no_check() -> None:
    """A step is not waited for because of them: their reads would raise, were they wrong."""

    def loss(y: Tensor) -> Tensor:
        top, places = lucid.topk(y, 2)
        return (top.sum() + y.gather(1, places) + y.gather(1, y.argmax(1, keepdim=True))).sum()

    found = []
    for device in ("cpu", "metal"):
        x = floats(1, 3, 5).to(device).requires_grad_()
        make_step(nn.Identity(), loss, fallback="error")(x).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def losses_of(device: str, run: str) -> list[float]:
    """Losses of four updates, by the step that `run` names."""
    lucid.manual_seed(4)
    model = mlp().to(device)
    opt = optim.Adam(model.parameters(), lr=0.01)
    batches = [moved(regression(seed), device) for seed in range(4)]
    if run == "fused":
        fused = lucid.compile.fused_step(model, F.cross_entropy, opt)
        return [fused(*batch).item() for batch in batches]
    forward = lucid.compile(model) if run == "module" else model
    update = (lucid.compile.compile_optimizer(opt) if run == "optimizer" else opt).step
    losses = []
    for x, t in batches:
        opt.zero_grad()
        loss = F.cross_entropy(forward(x), t)
        loss.backward()
        update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("run", ["fused", "module", "optimizer"])
def test_other_compiled_forms_equal_the_cpu(run: str) -> None:
    np.testing.assert_allclose(losses_of("metal", run), losses_of("cpu", run), rtol=TOLERANCE)


@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16], ids=str)
def test_mixed_precision_equals_the_cpu(dtype: lucid.dtype) -> None:
    found = []
    for device in ("cpu", "metal"):
        lucid.manual_seed(4)
        model = mlp().to(device)
        opt = optim.SGD(model.parameters(), lr=0.05)
        scaler = lucid.amp.GradScaler()
        step = make_step(model, F.cross_entropy, fallback="error")
        for seed in range(3):
            opt.zero_grad()
            with lucid.autocast(device_type=device, dtype=dtype):
                loss = step(*moved(regression(seed), device))
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        found.append(loss.item())
    assert found[1] == pytest.approx(found[0], rel=2e-2)
