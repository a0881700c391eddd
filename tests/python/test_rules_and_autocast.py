"""Rules of an autograd.Function run without autocast, compiled as in eager code."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, nn
from lucid.autograd import Function
from lucid.compile import make_step


class Product(Function):
    """A rule with a product, which autocast would round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        grad = grad.to(x.dtype)
        return grad @ w.T, x.T @ grad


def test_rules_run_without_autocast() -> None:
    lucid.manual_seed(0)
    x, w, t = lucid.randn(5, 4), lucid.randn(4, 3), lucid.randn(5, 3)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(w.clone())

        def forward(self, x: Tensor) -> Tensor:
            return Product.apply(x, self.w)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (y.float() * t).sum()

    found = []
    for compiled in (False, True):
        net = Net()
        run = make_step(net, loss, fallback="error") if compiled else None
        with lucid.autocast("cpu", lucid.bfloat16):
            value = loss(net(x), t) if run is None else run(x, t)
        value.backward()
        assert net.w.grad is not None
        found.append(net.w.grad.numpy())
    assert (found[0] == found[1]).all()
