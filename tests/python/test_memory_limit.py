"""Steps under a memory limit: the same bits, the limit kept as planned and as seen, refusals."""

from __future__ import annotations

import copy
import gc
import re
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import pytest
from lucid import Tensor
from lucid.compile import FallbackWarning, Step, clear_cache, counters, make_step
from op_running import to_bytes
from random_programs import ProgramModule, write_program
from test_bit_equality import bits, grad_bits, state_bits
from zoo import WORKLOADS, Workload, floats, labels, mlp, regression

NUM_PROGRAMS = 40


class Residual(nn.Module):
    """A deep net that is no Sequential: blocks with a shortcut, dropout and batch-norm."""

    def __init__(self, depth: int = 6, width: int = 32) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.BatchNorm1d(width),
                    "up": nn.Linear(width, 2 * width),
                    "dropout": nn.Dropout(0.2),
                    "down": nn.Linear(2 * width, width),
                }
            )
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            h = block["dropout"](F.gelu(block["up"](block["norm"](x))))
            x = x + block["down"](h)
        return x


DEEP = Workload(
    "residual", Residual, F.cross_entropy, lambda seed: (floats(seed, 64, 32), labels(seed, 32, 64))
)
ALL = {w.name: w for w in [*WORKLOADS, DEEP]}


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
    return int(step.memory()["arena_peak"])


def limits(workload: Workload) -> list[int]:
    """The smallest peak, and half way up from there."""
    model, batch = workload.model(), workload.batch(0)
    most = free_peak(model, workload.loss, batch)
    least = smallest_peak(model, workload.loss, batch)
    assert least <= most
    return [least, (least + most) // 2]


def train(model: nn.Module, run: Callable[..., Tensor], workload: Workload) -> list[Any]:
    """Bytes of loss, gradients, parameters, buffers and generator over some steps."""
    lucid.manual_seed(11)
    optimizer = lucid.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    seen: list[Any] = []
    for i in range(3):
        optimizer.zero_grad()
        loss = run(*workload.batch(i))
        loss.backward()
        seen += [bits(loss), grad_bits(model), state_bits(model), lucid.get_rng_state().tolist()]
        optimizer.step()
    return seen


@pytest.mark.parametrize("name", ALL)
def test_bits_are_those_without_a_limit(name: str) -> None:
    workload = ALL[name]
    lucid.manual_seed(5)
    start = workload.model()
    model = copy.deepcopy(start)
    wanted = train(model, make_step(model, workload.loss, fallback="error"), workload)
    for limit in limits(workload):
        model = copy.deepcopy(start)
        step = make_step(model, workload.loss, memory_limit=limit, fallback="error")
        assert train(model, step, workload) == wanted
        assert step.memory()["arena_peak"] <= limit
    model = copy.deepcopy(start)
    eager = train(model, lambda x, *extra: workload.loss(model(x), *extra), workload)
    assert eager == wanted


@pytest.mark.parametrize("seed", range(NUM_PROGRAMS))
def test_random_programs(seed: int) -> None:
    model = ProgramModule(write_program(seed, is_large=seed % 4 == 0), seed)
    batch = (lucid.zeros(1),)
    most = free_peak(model, lambda y: y, batch)
    least = smallest_peak(model, lambda y: y, batch) if most > 1 else most
    results = []
    for limit in (None, least, (least + most) // 2):
        step = make_step(model, lambda y: y, memory_limit=limit or None, fallback="error")
        for parameter in model.parameters():
            parameter.grad = None
        lucid.manual_seed(seed)
        loss = step(*batch)
        loss.backward()
        assert step.memory()["arena_peak"] <= (limit or most)
        results.append([to_bytes(loss), *[to_bytes(p.grad) for p in model.parameters()]])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", ["residual", "block", "convnet"])
def test_limit_is_what_the_allocator_sees(name: str) -> None:
    workload = ALL[name]
    limit = limits(workload)[0]
    model, batch = workload.model(), workload.batch(1)
    assert free_peak(model, workload.loss, batch) > limit
    step = make_step(model, workload.loss, memory_limit=limit, fallback="error")
    step.compile(*batch)
    planned = step.memory()
    gc.collect()
    lucid._C.reset_peak_memory()
    start = lucid._C.memory_allocated()
    step(*batch).backward()
    assert lucid._C.max_memory_leased() == planned["arena_peak"] <= limit
    draws = 16
    most = planned["arena_peak"] + planned["outputs"] + draws
    assert lucid._C.max_memory_in_use() - start <= most


def test_cheap_operations_are_repeated_first() -> None:
    model, batch = Residual(8, 256), (floats(0, 64, 256), labels(0, 256, 64))
    most = free_peak(model, DEEP.loss, batch)
    free = make_step(model, DEEP.loss, fallback="error")
    free.compile(*batch)
    step = make_step(model, DEEP.loss, memory_limit=most * 3 // 4, fallback="error")
    step.compile(*batch)
    assert step.memory()["arena_peak"] <= most * 3 // 4

    def count(text: str, op: str) -> int:
        return text.count(f" = {op}(")

    before, after = free.graph_dump(), step.graph_dump()
    for product in ("linear", "matmul"):
        assert count(after, product) == count(before, product)
    assert count(after, "gelu") > count(before, "gelu")


def test_batch_norm_writes_its_state_once() -> None:
    limit = limits(DEEP)[0]
    model = Residual()
    step = make_step(model, DEEP.loss, memory_limit=limit, fallback="error")
    for i in range(3):
        step(*DEEP.batch(i)).backward()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    assert len(norms) == 6
    assert all(int(m.num_batches_tracked) == 3 for m in norms)


def test_another_gradient_of_the_loss() -> None:
    model, batch = mlp(), regression(0)
    limit = smallest_peak(model, F.cross_entropy, batch)
    step = make_step(model, F.cross_entropy, memory_limit=limit, fallback="error")
    (step(*batch) / 3.0).backward()
    found = grad_bits(model)
    model.zero_grad()
    (F.cross_entropy(model(batch[0]), batch[1]) / 3.0).backward()
    assert found == grad_bits(model)


def test_a_warm_step_is_one_run() -> None:
    model, batch = Residual(), DEEP.batch(0)
    step = make_step(model, DEEP.loss, memory_limit=limits(DEEP)[0], fallback="error")
    step(*batch).backward()
    model.zero_grad()
    before = counters()
    step(*batch).backward()
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]
    assert after["compilations"] == before["compilations"]


def test_the_limit_is_part_of_the_cache_key() -> None:
    clear_cache()
    model, batch = Residual(), DEEP.batch(0)
    most = free_peak(model, DEEP.loss, batch)
    peaks = []
    for limit in (None, most // 2, most * 3 // 4, None):
        step = make_step(model, DEEP.loss, memory_limit=limit, fallback="error")
        step.compile(*batch)
        peaks.append(step.memory()["arena_peak"])
    assert peaks[0] == peaks[3] == most
    assert peaks[1] <= most // 2 < peaks[2] <= most * 3 // 4
    before = counters()["compilations"]
    make_step(model, DEEP.loss, memory_limit=most // 2, fallback="error").compile(*batch)
    assert counters()["compilations"] == before


def explained(limit: int) -> tuple[Step, str]:
    step = make_step(Residual(), DEEP.loss, memory_limit=limit, fallback="error")
    step.compile(*DEEP.batch(0))
    return step, step.explain()


def test_explain_tells_what_was_done() -> None:
    most = free_peak(Residual(), DEEP.loss, DEEP.batch(0))
    step, text = explained(most // 2)
    done = step.cache[0].recomputation()
    assert done["peak_before"] == most
    assert done["peak"] == step.memory()["arena_peak"]
    assert 0 < done["repeated_flops"] < done["flops"]
    assert text.endswith(
        f"; memory limit {most // 2} bytes: arena peak {most} without it, {done['peak']} with "
        f"{done['repeated_operations']} operations repeated: about {done['repeated_flops']:.3g} "
        f"FLOP more, {100 * done['repeated_flops'] / done['flops']:.1f} % of the step's"
    )
    step, text = explained(most)
    assert text.endswith(f"arena peak {most} without it, nothing is repeated")
    assert step.memory()["arena_peak"] == most
    assert explained(10**40)[0].memory()["arena_peak"] == most


@pytest.mark.parametrize("fallback", ["warn", "silent", "error"])
def test_a_limit_that_cannot_be_met(fallback: str) -> None:
    model, batch = mlp(), regression(0)
    smallest = smallest_peak(model, F.cross_entropy, batch)
    most = free_peak(model, F.cross_entropy, batch)
    step = make_step(model, F.cross_entropy, memory_limit=smallest // 2, fallback=fallback)
    for _ in range(2):
        with pytest.raises(lucid.UserError) as caught:
            step(*batch)
        assert str(caught.value) == (
            f"make_step: memory_limit={smallest // 2} bytes cannot be met: the smallest peak "
            f"found is {smallest} bytes, against {most} without a limit; raise the limit or make "
            "the batch smaller"
        )
    assert step.cache_info()["entries"] == 0
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("limit", [0, -5, True, False, 1.5, "1 GB", [1]])
@pytest.mark.parametrize("segments", [1, 2, "auto"])
def test_what_is_no_limit(limit: Any, segments: Any) -> None:
    with pytest.raises(ValueError) as caught:
        make_step(mlp(), F.cross_entropy, segments=segments, memory_limit=limit)
    assert str(caught.value) == (
        f"make_step: memory_limit must be a positive number of bytes: got {limit!r}"
    )


def test_a_fallback_says_that_the_limit_is_not_kept() -> None:
    def loss(y: Tensor) -> Tensor:
        return y.sum() * y.sum().item()

    step = make_step(mlp(), loss, memory_limit=10_000)
    with pytest.warns(FallbackWarning, match="\nits memory_limit is not kept then\n"):
        step(regression(0)[0]).backward()


def test_candidates_go_with_auto() -> None:
    with pytest.raises(lucid.UnsupportedError) as caught:
        make_step(mlp(), F.cross_entropy, candidates=[1])
    assert str(caught.value) == "make_step: candidates go with segments='auto'; leave them out"
