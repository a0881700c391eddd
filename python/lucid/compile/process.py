"""Counters and caches of the whole process."""

from __future__ import annotations

from lucid import _C

__all__ = ["cache_info", "clear_cache", "clear_disk_cache", "counters"]


def counters() -> dict[str, int]:
    """Counts since the process began.

    Returns: ``compilations`` (graphs compiled; those loaded from disk do not count),
        ``executable_runs`` (runs of compiled steps), ``eager_dispatches`` (operations run one by
        one), ``buffer_allocations``.
    """
    return _C.counters()


def cache_info() -> dict[str, int]:
    """The caches: ``entries hits misses max_entries`` of the process's compiled graphs,
    ``eager_entries`` of single operations, and ``disk_hits disk_misses disk_writes`` of the folder
    that the environment variable LUCID_COMPILE_CACHE_DIR names, counted since the process began.
    """
    return _C.compile_cache_info()


def clear_cache() -> None:
    """Empty the caches of the process; running and live steps keep what they need."""
    _C.clear_compile_cache()


def clear_disk_cache() -> int:
    """Remove the executables in the folder that LUCID_COMPILE_CACHE_DIR names; other files stay.

    Returns: how many there were; 0 if the variable is unset.
    """
    return _C.clear_disk_cache()
