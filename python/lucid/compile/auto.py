"""segments="auto": trying some counts on the first batch and keeping the fastest."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.step import Step
from lucid.compile.tracing import Subject, Traced, trace
from lucid.compile.tree import Structure
from lucid.nn.modules.container import Sequential
from lucid.nn.modules.module import Module

__all__ = ["AutoStep"]

_DEFAULT_CANDIDATES = (1, 2, 4, 8)
_TIMED_RUNS = 3


class AutoStep(Step):
    """A step that chooses its number of segments on its first batch.

    The probe runs forward and backward of every candidate for real, without any effect on
    parameters, buffers, gradients, optimizers or generators.
    """

    def __init__(
        self,
        model: Module,
        loss_fn: Callable[..., Any],
        dynamic: bool,
        fallback: str,
        has_aux: bool,
        memory_limit: int | None,
        candidates: Sequence[int] | None,
    ) -> None:
        super().__init__(model, loss_fn, dynamic, "auto", fallback, has_aux, memory_limit)
        self._candidates = _checked(candidates)
        self._results: list[dict[str, Any]] = []
        self._chosen: int | None = None

    def chosen_segments(self) -> int:
        """The number of segments that the probe chose. Raises: UserError before the first call."""
        if self._chosen is None:
            raise _C.UserError("chosen_segments: nothing has been probed yet: call the step once")
        return self._chosen

    def probe_results(self) -> list[dict[str, Any]]:
        """One row a candidate: ``segments``, ``median_ms``, ``planned_peak_bytes``.

        A count that cannot keep to the memory limit takes infinitely long; its peak is the
        smallest that was found.
        """
        if not self._results:
            raise _C.UserError("probe_results: nothing has been probed yet: call the step once")
        return [dict(row) for row in self._results]

    def _trace(self, structures: list[Structure], leaves: list[Tensor]) -> Traced:
        if self._chosen is None:
            return self._probe(structures, leaves)
        return super()._trace(structures, leaves)

    def _subject(self, structures: list[Structure], leaves: list[Tensor]) -> Subject:
        return self._subject_of(1 if self._chosen is None else self._chosen)

    def _probe(self, structures: list[Structure], leaves: list[Tensor]) -> Traced:
        """Time every candidate on these arguments; returns the fastest."""
        assert isinstance(self._model, Sequential)
        most = max(1, len(self._model))
        counts = sorted({min(count, most) for count in self._candidates})
        rows, found = [], {}
        for count in counts:
            traced = self._trace_within_limit(count, structures, leaves)
            if isinstance(traced, int):
                rows.append(_row(count, math.inf, traced))
                continue
            found[count] = traced
            peak = traced.entry.memory()["arena_peak"]
            rows.append(_row(count, _median_ms(traced, leaves), peak))
        if not found:
            smallest = min(row["planned_peak_bytes"] for row in rows)
            raise _C.UserError(
                f"make_step: memory_limit={self._memory_limit} bytes cannot be met: the smallest "
                f"peak of the counts {counts} is {smallest} bytes; raise the limit or try more "
                "counts with candidates="
            )
        best = min(rows, key=lambda row: row["median_ms"])
        self._results = rows
        self._chosen = int(best["segments"])
        because = ""
        if found[self._chosen].entry.has_effects:
            because = ", without a trial: an impure custom operation would run in it"
        self._history.append(f"segments='auto' chose {self._chosen} of {counts}{because}")
        return found[self._chosen]

    def _trace_within_limit(
        self, count: int, structures: list[Structure], leaves: list[Tensor]
    ) -> Traced | int:
        """One candidate, or the smallest peak found if it cannot keep to the limit."""
        try:
            return trace(self._subject_of(count), structures, leaves)
        except _C.UserError as error:
            smallest = getattr(error, "smallest_peak", None)
            if smallest is None:
                raise
            return int(smallest)


def _checked(candidates: Sequence[int] | None) -> tuple[int, ...]:
    if candidates is None:
        return _DEFAULT_CANDIDATES
    counts = tuple(candidates)
    good = all(isinstance(c, int) and not isinstance(c, bool) and c >= 1 for c in counts)
    if not counts or not good:
        raise _C.UserError(
            f"make_step: candidates must be positive integers: got {list(candidates)!r}"
        )
    return counts


def _row(count: int, median_ms: float, peak: int) -> dict[str, Any]:
    return {"segments": count, "median_ms": median_ms, "planned_peak_bytes": peak}


def _median_ms(traced: Traced, leaves: list[Tensor]) -> float:
    """Median milliseconds of forward and backward, after one run to warm up.

    0 where a run would have effects: the first count that fits is taken then.
    """
    if traced.entry.has_effects:
        return 0.0
    traced.entry.probe(leaves)
    times = []
    for _ in range(_TIMED_RUNS):
        start = time.perf_counter()
        traced.entry.probe(leaves)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
