"""Where a compiled step spends its time: python bench/profile.py WORKLOAD [--mode grads|sgd|adamw]

Prints one line a kernel, the slowest first: its share of the step, FLOP/s, bytes/s, and how many
times its own limit it takes: the larger of its FLOPs over what the machine's products reach and its
bytes over what a copy reaches, both measured just before. `--by label` adds equal kernels up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import lucid
import lucid.nn
from contestants.lucid_eager import make_parts
from contestants.models import make_optimizer
from lucid.compile import fused_step, make_step
from process import be_realtime
from workloads import WORKLOADS

_RUNS = 15
_SIDE = 1024  # of the product that shows the FLOP/s
_COPIED = 1 << 24  # float32 elements of the copy that shows the bytes/s


@dataclass
class Row:
    """One kernel, or several of one label."""

    label: str
    types: str
    at: str
    flops: float
    bytes: float
    seconds: list[float] = field(default_factory=list)
    count: int = 1

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def _median_seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def machine_limits() -> tuple[float, float]:
    """FLOP/s of a large product and bytes/s of a copy, on all threads."""
    a = lucid.randn(_SIDE, _SIDE)
    product = _median_seconds(lambda: a @ a)
    x = lucid.ones(_COPIED)
    copy = _median_seconds(lambda: x * 1.0)
    return 2.0 * _SIDE**3 / product, 2.0 * 4.0 * _COPIED / copy


def profile(workload: str, mode: str) -> list[Row]:
    """The kernels of a workload's step in the order in which they run."""
    model, x, target = make_parts(workload)
    loss_fn = lucid.nn.CrossEntropyLoss()
    if mode == "grads":
        step = make_step(model, loss_fn, fallback="error")
        step(x, target)
        scalars: tuple[float, ...] = ()
    else:
        optimizer = make_optimizer(lucid, mode, list(model.parameters()))
        step = fused_step(model, loss_fn, optimizer, fallback="error")
        for _ in range(2):  # the first makes the optimizer's state
            step(x, target)
        scalars = step._entries[0].plan.scalars() or ()
    rows: list[Row] = []
    for _ in range(_RUNS):
        found = step.cache[0].profile((x, target), scalars)
        if not rows:
            rows = [Row(r["label"], r["types"], r["at"], r["flops"], r["bytes"]) for r in found]
        for row, one in zip(rows, found, strict=True):
            row.seconds.append(one["seconds"])
    return rows


def added_up(rows: list[Row]) -> list[Row]:
    """One row a label."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.label].append(row)
    result = []
    for label, same in groups.items():
        sums = [sum(times) for times in zip(*(row.seconds for row in same), strict=True)]
        flops, moved = sum(r.flops for r in same), sum(r.bytes for r in same)
        result.append(Row(label, f"{len(same)} kernels", "", flops, moved, sums, len(same)))
    return result


def table(rows: list[Row], flops_per_second: float, bytes_per_second: float, top: int) -> str:
    """The slowest kernels, one line each."""
    total = sum(row.median for row in rows)
    lines = [
        f"{'us':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7} {'x limit':>8}  kernel",
    ]
    ordered = sorted(rows, key=lambda row: row.median, reverse=True)
    for row in ordered[:top]:
        seconds = max(row.median, 1e-9)
        limit = max(row.flops / flops_per_second, row.bytes / bytes_per_second)
        times_limit = f"{seconds / limit:8.1f}" if limit > 0 else f"{'-':>8}"
        label = row.label if len(row.label) <= 60 else row.label[:57] + "..."
        lines.append(
            f"{1e6 * seconds:9.1f} {100 * seconds / total:5.1f}% {row.flops / seconds / 1e9:8.1f} "
            f"{row.bytes / seconds / 1e9:7.1f} {times_limit}  {label} {row.types} {row.at}".rstrip()
        )
    limits = sum(max(r.flops / flops_per_second, r.bytes / bytes_per_second) for r in rows)
    lines.append(
        f"{len(rows)} kernels, {1e6 * total:.1f} us, {total / limits:.2f} times their limits"
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", choices=list(WORKLOADS))
    parser.add_argument("--mode", choices=("grads", "sgd", "adamw"), default="grads")
    parser.add_argument("--by", choices=("kernel", "label"), default="kernel")
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--realtime", action="store_true", help="Linux, as root")
    options = parser.parse_args(arguments)
    if options.realtime:
        be_realtime()
    flops_per_second, bytes_per_second = machine_limits()
    print(f"limits: {flops_per_second / 1e9:.0f} GFLOP/s, {bytes_per_second / 1e9:.1f} GB/s")
    rows = profile(options.workload, options.mode)
    if options.by == "label":
        rows = added_up(rows)
    print(table(rows, flops_per_second, bytes_per_second, options.top))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
