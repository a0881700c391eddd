"""Objects that move on when they are asked: random generators, queues and caches of results."""

from __future__ import annotations

import queue
import random
from typing import Any

import numpy

from lucid._C import Generator
from lucid.compile.caches import Held, is_cache
from lucid.compile.freeze import freeze

__all__ = ["GLOBAL_GENERATORS", "Mover", "global_generators", "is_mover"]

#: What messages call the generators behind the functions of ``random`` and of ``numpy.random``.
GLOBAL_GENERATORS = ("Python's random generator", "NumPy's random generator")

_NUMPY = (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)


def is_mover(value: Any) -> bool:
    """True for an object that :class:`Mover` knows and that a trace may not move."""
    if isinstance(value, random.SystemRandom):
        return False  # has no state
    return isinstance(value, (random.Random, queue.Queue, *_NUMPY)) or is_cache(value)


def global_generators() -> list[Mover]:
    """The generators that all code of the process shares."""
    owners: list[Any] = [random.getstate, numpy.random.get_state]
    return [
        Mover(name, owner.__self__) for name, owner in zip(GLOBAL_GENERATORS, owners, strict=True)
    ]


class Mover:
    """One such object, and how it stood when this was made."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self._value = Held(value) if is_cache(value) else value
        self._before = self._state()

    def has_moved(self) -> bool:
        """True if it has been asked since."""
        if isinstance(self._value, Held):
            return self._value.has_other(self._before)
        if isinstance(self._value, queue.Queue):
            return list(map(id, self._state())) != list(map(id, self._before))
        if isinstance(self._value, random.Random):
            return bool(self._state() != self._before)
        return bool(freeze(self._state()) != freeze(self._before))

    def put_back(self) -> None:
        """Let it stand as it did."""
        value = self._value
        if isinstance(value, Held):
            value.put_back(self._before)
        elif isinstance(value, random.Random):
            value.setstate(self._before)
        elif isinstance(value, queue.Queue):
            with value.mutex:
                value.queue.clear()
                value.queue.extend(self._before)
        elif isinstance(value, (numpy.random.RandomState, Generator)):
            value.set_state(self._before)
        else:
            getattr(value, "bit_generator", value).state = self._before

    def _state(self) -> Any:
        value = self._value
        if isinstance(value, Held):
            return value.results()
        if isinstance(value, random.Random):
            return value.getstate()
        if isinstance(value, queue.Queue):
            return list(value.queue)
        if isinstance(value, numpy.random.RandomState):
            return value.get_state(legacy=False)
        if isinstance(value, Generator):
            return value.get_state()
        return getattr(value, "bit_generator", value).state
