"""Full backward hooks of modules: what they see, what they change, and that steps compile them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
from lucid import nn
from lucid.compile import make_step

Grads = tuple[lucid.Tensor | None, ...]


class Product(nn.Module):
    """Two results of two tensors and a number."""

    def forward(self, a: lucid.Tensor, scale: float, b: lucid.Tensor) -> Any:
        return a * b * scale, a + b


def leaf(*values: float) -> lucid.Tensor:
    return lucid.tensor(list(values), requires_grad=True)


def values(grads: Grads) -> list[list[float] | None]:
    return [None if grad is None else grad.tolist() for grad in grads]


def test_a_hook_sees_the_gradients_of_arguments_and_results() -> None:
    module, seen = Product(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((m, values(gi), values(go))))
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product, total = module(a, 2.0, b)
    (product.sum() + 10 * total.sum()).backward()
    grad_input = [[16.0, 18.0], None, [12.0, 14.0]]
    assert seen == [(module, grad_input, [[1.0, 1.0], [10.0, 10.0]])]
    assert a.grad is not None and a.grad.tolist() == [16.0, 18.0]


def test_an_unused_result_has_no_gradient() -> None:
    module, seen = Product(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(values(go)))
    module(leaf(1.0), 2.0, leaf(3.0))[1].sum().backward()
    assert seen == [[None, [1.0]]]


def test_a_tensor_without_gradient_is_none() -> None:
    module, seen = Product(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(values(gi)))
    module(leaf(1.0), 2.0, lucid.tensor([3.0]))[0].sum().backward()
    assert seen == [[[6.0], None, None]]


def test_without_differentiable_arguments_a_hook_runs_at_the_results() -> None:
    linear, seen = nn.Linear(2, 1), []
    linear.register_full_backward_hook(lambda m, gi, go: seen.append((values(gi), values(go))))
    linear(lucid.ones(1, 2)).sum().backward()
    assert seen == [([None], [[[1.0]]])]


def test_hooks_replace_gradients_in_their_order() -> None:
    module = nn.Identity()
    order: list[str] = []

    def changed(name: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
        def hook(*args: Any) -> Any:
            order.append(name)
            return change(args[1][0])

        return hook

    module.register_full_backward_hook(changed("second", lambda g: (g + 1,)))
    module.register_full_backward_hook(changed("first", lambda g: g * 10), prepend=True)
    module.register_full_backward_pre_hook(changed("pre", lambda g: g * 3))
    x = leaf(1.0)
    module(x).sum().backward()
    assert order == ["pre", "first", "second"]
    assert x.grad is not None and x.grad.tolist() == [31.0]


def test_a_removed_hook_is_gone_and_no_grad_needs_none() -> None:
    module, seen = nn.Identity(), []
    with module.register_full_backward_hook(lambda m, gi, go: seen.append(1)):
        with lucid.no_grad():
            assert module(leaf(1.0)).tolist() == [1.0]
    module(leaf(1.0)).sum().backward()
    assert seen == []


def test_a_second_derivative_goes_through_hooks() -> None:
    module = nn.Tanh()
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * gi[0],))
    x = lucid.tensor([0.3], dtype=lucid.float64, requires_grad=True)
    (first,) = lucid.autograd.grad(module(x).sum(), x, create_graph=True)
    (second,) = lucid.autograd.grad(first.sum(), x)
    y = lucid.tanh(x.detach())
    slope = 1 - y * y
    assert lucid.allclose(first, slope * slope)
    assert lucid.allclose(second, (2 * slope * (-2 * y * slope)) ** 2)  # it passes the hook too


# ------------------------------------------------------------ in compiled steps


def make_model() -> nn.Sequential:
    lucid.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def reversed_gradient(module: nn.Module, grad_input: Grads, grad_output: Grads) -> Any:
    """Of domain-adversarial training (Ganin and others 2016), scaled by what comes in."""
    assert grad_input[0] is not None and grad_output[0] is not None
    return (-grad_input[0] * grad_output[0].abs().mean(),)


def gradients(model: nn.Module, run: Callable[..., lucid.Tensor]) -> list[Any]:
    model.zero_grad()
    run(lucid.ones(2, 4), lucid.tensor([0, 2])).backward()
    return [p.grad.tolist() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("segments", [1, 2])
def test_a_step_compiles_hooks(segments: int) -> None:
    model, loss_fn = make_model(), nn.CrossEntropyLoss()
    step = make_step(model, loss_fn, segments=segments, fallback="error")
    plain = gradients(model, step)
    handles = [
        model[1].register_full_backward_hook(reversed_gradient),
        model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,)),
    ]
    eager = gradients(model, lambda x, t: loss_fn(model(x), t))
    assert gradients(model, step) == eager != plain
    traces = step.cache_info()["misses"]
    assert gradients(model, step) == eager
    assert step.cache_info()["misses"] == traces
    for handle in handles:
        handle.remove()
    assert gradients(model, step) == plain


def test_a_step_refuses_hooks_that_a_run_would_not_repeat() -> None:
    model, seen = make_model(), []
    step = make_step(model, nn.CrossEntropyLoss(), fallback="error")
    with model[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].mean())):
        with pytest.raises(lucid.TraceError, match="changed variable seen"):
            gradients(model, step)
    assert seen == []
    with model[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].mean().item())):
        with pytest.raises(lucid.TraceError, match="item: the value of a tensor was asked for"):
            gradients(model, step)
    assert seen == []
    assert len(gradients(model, step)) == 4


def test_segments_refuse_hooks_of_the_whole() -> None:
    model = make_model()
    model.register_full_backward_hook(reversed_gradient)
    with pytest.raises(lucid.ArgumentTypeError, match="hooks of its own"):
        make_step(model, nn.CrossEntropyLoss(), segments=2)
