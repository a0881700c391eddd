"""What the core refuses beside the operations: tensors, gradients, devices, numbers."""

from __future__ import annotations

from typing import Any

import lucid
import numpy
from lucid import autograd
from lucid.autograd.gradcheck import GradcheckError

from .case import ErrorCase, f32, f64, i64, leaf


def backward_twice() -> None:
    loss = (leaf(2) * 2).exp().sum()
    loss.backward()
    loss.backward()


def change_a_leaf() -> None:
    leaf(2).add_(1)


def view_of_many_views() -> None:
    x = f32(2)
    for _ in range(1001):
        x = lucid._C.view("reshape", x, shape=[2])


class TwoGradients(autograd.Function):
    """Returns one gradient too many."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> Any:
        return grad, grad


class Forwardless(autograd.Function):
    """Defines nothing."""


class Forwarding(autograd.Function):
    """Defines a forward only."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2


INPUT = "%0 = input argument float32[2]"


def graph(*lines: str) -> str:
    return lucid._C.parse_graph("\n".join(["graph {", *lines, "return %0", "}"]))


def hook_of_another_shape() -> None:
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda grad: f32(3))
    y.sum().backward()


def assign_grad() -> None:
    leaf(2).grad = f32(3)


def unset_requires_grad() -> None:
    (leaf(2) * 2).requires_grad_(False)


class WrongGradient(autograd.Function):
    """3 x with a gradient of 2.5, and what may be added to it."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * 2.5


SLOPES = iter(range(10**6))


class Unsteady(WrongGradient):
    """Each backward gives 1 more than the one before."""

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> lucid.Tensor:
        return grad * next(SLOPES)


def one_double() -> lucid.Tensor:
    return lucid.ones(1, dtype=lucid.float64, requires_grad=True)


def nan_gradient() -> None:
    with autograd.detect_anomaly():
        (leaf(1).sqrt() * 0.0).sum().backward()


CHECKS = [
    ErrorCase(
        "gradcheck: nothing to check",
        lambda: autograd.gradcheck(lambda x: x, f64(1)),
        lucid.UserError,
        "gradcheck: no input requires a gradient; set requires_grad on a floating tensor",
    ),
    ErrorCase(
        "gradcheck: result",
        lambda: autograd.gradcheck(lambda x: None, one_double()),
        lucid.ArgumentTypeError,
        "gradcheck: func must return a Tensor or a tuple of them: got NoneType",
    ),
    ErrorCase(
        "gradcheck: no differentiable output",
        lambda: autograd.gradcheck(lambda x: (x.detach(), x > 0), one_double()),
        GradcheckError,
        "gradcheck: no output requires a gradient: got 2 without; return a floating tensor that "
        "is computed from the inputs",
    ),
    ErrorCase(
        "gradcheck: wrong gradient",
        lambda: autograd.gradcheck(WrongGradient.apply, one_double()),
        GradcheckError,
        "gradcheck: the gradient of output 0 for input 0 is not that of central differences: "
        "element 0 of the input by element 0 of the output is 2.5, expected 3; correct the "
        "backward",
    ),
    ErrorCase(
        "gradcheck: unsteady gradient",
        lambda: autograd.gradcheck(Unsteady.apply, one_double()),
        GradcheckError,
        "gradcheck: two backwards of output 0 differ for input 0: by 1; make them repeatable, or "
        "give nondet_tol",
    ),
    ErrorCase(
        "detect_anomaly",
        nan_gradient,
        lucid.AutogradError,
        "backward: sqrt_backward returned nan as gradient 0; look at what it is computed from",
    ),
]

CASES = [
    *CHECKS,
    ErrorCase(
        "backward: several elements",
        lambda: (leaf(2) * 2).backward(),
        lucid.AutogradError,
        (
            "backward: a gradient can be implied only for one element: the tensor has shape "
            "(2,); reduce it to a scalar or pass gradient="
        ),
    ),
    ErrorCase(
        "backward: gradient's shape",
        lambda: (leaf(2) * 2).backward(f32(3)),
        lucid.ShapeError,
        "backward: gradient has shape (3,), the tensor (2,)",
    ),
    ErrorCase(
        "backward: gradient's dtype",
        lambda: (leaf(2) * 2).backward(f64(2)),
        lucid.DtypeError,
        "backward: gradient is float64, the tensor float32",
    ),
    ErrorCase(
        "backward: no history",
        lambda: f32().backward(),
        lucid.AutogradError,
        "backward: the tensor does not require a gradient and has no history",
    ),
    ErrorCase(
        "backward: twice",
        lambda: backward_twice(),
        lucid.AutogradError,
        (
            "backward: the saved values were freed by an earlier backward; pass "
            "retain_graph=True to that one to go through the same graph again"
        ),
    ),
    ErrorCase(
        "grad: input without gradient",
        lambda: autograd.grad(leaf(2).sum(), f32(2)),
        lucid.AutogradError,
        (
            "grad: an input does not require a gradient; call requires_grad_() on it before "
            "it is used"
        ),
    ),
    ErrorCase(
        "grad: input not in the graph",
        lambda: autograd.grad(leaf(2).sum(), leaf(2)),
        lucid.AutogradError,
        ("grad: input 0 is not part of the graph; pass allow_unused=True to get None for it"),
    ),
    ErrorCase(
        "grad: gradients",
        lambda: autograd.grad([leaf(2).sum(), leaf(2).sum()], leaf(2), [f32()]),
        lucid.UserError,
        "grad: 2 tensors need 2 gradients: got 1",
    ),
    ErrorCase(
        "requires_grad_: not a leaf",
        lambda: unset_requires_grad(),
        lucid.AutogradError,
        (
            "requires_grad_: only a leaf can stop requiring a gradient; use detach() to get "
            "a tensor without history"
        ),
    ),
    ErrorCase(
        "requires_grad_: integers",
        lambda: i64(2).requires_grad_(),
        lucid.DtypeError,
        "requires_grad_: only floating dtypes have gradients: got int64",
    ),
    ErrorCase(
        "add_: leaf",
        lambda: change_a_leaf(),
        lucid.AutogradError,
        (
            "in-place change: the tensor is a leaf that requires a gradient; wrap it in "
            "lucid.no_grad() or change a clone"
        ),
    ),
    ErrorCase(
        "assign_: shape",
        lambda: f32(2).assign_(f32(3)),
        lucid.ShapeError,
        "in-place change: the tensor is float32[2], the new value float32[3]",
    ),
    ErrorCase(
        "assign_: dtype",
        lambda: f32(2).assign_(f64(2)),
        lucid.ShapeError,
        "in-place change: the tensor is float32[2], the new value float64[2]",
    ),
    ErrorCase(
        "grad: assigned shape",
        lambda: assign_grad(),
        lucid.ShapeError,
        "grad: the tensor is float32[2], the assigned gradient float32[3]",
    ),
    ErrorCase(
        "register_hook: no gradient",
        lambda: f32(2).register_hook(lambda grad: grad),
        lucid.AutogradError,
        "register_hook: the tensor does not require a gradient",
    ),
    ErrorCase(
        "retain_grad: no gradient",
        lambda: f32(2).retain_grad(),
        lucid.AutogradError,
        "retain_grad: the tensor does not require a gradient",
    ),
    ErrorCase(
        "gradient hook: shape",
        lambda: hook_of_another_shape(),
        lucid.ShapeError,
        "gradient hook: returned float32[3] for a gradient float32[2]",
    ),
    ErrorCase(
        "Function: gradients",
        lambda: TwoGradients.apply(leaf(2)).sum().backward(),
        lucid.UserError,
        "TwoGradients.backward: returned 2 gradients for 1 inputs of forward",
    ),
    ErrorCase(
        "Function: no forward",
        lambda: Forwardless.apply(leaf(2)),
        NotImplementedError,
        "Function: forward is not defined",
    ),
    ErrorCase(
        "view of many views",
        lambda: view_of_many_views(),
        lucid.UnsupportedError,
        "reshape: view of a view, 1001 deep; clone() it first",
    ),
    ErrorCase(
        "numpy: requires a gradient",
        lambda: leaf(2).numpy(),
        lucid.AutogradError,
        "numpy: the tensor requires a gradient; call detach().numpy() instead",
    ),
    ErrorCase(
        "item: several elements",
        lambda: f32(2).item(),
        lucid.ShapeError,
        ("item: takes a tensor of one element: got shape (2,); reduce it first or use tolist()"),
    ),
    ErrorCase(
        "from_numpy: list",
        lambda: lucid.from_numpy([1.0]),
        lucid.ArgumentTypeError,
        "from_numpy: expected a NumPy array: got list; use tensor",
    ),
    ErrorCase(
        "from_numpy: text",
        lambda: lucid.from_numpy(numpy.array(["a"])),
        lucid.ArgumentTypeError,
        (
            "from_numpy: expected numbers: got ndarray of <U1; give numbers, nested lists of "
            "numbers or a NumPy array"
        ),
    ),
    ErrorCase(
        "from_numpy: complex",
        lambda: lucid.from_numpy(numpy.zeros(2, numpy.complex64)),
        lucid.DtypeError,
        (
            "from_numpy: a dtype that lucid lacks: got complex64; convert the array with astype, "
            "for example to float32"
        ),
    ),
    ErrorCase(
        "device: unknown",
        lambda: lucid.device("tpu"),
        lucid.UserError,
        "device: unknown device 'tpu'; use 'cpu' or 'metal'",
    ),
    ErrorCase(
        "device: second",
        lambda: lucid.device("cpu", 1),
        lucid.UserError,
        "device: there is one device of a type: got index 1",
    ),
    ErrorCase(
        "device: index",
        lambda: lucid.device("cpu:1"),
        lucid.UserError,
        "device: unknown device 'cpu:1'; use 'cpu' or 'metal'",
    ),
    ErrorCase(
        "device: metal",
        lambda: lucid.zeros(2, device="metal"),
        lucid.DeviceUnavailableError,
        (
            "device metal: not available in this build; needs macOS 14 or later on an Apple "
            "GPU; available: cpu"
        ),
    ),
    ErrorCase(
        "dtype: unknown name",
        lambda: lucid._C.dtype_from_name("float8"),
        lucid.UserError,
        "dtype: unknown name 'float8'",
    ),
    ErrorCase(
        "promote_types: names",
        lambda: lucid._C.promote_types("a", "b"),
        lucid.ArgumentTypeError,
        "promote_types: takes two dtypes",
    ),
    ErrorCase(
        "set_default_dtype: integers",
        lambda: lucid.set_default_dtype(lucid.int64),
        lucid.ArgumentTypeError,
        "set_default_dtype: takes a floating dtype",
    ),
    ErrorCase(
        "set_num_threads: 0",
        lambda: lucid.set_num_threads(0),
        lucid.UserError,
        "set_num_threads: count must be from 1 to 1024: got 0",
    ),
    ErrorCase(
        "set_num_threads: fraction",
        lambda: lucid.set_num_threads(1.5),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "set_num_threads: count must be an integer: got float",
    ),
    ErrorCase(
        "set_num_threads: too many",
        lambda: lucid.set_num_threads(1025),
        lucid.UserError,
        "set_num_threads: count must be from 1 to 1024: got 1025",
    ),
    ErrorCase(
        "set_num_threads: negative",
        lambda: lucid.set_num_threads(-2),
        lucid.UserError,
        "set_num_threads: count must be from 1 to 1024: got -2",
    ),
    ErrorCase(
        "set_num_threads: more than 32 bits",
        lambda: lucid.set_num_threads(2**32 + 1),
        lucid.UserError,
        "set_num_threads: count must be from 1 to 1024: got 4294967297",
    ),
    ErrorCase(
        "parse_graph: line",
        lambda: lucid._C.parse_graph("no graph"),
        lucid.UserError,
        "graph text, line 1: expected 'graph'",
    ),
    ErrorCase(
        "truth of several",
        lambda: bool(f32(2)),
        lucid.UserError,
        (
            "bool: expected one element: got shape (2,); reduce it first, for example with "
            "any() or sum()"
        ),
    ),
    ErrorCase(
        "len of 0-d",
        lambda: len(f32()),
        lucid.ArgumentTypeError,
        "len: a 0-d tensor has no length; use item()",
    ),
    ErrorCase(
        "Function: no backward",
        lambda: Forwarding.apply(leaf(2)).sum().backward(),
        NotImplementedError,
        "Function: backward is not defined",
    ),
    ErrorCase(
        "_C.from_numpy: list",
        lambda: lucid._C.from_numpy([1.0]),
        lucid.ArgumentTypeError,
        "from_numpy: takes a NumPy array: got list",
    ),
    ErrorCase(
        "_C.from_numpy: text",
        lambda: lucid._C.from_numpy(numpy.array(["a"])),
        lucid.DtypeError,
        "from_numpy: no dtype for <U1; convert it with array.astype",
    ),
    ErrorCase(
        "graph text: end",
        lambda: lucid._C.parse_graph("graph {\n  return\n}\nmore"),
        lucid.UserError,
        "graph text, line 4: text after the closing brace",
    ),
    ErrorCase(
        "graph text: name",
        lambda: graph("%0 = !"),
        lucid.UserError,
        "graph text, line 2: expected a name",
    ),
    ErrorCase(
        "graph text: integer",
        lambda: graph("%a = input argument float32[]"),
        lucid.UserError,
        "graph text, line 2: expected an integer",
    ),
    ErrorCase(
        "graph text: id",
        lambda: graph("%-1 = input argument float32[]"),
        lucid.UserError,
        "graph text, line 2: bad value id",
    ),
    ErrorCase(
        "graph text: unknown value",
        lambda: graph("%0 = neg(%1) : float32[]"),
        lucid.UserError,
        "graph text, line 2: %1 is used before it is made",
    ),
    ErrorCase(
        "graph text: made twice",
        lambda: graph(INPUT, INPUT),
        lucid.UserError,
        "graph text, line 3: %0 is made twice",
    ),
    ErrorCase(
        "graph text: dtype",
        lambda: graph("%0 = input argument float8[]"),
        lucid.UserError,
        "graph text, line 2: unknown dtype float8",
    ),
    ErrorCase(
        "graph text: shape",
        lambda: graph("%0 = input argument float32[-1]"),
        lucid.UserError,
        "graph text, line 2: negative size -1 in a shape",
    ),
    ErrorCase(
        "graph text: escape",
        lambda: graph(INPUT, '%1 = gelu(%0) {approximate="\\zz"} : float32[2]'),
        lucid.UserError,
        (
            "graph broken after parse: gelu: approximate is unknown: '\\zz'; use 'none' or "
            "'tanh'\ngraph {\n  %0 = input argument float32[2]\n  %1 = gelu(%0) "
            '{approximate="\\x5czz"} : float32[2]\n  return %0\n}\n'
        ),
    ),
    ErrorCase(
        "graph text: number",
        lambda: graph(INPUT, "%1 = leaky_relu(%0) {negative_slope=1.2.3} : float32[2]"),
        lucid.UserError,
        "graph text, line 3: bad number '1.2.3'",
    ),
    ErrorCase(
        "graph text: dtype attribute",
        lambda: graph(INPUT, "%1 = cast(%0) {dtype=float8} : float32[2]"),
        lucid.UserError,
        "graph text, line 3: unknown dtype float8",
    ),
    ErrorCase(
        "graph text: two inputs",
        lambda: graph("%0, %1 = input argument float32[]"),
        lucid.UserError,
        "graph text, line 2: an input is one value",
    ),
    ErrorCase(
        "graph text: operation",
        lambda: graph(INPUT, "%1 = no_such(%0) : float32[2]"),
        lucid.UserError,
        "graph text, line 3: unknown operation no_such",
    ),
    ErrorCase(
        "graph text: outputs",
        lambda: graph(INPUT, "%1, %2 = neg(%0) : float32[2]"),
        lucid.UserError,
        "graph text, line 3: as many types as outputs are needed",
    ),
    ErrorCase(
        "graph text: role",
        lambda: graph("%0 = input nobody float32[]"),
        lucid.UserError,
        "graph text, line 2: unknown role nobody",
    ),
    ErrorCase(
        "graph text: shapes",
        lambda: graph(INPUT, "%1 = reshape(%0) {shape=[3]} : float32[3]"),
        lucid.UserError,
        (
            "graph broken after parse: reshape: element counts differ: (2,) has 2 and (3,) "
            "has 3; choose a shape of 2\ngraph {\n  %0 = input argument float32[2]\n  %1 = "
            "reshape(%0) {shape=[3]} : float32[3]\n  return %0\n}\n"
        ),
    ),
    ErrorCase(
        "graph text: another type",
        lambda: graph(INPUT, "%1 = neg(%0) : float32[3]"),
        lucid.UserError,
        (
            "graph broken after parse: neg makes float32[2] but %1 is float32[3]\ngraph {\n  "
            "%0 = input argument float32[2]\n  %1 = neg(%0) : float32[3]\n  return %0\n}\n"
        ),
    ),
]
