"""Packed sequences: sequences of different lengths, step by step, without padding.

N sequences, the longest of T steps. Shapes depend on the lengths, so they are numbers to a trace: a
compiled step is compiled anew for other lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.arguments import user_line
from lucid.functions.dtypes import is_integer
from lucid.nn.functional._arguments import require_tensors

__all__ = ["PackedSequence", "Ragged"]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Fields):
    """What ``pack_padded_sequence`` makes and recurrent layers take.

    ``data`` holds, step after step, the elements of all sequences that are that long, longest
    sequence first: (sum of lengths, *). ``batch_sizes`` (T,) int64 counts them. Sorted by
    ``sorted_indices`` the sequences stood in that order; ``unsorted_indices`` leads back. Both are
    None for sequences that came in order.
    """

    # The numbers of ``batch_sizes`` when it was made, for a trace, which cannot read it.
    _sizes: tuple[int, ...] | None = None

    @staticmethod
    def of_sizes(sizes: Sequence[int], data: Tensor, *indices: Tensor | None) -> PackedSequence:
        """One with these batch sizes; ``indices`` are the sorted and the unsorted ones."""
        batch_sizes = fn.tensor(list(sizes), dtype=_C.int64, device="cpu")
        made = PackedSequence(data, batch_sizes, *indices)
        made._sizes = tuple(sizes)
        return made

    def _replace(self, **fields: Any) -> PackedSequence:
        made = super()._replace(**fields)
        made._sizes = None if "batch_sizes" in fields else self._sizes
        return made

    def sizes(self) -> list[int]:
        """The numbers of ``batch_sizes``.

        Raises: TraceError in a trace that they are computed in, UserError for impossible sizes,
            DtypeError for sizes that are no integers.
        """
        if self._sizes is not None:
            known = list(self._sizes)
            if _C.is_tracing() or self.batch_sizes.tolist() == known:
                return known
        require_tensors("PackedSequence", batch_sizes=self.batch_sizes)
        if not is_integer(self.batch_sizes.dtype):
            raise _C.DtypeError(
                "PackedSequence: batch_sizes must be integers: got "
                f"{self.batch_sizes.dtype.name}; convert them with .to(lucid.int64)"
            )
        if _C.is_tracing():
            raise _C.TraceError(
                "PackedSequence: a compiled step cannot read batch_sizes from a tensor; pass the "
                "packed sequence as an argument of the step, or make it inside from lengths that "
                f"are a list{user_line()}"
            )
        sizes = numpy.asarray(self.batch_sizes.tolist())
        if sizes.ndim != 1 or sizes.size == 0 or sizes[-1] < 1 or (numpy.diff(sizes) > 0).any():
            raise _C.UserError(
                f"PackedSequence: batch_sizes must be positive and never rise: got {sizes.tolist()}"
            )
        return [int(size) for size in sizes]

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With ``data.to(...)``; the indices follow its device."""
        data = self.data.to(*args, **kwargs)
        by_name = {"sorted_indices": self.sorted_indices, "unsorted_indices": self.unsorted_indices}
        indices = {n: None if i is None else i.to(data.device) for n, i in by_name.items()}
        return self._replace(data=data, **indices)

    def cpu(self) -> PackedSequence:
        """On the cpu."""
        return self.to("cpu")

    def float(self) -> PackedSequence:
        """In float32."""
        return self.to(_C.float32)

    def double(self) -> PackedSequence:
        """In float64."""
        return self.to(_C.float64)


class Ragged:
    """How sequences of these lengths, the longest first, stand in padded and packed tensors."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self.num_steps, self.num_sequences = self.lengths[0], len(self.lengths)
        self._is_there = numpy.arange(self.num_steps)[:, None] < numpy.asarray(self.lengths)

    @staticmethod
    def of(packed: PackedSequence) -> Ragged:
        """The lengths that the sizes of all steps tell. Raises: as :meth:`PackedSequence.sizes`."""
        sizes = numpy.asarray(packed.sizes())
        return Ragged([int((sizes > i).sum()) for i in range(int(sizes[0]))])

    @property
    def batch_sizes(self) -> list[int]:
        """How many sequences have each step."""
        return [int(n) for n in self._is_there.sum(axis=1)]

    def pack(self, padded: Tensor) -> Tensor:
        """(T, N, *) to (sum of lengths, *)."""
        return _rows(padded, numpy.flatnonzero(self._is_there))

    def pad(self, data: Tensor, value: float = 0.0, num_steps: int | None = None) -> Tensor:
        """(sum of lengths, *) to (T, N, *), or as many steps as are asked for."""
        steps = self.num_steps if num_steps is None else num_steps
        total = int(self._is_there.sum())
        if data.ndim == 0 or data.shape[0] != total:
            raise _C.ShapeError(
                f"PackedSequence: data must have {total} elements, the sum of batch_sizes: got "
                f"shape {tuple(data.shape)}"
            )
        places = numpy.full((steps, self.num_sequences), total)  # the padding follows the data
        places[: self.num_steps][self._is_there] = numpy.arange(total)
        rest = tuple(data.shape[1:])
        padding = fn.full((1, *rest), value, dtype=data.dtype, device=data.device)
        index = _index(places.reshape(-1), data)
        taken = _C.emit("take", fn.cat([data, padding]), index, dim=0)
        return taken.reshape(steps, self.num_sequences, *rest)

    def last(self, padded: Tensor) -> Tensor:
        """The last step of each sequence: (T, N, *) to (N, *)."""
        steps = numpy.asarray(self.lengths) - 1
        return _rows(padded, steps * self.num_sequences + numpy.arange(self.num_sequences))

    def flipped(self, padded: Tensor) -> Tensor:
        """Each sequence from its last step to its first; the padding stays behind."""
        steps = numpy.arange(self.num_steps)[:, None]
        turned = numpy.where(self._is_there, numpy.asarray(self.lengths) - 1 - steps, steps)
        places = turned * self.num_sequences + numpy.arange(self.num_sequences)
        return _rows(padded, places.reshape(-1)).reshape(*padded.shape)


def _index(places: NDArray[Any], like: Tensor) -> Tensor:
    return fn.tensor(places.tolist(), dtype=_C.int64, device=like.device)


def _rows(padded: Tensor, places: NDArray[Any]) -> Tensor:
    """Rows of a padded tensor seen as (T N, *)."""
    flat = padded.reshape(padded.shape[0] * padded.shape[1], *padded.shape[2:])
    return _C.emit("take", flat, _index(places, padded), dim=0)
