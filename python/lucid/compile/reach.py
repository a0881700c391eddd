"""What a step can reach: functions, modules and tensors, and the paths that lead to them."""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import io
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from lucid._C import Generator, Tensor
from lucid.autograd import Function
from lucid.compile.caches import Held, is_cache, table_of
from lucid.compile.freeze import MAX_DEPTH, MAX_ITEMS, can_change, freeze
from lucid.compile.movers import is_mover
from lucid.nn.modules.module import Module

__all__ = [
    "KEPT_METHODS",
    "KEPT_STEPS",
    "STRUCTURE",
    "Place",
    "Reach",
    "Rooted",
    "Watched",
    "plain_attributes",
]

# Types of values that cannot change inside.
_FLAT = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, tuple, dict, deque)
# Dictionaries of a module that are no plain attributes.
STRUCTURE = ("_parameters", "_buffers", "_modules")
# Where a model keeps the steps, and an object the methods, that were compiled for it: nothing that
# its code reads.
KEPT_STEPS = "_kept_steps"
KEPT_METHODS = "_kept_methods"
_HIDDEN = (*STRUCTURE, KEPT_STEPS, KEPT_METHODS)


def plain_attributes(module: Module) -> dict[str, Any]:
    """The attributes of a module that are neither parameters, buffers nor modules."""
    return {k: v for k, v in list(module.__dict__.items()) if k not in _HIDDEN}


class Rooted:
    """A compiled callable: in place of its attributes, what it was made of is reached."""

    def _roots(self) -> tuple[Any, ...]:
        """What its code can read is reached from these."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """One place that holds a value: a key of a mapping, an item, a closure cell, an attribute.

    ``holder`` may be the place of the holder: what stands there may be replaced.
    """

    holder: Any
    key: Any
    kind: str  # "item", "cell", "attribute", "context" or, of the table of a cache, "entry"
    name: str  # for messages

    def get(self) -> Any:
        """The value there now; ``Place`` itself where there is none."""
        holder = self.holder.get() if isinstance(self.holder, Place) else self.holder
        try:
            if holder is Place:
                return Place
            if self.kind == "cell":
                return holder.cell_contents
            if self.kind == "attribute":
                return getattr(holder, self.key)
            return holder.get(Place) if self.kind == "context" else holder[self.key]
        except (LookupError, ValueError, AttributeError, TypeError):
            return Place

    def put(self, value: Any) -> None:
        """Put a value there; ``Place`` itself to leave none. Caches are put back as a whole."""
        if self.kind == "entry":
            return
        if self.kind == "context":
            self.holder.set(None if value is Place else value)  # nothing makes it unset again
        elif value is Place:
            self._clear()
        elif self.kind == "cell":
            self.holder.cell_contents = value
        elif self.kind == "attribute":
            setattr(self.holder, self.key, value)
        else:
            self.holder[self.key] = value

    def _clear(self) -> None:
        if self.kind == "cell":
            del self.holder.cell_contents
        elif self.kind == "attribute":
            delattr(self.holder, self.key)
        else:
            del self.holder[self.key]


def _items_in(container: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a container; none of one that is long or is no container."""
    if not isinstance(container, _CONTAINERS) or len(container) > MAX_ITEMS:
        return []
    return list(container.items() if isinstance(container, dict) else enumerate(container))


def _is_ours(function: types.FunctionType) -> bool:
    module: str = function.__globals__.get("__name__", "")
    return module == "lucid" or module.startswith("lucid.")


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions and classes defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)


def _arguments_of(code: types.CodeType, *operations: str) -> Iterator[str]:
    """The names that these operations have in a code and those inside it."""
    for inner in _codes_in(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname in operations:
                yield instruction.argval


def _globals_read(code: types.CodeType) -> Iterator[str]:
    return _arguments_of(code, "LOAD_GLOBAL", "LOAD_NAME")


def _attributes_loaded(code: types.CodeType) -> Iterator[str]:
    return _arguments_of(code, "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")


def _attributes_read(code: types.CodeType) -> Iterator[str]:
    for inner in _codes_in(code):
        yield from inner.co_names


def _modules_imported(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """The modules that a function imports by itself, as far as they are there."""
    package = function.__globals__.get("__package__") or ""
    for imported in _arguments_of(function.__code__, "IMPORT_NAME"):
        for name in (imported, f"{package}.{imported}"):
            if name in sys.modules:
                yield sys.modules[name]


def _attributes_asked_for(code: types.CodeType) -> Iterator[str]:
    """Names in strings, as in ``getattr(options, "gain", 1.0)``."""
    for inner in _codes_in(code):
        for constant in inner.co_consts:
            if isinstance(constant, str) and constant.isidentifier():
                yield constant


def _entries_of(holder: Any) -> dict[str, Any]:
    """What the attributes of an object, class or module lead to."""
    if isinstance(holder, types.ModuleType):
        return vars(holder)
    classes = holder.__mro__ if isinstance(holder, type) else type(holder).__mro__
    entries: dict[str, Any] = {}
    for cls in reversed([c for c in classes if not _is_foreign(c)]):
        entries.update(vars(cls))
    return entries if isinstance(holder, type) else {**entries, **_own_attributes(holder)}


def _slots_of(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _own_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object itself, also those in slots."""
    own = {k: v for k, v in list(getattr(value, "__dict__", {}).items()) if k != KEPT_METHODS}
    for cls in type(value).__mro__:
        if not _is_foreign(cls):
            own.update({n: getattr(value, n) for n in _slots_of(cls) if hasattr(value, n)})
    return own


def _has_attributes(value: Any) -> bool:
    cls = type(value)
    return hasattr(value, "__dict__") or (bool(_slots_of(cls)) and not _is_foreign(cls))


# Methods with special names that no syntax of a traced function calls on an object there is.
_OF_OTHERS = ("__new__", "__init__", "__post_init__", "__del__", "__repr__", "__str__")


def _is_special(name: str, value: Any) -> bool:
    """True for a method that syntax calls without its name, as ``next(it)`` or ``table[0]``."""
    if name == "__call__":
        return True
    is_special = name.startswith("__") and name.endswith("__") and name not in _OF_OTHERS
    return is_special and isinstance(value, types.FunctionType)


def _is_iterator(value: Any) -> bool:
    """True for an iterator whose state nothing tells, as a generator's."""
    return (
        isinstance(value, Iterator)
        and not isinstance(value, io.IOBase)
        and not _has_attributes(value)
    )


def _name_of(holder: Any) -> str:
    """How messages call the holder of an attribute."""
    named = isinstance(holder, (type, types.ModuleType, types.FunctionType)) or is_cache(holder)
    name: str = holder.__name__ if named else type(holder).__name__
    return name.rpartition(".")[2]


def _is_foreign(value: Any) -> bool:
    """True for modules and classes that are no code of the user's: those of installed packages.

    An object is the user's also where its class is not, as argparse.Namespace.
    """
    if not isinstance(value, (type, types.ModuleType)):
        return False
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    top = str(name).partition(".")[0]
    if top == "lucid" or (top in sys.stdlib_module_names and top != "__main__"):
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


class Reach:
    """Walks from the model and the loss function through all that they can read.

    ``modules``: every module found. ``places``: the closure cells, globals, defaults and class
    attributes that plain functions read: nothing counts their changes, so they are compared at
    each call. ``tensors``: by cell, the places that lead to a tensor. ``names``: what attributes
    the functions found read, of whatever object. ``iterators``: places of iterators that they may
    advance. ``movers``: places of random generators, queues and caches. ``generators``: those of
    this package, which a trace may move. ``objects``: all others that have attributes.
    """

    def __init__(self, *roots: Any) -> None:
        self.modules: list[Module] = []
        self.places: list[Place] = []
        self.tensors: dict[int, list[Place]] = {}
        self.iterators: list[Place] = []
        self.movers: list[Place] = []
        self.generators: list[Generator] = []
        self.objects: list[Any] = []
        self._seen: dict[int, Any] = {}
        self.names: set[str] = set()
        self._names_asked: set[str] = set()
        self._loaded: set[str] = set()  # of ``names``, those that are not only set
        self._dotted: set[str] = set()  # of these, those that are not only in strings
        self._stored: set[str] = set()  # of ``names``, those that are set
        self._holders: list[Any] = []  # asked only for what is read
        self._classes: list[type] = []
        self._asked: set[tuple[int, str]] = set()
        for root in roots:
            self._walk(root, MAX_DEPTH + 1)
        while self._ask_holders():
            pass
        for cls in self._classes:
            self._watch_methods(cls)
        for holder in self._holders:
            self._watch_absent(holder)
        attributes = {id(m.__dict__) for m in self.modules}
        self.iterators = [
            p for p in self.iterators if id(p.holder) not in attributes or p.key in self._loaded
        ]

    def tensors_looked_at(self, captured: list[Tensor]) -> list[Place]:
        """Places of tensors that are not captured: the code may have asked for a shape alone."""
        cells = {tensor._cell_id for tensor in captured}
        of_modules = {id(m.__dict__) for m in self.modules}
        of_modules |= {id(m.__dict__.get(name)) for m in self.modules for name in STRUCTURE}
        return [
            place
            for cell, places in self.tensors.items()
            if cell not in cells
            for place in places
            if id(place.holder) not in of_modules or place.key in self._dotted
        ]

    def _enter(self, value: Any) -> bool:
        """True the first time; keeps the value alive so that its id stays its own."""
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = value
        return True

    def _walk(self, value: Any, depth: int, place: Place | None = None) -> None:
        if isinstance(value, Module):
            self._walk_module(value)
        elif isinstance(value, types.FunctionType):
            self._walk_function(value)
        elif isinstance(value, Rooted):
            for root in value._roots() if self._enter(value) else ():
                self._walk(root, depth)
        elif isinstance(value, types.MethodType):
            self._walk(value.__self__, depth)
            self._walk(value.__func__, depth)
        elif is_cache(value):
            self._walk_cache(value)
        elif isinstance(value, weakref.ref):
            self._walk(value(), depth)
        elif isinstance(value, functools.partial):
            self._walk(value.func, depth)
            for key in ("args", "keywords"):
                self._watch(Place(value, key, "attribute", f"partial.{key}"), getattr(value, key))
        elif isinstance(value, ContextVar):
            if self._enter(value):
                self._watch(Place(value, None, "context", value.name), value.get(None))
        elif depth > 0 and self._enter(value):
            self._walk_contents(value, depth, place or value)
        elif depth > 0 and place is not None:
            self._note_tensors(value, place)

    def _walk_cache(self, cache: Any) -> None:
        """Watch the results that a cache holds; they are read where its function is called."""
        if not self._enter(cache):
            return
        self._walk(cache.__wrapped__, MAX_DEPTH)
        name = f"cache of {_name_of(cache)}"
        self.movers.append(Place([cache], 0, "item", name))
        held, table = Held(cache), table_of(cache)
        results = held.results() if len(table) <= MAX_ITEMS else {}
        for key, result in results.items():
            self.places.append(Place(table, key, "entry", name))
            if table.get(key) is not result and can_change(result):  # a link stays where it is
                self.places.append(Place((result,), 0, "item", name))
            self._look(Place(held, key, "item", name), result, MAX_DEPTH)

    def _note_tensors(self, container: Any, place: Place) -> None:
        """Another place leads to a container that was walked through before."""
        for key, item in _items_in(container):
            if isinstance(item, Tensor):
                self._look(Place(place, key, "item", f"[{key!r}]"), item, 0)

    def _walk_contents(self, value: Any, depth: int, holder: Any) -> None:
        """Look at what an object or container has; ``holder`` is that or its place."""
        if isinstance(value, _CONTAINERS):
            for key, item in _items_in(value):
                self._look(Place(holder, key, "item", f"[{key!r}]"), item, depth - 1)
        elif _has_attributes(value) and not _is_foreign(value):
            if isinstance(value, type) and issubclass(value, Function):
                self.names.update(("forward", "backward"))  # what its ``apply`` calls
            self._holders.append(value)
            if isinstance(value, (type, types.ModuleType)):
                return
            if hasattr(value, "__dict__"):
                self.objects.append(value)
            for key, item in _own_attributes(value).items():
                self._look(Place(holder, key, "attribute", f".{key}"), item, depth - 1)

    def _ask_holders(self) -> bool:
        """Watch what the holders have under names that are read; False if nothing was new."""
        before = len(self._asked)
        for holder in list(self._holders):
            entries = _entries_of(holder)
            for name in [n for n in entries if n in self.names or _is_special(n, entries[n])]:
                if name.startswith("__") and not _is_special(name, entries[name]):
                    continue
                if (id(holder), name) in self._asked:
                    continue
                self._asked.add((id(holder), name))
                self._ask(holder, name, entries[name])
        return len(self._asked) != before

    def _ask(self, holder: Any, name: str, value: Any) -> None:
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        label = f"{_name_of(holder)}.{name}"
        if isinstance(value, functools.cached_property):
            self._walk(value.func, MAX_DEPTH)
            if not isinstance(holder, type):  # which asks for the property itself
                self.places.append(Place(vars(holder), name, "item", label))
        elif isinstance(value, types.FunctionType):
            self._walk_function(value)
            self._watch_function(holder, name, label)
        elif name != "__call__":
            self._watch(Place(holder, name, "attribute", label), value)

    def _watch_function(self, holder: Any, name: str, label: str) -> None:
        """Watch which function an attribute leads to; a bound method would be new each time."""
        if name in _own_attributes(holder) or isinstance(holder, (type, types.ModuleType)):
            self.places.append(Place(holder, name, "attribute", label))
            return
        if hasattr(holder, "__dict__"):
            self.places.append(Place(vars(holder), name, "item", label))  # nothing there yet
        for cls in type(holder).__mro__:
            if name in vars(cls):
                self.places.append(Place(cls, name, "attribute", label))
                return

    def _look(self, place: Place, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            self.tensors.setdefault(value._cell_id, []).append(place)
            return
        if _is_iterator(value):
            self.iterators.append(place)
        if is_mover(value) and not is_cache(value):
            self.movers.append(place)
        if isinstance(value, Generator):
            self.generators.append(value)
        self._walk(value, depth, place)

    def _watch(self, place: Place, value: Any) -> None:
        self.places.append(place)
        self._look(place, value, MAX_DEPTH)

    def _walk_module(self, module: Module) -> None:
        if not self._enter(module):
            return
        self.modules.append(module)
        for name in STRUCTURE:
            entries = module.__dict__.get(name, {})
            for key, value in list(entries.items()):
                if value is not None:
                    label = f"{type(module).__name__}.{key}"
                    self._look(Place(entries, key, "item", label), value, MAX_DEPTH)
        for key, value in plain_attributes(module).items():
            self._look(Place(module.__dict__, key, "item", f".{key}"), value, MAX_DEPTH)
        for cls in type(module).__mro__:
            if cls.__module__ == "lucid" or cls.__module__.startswith("lucid.") or cls is object:
                continue
            if self._enter(cls):
                self._classes.append(cls)
                self._walk_class(cls)

    def _walk_class(self, cls: type) -> None:
        for key, value in list(vars(cls).items()):
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, property):
                value = value.fget
            if isinstance(value, types.FunctionType):
                self._walk_function(value)
            elif not key.startswith("__"):
                self._watch(Place(cls, key, "attribute", f"{cls.__name__}.{key}"), value)

    def _watch_absent(self, holder: Any) -> None:
        """Watch that an object has no attribute that the code asks for or sets: it may get it."""
        if isinstance(holder, (type, types.ModuleType)) or not hasattr(holder, "__dict__"):
            return
        for name in sorted(self._names_asked | self._stored):
            if not hasattr(type(holder), name) and name not in vars(holder):
                label = f"{_name_of(holder)}.{name}"
                self.places.append(Place(vars(holder), name, "item", label))

    def _watch_methods(self, cls: type) -> None:
        for key, value in list(vars(cls).items()):
            is_read = key in self.names or key in ("forward", "__call__")
            if is_read and isinstance(value, (types.FunctionType, property)):
                self.places.append(Place(cls, key, "attribute", f"{cls.__name__}.{key}"))

    def _walk_function(self, function: types.FunctionType) -> None:
        if _is_ours(function) or not self._enter(function):
            return
        if function.__dict__:
            self._holders.append(function)
        code = function.__code__
        asked = set(_attributes_asked_for(code))
        self._names_asked |= asked
        self.names.update(asked, _attributes_read(code))
        self._dotted.update(_attributes_loaded(code))
        self._stored.update(_arguments_of(code, "STORE_ATTR"))
        self._loaded.update(asked, self._dotted)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            place = Place(cell, None, "cell", name)
            value = place.get()
            if value is not Place:
                self._watch(place, value)
        for name in dict.fromkeys(_globals_read(code)):
            if name in function.__globals__:
                place = Place(function.__globals__, name, "item", name)
                self._watch(place, place.get())
            elif not hasattr(builtins, name):
                self.places.append(Place(function.__globals__, name, "item", name))
        for module in _modules_imported(function):
            self._walk(module, MAX_DEPTH)
        for key in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, key)
            if value is not None:
                self._watch(Place(function, key, "attribute", f"{code.co_name}.{key}"), value)


class Watched:
    """A place and what stood there when the step was traced."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._meaning = freeze(place.get())
        self.take()

    def take(self) -> None:
        """Take the place as it is now for what :meth:`holds` compares with."""
        value = self.place.get()
        self._value = value
        self._contents = None
        if can_change(value) or isinstance(value, tuple):
            self._contents = freeze(value, tensors_by_identity=True)

    def identity(self) -> Any:
        """What stands there, if it holds as long as it is the same object; ``Watched`` if not."""
        if self.place.get() is not self._value:
            return Watched  # made anew each time it is asked for
        is_flat = isinstance(self._value, tuple) and all(type(v) in _FLAT for v in self._value)
        return self._value if self._contents is None or is_flat else Watched

    def holds(self) -> bool:
        """True while the place holds the same, down to the tensors in it."""
        value = self.place.get()
        if self._contents is not None:
            return bool(freeze(value, tensors_by_identity=True) == self._contents)
        return value is self._value or (
            not isinstance(value, Tensor) and bool(freeze(value) == self._meaning)
        )

    def means_the_same(self) -> bool:
        """True while the trace stands: tensors may have been replaced, they are fetched anew."""
        return bool(freeze(self.place.get()) == self._meaning)
