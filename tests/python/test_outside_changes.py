"""What code does to containers and iterators that it was given is done at each call, not once."""

from __future__ import annotations

import array
import dataclasses
import functools
import itertools
import queue
import random
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, UserList
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import lucid
import lucid.nn as nn
import numpy as np
import pytest
from lucid import Tensor


def pops(items: dict[str, Tensor]) -> Tensor:
    return items.pop("x") * items["y"]


def replaces(items: list[Any]) -> Tensor:
    items[0] = items[0] * 2
    return items[0].sum()


def nests(items: dict[str, list[Tensor]]) -> Tensor:
    items["log"].append(items["log"][0] + 1)
    return items["log"][-1]


def adds_a_number(items: list[Any]) -> Tensor:
    items.append(3)
    return items[0] * 3


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (pops, lambda x: {"x": x, "y": x}),
        (replaces, lambda x: [x]),
        (nests, lambda x: {"log": [x]}),
        (adds_a_number, lambda x: [x]),
    ],
)
def test_changes_of_containers_among_the_arguments_are_made(
    function: Callable[..., Tensor], make: Callable[[Tensor], Any]
) -> None:
    compiled = lucid.compile(function, fallback="silent")
    for _ in range(2):
        mine, other = make(lucid.ones(2)), make(lucid.ones(2))
        assert compiled(mine).tolist() == function(other).tolist()
        assert repr(mine) == repr(other)
    assert compiled.eager_only


def test_containers_put_back_and_tensors_written_are_no_change() -> None:
    def swaps(items: list[Tensor]) -> Tensor:
        items.reverse()
        items.reverse()
        items[0].add_(1)
        return items[0] * items[1]

    compiled = lucid.compile(swaps, fallback="error")
    items = [lucid.ones(2), lucid.ones(2)]
    assert [compiled(items).tolist() for _ in range(2)] == [[2.0, 2.0], [3.0, 3.0]]


class Paced(nn.Module):
    """Scales by what its iterator gives next."""

    def __init__(self, paces: Any) -> None:
        super().__init__()
        self.paces = paces

    def forward(self, x: Tensor) -> Tensor:
        return x * next(self.paces)


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1.0, 2.0, 3.0]),
        lambda: itertools.count(1),
        lambda: (float(n) for n in range(1, 9)),
        lambda: map(float, [1, 2, 3]),
        lambda: Paces(),
    ],
)
def test_iterators_from_outside_advance_at_each_call(make: Callable[[], Any]) -> None:
    paces, holder = make(), [make()]
    for function in (
        lambda x: x * next(paces),
        lambda x: x * next(holder[0]),
        Paced(make()),
    ):
        compiled = lucid.compile(function, fallback="silent")
        assert [compiled(lucid.ones(())).item() for _ in range(3)] == [1.0, 2.0, 3.0]


class Paces:
    """An iterator whose state is an attribute."""

    def __init__(self) -> None:
        self.number = 0.0

    def __iter__(self) -> Paces:
        return self

    def __next__(self) -> float:
        self.number += 1
        return self.number


class Idle(nn.Module):
    """Has an iterator for others to read."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_an_iterator_that_the_code_does_not_read_is_no_matter() -> None:
    model = Idle()
    compiled = lucid.compile(model, fallback="error")
    assert compiled(lucid.ones(())).item() == 2.0
    assert next(model.seeds) == 1


class Table:
    """Answers to syntax by what its attributes are."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.shift = 1.0
        self.is_on = True

    def __getitem__(self, key: int) -> float:
        return self.factor * key

    def __len__(self) -> int:
        return int(self.shift)

    def __rmul__(self, x: Tensor) -> Tensor:
        return x * self.shift

    def __bool__(self) -> bool:
        return self.is_on

    def __contains__(self, key: str) -> bool:
        return key in ("a",) and self.factor > 1

    def __float__(self) -> float:
        return self.shift

    def __enter__(self) -> float:
        return self.factor

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> float:
        return float(self.__dict__["shift"])


TABLE = Table()


def enters(x: Tensor) -> Tensor:
    with TABLE as factor:
        return x * factor


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * TABLE[2],
        lambda x: x * len(TABLE),
        lambda x: TABLE.__rmul__(x),
        lambda x: x if TABLE else x * 2,
        lambda x: x * ("a" in TABLE),
        lambda x: x * float(TABLE),
        lambda x: x * TABLE.anything,
        enters,
    ],
)
def test_attributes_that_special_methods_read_are_watched(
    function: Callable[[Tensor], Tensor],
) -> None:
    TABLE.__init__()  # type: ignore[misc]
    compiled = lucid.compile(function, fallback="error")
    for name, value in (("factor", 3.0), ("shift", 2.0), ("is_on", False), ("factor", 1.0)):
        assert compiled(lucid.ones(())).item() == function(lucid.ones(())).item()
        setattr(TABLE, name, value)
    assert compiled(lucid.ones(())).item() == function(lucid.ones(())).item()


def nested(value: Any) -> Any:
    return {"a": [{"b": [value]}]}


def change_nested(held: Any) -> None:
    held["a"][0]["b"][0] = 5.0


def put(key: Any) -> Callable[[Any], None]:
    def change(held: Any) -> None:
        held[key] = 5

    return change


Change = Callable[[Any], Any]
HELD: list[tuple[str, Callable[[], Any], Change, Change]] = [
    ("nested containers", lambda: nested(2.0), lambda h: h["a"][0]["b"][0], change_nested),
    ("NumPy array", lambda: np.array([2.0, 3.0]), lambda h: float(h[0]), put(0)),
    ("bytearray", lambda: bytearray([2, 3]), lambda h: h[0], put(0)),
    ("array", lambda: array.array("d", [2.0]), lambda h: h[0], put(0)),
    ("UserDict", lambda: UserDict(a=2.0), lambda h: h["a"], put("a")),
    ("UserList", lambda: UserList([2.0]), lambda h: h[0], put(0)),
    ("ChainMap", lambda: ChainMap({"a": 2.0}), lambda h: h["a"], put("a")),
    (
        "context variable",
        lambda: ContextVar("gain", default=2.0),
        ContextVar.get,
        lambda h: h.set(5),
    ),
    ("event", threading.Event, lambda h: 5 if h.is_set() else 2, threading.Event.set),
    ("array in a dict", lambda: {"w": np.ones(2)}, lambda h: h["w"][1], lambda h: put(1)(h["w"])),
]


class Holds(nn.Module):
    """Scales by what it reads of something that it holds."""

    def __init__(self, held: Any, read: Change) -> None:
        super().__init__()
        self.held = held
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        return x * self.read(self.held)


@pytest.mark.parametrize(("name", "make", "read", "change"), HELD, ids=[row[0] for row in HELD])
def test_changes_inside_are_seen(
    name: str, make: Callable[[], Any], read: Change, change: Change
) -> None:
    held, module = make(), Holds(make(), read)
    closure = lucid.compile(lambda x: x * read(held), fallback="error")
    attribute = lucid.compile(module, fallback="error")
    for expected in (read(held), 5):
        assert closure(lucid.ones(())).item() == attribute(lucid.ones(())).item() == expected
        change(held)
        change(module.held)
    assert closure.cache_info()["misses"] == attribute.cache_info()["misses"] == 2


def test_the_same_bytes_as_other_numbers_are_a_change() -> None:
    module = Holds(array.array("f", [1.0]), lambda held: held[0])
    compiled = lucid.compile(module, fallback="error")
    assert compiled(lucid.ones(())).item() == 1.0
    module.held = array.array("i", module.held.tobytes())
    assert compiled(lucid.ones(())).item() == float(0x3F800000)


def filled() -> queue.Queue[float]:
    made: queue.Queue[float] = queue.Queue()
    for number in (1.0, 2.0, 3.0):
        made.put(number)
    return made


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(3), lambda held: held.random()),
        (lambda: np.random.default_rng(3), lambda held: held.random()),
        (lambda: np.random.RandomState(3), lambda held: held.rand()),
        (filled, lambda held: held.get()),
    ],
)
def test_what_moves_on_is_asked_at_each_call(make: Callable[[], Any], draw: Change) -> None:
    held, other, module = make(), make(), Holds(make(), draw)
    expected = [lucid.tensor(float(draw(other))).item() for _ in range(3)]
    for function in (lambda x: x * draw(held), module):
        compiled = lucid.compile(function, fallback="silent")
        assert [compiled(lucid.ones(())).item() for _ in range(3)] == expected
        assert compiled.eager_only


def test_a_generator_that_moves_outside_is_no_matter() -> None:
    held = random.Random(3)
    compiled = lucid.compile(lambda x: x * (2 if held else 1), fallback="error")
    for _ in range(3):
        assert compiled(lucid.ones(())).item() == 2.0
        held.random()
    assert compiled.cache_info() == {"entries": 1, "hits": 2, "misses": 1, "max_entries": 64}


def test_a_refused_trace_leaves_arrays_as_they_were() -> None:
    counts = np.zeros(2)

    def counting(x: Tensor) -> Tensor:
        counts[0] += 1
        return x * 2

    compiled = lucid.compile(counting, fallback="silent")
    for expected in (1, 2, 3):
        compiled(lucid.ones(()))
        assert counts.tolist() == [expected, 0]


def imports_a_module(x: Tensor) -> Tensor:
    import settings_of_a_test  # type: ignore[import-not-found]

    result: Tensor = x * settings_of_a_test.scale
    return result


def imports_from_a_module(x: Tensor) -> Tensor:
    from settings_of_a_test import gain

    return x * gain()


@pytest.mark.parametrize("function", [imports_a_module, imports_from_a_module])
def test_modules_imported_inside_are_watched(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = types.ModuleType("settings_of_a_test")
    exec("scale = 2.0\ndef gain():\n    return scale", settings.__dict__)
    monkeypatch.setitem(sys.modules, "settings_of_a_test", settings)
    compiled = lucid.compile(function, fallback="error")
    for expected in (2.0, 2.0, 5.0):
        settings.__dict__["scale"] = expected
        assert compiled(lucid.ones(())).item() == expected
    assert compiled.cache_info()["misses"] == 2


class Parent:
    def __init__(self) -> None:
        self.gain = 2.0


class Child(nn.Module):
    """Scales by an attribute of its parent, to which it holds a weak reference."""

    def __init__(self, parent: Parent) -> None:
        super().__init__()
        self.parent = weakref.ref(parent)

    def forward(self, x: Tensor) -> Tensor:
        parent = self.parent()
        assert parent is not None
        return x * parent.gain


def test_what_a_weak_reference_leads_to_is_watched() -> None:
    parent = Parent()
    compiled = lucid.compile(Child(parent), fallback="error")
    for parent.gain in (2.0, 5.0):
        assert compiled(lucid.ones(())).item() == parent.gain


class Counts(nn.Module):
    """Scales by what it asks of a tensor, whose elements it does not read."""

    def __init__(self, ask: Change) -> None:
        super().__init__()
        self.ask = ask
        self.register_buffer("memory", lucid.ones(2))
        self.plain = lucid.ones(2)
        self.listed = [lucid.ones(2)]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.ask(self)


def grown(module: Counts) -> None:
    module.memory = module.plain = module.listed[0] = lucid.ones(5)


def in_double(module: Counts) -> None:
    module.plain = module.plain.double()


@pytest.mark.parametrize(
    ("ask", "change"),
    [
        (lambda m: m.memory.shape[0], grown),
        (lambda m: m.plain.numel(), grown),
        (lambda m: len(m.listed[0]), grown),
        (lambda m: 2 if m.plain.dtype == lucid.float32 else 3, in_double),
        (lambda m: 2 if m.plain.requires_grad else 3, lambda m: m.plain.requires_grad_()),
    ],
)
def test_shapes_and_types_of_tensors_that_are_not_read_are_watched(
    ask: Change, change: Change
) -> None:
    module = Counts(ask)
    compiled = lucid.compile(module, fallback="error")
    for _ in range(2):
        assert compiled(lucid.ones(())).item() == ask(module)
        assert compiled(lucid.ones(())).item() == ask(module)
        change(module)
    assert compiled.cache_info()["misses"] == 2


def test_a_tensor_that_the_code_does_not_name_is_no_matter() -> None:
    module = Holds(2.0, lambda held: held)
    module.register_buffer("history", lucid.zeros(1))
    compiled = lucid.compile(module, fallback="error")
    for size in (1, 2, 3):
        module.history = lucid.zeros(size)
        compiled(lucid.ones(()))
    assert compiled.cache_info()["misses"] == 1


class Negates(Holds):
    """The same with another forward."""

    def forward(self, x: Tensor) -> Tensor:
        return -super().forward(x)


def test_another_class_of_a_module_is_another_signature() -> None:
    module = Holds(2.0, lambda held: held)
    compiled = lucid.compile(module, fallback="error")
    assert compiled(lucid.ones(())).item() == 2
    module.__class__ = Negates
    assert compiled(lucid.ones(())).item() == -2


@dataclasses.dataclass
class Options:
    """A record of the user's with a tensor in it."""

    gain: Any


REPLACED: list[tuple[str, Callable[[Tensor], Any], Change]] = [
    ("tuple", lambda t: (t, 1.0), lambda held: held[0]),
    ("list", lambda t: [t], lambda held: held[0]),
    ("dict", lambda t: {"gain": t}, lambda held: held["gain"]),
    ("record", Options, lambda held: held.gain),
    ("nested", lambda t: {"a": [(1.0, Options(t))]}, lambda held: held["a"][0][1].gain),
]


@pytest.mark.parametrize(("name", "make", "read"), REPLACED, ids=[row[0] for row in REPLACED])
def test_containers_of_tensors_are_replaced(
    name: str, make: Callable[[Tensor], Any], read: Change
) -> None:
    held = make(lucid.tensor(2.0))
    module = Holds(held, read)
    module.alias = held
    closure = lucid.compile(lambda x: x * read(held), fallback="error")
    partial = functools.partial(lambda held, x: x * read(held), held)
    bound = lucid.compile(lambda x: partial(x), fallback="error")
    attribute = lucid.compile(module, fallback="error")
    for value in (2.0, 3.0, 5.0):
        assert closure(lucid.ones(())).item() == attribute(lucid.ones(())).item() == value
        assert bound(lucid.ones(())).item() == value
        held = module.held = make(lucid.tensor({2.0: 3.0}.get(value, 5.0)))
        partial = functools.partial(lambda held, x: x * read(held), held)


def test_a_context_variable_may_hold_a_tensor() -> None:
    gain: ContextVar[Any] = ContextVar("gain", default=None)

    def scaled(x: Tensor) -> Tensor:
        if gain.get() is None:
            gain.set(lucid.full((), 2.0))
        return x * gain.get()

    compiled = lucid.compile(scaled, fallback="error")
    for expected in (2.0, 2.0, 7.0):
        assert compiled(lucid.ones(())).item() == expected
        assert not gain.get().is_symbolic
        if compiled.cache_info()["hits"] == 1:
            gain.set(lucid.full((), 7.0))
    assert compiled.cache_info()["misses"] == 1
