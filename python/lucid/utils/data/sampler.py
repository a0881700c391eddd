"""Samplers: the order in which a loader asks for samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from lucid import _C
from lucid import functions as fn

Item = TypeVar("Item", covariant=True)


class Sampler(Generic[Item]):
    """Base class: a subclass defines ``__iter__`` over indices or lists of them."""

    def __iter__(self) -> Iterator[Item]:
        raise _C.UnsupportedError(f"{type(self).__name__}: __iter__ is not defined")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... to the end of ``data_source``."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order.

    Args:
        data_source: what is sampled.
        replacement: draw each index independently.
        num_samples: how many; None means as many as there are.
        generator: None means the default generator.

    Raises: UserError for a count that is not positive.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: _C.Generator | None = None,
    ) -> None:
        if num_samples is not None and num_samples <= 0:
            raise _C.UserError(
                f"{type(self).__name__}: num_samples must be a positive integer: got {num_samples}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices one iteration gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, count = len(self.data_source), self.num_samples
        if self.replacement:
            yield from fn.randint(
                0, size, (count,), generator=self.generator, device="cpu"
            ).tolist()
            return
        while count > 0:
            order = fn.randperm(size, generator=self.generator, device="cpu").tolist()
            yield from order[:count]
            count -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: _C.Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for position in fn.randperm(
            len(self.indices), generator=self.generator, device="cpu"
        ).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with the given weights.

    Args:
        weights: one for each index; need not add up to 1.
        num_samples: how many to draw.
        replacement: draw each independently.
        generator: None means the default generator.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: _C.Generator | None = None,
    ) -> None:
        if num_samples <= 0:
            raise _C.UserError(
                f"{type(self).__name__}: num_samples must be a positive integer: got {num_samples}"
            )
        self.weights = fn.as_tensor(weights, dtype=_C.float64, device="cpu")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = fn.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[Any]]):
    """Lists of ``batch_size`` indices of another sampler.

    Args:
        drop_last: leave out a last list that is shorter.

    Raises: UserError for a size that is not positive.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise _C.UserError(
                f"BatchSampler: batch_size must be a positive integer: got {batch_size}"
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        if self.drop_last:
            return count // self.batch_size
        return -(-count // self.batch_size)
