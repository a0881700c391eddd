"""Comparable copies of Python values: how the signature sees what it cannot count."""

from __future__ import annotations

import dataclasses
import struct
import types
from typing import Any

import numpy

from lucid._C import Tensor

__all__ = ["MAX_DEPTH", "MAX_ITEMS", "freeze", "is_container"]

MAX_DEPTH = 3
# Longer containers are told apart by identity only: comparing them at each call would be slow.
MAX_ITEMS = 1000

_IMMUTABLE = (bool, int, str, bytes, type(None))


def is_container(value: Any) -> bool:
    """True for values that can change without being replaced, and that are looked into."""
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_record or isinstance(value, (list, dict, set))


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

    Numbers and strings by type and bits, tuples, lists, dicts and dataclasses by content down to
    ``depth``, everything else by identity. Tensors are fetched anew at each run, so any tensor
    equals any other unless ``tensors_by_identity``.
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
    if depth == 0:
        return _Same(value)
    if isinstance(value, (tuple, list, dict, set)) and len(value) > MAX_ITEMS:
        return _Same(value)
    if isinstance(value, set):
        return (set, frozenset(value))
    if isinstance(value, (tuple, list)):
        items = [freeze(v, tensors_by_identity, depth - 1) for v in value]
        return (type(value), items)
    if isinstance(value, dict):
        pairs = [(_key(k), freeze(v, tensors_by_identity, depth - 1)) for k, v in value.items()]
        return (dict, pairs)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        fields = [freeze(getattr(value, n, None), tensors_by_identity, depth - 1) for n in names]
        return (type(value), fields)
    return _Same(value)


def _key(key: Any) -> Any:
    return (type(key), key) if isinstance(key, (str, int, tuple)) else _Same(key)
