"""How a batch is made of a data set, in this process or in a worker's."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.utils.data.collate import default_collate
from lucid.utils.data.dataset import Dataset, Subset, TensorDataset

Collate = Callable[[list[Any]], Any]


class Fetcher:
    """Makes batches of ``dataset``.

    Args:
        collate: joins a list of samples; None means :func:`default_collate`.
        batch_size, drop_last: of a stream; None gives single samples.
    """

    def __init__(
        self, dataset: Any, collate: Collate | None, batch_size: int | None, drop_last: bool
    ) -> None:
        self._dataset = dataset
        self._collate: Collate = default_collate if collate is None else collate
        self._batch_size = batch_size
        self._drop_last = drop_last

    @functools.cached_property
    def _fetch_rows(self) -> Callable[[list[int]], list[Tensor]] | None:
        return _row_fetcher(self._dataset) if self._collate is default_collate else None

    def batch(self, indices: list[Any]) -> Any:
        """The samples of these indices, joined."""
        if self._fetch_rows is not None:
            return self._fetch_rows(indices)
        if hasattr(self._dataset, "__getitems__"):
            return self._collate(self._dataset.__getitems__(indices))
        return self._collate([self._dataset[index] for index in indices])

    def sample(self, index: Any) -> Any:
        """One sample as it is."""
        return self._dataset[index]

    def stream(self) -> Iterator[Any]:
        """The batches of a data set that is iterated."""
        samples = iter(self._dataset)
        if self._batch_size is None:
            yield from samples
            return
        while batch := list(itertools.islice(samples, self._batch_size)):
            if len(batch) < self._batch_size and self._drop_last:
                return
            yield self._collate(batch)


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
