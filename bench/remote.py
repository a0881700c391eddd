"""The parent's side of a worker process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import IMAGES

_HERE = Path(__file__).resolve().parent
_TIMEOUT_SECONDS = 600.0


class WorkerError(Exception):
    """A worker ended or did not answer; the message has the end of what it printed."""


@dataclass(frozen=True)
class Contestant:
    """A program to measure: its module under contestants/ and who can run it."""

    name: str
    peer: str | None  # None: lucid, run by the interpreter that runs the bench
    environment: str = ""  # of environments.py, if the peer's is another one's
    only: tuple[str, ...] = ()  # workloads; empty means all
    modes: tuple[str, ...] = ()  # empty means all


CONTESTANTS = (
    Contestant("lucid_step", None),
    Contestant("lucid_fused", None, modes=("sgd", "adamw")),
    Contestant("lucid_eager", None),
    Contestant("torch_eager", "torch"),
    Contestant("torch_channels_last", "torch", only=tuple(IMAGES)),
    Contestant("torch_compile", "torch_compile", "torch"),
    Contestant("torch_compile_channels_last", "torch_compile", "torch", only=tuple(IMAGES)),
    Contestant("jax_jit", "jax"),
)


def _environment(
    contestant: Contestant, threads: int, caches: Path, search: Path | str | None
) -> dict[str, str]:
    """What a worker's process sees; `caches` is where it may keep what it compiled."""
    environment = dict(os.environ, BENCH_THREADS=str(threads), PYTHONUNBUFFERED="1")
    if contestant.peer is not None:
        environment.pop("PYTHONPATH", None)
    if search is not None:
        environment["PYTHONPATH"] = str(search)
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(caches))
    return environment


class Remote:
    """A running worker; `ask` sends a request and waits for its answer.

    `search` is its PYTHONPATH where that is not the one of this process.
    """

    def __init__(
        self,
        contestant: Contestant,
        python: Path,
        workload: str,
        mode: str,
        threads: int,
        caches: Path,
        search: Path | str | None = None,
    ) -> None:
        self.name = contestant.name
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [str(python), str(_HERE / "worker.py"), contestant.name, workload, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(contestant, threads, caches, search),
            cwd=_HERE,
            start_new_session=True,  # so that what it starts ends with it
        )
        self._pending = b""
        self.hello = self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer will be missing, and that says why
        return self._answer()

    def close(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended, and all it started
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # unsent bytes of a request to a worker that ended

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while b"\n" not in self._pending:
            left = max(deadline - time.monotonic(), 0.0)
            ready, _, _ = select.select([pipe], [], [], left)
            received = os.read(pipe, 1 << 16) if ready else b""
            if not received:
                self._fail("ended" if ready else f"gave no answer in {_TIMEOUT_SECONDS:.0f} s")
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self, what: str) -> None:
        try:
            code: int | str = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = "none yet"
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self.close()
        raise WorkerError(f"{self.name} {what} (exit status {code}): " + "\n  ".join(lines[-4:]))
