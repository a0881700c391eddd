"""What segments cost and save: time against memory of deep_bottleneck, by number of segments.

`bench/run.py --segments` calls `measure`. The processes it starts run this file:
  segments.py time [--quick] [--realtime]   all counts in one process, taking turns step by step
  segments.py memory COUNT [--realtime]     one count, alone: its resident high-water mark
Each prints one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from process import be_realtime, peak_bytes, reset_peak
from report import markdown
from summary import Ratio, quantile, ratio

COUNTS = (1, 2, 4, 8, 16, 48)
WORKLOAD = "deep_bottleneck"
# What eight segments are to reach, against one.
TARGET_COUNT, TARGET_PEAK, TARGET_TIME = 8, 0.30, 1.40

_MEMORY_STEPS = 3
_ROUNDS, _QUICK_ROUNDS = 40, 6  # a burst is one step: a round is over before the load changes
_PAUSE_SECONDS = 0.02  # Linux takes 5 % of the time away from real-time threads that never rest

_HEADINGS = (
    "segments",
    "arena peak MB",
    "of one",
    "median ms",
    "p10 ms",
    "n",
    "time / one",
    "of p10",
    "planned MB",
    "resident MB",
    "by compiling",
    "resident / planned",
)


@dataclass
class Row:
    """What one number of segments showed."""

    segments: int
    planned: dict[str, Any]  # memory() of the step
    compile_seconds: float
    bursts_ns: list[list[int]]  # one list of step times a round
    resident_bytes: int = 0
    compiling_bytes: int = 0  # part of resident_bytes: library code, graphs, kernels

    @property
    def planned_bytes(self) -> int:
        """Parameters, inputs, loss and gradients, and the arena's peak."""
        names = ("parameters", "inputs", "outputs", "arena_peak")
        return sum(int(self.planned[name]) for name in names)

    @property
    def arena_bytes(self) -> int:
        return int(self.planned["arena_peak"])

    def quantile_ms(self, part: float) -> float:
        return quantile([float(t) for burst in self.bursts_ns for t in burst], part) / 1e6

    def ratio_to(self, other: Row) -> Ratio:
        return ratio(self.bursts_ns, other.bursts_ns)

    def to_json(self, base: Row) -> dict[str, Any]:
        return {
            "segments": self.segments,
            "memory": self.planned,
            "arena_of_one": self.arena_bytes / base.arena_bytes,
            "median_ms": self.quantile_ms(0.5),
            "p10_ms": self.quantile_ms(0.1),
            "n": sum(len(burst) for burst in self.bursts_ns),
            "round_medians_ms": [statistics.median(burst) / 1e6 for burst in self.bursts_ns],
            "over_one": asdict(self.ratio_to(base)),
            "compile_seconds": self.compile_seconds,
            "planned_bytes": self.planned_bytes,
            "resident_bytes": self.resident_bytes,
            "compiling_bytes": self.compiling_bytes,
        }


# ---------------------------------------------------------------- the parent's side


def _child(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {result.returncode}")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def measure(quick: bool, realtime: bool) -> tuple[list[Row], list[int]]:
    """All rows, and the counts whose loss or gradients are not bit for bit those of one segment."""
    flags = ["--quick"] * quick + ["--realtime"] * realtime
    timed = _child("time", *flags)
    rows = [Row(**row) for row in timed["rows"]]
    for row in rows:
        answer = _child("memory", str(row.segments), *["--realtime"] * realtime)
        row.resident_bytes = answer["resident_bytes"]
        row.compiling_bytes = answer["compiling_bytes"]
    return rows, timed["unequal"]


def segments_table(rows: list[Row]) -> str:
    """A markdown table."""
    cells: list[tuple[str, ...]] = [_HEADINGS]
    for row in rows:
        over = row.ratio_to(rows[0])
        cells.append(
            (
                str(row.segments),
                f"{row.arena_bytes / 1e6:.1f}",
                f"{100 * row.arena_bytes / rows[0].arena_bytes:.1f} %",
                f"{row.quantile_ms(0.5):.1f}",
                f"{row.quantile_ms(0.1):.1f}",
                str(sum(len(burst) for burst in row.bursts_ns)),
                f"{over.median:.2f} ({over.low:.2f}-{over.high:.2f})",
                f"{over.of_p10:.2f}",
                f"{row.planned_bytes / 1e6:.1f}",
                f"{row.resident_bytes / 1e6:.1f}",
                f"{row.compiling_bytes / 1e6:.1f}",
                f"{row.resident_bytes / row.planned_bytes:.2f}",
            )
        )
    return markdown(cells)


def verdict(rows: list[Row], unequal: list[int]) -> str:
    """What was to be reached, and whether it was."""
    row = next(row for row in rows if row.segments == TARGET_COUNT)
    peak, over = row.arena_bytes / rows[0].arena_bytes, row.ratio_to(rows[0]).median
    lines = [
        f"{TARGET_COUNT} segments: peak {100 * peak:.1f} % of that of one, to reach "
        f"{100 * TARGET_PEAK:.0f} %: {'reached' if peak <= TARGET_PEAK else 'MISSED'}; "
        f"time {over:.2f} times that of one, to reach {TARGET_TIME:.2f}: "
        f"{'reached' if over <= TARGET_TIME else 'MISSED'}",
        f"loss and gradients, bit for bit: {f'DIFFER with {unequal}' if unequal else 'all equal'}",
    ]
    return "\n".join(lines)


# ---------------------------------------------------------------- the child's side


def _result(whole_step: Callable[[], Any], model: Any) -> list[bytes]:
    """The bytes of the loss and of all gradients; also warms up."""
    loss = whole_step()
    gradients = (p.grad.numpy().tobytes() for p in model.parameters())
    return [loss.detach().numpy().tobytes(), *gradients]


def _time_all(quick: bool) -> dict[str, Any]:
    import lucid.nn
    from contestants.lucid_eager import make_parts, training_step
    from lucid.compile import make_step

    model, x, target = make_parts(WORKLOAD)
    whole_steps, rows = {}, []
    for count in COUNTS:
        step = make_step(model, lucid.nn.CrossEntropyLoss(), segments=count, fallback="error")
        start = time.perf_counter()
        step.compile(x, target)
        rows.append(Row(count, step.memory(), time.perf_counter() - start, []))
        whole_steps[count] = training_step(model, partial(step, x, target), "grads")
    wanted = _result(whole_steps[COUNTS[0]], model)
    unequal = [n for n in COUNTS[1:] if _result(whole_steps[n], model) != wanted]
    clock = time.perf_counter_ns
    for done in range(_QUICK_ROUNDS if quick else _ROUNDS):
        for i in range(len(rows)):
            row = rows[(i + done) % len(rows)]
            time.sleep(_PAUSE_SECONDS)
            before = clock()
            whole_steps[row.segments]()
            row.bursts_ns.append([clock() - before])
    return {"rows": [asdict(row) for row in rows], "unequal": unequal}


def _resident(count: int) -> dict[str, Any]:
    """Rise of the resident high-water mark from the imports to the end of some steps.

    The model keeps the parameters it was made with: loading others would need them twice.
    """
    import lucid.nn
    import workloads
    from contestants.lucid_eager import training_step
    from contestants.models import make_model
    from lucid.compile import make_step

    idle = _resident_now()
    model = make_model(lucid, WORKLOAD)
    x, target = (lucid.tensor(array) for array in workloads.inputs(WORKLOAD))
    step = make_step(model, lucid.nn.CrossEntropyLoss(), segments=count, fallback="error")
    before = _resident_now()
    step.compile(x, target)
    compiling = _resident_now() - before
    whole_step = training_step(model, partial(step, x, target), "grads")
    for _ in range(_MEMORY_STEPS):
        whole_step()
    return {"resident_bytes": peak_bytes() - idle, "compiling_bytes": compiling}


def _resident_now() -> int:
    gc.collect()
    reset_peak()
    return peak_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description="One process of run.py --segments.")
    parser.add_argument("what", choices=("time", "memory"))
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    if options.realtime:
        be_realtime()
    answer = _time_all(options.quick) if options.what == "time" else _resident(options.count)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
