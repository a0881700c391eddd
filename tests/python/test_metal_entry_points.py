"""fused_step, compile, saved steps and scalers on the metal device, against the cpu."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor, nn, optim
from lucid.amp import GradScaler
from lucid.compile import counters, fused_step, load_compiled, make_step, save_compiled

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]

Make = Callable[[Any], optim.Optimizer]


def make_model() -> nn.Sequential:
    lucid.manual_seed(11)
    return nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4)
    )


def batch(seed: int, rows: int = 6) -> tuple[Tensor, Tensor]:
    lucid.manual_seed(seed)
    return lucid.randn(rows, 8), lucid.randn(rows, 4)


def assert_alike(model: nn.Module, on_metal: nn.Module) -> None:
    """Equal within float32 rounding, through several steps."""
    for name, value in model.state_dict().items():
        found = on_metal.state_dict()[name]
        assert found.device.type == "metal"
        np.testing.assert_allclose(found.cpu().numpy(), value.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: optim.AdamW(p, lr=1e-2, eps=1e-3),
    ],
    ids=["sgd", "adamw"],
)
@pytest.mark.parametrize("scales", [False, True])
def test_fused_step(make: Make, scales: bool) -> None:
    model = make_model()
    twin = copy.deepcopy(model).to("metal")
    steps = []
    for each in (model, twin):
        scaler = GradScaler(init_scale=8.0) if scales else None
        options: dict[str, Any] = {"clip_norm": 1.0, "accumulate": 2, "scaler": scaler}
        optimizer = make(each.parameters())
        steps.append(fused_step(each, F.mse_loss, optimizer, fallback="error", **options))
    for i in range(4):
        x, t = batch(i)
        lucid.manual_seed(i)
        wanted = steps[0](x, t)
        lucid.manual_seed(i)
        found = steps[1](x.to("metal"), t.to("metal"))
        assert found.device.type == "metal"
        assert found.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert_alike(model, twin)


def test_warm_fused_step_is_one_run() -> None:
    model = make_model().to("metal")
    step = fused_step(model, F.mse_loss, optim.AdamW(model.parameters()), fallback="error")
    x, t = (value.to("metal") for value in batch(0))
    for _ in range(2):
        step(x, t)
    before = counters()
    step(x, t)
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]
    assert after["compilations"] == before["compilations"]


def test_separate_update() -> None:
    model = make_model()
    twin = copy.deepcopy(model).to("metal")
    for i in range(3):
        x, t = batch(i)
        for each, device in ((model, "cpu"), (twin, "metal")):
            optimizer = optim.SGD(each.parameters(), lr=0.1)
            lucid.manual_seed(i)
            each.zero_grad()
            make_step(each, F.mse_loss, fallback="error")(x.to(device), t.to(device)).backward()
            optimizer.step()
    assert_alike(model, twin)


def test_compiled_module_with_sizes() -> None:
    model = make_model().eval()
    compiled = lucid.compile(copy.deepcopy(model).to("metal"), dynamic=True, fallback="error")
    for rows in (6, 3, 9):
        x, t = batch(rows, rows)
        model.zero_grad()
        compiled.zero_grad()
        F.mse_loss(model(x), t).backward()
        F.mse_loss(compiled(x.to("metal")), t.to("metal")).backward()
        for mine, other in zip(model.parameters(), compiled.parameters(), strict=True):
            np.testing.assert_allclose(
                other.grad.cpu().numpy(), mine.grad.numpy(), rtol=1e-4, atol=1e-6
            )
    assert compiled.cache_info()["entries"] == 1


def test_saved_step(tmp_path: Path) -> None:
    model = make_model().to("metal").eval()
    x, t = (value.to("metal") for value in batch(0))
    step = make_step(model, F.mse_loss, fallback="error")
    wanted = step(x, t).item()
    save_compiled(step, tmp_path / "step")
    assert load_compiled(tmp_path / "step", model)(x, t).item() == wanted
    with pytest.raises(lucid.UserError, match="0.weight: device metal saved, cpu now"):
        load_compiled(tmp_path / "step", make_model().eval())
