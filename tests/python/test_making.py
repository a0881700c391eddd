"""Tensors made by the class, sizes given by name, names and facts of the package's root."""

from __future__ import annotations

import math
from typing import Any

import lucid
import lucid.nn as nn
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import make_step


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((), []),
        ((2, 3), [[0.0] * 3] * 2),
        (([1, 2],), [1.0, 2.0]),
        (([[1.5], [True]],), [[1.5], [1.0]]),
        ((np.arange(2),), [0.0, 1.0]),
    ],
    ids=str,
)
def test_tensor_of_sizes_and_of_data(given: tuple[Any, ...], wanted: Any) -> None:
    made = Tensor(*given)
    assert made.dtype is lucid.float32
    assert made.tolist() == wanted
    assert made.is_leaf and not made.requires_grad


def test_tensor_of_a_tensor_shares_its_cell() -> None:
    x = lucid.zeros(2)
    made = Tensor(x, requires_grad=True)
    x.fill_(3)
    assert made.tolist() == [3.0, 3.0]
    assert made.requires_grad
    assert isinstance(nn.Parameter(Tensor(2, 2)), nn.Parameter)


def test_tensor_inside_a_step() -> None:
    layer = nn.Linear(2, 2)
    step = make_step(layer, lambda y: (y * Tensor([1.0, 2.0]) + Tensor(2)).sum(), fallback="error")
    x = lucid.ones(3, 2)
    for _ in range(2):
        assert step(x).item() == (layer(x) * lucid.tensor([1.0, 2.0])).sum().item()


def test_sizes_and_axes_by_name() -> None:
    x = lucid.reshape(lucid.arange(6.0), shape=(2, 3))
    assert lucid.zeros(size=(2, 3)).shape == x.new_ones(size=(2, 3)).shape == (2, 3)
    assert lucid.rand(size=(4,)).shape == (4,)
    assert x.permute(dims=(1, 0)).equal(x.T)
    assert lucid.flip(input=x, dims=[1]).equal(x.flip(1))
    assert lucid.view(x, size=(3, 2)).equal(x.reshape(3, 2))
    assert x.expand(size=(2, -1, -1)).shape == (2, 2, 3)
    assert lucid.tile(x, dims=(2,)).equal(x.tile(2))


def test_facts() -> None:
    assert (lucid.pi, lucid.e, lucid.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(lucid.nan)
    x = lucid.zeros(2, 3)
    assert x[:, lucid.newaxis].shape == lucid.Size((2, 1, 3))
    assert lucid.is_tensor(nn.Parameter(x)) and not lucid.is_tensor([0])
    assert lucid.is_floating_point(x) and not lucid.is_floating_point(x.long())
    assert lucid.numel(x) == 6


def test_one_list_of_functions() -> None:
    assert set(lucid.functions.__all__) < set(lucid.__all__)
    assert all(hasattr(lucid, name) for name in lucid.__all__)


class Extra(lucid.autograd.Function):
    """Returns None for an argument that was left out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 2.0) -> Tensor:
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * 2.0, None


def test_function_may_return_further_nones() -> None:
    layer = nn.Linear(2, 2)
    step = make_step(layer, lambda y: Extra.apply(y).sum(), fallback="error")
    x = lucid.ones(3, 2)
    found = []
    for loss in (step(x), Extra.apply(layer(x)).sum()):
        layer.zero_grad()
        loss.backward()
        assert layer.weight.grad is not None
        found.append(layer.weight.grad.tolist())
    assert found[0] == found[1] == [[6.0, 6.0]] * 2
