"""One contestant on one workload, in a process of its own, driven over standard input and output.

Use: worker.py CONTESTANT WORKLOAD MODE. Reads one JSON request a line, answers with one JSON line:
  {"do": "first", "realtime": b}  builds the model, runs the first step; see process.py
  {"do": "burst", "seconds": s}   runs steps for s seconds, at least one, and times each
  {"do": "memory"}                bytes of the peak above the imported, idle process, and those of
                                  its tensors where the step can tell
The first answer, before any request, tells the versions.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from process import be_realtime, peak_bytes, reset_peak


def _import_standard_profile() -> None:
    """Load the standard library's `profile`, which PyTorch imports, before this folder's."""
    here = sys.path.pop(0)
    importlib.import_module("profile")
    sys.path.insert(0, here)


# A step shorter than this runs once untimed at the start of a burst, to find its caches warm.
_REWARM_BELOW_NS = 50_000_000


class Worker:
    """The state of the process: the prepared step and the memory before it."""

    def __init__(self, contestant: str, workload: str, mode: str) -> None:
        self._module = importlib.import_module(f"contestants.{contestant}")
        self._workload = workload
        self._mode = mode
        self._step: Callable[[], Any] | None = None
        self._last_ns = 0
        reset_peak()
        self._idle_bytes = peak_bytes()

    def hello(self) -> dict[str, Any]:
        return {"versions": self._module.versions(), "python": sys.version.split()[0]}

    def first(self, realtime: bool) -> dict[str, Any]:
        """The time of the first step, which compiles, and its loss."""
        if realtime:
            be_realtime()
        self._step = self._module.prepare(self._workload, self._mode)
        gc.collect()
        reset_peak()  # copies that only loading needed do not count
        wall, cpu = time.perf_counter(), time.process_time()
        loss = self._step()
        answer = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall}
        answer["loss"] = float(loss.item())
        return answer

    def burst(self, seconds: float) -> dict[str, Any]:
        step = self._step
        assert step is not None, "burst before first"
        if 0 < self._last_ns < _REWARM_BELOW_NS:
            step()
        times: list[int] = []
        clock = time.perf_counter_ns
        before = clock()
        end = before + int(seconds * 1e9)
        while True:
            step()
            now = clock()
            times.append(now - before)
            before = now
            if now >= end:
                break
        self._last_ns = times[-1]
        return {"times_ns": times}

    def memory(self) -> dict[str, Any]:
        answer = {"peak_bytes": peak_bytes() - self._idle_bytes}
        if hasattr(self._step, "tensor_bytes"):
            answer["tensor_bytes"] = self._step.tensor_bytes()
        return answer

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "first":
            return self.first(request["realtime"])
        if request["do"] == "burst":
            return self.burst(request["seconds"])
        return self.memory()


def _private_output() -> TextIO:
    """The pipe to the parent; whatever else prints goes to standard error from here on."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def main() -> None:
    _import_standard_profile()
    pipe = _private_output()
    worker = Worker(*sys.argv[1:4])
    print(json.dumps(worker.hello()), file=pipe, flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=pipe, flush=True)


if __name__ == "__main__":
    main()
