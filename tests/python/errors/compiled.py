"""What compiled functions and modules, fused steps and the options of make_step refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import nn, optim
from lucid.amp import GradScaler
from lucid.compile import compile_optimizer, compiled_step, fused_step, make_step

from .case import ErrorCase, f32, leaf

MODEL = nn.Linear(2, 2)
STACK = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def foreign_sizes() -> None:
    compiled = lucid.compile(lambda x: x + 1, fallback="error")
    compiled(f32(3))
    lucid._C.SizedTrace.restore(compiled._entries[0].traced.trace, 3, [], [])


def total(y: lucid.Tensor, *extra: Any) -> lucid.Tensor:
    """The sum of the model's output."""
    return y.sum()


def fused_with_a_write() -> None:
    model = nn.Linear(2, 2)

    def loss_fn(y: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            model.bias.fill_(1.0)
        return y.sum()

    optimizer = optim.SGD(model.parameters(), lr=0.1)
    fused_step(model, loss_fn, optimizer, fallback="error")(f32(3, 2))


def fused(
    model: nn.Module = MODEL,
    loss_fn: Callable[..., Any] = total,
    parameters: list[lucid.Tensor] | None = None,
    **options: Any,
) -> Any:
    """A fused step with plain gradient descent."""
    params = list(model.parameters()) if parameters is None else parameters
    return fused_step(model, loss_fn, optim.SGD(params, lr=0.1), fallback="error", **options)


class OwnStep(optim.SGD):
    """Has a step of its own."""

    def step(self, closure: Any = None) -> Any:
        return None


class WithSlots:
    """An object without a __dict__."""

    __slots__ = ()

    @lucid.compile
    def double(self, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2.0


def step_in_trace() -> None:
    optimizer = optim.SGD([leaf(2)], lr=0.1)

    def inside(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.step()
        return x

    lucid.compile(inside, fallback="error")(f32(2))


def hooked() -> Any:
    model = nn.Linear(2, 2)
    model.weight.register_hook(lambda gradient: gradient)
    return fused(model)(f32(3, 2))


def hooked_segments() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.register_forward_hook(lambda m, i, o: o)
    return make_step(model, total, segments=2)


class Pair(nn.Module):
    """Returns two tensors."""

    def forward(self, x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        return x, x


def segment_of_two() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), Pair(), nn.Linear(2, 2))
    return make_step(model, total, segments=3, fallback="error")(f32(3, 2))


def create_graph() -> None:
    x = leaf(2)
    y = lucid.compile(lambda x: x * x)(x).sum()
    lucid.autograd.grad(y, x, create_graph=True)


def hidden_tensor() -> None:
    def made() -> Callable[[], lucid.Tensor]:
        deep = [[[[[[[[f32(2, 3)]]]]]]]]
        return lambda: deep[0][0][0][0][0][0][0][0] * 2.0

    lucid.compile(made(), fallback="error")()


def half_gradients() -> Any:
    model = nn.Linear(2, 2).half()
    return fused(model, scaler=GradScaler())(f32(3, 2).half())


def decorated(kind: Any) -> Any:
    return lucid.compile(kind(total))


FUNCTIONS = [
    ErrorCase(
        "compile: a class",
        lambda: lucid.compile(nn.Linear),
        lucid.ArgumentTypeError,
        "compile: expected a module or a function: got a class; make an instance first",
    ),
    ErrorCase(
        "compile: a number",
        lambda: lucid.compile(3),
        lucid.ArgumentTypeError,
        "compile: expected a module or a function: got int; make an instance first",
    ),
    ErrorCase(
        "compile: a staticmethod",
        lambda: decorated(staticmethod),
        lucid.ArgumentTypeError,
        "compile: expected a module or a function: got a staticmethod; put @staticmethod above "
        "@lucid.compile",
    ),
    ErrorCase(
        "compile: a step",
        lambda: lucid.compile(make_step(MODEL, total)),
        lucid.ArgumentTypeError,
        "compile: expected a module or a function: got a Step, which is compiled already; call it "
        "as it is",
    ),
    ErrorCase(
        "compile: fallback",
        lambda: lucid.compile(total, fallback="maybe"),
        lucid.UserError,
        "compile: fallback must be one of warn, error, silent: got 'maybe'",
    ),
    ErrorCase(
        "compile: slots",
        lambda: WithSlots().double(f32(2)),
        lucid.ArgumentTypeError,
        "compile: an object with compiled methods needs a __dict__: got WithSlots, whose class "
        "has __slots__; leave them out",
    ),
    ErrorCase(
        "compile: an object as result",
        lambda: lucid.compile(lambda x: object(), fallback="error")(f32(2)),
        lucid.TraceError,
        "compile: the result holds something that cannot be put together again: step: the result "
        "must be a Tensor, a number or a list, tuple or dict of them: got object; convert it with "
        "lucid.tensor or lucid.from_numpy",
    ),
    ErrorCase(
        "compile: a tensor too deep",
        hidden_tensor,
        lucid.TraceError,
        "compile: the step read a tensor of shape (2, 3) that no parameter, buffer, attribute, "
        "closure or global leads to, so it could not be fetched at the next call; pass it as an "
        "argument of the step or register it as a buffer",
    ),
    ErrorCase(
        "compile: create_graph",
        create_graph,
        lucid.AutogradError,
        "backward: the gradients of a compiled function have no history, so create_graph cannot "
        "go through it; use the function that was compiled",
    ),
    ErrorCase(
        "compile: nothing compiled",
        lambda: lucid.compile(lambda x: x).memory(),
        lucid.UserError,
        "memory: nothing has been compiled yet: call it once",
    ),
    ErrorCase(
        "compiled_step: model",
        lambda: compiled_step(3, total),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "compiled_step: model must be an nn.Module: got int",
    ),
    ErrorCase(
        "optimizer: step in a trace",
        step_in_trace,
        lucid.TraceError,
        "optimizer: step was called inside a trace, whose later runs would not advance the "
        "optimizer's counts; call it after the step, or use lucid.compile.fused_step",
    ),
]

FUSED = [
    ErrorCase(
        "fused_step: model",
        lambda: fused_step(3, total, optim.SGD([leaf(2)])),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "fused_step: model must be an nn.Module: got int",
    ),
    ErrorCase(
        "fused_step: loss_fn",
        lambda: fused(loss_fn=3),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "fused_step: loss_fn must be callable: got int",
    ),
    ErrorCase(
        "fused_step: optimizer",
        lambda: fused_step(MODEL, total, 3),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "fused_step: optimizer must be a lucid.optim.Optimizer: got int",
    ),
    ErrorCase(
        "compile_optimizer: a step of its own",
        lambda: compile_optimizer(OwnStep([leaf(2)])),
        lucid.UnsupportedError,
        "compile_optimizer: OwnStep has a step of its own, which is not traced; define _tensors, "
        "_numbers and update instead, or use make_step",
    ),
    ErrorCase(
        "fused_step: scaler",
        lambda: fused(scaler=3),
        lucid.ArgumentTypeError,
        "fused_step: scaler must be a lucid.amp.GradScaler: got int",
    ),
    ErrorCase(
        "fused_step: parameter written",
        lambda: fused_with_a_write(),
        lucid.TraceError,
        "fused_step: the step writes a parameter of shape (2,) that its optimizer updates; write "
        "it outside of the step, or use make_step",
    ),
    ErrorCase(
        "fused_step: clip_norm",
        lambda: fused(clip_norm=0),
        lucid.UserError,
        "fused_step: clip_norm must be a positive number: got 0",
    ),
    ErrorCase(
        "fused_step: accumulate",
        lambda: fused(accumulate=0),
        lucid.UserError,
        "fused_step: accumulate must be a positive integer: got 0",
    ),
    ErrorCase(
        "fused_step: parts",
        lambda: fused(accumulate=2)(f32(3, 2)),
        lucid.ShapeError,
        "fused_step: accumulate=2 cuts the first axis into equal parts: got size 3; choose a "
        "multiple",
    ),
    ErrorCase(
        "fused_step: no input",
        lambda: fused()(),
        lucid.ArgumentTypeError,
        "fused_step: needs the model's input: step(x, *extra)",
    ),
    ErrorCase(
        "fused_step: no_grad",
        lambda: lucid.no_grad()(fused())(f32(3, 2)),
        lucid.UserError,
        "fused_step: called under no_grad; call the model itself there",
    ),
    ErrorCase(
        "fused_step: a leaf as input",
        lambda: fused()(leaf(3, 2)),
        lucid.UserError,
        "fused_step: an input of shape (3, 2) requires a gradient, which a fused step does not "
        "return; detach it, or use make_step",
    ),
    ErrorCase(
        "fused_step: nothing to update",
        lambda: fused(parameters=[f32(2)])(f32(3, 2)),
        lucid.UserError,
        "fused_step: no parameter of the optimizer requires a gradient; there is nothing to update",
    ),
    ErrorCase(
        "fused_step: other parameters",
        lambda: fused(parameters=[leaf(2)])(f32(3, 2)),
        lucid.UserError,
        "fused_step: the loss depends on no parameter of the optimizer; make the optimizer from "
        "the parameters of the model that is trained",
    ),
    ErrorCase(
        "fused_step: a hook",
        hooked,
        lucid.TraceError,
        "fused_step: a parameter of shape (2, 2) has a gradient hook, which one executable does "
        "not call; remove it, or use make_step",
    ),
    ErrorCase(
        "fused_step: the loss",
        lambda: fused(loss_fn=lambda y: y)(f32(3, 2)),
        lucid.ShapeError,
        "fused_step: the loss must have one element: got shape (3, 2); reduce it with .mean() or "
        ".sum()",
    ),
    ErrorCase(
        "fused_step: no aux",
        lambda: fused(has_aux=True)(f32(3, 2)),
        lucid.ArgumentTypeError,
        "fused_step: with has_aux=True the loss function must return (loss, aux): got Tensor",
    ),
    ErrorCase(
        "fused_step: half gradients",
        half_gradients,
        lucid.UserError,
        "unscale_: a gradient is float16: its range has no room for unscaling; keep the "
        "parameters in float32 and run the forward under autocast",
    ),
]

OPTIONS = [
    ErrorCase(
        "make_step: memory_limit",
        lambda: make_step(MODEL, total, memory_limit=0),
        lucid.UserError,
        "make_step: memory_limit must be a positive number of bytes: got 0",
    ),
    ErrorCase(
        "load_compiled: sizes of another graph",
        foreign_sizes,
        lucid.UserError,
        "load_compiled: the file's sizes do not fit its graph; save it again",
    ),
    ErrorCase(
        "compile_optimizer: nothing",
        compile_optimizer,
        lucid.ArgumentTypeError,
        "compile_optimizer: needs an optimizer: call it as compile_optimizer(optimizer), or with "
        "model, loss_fn and optimizer",
    ),
    ErrorCase(
        "make_step: segments",
        lambda: make_step(STACK, total, segments=0),
        lucid.UserError,
        "make_step: segments must be a positive integer or 'auto': got 0",
    ),
    ErrorCase(
        "make_step: segments and hooks",
        hooked_segments,
        lucid.ArgumentTypeError,
        "make_step: segments=2 cannot split an nn.Sequential that has hooks of its own; register "
        "them on its children",
    ),
    ErrorCase(
        "make_step: a segment of two tensors",
        segment_of_two,
        lucid.ArgumentTypeError,
        "make_step: a segment must end with one Tensor: child Pair returned tuple; choose another "
        "number of segments",
    ),
    ErrorCase(
        "make_step: candidates",
        lambda: make_step(STACK, total, segments="auto", candidates=[0]),
        lucid.UserError,
        "make_step: candidates must be positive integers: got [0]",
    ),
    ErrorCase(
        "make_step: candidates without auto",
        lambda: make_step(STACK, total, candidates=[1]),
        lucid.UnsupportedError,
        "make_step: candidates go with segments='auto'; leave them out",
    ),
    ErrorCase(
        "make_step: chosen_segments",
        lambda: make_step(STACK, total, segments="auto").chosen_segments(),  # type: ignore[attr-defined]
        lucid.UserError,
        "chosen_segments: nothing has been probed yet: call the step once",
    ),
    ErrorCase(
        "make_step: probe_results",
        lambda: make_step(STACK, total, segments="auto").probe_results(),  # type: ignore[attr-defined]
        lucid.UserError,
        "probe_results: nothing has been probed yet: call the step once",
    ),
    ErrorCase(
        "make_step: no floating element",
        lambda: make_step(MODEL, lambda y: (y > 0).sum(), fallback="error")(f32(3, 2)),
        lucid.DtypeError,
        "make_step: the loss must be floating: got int64; convert it with .float()",
    ),
]

CASES = [*FUNCTIONS, *FUSED, *OPTIONS]
