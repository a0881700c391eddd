"""Comparable copies of Python values: how the signature sees what it cannot count."""

from __future__ import annotations

import array
import copy
import dataclasses
import struct
import threading
import types
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy

from lucid._C import Tensor

__all__ = ["MAX_DEPTH", "MAX_ITEMS", "Contents", "can_change", "freeze"]

MAX_DEPTH = 6
# Longer containers are told apart by identity only: comparing them at each call would be slow.
MAX_ITEMS = 1000

_IMMUTABLE = (bool, int, str, bytes, type(None))
# Numbers side by side.
_ARRAYS = (numpy.ndarray, bytearray, array.array)
# Classes of the standard library around a container, and the attribute that it is.
_AROUND = {UserDict: "data", UserList: "data", ChainMap: "maps"}
# Others of it that are what they answer.
_ANSWERS: dict[type, Callable[[Any], Any]] = {
    ContextVar: lambda variable: variable.get(None),
    threading.Event: threading.Event.is_set,
    types.MappingProxyType: dict,
}


def can_change(value: Any) -> bool:
    """True for values that can change without being replaced, and that are looked into."""
    return _is_container(value) or isinstance(value, (*_ARRAYS, *_AROUND, *_ANSWERS))


def _is_container(value: Any) -> bool:
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_record or isinstance(value, (list, dict, set, deque))


class _Same:
    """Equal only to another wrapper of the same object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def freeze(value: Any, tensors_by_identity: bool = False, depth: int = MAX_DEPTH) -> Any:
    """A copy that compares equal as long as ``value`` means the same to a trace.

    Numbers and strings by type and bits, tuples, lists, dicts, dataclasses and arrays of numbers by
    content down to ``depth``, context variables and events by what they answer, everything else by
    identity. Tensors are fetched anew at each run,
    so any tensor equals any other unless ``tensors_by_identity``.
    """
    if isinstance(value, _IMMUTABLE):
        return (type(value), value)
    if isinstance(value, float):
        return (float, struct.pack("d", value))
    if isinstance(value, Tensor):
        return _Same(value) if tensors_by_identity else (Tensor,)
    if isinstance(value, types.MethodType):  # made anew each time it is asked for
        return (types.MethodType, _Same(value.__func__), _Same(value.__self__))
    if isinstance(value, numpy.generic):
        return (type(value), value.tobytes())
    if isinstance(value, _ARRAYS):
        return _frozen_array(value)
    if depth == 0:
        return _Same(value)
    for kind, name in _AROUND.items():
        if isinstance(value, kind):
            return (type(value), freeze(getattr(value, name), tensors_by_identity, depth))
    for cls, ask in _ANSWERS.items():
        if isinstance(value, cls):
            return (type(value), freeze(ask(value), tensors_by_identity, depth - 1))
    if isinstance(value, (tuple, list, dict, set, deque)) and len(value) > MAX_ITEMS:
        return _Same(value)
    if isinstance(value, set):
        return (set, frozenset(value))
    if isinstance(value, (tuple, list, deque)):
        items = [freeze(v, tensors_by_identity, depth - 1) for v in list(value)]
        return (type(value), items)
    if isinstance(value, dict):
        found = list(value.items())  # other threads may add to it
        pairs = [(_key(k), freeze(v, tensors_by_identity, depth - 1)) for k, v in found]
        return (dict, pairs)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        fields = [freeze(getattr(value, n, None), tensors_by_identity, depth - 1) for n in names]
        return (type(value), fields)
    return _Same(value)


def _frozen_array(value: Any) -> Any:
    """An array of numbers by content; one that is long, or holds objects, by identity."""
    if isinstance(value, numpy.ndarray):
        if value.size > MAX_ITEMS or value.dtype.hasobject:
            return _Same(value)
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    if len(value) > MAX_ITEMS:
        return _Same(value)
    return (type(value), memoryview(value).format, bytes(value))


class Contents:
    """What containers hold, to ``MAX_DEPTH``, as it is when this is made."""

    def __init__(self, values: list[Any]) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        for value in values:
            _copy_into(self._copies, value, MAX_DEPTH)

    def has_long_changed(self) -> bool:
        """True if one that :func:`freeze` tells by its identity alone holds something else."""
        return any(
            not isinstance(value, _ARRAYS) and len(before) > MAX_ITEMS and _differs(value, before)
            for value, before in self._copies.values()
        )

    def restore(self) -> None:
        """Put everything back."""
        for value, before in self._copies.values():
            if isinstance(value, _ARRAYS):
                if _frozen_array(value) != _frozen_array(before):
                    value[:] = before
            elif _differs(value, before):
                _put_back(value, before)


def _differs(container: Any, items: list[Any]) -> bool:
    now = _items_of(container)
    return len(now) != len(items) or any(a is not b for a, b in zip(now, items, strict=True))


def _items_of(container: Any) -> list[Any]:
    """All that a container holds, keys before values."""
    if dataclasses.is_dataclass(container):
        names = [field.name for field in dataclasses.fields(container)]
        container = {n: getattr(container, n) for n in names if hasattr(container, n)}
    if isinstance(container, dict):
        pairs = list(container.items())
        return [*(key for key, _ in pairs), *(value for _, value in pairs)]
    return list(container)


def _copy_into(copies: dict[int, tuple[Any, Any]], value: Any, depth: int) -> None:
    for kind, name in _AROUND.items():
        if isinstance(value, kind):
            value = getattr(value, name)
    is_tuple = isinstance(value, tuple)
    if isinstance(value, _ARRAYS) and numpy.ndim(value) > 0:
        if not isinstance(_frozen_array(value), _Same):
            copies[id(value)] = (value, copy.copy(value))
        return
    if depth == 0 or id(value) in copies or not (is_tuple or _is_container(value)):
        return
    items = _items_of(value)
    if not is_tuple:
        copies[id(value)] = (value, items)
    for item in items if len(items) <= 2 * MAX_ITEMS else ():
        _copy_into(copies, item, depth - 1)


def _put_back(container: Any, items: list[Any]) -> None:
    half = len(items) // 2
    if dataclasses.is_dataclass(container):
        for name, value in zip(items[:half], items[half:], strict=True):
            object.__setattr__(container, name, value)
        return
    container.clear()
    if isinstance(container, dict):
        container.update(zip(items[:half], items[half:], strict=True))
    elif isinstance(container, set):
        container.update(items)
    else:
        container.extend(items)


def _key(key: Any) -> Any:
    return (type(key), key) if isinstance(key, (str, int, tuple)) else _Same(key)
