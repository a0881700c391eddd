"""weight_norm and spectral_norm: values, gradients, state dicts, compiled steps, removal."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import counters, make_step
from lucid.nn.utils import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from zoo import floats, labels


def bits(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.detach().numpy().tobytes()


def model(norm: Callable[..., Any]) -> nn.Sequential:
    return nn.Sequential(
        norm(nn.Conv2d(1, 3, 3)),
        nn.ReLU(),
        nn.Flatten(),
        norm(nn.Linear(12, 8)),
        nn.Tanh(),
        norm(norm(nn.Linear(8, 4)), "bias") if norm is weight_norm else nn.Linear(8, 4),
    )


def batch(seed: int) -> tuple[Tensor, Tensor]:
    return floats(seed, 5, 1, 4, 4), labels(seed, 4, 5)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_weight_norm_values(dim: int | None) -> None:
    layer = nn.Linear(5, 3)
    plain = layer.weight.detach().clone()
    assert weight_norm(layer, dim=dim) is layer
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    assert isinstance(layer, nn.Linear)
    np.testing.assert_allclose(layer.weight.detach().numpy(), plain.numpy(), rtol=1e-6)
    v = plain.double().numpy()
    axes = {0: 1, 1: 0, -1: 0, None: None}[dim]
    norms = np.sqrt((v**2).sum(axes, keepdims=dim is not None))
    assert layer.weight_g.shape == norms.shape
    np.testing.assert_allclose(layer.weight_g.detach().numpy(), norms, rtol=1e-6)
    with lucid.no_grad():
        layer.weight_g.mul_(2.0)
        layer.weight_v.mul_(3.0)
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * v, rtol=1e-5)


def test_weight_norm_gradients() -> None:
    """d g = (grad . v) / |v|, and d v is orthogonal to v."""
    layer = weight_norm(nn.Linear(4, 3, bias=False).double())
    factor = floats(1, 3, 4).double()
    (layer.weight * factor).sum().backward()
    g, v = layer.weight_g, layer.weight_v
    assert g.grad is not None and v.grad is not None
    norms = (v * v).sum(1, keepdim=True).sqrt()
    np.testing.assert_allclose(
        g.grad.numpy(), ((factor * v).sum(1, keepdim=True) / norms).detach().numpy(), rtol=1e-12
    )
    np.testing.assert_allclose((v.grad * v).sum(1).detach().numpy(), 0, atol=1e-12)


def test_spectral_norm_finds_the_largest_singular_value() -> None:
    lucid.manual_seed(0)
    for layer, axis in (
        (nn.Linear(6, 4), 0),
        (nn.Conv2d(2, 3, 3), 0),
        (nn.ConvTranspose2d(3, 2, 2), 1),
    ):
        plain = layer.weight.detach().clone()
        spectral_norm(layer, n_power_iterations=200)
        assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
        shape = {nn.Linear: (2, 6), nn.Conv2d: (1, 2, 5, 5), nn.ConvTranspose2d: (1, 3, 4, 4)}
        layer(floats(1, *shape[type(layer).__mro__[2]]))
        matrix = np.moveaxis(plain.numpy(), axis, 0).reshape(plain.shape[axis], -1)
        largest = np.linalg.svd(matrix, compute_uv=False)[0]
        np.testing.assert_allclose(
            layer.weight.detach().numpy(), plain.numpy() / largest, rtol=1e-4
        )


def test_spectral_norm_moves_in_training_only() -> None:
    layer = spectral_norm(nn.Linear(6, 4))
    before = bits(layer.weight_u)
    layer.eval()(floats(1, 2, 6))
    assert bits(layer.weight_u) == before
    layer.train()(floats(1, 2, 6))
    assert bits(layer.weight_u) != before


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
@pytest.mark.parametrize("low", [None, lucid.bfloat16], ids=str)
def test_compiled_equals_eager(norm: Callable[..., Any], low: lucid.dtype | None) -> None:
    lucid.manual_seed(1)
    eager = model(norm)
    compiled = copy.deepcopy(eager)
    step = make_step(compiled, F.cross_entropy, fallback="error")
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (eager, compiled)]
    for i in range(4):
        x, t = batch(i)
        before = counters()["eager_dispatches"]
        with lucid.autocast("cpu", low, enabled=low is not None):
            found = step(x, t)
            assert i == 0 or counters()["eager_dispatches"] == before
            wanted = F.cross_entropy(eager(x), t)
        assert bits(found.float()) == bits(wanted.float())
        for optimizer, loss in zip(optimizers, (wanted, found), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    states = [{k: bits(v) for k, v in m.state_dict().items()} for m in (eager, compiled)]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("norm", "remove"),
    [(weight_norm, remove_weight_norm), (spectral_norm, remove_spectral_norm)],
)
def test_removal(norm: Callable[..., Any], remove: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(6, 4))
    x = floats(1, 2, 6)
    step = make_step(layer, lambda y: y.sum(), fallback="error")
    step(x)
    layer.eval()
    wanted = layer(x)
    assert remove(layer) is layer
    assert type(layer) is nn.Linear
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert isinstance(layer.weight, nn.Parameter)
    assert bits(layer(x)) == bits(wanted)
    layer.train()
    assert bits(step(x)) == bits(layer(x).sum())
    layer.weight = nn.Parameter(lucid.ones(4, 6))
    norm(layer)
    assert bits(step(x)) is not None


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_copies_and_pickles(norm: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(6, 4)).eval()
    x = floats(1, 2, 6)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(twin) is type(layer)
        assert bits(twin(x)) == bits(layer(x))
        with lucid.no_grad():
            next(p for p in twin.parameters() if p.ndim == 2).add_(1.0)
        assert bits(twin(x)) != bits(layer(x))
    other = norm(nn.Linear(6, 4)).eval()
    other.load_state_dict(layer.state_dict())
    assert bits(other(x)) == bits(layer(x))
