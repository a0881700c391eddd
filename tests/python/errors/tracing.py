"""What cannot be compiled: calls inside a step, and tensors that outlive their trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lucid
import numpy
from lucid import _C, autograd, nn
from lucid.compile import make_step

from .case import ErrorCase, f32, leaf

OUTSIDE = f32(3, 2)
HIDDEN = nn.Linear(2, 2)
NUMBERS = itertools.count()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    result: Callable[..., Any] = lucid.compile(function, fallback="error")
    return result


def traced(inside: Callable[[Any], Any]) -> None:
    """Calls ``inside`` with a model's output while a step is traced."""

    def loss(y: lucid.Tensor) -> lucid.Tensor:
        inside(y)
        return y.sum()

    make_step(nn.Linear(2, 2), loss, fallback="error")(f32(3, 2))


def loop_over_rows() -> None:
    """A trace with a bound on its operations."""
    recorder = _C.Recorder("compile")
    try:
        recorder.limit_nodes(0)
        recorder.argument(f32(2)).exp()
    finally:
        recorder.cancel()


class Carried(Exception):
    """Takes a value out of a trace."""


def traced_value() -> lucid.Tensor:
    """A value of a trace that has ended."""

    def carry(y: lucid.Tensor) -> None:
        raise Carried(y * 2)

    try:
        traced(carry)
    except Carried as caught:
        value: lucid.Tensor = caught.args[0]
        return value
    raise AssertionError


class ChangesInput(nn.Module):
    """Adds its weight to the input, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(f32(2))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x.add_(self.weight)
        return x


def create_graph_through_step() -> None:
    step = make_step(nn.Linear(2, 2), lambda y: y.sum(), fallback="error")
    step(f32(3, 2)).backward(create_graph=True)


def step_in_step(y: lucid.Tensor) -> None:
    make_step(nn.Linear(2, 2), lambda y: y.sum(), fallback="error")(f32(3, 2))


def set_data(tensor: lucid.Tensor, value: lucid.Tensor) -> None:
    tensor.data = value


def change_under_no_grad(y: lucid.Tensor) -> None:
    with lucid.no_grad():
        y.add_(1)


def mix_traces() -> None:
    kept = traced_value()
    traced(lambda y: y + kept)


class GrowsBuffer(nn.Module):
    """Gives its buffer another shape at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("seen", f32(2))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y: lucid.Tensor = self.linear(x)
        self.seen = lucid.cat([self.seen, lucid.ones(1)])
        return y


CASES = [
    ErrorCase(
        "traced: backward",
        lambda: traced(lambda y: y.sum().backward()),
        lucid.TraceError,
        (
            "backward: called inside a compiled step, which makes the backward itself; "
            "return the loss instead, or use autograd.grad(..., create_graph=True)"
        ),
    ),
    ErrorCase(
        "traced: data",
        lambda: traced(lambda y: set_data(f32(2), f32(2))),
        lucid.TraceError,
        "data: assigned inside a compiled step; use copy_ under no_grad",
    ),
    ErrorCase(
        "traced: register_hook",
        lambda: traced(lambda y: y.register_hook(lambda grad: grad)),
        lucid.TraceError,
        (
            "register_hook: a hook on an intermediate tensor cannot be compiled; put the "
            "change into the model as an operation"
        ),
    ),
    ErrorCase(
        "traced: retain_grad",
        lambda: traced(lambda y: y.retain_grad()),
        lucid.TraceError,
        (
            "retain_grad: an intermediate tensor of a compiled step has no gradient of its "
            "own; return it as a result instead"
        ),
    ),
    ErrorCase(
        "traced: step in step",
        lambda: traced(step_in_step),
        lucid.TraceError,
        (
            "make_step: a compiled step was called inside the trace of another; call its "
            "model instead"
        ),
    ),
    ErrorCase(
        "traced: loop over the first axis",
        loop_over_rows,
        lucid.TraceError,
        (
            "compile: the number of operations grows with the size of the first axis; replace "
            "the loop over it by operations on whole tensors"
        ),
    ),
    ErrorCase(
        "traced: list among the arguments",
        lambda: compiled(lambda items: items.append(items[0] * 2))([f32(2)]),
        lucid.TraceError,
        (
            "compile: the step changed a list or dict that is an argument, which a compiled run "
            "would not repeat; return what it computes instead"
        ),
    ),
    ErrorCase(
        "traced: gradient of a parameter",
        lambda: traced(lambda y: HIDDEN.weight.grad),
        lucid.TraceError,
        (
            "grad: the gradient of a tensor was asked for inside a compiled step, which would "
            "not look at it again; pass it as an argument"
        ),
    ),
    ErrorCase(
        "traced: gradient set",
        lambda: traced(lambda y: setattr(HIDDEN.weight, "grad", None)),
        lucid.TraceError,
        (
            "grad: the gradient of a tensor was set inside a compiled step, which would not set "
            "it again; set it, or call zero_grad, outside of the step"
        ),
    ),
    ErrorCase(
        "traced: iterator",
        lambda: compiled(lambda x: x * next(NUMBERS))(f32(2)),
        lucid.TraceError,
        (
            "compile: the step reads from an iterator, NUMBERS, which a compiled run would not "
            "advance; pass what it gives as an argument"
        ),
    ),
    ErrorCase(
        "traced: recorder in step",
        lambda: traced(lambda y: _C.Recorder("compile")),
        lucid.TraceError,
        ("compile: compiled inside the trace of another step; call what it compiles instead"),
    ),
    ErrorCase(
        "traced: grad of several",
        lambda: traced(lambda y: autograd.grad(y * 2, y)),
        lucid.TraceError,
        (
            "grad: a gradient can be implied only for one element: the tensor has shape (3, "
            "2); reduce it to a scalar or pass grad_outputs="
        ),
    ),
    ErrorCase(
        "traced: grad of another",
        lambda: traced(lambda y: autograd.grad(y.sum(), leaf(2))),
        lucid.TraceError,
        ("grad: input 0 is not part of the graph; pass allow_unused=True to get None for it"),
    ),
    ErrorCase(
        "traced: change under no_grad",
        lambda: traced(change_under_no_grad),
        lucid.TraceError,
        (
            "make_step: an intermediate tensor that needs a gradient was changed in place "
            "under no_grad; use an ordinary operation, or leave no_grad"
        ),
    ),
    ErrorCase(
        "traced: outside tensor",
        lambda: traced(lambda y: OUTSIDE.copy_(y)),
        lucid.TraceError,
        (
            "make_step: a tensor that outlives the step was given a value that needs a "
            "gradient; write it under no_grad or from a detached value"
        ),
    ),
    ErrorCase(
        "traced: argument changed",
        lambda: make_step(ChangesInput(), lambda y: y.sum(), fallback="error")(f32(3, 2)),
        lucid.TraceError,
        (
            "make_step: argument 0 of the step was changed in place by a value that needs a "
            "gradient; clone it first"
        ),
    ),
    ErrorCase(
        "traced: from_numpy",
        lambda: traced(lambda y: lucid.from_numpy(numpy.zeros(2))),
        lucid.TraceError,
        (
            "from_numpy: a NumPy array inside a compiled step would be frozen into it; pass it "
            "as an input of the step"
        ),
    ),
    ErrorCase(
        "traced: _C.from_numpy",
        lambda: traced(lambda y: lucid._C.from_numpy(numpy.zeros(2))),
        lucid.TraceError,
        (
            "from_numpy: a NumPy array inside a compiled step would be frozen into it; pass "
            "it as an input of the step"
        ),
    ),
    ErrorCase(
        "traced: detached tensor",
        lambda: traced(lambda y: OUTSIDE.detach().copy_(y)),
        lucid.TraceError,
        (
            "in-place change: a detached tensor was given a value that needs a gradient, "
            "which cannot be compiled; change a clone instead"
        ),
    ),
    ErrorCase(
        "traced: truth",
        lambda: traced(lambda y: bool(y.sum())),
        lucid.TraceError,
        (
            "bool: the value of a tensor was asked for inside a compiled step, where only "
            "shapes are known; keep the computation in tensors (for a choice, lucid.where)"
        ),
    ),
    ErrorCase(
        "traced: numpy",
        lambda: traced(lambda y: y.detach().numpy()),
        lucid.TraceError,
        (
            "numpy: the value of a tensor was asked for inside a compiled step, where only "
            "shapes are known; keep the computation in tensors (for a choice, lucid.where)"
        ),
    ),
    ErrorCase(
        "traced: item",
        lambda: traced(lambda y: y.sum().item()),
        lucid.TraceError,
        (
            "item: the value of a tensor was asked for inside a compiled step, where only "
            "shapes are known; keep the computation in tensors (for a choice, lucid.where)"
        ),
    ),
    ErrorCase(
        "traced: tolist",
        lambda: traced(lambda y: y.tolist()),
        lucid.TraceError,
        (
            "tolist: the value of a tensor was asked for inside a compiled step, where only "
            "shapes are known; keep the computation in tensors (for a choice, lucid.where)"
        ),
    ),
    ErrorCase(
        "traced: unknown module",
        lambda: traced(lambda y: globals()["HIDDEN"](y)),
        lucid.TraceError,
        (
            "make_step: a module Linear was called that no attribute, closure or global "
            "leads to; make it an attribute of the model"
        ),
    ),
    ErrorCase(
        "traced: nonzero",
        lambda: traced(lambda y: lucid.nonzero(y)),
        lucid.TraceError,
        (
            "nonzero: the result's shape depends on data, which a compiled step cannot hold; "
            "use where(condition, x, other)"
        ),
    ),
    ErrorCase(
        "traced: mask",
        lambda: traced(lambda y: y[y > 0]),
        lucid.TraceError,
        (
            "index: a bool mask picks a number of elements that depends on data, which a "
            "compiled step cannot hold; use where(mask, x, other)"
        ),
    ),
    ErrorCase(
        "after a trace: operand",
        lambda: traced_value() + 1,
        lucid.TraceError,
        (
            "add: a tensor of a compiled step was used after its trace; return it as a "
            "result of the step instead"
        ),
    ),
    ErrorCase(
        "after a trace: in place",
        lambda: f32(3, 2).assign_(traced_value()),
        lucid.TraceError,
        "in-place change: the new value belongs to a trace",
    ),
    ErrorCase(
        "after a trace: data",
        lambda: set_data(f32(3, 2), traced_value()),
        lucid.TraceError,
        "data: the new value belongs to a trace",
    ),
    ErrorCase(
        "after a trace: another trace",
        lambda: mix_traces(),
        lucid.TraceError,
        ("make_step: a tensor of a trace that has ended was used; return it as a result instead"),
    ),
    ErrorCase(
        "create_graph through a step",
        lambda: create_graph_through_step(),
        lucid.AutogradError,
        (
            "backward: the gradients of a compiled step have no history, so create_graph "
            "cannot go through it; call autograd.grad(..., create_graph=True) inside the "
            "loss, or use the eager step"
        ),
    ),
    ErrorCase(
        "traced: buffer",
        lambda: make_step(GrowsBuffer(), lambda y: y.sum(), fallback="error")(f32(3, 2)),
        lucid.TraceError,
        (
            "GrowsBuffer.seen: a compiled step can give a buffer only a new value that it "
            "has computed, of the same shape and dtype: got float32[3] for float32[2] "
            "from outside; assign it outside of the step, or use copy_"
        ),
    ),
    ErrorCase(
        "memory limit: cannot be met",
        lambda: make_step(HIDDEN, lambda y: (y * y).sum(), memory_limit=1)(f32(16, 2)),
        lucid.UserError,
        (
            "make_step: memory_limit=1 bytes cannot be met: the smallest peak found is 256 bytes, "
            "against 256 without a limit; raise the limit or make the batch smaller"
        ),
    ),
    ErrorCase(
        "memory limit: no number of bytes",
        lambda: make_step(HIDDEN, lambda y: y.sum(), memory_limit=-5),
        lucid.UserError,
        "make_step: memory_limit must be a positive number of bytes: got -5",
    ),
    ErrorCase(
        "candidates without auto",
        lambda: make_step(HIDDEN, lambda y: y.sum(), candidates=[1]),
        lucid.UnsupportedError,
        "make_step: candidates go with segments='auto'; leave them out",
    ),
]
