"""What custom operations and traced functions refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
from lucid import autograd, nn
from lucid.compile import CustomOp, custom_op, make_step

from .case import ErrorCase, emit, f32, leaf
from .runtime import TwoGradients

GAIN = f32(2)


def defined(
    name: str, result: Any, shape: Any = ((2,), np.float32), gradient: Any = lambda x: x
) -> CustomOp:
    """An operation of one input that returns ``result(x)``."""

    def forward(x: Any, *, gain: Any = 1.0) -> Any:
        return result(x)

    op = custom_op(f"errors::{name}", pure=True)(forward)
    if shape is not None:
        op.shape(lambda x, **_: shape)
    if gradient is not None:
        op.vjp(lambda grads, inputs, outputs, **_: gradient(grads[0]))
    return op


def same(x: Any) -> Any:
    return x.copy()


HELD: list[Any] = []
PLAIN = defined("plain", same)
SHAPELESS = defined("shapeless", same, None)
WITHOUT_GRADIENT = defined("without_gradient", same, gradient=None)
COUNT = defined("count", lambda x: (x.copy(), x.copy()))
LIST = defined("list", lambda x: x.tolist())
DTYPE = defined("dtype", lambda x: x.astype(np.float64))
SHAPE = defined("shape", lambda x: x[:1])
HOLDING = defined("holding", lambda x: HELD.append(x[1:]) or x.copy())
WRONG_SHAPE_RULE = defined("wrong_shape_rule", same, 3)
WRONG_PAIR = defined("wrong_pair", same, [((2,), "complex64")])
BFLOAT16 = defined("bfloat16", same, ((2,), lucid.bfloat16))
GRADIENTS = defined("gradients", same, gradient=lambda g: (g, g))
GRADIENT_DTYPE = defined("gradient_dtype", same, gradient=lambda g: g.astype(np.float16))
GRADIENT_SHAPE = defined("gradient_shape", same, gradient=lambda g: g[:1])


def define_parameters() -> None:
    def forward(x: Any, gain: float = 1.0) -> Any:
        return x

    custom_op("errors::parameters", pure=True)(forward)


def define_twice() -> None:
    custom_op("errors::plain", pure=True)(lambda x: x)


def second_gradient() -> None:
    x = leaf(2)
    (grad,) = autograd.grad(PLAIN(x).sum(), x, create_graph=True)
    grad.sum().backward()


def step(loss: Callable[[Any], Any]) -> None:
    make_step(nn.Linear(2, 2), loss, fallback="error")(f32(3, 2))


class Drawing(autograd.Function):
    """Draws random numbers in its backward."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * lucid.rand(3, 2)


class Writing(Drawing):
    """Changes an outside tensor in its backward."""

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        GAIN.add_(1)
        return grad


class Asking(Drawing):
    """Asks for a value in its backward."""

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * grad.sum().item()


class Converting(Drawing):
    """Calls NumPy in its forward."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * lucid.from_numpy(np.ones(2, np.float32))


class Hoarding(autograd.Function):
    """Keeps what one backward computed for the next."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> Any:
        ctx.kept = None
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        given = second if first is None else first
        ctx.kept = given * 2 if ctx.kept is None else ctx.kept
        return given + ctx.kept


class Counting(Drawing):
    """Changes an outside tensor, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        GAIN.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        GAIN.add_(1)
        return grad


class Once(Drawing):
    """Its gradient has no gradient."""

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * 2


class Raising(Drawing):
    """Its backward raises."""

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        raise ZeroDivisionError("no gradient")


def compiled(function: Callable[[Any], Any]) -> Any:
    return lucid.compile(function, fallback="error")(leaf(2))


def part_of_five() -> None:
    def five(x: lucid.Tensor) -> Any:
        y = Once.apply(x)
        return y, y * 2, y * 3, y * 4, y * 5

    results = compiled(five)
    (results[0] + results[1]).sum().backward()


def twice_through_once() -> None:
    x = leaf(2)
    (grad,) = autograd.grad(Once.apply(x).square().sum(), x, create_graph=True)
    grad.sum().backward()


class AsItIs(Drawing):
    """Its own result is the gradient."""

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> Any:
        return (grad.sum(),)


VALUE = (
    "the value of a tensor was asked for inside a compiled step, where only shapes are known; keep "
    "the computation in tensors (for a choice, lucid.where)"
)
TIED = {"rule": 0, "num_outputs": 1}
RULE = {"function": "f", "arguments": "", "num_inputs": 1, "given": [0]}
NODE = {"function": "f", "arguments": "", "has_gradient": True}

DEFINITIONS = [
    ErrorCase(
        "custom_op: name",
        lambda: custom_op("clip", pure=True),
        lucid.UserError,
        "custom_op: name must be 'namespace::name': got 'clip'",
    ),
    ErrorCase(
        "custom_op: pure",
        lambda: custom_op("errors::a", pure=1),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "custom_op: pure must be a bool: got int",
    ),
    ErrorCase(
        "custom_op: no function",
        lambda: custom_op("errors::a", pure=True)(len),
        lucid.ArgumentTypeError,
        "custom_op: errors::a must be a plain function: got builtin_function_or_method",
    ),
    ErrorCase(
        "custom_op: parameters",
        define_parameters,
        lucid.ArgumentTypeError,
        (
            "custom_op: errors::parameters cannot take the parameter gain: 'float' = 1.0; inputs "
            "are positional without defaults, attributes are keyword-only and named"
        ),
    ),
    ErrorCase(
        "custom_op: twice",
        define_twice,
        lucid.UserError,
        "custom_op: errors::plain is the name of another function already; choose another one",
    ),
    ErrorCase(
        "custom_op: shape rule twice",
        lambda: PLAIN.shape(lambda x: None),
        lucid.UserError,
        (
            "errors::plain: a shape rule is registered already; choose another name for the "
            "operation"
        ),
    ),
    ErrorCase(
        "custom_op: no rule",
        lambda: WITHOUT_GRADIENT.vjp(None),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "errors::without_gradient: the gradient rule must be a function: got NoneType",
    ),
    ErrorCase(
        "custom_op: unknown",
        lambda: emit("custom", f32(2), **{**NODE, "function": "errors::no"}, results="float32[2]"),
        lucid.UserError,
        ("errors::no: no custom operation of that name; import the module that defines it first"),
    ),
]

CALLS = [
    ErrorCase(
        "custom_op: input",
        lambda: PLAIN(1.0),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        (
            "errors::plain: input 0 must be a Tensor: got float; numbers and strings are keyword "
            "attributes"
        ),
    ),
    ErrorCase(
        "custom_op: bfloat16 input",
        lambda: PLAIN(lucid.zeros(2, dtype=lucid.bfloat16)),
        lucid.DtypeError,
        "errors::plain: NumPy has no bfloat16: input 0; cast it to float32 first",
    ),
    ErrorCase(
        "custom_op: inputs",
        lambda: PLAIN(f32(2), f32(2)),
        lucid.ArgumentTypeError,
        "errors::plain: takes 1 inputs: got 2",
    ),
    ErrorCase(
        "custom_op: unknown attribute",
        lambda: PLAIN(f32(2), loss=1),
        lucid.ArgumentTypeError,
        "errors::plain: has no attribute loss: its attributes are gain",
    ),
    ErrorCase(
        "custom_op: attribute",
        lambda: PLAIN(f32(2), gain=[1]),
        lucid.ArgumentTypeError,
        (
            "errors::plain: attribute gain must be a bool, number, string, None or tuple of them: "
            "got list"
        ),
    ),
    ErrorCase(
        "custom_op: no shape rule",
        lambda: SHAPELESS(f32(2)),
        lucid.UnsupportedError,
        "errors::shapeless: has no shape rule; register one with @<operation>.shape",
    ),
    ErrorCase(
        "custom_op: shape rule",
        lambda: WRONG_SHAPE_RULE(f32(2)),
        lucid.ArgumentTypeError,
        (
            "errors::wrong_shape_rule: the shape rule must return (shape, dtype) or a list of "
            "them: got 3"
        ),
    ),
    ErrorCase(
        "custom_op: dtype of a shape rule",
        lambda: WRONG_PAIR(f32(2)),
        lucid.ArgumentTypeError,
        (
            "errors::wrong_pair: the shape rule must return (shape, dtype) or a list of them: got "
            "((2,), 'complex64')"
        ),
    ),
    ErrorCase(
        "custom_op: bfloat16 result",
        lambda: BFLOAT16(f32(2)),
        lucid.DtypeError,
        "errors::bfloat16: NumPy has no bfloat16: a result; return float32",
    ),
]

RESULTS = [
    ErrorCase(
        "custom_op: results",
        lambda: COUNT(f32(2)),
        lucid.UserError,
        "errors::count: returned 2 results where the shape rule says 1",
    ),
    ErrorCase(
        "custom_op: no array",
        lambda: LIST(f32(2)),
        lucid.ArgumentTypeError,
        ("errors::list: result 0 must be a NumPy array: got list; convert it with numpy.asarray"),
    ),
    ErrorCase(
        "custom_op: dtype",
        lambda: DTYPE(f32(2)),
        lucid.DtypeError,
        (
            "errors::dtype: result 0 has dtype float64 where float32 is expected; convert it with "
            "astype"
        ),
    ),
    ErrorCase(
        "custom_op: shape",
        lambda: SHAPE(f32(2)),
        lucid.ShapeError,
        "errors::shape: result 0 has shape (1,) where (2,) is expected",
    ),
    ErrorCase(
        "custom_op: held array",
        lambda: HOLDING(f32(2)),
        lucid.UserError,
        (
            "errors::holding: array 0 is still referenced after the call, whose memory is used "
            "again; keep a copy: numpy.array(x)"
        ),
    ),
    ErrorCase(
        "custom_op: no gradient",
        lambda: WITHOUT_GRADIENT(leaf(2)).sum().backward(),
        lucid.UnsupportedError,
        (
            "errors::without_gradient: has no gradient rule; register one with @<operation>.vjp, "
            "or detach its inputs if none is meant"
        ),
    ),
    ErrorCase(
        "custom_op: second gradient",
        second_gradient,
        lucid.UnsupportedError,
        (
            "errors::plain: its gradient has no gradient of its own; write the operation in tensor "
            "operations where second derivatives are needed"
        ),
    ),
    ErrorCase(
        "custom_op: gradients",
        lambda: GRADIENTS(leaf(2)).sum().backward(),
        lucid.UserError,
        (
            "errors::gradients: the gradient rule returned 2 gradients for 1 inputs; return one "
            "for each, None for zeros"
        ),
    ),
    ErrorCase(
        "custom_op: gradient dtype",
        lambda: GRADIENT_DTYPE(leaf(2)).sum().backward(),
        lucid.DtypeError,
        (
            "errors::gradient_dtype: gradient 0 has dtype float16 where float32 is expected; "
            "convert it with astype"
        ),
    ),
    ErrorCase(
        "custom_op: gradient shape",
        lambda: GRADIENT_SHAPE(leaf(2)).sum().backward(),
        lucid.ShapeError,
        "errors::gradient_shape: gradient 0 has shape (1,) where (2,) is expected",
    ),
]

NODES = [
    ErrorCase(
        "custom: results",
        lambda: emit("custom", f32(2), **NODE, results="float32[2"),
        lucid.UserError,
        (
            'custom: results are not a list of types: "float32[2"; write it as float32[2, 3], '
            "int64[]"
        ),
    ),
    ErrorCase(
        "custom: bfloat16",
        lambda: emit("custom", f32(2), **NODE, results="bfloat16[2]"),
        lucid.DtypeError,
        "custom: NumPy has no bfloat16; cast to float32 first",
    ),
    ErrorCase(
        "custom_grad: wanted",
        lambda: emit("custom_grad", f32(2), f32(2), f32(2), **RULE, wanted=[1]),
        lucid.UserError,
        "custom_grad: wanted input is out of range: 1; name inputs of the function",
    ),
    ErrorCase(
        "with_gradient: outputs",
        lambda: emit("with_gradient", f32(2), rule=0, num_outputs=2),
        lucid.UserError,
        "with_gradient: number of outputs is out of range: 2; use 1 to 1",
    ),
    ErrorCase(
        "with_gradient: no rule",
        lambda: emit("with_gradient", leaf(2), f32(2), **TIED).sum().backward(),
        lucid.UnsupportedError,
        (
            "with_gradient: the trace that holds its gradient rule has ended; differentiate inside "
            "of the trace"
        ),
    ),
]

FUNCTIONS = [
    ErrorCase(
        "traced Function: gradients",
        lambda: step(lambda y: TwoGradients.apply(y).sum()),
        lucid.UserError,
        "TwoGradients.backward: returned 2 gradients for 1 inputs of forward",
    ),
    ErrorCase(
        "traced Function: shape of a gradient",
        lambda: step(lambda y: AsItIs.apply(y).sum()),
        lucid.ShapeError,
        "AsItIs.backward: gradient 0 is float32[] for an input float32[3, 2]",
    ),
    ErrorCase(
        "traced Function: random backward",
        lambda: step(lambda y: Drawing.apply(y).sum()),
        lucid.TraceError,
        (
            "make_step: the backward of an autograd.Function draws random numbers; draw them in "
            "its forward and save them for the backward"
        ),
    ),
    ErrorCase(
        "traced Function: writing backward",
        lambda: step(lambda y: Writing.apply(y).sum()),
        lucid.TraceError,
        (
            "make_step: the backward of an autograd.Function changed a tensor that outlives the "
            "step; change it in the forward, or outside of the step"
        ),
    ),
    ErrorCase(
        "compiled Function: backward reads another",
        lambda: compiled(Hoarding.apply),
        lucid.TraceError,
        (
            "compile: the backward of an autograd.Function reads what another backward computed; "
            "compute it in the forward and save it"
        ),
    ),
    ErrorCase(
        "compiled Function: writing backward",
        lambda: compiled(Counting.apply),
        lucid.TraceError,
        (
            "compile: the backward of an autograd.Function changed a tensor that outlives the "
            "step; change it in the forward, or outside of the step"
        ),
    ),
    ErrorCase(
        "compiled Function: raising backward",
        lambda: compiled(Raising.apply),
        lucid.TraceError,
        (
            "compile: the backward of an autograd.Function raised ZeroDivisionError: no gradient; "
            "call it under no_grad where no gradient is wanted"
        ),
    ),
    ErrorCase(
        "compiled Function: part of the results",
        part_of_five,
        lucid.UnsupportedError,
        (
            "backward: gradients of a part of the results of a compiled function would go through "
            "an autograd.Function: of more than 4 results it is recorded for all together and for "
            "each alone; give all a gradient, or return fewer"
        ),
    ),
    ErrorCase(
        "once_differentiable",
        twice_through_once,
        lucid.AutogradError,
        (
            "backward: a gradient goes twice through a function whose backward is "
            "once_differentiable; leave the decorator out, or ask for no second derivatives"
        ),
    ),
    ErrorCase(
        "traced Function: value in backward",
        lambda: step(lambda y: Asking.apply(y).sum()),
        lucid.TraceError,
        f"item: {VALUE}; Asking.backward can work on values as a lucid.compile.custom_op",
    ),
    ErrorCase(
        "traced Function: array in forward",
        lambda: step(lambda y: Converting.apply(y).sum()),
        lucid.TraceError,
        (
            "from_numpy: a NumPy array inside a compiled step would be frozen into it; pass it as "
            "an input of the step; Converting.forward can work on values as a "
            "lucid.compile.custom_op"
        ),
    ),
]

CASES = [*DEFINITIONS, *CALLS, *RESULTS, *NODES, *FUNCTIONS]
