"""Processes that make batches ahead of the loop that takes them."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from multiprocessing.util import Finalize
from typing import Any

from lucid import _C
from lucid.utils.data import serving
from lucid.utils.data.fetch import Fetcher
from lucid.utils.data.serving import Make, WorkerInfo
from lucid.utils.data.transport import Receiver

_LONGEST_END = 5.0  # seconds for what the processes are at when the loop is left


class WorkerError(_C.Error, RuntimeError):
    """A worker's process that ended or gave nothing in time."""


class _RemoteTraceback(Exception):
    """Shows where in the worker's process an error arose."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class _Worker:
    """One process, which does its tasks in order, and what it sent. Threads may share it."""

    def __init__(self) -> None:
        self._receiver = Receiver()
        self._sending = threading.Lock()
        self._receiving = threading.RLock()  # a loop that is collected drops its tasks
        self._sent = 0
        self._received = 0
        self._blocks: dict[int, str] = {}  # lent for a task
        self._replies: dict[int, serving.Reply] = {}  # of tasks whose result nobody took yet
        self._dropped: set[int] = set()
        self._process: Any = None

    def start(self, context: Any, *args: Any) -> None:
        """Start the process, which serves with these arguments."""
        tasks, self._tasks = context.Pipe(duplex=False)
        self._results, results = context.Pipe(duplex=False)
        process = context.Process(target=serving.serve, args=(tasks, results, *args))
        process.start()
        self._process = process
        tasks.close()
        results.close()

    def submit(self, make: Make, *args: Any) -> int:
        """Give the process a task; returns its number."""
        with self._sending:
            block = self._receiver.lend_block()
            # What went before shows why nobody listens, or that the process has ended.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._tasks.send((make, block, args))
            self._sent += 1
            self._blocks[self._sent] = block
            return self._sent

    def result(self, task: int, timeout: float | None) -> Any:
        """What this task made; ``serving.NOTHING`` at the end of a stream."""
        with self._receiving:
            while task not in self._replies:
                self._receive(timeout)
            reply = self._replies.pop(task)
        if reply.failure is not None:
            raise _error_of(reply.failure)
        packed = reply.packed
        value = serving.NOTHING if packed is None else self._receiver.unpack(packed)
        self._forget(task)
        return value

    def drop(self, task: int) -> None:
        """Nobody takes the result of this task."""
        with self._receiving:
            self._dropped.add(task)
            if self._replies.pop(task, None) is not None:
                self._forget(task)

    def tell(self, make: Make, *args: Any) -> None:
        """Give the process, if it still serves, a task without a result."""
        with contextlib.suppress(OSError):
            self.drop(self.submit(make, *args))

    def ask_to_stop(self) -> None:
        """Have the process end after what it is at."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # it has ended by itself
            self._tasks.send(None)

    def wait(self, deadline: float) -> None:
        """Wait until the process has ended; one that sends is not kept waiting."""
        while self._process is not None and self._process.is_alive():
            left = deadline - time.monotonic()
            ready = connection.wait([self._results, self._process.sentinel], max(left, 0.0))
            if not ready or self._process.sentinel in ready:
                return
            try:
                self._results.recv_bytes()
            except (EOFError, OSError):
                self._process.join(max(left, 0.0))
                return

    def end(self) -> None:
        """End the process now, if it runs, and free all blocks."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._tasks.close()
            self._results.close()
        self._receiver.close()

    def _receive(self, timeout: float | None) -> None:
        """Wait for one reply."""
        ready = connection.wait([self._results, self._process.sentinel], timeout)
        if not ready:
            raise WorkerError(
                f"DataLoader: no batch came within timeout={timeout} s; give it more time, "
                "or find what the data set waits for with num_workers=0"
            )
        try:
            if self._results not in ready and not self._results.poll():
                raise EOFError
            reply = self._results.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(_LONGEST_END)
            raise WorkerError(
                f"DataLoader: a worker's process has ended with exit code {self._process.exitcode};"
                " num_workers=0 shows what the data set does. With the start methods 'spawn' and "
                "'forkserver' a script starts its work behind if __name__ == '__main__'"
            ) from None
        task, self._received = self._received, self._received + 1
        if task == 0:  # of the start
            if reply.failure is not None:
                raise _error_of(reply.failure)
        elif task in self._dropped:
            self._forget(task)
        else:
            self._replies[task] = reply

    def _forget(self, task: int) -> None:
        self._dropped.discard(task)
        self._receiver.take_back(self._blocks.pop(task))


def _error_of(failure: serving.Failure) -> BaseException:
    """The exception that was raised in the worker's process."""
    error: Any = None
    if failure.pickled is not None:
        with contextlib.suppress(Exception):  # of a class whose constructor takes something else
            error = pickle.loads(failure.pickled)
    if not isinstance(error, Exception):
        error = WorkerError(f"DataLoader: a worker raised {failure.text}")
    assert isinstance(error, Exception)
    error.__cause__ = _RemoteTraceback(failure.traceback)
    return error


class Workers:
    """Processes of one loader. Batch k is made by worker k modulo their number.

    They end with this object, and with the interpreter at the latest.

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
        self._timeout = timeout or None
        self._owner = os.getpid()
        self._stream_numbers = itertools.count()
        self._workers = [_Worker() for _ in range(count)]
        # At exit before multiprocessing waits for processes; in a fork of this process never.
        self._end = Finalize(self, _end, args=(self._workers,), exitpriority=1)
        for k, worker in enumerate(self._workers):
            worker.start(context, WorkerInfo(k, count, seed + k, dataset), fetcher, init)

    def are_of_this_process(self) -> bool:
        """False in a fork of the process that started them."""
        return self._owner == os.getpid()

    def batches(self, all_indices: Iterable[list[Any]]) -> Iterator[Any]:
        """A batch for each list of indices, in their order."""
        return self._for_each(serving.batch, all_indices)

    def samples(self, indices: Iterable[Any]) -> Iterator[Any]:
        """A sample for each index, in their order."""
        return self._for_each(serving.sample, indices)

    def streams(self) -> Iterator[Any]:
        """A batch of each worker's stream in turn, until all have ended."""
        number = next(self._stream_numbers)
        opened = [(worker, worker.submit(serving.open_stream, number)) for worker in self._workers]
        for worker, task in opened:
            worker.result(task, self._timeout)
        try:
            yield from self._in_turn(lambda worker: worker.submit(serving.next_of_stream, number))
        finally:
            for worker in self._workers:
                worker.tell(serving.close_stream, number)

    def close(self) -> None:
        """End the processes after what they are at."""
        self._end()

    def kill(self) -> None:
        """End the processes now."""
        if self.are_of_this_process():
            for worker in self._workers:
                worker.end()
            self._end()

    def _for_each(self, make: Make, tasks: Iterable[Any]) -> Iterator[Any]:
        todo = iter(tasks)

        def submit(worker: _Worker) -> int | None:
            for task in todo:
                return worker.submit(make, task)
            return None

        return self._in_turn(submit)

    def _in_turn(self, submit: Callable[[_Worker], int | None]) -> Iterator[Any]:
        """What the workers make, in turn; who gave a batch gets the next task, if there is one."""
        waiting: deque[tuple[_Worker, int]] = deque()

        def give_task(worker: _Worker) -> None:
            task = submit(worker)
            if task is not None:
                waiting.append((worker, task))

        for _ in range(self._ahead):
            for worker in self._workers:
                give_task(worker)
        try:
            while waiting:
                worker, task = waiting.popleft()
                batch = worker.result(task, self._timeout)
                if batch is serving.NOTHING:
                    continue
                give_task(worker)
                yield batch
        finally:  # the loop may have been left
            for worker, task in waiting:
                worker.drop(task)


def _end(workers: list[_Worker]) -> None:
    """End the processes after what they are at, but soon."""
    for worker in workers:
        worker.ask_to_stop()
    deadline = time.monotonic() + _LONGEST_END
    for worker in workers:
        worker.wait(deadline)
    for worker in workers:
        worker.end()
