"""Planned memory: known before the first run, and what the allocator and the system then see."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import pytest
from lucid.compile import Step, make_step
from zoo import WORKLOADS, Workload, floats, labels

NAMED = {w.name: w for w in WORKLOADS}
SEED_BYTES = 16  # seed and offset, made for each run of a model that draws numbers
DRAWS = ("normalized_mlp", "convnet", "block", "recurrent")

# Bytes as of now; a change that needs less may lower them. None of it is a library's scratch.
ARENA_PEAKS = {"mlp": 1280, "normalized_mlp": 3200, "block": 18880}


def compiled(workload: Workload, segments: int = 1) -> tuple[nn.Module, Step]:
    """A model and its step, compiled but not run."""
    lucid.manual_seed(3)
    model = workload.model()
    step = make_step(model, workload.loss, segments=segments, fallback="error")
    step.compile(*workload.batch(3))
    return model, step


class Allocations:
    """Live bytes of tensors from here on: their rise, and their highest rise."""

    def __init__(self) -> None:
        gc.collect()
        lucid._C.reset_peak_memory()
        self._start = lucid._C.memory_allocated()
        assert self._start == lucid._C.max_memory_allocated()

    def rise(self) -> int:
        return lucid._C.memory_allocated() - self._start

    def highest(self) -> int:
        return lucid._C.max_memory_allocated() - self._start

    def highest_with_arenas(self) -> int:
        return lucid._C.max_memory_in_use() - self._start


@pytest.mark.parametrize("name", NAMED)
def test_planned_arena_is_what_is_leased(name: str) -> None:
    workload = NAMED[name]
    _, step = compiled(workload)
    planned, batch = step.memory(), workload.batch(3)
    seen = Allocations()
    step(*batch).backward()
    made_by_run = SEED_BYTES if name in DRAWS else 0
    assert lucid._C.max_memory_leased() == planned["arena_peak"]
    highest = planned["arena_peak"] + planned["outputs"] + made_by_run
    assert seen.highest_with_arenas() == highest


@pytest.mark.parametrize("name", NAMED)
def test_planned_outputs_are_what_is_allocated(name: str) -> None:
    workload = NAMED[name]
    model, step = compiled(workload)
    planned, batch = step.memory(), workload.batch(3)
    assert planned["parameters"] <= sum(p.nbytes for p in model.parameters())
    seen = Allocations()
    loss = step(*batch)
    loss.backward()
    made_by_run = SEED_BYTES if name in DRAWS else 0
    assert seen.highest() == planned["outputs"] + made_by_run
    assert step.memory() == planned


@pytest.mark.parametrize("segments", [2, 4])
def test_planned_peak_covers_what_segments_pass_on(segments: int) -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 64), nn.LayerNorm(64))

    workload = Workload(
        "deep",
        lambda: nn.Sequential(*(block() for _ in range(8))),
        F.cross_entropy,
        lambda seed: (floats(seed, 64, 64), labels(seed, 64, 64)),
    )
    model, step = compiled(workload, segments)
    planned, batch = step.memory(), workload.batch(3)
    cut = 64 * 64 * 4
    seen = Allocations()
    loss = step(*batch)
    assert seen.rise() >= (segments - 1) * cut  # what crosses the cuts is kept for the backward
    loss.backward()
    gradients = sum(p.nbytes for p in model.parameters())
    assert seen.rise() == loss.nbytes + gradients == planned["outputs"]
    assert planned["outputs"] < seen.highest() < planned["outputs"] + planned["arena_peak"]
    arenas = [segment["arena_peak"] for segment in planned["segments"]]
    assert max(arenas) + (segments - 1) * cut <= planned["arena_peak"]


@pytest.mark.parametrize("name", ARENA_PEAKS)
def test_arena_peak_has_not_grown(name: str) -> None:
    _, step = compiled(NAMED[name])
    assert step.memory()["arena_peak"] <= ARENA_PEAKS[name]


def test_gradients_of_weights_end_the_life_of_what_was_kept_for_them() -> None:
    rows, width, classes = 256, 64, 8
    model = nn.Sequential(
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, classes),
    )
    x, target = floats(1, rows, width), labels(1, classes, rows)
    F.cross_entropy(model(x), target).backward()
    eager = [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    step = make_step(model, F.cross_entropy, fallback="error")
    step(x, target).backward()
    assert [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None] == eager
    # Four values are kept for the backward. The last one is dead before its gradient is made: the
    # weight behind it already has its own.
    value, logits = 4 * rows * width, 4 * rows * classes
    assert 4 * value <= step.memory()["arena_peak"] <= 4 * value + 4 * logits


def test_cheap_values_are_made_again_where_the_caches_have_lost_them() -> None:
    rows, width, inner, blocks = 512, 512, 128, 12

    def block() -> nn.Module:
        return nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width), nn.LayerNorm(width)
        )

    model = nn.Sequential(*(block() for _ in range(blocks)))
    batch = floats(3, rows, width), labels(3, width, rows)
    step = make_step(model, F.cross_entropy, fallback="error")
    step(*batch).backward()
    # Kept are the inputs of GELU and of LayerNorm; their results would be as much again.
    needed = 4 * rows * (width + inner) * blocks
    assert needed < step.memory()["arena_peak"] < 1.6 * needed
    gradients = [p.grad.numpy() for p in model.parameters()]
    model.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    for compiled_grad, parameter in zip(gradients, model.parameters(), strict=True):
        assert compiled_grad.tobytes() == parameter.grad.numpy().tobytes()


# Prints the planned bytes and the rise of the resident high-water mark, for argv[1] segments.
RESIDENT = """
import gc, sys
from pathlib import Path
import lucid, lucid.nn as nn, lucid.nn.functional as F
from lucid.compile import make_step

def stack(count):
    blocks = [
        nn.Sequential(nn.Linear(512, 128), nn.GELU(), nn.Linear(128, 512), nn.LayerNorm(512))
        for _ in range(count)
    ]
    return nn.Sequential(*blocks)

def reset():
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(l for l in lines if l.startswith(key + ":")).split()[1])

def peak():
    return status("VmHWM")

x, t = lucid.randn(4, 512), lucid.randint(0, 512, (4,))
make_step(stack(2), F.cross_entropy, fallback="error")(x, t).backward()  # loads the libraries
reset()
idle = peak()
model = stack(48)
x, t = lucid.randn(1024, 512), lucid.randint(0, 512, (1024,))
step = make_step(model, F.cross_entropy, segments=int(sys.argv[1]), fallback="error")
before = status("VmRSS")
step.compile(x, t)
compiled = status("VmRSS") - before  # graphs and kernels
planned = step.memory()
reset()
for _ in range(2):
    model.zero_grad()
    step(x, t).backward()
kinds = ("parameters", "inputs", "outputs", "arena_peak")
print(sum(planned[kind] for kind in kinds), peak() - idle - compiled)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "segments",
    [
        1,
        8,
    ],
)
def test_resident_memory_is_as_planned(segments: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RESIDENT, str(segments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    planned, resident = map(int, result.stdout.split())
    rest = 8_000_000  # gradients' tensors, the tape, what the allocator keeps
    assert planned > 80_000_000
    assert abs(resident - planned) <= 0.1 * planned + rest, (planned, resident)
