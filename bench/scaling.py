"""How cost grows: python bench/scaling.py [--peers torch,jax] [--quick] [--json FILE] [--plot FILE]

Step time of loss and all gradients against batch, width, depth (deep_bottleneck) and length
(gpt_mini) beside the best peer; and the time of a compilation against the number of nodes. Prints
the exponent of each curve, the slope of its logarithms; 1 is linear.
  scaling.py --compile NODES   one compilation, in a process of its own; prints one line of JSON
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
from process import be_realtime
from remote import CONTESTANTS, Contestant, Remote, WorkerError
from report import facts, markdown, usable_cpus

_OUT = Path(__file__).resolve().with_name("out") / "scaling.json"
_NODES = (625, 1250, 2500, 5000, 10000)
_MOST_SECONDS, _MOST_NODES = 1.0, 10000  # a compilation of so many nodes takes no longer


@dataclass(frozen=True)
class Axis:
    """A size that grows: the other sizes of the workload stay as they are."""

    name: str
    workload: str
    sizes: tuple[dict[str, int], ...]  # the first is the one that the axis shows
    count: str

    def places(self) -> list[int]:
        return [sizes[self.count] for sizes in self.sizes]


AXES = (
    Axis("batch", "deep_bottleneck", tuple({"batch": n} for n in (8, 32, 128, 512)), "batch"),
    Axis(
        "width",
        "deep_bottleneck",
        tuple({"width": n, "inner": n // 4, "blocks": 12} for n in (64, 128, 256, 512, 1024)),
        "width",
    ),
    Axis("depth", "deep_bottleneck", tuple({"blocks": n} for n in (3, 6, 12, 24, 48)), "blocks"),
    Axis(
        "length",
        "gpt_mini",
        tuple({"tokens": n, "batch": 2} for n in (64, 128, 256, 512, 1024)),
        "tokens",
    ),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured at each point."""

    rounds: int
    burst_seconds: float


_FULL, _QUICK = Effort(10, 0.1), Effort(4, 0.03)


def exponent(places: list[int], times: list[float]) -> float:
    """Slope of the line through the logarithms, by least squares."""
    x, y = [math.log(p) for p in places], [math.log(t) for t in times]
    middle_x, middle_y = statistics.fmean(x), statistics.fmean(y)
    above = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - middle_x) ** 2 for a in x)


def _point(
    contestants: list[tuple[Contestant, Path]], workload: str, effort: Effort, realtime: bool
) -> dict[str, float]:
    """Median milliseconds of each contestant's steps; who fails is missing."""
    remotes: dict[str, Remote] = {}
    medians: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as caches:
        try:
            for contestant, python in contestants:
                try:
                    args = (contestant, python, workload, "grads", usable_cpus(), Path(caches))
                    remotes[contestant.name] = Remote(*args)
                    remotes[contestant.name].ask(do="first", realtime=realtime)
                    remotes[contestant.name].ask(do="burst", seconds=effort.burst_seconds)
                except WorkerError as error:
                    print(f"MISSING {workload}: {error}", file=sys.stderr)
                    remotes.pop(contestant.name, None)
            times: dict[str, list[float]] = {name: [] for name in remotes}
            for _ in range(effort.rounds):
                for name, remote in remotes.items():
                    time.sleep(0.01)
                    times[name] += remote.ask(do="burst", seconds=effort.burst_seconds)["times_ns"]
            medians = {name: statistics.median(t) / 1e6 for name, t in times.items()}
        finally:
            for remote in remotes.values():
                remote.close()
    return medians


def measure_axis(
    axis: Axis, contestants: list[tuple[Contestant, Path]], effort: Effort, realtime: bool
) -> list[dict[str, Any]]:
    """One row a size."""
    rows = []
    for sizes in axis.sizes:
        print(f"-- {axis.name} {sizes[axis.count]}", file=sys.stderr, flush=True)
        os.environ["BENCH_SIZES"] = json.dumps({axis.workload: sizes})
        medians = _point(contestants, axis.workload, effort, realtime)
        rows.append({"axis": axis.name, "at": sizes[axis.count], "ms": medians})
    os.environ.pop("BENCH_SIZES")
    return rows


# ---------------------------------------------------------------- compilation


def _compile(num_nodes: int, realtime: bool) -> dict[str, float]:
    """Seconds to trace and compile a residual stack whose step has about so many nodes."""
    import lucid
    import lucid.nn as nn
    import lucid.nn.functional as F
    from lucid.compile import make_step

    class Stack(nn.Module):
        """Blocks of a linear layer, an activation, a normalisation and a shortcut."""

        def __init__(self, blocks: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(blocks)])
            self.norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(blocks)])

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = x + F.silu(norm(layer(x)))
            return x

    def compiled(blocks: int) -> tuple[float, int]:
        x, target = lucid.randn(8, 16), lucid.zeros(8, 16)
        step = make_step(Stack(blocks), F.mse_loss, fallback="error")
        start = time.perf_counter()
        step.compile(x, target)
        seconds = time.perf_counter() - start
        return seconds, sum(" = " in line for line in step.graph_dump().splitlines())

    if realtime:
        be_realtime()
    _, nodes = compiled(20)
    seconds, made = compiled(round(20 * num_nodes / nodes))
    return {"nodes": made, "seconds": seconds}


def compile_times(realtime: bool) -> list[dict[str, float]]:
    """The fastest of three fresh processes for each number of nodes."""
    rows = []
    for nodes in _NODES:
        print(f"-- compile {nodes} nodes", file=sys.stderr, flush=True)
        command = [sys.executable, str(Path(__file__).resolve()), "--compile", str(nodes)]
        runs = []
        for _ in range(3):
            flags = ["--realtime"] if realtime else []
            output = subprocess.run([*command, *flags], stdout=subprocess.PIPE, check=True).stdout
            runs.append(json.loads(output))
        rows.append(min(runs, key=lambda run: run["seconds"]))
    return rows


# ---------------------------------------------------------------- the report


def _best_peer(medians: dict[str, float]) -> tuple[str, float]:
    peers = {name: ms for name, ms in medians.items() if not name.startswith("lucid")}
    name = min(peers, key=peers.__getitem__, default="")
    return name, peers.get(name, math.nan)


def axis_table(rows: list[dict[str, Any]]) -> str:
    """One row a size, beside the best peer there."""
    cells: list[tuple[str, ...]] = [
        ("axis", "at", "lucid ms", "best peer", "its ms", "peer / lucid")
    ]
    for row in rows:
        ours = row["ms"].get("lucid_step", math.nan)
        name, theirs = _best_peer(row["ms"])
        ratio = f"{theirs / ours:.2f}" if name else ""
        peer_ms = f"{theirs:.4g}" if name else ""
        cells.append((row["axis"], str(row["at"]), f"{ours:.4g}", name, peer_ms, ratio))
    return markdown(cells)


def exponents(rows: list[dict[str, Any]]) -> list[str]:
    """One line an axis: how cost grows over its upper half, where it is not the fixed cost."""
    lines = []
    for axis in AXES:
        mine = [row for row in rows if row["axis"] == axis.name]
        upper = mine[len(mine) // 2 - 1 :]
        places = [row["at"] for row in upper]
        ours = exponent(places, [row["ms"]["lucid_step"] for row in upper])
        line = f"{axis.name}: exponent {ours:.2f}"
        theirs = [_best_peer(row["ms"])[1] for row in upper]
        if not any(map(math.isnan, theirs)):
            line += f", of the best peer {exponent(places, theirs):.2f}"
        lines.append(line)
    return lines


def compile_report(rows: list[dict[str, float]]) -> str:
    """The table of compilations, and whether they are near linear."""
    cells: list[tuple[str, ...]] = [("nodes", "compile ms", "us a node")]
    for row in rows:
        micros = f"{1e6 * row['seconds'] / row['nodes']:.1f}"
        cells.append((f"{row['nodes']:.0f}", f"{1e3 * row['seconds']:.1f}", micros))
    slope = exponent([int(row["nodes"]) for row in rows], [row["seconds"] for row in rows])
    last = rows[-1]["seconds"]
    verdict = "reached" if last <= _MOST_SECONDS else "MISSED"
    line = f"exponent {slope:.2f}; {_MOST_NODES} nodes under {_MOST_SECONDS:.0f} s: {verdict}"
    return markdown(cells) + "\n\n" + line


def _draw(results: Path, picture: Path) -> None:
    try:
        python = environments.prepare("plot")
    except environments.InstallError as error:
        print(f"no plot: {error}", file=sys.stderr)
        return
    script = Path(__file__).resolve().with_name("plot.py")
    subprocess.run([str(python), str(script), str(results), str(picture)], check=True)


def _contestants(peers: list[str]) -> list[tuple[Contestant, Path]]:
    names = {"": "lucid_step", "torch": "torch_eager", "jax": "jax_jit"}
    names["torch_compile"] = "torch_compile"
    chosen = []
    for peer in ["", *peers]:
        contestant = next(c for c in CONTESTANTS if c.name == names[peer])
        python = Path(sys.executable)
        if peer:
            try:
                python = environments.prepare(contestant.environment or peer)
            except environments.InstallError as error:
                print(f"MISSING peer {peer}: {error}", file=sys.stderr)
                continue
        chosen.append((contestant, python))
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", default="", help="of torch, torch_compile, jax; by commas")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="Linux, as root")
    parser.add_argument("--compile", type=int, metavar="NODES")
    parser.add_argument("--json", type=Path, default=_OUT, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.compile:
        print(json.dumps(_compile(options.compile, options.realtime)))
        return 0
    contestants = _contestants([peer for peer in options.peers.split(",") if peer])
    effort = _QUICK if options.quick else _FULL
    rows: list[dict[str, Any]] = []
    for axis in AXES:
        rows += measure_axis(axis, contestants, effort, options.realtime)
    compiled = compile_times(options.realtime)
    about = facts(usable_cpus())
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    print(axis_table(rows) + "\n")
    print("\n".join(exponents(rows)) + "\n")
    print(compile_report(compiled))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    run = {"facts": about, "scaling": rows, "compilations": compiled}
    options.json.write_text(json.dumps(run, indent=1) + "\n")
    _draw(options.json, options.plot or options.json.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
