"""run.py --device metal: lucid on a GPU of Apple's beside PyTorch on MPS and MLX.

On a system without that GPU lucid runs on the test double of Metal, if it was built with it. That
shows that the bench works; its times say nothing of a GPU, so no ratio is printed.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import environments
from remote import Contestant, Remote, WorkerError
from report import compare_losses, facts, markdown
from summary import Measured, Ratio
from workloads import MLP_WIDTHS

MLX_WORKLOADS = tuple(MLP_WIDTHS)
LUCID = Contestant("lucid_metal", None)
PEERS = (
    Contestant("torch_mps", "torch"),
    Contestant("mlx_compile", "mlx", only=MLX_WORKLOADS),
)
_MIN_STEPS = 20


def is_mac() -> bool:
    """True where Apple's GPUs are."""
    return platform.system() == "Darwin" and platform.machine() == "arm64"


def find_peers() -> tuple[dict[str, Path], list[str]]:
    """Interpreters of the peers, and one line for each that is not to be had here."""
    if not is_mac():
        here = f"{platform.system()} {platform.machine()}"
        return {}, [
            f"{peer.name}: needs a Mac with Apple silicon; this is {here}" for peer in PEERS
        ]
    interpreters, skipped = {}, []
    for peer in PEERS:
        try:
            interpreters[peer.name] = environments.prepare(peer.peer or "")
        except environments.InstallError as error:
            skipped.append(f"{peer.name}: {error}")
    return interpreters, skipped


def _measure(
    contestants: list[tuple[Contestant, Path]], workload: str, mode: str, options: Namespace
) -> tuple[list[Measured], list[str]]:
    """Bursts in turns, in rotating order; and what failed."""
    seconds, rounds = (0.05, 5) if options.quick else (0.2, 20)
    remotes: list[Remote] = []
    measured: list[Measured] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as caches:
        try:
            for contestant, python in contestants:
                try:
                    threads = options.threads
                    remote = Remote(contestant, python, workload, mode, threads, Path(caches))
                    first = remote.ask(do="first", realtime=options.realtime)
                except WorkerError as error:
                    failures.append(f"{workload} ({mode}): {error}")
                    continue
                remotes.append(remote)
                measured.append(_start(contestant, workload, mode, remote, first))
            _burst(remotes, measured, seconds, rounds)
        except WorkerError as error:  # without one, the rounds of the others have no pair
            failures.append(f"{workload} ({mode}): {error}")
            measured = []
        finally:
            for remote in remotes:
                remote.close()
    return measured, failures


def _start(
    contestant: Contestant, workload: str, mode: str, remote: Remote, first: dict[str, Any]
) -> Measured:
    return Measured(
        contestant=contestant.name,
        workload=workload,
        mode=mode,
        versions=remote.hello["versions"],
        loss=first["loss"],
        first_seconds=[first["seconds"]],
        first_cpu_seconds=[first["cpu_seconds"]],
        peak_bytes=0,
        bursts_ns=[],
    )


def _burst(remotes: list[Remote], measured: list[Measured], seconds: float, rounds: int) -> None:
    for remote in remotes:
        remote.ask(do="burst", seconds=seconds)
    done = 0
    while done < rounds or any(len(one.times_ns) < _MIN_STEPS for one in measured):
        for i in range(len(remotes)):
            place = (i + done) % len(remotes)
            answer = remotes[place].ask(do="burst", seconds=seconds)
            measured[place].bursts_ns.append(answer["times_ns"])
        done += 1


def table(measured: list[Measured], with_ratios: bool) -> str:
    """One row a contestant, workload and mode."""
    heads = ["workload", "contestant", "median ms", "p10 ms", "spread", "n", "first call ms"]
    rows = [tuple([*heads, "time / lucid_metal"] if with_ratios else heads)]
    for one in measured:
        cells = [
            one.workload + ("" if one.mode == "grads" else f" ({one.mode})"),
            one.contestant,
            f"{one.quantile_ms(0.5):.4g}",
            f"{one.quantile_ms(0.1):.4g}",
            f"{100 * one.spread:.0f} %",
            str(len(one.times_ns)),
            f"{1e3 * one.first_seconds[0]:.4g}",
        ]
        if with_ratios:
            ratio = _over_lucid(measured, one)
            cells.append("" if ratio is None else f"{ratio.median:.2f}")
        rows.append(tuple(cells))
    return markdown(rows)


def _over_lucid(measured: list[Measured], one: Measured) -> Ratio | None:
    for other in measured:
        same = (other.workload, other.mode) == (one.workload, one.mode)
        if same and other.contestant == LUCID.name:
            return one.ratio_to(other)
    return None


def run(options: Namespace) -> int:
    """Exit status: 0; 1 if lucid failed or losses differ."""
    interpreters, skipped = find_peers()
    measured: list[Measured] = []
    failures: list[str] = []
    for workload in options.workloads:
        for mode in options.modes:
            print(f"-- {workload} ({mode}) on metal", file=sys.stderr, flush=True)
            able = [
                (peer, interpreters[peer.name])
                for peer in PEERS
                if peer.name in interpreters and (not peer.only or workload in peer.only)
            ]
            able.insert(0, (LUCID, Path(sys.executable)))
            results, missing = _measure(able, workload, mode, options)
            measured += results
            failures += missing
    about: dict[str, Any] = facts(options.threads)
    about["versions"] = {k: v for one in measured for k, v in one.versions.items()}
    about["is_test_double"] = bool(measured) and not is_mac()
    print(", ".join(f"{key}: {value}" for key, value in about.items()) + "\n")
    if measured and not is_mac():
        print("lucid ran on the TEST DOUBLE of Metal: these times say nothing of a GPU.\n")
    print(table(measured, with_ratios=is_mac()) + "\n")
    losses, agree = compare_losses(measured)
    print(losses)
    for reason in skipped:
        print(f"skipped {reason}")
    for failure in failures:
        print(f"FAILED {failure}")
    if options.json:
        numbers = [one.to_json(None) for one in measured]
        body = {"facts": about, "results": numbers, "skipped": skipped, "failures": failures}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(body, indent=1) + "\n")
    return 0 if measured and agree and not failures else 1
