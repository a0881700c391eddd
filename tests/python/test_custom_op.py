"""custom_op: users' NumPy functions, eagerly and inside of compiled steps."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest
from custom_ops import CALLS, Array, gradients, one_input, softclip
from lucid import Tensor, nn
from lucid.autograd import grad
from lucid.compile import TensorSpec, counters, custom_op, make_step


@custom_op("tests::moments", pure=True)
def moments(x: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Weighted sum of rows, sum of squares, and the index of the largest weight."""
    return weights @ x, (x * x).sum(), np.asarray(weights.argmax())


@moments.shape
def _(x: TensorSpec, weights: TensorSpec) -> Any:
    return [(x.shape[1:], x.dtype), ((), x.dtype), ((), "int64")]


@moments.vjp
def _(grads: Any, inputs: Any, outputs: Any) -> Any:
    x, weights = inputs
    assert grads[2] is None
    return np.outer(weights, grads[0]) + 2 * grads[1] * x, x @ grads[0]


@custom_op("tests::note", pure=False)
def note(x: Array, *, tag: str = "") -> Array:
    """x, and a note of the call."""
    CALLS.append(tag)
    return x.copy()


@note.shape
def _(x: TensorSpec, *, tag: str) -> Any:
    return x.shape, x.dtype


@note.vjp
def _(grads: Any, inputs: Any, outputs: Any, *, tag: str) -> Any:
    CALLS.append(tag + "'")
    return grads[0] if tag != "constant" else None


@custom_op("tests::failing", pure=True)
def failing(x: Array, *, when: str = "forward") -> Array:
    if when == "forward":
        raise KeyError("forward")
    return x.copy()


@failing.shape
def _(x: TensorSpec, *, when: str) -> Any:
    if when == "shape":
        raise KeyError("shape")
    return x.shape, x.dtype


@failing.vjp
def _(grads: Any, inputs: Any, outputs: Any, *, when: str) -> Any:
    raise KeyError("gradient")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lucid.manual_seed(0)
    CALLS.clear()
    yield
    CALLS.clear()


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.25), nn.Linear(8, 4)
    )


def batch() -> tuple[Tensor, Tensor]:
    return lucid.randn(5, 6), lucid.randn(5, 4)


def check_equal(
    loss: Callable[[Tensor, Tensor], Tensor], segments: int = 1, scales: Any = (1.0, 3.0, 3.0)
) -> list[list[str]]:
    """Compiled and eager steps give the same bits and make the same calls; returns the calls."""
    model = network()
    x, t = batch()
    step = make_step(model, loss, segments=segments, fallback="error")
    seen = []
    for scale in scales:
        lucid.manual_seed(1)
        CALLS.clear()
        expected = gradients(model, loss(model(x), t), scale)
        calls, state = list(CALLS), lucid.get_rng_state()
        lucid.manual_seed(1)
        CALLS.clear()
        assert gradients(model, step(x, t), scale) == expected
        assert lucid.get_rng_state().tolist() == state.tolist()
        seen.append([*calls, "|", *CALLS])
    return seen


def clipped(y: Tensor, t: Tensor) -> Tensor:
    return (softclip(y, limit=1.5) - t).square().mean()


def test_values_and_gradients() -> None:
    x = lucid.tensor([0.5, -3.0], requires_grad=True, dtype=lucid.float64)
    y = softclip(x, limit=2.0)
    np.testing.assert_array_equal(y.detach().numpy(), 2 * np.tanh([0.25, -1.5]))
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh([0.25, -1.5]) ** 2, rtol=1e-15)


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_compiled_equals_eager(segments: int) -> None:
    check_equal(clipped, segments)


def test_inside_the_model_of_segments() -> None:
    class Clip(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = softclip(x, limit=0.5)
            return result

    x, t = batch()
    for segments in (1, 2, 3):
        lucid.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 4), Clip(), nn.Linear(4, 4), Clip())
        step = make_step(model, nn.functional.mse_loss, segments=segments, fallback="error")
        expected = gradients(model, nn.functional.mse_loss(model(x), t), 1.0)
        CALLS.clear()
        assert gradients(model, step(x, t), 1.0) == expected
        # A pure operation of a segment before the last may be computed again in the backward.
        assert CALLS.count("softclip'") == 2
        assert 2 <= CALLS.count("softclip") <= 4


def test_warm_step_is_one_run() -> None:
    model = network()
    x, t = batch()
    step = make_step(model, clipped, fallback="error")
    step(x, t).backward()
    for parameter in model.parameters():
        parameter.grad = None
    before = counters()
    step(x, t).backward()
    after = counters()
    assert after["executable_runs"] - before["executable_runs"] == 1
    assert after["eager_dispatches"] == before["eager_dispatches"]
    assert after["compilations"] == before["compilations"]


def test_several_outputs() -> None:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        row, squares, place = moments(y, t.mean(1))
        return row.sum() * squares + place.float()

    def only_one(y: Tensor, t: Tensor) -> Tensor:
        total: Tensor = moments(y, t.mean(1))[1]
        return total

    check_equal(loss)
    check_equal(only_one)
    x, w = lucid.randn(3, 4, requires_grad=True), lucid.randn(3, requires_grad=True)
    row, squares, place = moments(x, w)
    assert place.dtype is lucid.int64 and not place.requires_grad
    (gx,) = grad(squares, x, retain_graph=True)
    assert gx is not None
    np.testing.assert_allclose(gx.numpy(), 2 * x.detach().numpy(), rtol=1e-6)
    gx, gw = grad(row.sum(), (x, w))
    assert gw is not None
    np.testing.assert_allclose(gw.numpy(), x.detach().numpy().sum(1), rtol=1e-6)


def test_none_is_zeros() -> None:
    x = lucid.ones(3, requires_grad=True)
    note(x, tag="constant").sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0, 0.0]


def test_first_output_may_be_an_integer() -> None:
    op = custom_op("tests::count_first", pure=True)(lambda x: (np.asarray(x.size), x * 2))
    op.shape(lambda x: [((), np.int64), (x.shape, x.dtype)])
    op.vjp(lambda grads, inputs, outputs: 2 * grads[1])
    x = lucid.ones(3, requires_grad=True)
    count, doubled = op(x)
    assert count.item() == 3
    doubled.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]


def test_no_inputs_and_any_number() -> None:
    op = custom_op("tests::ramp", pure=True)(lambda *, size: np.arange(size, dtype=np.float32))
    op.shape(lambda *, size: [((size,), "float32")])
    (ramp,) = op(size=3)
    assert ramp.tolist() == [0.0, 1.0, 2.0]
    total = custom_op("tests::total", pure=True)(lambda *xs: np.asarray(sum(x.sum() for x in xs)))
    total.shape(lambda *xs: ((), xs[0].dtype))
    assert total(ramp, ramp, ramp).item() == 9.0


@pytest.mark.parametrize(
    "dtype", ["bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_dtypes(dtype: str) -> None:
    op = one_input("flipped", flipped)
    x = lucid.tensor([[1, 0, 3], [0, 0, 2]]).to(getattr(lucid, dtype))
    y = op(x)
    assert y.dtype is x.dtype
    assert y.tolist() == x.numpy()[:, ::-1].tolist()


def flipped(x: Array) -> Array:
    return x[:, ::-1]


def test_empty_and_scalar() -> None:
    op = one_input("same_again", lambda x: x)
    assert op(lucid.zeros(0, 3)).shape == (0, 3)
    assert op(lucid.tensor(2.5)).item() == 2.5


def test_inputs_share_memory_and_cannot_be_written() -> None:
    x = lucid.randn(4)
    seen: list[Any] = []

    def look(a: Array) -> Array:
        seen.append(a.__array_interface__["data"])
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            a.setflags(write=True)
        return a.copy()

    one_input("look", look)(x)
    assert seen == [(x.numpy().__array_interface__["data"][0], True)]


# ------------------------------------------------------------ attributes


ATTRIBUTES: tuple[Any, ...] = (
    *(True, False, None, 0, 1, -7, 2**80, 0.0, -0.0, 1.0, -2.5e-300, math.inf, -math.inf, math.nan),
    *("", "a'b\"c\n", "\udc80 é", (), (1,), (1, (2.0, "x"), None), (True, -0.0)),
)


def identity_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(identity_of, value))
    return type(value), value.hex() if isinstance(value, float) else value


def test_attributes_arrive_by_type_and_bits() -> None:
    seen: list[Any] = []

    def take(x: Array, *, value: Any) -> Array:
        seen.append(value)
        return x.copy()

    op = one_input("take", take)
    for value in ATTRIBUTES:
        op(lucid.ones(1), value=value)
    assert list(map(identity_of, seen)) == list(map(identity_of, ATTRIBUTES))
    op(lucid.ones(1), value=np.float64(2.5))
    assert identity_of(seen[-1]) == identity_of(2.5)


@pytest.mark.parametrize(("first", "second"), [(1, True), (1, 1.0), (0.0, -0.0), ((1,), 1)])
def test_attributes_are_part_of_the_node(first: Any, second: Any) -> None:
    op = one_input("told_apart", told_apart)
    x = lucid.ones(1)
    assert [op(x, value=v).item() for v in (first, second, first)] == [
        float(told_apart(np.ones(1), value=v)[0]) for v in (first, second, first)
    ]
    choice = [first]
    step = make_step(
        nn.Linear(1, 1), lambda y: op(y * 0 + 1, value=choice[0]).sum(), fallback="error"
    )
    assert step(x).item() == told_apart(np.ones(1), value=first)[0]
    choice[0] = second
    assert step(x).item() == told_apart(np.ones(1), value=second)[0]


def told_apart(x: Array, *, value: Any) -> Array:
    kinds = {bool: 1, int: 2, float: 3, tuple: 4}
    sign = math.copysign(1, value) if isinstance(value, float) else 1
    return (x * kinds[type(value)] * sign).astype(x.dtype)


# ------------------------------------------------------------ purity


def test_pure_ones_are_merged_and_dropped() -> None:
    def loss(y: Tensor) -> Tensor:
        softclip(y, limit=4.0)
        return (softclip(y, limit=1.0) + softclip(y, limit=1.0)).sum()

    model = nn.Linear(2, 2)
    step = make_step(model, loss, fallback="error")
    step(lucid.ones(1, 2))
    CALLS.clear()
    step(lucid.ones(1, 2))
    assert CALLS == ["softclip", "softclip'"]


def noted(y: Tensor, t: Tensor) -> Tensor:
    note(y, tag="unused")
    a = note(y, tag="same")
    b = note(y, tag="same")
    return (note(a, tag="inner") + b - t).square().mean()


@pytest.mark.parametrize("segments", [1, 3, 5])
def test_impure_ones_run_once_in_order(segments: int) -> None:
    forward = ["unused", "same", "same", "inner"]
    backward = ["inner'", "same'", "same'"]
    for calls in check_equal(noted, segments):
        # At the second scale the step knows its seed and at the first it does not: no difference.
        assert calls == [*forward, *backward, "|", *forward, *backward]


class Noting(nn.Module):
    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = note(lucid.tanh(x), tag=self.tag) * 2
        return result


@pytest.mark.parametrize("segments", [1, 2, 3, 4])
def test_impure_ones_inside_of_segments(segments: int) -> None:
    lucid.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 4), Noting("a"), nn.Linear(4, 4), Noting("b"))
    x, t = batch()
    step = make_step(model, nn.functional.mse_loss, segments=segments, fallback="error")
    for scale in (1.0, 2.0, 1.0):
        expected = gradients(model, nn.functional.mse_loss(model(x), t), scale)
        CALLS.clear()
        assert gradients(model, step(x, t), scale) == expected
        assert CALLS == ["a", "b", "b'", "a'"]
    assert len(step.memory()["segments"]) == segments


def test_an_impure_gradient_runs_at_each_backward() -> None:
    model = nn.Linear(2, 2)
    step = make_step(model, lambda y: note(y, tag="n").sum(), fallback="error")
    loss = step(lucid.ones(1, 2))
    assert CALLS == ["n"]
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()
    assert CALLS == ["n", "n'", "n'", "n'"]


def test_no_grad() -> None:
    model = network().eval()
    x, t = batch()
    step = make_step(model, noted, fallback="error")
    with lucid.no_grad():
        found = step(x, t)
        assert CALLS == ["unused", "same", "same", "inner"]
        assert found.item() == noted(model(x), t).item()
    assert not found.requires_grad


def test_auto_does_not_try_what_is_impure() -> None:
    model = network()
    x, t = batch()
    step = make_step(model, noted, segments="auto", fallback="error")
    loss = step(x, t)
    assert CALLS == ["unused", "same", "same", "inner"]
    assert step.chosen_segments() == 1
    assert "without a trial" in step.explain()
    loss.backward()


# ------------------------------------------------------------ failures


def test_exceptions_pass_through_with_a_note() -> None:
    x = lucid.ones(2, requires_grad=True)
    for when, run in (
        ("forward", lambda: failing(x)),
        ("shape", lambda: failing(x, when="shape")),
        ("gradient", lambda: failing(x, when="gradient").sum().backward()),
    ):
        with pytest.raises(KeyError, match=when) as caught:
            run()
        shown = "".join(traceback.format_exception_only(KeyError, caught.value))
        assert "custom operation tests::failing" in "".join(caught.value.__notes__) + shown
    assert x.grad is None


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("when", ["forward", "gradient"])
def test_a_failed_step_leaves_no_trace(when: str, segments: int) -> None:
    is_off = [True]

    def forward(x: Array) -> Array:
        if when == "forward" and not is_off[0]:
            raise RuntimeError("switched on")
        return x.copy()

    op = custom_op(f"tests::switched_{when}_{segments}", pure=True)(forward)
    op.shape(lambda x: (x.shape, x.dtype))

    @op.vjp
    def _(grads: Any, inputs: Any, outputs: Any) -> Any:
        if when == "gradient" and not is_off[0]:
            raise RuntimeError("switched on")
        return grads[0].copy()

    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4))
    x, t = batch()
    step = make_step(
        model,
        lambda y, t: (op(y) - t).square().mean(),
        segments=segments,
        fallback="error",
    )
    step(x, t).backward()
    state = {k: v.numpy().tobytes() for k, v in model.state_dict().items()}
    grads = [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None]
    generator = lucid.get_rng_state().tolist()
    is_off[0] = False
    with pytest.raises(RuntimeError, match="switched on") as caught:
        step(x, t).backward()
    assert "called at" in caught.value.__notes__[0]
    assert {k: v.numpy().tobytes() for k, v in model.state_dict().items()} == state
    assert [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None] == grads
    assert lucid.get_rng_state().tolist() == generator
    is_off[0] = True
    before = {k: v.clone() for k, v in model.state_dict().items()}
    lucid.manual_seed(5)
    found = gradients(model, step(x, t), 1.0)
    model.load_state_dict(before)
    lucid.manual_seed(5)
    assert gradients(model, (op(model(x)) - t).square().mean(), 1.0) == found


def test_a_wrong_result_in_a_step_names_the_line() -> None:
    op = one_input("cut", lambda x: x[:1])
    step = make_step(nn.Linear(2, 2), lambda y: op(y).sum(), fallback="error")
    with pytest.raises(lucid.ShapeError, match=r"result 0 has shape \(1, 2\)") as caught:
        step(lucid.ones(3, 2))
    assert f"\n  at {__file__}:" in str(caught.value)


def test_no_gradient_is_refused_by_name_when_asked_for() -> None:
    op = custom_op("tests::no_gradient", pure=True)(lambda x: x.copy())
    op.shape(lambda x: (x.shape, x.dtype))
    model = nn.Linear(2, 2)
    detached = make_step(model, lambda y: (op(y.detach()) * y).sum(), fallback="error")
    detached(lucid.ones(1, 2)).backward()
    step = make_step(model, lambda y: op(y).sum(), fallback="error")
    with pytest.raises(lucid.UnsupportedError, match="tests::no_gradient: has no gradient rule"):
        step(lucid.ones(1, 2))
    with lucid.no_grad():
        step(lucid.ones(1, 2))
    op.vjp(lambda grads, inputs, outputs: grads[0].copy())
    step(lucid.ones(1, 2)).backward()


def test_metal_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucid.Tensor, "device", property(lambda self: lucid.device("metal")))
    with pytest.raises(
        lucid.UnsupportedError,
        match=r"tests::softclip: a custom operation runs on cpu only: input 0 is on metal; "
        r"move it with .to\('cpu'\)",
    ):
        softclip(lucid.ones(2), limit=1.0)
