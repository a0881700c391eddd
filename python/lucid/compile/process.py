"""Counters and caches of the whole process."""

from __future__ import annotations

from lucid import _C

__all__ = ["cache_info", "clear_cache", "counters"]


def counters() -> dict[str, int]:
    """Counts since the process began.

    Returns: ``compilations`` (graphs compiled), ``executable_runs`` (runs of compiled steps),
        ``eager_dispatches`` (operations run one by one), ``buffer_allocations``.
    """
    return _C.counters()


def cache_info() -> dict[str, int]:
    """The caches of the process: ``entries hits misses max_entries`` of compiled graphs, and
    ``eager_entries`` of single operations."""
    return _C.compile_cache_info()


def clear_cache() -> None:
    """Empty the caches of the process; running and live steps keep what they need."""
    _C.clear_compile_cache()
