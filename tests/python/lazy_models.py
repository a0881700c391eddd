"""Models whose first call fills a cache: all the ways in which that is written."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
from lucid import Tensor


def triangle(size: int, like: Tensor) -> Tensor:
    return lucid.tril(lucid.ones(size, size, device=like.device))


def ramp(size: int, device: Any = "cpu") -> Tensor:
    return lucid.arange(size, device=device).float()


class Cached(nn.Module):
    """A linear layer; the subclasses combine its output with something that they keep."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.kept: Any = None
        self.by_size: dict[Any, Any] = {}
        self.listed: list[Tensor] = []


class AttributeThatIsNone(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = triangle(4, x)
        return self.linear(x) @ self.kept


class AttributeThatIsMissing(Cached):
    def forward(self, x: Tensor) -> Tensor:
        try:
            table = self.table
        except AttributeError:
            table = self.table = ramp(4, x.device).sin()
        return self.linear(x) + table


class PairOfTables(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = (ramp(4, x.device).sin(), ramp(4, x.device).cos())
        sine, cosine = self.kept
        return self.linear(x) * sine + cosine


class Property(Cached):
    @functools.cached_property
    def table(self) -> Tensor:
        return ramp(4, self.linear.weight.device).cos()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.table


class DictBySize(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] not in self.by_size:
            self.by_size[x.shape[0]] = triangle(x.shape[0], x)
        return self.by_size[x.shape[0]] @ self.linear(x)


class OrderedDictBySize(Cached):
    def __init__(self) -> None:
        super().__init__()
        self.by_size = OrderedDict()

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[0]
        return self.by_size.setdefault(size, triangle(size, x)) @ self.linear(x)


class DefaultDict(Cached):
    def __init__(self) -> None:
        super().__init__()
        self.by_size = defaultdict(lambda: ramp(4, self.linear.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.by_size[x.dtype]


class List(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if not self.listed:
            self.listed.append(ramp(4, x.device))
        return self.linear(x) * self.listed[0]


class OfTheClass(Cached):
    table: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if OfTheClass.table is None:
            OfTheClass.table = ramp(4, x.device)
        return self.linear(x) * OfTheClass.table


TABLES: dict[Any, Tensor] = {}


class OfTheModule(Cached):
    def forward(self, x: Tensor) -> Tensor:
        key = (x.shape[1], x.dtype)
        if key not in TABLES:
            TABLES[key] = ramp(4, x.device)
        return self.linear(x) * TABLES[key]


class Rotary(Cached):
    """Registers a longer buffer where the one that it has is too short."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 2
        self.register_buffer("cosine", ramp(2).cos().reshape(2, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[0]
        if size > self.longest:
            self.longest = size
            cosine = ramp(size, x.device).cos().reshape(size, 1)
            self.register_buffer("cosine", cosine, persistent=False)
        return self.linear(x) * self.cosine[:size]


class BufferReplaced(Cached):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", lucid.ones(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.mask.shape[0] != x.shape[0]:
            self.mask = triangle(x.shape[0], x)
        return self.mask @ self.linear(x)


class BufferThatIsNone(Cached):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = triangle(4, x)
        return self.linear(x) @ self.mask


class LastSize(Cached):
    """Keeps one mask, for the size of the last call."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None or self.kept.shape[0] != x.shape[0]:
            self.kept = triangle(x.shape[0], x)
        return self.kept @ self.linear(x)


class NumpyTable(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            table = np.sin(np.arange(4, dtype=np.float32))
            self.kept = lucid.from_numpy(table).to(x.device)
        return self.linear(x) + self.kept


class Layer(Cached):
    """Makes a layer when it knows the width."""

    def __init__(self) -> None:
        super().__init__()
        self.head: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.head is None:
            self.head = nn.Linear(x.shape[1], 3).to(x.device)
        return self.head(F.dropout(self.linear(x), 0.5))


class Noise(Cached):
    """Draws once, between draws of each call."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.linear(x), 0.5)
        if self.kept is None:
            self.kept = lucid.randn(4, device=x.device)
        return F.dropout(y * self.kept, 0.5)


class FirstBatch(Cached):
    """Sets a parameter by the first batch, beside running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.shift = nn.Parameter(lucid.zeros(4))
        self.is_set = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.linear(x))
        if not self.is_set:
            with lucid.no_grad():
                self.shift.copy_(y.mean(0) * -2 + 1)
            self.is_set = True
        return y + self.shift


class Notes(Cached):
    """Notes what it has seen: the same at each call of one signature."""

    def forward(self, x: Tensor) -> Tensor:
        self.has_run = True
        self.seen_shape = tuple(x.shape)
        return self.linear(x)


@functools.cache
def rotation(size: int, device: Any) -> tuple[Tensor, Tensor]:
    return ramp(size, device).sin(), ramp(size, device).cos()


@functools.lru_cache(maxsize=8)
def mask_of(size: int, *, device: Any) -> Tensor:
    return lucid.tril(lucid.ones(size, size, device=device))


@functools.lru_cache
def settings() -> dict[str, float]:
    return {"scale": 2.0}


@functools.lru_cache(maxsize=1)
def only_one(size: int, device: Any) -> Tensor:
    return ramp(size, device).reshape(size, 1)


class CacheOfPairs(Cached):
    def forward(self, x: Tensor) -> Tensor:
        sine, cosine = rotation(4, x.device.type)
        return self.linear(x) * sine + cosine


class CacheBySize(Cached):
    def forward(self, x: Tensor) -> Tensor:
        return mask_of(x.shape[0], device=x.device.type) @ self.linear(x)


class CacheOfOne(Cached):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * only_one(x.shape[0], x.device.type)


class CachedMethod(Cached):
    @functools.lru_cache(maxsize=8)  # noqa: B019 (as users write it)
    def table(self, size: int) -> Tensor:
        return ramp(size, self.linear.weight.device) * settings()["scale"]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.table(4)


class CachedNoise(Cached):
    @functools.lru_cache(maxsize=8)  # noqa: B019 (as users write it)
    def noise(self, size: int) -> Tensor:
        return lucid.randn(size, device=self.linear.weight.device)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(x), 0.5) * self.noise(4)


class Helper:
    """No module: its table is a property that is computed once."""

    def __init__(self, device: Any) -> None:
        self.device = device

    @functools.cached_property
    def table(self) -> Tensor:
        return ramp(4, self.device).exp()

    def spare(self) -> Tensor:
        try:
            found: Tensor = self.made
        except AttributeError:
            found = self.made = ramp(4, self.device)
        return found


class PropertyOfAnObject(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = Helper(x.device)
        return self.linear(x) * self.kept.table + self.kept.spare()


MODELS: list[type[Cached]] = [
    AttributeThatIsNone,
    AttributeThatIsMissing,
    PairOfTables,
    Property,
    DictBySize,
    OrderedDictBySize,
    DefaultDict,
    List,
    OfTheClass,
    OfTheModule,
    Rotary,
    BufferReplaced,
    BufferThatIsNone,
    LastSize,
    NumpyTable,
    Layer,
    Noise,
    FirstBatch,
    Notes,
    CacheOfPairs,
    CacheBySize,
    CacheOfOne,
    CachedMethod,
    CachedNoise,
    PropertyOfAnObject,
]
CACHES: list[Any] = [rotation, mask_of, settings, only_one, CachedMethod.table, CachedNoise.noise]


def empty_caches() -> None:
    """Empty what outlives a model."""
    OfTheClass.table = None
    TABLES.clear()
    for cache in CACHES:
        cache.cache_clear()
