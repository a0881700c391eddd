"""DataLoader with worker processes: the batches of one process, and what follows a failure."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lucid
import numpy
import pytest
from lucid.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WorkerError,
    get_worker_info,
    transport,
)
from lucid.utils.data.transport import Receiver, Sender

ROWS = 23


class Squares(Dataset[Any]):
    """A tensor, an array and a number of each index."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        image = numpy.full((3, 40, 40), index, dtype=numpy.float32)
        return {"x": lucid.full((4,), float(index)), "image": image, "y": index * index}


class Failing(Squares):
    """Does ``what`` at index 7."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            {"raise": self.fail, "die": lambda: os._exit(3), "sleep": lambda: time.sleep(30)}[
                self.what
            ]()
        return index

    def fail(self) -> None:
        raise KeyError("no seven")


class Parts(IterableDataset[Any]):
    """Numbers, divided among the workers."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 11, step))


class Draws(Squares):
    """What each worker's generators give."""

    def __getitem__(self, index: int) -> Any:
        return lucid.rand(1).item(), random.random(), numpy.random.rand(), os.getpid()


def keep(batch: list[Any]) -> list[Any]:
    return batch


def as_lists(batches: Any) -> list[Any]:
    return [{key: value.tolist() for key, value in batch.items()} for batch in batches]


def shared_memory(owner: int | None = None) -> set[str]:
    """The blocks that a process made, this one if none is given."""
    folder = Path("/dev/shm")
    pattern = f"psm_{os.getpid() if owner is None else owner:x}_*"
    return {path.name for path in folder.glob(pattern)} if folder.exists() else set()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("context", [None, "spawn"])
def test_batches_are_those_of_one_process(context: str | None) -> None:
    wanted = as_lists(DataLoader(Squares(), batch_size=5))
    before = shared_memory()
    loader = DataLoader(Squares(), batch_size=5, num_workers=3, multiprocessing_context=context)
    assert as_lists(loader) == wanted
    assert len(loader) == 5
    assert shared_memory() <= before


@pytest.mark.parametrize("batch_size", [4, None])
def test_a_shuffle_has_the_same_order(batch_size: int | None) -> None:
    rows = TensorDataset(lucid.arange(ROWS), lucid.arange(ROWS).float())
    orders = []
    for workers in (0, 2):
        lucid.manual_seed(5)
        loader = DataLoader(rows, batch_size=batch_size, shuffle=True, num_workers=workers)
        orders.append([[x.tolist(), y.tolist()] for _ in range(2) for x, y in loader])
    assert orders[0] == orders[1]
    assert orders[0][: len(loader)] != orders[0][len(loader) :]


def test_streams_are_taken_in_turn_until_all_end() -> None:
    loader = DataLoader(Parts(), batch_size=3, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert [b.tolist() for b in loader] == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9]]
    assert get_worker_info() is None


def test_workers_draw_numbers_of_their_own() -> None:
    def draws() -> list[Any]:
        lucid.manual_seed(11)
        loader = DataLoader(Draws(), batch_size=None, num_workers=2)
        return [[sample[:3] for sample in loader] for _ in range(2)]

    first = draws()
    assert first == draws()
    drawn = [value for epoch in first for sample in epoch for value in sample]
    assert len(set(drawn)) == len(drawn)


def test_persistent_workers_serve_every_iteration() -> None:
    loader = DataLoader(Draws(), batch_size=None, num_workers=2, persistent_workers=True)
    processes = [{sample[3] for sample in loader} for _ in range(2)]
    assert processes[0] == processes[1]
    assert len(processes[0]) == 2
    for _ in loader:  # left at once: what was made ahead is nobody's
        break
    assert len(list(loader)) == ROWS


@pytest.mark.skipif(sys.platform != "linux", reason="only fork needs no pickled functions")
def test_worker_init_fn_runs_in_each_process(tmp_path: Path) -> None:
    def init(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        (tmp_path / f"{worker}-{info.num_workers}-{len(info.dataset)}").touch()

    list(DataLoader(Squares(), num_workers=2, worker_init_fn=init, multiprocessing_context="fork"))
    assert {path.name for path in tmp_path.iterdir()} == {f"0-2-{ROWS}", f"1-2-{ROWS}"}


def test_an_error_of_the_data_set_comes_out() -> None:
    loader = DataLoader(Failing("raise"), batch_size=2, num_workers=2)
    taken: list[lucid.Tensor] = []
    with pytest.raises(KeyError, match="no seven"):
        taken.extend(loader)
    assert [batch.tolist() for batch in taken] == [[0, 1], [2, 3], [4, 5]]


def test_a_worker_that_dies_is_named() -> None:
    loader = DataLoader(Failing("die"), num_workers=2, persistent_workers=True)
    with pytest.raises(
        WorkerError, match="a worker's process has ended with exit code 3; num_workers=0 shows"
    ):
        list(loader)
    loader.dataset.what = "raise"
    with pytest.raises(KeyError, match="no seven"):  # new processes, with the changed data set
        list(loader)


def test_a_worker_that_hangs_is_ended() -> None:
    begin = time.monotonic()
    with pytest.raises(WorkerError, match="no batch came within timeout=0.3 s"):
        list(DataLoader(Failing("sleep"), num_workers=2, timeout=0.3))
    assert time.monotonic() - begin < 10


def test_a_loop_that_is_left_frees_its_memory() -> None:
    before = shared_memory()
    for _ in DataLoader(Squares(), batch_size=5, num_workers=2):
        break
    wait_until(lambda: shared_memory() <= before)


def test_a_loop_left_in_the_middle_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """By then memory that was filled before is being filled again."""
    before = shared_memory()
    for _ in range(5):
        for count, _batch in enumerate(DataLoader(Squares(), batch_size=4, num_workers=1)):
            if count == 3:
                break
    wait_until(lambda: shared_memory() <= before)
    assert caplog.records == []


LEFT_OPEN = """
import lucid
from lucid.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    rows = TensorDataset(lucid.randn(16, 40_000))
    kept = DataLoader(rows, batch_size=2, num_workers=2, persistent_workers=True)
    assert len(list(kept)) == 8
    begun = [iter(DataLoader(rows, batch_size=2, num_workers=2)), iter(kept)]
    assert all(next(batches)[0].shape == (2, 40_000) for batches in begun)
"""


def test_a_program_that_closes_nothing_leaves_no_memory(tmp_path: Path) -> None:
    before = shared_memory()
    script = tmp_path / "script.py"
    script.write_text(LEFT_OPEN)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    assert shared_memory() <= before


def test_batches_of_any_kind_arrive_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    big = lucid.arange(20_000).to(lucid.bfloat16)
    big.requires_grad_()
    value = {
        "tensor": big,
        "array": numpy.arange(30_000, dtype=numpy.int64)[::2],
        "strings": numpy.array(["a", "bc"]),
        "nothing": None,
        "empty": lucid.zeros(0, 3),
        "nested": [(1, 2.5), b"bytes", bytearray(100_000)],
    }
    for has_room in (True, False):
        monkeypatch.setattr("lucid.utils.data.transport._has_room", lambda size, r=has_room: r)
        sender, receiver = Sender(), Receiver()
        for _ in range(2):  # the second time in the first one's memory
            packed = sender.pack(value, name := receiver.lend_block())
            assert (packed.block is not None) == has_room
            got = receiver.unpack(packed)
            assert lucid.equal(got["tensor"], big) and got["tensor"].dtype == lucid.bfloat16
            assert got["tensor"].requires_grad
            assert numpy.array_equal(got["array"], value["array"]) and got["array"].flags.writeable
            assert got["strings"].tolist() == ["a", "bc"] and got["nothing"] is None
            assert got["empty"].shape == (0, 3) and got["nested"] == value["nested"]
            receiver.take_back(name)
        receiver.close()


def test_a_block_that_is_too_small_is_replaced() -> None:
    before = shared_memory()
    sender, receiver = Sender(), Receiver()
    for count, is_taken in ((20_000, 1), (40_000, 1), (80_000, 0), (30_000, 1), (10, 1)):
        packed = sender.pack(lucid.arange(count), name := receiver.lend_block())
        if is_taken:
            assert receiver.unpack(packed).tolist() == list(range(count))
        receiver.take_back(name)
        assert len(shared_memory() - before) == (1 if Path("/dev/shm").exists() else 0)
    receiver.close()
    assert shared_memory() <= before


def test_a_block_that_its_maker_never_told_of_is_freed() -> None:
    before = shared_memory()
    sender, receiver = Sender(), Receiver()
    for _ in range(2):
        sender.pack(lucid.arange(20_000), receiver.lend_block())
    receiver.lend_block()
    receiver.close()
    assert shared_memory() <= before


def test_memory_that_something_still_reads_is_closed_later() -> None:
    sender, receiver = Sender(), Receiver()
    receiver.unpack(sender.pack(lucid.arange(20_000), receiver.lend_block()))
    ((_, block),) = receiver._blocks.values()
    read = numpy.frombuffer(block.buf, dtype=numpy.uint8)  # as an interrupt's frames do
    receiver.close()
    assert transport._still_read == [block]
    assert shared_memory() == set()
    del read
    receiver.unpack(sender.pack(lucid.arange(20_000), receiver.lend_block()))
    receiver.close()
    assert transport._still_read == []


def test_lists_of_samples_arrive_with_a_collate_of_ones_own() -> None:
    loader = DataLoader(Squares(), batch_size=ROWS, num_workers=1, collate_fn=keep)
    (batch,) = loader
    assert [sample["y"] for sample in batch] == [i * i for i in range(ROWS)]
    assert type(batch[3]["image"]) is numpy.ndarray
