"""dynamic=True: one trace for all sizes of the arguments' first axis."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.entries import Entry, fields_of
from lucid.compile.signature import describe_tensor
from lucid.compile.tracing import Subject, Traced, trace
from lucid.compile.tree import Structure

__all__ = ["SizedEntry", "size_of", "trace_sized"]

# Primes far from any real size: a second and, where it takes one, a third trace is made with them.
_OTHER_SIZES = (1_000_003, 500_009)
_MAX_SIZES = 64


class _Kept(Exception):
    """Carries a finished trace past compiling."""


def size_of(leaves: list[Tensor]) -> int | None:
    """The common size of the first axes that may vary; None where it stands for itself.

    Sizes 0 and 1 do: 1 broadcasts and is squeezed away.
    """
    for leaf in leaves:
        if leaf.ndim > 0:
            return leaf.shape[0] if leaf.shape[0] > 1 else None
    return None


@dataclasses.dataclass(frozen=True)
class Sized:
    """What one trace at two sizes gave."""

    family: _C.SizedTrace
    like: _C.Trace
    subject: Subject


def trace_sized(
    subject: Subject, structures: list[Structure], leaves: list[Tensor], size: int
) -> tuple[Traced, Sized | str]:
    """Trace and compile for ``size``; with it what serves other sizes, or why nothing does."""
    sized = tuple(leaf.ndim > 0 and leaf.shape[0] == size for leaf in leaves)
    kept: list[_C.Trace] = []

    def keep(made: _C.Trace, leaves: list[Tensor], found: list[Tensor]) -> _C.StepEntry:
        kept.append(made)
        return subject.compile(made.copy(), leaves, found)

    def only_keep(made: _C.Trace, leaves: list[Tensor], found: list[Tensor]) -> _C.StepEntry:
        kept.append(made)
        raise _Kept

    def trace_at(other: int) -> _C.Trace:
        again = dataclasses.replace(
            subject, compile=only_keep, size=other, sized=sized, max_nodes=kept[0].num_nodes
        )
        try:
            trace(again, structures, leaves)
        except _Kept:
            return kept[-1]
        raise AssertionError("unreachable")

    traced = trace(dataclasses.replace(subject, compile=keep), structures, leaves)
    try:
        family = _C.SizedTrace(kept[0], size, trace_at(_OTHER_SIZES[0]), _OTHER_SIZES[0])
        if not family.is_certain:
            family.check(trace_at(_OTHER_SIZES[1]), _OTHER_SIZES[1])
    except (_C.Error, ValueError, TypeError, IndexError, MemoryError) as error:
        return traced, f"compiled for each size: {error}"
    return traced, Sized(family, kept[0], subject)


class SizedEntry(Entry):
    """A signature that holds for all sizes of the first axis."""

    def __init__(
        self,
        names: list[str],
        structures: list[Structure],
        leaves: list[Tensor],
        traced: Traced,
        sized: Sized,
        size: int,
    ) -> None:
        super().__init__(names, structures, leaves, traced)
        self._sized = sized
        self._leaves = [describe_tensor(leaf) for leaf in leaves]
        self._places = [i for i, yes in enumerate(sized.family.sized_arguments) if yes]
        self._entries: OrderedDict[int, _C.StepEntry] = OrderedDict({size: traced.entry})
        self._lock = threading.Lock()

    @property
    def num_sizes(self) -> int:
        """How many sizes have been planned."""
        return len(self._entries)

    def _entry(self, leaves: tuple[Any, ...]) -> _C.StepEntry:
        known = self.traced.entry
        if not self._places or len(leaves) <= self._places[-1]:
            return known
        first = leaves[self._places[0]]
        size = first.shape[0] if isinstance(first, Tensor) and first.ndim > 0 else 0
        with self._lock:
            found = self._entries.get(size)
            if found is None and size > 1:
                found = self._make(leaves, size)
            if found is not None:
                self.traced.entry = found  # what memory() and timing() tell of
        return known if found is None else found

    def _fits(self, leaves: list[Any], size: int) -> bool:
        """True for arguments of this signature but for the size of their first axis."""
        if not all(isinstance(leaf, Tensor) for leaf in leaves):
            return False
        fields = fields_of(self.names, self.structures, leaves)
        for name, value in self.fields.items():
            if not name.startswith("shape of ") and fields.get(name) != value:
                return False
        for i, (leaf, known) in enumerate(zip(leaves, self._leaves, strict=True)):
            expected = (size, *known["shape"][1:]) if i in self._places else known["shape"]
            if leaf.shape != expected:
                return False
        return True

    def _make(self, leaves: tuple[Any, ...], size: int) -> _C.StepEntry | None:
        """Infer and plan for another size; None where the arguments or the modules differ."""
        signature = self.traced.signature
        if not self._fits(list(leaves), size) or signature.difference() is not None:
            return None
        found = signature.captures()
        if found is None:
            return None
        made = self._sized.family.at(size, self._sized.like)
        entry = self._sized.subject.compile(made, list(leaves), found)
        self._entries[size] = entry
        if len(self._entries) > _MAX_SIZES:
            self._entries.popitem(last=False)
        return entry
