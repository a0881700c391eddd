"""diagnose of what cannot be compiled: the reason, its line, and what was recorded before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import numpy
import pytest
from diagnosed import floats, place
from lucid.compile import diagnose, make_step


def asks_item(y: lucid.Tensor) -> lucid.Tensor:
    z = y.exp()
    if z.sum().item() > 1:  # line of item
        z = z * 2
    return z.sum()


def asks_truth(y: lucid.Tensor) -> lucid.Tensor:
    z = y.exp()
    return z.sum() if (z > 1).all() else z.mean()  # line of bool


def takes_nonzero(y: lucid.Tensor) -> lucid.Tensor:
    return lucid.nonzero(y.exp()).sum().float()  # line of nonzero


def takes_unique(y: lucid.Tensor) -> lucid.Tensor:
    return lucid.unique(y.exp()).sum()  # line of unique


def takes_mask(y: lucid.Tensor) -> lucid.Tensor:
    z = y.exp()
    return z[z > 1].sum()  # line of index


def calls_backward(y: lucid.Tensor) -> lucid.Tensor:
    loss = y.exp().sum()
    loss.backward()  # line of backward
    return loss


REFUSALS = [
    (asks_item, "item", ["exp", "sum"]),
    (asks_truth, "bool", ["exp"]),
    (takes_nonzero, "nonzero", ["exp"]),
    (takes_unique, "unique", ["exp"]),
    (takes_mask, "index", ["exp"]),
    (calls_backward, "backward", ["exp", "sum"]),
]


@pytest.mark.parametrize(("loss", "op", "before"), REFUSALS, ids=[r[1] for r in REFUSALS])
def test_refused(loss: Callable[..., Any], op: str, before: list[str]) -> None:
    step = make_step(nn.Linear(2, 3), loss, fallback="error")
    x = floats(4, 2)
    report = diagnose(step, x)
    with pytest.raises(lucid.Error) as caught:
        step(x)
    assert report.reason == str(caught.value)
    assert report.reasons == (report.reason,)
    assert (report.compiled, report.complete) == (False, False)
    refused = report.ops[-1]
    assert (refused.op, refused.compiled, refused.at) == (
        op,
        False,
        place(__file__, f"line of {op}"),
    )
    assert report.reason == f"{refused.reason}\n  at {refused.at}"
    assert refused.reason is not None
    assert report.remedy is not None
    assert refused.reason.endswith("; " + report.remedy)
    recorded = [row.op for row in report.ops[:-1]]
    assert recorded[: 1 + len(before)] == ["linear", *before]
    assert all(row.compiled is True for row in report.ops[:-1])
    assert report.backward_flops is None
    text = str(report)
    assert "what comes after that line is unknown" in text
    assert refused.reason in text
    assert "B so far; backward unknown" in text


def test_explain_says_the_same() -> None:
    step = make_step(nn.Linear(2, 3), asks_item, fallback="silent")
    step(floats(4, 2))
    reason = diagnose(step, floats(4, 2)).reason
    assert reason is not None
    assert step.explain() == f"(float32[4, 2]): runs eagerly: {reason}"


class Attribute(nn.Module):
    """Counts its calls in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.calls = 0

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        self.calls += 1
        y: lucid.Tensor = self.linear(x)
        return y.exp()


def test_what_is_refused_at_the_end_lists_everything() -> None:
    model = Attribute()
    report = diagnose(make_step(model, lambda y: y.sum()), floats(4, 2))
    assert [row.op for row in report.ops] == ["linear", "exp", "sum"]
    assert report.complete
    assert report.reason == (
        "make_step: the step changed attribute Attribute.calls, which a compiled run would not "
        "repeat; keep such state in a registered buffer, or compute it outside of the step"
    )
    assert report.compiled is False
    assert report.ops[0].backward_flops == 2 * 4 * 2 * 3 + 4 * 3
    assert model.calls == 0


def test_a_tensor_without_a_path() -> None:
    hidden = [[[[[[[[floats(3)]]]]]]]]
    report = diagnose(lambda x: x.exp() + hidden[0][0][0][0][0][0][0][0], floats(3))
    assert [row.op for row in report.ops] == ["exp", "add"]
    assert (report.compiled, report.complete) == (False, True)
    assert report.reason is not None
    assert report.reason.startswith("compile: the step read a tensor of shape (3,) that no ")
    assert report.remedy == "pass it as an argument of the step or register it as a buffer"
    assert report.backward_flops == 0


def test_goes_on_after_hooks() -> None:
    def loss(y: lucid.Tensor) -> lucid.Tensor:
        y.register_hook(lambda grad: grad * 2)  # line of register_hook
        z = y.exp()
        z.retain_grad()  # line of retain_grad
        return z.sum()

    step = make_step(nn.Linear(2, 3), loss, fallback="error")
    report = diagnose(step, floats(4, 2))
    assert [row.op for row in report.ops] == [
        "linear",
        "register_hook",
        "exp",
        "retain_grad",
        "sum",
    ]
    assert [row.compiled for row in report.ops] == [True, False, True, False, True]
    assert report.ops[1].at == place(__file__, "line of register_hook")
    assert report.ops[3].at == place(__file__, "line of retain_grad")
    assert report.complete
    assert len(report.reasons) == 2
    with pytest.raises(lucid.TraceError) as caught:
        step(floats(4, 2))
    assert report.reason == str(caught.value)
    assert report.ops[0].backward_ops != ()


def test_an_error_after_a_refusal_is_told() -> None:
    def loss(y: lucid.Tensor) -> lucid.Tensor:
        y.retain_grad()
        if y.grad is None:
            raise ValueError("no gradient yet")
        return y.sum()

    report = diagnose(make_step(nn.Linear(2, 3), loss), floats(4, 2))
    assert report.reason is not None
    assert report.reason.startswith("retain_grad: ")
    assert report.reasons[1] == "no gradient yet"
    assert not report.complete


def test_errors_of_the_function_pass_through() -> None:
    model = Attribute()

    def fails(x: lucid.Tensor) -> lucid.Tensor:
        y: lucid.Tensor = model(x)
        raise KeyError("mine")
        return y

    with pytest.raises(KeyError, match="mine"):
        diagnose(fails, floats(4, 2))
    assert model.calls == 0
    with pytest.raises(lucid.ShapeError, match=r"^linear: "):
        diagnose(model, floats(4, 5))
    assert diagnose(nn.Linear(2, 3), floats(4, 2)).compiled is True


class Doubles(lucid.autograd.Function):
    """Doubles its argument in Python."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * 2


def test_python_functions() -> None:
    step = make_step(nn.Linear(2, 3), lambda y: Doubles.apply(y).sum(), fallback="silent")
    step(floats(4, 2)).backward()
    report = diagnose(step, floats(4, 2))
    assert report.compiled is not step.eager_only
    assert (report.reason or "compiled") in step.explain()
    assert report.ops[0].op == "linear"


def test_bad_inputs() -> None:
    x = floats(2, 4)
    with pytest.raises(lucid.ArgumentTypeError, match="argument 0 must be a Tensor"):
        diagnose(nn.Linear(4, 3), numpy.zeros((2, 4)))
    with pytest.raises(lucid.UserError, match="device"):
        diagnose(nn.Linear(4, 3), x, device="abacus")
