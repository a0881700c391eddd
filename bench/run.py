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

import environments
import limits
from remote import CONTESTANTS, Contestant, Remote, WorkerError
from report import base_of, compare_losses, facts, table, usable_cpus
from segments import measure, segments_table, verdict
from summary import Measured
from workloads import WORKLOADS

_MODES = ("grads", "sgd", "adamw")
_PEERS = ("torch", "jax")
_MIN_STEPS = 20
_PAUSE_SECONDS = 0.02  # lets the threads of the contestant before fall asleep


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    burst_seconds: float
    rounds: int
    warm_up_seconds: float
    first_calls: int  # fresh processes for the time of the first call


_FULL = Effort(burst_seconds=0.2, rounds=20, warm_up_seconds=1.0, first_calls=5)
_QUICK = Effort(burst_seconds=0.05, rounds=8, warm_up_seconds=0.2, first_calls=1)


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
    add("--segments", action="store_true", help="time against memory by number of segments instead")
    add("--memory-limit", action="store_true", help="time against memory by limit instead")
    add("--json", type=Path, metavar="FILE")
    add("--plot", type=Path, metavar="FILE", help="a PNG; needs matplotlib")
    return parser.parse_args(arguments)


class _Starter:
    """Starts workers for one workload and mode."""

    def __init__(
        self,
        interpreters: dict[str, Path],
        workload: str,
        mode: str,
        options: argparse.Namespace,
    ) -> None:
        self._interpreters = interpreters
        self._workload = workload
        self._mode = mode
        self._options = options

    def first_call(self, contestant: Contestant) -> tuple[Remote, dict[str, float]]:
        """A worker that has run its first step, and what that took."""
        python = Path(sys.executable)
        if contestant.peer is not None:
            python = self._interpreters[contestant.peer]
        threads: int = self._options.threads
        remote = Remote(contestant, python, self._workload, self._mode, threads)
        try:
            return remote, remote.ask(do="first", realtime=self._options.realtime)
        except BaseException:
            remote.close()
            raise

    def measured(
        self, contestant: Contestant, remote: Remote, first: list[dict[str, float]]
    ) -> Measured:
        """The results of a worker, as yet without bursts."""
        return Measured(
            contestant=contestant.name,
            workload=self._workload,
            mode=self._mode,
            versions=remote.hello["versions"],
            loss=first[-1]["loss"],
            first_seconds=[one["seconds"] for one in first],
            first_cpu_seconds=[one["cpu_seconds"] for one in first],
            peak_bytes=0,
            bursts_ns=[],
        )


def _run_bursts(remotes: list[Remote], measured: list[Measured], effort: Effort) -> None:
    """Bursts in rotating order until there are rounds and steps enough."""
    for remote in remotes:
        remote.ask(do="burst", seconds=effort.warm_up_seconds)
    done = 0
    while done < effort.rounds or any(len(m.times_ns) < _MIN_STEPS for m in measured):
        for i in range(len(remotes)):
            place = (i + done) % len(remotes)
            time.sleep(_PAUSE_SECONDS)
            answer = remotes[place].ask(do="burst", seconds=effort.burst_seconds)
            measured[place].bursts_ns.append(answer["times_ns"])
        done += 1
    for remote, one in zip(remotes, measured, strict=True):
        one.peak_bytes = remote.ask(do="memory")["peak_bytes"]


def _measure(
    starter: _Starter, contestants: list[Contestant], effort: Effort
) -> tuple[list[Measured], list[str]]:
    """One workload and mode; returns the results, and why a contestant is missing."""
    remotes: list[Remote] = []
    measured: list[Measured] = []
    failures: list[str] = []
    try:
        for contestant in contestants:
            try:
                first = []
                for _ in range(effort.first_calls - 1):
                    remote, call = starter.first_call(contestant)
                    remote.close()
                    first.append(call)
                remote, call = starter.first_call(contestant)
            except WorkerError as error:
                failures.append(str(error))
                continue
            remotes.append(remote)
            measured.append(starter.measured(contestant, remote, [*first, call]))
        if remotes:
            _run_bursts(remotes, measured, effort)
    except WorkerError as error:  # without one, the rounds of the others have no pair
        failures.append(str(error))
        measured = []
    finally:
        for remote in remotes:
            remote.close()
    return measured, failures


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


def _write(run: dict[str, object], options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file: Path = options.json or Path(folder) / "results.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(run, indent=1) + "\n")
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


def main(arguments: list[str]) -> int:
    """Exit status: 0; 1 if a contestant failed or losses differ; 3 if a peer is not to be had."""
    options = _parse(arguments)
    if options.segments:
        return _run_segments(options)
    if options.memory_limit:
        return _run_limits(options)
    interpreters = {}
    for peer in options.peers:
        try:
            interpreters[peer] = environments.prepare(peer)
        except environments.InstallError as error:
            print(f"error: peer {peer} could not be installed: {error}", file=sys.stderr)
            return 3
    effort = _QUICK if options.quick else _FULL
    chosen = [
        c
        for c in CONTESTANTS
        if c.name in options.contestants and (c.peer is None or c.peer in options.peers)
    ]
    about = facts(options.threads)
    measured: list[Measured] = []
    failures: list[str] = []
    for workload in options.workloads:
        able = [c for c in chosen if not c.only or workload in c.only]
        for mode in options.modes:
            print(f"-- {workload} ({mode})", file=sys.stderr, flush=True)
            starter = _Starter(interpreters, workload, mode, options)
            here = [c for c in able if not c.modes or mode in c.modes]
            results, missing = _measure(starter, here, effort)
            measured += results
            failures += [f"{workload} ({mode}): {reason}" for reason in missing]
    versions = {k: v for one in measured for k, v in one.versions.items()}
    about["versions"] = versions
    about["realtime"] = options.realtime
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(table(measured) + "\n")
    losses, agree = compare_losses(measured)
    print(losses)
    for failure in failures:
        print(f"FAILED {failure}")
    numbers = [one.to_json(base_of(measured, one)) for one in measured]
    _write({"facts": about, "results": numbers, "failures": failures}, options)
    return 0 if agree and not failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
