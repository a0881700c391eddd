"""DataLoader: batches of a data set, in order or shuffled."""

from __future__ import annotations

import multiprocessing
import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid.utils.data.collate import default_collate
from lucid.utils.data.dataset import IterableDataset
from lucid.utils.data.fetch import Collate, Fetcher
from lucid.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from lucid.utils.data.workers import Workers


class DataLoader:
    """Iterates over batches of ``dataset``.

    Args:
        dataset: anything with ``__getitem__`` and ``__len__``, or an IterableDataset.
        batch_size: samples in a batch; None gives single samples.
        shuffle: random order, drawn anew for each iteration.
        sampler: the order of indices, instead of ``shuffle``.
        batch_sampler: lists of indices, instead of the four arguments around it.
        num_workers: processes that make batches ahead; 0 makes them in the loop itself. Batches
            come in the same order. Each worker has a copy of the data set, computes on one thread
            and seeds its generators (lucid's, Python's, NumPy's) anew, by the initial seed of
            ``generator`` and how often workers were started. Every worker iterates over all of a
            stream: see :func:`get_worker_info`.
        collate_fn: joins a list of samples; None means :func:`default_collate`.
        pin_memory, pin_memory_device: without effect, as no device here needs it.
        drop_last: leave out a last batch that is smaller; of a stream, of each worker's part.
        timeout: seconds that a worker's batch is waited for; 0 means for ever.
        worker_init_fn: called with the worker's number in each new process.
        multiprocessing_context: how processes start: "fork", "spawn", "forkserver" or a context;
            None means Python's own choice.
        generator: of the shuffle; None means the default generator.
        prefetch_factor: batches that each worker makes ahead; None means 2.
        persistent_workers: keep the processes from one iteration to the next.
        in_order: without effect; batches always come in order.

    Raises: UserError for arguments that exclude each other or are out of range; while iterating,
        what the data set raises, and WorkerError for a worker that ends or is too late.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: _C.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_choices(batch_size, shuffle, sampler, batch_sampler, drop_last)
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_context(multiprocessing_context)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.pin_memory = pin_memory
        self.generator = generator
        self.drop_last = drop_last
        self._is_iterable = isinstance(dataset, IterableDataset)
        if self._is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise _C.UserError(
                "DataLoader: an IterableDataset has its own order; give no shuffle, "
                "sampler or batch_sampler"
            )
        if batch_sampler is not None:
            batch_size = None
        elif sampler is None and not self._is_iterable:
            if shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn: Collate = default_collate if collate_fn is None else collate_fn
        self._kept_workers: Workers | None = None
        self._starts = 0

    def __iter__(self) -> Iterator[Any]:
        size = self.batch_size if self._is_iterable else None
        fetcher = Fetcher(self.dataset, self.collate_fn, size, self.drop_last)
        if self.num_workers:
            return self._iterate_workers(fetcher)
        if self._is_iterable:
            return fetcher.stream()
        if self.batch_sampler is None:
            assert self.sampler is not None
            return map(fetcher.sample, self.sampler)
        return map(fetcher.batch, self.batch_sampler)

    def _iterate_workers(self, fetcher: Fetcher) -> Iterator[Any]:
        workers = self._kept_workers
        if workers is None or not workers.are_of_this_process():
            workers = self._make_workers(fetcher)
        if self.persistent_workers:
            self._kept_workers = workers
        try:
            if self._is_iterable:
                yield from workers.streams()
            elif self.batch_sampler is None:
                assert self.sampler is not None
                yield from workers.samples(self.sampler)
            else:
                yield from workers.batches(self.batch_sampler)
        except GeneratorExit:  # the loop was left
            raise
        except BaseException:  # also an interrupt: a reply may have been read in part
            self._kept_workers = None
            workers.kill()
            raise
        finally:
            if not self.persistent_workers:
                workers.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept_workers": None}  # a copy starts its own

    def _make_workers(self, fetcher: Fetcher) -> Workers:
        # Drawn from no generator: the order of a shuffle is the same for any number of workers.
        start = fn.initial_seed() if self.generator is None else self.generator.initial_seed()
        self._starts += 1
        (seed,) = numpy.random.SeedSequence((start, self._starts)).generate_state(1, numpy.uint64)
        return Workers(
            fetcher,
            self.dataset,
            self.num_workers,
            context=self.multiprocessing_context,
            seed=int(seed) >> 2,
            init=self.worker_init_fn,
            ahead=self.prefetch_factor or 1,
            timeout=self.timeout,
        )

    def __len__(self) -> int:
        if self._is_iterable:
            count = len(self.dataset)
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]


def _check_choices(
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[list[Any]] | None,
    drop_last: bool,
) -> None:
    """Raise UserError for arguments that exclude each other."""
    if sampler is not None and shuffle:
        raise _C.UserError("DataLoader: sampler excludes shuffle; give one of them")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler or drop_last):
        raise _C.UserError(
            "DataLoader: batch_sampler excludes batch_size, shuffle, sampler and "
            "drop_last; give it alone"
        )
    if batch_size is None and drop_last:
        raise _C.UserError(
            "DataLoader: batch_size=None makes no batches, so drop_last has no meaning; "
            "leave it False"
        )


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    """Raise UserError for a number out of range, or one that has no meaning without workers."""
    if isinstance(num_workers, bool) or not isinstance(num_workers, int):
        raise _C.ArgumentTypeError(
            f"DataLoader: num_workers must be an int: got {type(num_workers).__name__}"
        )
    if num_workers < 0:
        raise _C.UserError(f"DataLoader: num_workers must not be negative: got {num_workers}")
    if not isinstance(timeout, numbers.Real):
        raise _C.ArgumentTypeError(
            f"DataLoader: timeout must be a number: got {type(timeout).__name__}"
        )
    if not timeout >= 0:
        raise _C.UserError(f"DataLoader: timeout must not be negative: got {timeout}")
    if num_workers == 0 and (prefetch_factor is not None or persistent):
        raise _C.UserError(
            "DataLoader: prefetch_factor and persistent_workers need workers; give num_workers"
        )
    if prefetch_factor is not None and not isinstance(prefetch_factor, int):
        raise _C.ArgumentTypeError(
            f"DataLoader: prefetch_factor must be an int: got {type(prefetch_factor).__name__}"
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise _C.UserError(f"DataLoader: prefetch_factor must be positive: got {prefetch_factor}")


def _check_context(context: Any) -> None:
    """Raise UserError for the name of a start method that this system does not have."""
    known = multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in known:
        raise _C.UserError(
            f"DataLoader: multiprocessing_context must be one of {', '.join(known)}: "
            f"got {context!r}"
        )
