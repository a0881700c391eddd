"""Dataclasses as results of compiled functions and modules."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import pytest
from lucid import Tensor
from lucid.compile import counters, save_compiled
from test_bit_equality import bits
from zoo import floats


@dataclasses.dataclass
class Output:
    """Results, some of them absent, one inside of another."""

    logits: Tensor
    hidden: list[Tensor]
    loss: Tensor | None = None
    inner: Output | None = None


@dataclasses.dataclass
class Mapping(collections.OrderedDict):  # type: ignore[type-arg]
    """A dict that its fields fill, as libraries of transformers have it."""

    logits: Any = None
    loss: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Output:
        y = self.layer(x)
        return Output(y, [y.exp()], inner=Output(y.sin(), []))


def test_module() -> None:
    lucid.manual_seed(0)
    model = Model()
    compiled = lucid.compile(model, fallback="error")
    for i in range(3):
        x = floats(i, 2, 3)
        before = counters()["eager_dispatches"]
        found = compiled(x)
        assert i == 0 or counters()["eager_dispatches"] == before
        wanted = model(x)
        assert type(found) is Output and found.loss is None
        assert found.inner is not None and wanted.inner is not None
        assert bits(found.inner.logits) == bits(wanted.inner.logits)
        gradients = []
        for output in (found, wanted):
            model.zero_grad()
            (output.logits.sum() + output.hidden[0].mean()).backward()
            gradients.append(bits(model.layer.weight.grad))
        assert gradients[0] == gradients[1]


def test_mapping() -> None:
    compiled = lucid.compile(lambda x: Mapping(logits=x + 1), fallback="error")
    for i in range(2):
        x = floats(i, 2)
        found = compiled(x)
        assert type(found) is Mapping
        assert list(found) == ["logits"] and found.loss is None
        assert bits(found["logits"]) == bits(found.logits) == bits(x + 1)


@dataclasses.dataclass
class Scaled:
    """Made of its fields it would be scaled again."""

    x: Tensor

    def __post_init__(self) -> None:
        self.x = self.x * 2


@dataclasses.dataclass
class ScaledBy:
    x: Tensor
    scale: dataclasses.InitVar[float]

    def __post_init__(self, scale: float) -> None:
        self.x = self.x * scale


@dataclasses.dataclass(init=False)
class Squared:
    x: Tensor

    def __init__(self, root: Tensor) -> None:
        self.x = root * root


@dataclasses.dataclass
class Counted:
    x: Tensor
    seen: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen.append(1)


@pytest.mark.parametrize(
    "made",
    [lambda x: Scaled(x), lambda x: ScaledBy(x, 3.0), lambda x: Squared(x), lambda x: Counted(x)],
    ids=["post_init", "init_var", "own_init", "container"],
)
def test_more_than_fields_goes_in(made: Callable[[Tensor], Any]) -> None:
    x = floats(0, 2)
    with pytest.raises(lucid.TraceError, match="the result holds something that cannot be put"):
        lucid.compile(made, fallback="error")(x)
    compiled = lucid.compile(made, fallback="silent")
    for _ in range(2):
        found, wanted = compiled(x), made(x)
        assert bits(found.x) == bits(wanted.x)
        assert getattr(found, "seen", None) == getattr(wanted, "seen", None)


def test_more_than_fields_is_refused() -> None:
    def function(x: Tensor) -> Output:
        made = Output(x, [])
        made.extra = x  # type: ignore[attr-defined]
        return made

    with pytest.raises(lucid.TraceError, match="got Output"):
        lucid.compile(function, fallback="error")(floats(0, 2))


def test_saving_refuses(tmp_path: Path) -> None:
    compiled = lucid.compile(Model(), fallback="error")
    compiled(floats(0, 2, 3))
    with pytest.raises(
        lucid.UnsupportedError,
        match="^save_compiled: a result is a dataclass: got Output; return a named tuple$",
    ):
        save_compiled(compiled, tmp_path / "file")
