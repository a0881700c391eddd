"""Size: an integer that notes when Python code decides something by it.

A trace that shall serve all sizes is made once more at a size far from any real one, with the sizes
that follow from it as objects of this class. Code that compares them, computes remainders or leaves
the integers could take another way at a third size, which two traces cannot show. A float on the
left of an operator reads them unseen.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from lucid import _C

__all__ = ["Size", "marking"]

_PACKAGE = os.path.dirname(_C.__file__) + os.sep


class _Notes(threading.local):
    size = 0
    places: list[str] | None = None


_notes = _Notes()


class Size(int):
    """A size that follows from the marked one; sums and products of it are too."""

    def __index__(self) -> int:
        """Asked by ``len`` of a tensor only: the result is a plain integer."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        if frame is not None:
            _note(frame)
        return int.__add__(self, 0)


def _note(frame: FrameType) -> None:
    """Note the user's line; the package's own code is checked by what it records."""
    file = frame.f_code.co_filename
    if _notes.places is not None and not file.startswith(_PACKAGE):
        _notes.places.append(f"{file}:{frame.f_lineno}")


def _is_settled(size: int, other: Any, is_equal: bool) -> bool:
    """True for a comparison that comes out alike at all sizes from 2 on."""
    if isinstance(other, Size):
        return is_equal  # both follow from the size in the same way
    if not isinstance(other, int):
        return True
    return int.__eq__(size, _notes.size) and other <= 1


def _sum(name: str) -> Callable[[int, Any], Any]:
    plain = getattr(int, name)

    def method(self: int, other: Any) -> Any:
        result = plain(self, other)
        if isinstance(other, float):
            _note(sys._getframe(1))
        return result if result is NotImplemented else Size(result)

    return method


def _comparison(name: str) -> Callable[[int, Any], Any]:
    plain = getattr(int, name)

    def method(self: int, other: Any) -> Any:
        if not _is_settled(self, other, int.__eq__(self, other) is True):
            _note(sys._getframe(1))
        return plain(self, other)

    return method


def _decision(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def method(self: int, *others: Any) -> Any:
        is_truth = name == "__bool__" and int.__eq__(self, _notes.size)
        if not is_truth:
            _note(sys._getframe(1))
        return plain(self, *others)

    return method


_SUMS = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__")
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_DECISIONS = (
    *("__abs__", "__and__", "__bool__", "__divmod__", "__float__", "__floordiv__", "__hash__"),
    *("__int__", "__invert__", "__lshift__", "__mod__", "__or__", "__pow__", "__rand__"),
    *("__rdivmod__", "__rfloordiv__", "__rlshift__", "__rmod__", "__ror__", "__rpow__"),
    *("__rrshift__", "__rshift__", "__rtruediv__", "__rxor__", "__truediv__", "__xor__"),
)
for _names, _make in ((_SUMS, _sum), (_COMPARISONS, _comparison), (_DECISIONS, _decision)):
    for _name in _names:
        setattr(Size, _name, _make(_name))


@contextlib.contextmanager
def marking(size: int | None) -> Iterator[list[str]]:
    """Mark this thread's sizes from half of ``size`` on; gives the lines that decide by them.

    None marks nothing: small sizes cannot be told from others.
    """
    places: list[str] = []
    if size is None:
        yield places
        return
    _notes.size, _notes.places = size, places
    _C.mark_sizes(Size, size // 2)
    try:
        yield places
    finally:
        _C.mark_sizes(None)
        _notes.places = None
