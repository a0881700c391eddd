"""The eager tape: backward, grad, hooks, Function, and what is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import Tensor
from lucid.autograd import Function, grad
from zoo import floats


class Cube(Function):
    """x ** 3 with its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3.0 * x * x


class Misshapen(Cube):
    """Returns a gradient of the wrong shape."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.sum()


class Exp(Function):
    """exp, whose gradient reads its own result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return gradient * y


def test_function() -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]
    (first,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0]


@pytest.mark.parametrize("power", [1, 2])
def test_second_derivative_through_a_saved_result(power: int) -> None:
    """d2/dx2 exp(x)^p = p^2 exp(p x): the saved result has the function as its history."""
    x = lucid.tensor([0.25, -1.0], dtype=lucid.float64, requires_grad=True)
    (first,) = grad((Exp.apply(x) ** power).sum(), x, create_graph=True)
    assert first is not None
    (second,) = grad(first.sum(), x)
    assert second is not None
    expected = power**2 * np.exp(power * np.array([0.25, -1.0]))
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-14)


def test_third_derivative() -> None:
    x = lucid.tensor([0.25], dtype=lucid.float64, requires_grad=True)
    value: Any = Exp.apply(x)
    for _ in range(3):
        (value,) = grad(value, x, create_graph=True)
    assert value.item() == pytest.approx(np.exp(0.25), rel=1e-14)


def test_function_with_a_wrong_gradient() -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(lucid.ShapeError) as caught:
        Misshapen.apply(x).sum().backward()
    assert str(caught.value) == (
        "Misshapen.backward: gradient 0 is float32[] for an input float32[2]"
    )
    assert x.grad is None


def test_second_derivatives_of_fused_operations() -> None:
    x = floats(1, 3, 4).double().requires_grad_()
    y = lucid.nn.functional.layer_norm(x, (4,))
    (first,) = grad((y**3).sum(), x, create_graph=True)
    (second,) = grad((first**2).sum(), x)
    step, base = 1e-6, x.detach()
    found = lucid.zeros(3, 4, dtype=lucid.float64)
    for i in range(3):
        for j in range(4):
            values = []
            for sign in (1.0, -1.0):
                moved = base.clone()
                moved[i, j] = moved[i, j] + sign * step
                moved.requires_grad_()
                z = lucid.nn.functional.layer_norm(moved, (4,))
                (slope,) = grad((z**3).sum(), moved)
                values.append((slope**2).sum().item())
            found[i, j] = (values[0] - values[1]) / (2 * step)
    assert (found - second).abs().max().item() < 1e-4 * second.abs().max().item()


@pytest.mark.parametrize("is_leaf", [True, False])
def test_hooks(is_leaf: bool) -> None:
    leaf = lucid.tensor([1.0, 2.0], requires_grad=True)
    x = leaf if is_leaf else leaf * 1.0
    seen: list[list[float]] = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    doubling = x.register_hook(lambda g: g * 2.0)
    (x * x).sum().backward(retain_graph=True)
    assert seen == [[2.0, 4.0]]
    assert leaf.grad.tolist() == [4.0, 8.0]
    handle.remove()
    doubling.remove()
    leaf.grad = None
    (x * x).sum().backward()
    assert seen == [[2.0, 4.0]]
    assert leaf.grad.tolist() == [2.0, 4.0]


def test_tensor_and_hook_that_refer_to_each_other_are_collected() -> None:
    class Probe:
        pass

    probe = Probe()
    alive = weakref.ref(probe)
    x = lucid.tensor([1.0], requires_grad=True)
    x.register_hook(lambda g, x=x, probe=probe: g + 0.0 * x)
    (x * 2.0).sum().backward()
    del x, probe
    gc.collect()
    assert alive() is None


def test_accumulation_goes_into_the_same_object() -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    (x * 3.0).sum().backward()
    first = x.grad
    (x * 4.0).sum().backward()
    assert x.grad is first
    assert first.tolist() == [7.0, 7.0]


def test_retained_gradient_of_an_intermediate() -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [4.0, 8.0]


def test_grad_modes() -> None:
    x = lucid.tensor([1.0], requires_grad=True)
    with lucid.no_grad():
        assert not (x * 2.0).requires_grad
        with lucid.enable_grad():
            assert (x * 2.0).requires_grad

    @lucid.no_grad()
    def double(value: Tensor) -> Tensor:
        return value * 2.0

    @lucid.no_grad
    def triple(value: Tensor) -> Tensor:
        return value * 3.0

    assert not double(x).requires_grad
    assert not triple(x).requires_grad
    assert lucid.is_grad_enabled()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: lucid.ones(2).sum().backward(),
            "backward: the tensor does not require a gradient and has no history",
        ),
        (
            lambda: (lucid.ones(2).requires_grad_() * 2.0).backward(),
            "backward: a gradient can be implied only for one element: the tensor has shape (2,); "
            "reduce it to a scalar or pass gradient=",
        ),
        (
            lambda: lucid.ones(2).requires_grad_().add_(1.0),
            "in-place change: the tensor is a leaf that requires a gradient; wrap it in "
            "lucid.no_grad() or change a clone",
        ),
        (
            lambda: grad(lucid.ones(2).requires_grad_().sum(), lucid.ones(2)),
            "grad: an input does not require a gradient; call requires_grad_() on it before it is "
            "used",
        ),
    ],
)
def test_refused(call: Any, text: str) -> None:
    with pytest.raises(lucid.AutogradError) as caught:
        call()
    assert str(caught.value) == text


def test_leaf_replaced_after_the_forward() -> None:
    x = lucid.ones(2).requires_grad_()
    loss = (x * 2.0).sum()
    x.data = lucid.ones(3)
    with pytest.raises(lucid.AutogradError) as caught:
        loss.backward()
    assert str(caught.value) == (
        "backward: the gradient of a leaf is float32[2], the leaf is now float32[3]; it was "
        "replaced after the forward"
    )
    assert x.grad is None
