"""memory_limit on metal: the graph is cut, and the limit holds for buffers and temporaries."""

from __future__ import annotations

import copy
import gc
import re
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import metal_host
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import clear_cache, counters, make_autoseg_step, make_step
from test_memory_limit import ALL, Residual
from test_metal_steps import TOLERANCE, moved
from zoo import WORKLOADS, Workload, floats, labels

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]
needs_double = pytest.mark.skipif(
    not metal_host.is_host(), reason="needs the double, which counts temporaries"
)


def smallest_peak(model: nn.Module, loss: Any, batch: tuple[Any, ...]) -> int:
    """The peak that the message of a limit of one byte names."""
    with pytest.raises(lucid.UserError, match="cannot be met") as caught:
        make_step(model, loss, memory_limit=1).compile(*batch)
    found = re.search(r"the smallest peak found is (\d+) bytes", str(caught.value))
    assert found is not None
    return int(found[1])


def free_peak(model: nn.Module, loss: Any, batch: tuple[Any, ...]) -> int:
    step = make_step(model, loss, fallback="error")
    step.compile(*batch)
    memory = step.memory()
    assert memory["is_estimate"] is True
    return int(memory["arena_peak"])


def gradients(step: Any, model: nn.Module, batch: tuple[Any, ...]) -> list[Any]:
    """Loss, gradients and state after one step, as arrays."""
    lucid.manual_seed(7)
    loss = step(*batch)
    loss.backward()
    seen = [loss.detach().numpy()]
    seen += [p.grad.numpy() for p in model.parameters() if p.grad is not None]
    return [np.array(a) for a in [*seen, *(t.numpy() for t in model.state_dict().values())]]


@pytest.mark.parametrize("name", ALL)
def test_results_are_those_without_a_limit(name: str) -> None:
    workload = ALL[name]
    lucid.manual_seed(5)
    start = workload.model().to("metal")
    batch = moved(workload.batch(0), "metal")
    most = free_peak(copy.deepcopy(start), workload.loss, batch)
    least = smallest_peak(copy.deepcopy(start), workload.loss, batch)
    assert least <= most
    model = copy.deepcopy(start)
    wanted = gradients(make_step(model, workload.loss, fallback="error"), model, batch)
    for limit in (least, (least + most) // 2, 2 * most):
        model = copy.deepcopy(start)
        step = make_step(model, workload.loss, memory_limit=max(limit, 1), fallback="error")
        for found, expected in zip(gradients(step, model, batch), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
        assert step.memory()["arena_peak"] <= max(limit, 1)


def deep() -> tuple[nn.Module, tuple[Any, ...]]:
    """A net whose activations are most of its memory, and a batch."""
    lucid.manual_seed(1)
    model = Residual(depth=4, width=16).to("metal")
    return model, moved((floats(0, 64, 16), labels(0, 16, 64)), "metal")


def test_a_warm_step_is_one_run_and_fresh_buffers_are_outputs() -> None:
    model, batch = deep()
    limit = free_peak(model, F.cross_entropy, batch) * 3 // 5
    step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")
    for _ in range(2):
        model.zero_grad()
        before = counters()
        step(*batch).backward()
        after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]
    assert after["compilations"] == before["compilations"]


@needs_double
def test_no_operation_is_compiled_twice() -> None:
    model, batch = deep()
    limit = free_peak(model, F.cross_entropy, batch) * 3 // 5
    clear_cache()
    step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")
    start = metal_host.count("num_compilations")
    step(*batch).backward()
    pieces = metal_host.count("num_compilations") - start
    assert pieces > 2
    model.zero_grad()
    step(*batch).backward()
    assert metal_host.count("num_compilations") == start + pieces


@needs_double
def test_the_pieces_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_COMPILE_CACHE_DIR", str(tmp_path))
    model, batch = deep()
    limit = free_peak(model, F.cross_entropy, batch) * 3 // 5
    losses, counts = [], []
    for _ in range(2):
        clear_cache()
        lucid.manual_seed(3)
        before = (metal_host.count("num_compilations"), counters()["compilations"])
        step = make_step(
            copy.deepcopy(model), F.cross_entropy, memory_limit=limit, fallback="error"
        )
        losses.append(step(*batch).item())
        after = (metal_host.count("num_compilations"), counters()["compilations"])
        counts.append((after[0] - before[0], after[1] - before[1]))
    assert losses[0] == losses[1]
    assert counts[0][0] > 2 and counts[0][1] == 1
    assert counts[1] == (0, 0)


def test_the_limit_is_what_the_buffers_show() -> None:
    model, batch = deep()
    limit = free_peak(model, F.cross_entropy, batch) * 3 // 5
    step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")
    step(*batch).backward()
    model.zero_grad()
    gc.collect()
    lucid.metal.synchronize()
    lucid.metal.reset_peak_memory_stats()
    start = lucid.metal.memory_allocated()
    loss = step(*batch)
    peak = lucid.metal.max_memory_allocated() - start
    loss.backward()
    outputs = step.memory()["outputs"]
    assert 0 < peak - outputs <= limit


def stack(layers: int = 8, width: int = 16) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*parts).to("metal")


def release() -> None:
    """Gives all memory back that nobody holds."""
    gc.collect()
    lucid.metal.synchronize()
    lucid.metal.empty_cache()


@needs_double
def test_a_step_fits_where_it_did_not() -> None:
    """The double counts what a running graph keeps: without the limit that is too much."""
    model = stack(layers=12, width=32)
    batch = moved((floats(0, 512, 32), labels(0, 32, 512)), "metal")
    most = free_peak(model, F.cross_entropy, batch)
    free = make_step(model, F.cross_entropy, fallback="error")
    tight = make_step(model, F.cross_entropy, memory_limit=most // 2, fallback="error")
    for step in (free, tight):
        step(*batch).backward()
        model.zero_grad()
        release()
    assert most == 917508
    # By trials: the limited step needs 1.1 MB beside what lives already, the other one 1.4 MB.
    metal_host.ask("limit_device_memory", metal_host.count("allocated_bytes") + 1_250_000)
    try:
        tight(*batch).backward()
        lucid.metal.synchronize()
        model.zero_grad()
        release()
        free(*batch).backward()
        with pytest.raises(lucid.OutOfMemoryError, match="the device failed: Insufficient Memory"):
            lucid.metal.synchronize()
    finally:
        model.zero_grad()
        release()
        metal_host.ask("limit_device_memory", 0)
    assert np.isfinite(free(*batch).item())


@needs_double
def test_a_failure_in_a_piece_is_raised_by_the_step() -> None:
    model, batch = deep()
    limit = free_peak(model, F.cross_entropy, batch) * 3 // 5
    step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")
    expected = step(*batch).item()
    lucid.metal.synchronize()  # the loss is there before the last piece
    state = {name: np.array(t.numpy()) for name, t in model.state_dict().items()}
    metal_host.ask("fail_next_command_buffer", b"out of luck")
    with pytest.raises(lucid.InternalError, match="the device failed: out of luck"):
        step(*batch)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])
    assert np.isfinite(step(*batch).item())
    assert expected > 0


def test_automatic_segments_keep_to_a_limit() -> None:
    model = stack()
    batch = moved((floats(0, 64, 16), labels(0, 16, 64)), "metal")
    most = free_peak(model, F.cross_entropy, batch)
    rows = make_autoseg_step(model, F.cross_entropy, candidates=(1, 2, 4), fallback="error")
    rows(*batch)
    peaks = {row["segments"]: row["planned_peak_bytes"] for row in rows.probe_results()}
    assert peaks[1] == most > min(peaks.values())
    limit = most - 1
    step = make_autoseg_step(
        model, F.cross_entropy, candidates=(1, 2, 4), memory_limit=limit, fallback="error"
    )
    step(*batch).backward()
    assert step.memory()["arena_peak"] <= limit
    with pytest.raises(lucid.UserError, match="memory_limit=10 bytes cannot be met: the smallest"):
        make_autoseg_step(model, F.cross_entropy, memory_limit=10, fallback="error")(*batch)


def test_an_index_that_a_piece_computes_is_checked() -> None:
    table = nn.Parameter(floats(1, 4, 3).to("metal"))

    def loss(index: Tensor) -> Tensor:
        rows = F.embedding(index + 1, table)
        return (rows.tanh() * rows.exp()).sum()

    good = lucid.tensor([0, 1, 2], device="metal")
    step = make_step(nn.Identity(), loss, memory_limit=200, fallback="error")
    expected = step(good).item()
    with pytest.raises(lucid.OutOfRangeError, match="index out of range"):
        step(lucid.tensor([0, 1, 9], device="metal")).item()
    lucid.metal.synchronize()
    assert step(good).item() == expected


@pytest.mark.parametrize("load", WORKLOADS[:2], ids=lambda load: load.name)
def test_the_estimate_is_told(load: Workload) -> None:
    model = load.model()
    step = make_step(model, load.loss, fallback="error")
    step.compile(*load.batch(0))
    assert step.memory()["is_estimate"] is False
