"""Methods that change a tensor: each computes the value with its function and assigns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Generator, Tensor, emit
from lucid.functions import comparison, creation, indexing, pointwise, subscript
from lucid.functions.arguments import Operand, cast, is_broadcastable
from lucid.functions.dtypes import can_cast, dtype_name, is_floating
from lucid.functions.precision import autocast_as

# Functions f with a method f_ of the same arguments.
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(module, name)
    for module, names in (
        (
            pointwise,
            "abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh ceil clamp clamp_max "
            "clamp_min clip cos cosh div divide erf erfc exp expm1 floor floor_divide fmod frac "
            "lerp log log10 log1p log2 mul multiply nan_to_num neg negative pow reciprocal relu "
            "remainder round rsqrt sigmoid sign sin sinh sqrt square sub subtract tan tanh trunc "
            "true_divide xlogy",
        ),
        (
            comparison,
            "bitwise_and bitwise_not bitwise_or bitwise_xor eq ge gt le logical_and logical_not "
            "logical_or logical_xor lt masked_fill ne",
        ),
        (indexing, "index_add index_copy index_fill scatter scatter_add scatter_reduce"),
        (subscript, "index_put"),
        (creation, "tril triu"),
    )
    for name in names.split()
}


def assign_result(self: Tensor, name: str, value: Tensor) -> Tensor:
    """Puts ``value`` into ``self``.

    Raises: ShapeError if the shapes differ, DtypeError if a result of that dtype may not go into
        ``self`` (floating into integer, a number into bool).
    """
    if value.shape != self.shape:
        raise _C.ShapeError(
            f"{name}: the result has shape {tuple(value.shape)}, the tensor {tuple(self.shape)}; "
            f"use {name.rstrip('_')}, which makes a new tensor"
        )
    if value.dtype != self.dtype:
        if not can_cast(value.dtype, self.dtype):
            raise _C.DtypeError(
                f"{name}: the result is {dtype_name(value.dtype)}, the tensor "
                f"{dtype_name(self.dtype)}, which cannot hold it; cast the tensor first"
            )
        value = emit("cast", value, dtype=self.dtype)
    return self.assign_(value)


def _make_method(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    method_name = f"{name}_"

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return assign_result(self, method_name, function(self, *args, **kwargs))

    method.__name__ = method_name
    method.__qualname__ = f"Tensor.{method_name}"
    method.__doc__ = f"``{name}`` whose result is put into this tensor, which is returned."
    return method


def zero_(self: Tensor) -> Tensor:
    """Sets every element to 0."""
    return self.assign_(creation.full_like(self, 0))


def fill_(self: Tensor, value: Operand) -> Tensor:
    """Sets every element to a number or to the element of a 0-d tensor.

    Raises: ShapeError for a tensor with axes.
    """
    if not isinstance(value, Tensor):
        return self.assign_(creation.full_like(self, value))
    if value.ndim:
        raise _C.ShapeError(f"fill_: value has axes: got shape {tuple(value.shape)}; use copy_")
    return self.assign_(emit("broadcast_to", cast(value, self.dtype), shape=self.shape))


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Takes over the elements of ``src``, cast to this dtype, moved to this device and broadcast.

    Raises: ShapeError if ``src`` does not broadcast to this shape.
    """
    value = creation.as_tensor(src, None, self.device)
    if not is_broadcastable(value.shape, self.shape):
        raise _C.ShapeError(
            f"copy_: shapes differ: {tuple(self.shape)} and {tuple(value.shape)}; "
            "reshape the source first"
        )
    value = cast(value, self.dtype)
    if value.shape != self.shape:
        value = emit("broadcast_to", value, shape=self.shape)
    return self.assign_(value)


def _drawn(self: Tensor, op: str, generator: Generator | None) -> Tensor:
    """Fresh random numbers in this shape; float32 stands in for dtypes that are not floating."""
    source = _C.default_generator if generator is None else generator
    dtype = self.dtype if is_floating(self.dtype) else _C.float32
    return emit(op, source, shape=self.shape, dtype=dtype)


def _require_floating(self: Tensor, name: str) -> None:
    if not is_floating(self.dtype):
        raise _C.DtypeError(
            f"{name}: not a floating dtype: got {dtype_name(self.dtype)}; cast the tensor first"
        )


def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers in [from_, to). Raises: DtypeError for a dtype that is not floating."""
    _require_floating(self, "uniform_")
    if to < from_:
        raise _C.UserError(f"uniform_: the range is empty: got {from_} to {to}; swap them")
    drawn = _drawn(self, "uniform", generator)
    return self.assign_(emit("add", emit("mul", drawn, to - from_), from_))


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Numbers of a normal distribution. Raises: DtypeError for a dtype that is not floating."""
    _require_floating(self, "normal_")
    if std < 0:
        raise _C.UserError(f"normal_: std is negative: got {std}; use 0 or more")
    drawn = _drawn(self, "normal", generator)
    return self.assign_(emit("add", emit("mul", drawn, std), mean))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of an exponential distribution of rate ``lambd``; -log(1 - u) / lambd."""
    _require_floating(self, "exponential_")
    if lambd <= 0:
        raise _C.UserError(f"exponential_: lambd must be positive: got {lambd}")
    drawn = _drawn(self, "uniform", generator)
    return self.assign_(emit("div", emit("neg", emit("log", emit("sub", 1, drawn))), lambd))


def bernoulli_(self: Tensor, p: Operand = 0.5, *, generator: Generator | None = None) -> Tensor:
    """1 with probability ``p``, a number or a tensor that broadcasts, else 0."""
    drawn = emit("lt", _drawn(self, "uniform", generator), p)
    return assign_result(self, "bernoulli_", cast(drawn, self.dtype))


def random_(
    self: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Integers in [from_, to), each as likely; ``random_(to)`` starts at 0.

    Args:
        to: needed: with neither number PyTorch takes the dtype's whole range, which is not
            available here.
    """
    low, high = (0, from_) if to is None else (from_, to)
    if high <= low:
        raise _C.UserError(f"random_: no integer is in range: got {low} to {high}; give to")
    source = _C.default_generator if generator is None else generator
    drawn = emit("random_int", source, low=low, high=high, shape=self.shape, dtype=_C.int64)
    return self.assign_(cast(drawn, self.dtype))


_METHODS: dict[str, Callable[..., Tensor]] = {
    **{f"{name}_": _make_method(name, function) for name, function in _FUNCTIONS.items()},
    "bernoulli_": bernoulli_,
    "copy_": copy_,
    "exponential_": exponential_,
    "fill_": fill_,
    "normal_": normal_,
    "random_": random_,
    "uniform_": uniform_,
    "zero_": zero_,
}
#: As in PyTorch, mixed precision casts nothing for a method that writes into its tensor.
METHODS = {name: autocast_as("none")(method) for name, method in _METHODS.items()}
