"""The signature of a traced step: what must still hold for its executable to be right."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.freeze import freeze, is_container
from lucid.compile.reach import Place, Reach, Watched, plain_attributes
from lucid.nn.modules.module import Module

__all__ = ["Signature"]

# Attributes whose changes the module's own methods count.
_COUNTED = (
    "training",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_non_persistent_buffers_set",
)


class _ModuleState:
    """The children, the training flag, hooks and attributes of one module, as they were."""

    def __init__(self, module: Module, was_called: bool) -> None:
        self.module = module
        self.was_called = was_called
        self.taken = self._take()

    def _take(self) -> dict[str, Any]:
        state = {f"children.{k}": freeze(v) for k, v in self.module._modules.items()}
        for kind in ("_parameters", "_buffers"):
            for key, value in getattr(self.module, kind).items():
                state[f"{kind}.{key}"] = value is None
        if self.was_called:
            for key, value in plain_attributes(self.module).items():
                state[key] = freeze(value)
        return state

    def difference(self) -> str | None:
        """The name of a part that is no longer the same, or None."""
        now = self._take()
        if now == self.taken:
            return None
        for key in {**self.taken, **now}:
            if self.taken.get(key, _ABSENT) != now.get(key, _ABSENT):
                return f"{type(self.module).__name__}.{key}"
        return f"{type(self.module).__name__}: order of its parts"


_ABSENT = object()


class Signature:
    """What a trace depended on beside its arguments.

    Two speeds: :meth:`holds` is asked at each call and compares only what no counter sees;
    :meth:`difference` and :meth:`captures` are asked when the modules' version has moved.
    """

    def __init__(self, reach: Reach, called: list[Module], captured: list[Tensor]) -> None:
        by_id = {id(m): m for m in called}
        self._modules = [_ModuleState(m, id(m) in by_id) for m in reach.modules]
        self._places = [Watched(place) for place in reach.places]
        self._containers = [
            Watched(Place(module.__dict__, key, "item", f"{type(module).__name__}.{key}"))
            for module in called
            for key, value in plain_attributes(module).items()
            if key not in _COUNTED and is_container(value)
        ]
        self._paths = [self._paths_to(reach, tensor) for tensor in captured]
        self._compared = self._places + self._containers

    @staticmethod
    def _paths_to(reach: Reach, tensor: Tensor) -> list[Place]:
        paths = reach.tensors.get(tensor._cell_id)
        if paths:
            return paths
        raise _C.TraceError(
            f"make_step: the step read a tensor of shape {tensor.shape} that no parameter, buffer, "
            "attribute, closure or global leads to, so it could not be fetched at the next call; "
            "pass it as an argument of the step or register it as a buffer"
        )

    def holds(self) -> bool:
        """True while nothing has changed that no counter sees."""
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

    def refresh(self) -> None:
        """Take the watched places as they are now: called after a successful rebind."""
        for watched in self._compared:
            watched.take()
