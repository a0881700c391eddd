"""How DataLoader's processes end: with the loop, an interrupt, the interpreter or its death."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import numpy
import pytest
from lucid.utils.data import DataLoader, Dataset, IterableDataset, WorkerError
from test_data_workers import shared_memory, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only fork needs no pickled code")

SCRIPT = """
import os, signal, sys, time
import lucid
from lucid.utils.data import DataLoader

class Rows:
    def __init__(self, pause=0.0, hangs_from=1000):
        self.pause, self.hangs_from = pause, hangs_from

    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(self.pause if index < self.hangs_from else 600)
        return lucid.full((50_000,), float(index))

def loader(rows, **options):
    return DataLoader(rows, num_workers=2, multiprocessing_context="fork", **options)

"""


def run_script(body: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT + body],
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def group_members(group: int) -> list[int]:
    """Processes of a group that are no zombies."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(number) == group and state != "Z":
            members.append(int(path.parent.name))
    return members


LEFT = {
    "a worker hangs": "for _ in loader(Rows(hangs_from=2)):\n    break",
    "batches are made": "rest = iter(loader(Rows(0.2), prefetch_factor=20))\nnext(rest)",
    "workers are kept": (
        "kept = loader(Rows(0.2), persistent_workers=True)\nfor _ in kept:\n    break"
    ),
    "the loop was left often": (
        "kept = loader(Rows(), persistent_workers=True)\n"
        "for k in range(20):\n    for _ in zip(kept, range(k % 4)):\n        pass"
    ),
    "the first worker never starts": (
        "try:\n    list(loader(Rows(), timeout=0.2, worker_init_fn=lambda k: time.sleep(600)))\n"
        "except RuntimeError:\n    pass"
    ),
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_the_interpreter_ends_soon_and_says_nothing(body: str) -> None:
    process = run_script(body + "\nprint('end')")
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("end\n", "", 0)
    wait_until(lambda: group_members(process.pid) == [])  # the keeper of blocks goes last
    assert shared_memory(process.pid) == set()


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_interrupt_ends_the_loop_and_no_more(is_kept: bool) -> None:
    process = run_script(
        f"rows = Rows(0.1)\nmade = loader(rows, persistent_workers={is_kept})\n"
        "try:\n    for i, _ in enumerate(made):\n"
        "        if i == 2:\n            print('now', flush=True)\n"
        "except KeyboardInterrupt:\n    rows.pause = 0\n    print(len(list(made)))"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("100\n", "", 0)


def test_workers_do_not_outlive_a_killed_process() -> None:
    process = run_script("for _ in loader(Rows()):\n    os.kill(os.getpid(), signal.SIGKILL)")
    process.communicate(timeout=60)
    wait_until(lambda: group_members(process.pid) == [] and shared_memory(process.pid) == set())


@pytest.mark.metal
@pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device")
def test_a_forked_worker_says_that_it_cannot_use_the_device() -> None:
    process = run_script(
        "def on_device(index):\n    return lucid.ones(3).to('metal') * index\n"
        "on_device(1).tolist()\nRows.__getitem__ = lambda self, index: on_device(index)\n"
        "try:\n    list(loader(Rows(), timeout=20))\n"
        "except lucid.UnsupportedError as error:\n    print(error)"
    )
    out, err = process.communicate(timeout=60)
    assert out.startswith("metal: this process is a fork of one that has used the device; start it")
    assert err == ""


class Doing(Dataset[Any]):
    """Each sample is what a function gives for its index."""

    def __init__(self, what: Callable[[int], Any], size: int = 12) -> None:
        self.what = what
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.what(index)


class TwoArgumentsError(Exception):
    """Cannot be made anew of ``args``."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raise_two(index: int) -> Any:
    raise TwoArgumentsError(index, 5)


FAILURES: list[tuple[Callable[[int], Any], type[Exception], str]] = [
    (raise_two, WorkerError, "DataLoader: a worker raised .*TwoArgumentsError: 0 and 5"),
    (lambda index: sys.exit(4), WorkerError, "has ended with exit code 4"),
    (lambda index: os.kill(os.getpid(), signal.SIGKILL), WorkerError, "ended with exit code -9"),
    (lambda index: lambda: index, AttributeError, "Can't (pickle|get) local object"),
]


@pytest.mark.parametrize(("what", "error", "text"), FAILURES)
@pytest.mark.parametrize("is_kept", [False, True])
def test_failures_come_out(
    what: Callable[[int], Any], error: type[Exception], text: str, is_kept: bool
) -> None:
    loader = DataLoader(
        Doing(what),
        batch_size=None,
        num_workers=2,
        persistent_workers=is_kept,
        multiprocessing_context="fork",
    )
    for _ in range(2):
        with pytest.raises(error, match=text):
            list(loader)


def test_an_error_of_worker_init_fn_comes_out(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(worker: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        list(
            DataLoader(
                Doing(float),
                num_workers=2,
                worker_init_fn=fails,
                multiprocessing_context="fork",
            )
        )
    assert "in fails" in str(caught.value.__cause__)
    assert capfd.readouterr().err == ""


def test_none_is_a_batch_like_others() -> None:
    loader = DataLoader(
        Doing(float),
        4,
        num_workers=2,
        collate_fn=lambda batch: None,
        multiprocessing_context="fork",
    )
    assert list(loader) == [None] * 3


def test_iterations_at_once_and_from_threads_share_kept_workers() -> None:
    rows = Doing(lambda index: numpy.full(20_000, index))
    loader = DataLoader(
        rows, 2, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    assert [bool((a == b).all()) for a, b in zip(loader, loader, strict=True)] == [True] * 6
    found: list[Any] = []

    def take() -> None:
        for round_ in range(5):
            taken = [batch[:, 0].tolist() for batch, _ in zip(loader, range(round_), strict=False)]
            found.append(taken == [[2 * i, 2 * i + 1] for i in range(len(taken))])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20


class Letters(IterableDataset[Any]):
    """Notes in a file which of its iterations have ended."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.count = 0

    def __iter__(self) -> Any:
        self.count += 1
        number = self.count
        try:
            for letter in "abcdef":
                yield f"{letter}{number}"
        finally:
            with self.file.open("a") as file:
                file.write(f"{number}")


def test_each_loop_has_a_stream_of_its_own(tmp_path: Path) -> None:
    loader = DataLoader(
        Letters(tmp_path / "ended"),
        batch_size=None,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    first = iter(loader)
    assert next(first) == "a1"
    assert list(loader) == ["a2", "b2", "c2", "d2", "e2", "f2"]
    assert list(first) == ["b1", "c1", "d1", "e1", "f1"]
    for _ in loader:
        break
    wait_until(lambda: (tmp_path / "ended").read_text() == "213")


def test_no_process_or_thread_is_left() -> None:
    group, threads = os.getpgrp(), threading.active_count()
    before = set(group_members(group))
    made = DataLoader(
        Doing(float), num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    assert len(list(made)) == 12
    assert len(set(group_members(group)) - before) >= 2
    assert threading.active_count() == threads
    del made
    assert set(group_members(group)) <= before


def test_a_fork_and_a_copy_start_workers_of_their_own() -> None:
    loader = DataLoader(
        Doing(float), num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    wanted = [batch.tolist() for batch in loader]
    process = os.fork()
    if process == 0:
        is_same = [batch.tolist() for batch in loader] == wanted
        del loader
        os._exit(0 if is_same else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert [batch.tolist() for batch in loader] == wanted
    copied = pickle.loads(pickle.dumps(loader))
    assert [batch.tolist() for batch in copied] == wanted


def test_a_worker_that_hangs_delays_the_end_for_seconds_only() -> None:
    loop = iter(
        DataLoader(
            Doing(lambda index: time.sleep(600 if index else 0) or index),
            num_workers=1,
            multiprocessing_context="fork",
        )
    )
    assert next(loop).tolist() == [0]
    begin = time.monotonic()
    del loop
    assert time.monotonic() - begin < 30


def test_many_indices_and_batches_do_not_block_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.utils.data.transport._has_room", lambda size: False)
    indices = [list(range(60_000)) for _ in range(6)]
    loader = DataLoader(
        lucid.utils.data.TensorDataset(lucid.arange(60_000)),
        batch_sampler=indices,
        num_workers=1,
        prefetch_factor=4,
        multiprocessing_context="fork",
    )
    assert [batch[0].shape for batch in loader] == [(60_000,)] * 6
