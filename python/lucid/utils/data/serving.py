"""What runs in a worker's process: tasks of the main process, one after another."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid.utils.data.fetch import Fetcher
from lucid.utils.data.transport import Packed, Sender

#: What a task makes that has nothing to give, as at the end of a stream.
NOTHING = object()

Make = Callable[..., Any]


@dataclass(frozen=True)
class WorkerInfo:
    """What :func:`get_worker_info` tells in a worker's process.

    Attributes:
        id: from 0 to num_workers - 1. seed: of this worker's generators.
        dataset: the worker's copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


@dataclass(frozen=True)
class Failure:
    """An exception of the user's code; ``pickled`` is None if it cannot be."""

    text: str
    traceback: str
    pickled: bytes | None


@dataclass(frozen=True)
class Reply:
    """What a task gave: a value, NOTHING (then ``packed`` is None), or a failure."""

    packed: Packed | None = None
    failure: Failure | None = None


class _Serving:
    """The state of a worker's process."""

    info: WorkerInfo | None = None
    fetcher: Fetcher
    streams: dict[int, Iterator[Any]]


def get_worker_info() -> WorkerInfo | None:
    """Of the DataLoader's worker that calls, or None in the main process.

    An IterableDataset divides its samples by it: each worker iterates over a copy of its own.
    """
    return _Serving.info


def batch(indices: list[Any]) -> Any:
    """The batch of these indices."""
    return _Serving.fetcher.batch(indices)


def sample(index: Any) -> Any:
    """The sample of this index."""
    return _Serving.fetcher.sample(index)


def open_stream(number: int) -> Any:
    """Begin to iterate over the data set, for the loop of this number."""
    _Serving.streams[number] = _Serving.fetcher.stream()
    return NOTHING


def next_of_stream(number: int) -> Any:
    """The stream's next batch; nothing after its last one."""
    return next(_Serving.streams[number], NOTHING)


def close_stream(number: int) -> Any:
    """The loop is over, or was left."""
    del _Serving.streams[number]
    return NOTHING


def serve(
    tasks: connection.Connection,
    results: connection.Connection,
    info: WorkerInfo,
    fetcher: Fetcher,
    init: Callable[[int], None] | None,
) -> None:
    """Do the tasks that come until None does: a function, a block for its result, arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process gets it too, and decides
    todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
    is_over = threading.Event()
    threading.Thread(target=_read, args=(tasks, todo, is_over), daemon=True).start()
    sender = Sender()
    try:
        results.send(_reply(sender, "", _start, info, fetcher, init))
        while (task := todo.get()) is not None and not is_over.is_set():
            make, block, args = task
            results.send(_reply(sender, block, make, *args))
    except (BrokenPipeError, ConnectionResetError):  # nobody is interested any more
        pass


def _start(info: WorkerInfo, fetcher: Fetcher, init: Callable[[int], None] | None) -> Any:
    """Workers share the processor: each computes on one thread."""
    _C.set_num_threads(1)
    fn.manual_seed(info.seed)
    random.seed(info.seed)
    numpy.random.seed(info.seed % 2**32)
    _Serving.info, _Serving.fetcher, _Serving.streams = info, fetcher, {}
    if init is not None:
        init(info.id)
    return NOTHING


def _read(
    tasks: connection.Connection, todo: queue.SimpleQueue[Any], is_over: threading.Event
) -> None:
    """Take tasks at once, so that the main process never waits; end with that process."""
    parent = parent_process()
    assert parent is not None
    while not is_over.is_set():
        try:
            if tasks not in connection.wait([tasks, parent.sentinel]):
                os._exit(1)
            task = tasks.recv()
        except (EOFError, OSError):
            os._exit(1)
        if task is None:
            is_over.set()
        todo.put(task)


def _reply(sender: Sender, block: str, make: Make, *args: Any) -> Reply:
    try:
        value = make(*args)
        return Reply() if value is NOTHING else Reply(sender.pack(value, block))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        name = "".join(traceback.format_exception_only(type(error), error)).strip()
        try:
            pickled = pickle.dumps(error)
        except Exception:
            pickled = None
        return Reply(failure=Failure(name, text, pickled))
