"""checkpoint: the gradients of the plain call, bit for bit, without keeping what it saves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from lucid.autograd import grad
from lucid.compile import make_step
from lucid.utils.checkpoint import checkpoint, checkpoint_sequential
from zoo import floats, labels

Block = Callable[..., Any]


class Deep(nn.Module):
    """Blocks with everything that a second run could get wrong; the weight of one is shared."""

    def __init__(self, run: Callable[..., Tensor]) -> None:
        super().__init__()
        self.run = run
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3))
            for _ in range(3)
        )
        self.shared = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def block(self, place: int, x: Tensor, *, scale: Tensor) -> Tensor:
        inside = self.shared(self.blocks[place](x)) * scale
        inside += x
        return self.shared(inside)

    def forward(self, x: Tensor) -> Tensor:
        for place in range(3):
            scale = self.shared.bias.exp()
            x = self.run(self.block, place, x, scale=scale)
        return self.head(x)


def plain(function: Block, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def trained(run: Block, compiled: bool = False, low: bool = False) -> list[bytes]:
    """Losses, gradients, weights and statistics of three steps."""
    lucid.manual_seed(3)
    model = Deep(run)

    def loss_of(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.float(), t)

    step: Any = make_step(model, loss_of, fallback="error") if compiled else None
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for i in range(3):
        x, t = floats(i, 6, 8), labels(i, 3, 6)
        with lucid.autocast("cpu", lucid.bfloat16, enabled=low):
            loss = step(x, t) if compiled else loss_of(model(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss, *(p.grad for p in model.parameters())]
    found += model.state_dict().values()
    return [v.detach().numpy().tobytes() for v in found]


@pytest.mark.parametrize("low", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_equals_the_plain_call(compiled: bool, low: bool) -> None:
    assert trained(checkpoint, compiled, low) == trained(plain, False, low)


def alone(function: Block, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(lambda: checkpoint(function, *args, **kwargs))


def among_others(function: Block, *args: Any, **kwargs: Any) -> Any:
    """The outer one has operations of its own, so that it runs again as well."""
    return checkpoint(lambda: checkpoint(function, *args, **kwargs).neg().neg())


@pytest.mark.parametrize("nested", [alone, among_others], ids=lambda f: f.__name__)
def test_nested(nested: Block) -> None:
    assert trained(nested) == trained(plain)


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequential(segments: int) -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5)))
    gradients = []
    for run in (model, lambda x: checkpoint_sequential(model, segments, x, use_reentrant=False)):
        x = floats(0, 3, 4).requires_grad_()
        found = grad(run(x).square().sum(), (x, *model.parameters()))
        gradients.append([g.numpy().tobytes() for g in found if g is not None])
    assert gradients[0] == gradients[1]


def test_runs_again_once_and_keeps_nothing() -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        hidden = x.exp()
        calls.append(hidden.data)
        return hidden.sin().exp().sum()

    x = floats(0, 5).requires_grad_()
    loss = checkpoint(function, x)
    assert len(calls) == 1
    loss.backward(retain_graph=True)
    assert len(calls) == 2
    loss.backward()
    assert len(calls) == 2
    with pytest.raises(lucid.AutogradError, match="the saved values were freed"):
        loss.backward()


def test_frees_what_the_function_saves() -> None:
    """The product saves the array's memory, which the tensor borrows."""
    arrays: list[weakref.ref[Any]] = []

    def function(x: Tensor) -> Tensor:
        array = np.ones(1024, np.float32)
        arrays.append(weakref.ref(array))
        return (x * lucid.from_numpy(array)).exp()

    x = floats(0, 1024).requires_grad_()
    results = [run(function, x) for run in (plain, checkpoint)]
    gc.collect()
    assert arrays[0]() is not None
    assert arrays[1]() is None
    slopes = [grad(y.sum(), x)[0] for y in results]
    assert slopes[0].equal(slopes[1])  # type: ignore[union-attr]


def test_second_derivatives() -> None:
    x = floats(0, 4).requires_grad_()

    def slope(run: Block) -> Tensor:
        (first,) = grad(run(lambda a: (a.exp() * a.sin()).sum(), x), x, create_graph=True)
        assert first is not None
        (second,) = grad(first.square().sum(), x)
        assert second is not None
        return second

    assert slope(checkpoint).equal(slope(plain))


def test_arguments_may_change_before_the_backward() -> None:
    found = []
    for run in (plain, checkpoint):
        x = floats(0, 4)
        w = floats(1, 4).requires_grad_()
        y = run(lambda a, b: (a[0] * b.exp()).sum(), [x], w)
        x.zero_()
        found.append(grad(y, w)[0])
    assert found[0].equal(found[1])  # type: ignore[union-attr]


def test_without_gradients_it_is_the_call() -> None:
    calls = []
    with lucid.no_grad():
        checkpoint(lambda x: calls.append(x) or x, floats(0, 2))
    assert len(calls) == 1


def test_refuses_another_way() -> None:
    ways = iter([True, False])
    x = floats(0, 4).requires_grad_()
    y = checkpoint(lambda a: a.exp() if next(ways) else a.sin().exp(), x)
    with pytest.raises(
        lucid.AutogradError,
        match=(
            "^checkpoint: the function ran other operations when it ran again for the backward; "
            "let it depend on its arguments only$"
        ),
    ):
        y.sum().backward()
    assert x.grad is None


def test_error_of_the_second_run_leaves_everything() -> None:
    total = lucid.zeros(4)
    calls = []

    def function(a: Tensor) -> Tensor:
        total.add_(1)
        calls.append(a)
        if len(calls) == 2:
            raise KeyError("again")
        return a.exp()

    x = floats(0, 4).requires_grad_()
    y = checkpoint(function, x).sum()
    with pytest.raises(KeyError):
        y.backward(retain_graph=True)
    assert x.grad is None
    assert total.tolist() == [1.0] * 4
    y.backward()
    assert total.tolist() == [1.0] * 4
