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
from lucid.compile.sizes import marking
from lucid.compile.tracing import Subject, Traced, trace
from lucid.compile.tree import Structure

__all__ = ["SizedEntry", "size_of", "trace_sized"]

# Primes far from any real size: a second and, where it takes one, another trace is made with them.
_LARGE_SIZES = (1_000_003, 500_009)
# One trace at the smallest size: between it and a large one lies every bound that code may have.
_SMALL_SIZES = (2, 3)
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


class _Tracer:
    """Traces one subject at several sizes."""

    def __init__(self, subject: Subject, structures: list[Structure], leaves: list[Tensor]) -> None:
        self._subject = subject
        self._structures = structures
        self._leaves = leaves
        self.made: list[_C.Trace] = []
        self.outputs: list[Structure | None] = []

    def _record(
        self, recorder: _C.Recorder, arguments: list[Any]
    ) -> tuple[list[Tensor], Structure | None]:
        results, output = self._subject.record(recorder, arguments)
        self.outputs.append(output)
        return results, output

    def at_own_size(self) -> Traced:
        """Trace and compile at the size of the arguments."""

        def keep(made: _C.Trace, leaves: list[Tensor], found: list[Tensor]) -> _C.StepEntry:
            self.made.append(made)
            return self._subject.compile(made.copy(), leaves, found)

        subject = dataclasses.replace(self._subject, record=self._record, compile=keep)
        return trace(subject, self._structures, self._leaves)

    def at(self, size: int, sized: tuple[bool, ...]) -> _C.Trace:
        """Trace at another size. Raises: TraceError where the code itself depends on it."""

        def keep(made: _C.Trace, leaves: list[Tensor], found: list[Tensor]) -> _C.StepEntry:
            self.made.append(made)
            raise _Kept

        subject = dataclasses.replace(
            self._subject,
            record=self._record,
            compile=keep,
            size=size,
            sized=sized,
            max_nodes=self.made[0].num_nodes,
        )
        with marking(size if size in _LARGE_SIZES else None) as places:
            try:
                trace(subject, self._structures, self._leaves)
            except _Kept:
                pass
            except _C.TraceError:
                if not places:  # else what was decided led here
                    raise
        if places:
            error = _C.TraceError(
                "compile: the code decides by the size of the first axis, or computes with it; "
                "keep the computation in tensors"
            )
            error.args = (f"{error}\n  at {places[0]}",)
            raise error
        if self.outputs[-1] != self.outputs[0]:
            raise _C.TraceError(
                "compile: the result holds numbers that depend on the size of the first axis; "
                "return tensors, whose shapes tell it"
            )
        return self.made[-1]


def trace_sized(
    subject: Subject, structures: list[Structure], leaves: list[Tensor], size: int
) -> tuple[Traced, Sized | str]:
    """Trace and compile for ``size``; with it what serves other sizes, or why nothing does."""
    sized = tuple(leaf.ndim > 0 and leaf.shape[0] == size for leaf in leaves)
    tracer = _Tracer(subject, structures, leaves)
    traced = tracer.at_own_size()
    like = tracer.made[0]
    try:
        other = tracer.at(_LARGE_SIZES[0], sized)
        family = _C.SizedTrace(like, size, other, _LARGE_SIZES[0])
        if not family.is_certain:
            family.check(tracer.at(_LARGE_SIZES[1], sized), _LARGE_SIZES[1])
        small = next(other for other in _SMALL_SIZES if other != size)
        family.check(tracer.at(small, sized), small)
    except (_C.Error, ValueError, TypeError, IndexError, MemoryError) as error:
        return traced, f"compiled for each size: {error}"
    return traced, Sized(family, like, subject)


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
        self._size = size
        self._leaves = [describe_tensor(leaf) for leaf in leaves]
        self._places = [i for i, yes in enumerate(sized.family.sized_arguments) if yes]
        self._entries: OrderedDict[int, _C.StepEntry] = OrderedDict({size: traced.entry})
        self.sizes = {size}
        self._lock = threading.Lock()

    def save_sizes(self) -> dict[str, Any]:
        """What a file needs beside the trace."""
        family = self._sized.family
        return {
            "size": self._size,
            "places": family.save(),
            "arguments": family.sized_arguments,
        }

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
        if found is None or not signature.fits(found):
            return None
        try:
            made = self._sized.family.at(size, self._sized.like)
        except _C.Error:
            return None  # as a window that is longer than the axis: its own trace tells
        entry = self._sized.subject.compile(made, list(leaves), found)
        if not entry.rebind(found):  # the trace captured the tensors of its own time
            return None
        self._entries[size] = entry
        self.sizes.add(size)
        if len(self._entries) > _MAX_SIZES:
            self._entries.popitem(last=False)
        return entry
