"""What lies outside of a trace and can be changed by it, as it was, to be compared and put back."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._C import Tensor, default_generator
from lucid.autograd import no_grad
from lucid.compile.freeze import Contents, can_change, freeze
from lucid.compile.movers import Mover, global_generators
from lucid.compile.reach import STRUCTURE, Reach, plain_attributes

__all__ = ["Before", "OutsideState", "TensorStates"]


class OutsideState:
    """Attributes, containers, foreign generators and caches as they were."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._attributes = [(m, dict(plain_attributes(m))) for m in reach.modules]
        self._frozen = [
            {k: freeze(v, True) for k, v in attributes.items()}
            for _, attributes in self._attributes
        ]
        self._structure = [
            (m, kind, dict(getattr(m, kind))) for m in reach.modules for kind in STRUCTURE
        ]
        self._places = [(p, p.get(), freeze(p.get(), True)) for p in reach.places]
        containers = [v for _, attributes in self._attributes for v in attributes.values()]
        containers += [value for _, value, _ in self._places]
        self._contents = Contents([v for v in containers if can_change(v)])
        self._movers = [Mover(f"variable {place.name}", place.get()) for place in reach.movers]
        self._movers += global_generators()

    def write_buffers(self) -> None:
        """Turn buffers that were assigned a computed value into writes of the old ones.

        Until the forward is over the old tensor keeps its value: the forward may hold it. One of
        another type stays: it is a difference.
        """
        for module, kind, entries in self._structure:
            for key, old in entries.items() if kind == "_buffers" else ():
                new = module._buffers.get(key)
                if new is old or new is None or old is None or not new.is_symbolic:
                    continue
                if _type_of(new) == _type_of(old):
                    module._buffers[key] = old
                    with no_grad():
                        old.assign_(new.detach())

    def difference(self) -> str | None:
        """What the trace changed outside of tensors, or None."""
        for module, kind, entries in self._structure:
            now = getattr(module, kind)
            if list(now) != list(entries):
                return f"{kind[1:]} of {type(module).__name__}"
            for key, value in entries.items():
                if now[key] is not value:
                    return f"{kind[1:]} of {type(module).__name__}: {key}"
        for (module, _), frozen in zip(self._attributes, self._frozen, strict=True):
            now = {k: freeze(v, True) for k, v in plain_attributes(module).items()}
            for key in {**frozen, **now}:
                if frozen.get(key) != now.get(key):
                    return f"attribute {type(module).__name__}.{key}"
        for place, _, before in self._places:
            if freeze(place.get(), True) != before:
                return f"variable {place.name}"
        if self._contents.has_long_changed():
            return "a container of many items"
        for mover in self._movers:
            if mover.has_moved():
                return mover.name
        return None

    def restore(self) -> None:
        """Put everything back."""
        self._contents.restore()
        for module, kind, entries in self._structure:
            known = getattr(module, kind)
            if list(map(id, known.values())) != list(map(id, entries.values())):
                known.clear()
                known.update(entries)
        _C.bump_state()
        for module, attributes in self._attributes:
            for key in [k for k in plain_attributes(module) if k not in attributes]:
                del module.__dict__[key]
            module.__dict__.update(attributes)
        for place, value, _ in self._places:
            if place.get() is not value:
                place.put(value)
        for mover in self._movers:
            mover.put_back()


def _type_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


class TensorStates:
    """Values, gradients and ``requires_grad`` of tensors as they were.

    A value costs no memory as long as its tensor keeps it.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        distinct = list({id(t): t for t in tensors if not t.is_symbolic}.values())
        self._leaves = [(t, t.requires_grad, t.grad) for t in distinct if t.is_leaf]
        distinct += [gradient for _, _, gradient in self._leaves if gradient is not None]
        # A view is written through to its base: bases first.
        distinct.sort(key=lambda tensor: tensor._is_view)
        self._values = [(t, t._version, t._holding()) for t in distinct]
        self._with_history = {id(t) for t in distinct if not t.is_leaf}

    def restore(self) -> None:
        """Put back what has changed."""
        for tensor, version, value in self._values:
            if tensor._version == version:
                continue
            if tensor._is_view or id(tensor) in self._with_history:
                with no_grad():
                    tensor.detach().assign_(value)
            else:
                tensor.data = value  # which drops what history it was given
        for tensor, requires_grad, gradient in self._leaves:
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad = requires_grad
            if tensor.grad is not gradient:
                tensor.grad = gradient


class Before:
    """All that the user's code can change when it runs, as it was."""

    def __init__(self, roots: tuple[Any, ...], args: tuple[Any, ...], leaves: list[Tensor]) -> None:
        reach = Reach(*roots)
        #: False if the code reads an iterator, which nothing puts back.
        self.is_whole = not reach.iterators
        self._state = OutsideState(reach)
        self._contents = Contents([*args, *map(vars, reach.objects)])
        found = [place.get() for places in reach.tensors.values() for place in places]
        self._tensors = TensorStates(
            [*leaves, *(tensor for tensor in found if isinstance(tensor, Tensor))]
        )
        generators = [default_generator, *reach.generators]
        self._generators = [(generator, generator.get_state()) for generator in generators]

    def difference(self) -> str | None:
        """What the code can read has changed, but for values of tensors; or None."""
        return self._state.difference()

    def restore(self) -> None:
        """Put everything back."""
        self._state.restore()
        self._contents.restore()
        self._tensors.restore()
        for generator, state in self._generators:
            if generator.get_state() != state:
                generator.set_state(state)
