"""The signature of a traced step: what must still hold for its executable to be right."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.freeze import can_change, freeze
from lucid.compile.reach import Place, Reach, Watched, plain_attributes
from lucid.nn.modules.hooks import HOOKS
from lucid.nn.modules.module import Module

__all__ = ["Signature", "describe_tensor"]

# Attributes whose changes the module's own methods count.
_COUNTED = ("training", "_non_persistent_buffers_set", *HOOKS)


class _ModuleState:
    """The children, the training flag, hooks and attributes of one module, as they were.

    Of a module that was not called only what the code found reads of any object.
    """

    def __init__(self, module: Module, was_called: bool, names: set[str]) -> None:
        self.module = module
        self.was_called = was_called
        self.names = names
        self.taken = self._take()

    def reads(self, key: str) -> bool:
        """True if the trace may have read that attribute."""
        return self.was_called or key in self.names

    def _take(self) -> dict[str, Any]:
        state = {f"children.{k}": freeze(v) for k, v in self.module._modules.items()}
        state["__class__"] = type(self.module)
        for kind in ("_parameters", "_buffers"):
            for key, value in getattr(self.module, kind).items():
                state[f"{kind}.{key}"] = value is None
        for key, value in plain_attributes(self.module).items():
            if self.reads(key):
                state[key] = freeze(value)
        return state

    def difference(self) -> str | None:
        """The name of a part that is no longer the same, or None."""
        now = self._take()
        if now == self.taken:
            return None
        for key in {**self.taken, **now}:
            if self.taken.get(key, _ABSENT) != now.get(key, _ABSENT):
                return _name_of_part(type(self.module).__name__, key)
        return f"{type(self.module).__name__}: order of its parts"


_ABSENT = object()


def _name_of_part(module: str, key: str) -> str:
    """How messages call what :class:`_ModuleState` has under ``key``."""
    kind, _, name = key.rpartition(".")
    if kind == "children":
        return f"child {name} of {module}"
    if key in HOOKS:
        return f"{key[1:-1].replace('_', ' ')} of {module}"
    return f"{module}.{name}"


def describe_tensor(tensor: Tensor) -> dict[str, Any]:
    """What a signature fixes of one tensor."""
    return {
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "device": tensor.device,
        "requires_grad": tensor.requires_grad,
    }


def _description_at(place: Place) -> dict[str, Any] | None:
    value = place.get()
    return describe_tensor(value) if isinstance(value, Tensor) else None


class Signature:
    """What a trace depended on beside its arguments.

    Two speeds: :meth:`holds` is asked at each call and compares only what no counter sees;
    :meth:`difference` and :meth:`captures` are asked when the modules' version has moved.
    """

    def __init__(
        self, reach: Reach, called: list[Module], captured: list[Tensor], what: str
    ) -> None:
        by_id = {id(m): m for m in called}
        self._modules = [_ModuleState(m, id(m) in by_id, reach.names) for m in reach.modules]
        self._places = [Watched(place) for place in reach.places]
        self._containers = [
            Watched(
                Place(state.module.__dict__, key, "item", f"{type(state.module).__name__}.{key}")
            )
            for state in self._modules
            for key, value in plain_attributes(state.module).items()
            if key not in _COUNTED and can_change(value) and state.reads(key)
        ]
        self._paths = [self._paths_to(reach, tensor, what) for tensor in captured]
        self._tensors = []  # for messages
        for paths, tensor in zip(self._paths, captured, strict=True):
            found = paths[0].get()
            self._tensors.append(describe_tensor(found if isinstance(found, Tensor) else tensor))
        self._looked_at = [
            (place, _description_at(place)) for place in reach.tensors_looked_at(captured)
        ]
        self._compared = self._places + self._containers
        self._sort()

    def _sort(self) -> None:
        """Part what is watched by how it is compared: most of it by identity, by its holder."""
        self._items: list[tuple[Any, Any, Any]] = []
        self._attributes: list[tuple[Any, str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._by_content: list[Watched] = []
        for watched in self._compared:
            place, value = watched.place, watched.identity()
            if value is Watched or place.kind == "context":
                self._by_content.append(watched)
            elif place.kind == "cell":
                self._cells.append((place.holder, value))
            elif place.kind == "attribute":
                self._attributes.append((place.holder, place.key, value))
            else:
                self._items.append((place.holder, place.key, value))

    @staticmethod
    def _paths_to(reach: Reach, tensor: Tensor, what: str) -> list[Place]:
        paths = reach.tensors.get(tensor._cell_id)
        if paths:
            return paths
        raise _C.TraceError(
            f"{what}: the step read a tensor of shape {tensor.shape} that no parameter, buffer, "
            "attribute, closure or global leads to, so it could not be fetched at the next call; "
            "pass it as an argument of the step or register it as a buffer"
        )

    def holds(self) -> bool:
        """True while nothing has changed that no counter sees."""
        try:
            for mapping, key, value in self._items:
                if mapping.get(key, Place) is not value:
                    return self._holds_by_content()
            for holder, name, value in self._attributes:
                if getattr(holder, name, Place) is not value:
                    return self._holds_by_content()
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return self._holds_by_content()
        except ValueError:  # an empty cell
            return False
        for watched in self._by_content:
            if not watched.holds():
                return False
        return True

    def _holds_by_content(self) -> bool:
        return all(watched.holds() for watched in self._compared)

    def difference(self) -> str | None:
        """The name of what has changed so that the trace no longer stands, or None."""
        for module in self._modules:
            found = module.difference()
            if found is not None:
                return found
        for watched in self._compared:
            if not watched.means_the_same():
                return watched.place.name
        for place, description in self._looked_at:
            if _description_at(place) != description:
                return place.name
        return None

    def captures(self) -> list[Tensor] | None:
        """The tensors that the captured paths lead to now; None if two paths part or meet."""
        found: list[Tensor] = []
        for paths in self._paths:
            tensors = [path.get() for path in paths]
            first = tensors[0]
            if not isinstance(first, Tensor) or any(t is not first for t in tensors):
                same_cell = isinstance(first, Tensor) and all(
                    isinstance(t, Tensor) and t._cell_id == first._cell_id for t in tensors
                )
                if not same_cell:
                    return None
            found.append(first)
        if len({t._cell_id for t in found}) != len(set(map(id, self._paths))):
            return None
        return found

    def fits(self, captures: list[Tensor]) -> bool:
        """True if the captured tensors are of the types that the trace saw."""
        return [describe_tensor(tensor) for tensor in captures] == self._tensors

    def tensor_difference(self, captures: list[Tensor]) -> str:
        """What is not the same of which captured tensor."""
        for paths, before, tensor in zip(self._paths, self._tensors, captures, strict=True):
            for field, value in describe_tensor(tensor).items():
                if value != before[field]:
                    return f"{field} of {paths[0].name}"
        return "order of tensors"

    def refresh(self) -> None:
        """Take the watched places as they are now: called after a successful rebind."""
        for watched in self._compared:
            watched.take()
        self._sort()
