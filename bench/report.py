"""What a run of the bench is told as: a table, a check of the losses, and facts of the machine."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from summary import Measured, quantile

_HERE = Path(__file__).resolve().parent
_LOSS_TOLERANCE = 1e-4  # sums of float32 in another order differ by about 1e-6

_HEADINGS = (
    "workload",
    "contestant",
    "median ms",
    "p10 ms",
    "spread",
    "n",
    "time / lucid_step",
    "of p10",
    "first call ms",
    "first call CPU ms",
    "peak MB",
)


def usable_cpus() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, cwd=_HERE)
    except OSError:
        return "unknown"
    if result.returncode != 0:
        return "unknown"
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    changed = subprocess.run(status, capture_output=True, text=True, cwd=_HERE).stdout.strip()
    return result.stdout.strip() + (" with changes" if changed else "")


def facts(threads: int) -> dict[str, Any]:
    """Machine, commit and load, as far as the system tells them."""
    return {
        "cpu": _cpu_name(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "threads": threads,
        "python": platform.python_version(),
        "commit": _commit(),
        "load_average": list(os.getloadavg()),
    }


def base_of(measured: list[Measured], one: Measured) -> Measured | None:
    """The compiled lucid step of the same workload and mode."""
    for other in measured:
        same = (other.workload, other.mode) == (one.workload, one.mode)
        if same and other.contestant == "lucid_step":
            return other
    return None


def _row(one: Measured, base: Measured | None) -> tuple[str, ...]:
    ratio = one.ratio_to(base) if base else None
    suffix = "" if one.mode == "grads" else f" ({one.mode})"
    return (
        one.workload + suffix,
        one.contestant,
        f"{one.quantile_ms(0.5):.4g}",
        f"{one.quantile_ms(0.1):.4g}",
        f"{100 * one.spread:.0f} %",
        str(len(one.times_ns)),
        f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})" if ratio else "",
        f"{ratio.of_p10:.2f}" if ratio else "",
        f"{1e3 * quantile(one.first_seconds, 0.5):.4g}",
        f"{1e3 * quantile(one.first_cpu_seconds, 0.5):.4g}",
        f"{one.peak_bytes / 1e6:.1f}",
    )


def markdown(rows: list[tuple[str, ...]]) -> str:
    """A markdown table, headings first, padded so that it reads well as plain text too."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def table(measured: list[Measured]) -> str:
    """One row for each contestant, workload and mode."""
    return markdown([_HEADINGS, *(_row(one, base_of(measured, one)) for one in measured)])


def differ(losses: Collection[float]) -> bool:
    """True if losses of the same step are not finite, or further apart than rounding explains."""
    low, high = min(losses), max(losses)
    return not all(map(math.isfinite, losses)) or high - low > _LOSS_TOLERANCE * abs(low)


def compare_losses(measured: list[Measured]) -> tuple[str, bool]:
    """One line a workload and mode on the first losses; False if any differ by too much."""
    losses: dict[tuple[str, str], dict[str, float]] = {}
    for one in measured:
        losses.setdefault((one.workload, one.mode), {})[one.contestant] = one.loss
    lines, agree = [], True
    for (workload, mode), by_name in losses.items():
        low, high = min(by_name.values()), max(by_name.values())
        difference = (high - low) / abs(low)
        same = not differ(by_name.values())
        agree = agree and same
        verdict = "agree" if same else f"DIFFER: {by_name}"
        lines.append(
            f"first losses of {workload} ({mode}): {low:.6f}, relative difference "
            f"{difference:.1e} over {len(by_name)} contestants: {verdict}"
        )
    return "\n".join(lines), agree
