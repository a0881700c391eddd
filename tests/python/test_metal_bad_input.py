"""What the metal device cannot take: clear errors, and the next step works."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import metal_host
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import fused_step, make_step
from test_metal_steps import moved
from zoo import floats, labels

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]
needs_double = pytest.mark.skipif(
    not metal_host.is_host(), reason="only the double fails on demand"
)


def net() -> nn.Module:
    lucid.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("metal")


def batch() -> tuple[Tensor, Tensor]:
    return moved((floats(1, 5, 3), labels(2, 2, 5)), "metal")


def check_next_step(step: Callable[..., Tensor]) -> None:
    """A good batch gives a good loss and gradients."""
    loss = step(*batch())
    loss.backward()
    assert np.isfinite(loss.item())


def refused(loss: Callable[..., Tensor], *inputs: Tensor) -> str:
    """The message of a step that is not compiled."""
    with pytest.raises(lucid.UnsupportedError) as caught:
        make_step(nn.Identity(), loss, fallback="error")(*inputs)
    return str(caught.value).partition("\n")[0]


# ---------------------------------------------------------------- devices and dtypes


def test_a_batch_on_another_device() -> None:
    step = make_step(net(), F.cross_entropy, fallback="error")
    x, t = batch()
    with pytest.raises(lucid.DeviceError, match="step: .*cpu.*metal.*; move") as caught:
        step(x.cpu(), t)
    assert "\n" not in str(caught.value).partition("\n  at ")[0]
    check_next_step(step)
    with pytest.raises(lucid.DeviceError):
        step(x, t.cpu())
    check_next_step(step)


def test_a_captured_tensor_on_another_device() -> None:
    weight = floats(1, 2)
    step = make_step(net(), lambda y, t: F.cross_entropy(y * weight, t), fallback="error")
    with pytest.raises(lucid.DeviceError, match="mul: tensors on two devices: metal and cpu"):
        step(*batch())


def test_an_optimizer_over_two_devices() -> None:
    parameters = [nn.Parameter(floats(1, 3)), nn.Parameter(floats(1, 3).to("metal"))]
    opt = optim.SGD(parameters, lr=0.1)
    for parameter in parameters:
        parameter.grad = parameter.detach() * 0 + 1
    opt.step()  # each in an update of its own device
    for parameter in parameters:
        np.testing.assert_allclose(
            parameter.detach().numpy(), floats(1, 3).numpy() - 0.1, atol=1e-6
        )


def test_float64() -> None:
    with pytest.raises(lucid.UnsupportedError, match="float64; cast to float32 first"):
        nn.Linear(2, 2).double().to("metal")
    x = floats(1, 3).to("metal").requires_grad_()
    text = refused(lambda y: y.double().sum(), x)
    assert text.startswith("cast: float64 does not exist on metal")
    assert text.endswith("; cast to float32, or use device cpu")


def test_a_dtype_that_an_operation_lacks() -> None:
    whole = lucid.tensor([[1, 2], [3, 4]], device="metal")
    assert (whole @ whole).tolist() == [[7, 10], [15, 22]]  # eager: on the host
    x = floats(1, 2, 2).to("metal").requires_grad_()
    text = refused(lambda y, w: (y * (w @ w).float()).sum(), x, whole)
    assert text.startswith("matmul: ")
    assert text.endswith("; run it eagerly, or use device cpu")


def test_int64_labels_are_checked_before_they_are_narrowed() -> None:
    step = make_step(net(), F.cross_entropy, fallback="error")
    check_next_step(step)
    x, t = batch()
    assert t.dtype == lucid.int64
    for wrong in (2, -7, 2**32, 2**32 + 1, -(2**40)):
        bad = lucid.tensor([0, 1, wrong, 0, 1], device="metal")
        with pytest.raises(
            lucid.OutOfRangeError, match=f"cross_entropy: index out of range: {wrong} for size 2"
        ):
            step(x, bad)
    check_next_step(step)


def test_int64_indices_that_a_step_computes_are_checked() -> None:
    table = nn.Parameter(floats(1, 4, 3).to("metal"))
    step = make_step(nn.Identity(), lambda i: F.embedding(i * 2, table).sum(), fallback="error")
    step(lucid.tensor([0, 1], device="metal"))
    for wrong in (2, 2**31, 2**40, -(2**33)):
        with pytest.raises(lucid.OutOfRangeError, match="index out of range"):
            step(lucid.tensor([0, wrong], device="metal"))
    assert np.isfinite(step(lucid.tensor([0, 1], device="metal")).item())


# ---------------------------------------------------------------- sizes


def test_a_tensor_that_is_too_large() -> None:
    """Refused by its shape, before anything is built: nothing of that size is allocated."""
    column = floats(1, 50_000, 1).to("metal").requires_grad_()
    row = floats(1, 1, 50_000).to("metal")
    text = refused(lambda y, r: (y * r).sum(), column, row)
    assert text == (
        "mul: tensor is too large for metal: float32[50000, 50000]; keep it under 2^31 elements "
        "and 4 GiB, split it or use device cpu"
    )
    step = make_step(net(), F.cross_entropy, fallback="error")
    check_next_step(step)


@needs_double
def test_no_memory_for_a_tensor() -> None:
    step = make_step(net(), F.cross_entropy, fallback="error")
    check_next_step(step)
    gc.collect()
    lucid.metal.synchronize()
    lucid.metal.empty_cache()
    metal_host.ask("limit_device_memory", metal_host.count("allocated_bytes") + (1 << 20))
    try:
        with pytest.raises(
            lucid.OutOfMemoryError,
            match="out of memory: 16777216 bytes asked on metal, [0-9]+ bytes",
        ):
            lucid.zeros(4 << 20, device="metal")
        check_next_step(step)
    finally:
        metal_host.ask("limit_device_memory", 0)


@needs_double
def test_no_memory_inside_a_step() -> None:
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 2)).to("metal")
    step = make_step(model, F.cross_entropy, fallback="error")
    x, t = moved((floats(1, 256, 64), labels(2, 2, 256)), "metal")
    expected = step(x, t).item()
    gc.collect()
    lucid.metal.synchronize()
    lucid.metal.empty_cache()
    metal_host.ask("limit_device_memory", metal_host.count("allocated_bytes") + (1 << 20))
    try:
        loss = step(x, t)
        with pytest.raises(lucid.OutOfMemoryError, match="the device failed: Insufficient Memory"):
            loss.item()
    finally:
        metal_host.ask("limit_device_memory", 0)
    assert step(x, t).item() == expected


# ---------------------------------------------------------------- a failing device


def state_of(model: nn.Module) -> dict[str, Any]:
    return {name: np.array(t.numpy()) for name, t in model.state_dict().items()}


@needs_double
def test_a_failing_command_buffer() -> None:
    model = net()
    step = make_step(model, F.cross_entropy, fallback="error")
    expected = step(*batch()).item()
    lucid.metal.synchronize()
    before = state_of(model)
    metal_host.ask("fail_next_command_buffer", b"out of luck")
    loss = step(*batch())  # submitted only
    with pytest.raises(
        lucid.InternalError,
        match="metal: the device failed: out of luck; the results of that run are lost",
    ):
        loss.item()
    for name, value in state_of(model).items():
        np.testing.assert_array_equal(value, before[name])
    assert step(*batch()).item() == expected


@needs_double
def test_a_failing_command_buffer_is_told_by_synchronize() -> None:
    step = make_step(net(), F.cross_entropy, fallback="error")
    step(*batch())
    lucid.metal.synchronize()
    metal_host.ask("fail_next_command_buffer", b"out of luck")
    step(*batch())
    with pytest.raises(lucid.InternalError, match="out of luck"):
        lucid.metal.synchronize()
    lucid.metal.synchronize()
    check_next_step(step)


@needs_double
def test_a_failing_fused_step_spoils_what_it_wrote() -> None:
    """The new parameters are those of the failed run: reading them says so; a saved state helps."""
    model = net()
    saved = {name: t.cpu() for name, t in model.state_dict().items()}
    fused = fused_step(
        model, F.cross_entropy, optim.SGD(model.parameters(), lr=0.1), fallback="error"
    )
    fused(*batch())
    lucid.metal.synchronize()
    model.load_state_dict({name: t.to("metal") for name, t in saved.items()})
    expected = fused(*batch()).item()
    lucid.metal.synchronize()
    metal_host.ask("fail_next_command_buffer", b"out of luck")
    fused(*batch())
    with pytest.raises(lucid.InternalError, match="out of luck"):
        model.state_dict()["0.weight"].numpy()
    with pytest.raises(lucid.InternalError, match="out of luck"):
        fused(*batch())
    model.load_state_dict({name: t.to("metal") for name, t in saved.items()})
    assert fused(*batch()).item() == expected


@needs_double
def test_a_failing_compilation() -> None:
    lucid.compile.clear_cache()
    step = make_step(net(), lambda y, t: F.cross_entropy(y * 1.5, t), fallback="error")
    metal_host.ask("fail_next_compilation", b"no luck")
    with pytest.raises(lucid.InternalError, match="metal: the graph did not compile: no luck"):
        step(*batch())
    check_next_step(step)
