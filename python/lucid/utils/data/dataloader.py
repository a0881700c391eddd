"""DataLoader: batches of a data set, in order or shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.utils.data.collate import default_collate
from lucid.utils.data.dataset import Dataset, IterableDataset, Subset, TensorDataset
from lucid.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Iterates over batches of ``dataset``.

    Args:
        dataset: anything with ``__getitem__`` and ``__len__``, or an IterableDataset.
        batch_size: samples in a batch; None gives single samples.
        shuffle: random order, drawn anew for each iteration.
        sampler: the order of indices, instead of ``shuffle``.
        batch_sampler: lists of indices, instead of the four arguments around it.
        num_workers: only 0 is supported.
        collate_fn: joins a list of samples; None means :func:`default_collate`.
        pin_memory, timeout, worker_init_fn, multiprocessing_context: without effect.
        drop_last: leave out a last batch that is smaller.
        generator: of the shuffle; None means the default generator.

    Raises: UserError for arguments that exclude each other, UnsupportedError for workers.
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
        if num_workers != 0:
            raise _C.UnsupportedError(
                f"DataLoader: num_workers={num_workers} is not supported; use num_workers=0"
            )
        _check_choices(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
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
        self._has_default_collate = collate_fn is None or collate_fn is default_collate
        self.collate_fn: Collate = default_collate if collate_fn is None else collate_fn

    def __iter__(self) -> Iterator[Any]:
        if self._is_iterable:
            return self._iterate_stream()
        if self.batch_sampler is None:
            return self._iterate_samples()
        return self._iterate_batches(self.batch_sampler)

    def _iterate_stream(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield self.collate_fn(batch)

    def _iterate_samples(self) -> Iterator[Any]:
        assert self.sampler is not None
        for index in self.sampler:
            yield self.dataset[index]

    def _iterate_batches(self, batches: Iterable[list[Any]]) -> Iterator[Any]:
        fetch_rows = _row_fetcher(self.dataset) if self._has_default_collate else None
        for indices in batches:
            if fetch_rows is not None:
                yield fetch_rows(indices)
            elif hasattr(self.dataset, "__getitems__"):
                yield self.collate_fn(self.dataset.__getitems__(indices))
            else:
                yield self.collate_fn([self.dataset[index] for index in indices])

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


def _row_fetcher(dataset: Dataset[Any]) -> Callable[[list[int]], list[Tensor]] | None:
    """One look-up a tensor instead of one a sample, for data sets that are rows of tensors."""
    places: list[Any] = []
    while type(dataset) is Subset:
        places.append(numpy.asarray(dataset.indices, dtype=numpy.int64))
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset:
        return None
    tensors = dataset.tensors

    def fetch(indices: list[int]) -> list[Tensor]:
        rows = numpy.asarray(indices, dtype=numpy.int64)
        for place in places:
            rows = place[rows]
        index = fn.tensor(rows, device="cpu")
        by_device: dict[str, Tensor] = {}
        batch = []
        for tensor in tensors:
            local = by_device.setdefault(
                str(tensor.device),
                index if tensor.device == index.device else index.to(tensor.device),
            )
            batch.append(_C.emit("take", tensor, local, dim=0))
        return batch

    return fetch
