"""Two builds of lucid side by side: python bench/compare.py BEFORE AFTER --workloads mlp_tiny,lenet

BEFORE and AFTER are source trees with the extension built in place, folders that lucid is imported
from, or environments that it is installed in. Both run this folder's contestant, each in a process
of its own, and take turns in bursts. Exit status 1 if the first losses differ by more than 1e-4.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from remote import CONTESTANTS, Contestant, Remote, WorkerError
from report import differ, facts, markdown, usable_cpus
from summary import Ratio, quantile, ratio
from workloads import WORKLOADS

_PAUSE_SECONDS = 0.02  # lets the threads of the build before fall asleep
_WARM_UP_SECONDS = 0.2
_OURS = {c.name: c for c in CONTESTANTS if c.peer is None}


class BuildError(Exception):
    """No build of lucid was found at a path; the message says which."""


@dataclass(frozen=True)
class Build:
    """How to run one build: an interpreter, and the folder of packages that goes before its own."""

    python: Path
    packages: Path | None  # None: lucid is installed where the interpreter is

    @staticmethod
    def at(path: Path) -> Build:
        """The build of a source tree, of a folder of packages, or of an environment.

        Raises: BuildError if the path is none of these.
        """
        path = path.absolute()
        for packages in (path / "python", path):
            if any((packages / "lucid").glob("_C.*.so")):
                return Build(Path(sys.executable), packages)
        if (path / "bin" / "python").exists():
            return Build(path / "bin" / "python", None)
        raise BuildError(
            f"{path}: neither a source tree with lucid built in place, nor a folder with lucid, "
            "nor an environment; build it with -DLUCID_IN_TREE=ON or name another one"
        )


@dataclass(frozen=True)
class Compared:
    """What two builds showed on one workload; one list of step times a round."""

    workload: str
    before_ns: list[list[int]]
    after_ns: list[list[int]]
    losses: tuple[float, float]

    @property
    def ratio(self) -> Ratio:
        return ratio(self.after_ns, self.before_ns)

    def row(self) -> tuple[str, ...]:
        medians = [
            quantile([float(t) for burst in bursts for t in burst], 0.5) / 1e6
            for bursts in (self.before_ns, self.after_ns)
        ]
        verdict = "DIFFER" if differ(self.losses) else "agree"
        if self.losses[0] == self.losses[1]:
            verdict = "equal"
        return (
            self.workload,
            f"{self.ratio.median:.3f} ({self.ratio.low:.3f}-{self.ratio.high:.3f})",
            f"{self.ratio.of_p10:.3f}",
            *(f"{median:.4g}" for median in medians),
            verdict,
        )


_HEADINGS = ("workload", "after / before", "of p10", "before ms", "after ms", "first losses")


def compare(
    builds: tuple[Build, Build], contestant: Contestant, workload: str, options: argparse.Namespace
) -> Compared:
    """Rounds of one burst of each build, in turning order.

    Raises: WorkerError if one of them ends or fails.
    """
    running: list[Remote] = []
    with tempfile.TemporaryDirectory() as caches:
        try:
            losses = []
            for build in builds:
                what = (contestant, build.python, workload, options.mode, options.threads)
                remote = Remote(*what, Path(caches), search=build.packages or "")
                running.append(remote)
                losses.append(remote.ask(do="first", realtime=options.realtime)["loss"])
                remote.ask(do="burst", seconds=min(_WARM_UP_SECONDS, options.seconds))
            bursts: tuple[list[list[int]], ...] = ([], [])
            for done in range(options.rounds):
                for i in (0, 1) if done % 2 == 0 else (1, 0):
                    time.sleep(_PAUSE_SECONDS)
                    answer = running[i].ask(do="burst", seconds=options.seconds)
                    bursts[i].append(answer["times_ns"])
        finally:
            for remote in running:
                remote.close()
    return Compared(workload, bursts[0], bursts[1], (losses[0], losses[1]))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("before", type=Path, help="a tree, a folder of packages or an environment")
    add("after", type=Path)
    add("--workloads", default=",".join(WORKLOADS), metavar="A,B")
    add("--mode", choices=("grads", "sgd", "adamw"), default="grads")
    add("--contestant", choices=tuple(_OURS), default="lucid_step")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=0.4, help="of a burst")
    add("--threads", type=int, default=usable_cpus())
    add("--realtime", action="store_true", help="for a busy machine: Linux, as root")
    options = parser.parse_args(arguments)
    options.workloads = options.workloads.split(",")
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"no workload {name!r}; there are: {', '.join(WORKLOADS)}")
    contestant = _OURS[options.contestant]
    if contestant.modes and options.mode not in contestant.modes:
        parser.error(f"{contestant.name} has the modes {', '.join(contestant.modes)}")
    if options.rounds < 1:
        parser.error("--rounds must be positive")
    return options


def main(arguments: list[str]) -> int:
    """Exit status: 0; 1 if losses differ; 2 if a build is not there or failed."""
    options = _parse(arguments)
    try:
        builds = (Build.at(options.before), Build.at(options.after))
        results = []
        for workload in options.workloads:
            print(f"-- {workload} ({options.mode})", file=sys.stderr, flush=True)
            contestant = _OURS[options.contestant]
            results.append(compare(builds, contestant, workload, options))
    except (BuildError, WorkerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    about = facts(options.threads)
    about.update(contestant=options.contestant, mode=options.mode, realtime=options.realtime)
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(markdown([_HEADINGS, *(one.row() for one in results)]))
    return 1 if any(differ(one.losses) for one in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
