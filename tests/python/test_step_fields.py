"""Every field of a signature: a change is seen, the numbers are right, explain() names it."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import numpy
import pytest
from lucid import Tensor
from lucid.compile import RecompileWarning, make_step
from zoo import floats

FACTOR = 2.0


@dataclasses.dataclass
class Options:
    """Nested in a list of the model's."""

    gain: float = 1.0


def times(factor: float) -> Callable[[Tensor], Tensor]:
    """A function of one code and many closures."""
    return lambda y: y * factor


class Uncalled(nn.Module):
    """Read, and never called."""

    def __init__(self) -> None:
        super().__init__()
        self.k = 1.0
        self.ks = [1.0]


class Model(nn.Module):
    """Reads everything that a forward can read."""

    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = 1.0
        self.options = [Options(), Options()]
        self.act = times(2.0)
        self.other = Uncalled()
        self.dropout = nn.Dropout(0.5)
        self.plain = types.SimpleNamespace(k=1.0, act=times(3.0))
        self.number = numpy.float32(2.0)

    @property
    def doubled(self) -> float:
        """Read as an attribute."""
        return 2.0 * self.scale

    def scaled(self, y: Tensor) -> Tensor:
        """A method that a test replaces."""
        return y * self.scale * self.doubled

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.scaled(self.linear(x))) * self.factor * self.options[1].gain
        y = self.plain.act(y) * self.plain.k * float(self.number)
        return y * self.other.k * self.other.ks[0] * self.dropout.p

    def loss(self, y: Tensor) -> Tensor:
        """A loss that is a method of the model."""
        return (y * y).sum() * self.scale


def reads_global(y: Tensor) -> Tensor:
    """Called by another function."""
    return y * FACTOR


def has_default(y: Tensor, scale: float = 1.5, *, shift: float = 0.5) -> Tensor:
    """Calls a function that reads a global."""
    return (reads_global(y) * scale + shift).sum()


def has_attribute(y: Tensor) -> Tensor:
    """Reads an attribute of its own."""
    return y.sum() * has_attribute.weight  # type: ignore[attr-defined]


class Criterion:
    """A loss that is an object."""

    def __init__(self) -> None:
        self.weight = 1.0
        self.table = {"weights": [1.0]}
        self.tensor = lucid.ones(3)

    def __call__(self, y: Tensor) -> Tensor:
        return self.more(y) * self.table["weights"][0]

    def more(self, y: Tensor) -> Tensor:
        """A method that a test replaces."""
        return (y * self.tensor).sum() * self.weight * getattr(self, "late", 1.0)


class CriterionModule(nn.Module):
    """A module of which only another method than forward is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0

    def compute(self, y: Tensor) -> Tensor:
        """The loss."""
        return y.sum() * self.weight


class Slots:
    """Has no __dict__."""

    __slots__ = ("weight",)

    def __init__(self) -> None:
        self.weight = 1.0


def slots_case() -> Case:
    """An attribute in a slot, read by the loss."""
    slots = Slots()
    return Case(
        "Slots.weight", lambda m: setattr(slots, "weight", 3.0), lambda y: y.sum() * slots.weight
    )


def deque_case() -> Case:
    """An item of a deque, read by the loss."""
    items = deque([1.0, 2.0])
    return Case("items", lambda model: items.rotate(), lambda y: y.sum() * items[0])


def reads_late_global(y: Tensor) -> Tensor:
    """Reads a global that is not there yet."""
    try:
        return y.sum() * LATE  # type: ignore[name-defined, no-any-return]  # noqa: F821
    except NameError:
        return y.sum()


def total(y: Tensor) -> Tensor:
    """A loss that reads nothing else."""
    return y.sum()


@dataclasses.dataclass
class Case:
    """A change after two calls; ``field`` is what explain() names, None if nothing is compiled."""

    field: str | None
    change: Callable[[Model], Any]
    loss: Callable[..., Tensor] = total


def nonlocal_scalar() -> Case:
    """A closure's number is bound anew."""
    k = 1.0

    def loss(y: Tensor) -> Tensor:
        return y.sum() * k

    def change(model: Model) -> None:
        nonlocal k
        k = 3.0

    return Case("k", change, loss)


def with_loss(
    loss: Callable[..., Tensor], change: Callable[[Any], Any], field: str | None
) -> Callable[[], Case]:
    """A case that changes its loss."""
    return lambda: Case(field, lambda model: change(loss), loss)


def object_case(change: Callable[[Any], Any], field: str | None) -> Callable[[], Case]:
    """A case with a fresh object as loss."""

    def make() -> Case:
        criterion = Criterion()
        return Case(field, lambda model: change(criterion), criterion)

    return make


def method_case() -> Case:
    """A bound method of an object as loss."""
    criterion = Criterion()
    return Case("Criterion.weight", lambda m: setattr(criterion, "weight", 4.0), criterion.more)


def module_method_case() -> Case:
    """A method of a module that is never called."""
    criterion = CriterionModule()
    change = functools.partial(setattr, criterion, "weight", 4.0)
    return Case("CriterionModule.weight", lambda model: change(), criterion.compute)


def partial_case(change: Callable[[Any], Any], field: str) -> Callable[[], Case]:
    """A partial as loss."""

    def make() -> Case:
        loss = functools.partial(lambda w, y, k: y.sum() * w[0] * k, [2.0], k=3.0)
        return Case(field, lambda model: change(loss), loss)

    return make


def module_case() -> Case:
    """A number in another Python module."""
    settings = types.ModuleType("settings")
    settings.RATE = 2.0  # type: ignore[attr-defined]
    sys.modules["settings"] = settings

    def loss(y: Tensor) -> Tensor:
        return y.sum() * settings.RATE  # type: ignore[attr-defined, no-any-return]

    return Case("settings.RATE", lambda model: setattr(settings, "RATE", 4.0), loss)


def set_data(model: Model) -> None:
    """Other values, loaded as other tensors."""
    state = {k: v.clone() * 2.0 for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


CASES: dict[str, Callable[[], Case]] = {
    "nonlocal": nonlocal_scalar,
    "default": with_loss(
        has_default, lambda f: setattr(f, "__defaults__", (4.0,)), "has_default.__defaults__"
    ),
    "keyword default": with_loss(
        has_default, lambda f: f.__kwdefaults__.update(shift=2.0), "has_default.__kwdefaults__"
    ),
    "global of a called function": with_loss(
        has_default, lambda f: globals().update(FACTOR=5.0), "FACTOR"
    ),
    "function replaced": with_loss(
        has_default,
        lambda f: globals().update(reads_global=lambda y: y * 9.0),
        "reads_global",
    ),
    "attribute of a function": with_loss(
        has_attribute, lambda f: setattr(f, "weight", 7.0), "has_attribute.weight"
    ),
    "object": object_case(lambda c: setattr(c, "weight", 4.0), "Criterion.weight"),
    "container of an object": object_case(
        lambda c: c.table["weights"].__setitem__(0, 4.0), "Criterion.table"
    ),
    "tensor of an object": object_case(lambda c: setattr(c, "tensor", floats(3, 3)), None),
    "method replaced on an object": object_case(
        lambda c: setattr(c, "more", lambda y: y.sum() * 5.0), "Criterion.more"
    ),
    "method replaced on an object's class": object_case(
        lambda c: setattr(Criterion, "more", lambda self, y: y.sum() * 5.0), "Criterion.more"
    ),
    "attribute that an object gets later": object_case(
        lambda c: setattr(c, "late", 4.0), "Criterion.late"
    ),
    "global that comes later": with_loss(
        reads_late_global, lambda f: globals().update(LATE=3.0), "LATE"
    ),
    "slot": slots_case,
    "deque": deque_case,
    "method of an object": method_case,
    "method of a module": module_method_case,
    "list in a partial": partial_case(lambda p: p.args[0].__setitem__(0, 5.0), "partial.args"),
    "keyword of a partial": partial_case(lambda p: p.keywords.update(k=5.0), "partial.keywords"),
    "Python module": module_case,
    "class attribute": lambda: Case("Model.factor", lambda m: setattr(Model, "factor", 4.0)),
    "instance attribute over a class attribute": lambda: Case(
        "Model.factor", lambda m: setattr(m, "factor", 4.0)
    ),
    "method replaced on the instance": lambda: Case(
        "Model.scaled", lambda m: setattr(m, "scaled", lambda y: y * 9.0)
    ),
    "method replaced on the class": lambda: Case(
        "Model.scaled", lambda m: setattr(Model, "scaled", lambda self, y: y * 9.0)
    ),
    "forward replaced on the class": lambda: Case(
        "Model.forward", lambda m: setattr(Model, "forward", lambda self, x: self.linear(x))
    ),
    "property replaced": lambda: Case(
        "Model.doubled", lambda m: setattr(Model, "doubled", property(lambda self: 3.0))
    ),
    "lambda of the same code": lambda: Case("Model.act", lambda m: setattr(m, "act", times(5.0))),
    "lambda of an object": lambda: Case(
        "SimpleNamespace.act", lambda m: setattr(m.plain, "act", times(5.0))
    ),
    "dataclass in a list": lambda: Case(
        "Model.options", lambda m: setattr(m.options[1], "gain", 3.0)
    ),
    "attribute of an object": lambda: Case(
        "SimpleNamespace.k", lambda m: setattr(m.plain, "k", 3.0)
    ),
    "attribute of a module that is not called": lambda: Case(
        "Uncalled.k", lambda m: setattr(m.other, "k", 3.0)
    ),
    "list of a module that is not called": lambda: Case(
        "Uncalled.ks", lambda m: m.other.ks.__setitem__(0, 3.0)
    ),
    "attribute of a layer that is not called": lambda: Case(
        "Dropout.p", lambda m: setattr(m.dropout, "p", 0.25)
    ),
    "attribute": lambda: Case("Model.scale", lambda m: setattr(m, "scale", 3.0)),
    "NumPy number": lambda: Case(
        "Model.number", lambda m: setattr(m, "number", numpy.float32(3.0))
    ),
    "equal NumPy number": lambda: Case(
        None, lambda m: setattr(m, "number", numpy.float32(m.number))
    ),
    "hook": lambda: Case(
        "forward hook of Linear",
        lambda m: m.linear.register_forward_hook(lambda module, args, y: y * 2.0),
    ),
    "pre-hook": lambda: Case(
        "forward pre hook of Linear",
        lambda m: m.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2.0,)),
    ),
    "frozen parameter": lambda: Case(
        "requires_grad of Linear.weight", lambda m: m.linear.weight.requires_grad_(False)
    ),
    "child replaced": lambda: Case(
        "child linear of Model", lambda m: setattr(m, "linear", nn.Linear(4, 3))
    ),
    "bias removed": lambda: Case("Linear.bias", lambda m: setattr(m.linear, "bias", None)),
    "training": lambda: Case("Model.training", lambda m: m.eval()),
    "load_state_dict(assign=True)": lambda: Case(None, set_data),
}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts back what the cases change for good."""
    has_attribute.weight = 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "FACTOR", FACTOR)
    monkeypatch.delitem(globals(), "LATE", raising=False)
    monkeypatch.setitem(globals(), "reads_global", reads_global)
    monkeypatch.setattr(has_default, "__defaults__", has_default.__defaults__)
    monkeypatch.setattr(has_default, "__kwdefaults__", dict(has_default.__kwdefaults__ or {}))
    for cls, name in [
        (Model, "factor"),
        (Model, "scaled"),
        (Model, "forward"),
        (Model, "doubled"),
        (Criterion, "more"),
    ]:
        monkeypatch.setattr(cls, name, vars(cls)[name])


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("name", CASES)
def test_field(name: str) -> None:
    lucid.manual_seed(5)
    case, model, x = CASES[name](), Model(), floats(1, 5, 4)
    step = make_step(model, case.loss, fallback="error")
    for _ in range(2):
        assert step(x).item() == case.loss(model(x)).item()
    assert step.cache_info()["entries"] == 1
    case.change(model)
    for _ in range(2):
        assert step(x).item() == case.loss(model(x)).item()
    lines = step.explain().splitlines()
    assert step.cache_info()["entries"] == len(lines)
    if case.field is None:
        assert len(lines) == 1
        return
    assert len(lines) == 2
    assert lines[1].endswith(f", because of another {case.field}")


def test_loss_that_is_a_method_of_the_model() -> None:
    model, x = Model(), floats(1, 5, 4)
    step = make_step(model, model.loss, fallback="error")
    for scale in (1.0, 2.0):
        model.scale = scale
        assert step(x).item() == model.loss(model(x)).item()
    assert step.cache_info()["entries"] == 2


def test_removed_hook_fits_the_first_signature_again() -> None:
    model, x = Model(), floats(1, 5, 4)
    step = make_step(model, total, fallback="error")
    wanted = step(x).item()
    handle = model.linear.register_forward_hook(lambda module, args, y: y * 2.0)
    assert step(x).item() == total(model(x)).item()
    handle.remove()
    assert step(x).item() == wanted
    assert step.cache_info()["entries"] == 2


def last_reason(step: Any) -> str:
    """What the newest line of explain() gives as the reason."""
    return str(step.explain()).splitlines()[-1].rpartition(", because of another ")[2]


def test_arguments_are_named() -> None:
    model = nn.Linear(4, 3)

    def loss_fn(y: Tensor, extra: Any, *more: Any) -> Tensor:
        return (y * extra["w"][0]).sum() * extra["k"]

    step = make_step(model, loss_fn, fallback="error")
    x, w = floats(1, 5, 4), floats(2, 5, 3)
    step(x, {"w": [w], "k": 1.0})
    assert "because" not in step.explain()
    reasons = []
    for arguments in [
        (floats(1, 3, 4), {"w": [floats(2, 3, 3)], "k": 1.0}),
        (x, {"w": [w.double()], "k": 1.0}),
        (x, {"w": [w.clone().requires_grad_()], "k": 1.0}),
        (x, {"w": [w], "k": 2.0}),
        (x, {"w": [w], "k": 2.0}, 1.0),
    ]:
        step(x, {"w": [w], "k": 1.0})
        step(*arguments)
        reasons.append(last_reason(step))
    assert reasons == [
        "shape of x",
        "dtype of extra input 1['w'][0]",
        "requires_grad of extra input 1['w'][0]",
        "structure of extra input 1",
        "number of arguments",
    ]


def test_number_that_changes_is_named() -> None:
    step = make_step(nn.Linear(4, 1), lambda y, k: y.sum() * k, fallback="error")
    x = floats(1, 3, 4)
    for k in range(7):
        step(x, float(k))
    assert last_reason(step) == "value of extra input 1"
    with pytest.warns(RecompileWarning, match="because of another value of extra input 1; for a"):
        step(x, 7.5)


def test_modes_are_named() -> None:
    model, x = nn.Linear(4, 3), floats(1, 5, 4)
    step = make_step(model, lambda y: (y * lucid.ones(3)).sum(), fallback="error")
    step(x)
    with lucid.no_grad():
        loss = step(x)
        assert not loss.requires_grad
    assert last_reason(step) == "grad mode"
    step(x)
    lucid.set_default_dtype(lucid.float64)
    try:
        loss = step(x)
        assert loss.dtype == lucid.float64
    finally:
        lucid.set_default_dtype(lucid.float32)
    assert last_reason(step) == "default dtype"
    assert step(x).dtype == lucid.float32
    assert step.cache_info()["entries"] == 3


def test_converted_model() -> None:
    model, x = Model(), floats(1, 5, 4)
    step = make_step(model, total, fallback="error")
    step(x).backward()
    model.zero_grad()
    model.to(lucid.float64)
    loss = step(x.double())
    loss.backward()
    assert loss.item() == total(model(x.double())).item()
    assert model.linear.weight.grad.dtype == lucid.float64
    assert last_reason(step) == "dtype of x"
    assert step.cache_info()["entries"] == 2


def test_tied_tensors_are_named() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    step = make_step(model, total, fallback="error")
    x = floats(1, 2, 3)
    step(x)
    model[1].weight = model[0].weight
    assert step(x).item() == total(model(x)).item()
    assert last_reason(step) == "way in which tensors are tied"
    pair = make_step(nn.Linear(3, 3), lambda y, a, b: (y * a * b).sum(), fallback="error")
    a, b = floats(2, 2, 3), floats(3, 2, 3)
    pair(x, a, b)
    pair(x, a, a)
    assert last_reason(pair) == "way in which extra input 2 shares another argument's memory"
