"""custom_op: operations whose forward, shapes and gradient are Python functions of NumPy arrays."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

import numpy

from lucid import _C
from lucid._C import Tensor

__all__ = ["CustomOp", "TensorSpec", "custom_op"]

Gradient = tuple[int, tuple[int, ...], tuple[int, ...]]

_NAME = re.compile(r"\w+(::\w+)+")
_REQUIRED = inspect.Parameter.empty
_DTYPES = {
    "bool": _C.bool_,
    **{n: getattr(_C, n) for n in ("uint8", "int8", "int16", "int32", "int64")},
    **{n: getattr(_C, n) for n in ("float16", "bfloat16", "float32", "float64")},
}


@dataclass(frozen=True)
class TensorSpec:
    """What a shape rule sees of one input."""

    shape: tuple[int, ...]
    dtype: _C.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


class CustomOp:
    """An operation made by :func:`custom_op`; call it with tensors and keyword attributes.

    Slots keep it opaque to the signature of a step: what its functions read is read at each run.
    """

    __slots__ = ("_attributes", "_forward", "_max", "_min", "_name", "_pure", "_shape", "_vjp")

    def __init__(self, name: str, forward: FunctionType, pure: bool) -> None:
        self._name = name
        self._forward = forward
        self._pure = pure
        self._shape: Callable[..., Any] | None = None
        self._vjp: Callable[..., Any] | None = None
        self._attributes: dict[str, Any] = {}
        self._min, self._max = 0, 0
        for parameter in inspect.signature(forward).parameters.values():
            self._take_parameter(parameter)

    def _take_parameter(self, parameter: inspect.Parameter) -> None:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            self._attributes[parameter.name] = parameter.default
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            self._max = -1
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.default is not _REQUIRED:
            raise _C.ArgumentTypeError(
                f"custom_op: {self._name} cannot take the parameter {parameter}; inputs are "
                "positional without defaults, attributes are keyword-only and named"
            )
        else:
            self._min += 1
            self._max += 1

    def __repr__(self) -> str:
        return f'custom_op("{self._name}", pure={self._pure})'

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self._name,)

    @property
    def name(self) -> str:
        """The name that the operation was defined under."""
        return self._name

    def shape(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the shape rule: ``rule(*specs, **attributes)``. Usable as a decorator.

        It gets a :class:`TensorSpec` for each input and returns ``(shape, dtype)``, or a list of
        such pairs where the operation returns a tuple. A dtype is lucid's, NumPy's or a name.
        """
        self._shape = self._registered(self._shape, rule, "shape rule")
        return rule

    def vjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the gradient rule. Usable as a decorator.

        ``rule(grads, inputs, outputs, **attributes)`` gets tuples of read-only arrays and returns
        a gradient (the input's shape and dtype) for each input; None stands for zeros. A floating
        output that nothing depends on has a gradient of zeros; an integer or bool one None.
        """
        self._vjp = self._registered(self._vjp, rule, "gradient rule")
        return rule

    def _registered(
        self, known: Callable[..., Any] | None, rule: Callable[..., Any], what: str
    ) -> Callable[..., Any]:
        if not callable(rule):
            raise _C.ArgumentTypeError(
                f"{self._name}: the {what} must be a function: got {type(rule).__name__}"
            )
        if known is not None and not _is_same(known, rule):
            raise _C.UserError(
                f"{self._name}: a {what} is registered already; choose another name for the "
                "operation"
            )
        _C.bump_state()
        return rule

    def __call__(self, *inputs: Tensor, **attributes: Any) -> Any:
        """Run the operation, or record it in a compiled step.

        Args:
            inputs: tensors on cpu, of any dtype that NumPy has.
            attributes: bools, numbers, strings, None and tuples of them: part of the operation.

        Returns: a tensor, or a tuple of tensors, as the shape rule says.
        Raises: ArgumentTypeError, UserError for a call that does not fit the forward; DtypeError
            for bfloat16; UnsupportedError on metal or without a shape rule. When it runs: what
            the forward raises, with a note that names the operation; ShapeError, DtypeError or
            ArgumentTypeError for results that are not as the shape rule says; UserError if an
            array is still referenced after the call.
        """
        self._check_inputs(inputs)
        given = self._with_defaults(attributes)
        results, is_single = self._results(inputs, given)
        made = _C.emit(
            "custom" if self._pure else "custom_impure",
            *inputs,
            function=self._name,
            arguments=_encode(self._name, given),
            results=", ".join(f"{dtype}{list(shape)}" for shape, dtype in results),
            has_gradient=self._vjp is not None,
        )
        return made if is_single or isinstance(made, tuple) else (made,)

    def _check_inputs(self, inputs: tuple[Any, ...]) -> None:
        for i, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise _C.ArgumentTypeError(
                    f"{self._name}: input {i} must be a Tensor: got {type(tensor).__name__}; "
                    "numbers and strings are keyword attributes"
                )
            if tensor.device.type != "cpu":
                raise _C.UnsupportedError(
                    f"{self._name}: a custom operation runs on cpu only: input {i} is on "
                    f"{tensor.device.type}; move it with .to('cpu')"
                )
            if tensor.dtype is _C.bfloat16:
                raise _C.DtypeError(
                    f"{self._name}: NumPy has no bfloat16: input {i}; cast it to float32 first"
                )
        if len(inputs) < self._min or (0 <= self._max < len(inputs)):
            least = "at least " if self._max < 0 else ""
            raise _C.ArgumentTypeError(
                f"{self._name}: takes {least}{self._min} inputs: got {len(inputs)}"
            )

    def _with_defaults(self, attributes: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in attributes if name not in self._attributes]
        given = {name: attributes.get(name, value) for name, value in self._attributes.items()}
        missing = [name for name, value in given.items() if value is _REQUIRED]
        if unknown or missing:
            what = f"has no attribute {unknown[0]}" if unknown else f"needs {missing[0]}="
            known = ", ".join(self._attributes) or "none"
            raise _C.ArgumentTypeError(f"{self._name}: {what}: its attributes are {known}")
        return given

    def _results(
        self, inputs: tuple[Tensor, ...], attributes: dict[str, Any]
    ) -> tuple[list[tuple[tuple[int, ...], str]], bool]:
        """Shapes and dtype names of the results; False if the operation returns a tuple."""
        if self._shape is None:
            raise _C.UnsupportedError(
                f"{self._name}: has no shape rule; register one with @<operation>.shape"
            )
        specs = [TensorSpec(tuple(t.shape), t.dtype) for t in inputs]
        try:
            found = self._shape(*specs, **attributes)
        except Exception as error:
            _add_note(error, f"in the shape rule of the custom operation {self._name}")
            raise
        is_single = isinstance(found, tuple) and len(found) == 2 and _is_shape(found[0])
        pairs = [found] if is_single else found
        if not isinstance(pairs, (list, tuple)) or not pairs:
            self._refuse_shape(found)
        return [self._result(pair) for pair in pairs], is_single

    def _result(self, pair: Any) -> tuple[tuple[int, ...], str]:
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2 and _is_shape(pair[0])
        name = _dtype_name(pair[1]) if is_pair else None
        if name is None:
            self._refuse_shape(pair)
        if name == "bfloat16":
            raise _C.DtypeError(f"{self._name}: NumPy has no bfloat16: a result; return float32")
        return tuple(int(size) for size in pair[0]), name

    def _refuse_shape(self, found: Any) -> NoReturn:
        raise _C.ArgumentTypeError(
            f"{self._name}: the shape rule must return (shape, dtype) or a list of them: "
            f"got {found!r}"
        )


_ops: dict[str, CustomOp] = {}
_lock = threading.Lock()


def custom_op(name: str, *, pure: bool) -> Callable[[Callable[..., Any]], CustomOp]:
    """Define an operation in Python; use it as a decorator of the forward.

    ``forward(*arrays, **attributes)`` gets the inputs as read-only NumPy arrays that share the
    tensors' memory, and returns an array or a tuple of arrays. It works eagerly and inside of a
    compiled step, where it runs at each call, and holds the interpreter's lock only itself.
    The arrays are lent for the call: keep a copy of what is needed later.

    Args:
        name: ``"namespace::name"``, the operation's name in the process.
        pure: True if the results depend on inputs and attributes alone and nothing else happens:
            such an operation may be computed again, merged with an equal one, or left out. False:
            it runs exactly once, in the order of the calls.

    Returns: a decorator that gives a :class:`CustomOp`, on which ``shape`` and, for gradients,
        ``vjp`` register the other rules.
    Raises: UserError for a bad name, or one that another function has; ArgumentTypeError for a
        forward with parameters that have no meaning here.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _C.UserError(f"custom_op: name must be 'namespace::name': got {name!r}")
    if not isinstance(pure, bool):
        raise _C.ArgumentTypeError(f"custom_op: pure must be a bool: got {type(pure).__name__}")

    def define(forward: Callable[..., Any]) -> CustomOp:
        if not isinstance(forward, FunctionType):
            raise _C.ArgumentTypeError(
                f"custom_op: {name} must be a plain function: got {type(forward).__name__}"
            )
        with _lock:
            known = _ops.get(name)
            if known is None:
                return _ops.setdefault(name, CustomOp(name, forward, pure))
            if known._pure == pure and _is_same(known._forward, forward):
                return known
        raise _C.UserError(
            f"custom_op: {name} is the name of another function already; choose another one"
        )

    return define


def _find(name: str) -> CustomOp:
    op = _ops.get(name)
    if op is None:
        raise _C.UserError(
            f"{name}: no custom operation of that name; import the module that defines it first"
        )
    return op


def _is_same(known: Any, new: Any) -> bool:
    """True for one function, also if its definition was executed twice."""
    if known is new:
        return True
    if not isinstance(known, FunctionType) or not isinstance(new, FunctionType):
        return False
    cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (known, new)]
    return (
        known.__code__ == new.__code__
        and known.__globals__ is new.__globals__
        and known.__defaults__ == new.__defaults__
        and known.__kwdefaults__ == new.__kwdefaults__
        and len(cells[0]) == len(cells[1])
        and all(a is b for a, b in zip(*cells, strict=True))
    )


def _is_shape(value: Any) -> bool:
    sizes = value if isinstance(value, (tuple, list)) else (None,)
    return all(
        isinstance(s, (int, numpy.integer)) and not isinstance(s, bool) and s >= 0 for s in sizes
    )


def _dtype_name(value: Any) -> str | None:
    """The name of a dtype given as lucid's, NumPy's or a name; None if it is none."""
    if isinstance(value, _C.dtype):
        name = value.name
    else:
        try:
            name = numpy.dtype(value).name
        except TypeError:
            return None
    return name if value is not None and name in _DTYPES else None


# ------------------------------------------------------------ attributes as text


def _encode(op: str, attributes: dict[str, Any]) -> str:
    """``name=value`` by name: equal exactly for attributes of equal types and bits."""
    return ", ".join(
        f"{name}={_text(op, name, attributes[name], 0)}" for name in sorted(attributes)
    )


def _text(op: str, name: str, value: Any, depth: int) -> str:
    if isinstance(value, numpy.generic):
        value = value.item()
    kind = type(value)
    if kind is float and math.isnan(value):
        return f'nan("{struct.pack(">d", value).hex()}")'
    if kind in (bool, int, float) or value is None:
        return repr(value)
    if kind is str:
        return ascii(value)
    if kind is tuple and depth < 8:
        return "(" + "".join(f"{_text(op, name, v, depth + 1)}, " for v in value).rstrip() + ")"
    raise _C.ArgumentTypeError(
        f"{op}: attribute {name} must be a bool, number, string, None or tuple of them: got "
        f"{kind.__name__}"
    )


@functools.lru_cache(maxsize=1024)
def _decode(text: str) -> dict[str, Any]:
    """The attributes that :func:`_encode` gave that text for."""
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return math.inf
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand)
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    assert isinstance(node, ast.Call)
    return struct.unpack(">d", bytes.fromhex(_value(node.args[0])))[0]


# ------------------------------------------------------------ runs


def _run(
    name: str,
    arguments: str,
    place: str,
    arrays: tuple[Any, ...],
    specs: tuple[tuple[tuple[int, ...], str], ...],
    gradient: Gradient | None,
) -> tuple[Any, ...]:
    """Called by the core: the results, dense and of the types in ``specs``."""
    op = _find(name)
    attributes = _decode(arguments)
    at = f", called at {place}" if place else ""
    try:
        if gradient is None:
            found = op._forward(*arrays, **attributes)
        else:
            assert op._vjp is not None
            found = op._vjp(*_vjp_arguments(arrays, gradient), **attributes)
    except BaseException as error:
        rule = "" if gradient is None else "the gradient of "
        _add_note(error, f"in {rule}the custom operation {name}{at}")
        raise
    try:
        if gradient is not None:
            return _checked_gradients(name, found, specs, gradient)
        results = found if isinstance(found, tuple) else (found,)
        return _checked(name, "result", results, specs)
    except _C.Error as error:
        if place:
            error.args = (f"{error}\n  at {place}",)
        raise


def _vjp_arguments(arrays: tuple[Any, ...], gradient: Gradient) -> tuple[Any, ...]:
    """``(grads, inputs, outputs)`` of a gradient rule."""
    num_inputs, given, _ = gradient
    end = len(arrays) - len(given)
    inputs, outputs = arrays[:num_inputs], arrays[num_inputs:end]
    grads = [numpy.zeros_like(o) if o.dtype.kind == "f" else None for o in outputs]
    for place, grad in zip(given, arrays[end:], strict=True):
        grads[place] = grad
    return tuple(grads), inputs, outputs


def _checked_gradients(
    name: str, found: Any, specs: tuple[tuple[tuple[int, ...], str], ...], gradient: Gradient
) -> tuple[Any, ...]:
    num_inputs, _, wanted = gradient
    grads = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(grads) != num_inputs:
        raise _C.UserError(
            f"{name}: the gradient rule returned {len(grads)} gradients for {num_inputs} inputs; "
            "return one for each, None for zeros"
        )
    asked = [
        numpy.zeros(shape, dtype) if grads[i] is None else grads[i]
        for i, (shape, dtype) in zip(wanted, specs, strict=True)
    ]
    return _checked(name, "gradient", asked, specs)


def _checked(
    name: str,
    what: str,
    results: Sequence[Any],
    specs: tuple[tuple[tuple[int, ...], str], ...],
) -> tuple[Any, ...]:
    if len(results) != len(specs):
        raise _C.UserError(
            f"{name}: returned {len(results)} results where the shape rule says {len(specs)}"
        )
    dense = []
    for i, (array, (shape, dtype)) in enumerate(zip(results, specs, strict=True)):
        if type(array) is not numpy.ndarray and not isinstance(array, numpy.generic):
            raise _C.ArgumentTypeError(
                f"{name}: {what} {i} must be a NumPy array: got {type(array).__name__}; convert "
                "it with numpy.asarray"
            )
        if array.dtype != numpy.dtype(dtype):
            raise _C.DtypeError(
                f"{name}: {what} {i} has dtype {array.dtype} where {dtype} is expected; convert "
                "it with astype"
            )
        if array.shape != shape:
            raise _C.ShapeError(
                f"{name}: {what} {i} has shape {array.shape} where {shape} is expected"
            )
        dense.append(numpy.asarray(array, order="C"))
    return tuple(dense)


def _add_note(error: BaseException, note: str) -> None:
    """Say where an exception of the user's own was raised; Python before 3.11 does not show it."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), note]  # type: ignore[attr-defined]


_C._set_custom_runner(_run)
