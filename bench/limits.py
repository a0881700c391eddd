"""What a memory limit costs and saves: time against the arena's peak, by the limit asked for.

`bench/run.py --memory-limit` calls `measure`. The processes it starts run this file:
  limits.py WORKLOAD [--quick] [--realtime]   all limits in one process, taking turns step by step
Each prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from process import be_realtime
from report import markdown
from summary import Ratio, quantile, ratio

WORKLOADS = ("gpt_mini", "resnet_small", "mlp_wide", "deep_bottleneck")
PARTS = (0.75, 0.5, 0.35, 0.25, 0.1)  # of the peak without a limit
# What half the memory is to cost at most, on which workloads.
TARGET_PART, TARGET_TIME, TARGETS = 0.5, 1.15, ("gpt_mini", "resnet_small")

_ROUNDS, _QUICK_ROUNDS = 30, 6  # a burst is one step: a round is over before the load changes
_PAUSE_SECONDS = 0.02  # Linux takes 5 % of the time away from real-time threads that never rest

_HEADINGS = (
    "workload",
    "limit MB",
    "of free peak",
    "peak MB",
    "reached",
    "median ms",
    "time / free",
    "of p10",
    "repeated ops",
    "more FLOP",
    "compile ms",
)


@dataclass
class Row:
    """What one limit showed; the first row of a workload has none."""

    workload: str
    limit_bytes: int | None
    peak_bytes: int  # the smallest that was found where the limit could not be met
    is_met: bool
    recomputation: dict[str, float] | None
    compile_seconds: float
    bursts_ns: list[list[int]] = field(default_factory=list)  # one list of step times a round

    def quantile_ms(self, part: float) -> float:
        return quantile([float(t) for burst in self.bursts_ns for t in burst], part) / 1e6

    def ratio_to(self, other: Row) -> Ratio:
        return ratio(self.bursts_ns, other.bursts_ns)

    @property
    def more_flops(self) -> float:
        """Estimated operations that are repeated, of those of the step."""
        done = self.recomputation
        return done["repeated_flops"] / done["flops"] if done else 0.0

    def to_json(self, free: Row) -> dict[str, Any]:
        timed = bool(self.bursts_ns)
        return {
            "workload": self.workload,
            "limit_bytes": self.limit_bytes,
            "peak_bytes": self.peak_bytes,
            "peak_of_free": self.peak_bytes / free.peak_bytes,
            "is_met": self.is_met,
            "recomputation": self.recomputation,
            "compile_seconds": self.compile_seconds,
            "median_ms": self.quantile_ms(0.5) if timed else None,
            "p10_ms": self.quantile_ms(0.1) if timed else None,
            "round_medians_ms": [statistics.median(burst) / 1e6 for burst in self.bursts_ns],
            "over_free": asdict(self.ratio_to(free)) if timed else None,
        }


# ---------------------------------------------------------------- the parent's side


def measure(quick: bool, realtime: bool) -> tuple[list[Row], list[str]]:
    """All rows, and where loss or gradients are not bit for bit those without a limit."""
    rows, unequal = [], []
    for workload in WORKLOADS:
        flags = ["--quick"] * quick + ["--realtime"] * realtime
        command = [sys.executable, str(Path(__file__).resolve()), workload, *flags]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with status {result.returncode}")
        answer = json.loads(result.stdout)
        rows += [Row(**row) for row in answer["rows"]]
        unequal += answer["unequal"]
    return rows, unequal


def free_row(rows: list[Row], workload: str) -> Row:
    """The row of a workload that has no limit."""
    return next(row for row in rows if row.workload == workload and row.limit_bytes is None)


def limits_table(rows: list[Row]) -> str:
    """A markdown table."""
    cells: list[tuple[str, ...]] = [_HEADINGS]
    for row in rows:
        free = free_row(rows, row.workload)
        limit = row.limit_bytes
        asked = ("none", "") if limit is None else _megabytes_of(limit, free.peak_bytes)
        reached = f"{100 * row.peak_bytes / free.peak_bytes:.1f} %"
        if not row.is_met:
            text = f"at least {row.peak_bytes / 1e6:.1f}"
            cells.append((row.workload, *asked, text, reached, *["-"] * 6))
            continue
        over = row.ratio_to(free)
        repeated = row.recomputation["repeated_operations"] if row.recomputation else 0
        cells.append(
            (
                row.workload,
                *asked,
                f"{row.peak_bytes / 1e6:.1f}",
                reached,
                f"{row.quantile_ms(0.5):.1f}",
                f"{over.median:.2f} ({over.low:.2f}-{over.high:.2f})",
                f"{over.of_p10:.2f}",
                f"{repeated:.0f}",
                f"{100 * row.more_flops:.1f} %",
                f"{1e3 * row.compile_seconds:.1f}",
            )
        )
    return markdown(cells)


def _megabytes_of(limit: int, free_peak: int) -> tuple[str, str]:
    return f"{limit / 1e6:.1f}", f"{100 * limit / free_peak:.0f} %"


def verdict(rows: list[Row], unequal: list[str]) -> str:
    """What was to be reached, and whether it was."""
    lines = []
    for workload in TARGETS:
        free = free_row(rows, workload)
        limit = int(TARGET_PART * free.peak_bytes)
        row = next(r for r in rows if r.workload == workload and r.limit_bytes == limit)
        if not row.is_met:
            lines.append(f"{workload}: half the memory: MISSED")
            continue
        over = row.ratio_to(free).median
        lines.append(
            f"{workload}: {100 * row.peak_bytes / free.peak_bytes:.1f} % of the memory at "
            f"{over:.2f} times the time, to reach {TARGET_TIME:.2f}: "
            f"{'reached' if over <= TARGET_TIME else 'MISSED'}"
        )
    bits = f"DIFFER: {', '.join(unequal)}" if unequal else "all equal"
    return "\n".join([*lines, f"loss and gradients, bit for bit: {bits}"])


# ---------------------------------------------------------------- the child's side


def _result(whole_step: Any, model: Any) -> list[bytes]:
    """The bytes of the loss and of all gradients; also warms up."""
    loss = whole_step()
    gradients = (p.grad.numpy().tobytes() for p in model.parameters())
    return [loss.detach().numpy().tobytes(), *gradients]


def _compiled(model: Any, batch: tuple[Any, ...], row: Row) -> Any:
    """The step of a row, whose numbers are filled in; None where the limit cannot be met."""
    import lucid.nn
    from lucid.compile import make_step

    loss = lucid.nn.CrossEntropyLoss()
    step = make_step(model, loss, memory_limit=row.limit_bytes, fallback="error")
    start = time.perf_counter()
    try:
        step.compile(*batch)
    except lucid.UserError as error:
        found = re.search(r"smallest peak found is (\d+) bytes", str(error))
        if found is None:
            raise
        row.peak_bytes = int(found[1])
        return None
    row.compile_seconds = time.perf_counter() - start
    row.peak_bytes = step.memory()["arena_peak"]
    row.recomputation = step.cache[0].recomputation()
    row.is_met = True
    return step


def _time_all(workload: str, quick: bool) -> dict[str, Any]:
    from contestants.lucid_eager import make_parts, training_step

    model, *batch = make_parts(workload)
    rows = [Row(workload, None, 0, False, None, 0.0)]
    whole_steps = {}
    for part in (None, *PARTS):
        if part is not None:
            rows.append(Row(workload, int(part * rows[0].peak_bytes), 0, False, None, 0.0))
        step = _compiled(model, tuple(batch), rows[-1])
        if step is not None:
            place = len(rows) - 1
            whole_steps[place] = training_step(model, partial(step, *batch), "grads")
    wanted = _result(whole_steps[0], model)
    unequal = [
        f"{workload} at {rows[place].limit_bytes}"
        for place, whole_step in whole_steps.items()
        if _result(whole_step, model) != wanted
    ]
    clock, places = time.perf_counter_ns, list(whole_steps)
    for done in range(_QUICK_ROUNDS if quick else _ROUNDS):
        for i in range(len(places)):
            place = places[(i + done) % len(places)]
            time.sleep(_PAUSE_SECONDS)
            before = clock()
            whole_steps[place]()
            rows[place].bursts_ns.append([clock() - before])
    return {"rows": [asdict(row) for row in rows], "unequal": unequal}


def main() -> None:
    parser = argparse.ArgumentParser(description="One process of run.py --memory-limit.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    if options.realtime:
        be_realtime()
    print(json.dumps(_time_all(options.workload, options.quick)))


if __name__ == "__main__":
    main()
