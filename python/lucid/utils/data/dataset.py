"""Data sets: samples by index, or by iteration."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """Samples by index: a subclass defines ``__getitem__`` and ``__len__``."""

    def __getitem__(self, index: Any) -> Sample:
        raise _C.UnsupportedError(f"{type(self).__name__}: __getitem__ is not defined")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples by iteration: a subclass defines ``__iter__``."""

    def __iter__(self) -> Iterator[Sample]:
        raise _C.UnsupportedError(f"{type(self).__name__}: __iter__ is not defined")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of one or several tensors.

    Args:
        tensors: alike in the size of their first axis.

    Raises: ShapeError if those sizes differ.
    """

    def __init__(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise _C.ArgumentTypeError(
                    f"TensorDataset: expected Tensors: got {type(tensor).__name__}"
                )
        if any(tensor.ndim == 0 for tensor in tensors) or len({t.shape[0] for t in tensors}) > 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise _C.ShapeError(f"TensorDataset: sizes of axis 0 differ: got shapes {shapes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0] if self.tensors else 0


class ConcatDataset(Dataset[Any]):
    """Several data sets one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if len(self.datasets) == 0:
            raise _C.UserError("ConcatDataset: no data sets are given; give at least one")
        self.cumulative_sizes: list[int] = []
        total = 0
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise _C.UserError(
                    "ConcatDataset: an IterableDataset has no length; use a map-style data set"
                )
            total += len(dataset)  # type: ignore[arg-type]
            self.cumulative_sizes.append(total)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise _C.OutOfRangeError(
                f"ConcatDataset: index out of range: got {index} for {len(self)} samples"
            )
        which = bisect.bisect_right(self.cumulative_sizes, position)
        start = self.cumulative_sizes[which - 1] if which > 0 else 0
        return self.datasets[which][position - start]


class Subset(Dataset[Sample]):
    """The samples of ``dataset`` at ``indices``."""

    def __init__(self, dataset: Dataset[Sample], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Sample:
        if isinstance(index, list):
            return self.dataset[[self.indices[position] for position in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def _split_lengths(total: int, lengths: Sequence[float]) -> list[int]:
    """Lengths as counts; fractions that add up to 1 are turned into counts in PyTorch's way."""
    if not math.isclose(sum(lengths), 1.0) or sum(lengths) > 1.0 + 1e-9:
        return [int(length) for length in lengths]
    if any(not 0.0 <= share <= 1.0 for share in lengths):
        raise _C.UserError(f"random_split: fractions must be between 0 and 1: got {lengths}")
    counts = [math.floor(total * share) for share in lengths]
    for index in range(total - sum(counts)):
        counts[index % len(counts)] += 1
    return counts


def random_split(
    dataset: Dataset[Sample],
    lengths: Sequence[float],
    generator: _C.Generator | None = None,
) -> list[Subset[Sample]]:
    """Split a data set at random.

    Args:
        lengths: counts that add up to the data set's size, or fractions that add up to 1.
        generator: None means the default generator.

    Raises: UserError if the lengths do not add up.
    """
    total = len(dataset)  # type: ignore[arg-type]
    counts = _split_lengths(total, lengths)
    if sum(counts) != total:
        raise _C.UserError(
            f"random_split: the lengths do not add up to the data set: got {list(lengths)} "
            f"for {total}"
        )
    order = fn.randperm(total, generator=generator, device="cpu").tolist()
    subsets = []
    start = 0
    for count in counts:
        subsets.append(Subset(dataset, order[start : start + count]))
        start += count
    return subsets
