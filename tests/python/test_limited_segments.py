"""A memory limit together with segments: each piece keeps to what is left beside kept values."""

from __future__ import annotations

import copy
import gc
import math
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import custom_op, make_step
from test_bit_equality import bits, grad_bits, state_bits
from zoo import floats, labels

Batch = tuple[Tensor, Tensor]


def block(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm1d(width),
        nn.Linear(width, 3 * width),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(3 * width, width),
        nn.Tanh(),
    )


def network(depth: int = 6, width: int = 32) -> nn.Sequential:
    lucid.manual_seed(5)
    return nn.Sequential(*(block(width) for _ in range(depth)))


def batch(seed: int) -> Batch:
    return floats(seed, 64, 32), labels(seed, 32, 64)


def peaks(segments: Any, **options: Any) -> tuple[int, int]:
    """The smallest peak of a number of segments, and the one without a limit."""
    with pytest.raises(lucid.UserError, match="cannot be met") as caught:
        make_step(network(), F.cross_entropy, segments=segments, memory_limit=1).compile(*batch(0))
    free = make_step(network(), F.cross_entropy, segments=segments)
    free.compile(*batch(0))
    most = free.memory()["arena_peak"]
    assert f", against {most} without a limit" in str(caught.value)
    return caught.value.smallest_peak, most  # type: ignore[attr-defined]


def train(model: nn.Module, step: Any) -> list[Any]:
    lucid.manual_seed(11)
    seen: list[Any] = []
    for i in range(3):
        model.zero_grad()
        loss = step(*batch(i))
        (loss / (1.0 if i else 3.0)).backward()
        seen += [bits(loss), grad_bits(model), state_bits(model), lucid.get_rng_state().tolist()]
    return seen


@pytest.mark.parametrize("segments", [2, 3, 6])
def test_bits_and_peaks(segments: int) -> None:
    model = network()
    wanted = train(model, lambda x, t: F.cross_entropy(model(x), t))
    least, most = peaks(segments)
    assert least < most
    for limit in (least, (least + most) // 2, most, 2 * most):
        model = network()
        step = make_step(
            model, F.cross_entropy, segments=segments, memory_limit=limit, fallback="error"
        )
        assert train(model, step) == wanted
        assert step.memory()["arena_peak"] <= limit
        assert len(step.memory()["segments"]) == segments
        done = step.cache[0].recomputation()
        assert done["peak_before"] == most
        assert done["peak"] == step.memory()["arena_peak"]
        assert (done["repeated_operations"] > 0) == (limit < most)
        assert f"arena peak {most} without it" in step.explain()


def test_the_allocator_sees_the_limit() -> None:
    limit, most = peaks(3)
    model = network()
    step = make_step(model, F.cross_entropy, segments=3, memory_limit=limit, fallback="error")
    inputs = batch(0)
    step.compile(*inputs)
    planned = step.memory()
    gc.collect()
    lucid._C.reset_peak_memory()
    start = lucid._C.memory_allocated()
    step(*inputs).backward()
    draws = 16
    used = lucid._C.max_memory_in_use() - start
    assert used <= planned["arena_peak"] + planned["outputs"] + draws
    assert planned["arena_peak"] <= limit < most


def test_a_limit_below_the_smallest_peak() -> None:
    least, most = peaks(3)
    step = make_step(network(), F.cross_entropy, segments=3, memory_limit=least - 1)
    with pytest.raises(lucid.UserError) as caught:
        step(*batch(0))
    assert str(caught.value) == (
        f"make_step: memory_limit={least - 1} bytes cannot be met: the smallest peak found is "
        f"{least} bytes, against {most} without a limit; raise the limit or make the batch smaller"
    )
    assert step.cache_info()["entries"] == 0


def test_auto_recomputes_on_the_whole_graph() -> None:
    least, _ = peaks(1)
    limit = min(least, *(peaks(count)[1] - 1 for count in (2, 4)))
    model = network()
    step = make_step(model, F.cross_entropy, segments="auto", memory_limit=limit, fallback="error")
    step.compile(*batch(0))
    rows = {row["segments"]: row for row in step.probe_results()}  # type: ignore[attr-defined]
    chosen = step.chosen_segments()  # type: ignore[attr-defined]
    met = [row for row in rows.values() if row["median_ms"] < math.inf]
    assert rows[chosen]["median_ms"] == min(row["median_ms"] for row in met)
    assert all((row["planned_peak_bytes"] <= limit) == (row in met) for row in rows.values())
    twin = network()
    wanted = train(twin, lambda x, t: F.cross_entropy(twin(x), t))
    lucid.manual_seed(5)
    assert train(model, step) == wanted


def test_auto_names_the_smallest_peak_of_all_counts() -> None:
    least = min(peaks(count)[0] for count in (1, 3))
    options: dict[str, Any] = {"segments": "auto", "candidates": [1, 3]}
    with pytest.raises(lucid.UserError) as caught:
        make_step(network(), F.cross_entropy, memory_limit=least - 1, **options)(*batch(0))
    assert str(caught.value) == (
        f"make_step: memory_limit={least - 1} bytes cannot be met: the smallest peak of the counts "
        f"[1, 3] is {least} bytes; raise the limit or try more counts with candidates="
    )
    make_step(network(), F.cross_entropy, memory_limit=least, **options)(*batch(0)).backward()


@custom_op("limited::noted", pure=False)
def noted(x: Any) -> Any:
    return x * np.float32(2)


@noted.shape
def _(x: Any) -> Any:
    return x.shape, x.dtype


@noted.vjp
def _(grads: Any, inputs: Any, outputs: Any) -> Any:
    return grads[0] * np.float32(2)


def test_what_an_impure_operation_keeps_counts() -> None:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(noted(y), t)

    free = make_step(network(), loss, fallback="error")
    free.compile(*batch(0))
    most = free.memory()["arena_peak"]
    wanted = train(free._model, free)
    model = network()
    step = make_step(model, loss, memory_limit=most - 1, fallback="error")
    try:
        step.compile(*batch(0))
    except lucid.UserError as error:
        assert error.smallest_peak >= most  # type: ignore[attr-defined]  # noqa: PT017
        return
    assert step.memory()["arena_peak"] <= most - 1
    assert train(model, step) == wanted


def test_one_more_segment_than_children() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh())
    twin = copy.deepcopy(model)
    step = make_step(model, F.cross_entropy, segments=9, memory_limit=10**9, fallback="error")
    assert train(model, step) == train(twin, lambda x, t: F.cross_entropy(twin(x), t))
