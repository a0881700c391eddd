"""Processes that make batches ahead of the loop that takes them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid.utils.data.fetch import Fetcher
from lucid.utils.data.transport import Packed, Receiver, Sender


class WorkerError(_C.Error, RuntimeError):
    """A worker's process that ended or gave nothing in time."""


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


class _Serving:
    """The state of a worker's process."""

    info: WorkerInfo | None = None
    fetcher: Fetcher
    sender: Sender
    batches: Iterator[Any] = iter(())


def get_worker_info() -> WorkerInfo | None:
    """Of the DataLoader's worker that calls, or None in the main process.

    An IterableDataset divides its samples by it: each worker iterates over a copy of its own.
    """
    return _Serving.info


def _start(info: WorkerInfo, fetcher: Fetcher, init: Callable[[int], None] | None) -> None:
    """Runs once in a new process. Workers share the processor: each computes on one thread."""
    _C.set_num_threads(1)
    fn.manual_seed(info.seed)
    random.seed(info.seed)
    numpy.random.seed(info.seed % 2**32)
    _Serving.info, _Serving.fetcher, _Serving.sender = info, fetcher, Sender()
    if init is not None:
        init(info.id)


def _batch(free: str | None, indices: list[Any]) -> Packed:
    return _Serving.sender.pack(_Serving.fetcher.batch(indices), free)


def _sample(free: str | None, index: Any) -> Packed:
    return _Serving.sender.pack(_Serving.fetcher.sample(index), free)


def _restart_stream() -> None:
    _Serving.batches = _Serving.fetcher.stream()


def _next_of_stream(free: str | None) -> Packed | None:
    """The stream's next batch, or None after its last one."""
    for batch in _Serving.batches:
        return _Serving.sender.pack(batch, free)
    return None


class _Worker:
    """One process and what it sent."""

    def __init__(self, context: Any, init_args: tuple[Any, ...]) -> None:
        self._receiver = Receiver()
        self._pending: set[Future[Packed | None]] = set()  # batches that nobody has taken
        # Where nothing closes it, at the latest when the program ends.
        weakref.finalize(self, _free_memory, os.getpid(), self._receiver, self._pending)
        # A pool for each process: the tasks of a pool go to whichever of its processes is free.
        self._pool = ProcessPoolExecutor(
            1, mp_context=context, initializer=_start, initargs=init_args
        )
        self._process_id = self._pool.submit(os.getpid)

    def submit(self, make: Callable[..., Packed | None], *args: Any) -> Future[Packed | None]:
        """Have a batch made."""
        with _naming_dead_workers():
            future = self._pool.submit(make, self._receiver.free_block(), *args)
        self._pending.add(future)
        return future

    def restart_stream(self) -> Future[None]:
        """Have the stream begin anew."""
        with _naming_dead_workers():
            return self._pool.submit(_restart_stream)

    def unpack(self, future: Future[Packed | None], packed: Packed | None) -> Any:
        """The batch that a future gave; None after the end of a stream."""
        self._pending.discard(future)
        return None if packed is None else self._receiver.unpack(packed)

    def drop(self, future: Future[Packed | None]) -> None:
        """Called with a batch that nobody takes."""
        self._pending.discard(future)
        _discard(self._receiver, future)

    def close(self) -> None:
        """End the process after what it is at."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._receiver.close()

    def kill(self) -> None:
        """End the process now."""
        self.close()
        if self._process_id.done() and self._process_id.exception() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._process_id.result(), signal.SIGTERM)


def _discard(receiver: Receiver, future: Future[Packed | None]) -> None:
    if future.cancelled() or not future.done() or future.exception() is not None:
        return
    packed = future.result()
    if packed is not None:
        receiver.discard(packed)


def _free_memory(owner: int, receiver: Receiver, pending: set[Future[Packed | None]]) -> None:
    """Free what a worker sent, in the process that made it: a fork has copies of all objects."""
    if os.getpid() != owner:
        return
    for future in list(pending):
        _discard(receiver, future)
    receiver.close()


class Workers:
    """Processes of one loader. Batch k is made by worker k modulo their number.

    Args:
        context: of ``multiprocessing``, or the name of its start method; None means Python's own
            choice. With "spawn" and "forkserver" data set and functions are pickled.
        seed: of worker 0; worker k has seed + k.
        ahead: batches that each worker makes ahead.
        timeout: seconds that a batch is waited for; 0 means for ever.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        dataset: Any,
        count: int,
        *,
        context: Any,
        seed: int,
        init: Callable[[int], None] | None,
        ahead: int,
        timeout: float,
    ) -> None:
        if not isinstance(context, multiprocessing.context.BaseContext):
            context = multiprocessing.get_context(context)
        self._ahead = ahead
        self._timeout = timeout
        self._workers = [
            _Worker(context, (WorkerInfo(k, count, seed + k, dataset), fetcher, init))
            for k in range(count)
        ]

    def batches(self, all_indices: Iterable[list[Any]]) -> Iterator[Any]:
        """A batch for each list of indices, in their order."""
        return self._for_each(_batch, all_indices)

    def samples(self, indices: Iterable[Any]) -> Iterator[Any]:
        """A sample for each index, in their order."""
        return self._for_each(_sample, indices)

    def streams(self) -> Iterator[Any]:
        """A batch of each worker's stream in turn, until all have ended."""
        for restarted in [worker.restart_stream() for worker in self._workers]:
            self._result(restarted)
        return self._in_turn(lambda worker: worker.submit(_next_of_stream))

    def close(self) -> None:
        """End the processes after what they are at."""
        for worker in self._workers:
            worker.close()

    def kill(self) -> None:
        """End the processes now."""
        for worker in self._workers:
            worker.kill()

    def _for_each(self, make: Callable[..., Packed], tasks: Iterable[Any]) -> Iterator[Any]:
        todo = iter(tasks)

        def submit(worker: _Worker) -> Future[Packed | None] | None:
            for task in todo:
                return worker.submit(make, task)
            return None

        return self._in_turn(submit)

    def _in_turn(self, submit: Callable[[_Worker], Future[Packed | None] | None]) -> Iterator[Any]:
        """What the workers make, in turn; who gave a batch gets the next task, if there is one."""
        waiting: deque[tuple[_Worker, Future[Packed | None]]] = deque()

        def give_task(worker: _Worker) -> None:
            future = submit(worker)
            if future is not None:
                waiting.append((worker, future))

        for _ in range(self._ahead):
            for worker in self._workers:
                give_task(worker)
        try:
            while waiting:
                worker, future = waiting.popleft()
                packed = self._result(future)
                batch = worker.unpack(future, packed)
                if packed is None:  # the end of its stream
                    continue
                give_task(worker)
                yield batch
        finally:  # the loop may have been left
            for worker, future in waiting:
                future.add_done_callback(worker.drop)

    def _result(self, future: Future[Any]) -> Any:
        try:
            with _naming_dead_workers():
                return future.result(self._timeout or None)
        except FutureTimeoutError as error:
            if future.done():  # the data set's own
                raise
            raise WorkerError(
                f"DataLoader: no batch came within timeout={self._timeout} s; give it more time, "
                "or find what the data set waits for with num_workers=0"
            ) from error


@contextlib.contextmanager
def _naming_dead_workers() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise WorkerError(
            "DataLoader: a worker's process has ended; num_workers=0 shows what the data set does. "
            "With the start methods 'spawn' and 'forkserver' a script starts its work behind "
            "if __name__ == '__main__'"
        ) from error
