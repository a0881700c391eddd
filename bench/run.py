"""Measures lucid against its peers: python bench/run.py --workloads mlp_tiny,lenet --peers torch

Every contestant runs in a process of its own; all take turns in short bursts, in rotating order,
so that a change of the machine's speed meets all of them. README.md tells how to read the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import environments
import limits
import metal
import targets
from machine import Machine, MachineError
from remote import CONTESTANTS, Contestant, Remote, WorkerError
from report import base_of, compare_losses, facts, table, usable_cpus
from segments import measure, segments_table, verdict
from summary import Measured
from workloads import WORKLOADS

_MODES = ("grads", "sgd", "adamw")
_PEERS = ("torch", "torch_compile", "jax")
_ALL_OUT = Path(__file__).resolve().with_name("out") / "all.json"
# A first call that takes longer is measured once.
_LONG_FIRST_CALL_SECONDS = 5.0
_PAUSE_SECONDS = 0.02  # lets the threads of the contestant before fall asleep


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    burst_seconds: float
    rounds: int
    warm_up_seconds: float
    first_calls: int  # fresh processes for the time of the first call
    steps: int  # of each contestant, at least


_FULL = Effort(burst_seconds=0.2, rounds=20, warm_up_seconds=1.0, first_calls=5, steps=20)
_QUICK = Effort(burst_seconds=0.05, rounds=8, warm_up_seconds=0.2, first_calls=1, steps=12)


def _names(allowed: tuple[str, ...]) -> type[list[str]]:
    """An argument type: names with commas between them, each one of those allowed."""

    class Names(list[str]):
        def __init__(self, text: str) -> None:
            super().__init__(part for part in text.split(",") if part)
            for name in self:
                if name not in allowed:
                    choice = ", ".join(allowed)
                    raise argparse.ArgumentTypeError(f"no {name!r}; there are: {choice}")

    return Names


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--workloads", type=_names(WORKLOADS), default=list(WORKLOADS), metavar="A,B")
    add("--peers", type=_names(_PEERS), default=[], metavar="A,B", help="installed if need be")
    add("--modes", type=_names(_MODES), default=["grads"], metavar="A,B")
    every = tuple(c.name for c in CONTESTANTS)
    add("--contestants", type=_names(every), default=list(every), metavar="A,B")
    add("--threads", type=int, default=usable_cpus(), help="told to torch; lucid and JAX use all")
    add("--quick", action="store_true", help="shorter bursts and fewer of them")
    add("--realtime", action="store_true", help="for a busy machine: Linux, as root")
    add("--all", action="store_true", help="all workloads and modes, and what is to be reached")
    add("--segments", action="store_true", help="time against memory by number of segments instead")
    add("--memory-limit", action="store_true", help="time against memory by limit instead")
    add("--device", choices=("cpu", "metal"), default="cpu", help="metal: beside MPS and MLX")
    add("--json", type=Path, metavar="FILE")
    add("--plot", type=Path, metavar="FILE", help="a PNG; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.all:
        options.workloads, options.modes = list(WORKLOADS), list(_MODES)
        options.json = options.json or _ALL_OUT
        options.plot = options.plot or options.json.with_suffix(".png")
    return options


class _Starter:
    """Starts workers for one workload and mode."""

    def __init__(
        self,
        interpreters: dict[str, Path],
        workload: str,
        mode: str,
        options: argparse.Namespace,
        caches: Path,
    ) -> None:
        self._interpreters = interpreters
        self.workload = workload
        self.mode = mode
        self._options = options
        self._caches = caches / workload  # modes share it: their losses and gradients are the same

    def first_call(self, contestant: Contestant) -> tuple[Remote, dict[str, float]]:
        """A worker that has run its first step, and what that took."""
        python = Path(sys.executable)
        if contestant.peer is not None:
            python = self._interpreters[contestant.environment or contestant.peer]
        threads: int = self._options.threads
        caches = self._caches / contestant.name
        remote = Remote(contestant, python, self.workload, self.mode, threads, caches)
        try:
            return remote, remote.ask(do="first", realtime=self._options.realtime)
        except BaseException:
            remote.close()
            raise

    def start(self, contestant: Contestant, effort: Effort) -> _Running:
        """A contestant that is ready for bursts, after first calls in fresh processes."""
        calls: list[dict[str, float]] = []
        while True:
            remote, call = self.first_call(contestant)
            calls.append(call)
            if len(calls) >= effort.first_calls or call["seconds"] > _LONG_FIRST_CALL_SECONDS:
                return _Running(remote, self.measured(contestant, remote, calls))
            remote.close()

    def measured(
        self, contestant: Contestant, remote: Remote, first: list[dict[str, float]]
    ) -> Measured:
        """The results of a worker, as yet without bursts."""
        return Measured(
            contestant=contestant.name,
            workload=self.workload,
            mode=self.mode,
            versions=remote.hello["versions"],
            loss=first[-1]["loss"],
            first_seconds=[one["seconds"] for one in first],
            first_cpu_seconds=[one["cpu_seconds"] for one in first],
            peak_bytes=0,
            bursts_ns=[],
        )


@dataclass
class _Running:
    """A worker and what it showed."""

    remote: Remote
    measured: Measured


@dataclass
class _Rates:
    """The most that the machine did while a workload was measured."""

    machine: Machine | None
    work: targets.Work
    flops_per_second: float = 0.0
    bytes_per_second: float = 0.0

    def sample(self) -> None:
        if self.machine is None:
            return
        flops = self.machine.flops_per_second()
        self.flops_per_second = max(self.flops_per_second, flops)
        moved = self.machine.bytes_per_second(int(self.work.bytes))
        self.bytes_per_second = max(self.bytes_per_second, moved)


def _run_bursts(running: list[_Running], rates: _Rates, effort: Effort) -> list[str]:
    """Bursts in rotating order until there are rounds and steps enough.

    Takes contestants out that end or fail, and returns what they said.
    """
    failures: list[str] = []

    def ask(one: _Running, **request: object) -> dict[str, Any] | None:
        try:
            return one.remote.ask(**request)
        except WorkerError as error:
            failures.append(str(error))
            running.remove(one)
            return None

    for one in list(running):
        ask(one, do="burst", seconds=effort.warm_up_seconds)
    done = 0
    while running and (
        done < effort.rounds or any(len(r.measured.times_ns) < effort.steps for r in running)
    ):
        first = done % len(running)
        rates.sample()
        for one in running[first:] + running[:first]:
            time.sleep(_PAUSE_SECONDS)
            answer = ask(one, do="burst", seconds=effort.burst_seconds)
            if answer is not None:
                one.measured.bursts_ns.append(answer["times_ns"])
        done += 1
    for one in list(running):
        answer = ask(one, do="memory")
        if answer is not None:
            one.measured.peak_bytes = answer["peak_bytes"]
            one.measured.tensor_bytes = answer.get("tensor_bytes")
    return failures


def _measure(
    starter: _Starter, contestants: list[Contestant], rates: _Rates, effort: Effort
) -> tuple[list[Measured], list[str]]:
    """One workload and mode; returns the results, and why a contestant is missing."""
    running: list[_Running] = []
    failures: list[str] = []
    started: list[_Running] = []
    try:
        for contestant in contestants:
            try:
                started.append(starter.start(contestant, effort))
            except WorkerError as error:
                failures.append(str(error))
        running = list(started)
        failures += _run_bursts(running, rates, effort)
    finally:
        for one in started:
            one.remote.close()
    return [one.measured for one in running], failures


def _draw(results: Path, picture: Path) -> str | None:
    """Draws the plot; returns why it could not."""
    python = Path(sys.executable)
    if find_spec("matplotlib") is None:
        try:
            python = environments.prepare("plot")
        except environments.InstallError as error:
            return f"matplotlib is missing: {error}"
    script = Path(__file__).resolve().with_name("plot.py")
    command = [str(python), str(script), str(results), str(picture)]
    result = subprocess.run(command, capture_output=True, text=True)
    return None if result.returncode == 0 else result.stderr.strip()


def _write_json(run: dict[str, object], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run, indent=1) + "\n")


def _write(run: dict[str, object], options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file: Path = options.json or Path(folder) / "results.json"
        _write_json(run, file)
        if options.plot:
            options.plot.parent.mkdir(parents=True, exist_ok=True)
            reason = _draw(file, options.plot)
            if reason is not None:
                print(f"no plot: {reason}", file=sys.stderr)


def _run_segments(options: argparse.Namespace) -> int:
    about = facts(usable_cpus())
    about["realtime"] = options.realtime
    rows, unequal = measure(options.quick, options.realtime)
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(segments_table(rows) + "\n")
    print(verdict(rows, unequal))
    _write({"facts": about, "segments": [row.to_json(rows[0]) for row in rows]}, options)
    return 1 if unequal else 0


def _run_limits(options: argparse.Namespace) -> int:
    about = facts(usable_cpus())
    about["realtime"] = options.realtime
    rows, unequal = limits.measure(options.quick, options.realtime)
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(limits.limits_table(rows) + "\n")
    print(limits.verdict(rows, unequal))
    numbers = [row.to_json(limits.free_row(rows, row.workload)) for row in rows]
    _write({"facts": about, "limits": numbers}, options)
    return 1 if unequal else 0


def _prepare_peers(peers: list[str]) -> tuple[dict[str, Path], list[str]]:
    """Interpreters by environment, and why a peer is not to be had."""
    wanted = {c.environment or c.peer for c in CONTESTANTS if c.peer in peers}
    interpreters, missing = {}, []
    for name in sorted(filter(None, wanted)):
        try:
            interpreters[name] = environments.prepare(name)
        except environments.InstallError as error:
            missing.append(f"{name} could not be installed: {error}")
    return interpreters, missing


def _machine(threads: int) -> Machine | None:
    try:
        return Machine(threads)
    except MachineError as error:
        print(f"no physical limits: {error}", file=sys.stderr)
        return None


@dataclass
class _Run:
    """Everything a run has measured so far."""

    about: dict[str, object]
    measured: list[Measured]
    limits: list[targets.Limit]
    missing: list[str]

    def to_json(self) -> dict[str, object]:
        versions = {k: v for one in self.measured for k, v in one.versions.items()}
        rows = targets.reached(self.measured, self.limits)
        return {
            "facts": {**self.about, "versions": versions},
            "results": [one.to_json(base_of(self.measured, one)) for one in self.measured],
            "physical_limits": [limit.to_json() for limit in self.limits],
            "reached": [row.to_json() for row in rows],
            "missing": self.missing,
        }

    def print_all(self, with_targets: bool) -> bool:
        """Prints tables and verdicts; False if first losses differ."""
        facts_now = self.to_json()["facts"]
        assert isinstance(facts_now, dict)
        print(", ".join(f"{key}: {value}" for key, value in facts_now.items()) + "\n")
        print(table(self.measured) + "\n")
        losses, agree = compare_losses(self.measured)
        print(losses + "\n")
        if with_targets:
            rows = targets.reached(self.measured, self.limits)
            print(targets.target_table(rows) + "\n")
            print(targets.update_table(rows) + "\n")
            print("\n".join(targets.verdicts(rows)))
        for missing in self.missing:
            print(f"MISSING {missing}")
        return agree


def _run_workloads(run: _Run, interpreters: dict[str, Path], options: argparse.Namespace) -> None:
    """Measures all workloads and modes; the results so far are written after each."""
    effort = _QUICK if options.quick else _FULL
    chosen = [
        c
        for c in CONTESTANTS
        if c.name in options.contestants
        and (c.peer is None or (c.peer in options.peers and _home(c) in interpreters))
    ]
    machine = _machine(options.threads)
    with tempfile.TemporaryDirectory() as caches:
        for workload in options.workloads:
            able = [c for c in chosen if not c.only or workload in c.only]
            for mode in options.modes:
                print(f"-- {workload} ({mode})", file=sys.stderr, flush=True)
                starter = _Starter(interpreters, workload, mode, options, Path(caches))
                here = [c for c in able if not c.modes or mode in c.modes]
                rates = _Rates(machine, targets.work(workload, mode))
                results, missing = _measure(starter, here, rates, effort)
                run.measured += results
                run.missing += [f"{workload} ({mode}): {reason}" for reason in missing]
                if rates.flops_per_second > 0 and rates.bytes_per_second > 0:
                    rate = (rates.flops_per_second, rates.bytes_per_second)
                    run.limits.append(targets.Limit(workload, mode, rates.work, *rate))
                if options.json:
                    _write_json(run.to_json(), options.json)


def _home(contestant: Contestant) -> str:
    return contestant.environment or contestant.peer or ""


def main(arguments: list[str]) -> int:
    """Exit status: 0; 1 if one of lucid failed or losses differ; 3 if a peer is not to be had."""
    options = _parse(arguments)
    if options.device == "metal":
        return metal.run(options)
    if options.segments:
        return _run_segments(options)
    if options.memory_limit:
        return _run_limits(options)
    start = time.monotonic()
    interpreters, missing = _prepare_peers(options.peers)
    for reason in missing:
        print(f"error: {reason}", file=sys.stderr)
    if missing and not options.all:
        return 3
    about = facts(options.threads)
    about["realtime"] = options.realtime
    run = _Run(about, [], [], [f"peer {reason}" for reason in missing])
    _run_workloads(run, interpreters, options)
    run.about["minutes"] = round((time.monotonic() - start) / 60, 1)
    agree = run.print_all(with_targets=options.all or bool(options.peers))
    _write(run.to_json(), options)
    if not agree or any(": lucid" in reason for reason in run.missing):
        return 1
    return 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
