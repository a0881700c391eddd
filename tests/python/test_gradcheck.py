"""gradcheck, gradgradcheck and detect_anomaly: what tells that a gradient is wrong."""

from __future__ import annotations

import re
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import Tensor, nn
from lucid.autograd import (
    Function,
    detect_anomaly,
    gradcheck,
    gradgradcheck,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from lucid.autograd.gradcheck import GradcheckError
from lucid.compile import make_step


def doubles(*shape: int, seed: int = 0) -> Tensor:
    lucid.manual_seed(seed)
    return lucid.randn(*shape, dtype=lucid.float64, requires_grad=True)


class Scaled(Function):
    """3 x with a gradient of a given slope."""

    slope = 3.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * Scaled.slope


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaled, "slope", 2.5)


def test_good_gradients() -> None:
    x, y = doubles(2, 3), doubles(3, 2, seed=1)
    assert gradcheck(lambda x: x.sin(), x)
    assert gradcheck(lambda x, y: (x @ y, x.exp().sum(), (x > 0)), (x, y))
    assert gradcheck(lambda x, y, power: (x**power).sum() * y.mean(), (x, y, 3))
    assert gradcheck(Scaled.apply, (x,))
    assert gradcheck(lambda x, y: x * 2, (x, y))  # y has no part in it
    assert gradgradcheck(lambda x, y: (x.tanh() @ y).sigmoid(), (x, y))
    assert gradgradcheck(lambda x: x * 2, x)
    before = x.tolist()
    assert gradgradcheck(lambda x: (x**3, x.sum()), x, [doubles(2, 3, seed=2), doubles(seed=3)])
    assert [t.grad for t in (x, y)] == [None, None]
    assert x.tolist() == before


def test_a_module() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)).double()
    assert gradcheck(lambda x, *_: model(x), (doubles(2, 3), *model.parameters()))
    assert gradgradcheck(lambda x, *_: model(x), (doubles(2, 3), *model.parameters()))


@pytest.mark.usefixtures("wrong")
def test_a_wrong_gradient() -> None:
    x = doubles(2)
    text = (
        "gradcheck: the gradient of output 1 for input 0 is not that of central differences: "
        "element 0 of the input by element 0 of the output is 2.5, expected 3; correct the backward"
    )
    with pytest.raises(GradcheckError, match=re.escape(text)):
        gradcheck(lambda x: (x * 2, Scaled.apply(x)), x)
    assert not gradcheck(Scaled.apply, (x,), raise_exception=False)
    assert gradcheck(Scaled.apply, (x,), atol=0.6)
    assert gradcheck(Scaled.apply, (x,), rtol=0.2)


def test_a_wrong_second_gradient() -> None:
    class Squared(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * gradient * x.detach()

    x = doubles(3)
    assert gradcheck(Squared.apply, (x,))
    with pytest.raises(GradcheckError, match="the gradient of output 0 for input 0 is not that of"):
        gradgradcheck(Squared.apply, (x,))
    assert not gradgradcheck(Squared.apply, (x,), raise_exception=False)


def test_a_first_gradient_without_history() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return (3 * gradient * x * x).detach()

    x, y = doubles(3), doubles(3, seed=1)
    assert gradcheck(Cube.apply, (x,))
    assert not gradgradcheck(Cube.apply, (x,), raise_exception=False)
    with pytest.raises(GradcheckError, match="the gradient of output 0 for input 0 is not that of"):
        gradgradcheck(lambda x, y: Cube.apply(x) + y * y, (x, y))


def test_a_second_gradient_that_is_zero() -> None:
    x, y = doubles(3), doubles(3, seed=1)
    assert gradgradcheck(lambda x, y: x * 2, (x, y))  # y has no part in it
    assert gradgradcheck(lambda x: x.sign() + x * 0, x)


def test_no_output_with_a_gradient() -> None:
    x = doubles(2)
    for function in (lambda x: x.detach(), lambda x: (x > 0, x.detach()), lambda x: ()):
        for check in (gradcheck, gradgradcheck):
            with pytest.raises(GradcheckError, match="gradcheck: no output requires a gradient"):
                check(function, x)
            assert not check(function, x, raise_exception=False)


def test_a_backward_that_does_not_repeat() -> None:
    class Noisy(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 3

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 3 + gradient * lucid.rand_like(gradient) * 1e-7

    with pytest.raises(GradcheckError, match="two backwards of output 0 differ for input 0: by"):
        gradcheck(Noisy.apply, (doubles(2),))
    assert gradcheck(Noisy.apply, (doubles(2),), nondet_tol=1e-6)


def test_what_cannot_be_checked() -> None:
    for inputs in (lucid.ones(2), (), (lucid.ones(2), 3)):
        with pytest.raises(lucid.UserError, match="gradcheck: no input requires a gradient"):
            gradcheck(lambda *args: lucid.ones(2), inputs)
    with pytest.warns(UserWarning, match="gradcheck: input 0 is float32, too coarse"):
        gradcheck(lambda x: x * 2, lucid.ones(2, requires_grad=True), atol=0.1)


def nan_in_backward(x: Tensor) -> Tensor:
    return (x - x).sqrt().sum() * 0.0  # 0 * inf


def line_of(error: BaseException) -> str:
    return str(error).partition("\n  at ")[2]


def test_detect_anomaly_names_operation_and_line() -> None:
    x = lucid.ones(3, requires_grad=True)
    nan_in_backward(x).backward()
    assert x.grad is not None and bool(x.grad.isnan().all())
    x.grad = None
    with detect_anomaly():
        assert is_anomaly_enabled() and is_anomaly_check_nan_enabled()
        loss = nan_in_backward(x)
        with pytest.raises(lucid.AutogradError) as caught:
            loss.backward()
    text = "backward: sqrt_backward returned nan as gradient 0; look at what it is computed from"
    assert str(caught.value).partition("\n")[0] == text
    line = nan_in_backward.__code__.co_firstlineno + 1
    assert line_of(caught.value) == f"{__file__}:{line}"
    assert x.grad is None
    assert not is_anomaly_enabled()


def test_detect_anomaly_without_anomalies() -> None:
    x = doubles(3)
    with detect_anomaly():
        (x.sin() * x).sum().backward()
    wanted = x.grad
    x.grad = None
    (x.sin() * x).sum().backward()
    assert wanted is not None and x.grad is not None
    assert wanted.tolist() == x.grad.tolist()


def test_modes_of_the_search() -> None:
    x = lucid.ones(3, requires_grad=True)
    with detect_anomaly(check_nan=False):
        nan_in_backward(x).backward()
    set_detect_anomaly(True)
    try:
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
            nan_in_backward(x).backward()
        assert is_anomaly_enabled()
        with pytest.raises(lucid.AutogradError, match="returned nan"):
            lucid.autograd.grad(nan_in_backward(x), x)
    finally:
        set_detect_anomaly(False)
    assert not is_anomaly_enabled()


def test_a_search_can_be_entered_again() -> None:
    search = detect_anomaly(check_nan=False)
    with search, search:
        assert is_anomaly_enabled() and not is_anomaly_check_nan_enabled()
    assert not is_anomaly_enabled() and is_anomaly_check_nan_enabled()
    search_at_once = set_detect_anomaly(True)
    with search_at_once:
        with search_at_once:
            assert is_anomaly_enabled()
        assert is_anomaly_enabled()
    assert not is_anomaly_enabled()


def test_gradients_of_a_compiled_step_are_checked_as_one() -> None:
    model = nn.Linear(3, 3)
    step = make_step(model, lambda y: nan_in_backward(y), fallback="error")
    x = lucid.ones(2, 3)
    step(x).backward()
    model.zero_grad()
    with detect_anomaly(), pytest.raises(lucid.AutogradError, match="backward: .* returned nan"):
        step(x).backward()
    assert all(p.grad is None for p in model.parameters())
    assert F.mse_loss(model(x), x).item() > 0
