"""Objects that move on when they are asked: random generators of the user's and queues."""

from __future__ import annotations

import queue
import random
from typing import Any

import numpy

from lucid.compile.freeze import freeze

__all__ = ["Mover", "is_mover"]

_NUMPY = (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)


def is_mover(value: Any) -> bool:
    """True for an object that :class:`Mover` knows."""
    if isinstance(value, random.SystemRandom):
        return False  # has no state
    return isinstance(value, (random.Random, queue.Queue, *_NUMPY))


class Mover:
    """One such object, and how it stood when this was made."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self._value = value
        self._before = self._state()

    def has_moved(self) -> bool:
        """True if it has been asked since."""
        if isinstance(self._value, queue.Queue):
            return list(map(id, self._state())) != list(map(id, self._before))
        return bool(freeze(self._state()) != freeze(self._before))

    def put_back(self) -> None:
        """Let it stand as it did."""
        value = self._value
        if isinstance(value, random.Random):
            value.setstate(self._before)
        elif isinstance(value, queue.Queue):
            with value.mutex:
                value.queue.clear()
                value.queue.extend(self._before)
        elif isinstance(value, numpy.random.RandomState):
            value.set_state(self._before)
        else:
            getattr(value, "bit_generator", value).state = self._before

    def _state(self) -> Any:
        value = self._value
        if isinstance(value, random.Random):
            return value.getstate()
        if isinstance(value, queue.Queue):
            return list(value.queue)
        if isinstance(value, numpy.random.RandomState):
            return value.get_state(legacy=False)
        return getattr(value, "bit_generator", value).state
