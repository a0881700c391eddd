"""Cost of a call beyond its arithmetic: python bench/overhead.py [--json FILE]

Prints, for cache hits of a compiled step, the microseconds of step() and backward() that are not
the executable's own run, and how they grow with the number of parameters; those of a fused step;
the time of a step in three calls over that of what is native in them; and the microseconds of one
small eager operation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
from contestants.lucid_eager import make_parts
from lucid.compile import Step, fused_step, make_step
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


def fused_overheads_us(make_optimizer: Callable[..., optim.Optimizer]) -> list[float]:
    """Microseconds of each of many hits of a fused step of mlp_tiny that are not its executable."""
    model, x, target = make_parts("mlp_tiny")
    step = fused_step(
        model, nn.CrossEntropyLoss(), make_optimizer(model.parameters()), fallback="error"
    )
    clock = time.perf_counter
    overheads = []
    for call in range(_CALLS + _CALLS // 10):
        run_before = step.timing()["run_seconds"] if call else 0.0
        before = clock()
        step(x, target)
        elapsed = clock() - before
        if call >= _CALLS // 10:
            overheads.append(1e6 * (elapsed - (step.timing()["run_seconds"] - run_before)))
    return overheads


@dataclass(frozen=True)
class ThreeCalls:
    """Microseconds of a step of mlp_tiny as a user writes it, and of what is native in it."""

    whole: float  # step(), backward() and optimizer.step()
    native: float  # the native calls that those three make
    bare: float  # the runs of the two executables, and backward()


def three_calls(make_optimizer: Callable[..., optim.Optimizer]) -> ThreeCalls:
    """Medians over many steps; one in two is made by the native calls alone."""
    model, x, target = make_parts("mlp_tiny")
    optimizer = make_optimizer(model.parameters())
    step = make_step(model, nn.CrossEntropyLoss(), fallback="error")
    for _ in range(10):
        optimizer.zero_grad()
        step(x, target).backward()
        optimizer.step()
    entry, update = step.cache[0], optimizer._updates._known[0]
    params, scalars = tuple(model.parameters()), update.plan.scalars()
    assert scalars is not None

    def run_seconds() -> float:
        return entry.timing()["run_seconds"] + update.entry.timing()["run_seconds"]

    clock = time.perf_counter
    wholes, natives, bares = [], [], []
    for _ in range(_CALLS):
        optimizer.zero_grad()
        runs_before = run_seconds()
        start = clock()
        loss = step(x, target)
        middle = clock()
        loss.backward()
        late = clock()
        optimizer.step()
        wholes.append(clock() - start)
        bares.append(run_seconds() - runs_before + (late - middle))
        optimizer.zero_grad()
        start = clock()
        loss = entry.try_run((x, target))
        loss.backward()
        update.entry.try_update(params, (), scalars)
        natives.append(clock() - start)
    whole, native, bare = (1e6 * statistics.median(t) for t in (wholes, natives, bares))
    return ThreeCalls(whole, native, bare)


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


_OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {"SGD": optim.SGD, "AdamW": optim.AdamW}


def measure_three_calls() -> dict[str, ThreeCalls]:
    """By optimizer, the least disturbed round."""
    return {
        name: min((three_calls(make) for _ in range(_ROUNDS)), key=lambda times: times.whole)
        for name, make in _OPTIMIZERS.items()
    }


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
    for name, make in _OPTIMIZERS.items():
        results[f"fused step, {name}"] = _best_round(lambda m=make: fused_overheads_us(m))  # type: ignore[misc]
    results["eager x + y"] = _best_round(eager_operations_us)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    about = facts(usable_cpus())
    results = measure_all()
    threes = measure_three_calls()
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(
        "| what                | median us | p10 us |\n|---------------------|-----------|--------|"
    )
    for what, numbers in results.items():
        p10 = f"{numbers['p10_us']:.3f}" if "p10_us" in numbers else ""
        print(f"| {what:<19} | {numbers['median_us']:<9.3f} | {p10:<6} |")
    print(
        "\n| step, backward, optimizer.step | us    | over the native calls | over the bare runs |"
    )
    print("|--------------------------------|-------|-----------------------|--------------------|")
    for name, times in threes.items():
        over_native, over_bare = times.whole / times.native, times.whole / times.bare
        print(f"| {name:<30} | {times.whole:<5.2f} | {over_native:<21.2f} | {over_bare:<18.2f} |")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps(
                {
                    "facts": about,
                    "results": results,
                    "three_calls": {k: asdict(v) for k, v in threes.items()},
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
