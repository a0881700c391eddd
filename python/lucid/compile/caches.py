"""What a functools.lru_cache holds. Other threads may call it meanwhile."""

from __future__ import annotations

import functools
import gc
from typing import Any

__all__ = ["Held", "is_cache", "table_of"]


def is_cache(value: Any) -> bool:
    """True for a function that ``functools.lru_cache`` or ``functools.cache`` made."""
    return isinstance(value, functools._lru_cache_wrapper)


def table_of(cache: Any) -> dict[Any, Any]:
    """The cache's own table, by its own keys, of results, or of links to them.

    Only the garbage collector is told of it. It stays the same dict for good; of a bounded cache
    that is empty another empty one is given.
    """
    tables = [r for r in gc.get_referents(cache) if type(r) is dict and r is not cache.__dict__]
    if not _is_bounded(cache):
        found: dict[Any, Any] = tables[0]
        return found
    return next(
        (table for table in tables if table and all(map(_is_link, list(table.values())))), {}
    )


class Held:
    """The results that a cache holds, by its keys."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def __getitem__(self, key: Any) -> Any:
        return self.results()[key]

    def results(self) -> dict[Any, Any]:
        """All results. Links of a bounded cache show theirs beside the table, key before result."""
        table = table_of(self.cache)
        if not _is_bounded(self.cache):
            return dict(table)
        types = {id(type(value)) for value in (self.cache, *list(table.values()))}
        found: list[Any] = []
        for referent in gc.get_referents(self.cache) if table else ():
            if referent is table:
                break
            if id(referent) not in types:  # of the cache and its links; a result may be a type
                found.append(referent)
        by_key = dict(zip(map(id, found[::2]), found[1::2], strict=False))
        # Another thread may have changed the table meanwhile.
        return {key: by_key[id(key)] for key in list(table) if id(key) in by_key}

    def has_other(self, results: dict[Any, Any]) -> bool:
        """True if other results are held than these."""
        now = self.results()
        return now.keys() != results.keys() or any(now[k] is not v for k, v in results.items())

    def put_back(self, results: dict[Any, Any]) -> None:
        """Forget what is held beside these."""
        if not results:
            self.cache.cache_clear()
            return
        table = table_of(self.cache)
        for key in [k for k in list(table) if k not in results]:
            table.pop(key, None)  # of a bounded cache the link stays behind, and is the next to go


def _is_bounded(cache: Any) -> bool:
    return cache.cache_parameters()["maxsize"] is not None


def _is_link(value: Any) -> bool:
    return type(value).__name__ == "_lru_list_elem"
