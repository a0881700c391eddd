"""Trees of tensors: flattening the arguments of a step and building them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy

from lucid import _C
from lucid._C import Tensor
from lucid.compile.freeze import freeze
from lucid.nn.packed import PackedSequence

__all__ = ["LEAF", "Keywords", "Structure", "flatten", "leaf_names", "unflatten"]

# The parts of a packed sequence that a step computes with; its batch sizes are numbers.
_PACKED = ("data", "sorted_indices", "unsorted_indices")
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


class Keywords(dict[str, Any]):
    """The keyword arguments of a call, kept apart from a dict given as an argument."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """The shape of a tree: ``kind`` is leaf, static, list, tuple, namedtuple, packed, dict,
    keywords or dataclass.

    ``value`` is the static value, the keys of a dict, the class of a named tuple, the class and the
    names of the fields of a dataclass, or the batch sizes of a packed sequence.
    """

    kind: str
    value: Any = None
    children: tuple[Structure, ...] = ()


#: A tensor alone.
LEAF = Structure("leaf")


def flatten(value: Any, what: str, leaves: list[Tensor], is_result: bool = False) -> Structure:
    """Append the tensors of ``value`` to ``leaves`` and return its structure.

    Args:
        is_result: dataclasses count as containers, too, since each call makes them anew. As
            arguments they do not: the code could write to their fields unseen.

    Raises: ArgumentTypeError for a NumPy array or an object that is no container.
    """
    if isinstance(value, Tensor):
        leaves.append(value)
        return LEAF
    if isinstance(value, _SCALARS):
        return Structure("static", (type(value), repr(value), value))
    if is_result and _is_made_of_fields(value):
        names = tuple(field.name for field in dataclasses.fields(value))
        parts = [(f"{what}.{name}", getattr(value, name)) for name in names]
        children = tuple(flatten(v, n, leaves, is_result) for n, v in parts)
        return Structure("dataclass", (type(value), names), children)
    if isinstance(value, PackedSequence):
        fields = {name: getattr(value, name) for name in _PACKED}
        children = tuple(flatten(v, f"{what}.{n}", leaves, is_result) for n, v in fields.items())
        return Structure("packed", tuple(value.sizes()), children)
    if isinstance(value, (list, tuple)):
        children = tuple(flatten(v, f"{what}[{i}]", leaves, is_result) for i, v in enumerate(value))
        if isinstance(value, list):
            return Structure("list", None, children)
        is_named = hasattr(value, "_fields")
        return Structure("namedtuple" if is_named else "tuple", type(value), children)
    if isinstance(value, dict):
        children = tuple(flatten(v, f"{what}[{k!r}]", leaves, is_result) for k, v in value.items())
        kind = "keywords" if isinstance(value, Keywords) else "dict"
        return Structure(kind, tuple(value), children)
    kind = "NumPy array" if isinstance(value, numpy.ndarray) else type(value).__name__
    raise _C.ArgumentTypeError(
        f"step: {what} must be a Tensor, a number or a list, tuple or dict of them: got {kind}; "
        "convert it with lucid.tensor or lucid.from_numpy"
    )


def _is_made_of_fields(value: Any) -> bool:
    """True for a dataclass that its class makes of its fields alone."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    fields = dataclasses.fields(value)
    names = {field.name for field in fields}
    if not (all(field.init for field in fields) and names >= set(getattr(value, "__dict__", ()))):
        return False
    held = {name: getattr(value, name) for name in names}
    before = freeze(held, tensors_by_identity=True)
    try:
        again = type(value)(**held)
    except Exception:  # an __init__ of its own, or an InitVar
        return False
    is_same = all(getattr(again, name) is part for name, part in held.items())
    return is_same and bool(freeze(held, tensors_by_identity=True) == before)


def leaf_names(structure: Structure, what: str) -> list[str]:
    """What messages call the tensors of a tree that they call ``what``, in order."""
    if structure.kind == "leaf":
        return [what]
    names = []
    if structure.kind == "packed":
        for name, child in zip(_PACKED, structure.children, strict=True):
            names += leaf_names(child, f"{what}.{name}")
        return names
    keys = (
        structure.value
        if structure.kind in ("dict", "keywords")
        else range(len(structure.children))
    )
    for key, child in zip(keys, structure.children, strict=True):
        names += leaf_names(child, f"{what}[{key!r}]")
    return names


def unflatten(structure: Structure, next_leaf: Callable[[], Any]) -> Any:
    """Build the tree again, with ``next_leaf()`` for each tensor in order."""
    kind = structure.kind
    if kind == "leaf":
        return next_leaf()
    if kind == "static":
        return structure.value[2]
    children = [unflatten(child, next_leaf) for child in structure.children]
    if kind in ("dict", "keywords"):
        made = dict if kind == "dict" else Keywords
        return made(zip(structure.value, children, strict=True))
    if kind == "namedtuple":
        return structure.value(*children)
    if kind == "dataclass":
        class_, names = structure.value
        return class_(**dict(zip(names, children, strict=True)))
    if kind == "packed":
        return PackedSequence.of_sizes(structure.value, *children)
    return children if kind == "list" else tuple(children)
