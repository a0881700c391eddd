"""Parametrizations: names in a state dict, compiled steps, copies, removal."""

from __future__ import annotations

import copy
import pickle

import lucid
import lucid.nn as nn
import pytest
from lucid import Tensor
from lucid.compile import make_step
from lucid.nn.utils import parametrizations, parametrize
from lucid.optim import SGD
from zoo import floats


class Symmetric(nn.Module):
    """The upper triangle, mirrored."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).T

    def right_inverse(self, a: Tensor) -> Tensor:
        return a.triu()


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def symmetric() -> nn.Linear:
    lucid.manual_seed(0)
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return parametrize.register_parametrization(layer, "weight", Doubled())


def test_value_and_names() -> None:
    layer = symmetric()
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert layer.weight.equal(layer.weight.T)
    original = layer.parametrizations.weight.original
    assert layer.weight.triu().equal(original * 2)
    layer(floats(0, 2, 4)).sum().backward()
    assert original.grad is not None
    assert original.grad.equal(original.grad.triu())


def test_names_of_norms() -> None:
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    names = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(layer.state_dict()) == names
    layer = parametrizations.spectral_norm(nn.Linear(3, 2))
    assert list(layer.state_dict()) == [
        "bias",
        "parametrizations.weight.original",
        "parametrizations.weight.0._u",
        "parametrizations.weight.0._v",
    ]


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_compiled_equals_eager(norm: object) -> None:
    assert callable(norm)
    found = []
    for compiled in (False, True):
        lucid.manual_seed(1)
        model = nn.Sequential(norm(nn.Conv1d(2, 3, 2)), nn.Tanh(), symmetric())
        step = make_step(model, lambda y: y.square().mean(), fallback="error")
        optimizer = SGD(model.parameters(), lr=0.5)
        for i in range(3):
            x = floats(i, 2, 2, 5)
            loss = step(x) if compiled else model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append([v.numpy().tobytes() for v in model.state_dict().values()])
    assert found[0] == found[1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(copied: object) -> None:
    assert callable(copied)
    layer = symmetric()
    twin = copied(layer)
    assert twin.weight.equal(layer.weight)
    with lucid.no_grad():
        twin.parametrizations.weight.original.zero_()
    assert not twin.weight.any()
    assert layer.weight.any()


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave: bool) -> None:
    layer = symmetric()
    wanted = layer.weight if leave else layer.parametrizations.weight.original
    assert parametrize.remove_parametrizations(layer, "weight", leave) is layer
    assert type(layer) is nn.Linear
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.equal(wanted)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_refused_registration_changes_nothing() -> None:
    layer = nn.Linear(2, 3)
    weight = layer.weight
    with pytest.raises(lucid.Error):
        parametrize.register_parametrization(layer, "weight", nn.Linear(7, 7))
    assert layer.weight is weight
    assert type(layer) is nn.Linear
