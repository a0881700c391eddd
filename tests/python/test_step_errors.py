"""What a step refuses, with the exact text, and that nothing has changed afterwards."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy
import pytest
from lucid.compile import FallbackWarning, make_step
from test_bit_equality import state_bits
from zoo import floats, labels


class Model(nn.Module):
    """Batch-norm, dropout and a linear layer; ``then`` may do anything to the output."""

    def __init__(self, then: Callable[[Any], Any] = lambda y: y) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.linear = nn.Linear(4, 3)
        self.then = then

    def forward(self, x: Any) -> Any:
        return self.then(self.linear(F.dropout(self.norm(x), 0.5)))


@dataclasses.dataclass(frozen=True)
class Refused:
    """A step, its arguments, the class of the error and its whole text (a regular expression)."""

    name: str
    error: type[Exception]
    text: str
    loss: Callable[..., Any] = F.cross_entropy
    then: Callable[[Any], Any] = lambda y: y
    args: Callable[[], tuple[Any, ...]] = lambda: (floats(1, 5, 4), labels(1, 3, 5))


HERE = r"\n  at .*test_step_errors\.py:\d+"


class Own(Exception):
    """An exception of the user's."""


def _raise(y: Any) -> Any:
    raise Own("mine")


REFUSED = [
    Refused(
        "loss of several elements",
        lucid.ShapeError,
        r"make_step: the loss must have one element: got shape \(5, 3\); reduce it with \.mean\(\) "
        r"or \.sum\(\)",
        loss=lambda y, t: y,
    ),
    Refused(
        "dict as loss",
        lucid.ArgumentTypeError,
        "make_step: the loss function must return one Tensor: got dict; add the parts up to one "
        "loss",
        loss=lambda y, t: {"a": y.sum()},
    ),
    Refused(
        "tuple as loss",
        lucid.ArgumentTypeError,
        "make_step: the loss function must return one Tensor: got tuple; add the parts up to one "
        "loss",
        loss=lambda y, t: (y.sum(), y.mean()),
    ),
    Refused(
        "integer loss",
        lucid.DtypeError,
        r"make_step: the loss must be floating: got int64; convert it with \.float\(\)",
        loss=lambda y, t: t.sum(),
    ),
    Refused(
        "NumPy array as input",
        lucid.ArgumentTypeError,
        "step: x must be a Tensor, a number or a list, tuple or dict of them: got NumPy array; "
        r"convert it with lucid\.tensor or lucid\.from_numpy",
        args=lambda: (numpy.zeros((5, 4), numpy.float32), labels(1, 3, 5)),
    ),
    Refused(
        "NumPy array as target",
        lucid.ArgumentTypeError,
        "step: extra input 1 must be a Tensor, a number or a list, tuple or dict of them: got "
        r"NumPy array; convert it with lucid\.tensor or lucid\.from_numpy",
        args=lambda: (floats(1, 5, 4), numpy.zeros(5, numpy.int64)),
    ),
    Refused(
        "list as input",
        lucid.ArgumentTypeError,
        r"step: x must be a Tensor: got list; convert it with lucid\.tensor or lucid\.from_numpy",
        args=lambda: ([[1.0, 2.0, 3.0, 4.0]],),
    ),
    Refused(
        "no input",
        lucid.ArgumentTypeError,
        r"step: needs the model's input: step\(x, \*extra_inputs\)",
        args=lambda: (),
    ),
    Refused(
        "float targets of wrong shape",
        lucid.DtypeError,
        r"cross_entropy: target must be int32 or int64 class indices, or probabilities in the "
        r"shape \(5, 3\): got lucid\.float32 of shape \(5,\)" + HERE,
        args=lambda: (floats(1, 5, 4), floats(2, 5)),
    ),
    Refused(
        "class index out of range",
        lucid.OutOfRangeError,
        r"cross_entropy: .*7.*" + HERE,
        args=lambda: (floats(1, 5, 4), lucid.tensor([0, 1, 7, 2, 0])),
    ),
    Refused(
        "item of a traced tensor",
        lucid.TraceError,
        "item: the value of a tensor was asked for inside a compiled step, where only shapes are "
        r"known; keep the computation in tensors \(for a choice, lucid\.where\)" + HERE,
        then=lambda y: y * y.sum().item(),
    ),
    Refused(
        "truth of a traced tensor",
        lucid.TraceError,
        r"bool: the value of a tensor was asked for .*" + HERE,
        then=lambda y: y if y.sum() > 0 else -y,
    ),
    Refused(
        "numpy of a traced tensor",
        lucid.TraceError,
        r"numpy: the value of a tensor was asked for .*" + HERE,
        then=lambda y: y + lucid.tensor(y.detach().numpy()),
    ),
    Refused(
        "model returns no tensor",
        lucid.ArgumentTypeError,
        "make_step: the model returned no tensor: got NoneType; return the tensor that the loss "
        "function takes",
        then=lambda y: None,
    ),
    Refused(
        "shapes that do not fit",
        lucid.ShapeError,
        r"add: shapes differ: \(5, 3\) and \(2,\); .*" + HERE,
        then=lambda y: y + lucid.zeros(2),
    ),
    Refused(
        "features that do not fit",
        lucid.ShapeError,
        r"batch_norm: .*",
        args=lambda: (floats(1, 5, 6), labels(1, 3, 5)),
    ),
    Refused("exception of the user", Own, "mine", then=_raise),
    Refused(
        "backward inside the loss",
        lucid.TraceError,
        "backward: called inside a compiled step, which makes the backward itself; .*",
        loss=lambda y, t: (y.sum().backward(), y.sum())[1],
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.name)
def test_refused(case: Refused) -> None:
    lucid.manual_seed(3)
    model = Model()
    step = make_step(model, lambda *args: case.loss(*args), fallback="error")
    model.then = case.then
    before, generator = state_bits(model), lucid.get_rng_state().tolist()
    entries, attributes = step.cache_info()["entries"], dict(model.__dict__)
    with pytest.raises(case.error) as caught:
        step(*case.args())
    assert re.fullmatch(case.text, str(caught.value), re.DOTALL), str(caught.value)
    assert state_bits(model) == before
    assert lucid.get_rng_state().tolist() == generator
    assert step.cache_info()["entries"] == entries
    assert model.__dict__ == attributes
    assert all(p.grad is None for p in model.parameters())
    assert not lucid._C.is_tracing()


def test_next_step_works_after_an_error() -> None:
    lucid.manual_seed(3)
    model = Model()
    step = make_step(model, F.cross_entropy, fallback="error")
    with pytest.raises(lucid.OutOfRangeError):
        step(floats(1, 5, 4), lucid.tensor([0, 1, 7, 2, 0]))
    state = lucid.get_rng_state()
    loss = step(floats(1, 5, 4), labels(1, 3, 5))
    loss.backward()
    lucid.manual_seed(3)
    fresh = Model()
    lucid.set_rng_state(state)
    wanted = F.cross_entropy(fresh(floats(1, 5, 4)), labels(1, 3, 5))
    assert loss.item() == wanted.item()
    assert state_bits(model) == state_bits(fresh)


def test_model_without_parameters() -> None:
    step = make_step(nn.ReLU(), lambda y: y.sum(), fallback="error")
    text = (
        "make_step: nothing to differentiate: the model ReLU has no parameters and no input "
        "requires a gradient; call the model itself, or set requires_grad on an input"
    )
    with pytest.raises(lucid.UserError, match=re.escape(text)):
        step(floats(1, 3))
    x = floats(1, 3).requires_grad_()
    step(x).backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: make_step(lambda x: x, F.mse_loss),  # type: ignore[arg-type]
            lucid.ArgumentTypeError,
            "make_step: model must be an nn.Module: got function",
        ),
        (
            lambda: make_step(nn.ReLU(), 3),  # type: ignore[arg-type]
            lucid.ArgumentTypeError,
            "make_step: loss_fn must be callable: got int",
        ),
        (
            lambda: make_step(nn.ReLU(), F.mse_loss, segments=2),
            lucid.ArgumentTypeError,
            "make_step: segments=2 needs an nn.Sequential with its own forward: got ReLU; "
            "use segments=1",
        ),
        (
            lambda: make_step(nn.ReLU(), F.mse_loss, fallback="maybe"),
            lucid.UserError,
            "make_step: fallback must be one of warn, error, silent: got 'maybe'",
        ),
        (
            lambda: make_step(nn.Linear(2, 2), F.mse_loss).memory(),
            lucid.UserError,
            "memory: nothing has been compiled yet: call it once",
        ),
    ],
)
def test_bad_calls(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


class Counting(nn.Module):
    """Changes an attribute in its forward, which no trace can carry."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls = 0
        self.outputs: list[Any] = []

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        self.calls += 1
        y: lucid.Tensor = self.linear(x)
        return y


class Collecting(Counting):
    """Keeps a tensor in a list."""

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y: lucid.Tensor = self.linear(x)
        self.outputs.append(y)
        return y


class Gambling(Counting):
    """Draws from NumPy's generator."""

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y: lucid.Tensor = self.linear(x)
        return y * float(numpy.random.rand())


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (Counting, "attribute Counting.calls"),
        (Collecting, "attribute Collecting.outputs"),
        (Gambling, "NumPy's random generator"),
    ],
)
def test_what_a_trace_cannot_carry(model: type[Counting], what: str) -> None:
    made = model()
    text = (
        f"make_step: the step changed {what}, which a compiled run would not repeat; keep such "
        "state in a registered buffer, or compute it outside of the step"
    )
    refusing = make_step(made, F.cross_entropy, fallback="error")
    with pytest.raises(lucid.TraceError, match=re.escape(text)):
        refusing(floats(1, 5, 4), labels(1, 3, 5))
    assert made.calls == 0
    assert made.outputs == []
    warning = make_step(made, F.cross_entropy, fallback="warn")
    with pytest.warns(FallbackWarning, match=re.escape(text)):
        warning(floats(1, 5, 4), labels(1, 3, 5)).backward()
    assert warning.eager_only
    assert text in warning.explain()
    silent = make_step(made, F.cross_entropy, fallback="silent")
    calls = made.calls
    silent(floats(1, 5, 4), labels(1, 3, 5)).backward()
    silent(floats(1, 5, 4), labels(1, 3, 5)).backward()
    assert made.calls - calls in (0, 2)
    assert silent.eager_only


def test_second_backward_and_second_derivative() -> None:
    model = nn.Linear(4, 3)
    step = make_step(model, F.cross_entropy, fallback="error")
    loss = step(floats(1, 5, 4), labels(1, 3, 5))
    with pytest.raises(lucid.AutogradError, match="have no history, so create_graph cannot go"):
        loss.backward(create_graph=True)
    assert model.weight.grad is None
    loss.backward()
    first = model.weight.grad.numpy().copy()
    with pytest.raises(lucid.AutogradError, match="freed by an earlier backward"):
        loss.backward()
    assert (model.weight.grad.numpy() == first).all()


def test_refusal_holds_for_its_signature_only() -> None:
    step = make_step(nn.Linear(4, 3), lambda y: y.sum() * y.sum().item(), fallback="silent")
    x = floats(1, 5, 4)
    for _ in range(2):
        step(x)
    assert step.explain().count("runs eagerly") == 1
    before = lucid.get_default_dtype()
    lucid.set_default_dtype(lucid.float64)
    try:
        step(x)
    finally:
        lucid.set_default_dtype(before)
    assert step.explain().count("runs eagerly") == 2
