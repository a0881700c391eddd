"""Cost of a call beyond its arithmetic: python bench/overhead.py [--json FILE]

Prints, for cache hits of a compiled step, the microseconds of step() and backward() that are not
the executable's own run, and how they grow with the number of parameters; and the microseconds of
one small eager operation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
from contestants.lucid_eager import make_parts
from lucid.compile import Step, make_step
from report import facts, usable_cpus
from summary import quantile

_CALLS = 2000
_ROUNDS = 5
_PARAMETER_COUNTS = (4, 40, 400)


class Sum(nn.Module):
    """Adds many tiny parameters to its input."""

    def __init__(self, num_parameters: int) -> None:
        super().__init__()
        self.terms = nn.ParameterList([nn.Parameter(lucid.ones(8)) for _ in range(num_parameters)])

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        for term in self.terms:
            x = x + term
        return x


def _total(y: lucid.Tensor) -> lucid.Tensor:
    return y.sum()


def hit_overheads_us(step: Step, model: nn.Module, *args: lucid.Tensor) -> list[float]:
    """Microseconds of Python and binding of each of many hits with backward().

    What is timed is `loss = step(...)`, `loss.backward()` and the end of `loss`, less the run
    that the step itself reports. Clearing `.grad` is the caller's business and is not in it.
    """
    parameters = list(model.parameters())
    clock = time.perf_counter
    overheads = []
    for call in range(_CALLS + _CALLS // 10):
        for parameter in parameters:
            parameter.grad = None
        run_before = step.timing()["run_seconds"] if call else 0.0
        before = clock()
        loss: lucid.Tensor | None = step(*args)
        assert loss is not None
        loss.backward()
        loss = None
        elapsed = clock() - before
        run = step.timing()["run_seconds"] - run_before
        if call >= _CALLS // 10:
            overheads.append(1e6 * (elapsed - run))
    return overheads


def eager_operations_us() -> list[float]:
    """Microseconds of `x + y` of eight elements without a gradient."""
    x, y = lucid.ones(8), lucid.ones(8)
    times = []
    for _ in range(50):
        before = time.perf_counter()
        for _ in range(200):
            x + y  # noqa: B018  (the time is what is wanted)
        times.append(1e6 * (time.perf_counter() - before) / 200)
    return times


def _best_round(measure: Callable[[], list[float]]) -> dict[str, float]:
    """Median and 10th percentile of the round with the least median: the least disturbed one."""
    rounds = [measure() for _ in range(_ROUNDS)]
    best = min(rounds, key=statistics.median)
    return {"median_us": statistics.median(best), "p10_us": quantile(best, 0.1)}


def measure_all() -> dict[str, Any]:
    model, x, target = make_parts("mlp_tiny")
    step = make_step(model, nn.CrossEntropyLoss(), fallback="error")
    results: dict[str, Any] = {
        "mlp_tiny hit": _best_round(lambda: hit_overheads_us(step, model, x, target))
    }
    medians = []
    for count in _PARAMETER_COUNTS:
        sum_model = Sum(count)
        sum_step = make_step(sum_model, _total, fallback="error")
        ones = lucid.ones(8)

        def measure(s: Step = sum_step, m: nn.Module = sum_model) -> list[float]:
            return hit_overheads_us(s, m, ones)  # noqa: B023  (used before the next round)

        results[f"hit, {count} parameters"] = _best_round(measure)
        medians.append(results[f"hit, {count} parameters"]["median_us"])
    growth = (medians[-1] - medians[0]) / (_PARAMETER_COUNTS[-1] - _PARAMETER_COUNTS[0])
    results["a further parameter"] = {"median_us": growth}
    results["eager x + y"] = _best_round(eager_operations_us)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    about = facts(usable_cpus())
    results = measure_all()
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(
        "| what                | median us | p10 us |\n|---------------------|-----------|--------|"
    )
    for what, numbers in results.items():
        p10 = f"{numbers['p10_us']:.3f}" if "p10_us" in numbers else ""
        print(f"| {what:<19} | {numbers['median_us']:<9.3f} | {p10:<6} |")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"facts": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
