"""Reductions over axes, scans along one axis, and softmax.

``dim`` is an axis, a sequence of axes, or None for all; negative axes count from the end. With
``keepdim`` a reduced axis stays with size 1. An axis that does not exist raises OutOfRangeError.
"""

from __future__ import annotations

import builtins
import math
from typing import NamedTuple, overload

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import (
    Dims,
    Operand,
    beside,
    cast,
    normalize_dim,
    normalize_dims,
    reshaped,
)
from lucid.functions.dtypes import dtype_name, is_floating
from lucid.functions.pointwise import lerp
from lucid.functions.precision import autocast_as
from lucid.functions.shape import cat, movedim, narrow, unsqueeze
from lucid.functions.sorting import ValuesIndices, median, pick

__all__ = [
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "diff",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "median",
    "min",
    "nanmean",
    "nansum",
    "norm",
    "prod",
    "quantile",
    "softmax",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
]


class MinMax(NamedTuple):
    """What ``aminmax`` returns."""

    min: Tensor
    max: Tensor


def _for_sum(input: Tensor, dtype: _C.dtype | None) -> Tensor:
    """The tensor whose elements are added: in ``dtype``, else bools and integers as int64."""
    if dtype is not None:
        return cast(input, dtype)
    return input if is_floating(input.dtype) else cast(input, _C.int64)


def _as_asked(result: Tensor, dtype: _C.dtype | None) -> Tensor:
    """``result`` in the dtype that was asked for, whatever mixed precision made of it."""
    return result if dtype is None else cast(result, dtype)


def _floating(input: Tensor) -> Tensor:
    return input if is_floating(input.dtype) else cast(input, _C.get_default_dtype())


def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _C.dtype | None = None
) -> Tensor:
    """Sum of the elements over ``dim``.

    Args:
        dtype: the dtype to add in; None keeps a floating one and takes int64 for the others.

    Returns: ``input``'s shape without the reduced axes; 0 for no elements.
    """
    dims = normalize_dims("sum", dim, input.ndim)
    return _as_asked(emit("sum", _for_sum(input, dtype), dims=dims, keepdim=keepdim), dtype)


def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _C.dtype | None = None
) -> Tensor:
    """Sum over ``dim`` divided by the number of elements; nan for none.

    Half types are added in float32, as their sum may pass their range.

    Returns: ``input``'s shape without the reduced axes.
    Raises: DtypeError for a dtype that is not floating.
    """
    if dtype is not None:
        input = cast(input, dtype)
    own = input.dtype
    if not is_floating(own):
        raise _C.DtypeError(
            f"mean: not a floating dtype: got {dtype_name(own)}; give dtype= or cast the tensor"
        )
    dims = normalize_dims("mean", dim, input.ndim)
    count = _count(input, dims)
    if own not in (_C.float16, _C.bfloat16):
        return emit("div", emit("sum", input, dims=dims, keepdim=keepdim), count)
    total = emit("sum", cast(input, _C.float32), dims=dims, keepdim=keepdim)
    return cast(emit("div", total, count), own)


def _count(input: Tensor, dims: tuple[int, ...]) -> int:
    shape = input.shape
    return math.prod([shape[d] for d in dims])


def prod(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _C.dtype | None = None
) -> Tensor:
    """Product of the elements over ``dim``; bools and integers give int64; 1 for no elements."""
    dims = normalize_dims("prod", dim, input.ndim)
    return _as_asked(emit("prod", _for_sum(input, dtype), dims=dims, keepdim=keepdim), dtype)


def amax(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest element over ``dim``; nan if there is one. Equal elements share the gradient.

    Raises: UserError where there is no element.
    """
    dims = normalize_dims("amax", dim, input.ndim)
    return emit("amax", input, dims=dims, keepdim=keepdim)


def amin(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest element over ``dim``; nan if there is one. Equal elements share the gradient.

    Raises: UserError where there is no element.
    """
    dims = normalize_dims("amin", dim, input.ndim)
    return emit("amin", input, dims=dims, keepdim=keepdim)


@overload
def max(input: Tensor) -> Tensor: ...


@overload
def max(input: Tensor, dim: Tensor) -> Tensor: ...


@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


def max(
    input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False
) -> Tensor | ValuesIndices:
    """Largest element.

    Args:
        dim: None: of all elements, a 0-d tensor; a tensor: ``maximum(input, dim)``; an axis: the
            pair ``(values, indices)`` along it.

    Returns: see ``dim``; of equal elements the first is taken and gets the gradient (without
    ``dim`` they share it). nan counts as the largest.
    """
    if dim is None:
        return emit("amax", input, dims=tuple(range(input.ndim)), keepdim=False)
    if isinstance(dim, Tensor):
        return emit("maximum", input, dim)
    return _extreme("max", "argmax", input, dim, keepdim)


@overload
def min(input: Tensor) -> Tensor: ...


@overload
def min(input: Tensor, dim: Tensor) -> Tensor: ...


@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


def min(
    input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False
) -> Tensor | ValuesIndices:
    """Smallest element; arguments and result as for ``max``."""
    if dim is None:
        return emit("amin", input, dims=tuple(range(input.ndim)), keepdim=False)
    if isinstance(dim, Tensor):
        return emit("minimum", input, dim)
    return _extreme("min", "argmin", input, dim, keepdim)


def _extreme(op: str, arg_op: str, input: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    dim = normalize_dim(op, dim, input.ndim)
    if input.ndim == 0:
        position = beside(emit("full", shape=(), dtype=_C.int64, value=0), input)
        return ValuesIndices(emit("reshape", input, shape=()), position)
    indices = emit(arg_op, input, dim=dim, keepdim=True)
    return pick(input, indices, dim, keepdim)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the first largest element, int64; nan counts as the largest.

    Args:
        dim: None: position in the flattened tensor.

    Raises: UserError where there is no element.
    """
    return _arg("argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the first smallest element, int64; nan counts as the smallest.

    Args:
        dim: None: position in the flattened tensor.

    Raises: UserError where there is no element.
    """
    return _arg("argmin", input, dim, keepdim)


def _arg(op: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is not None and input.ndim:
        return emit(op, input, dim=normalize_dim(op, dim, input.ndim), keepdim=keepdim)
    if dim is not None:
        normalize_dim(op, dim, 0)
    found = emit(op, emit("reshape", input, shape=(input.numel(),)), dim=0, keepdim=False)
    return reshaped(found, (1,) * input.ndim) if keepdim else found


def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where some element over ``dim`` is not 0; false for no elements."""
    dims = normalize_dims("any", dim, input.ndim)
    return emit("any", _truth(input), dims=dims, keepdim=keepdim)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where no element over ``dim`` is 0; true for no elements."""
    dims = normalize_dims("all", dim, input.ndim)
    return emit("all", _truth(input), dims=dims, keepdim=keepdim)


def _truth(input: Tensor) -> Tensor:
    return input if input.dtype is _C.bool_ else emit("ne", input, 0)


def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """Number of elements that are not 0 over ``dim``, int64."""
    return sum(_truth(input), dim)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance: squared distances from the mean, summed and divided by N - correction.

    Args:
        unbiased: True means correction 1, False 0; ``var(x, False)`` is understood, too.
        correction: None means 1.

    Returns: ``input``'s shape without the reduced axes; nan or inf where N <= correction.
    Raises: DtypeError for a dtype that is not floating.
    """
    return _variance("var", input, dim, unbiased, keepdim, correction)[0]


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Square root of the variance; its gradient is 0 where it is 0. Arguments as for ``var``."""
    return _root(_variance("std", input, dim, unbiased, keepdim, correction)[0])


def var_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The pair (variance, mean). Arguments as for ``var``."""
    return _variance("var_mean", input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The pair (standard deviation, mean). Arguments as for ``var``."""
    variance, average = _variance("std_mean", input, dim, unbiased, keepdim, correction)
    return _root(variance), average


def _variance(
    op: str,
    input: Tensor,
    dim: Dims,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):
        unbiased, dim = dim, None
    if correction is None:
        correction = 0 if unbiased is False else 1
    elif unbiased is not None:
        raise _C.UserError(f"{op}: both unbiased and correction are given; give one of them")
    if not is_floating(input.dtype):
        raise _C.DtypeError(
            f"{op}: not a floating dtype: got {dtype_name(input.dtype)}; cast the tensor first"
        )
    dims = normalize_dims(op, dim, input.ndim)
    own = input.dtype
    wide = cast(input, _C.float32) if own in (_C.float16, _C.bfloat16) else input
    count = _count(input, dims)
    average = emit("div", emit("sum", wide, dims=dims, keepdim=True), count)
    squares = emit("square", emit("sub", wide, average))
    total = emit("sum", squares, dims=dims, keepdim=keepdim)
    variance = emit("div", total, builtins.max(0, count - correction))
    if not keepdim:
        average = reshaped(average, variance.shape)
    return cast(variance, own), cast(average, own)


def _root(input: Tensor) -> Tensor:
    """Square root with gradient 0, not inf, at 0."""
    zero = emit("eq", input, 0)
    root = emit("sqrt", emit("where", zero, 1, input))
    return emit("where", zero, 0, root)


@autocast_as("float32")
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` over ``dim`` without overflow.

    -inf elements count as nothing; where all are -inf the result is -inf with gradient 0.

    Returns: ``input``'s shape without the reduced axes; integers give the default float.
    """
    input = _floating(input)
    dims = normalize_dims("logsumexp", dim, input.ndim)
    if _count(input, dims) == 0:
        return emit("log", emit("sum", input, dims=dims, keepdim=keepdim))
    top = emit("detach", emit("amax", input, dims=dims, keepdim=True))
    # An infinite maximum is not subtracted: inf - inf is nan.
    top = emit("where", emit("isfinite", top), top, 0)
    total = emit("sum", emit("exp", emit("sub", input, top)), dims=dims, keepdim=keepdim)
    nothing = emit("eq", total, 0)
    result = emit("log", emit("where", nothing, 1, total))
    result = emit("where", nothing, -math.inf, result)
    return emit("add", result, reshaped(top, result.shape))


def softmax(input: Tensor, dim: int, dtype: _C.dtype | None = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` along ``dim``; the same shape."""
    return _softmax("softmax", input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: _C.dtype | None = None) -> Tensor:
    """``log(softmax(input))`` along ``dim``, computed without overflow; the same shape."""
    return _softmax("log_softmax", input, dim, dtype)


def _softmax(op: str, input: Tensor, dim: int, dtype: _C.dtype | None) -> Tensor:
    dim = normalize_dim(op, dim, input.ndim)
    input = _floating(input) if dtype is None else cast(input, dtype)
    if input.ndim == 0:
        return _as_asked(reshaped(emit(op, emit("reshape", input, shape=(1,)), dim=0), ()), dtype)
    return _as_asked(emit(op, input, dim=dim), dtype)


def cumsum(input: Tensor, dim: int, *, dtype: _C.dtype | None = None) -> Tensor:
    """Running sum along ``dim``; the same shape; bools and integers give int64."""
    dim = normalize_dim("cumsum", dim, input.ndim)
    input = _for_sum(input, dtype)
    return _as_asked(emit("cumsum", input, dim=dim), dtype) if input.ndim else input


@autocast_as("float32")
def cumprod(input: Tensor, dim: int, *, dtype: _C.dtype | None = None) -> Tensor:
    """Running product along ``dim``; the same shape; bools and integers give int64.

    Takes log2(n) products of the whole tensor: span 1, 2, 4, ... (Hillis and Steele 1986).
    """
    dim = normalize_dim("cumprod", dim, input.ndim)
    result = _for_sum(input, dtype)
    shape = result.shape
    length = shape[dim] if shape else 1
    span = 1
    while span < length:
        sizes = [n - span if d == dim else n for d, n in enumerate(shape)]
        zeros = [0] * len(shape)
        head = emit("slice", result, starts=zeros, sizes=sizes, steps=[1] * len(shape))
        low = [span if d == dim else 0 for d in range(len(shape))]
        result = emit("mul", result, emit("pad", head, low=low, high=zeros, value=1))
        span *= 2
    return result


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest elements along ``dim`` (None: of all), as ``.min`` and ``.max``."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


def quantile(
    input: Tensor,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The elements below which the parts ``q`` lie, between neighbours by a straight line.

    Args:
        q: 0 to 1, a number or a 1-d tensor, which gives the result a leading axis.
        dim: None takes all elements.
        interpolation: ``"linear"`` is the only one.

    Returns: nan where there is a nan.
    Raises: UnsupportedError for another ``interpolation``, DtypeError for a dtype that is not
        floating, UserError for a number ``q`` out of range, OutOfRangeError for one in a tensor.
    """
    if interpolation != "linear":
        raise _C.UnsupportedError(f"quantile: interpolation {interpolation!r}; use 'linear'")
    if not is_floating(input.dtype):
        raise _C.DtypeError(
            f"quantile: not a floating dtype: got {dtype_name(input.dtype)}; cast the tensor first"
        )
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise _C.UserError(f"quantile: q must be in 0 to 1: got {q}")
    axis = 0 if dim is None else normalize_dim("quantile", dim, input.ndim)
    line = reshaped(input, (input.numel(),)) if dim is None or input.ndim == 0 else input
    last = movedim(line, axis, -1)
    values = emit("sort", last, dim=last.ndim - 1, descending=False)[0]
    parts = (
        q
        if isinstance(q, Tensor)
        else beside(emit("full", shape=(), dtype=input.dtype, value=q), input)
    )
    place = emit("mul", reshaped(parts, (parts.numel(),)), last.shape[-1] - 1)
    low = emit("floor", place)
    index = [cast(emit(f, place), _C.int64) for f in ("floor", "ceil")]
    below, above = (emit("take", values, i, dim=last.ndim - 1) for i in index)
    between = lerp(below, above, emit("sub", place, low))
    unclear = any(emit("isnan", last), -1, True)
    found = movedim(emit("where", unclear, math.nan, between), -1, 0)
    if keepdim:
        found = unsqueeze(found, axis + 1)
        if dim is None:
            found = reshaped(found, (found.shape[0], *(1,) * input.ndim))
    return found if parts.ndim else reshaped(found, found.shape[1:])


def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _C.dtype | None = None
) -> Tensor:
    """``sum`` that takes nan for 0."""
    return sum(emit("where", emit("isnan", input), 0, input), dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _C.dtype | None = None
) -> Tensor:
    """``mean`` of the elements that are not nan; nan where there is none."""
    total = nansum(input, dim, keepdim, dtype=dtype)
    kept = emit("logical_not", emit("isnan", input))
    return emit("div", total, cast(sum(kept, dim, keepdim), total.dtype))


def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along ``dim``, taken ``n`` times.

    Args:
        prepend, append: put in front of or behind ``input`` first.

    Returns: the axis is ``n`` shorter. Raises: UserError for a negative ``n``.
    """
    if n < 0:
        raise _C.UserError(f"diff: n is negative: got {n}; use 0 or more")
    parts = [x for x in (prepend, input, append) if x is not None]
    result = parts[0] if len(parts) == 1 else cat(parts, dim)
    axis = normalize_dim("diff", dim, result.ndim)
    for _ in range(n):
        size = result.shape[axis]
        if size == 0:
            break
        later, earlier = (narrow(result, axis, start, size - 1) for start in (1, 0))
        op = "ne" if result.dtype is _C.bool_ else "sub"
        result = emit(op, later, earlier)
    return result


@autocast_as("float32")
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: _C.dtype | None = None,
) -> Tensor:
    """Vector norm ``sum(|input|**p)**(1/p)`` over ``dim``, all elements taken as one vector.

    Args:
        p: ``"fro"``, None and 2: the Euclidean norm; inf, -inf: largest, smallest magnitude; 0: the
            number of elements that are not 0.

    Returns: ``input``'s shape without the reduced axes. The gradient of a zero norm is 0.
    Raises: UserError for an unknown ``p``, DtypeError for a dtype that is not floating.
    """
    if dtype is not None:
        input = cast(input, dtype)
    if not is_floating(input.dtype):
        raise _C.DtypeError(
            f"norm: not a floating dtype: got {dtype_name(input.dtype)}; cast the tensor first"
        )
    order = 2.0 if p is None or p == "fro" else p
    if isinstance(order, str):
        raise _C.UserError(f"norm: unknown p: got {p!r}; use a number or 'fro'")
    dims = normalize_dims("norm", dim, input.ndim)
    if order == 2:
        return _root(emit("sum", emit("square", input), dims=dims, keepdim=keepdim))
    if order == 0:
        nonzero = cast(emit("ne", input, 0), input.dtype)
        return emit("sum", nonzero, dims=dims, keepdim=keepdim)
    size = emit("abs", input)
    if math.isinf(order):
        return emit("amax" if order > 0 else "amin", size, dims=dims, keepdim=keepdim)
    if order == 1:
        return emit("sum", size, dims=dims, keepdim=keepdim)
    return _power_norm(size, order, dims, keepdim)


def _power_norm(size: Tensor, order: float, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Norm of any order; powers are taken of 1 where the base is 0, whose gradient may be inf."""

    def power(base: Tensor, exponent: Operand) -> Tensor:
        zero = emit("eq", base, 0)
        raised = emit("pow", emit("where", zero, 1, base), exponent)
        return emit("where", zero, 0 if order > 0 else math.inf, raised)

    total = emit("sum", power(size, order), dims=dims, keepdim=keepdim)
    if order < 0:
        return emit("pow", total, 1 / order)
    return power(total, 1 / order)
