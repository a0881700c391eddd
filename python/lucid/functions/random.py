"""Random numbers. Every draw moves a counter of its generator; equal states give equal numbers.

``generator`` None means the default one, which ``manual_seed`` sets. ``dtype``, ``device`` and
``requires_grad`` are as in ``lucid.functions.creation``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy

from lucid import _C
from lucid._C import Generator, Tensor, default_generator, emit
from lucid.functions import creation
from lucid.functions.arguments import (
    DeviceLike,
    Operand,
    Size,
    as_int,
    beside,
    broadcast_shapes,
    cast,
    new_shape,
    place_new,
    refuse_in_trace,
    reshaped,
)
from lucid.functions.data import to_array
from lucid.functions.dtypes import as_dtype, dtype_name, is_floating
from lucid.functions.precision import autocast_as

__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "multinomial",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
]


def manual_seed(seed: int) -> Generator:
    """Starts the default generator again at ``seed``; returns that generator.

    Raises: TraceError in a compiled step, whose runs would go on instead of starting again.
    """
    _refuse_restart("manual_seed")
    default_generator.manual_seed(as_int("manual_seed", "seed", seed))
    return default_generator


def seed() -> int:
    """Starts the default generator again at a seed of the system's, which is returned."""
    return seed_anew(default_generator)


def seed_anew(generator: Generator) -> int:
    """Starts a generator again at a seed of the system's, which is returned."""
    _refuse_restart("seed")
    fresh = secrets.randbits(63)
    generator.manual_seed(fresh)
    return fresh


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """State of the default generator, for ``set_rng_state``: int64 (seed, offset)."""
    return creation.tensor(default_generator.get_state(), _C.int64)


def set_rng_state(new_state: Tensor) -> None:
    """Puts the default generator into a state that ``get_rng_state`` gave.

    Raises: TraceError in a compiled step.
    """
    _refuse_restart("set_rng_state")
    start, offset = to_array(new_state).tolist()
    default_generator.set_state((start, offset))


def _refuse_restart(op: str) -> None:
    why = "a compiled step cannot set a generator's state, its runs only move it on"
    refuse_in_trace(op, why, "set it before the step is called")


def _source(generator: Generator | None) -> Generator:
    return default_generator if generator is None else generator


def _float_dtype(op: str, dtype: _C.dtype | None) -> _C.dtype:
    kind = _C.get_default_dtype() if dtype is None else as_dtype(dtype)
    if not is_floating(kind):
        raise _C.DtypeError(
            f"{op}: not a floating dtype: got {dtype_name(kind)}; use randint for integers"
        )
    return kind


def rand(
    *size: Size,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1) of shape ``size`` (numbers or one sequence)."""
    kind = _float_dtype("rand", dtype)
    drawn = emit("uniform", _source(generator), shape=new_shape("rand", size), dtype=kind)
    return place_new(drawn, device, requires_grad)


def randn(
    *size: Size,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from the normal distribution of mean 0 and variance 1, of shape ``size``."""
    kind = _float_dtype("randn", dtype)
    drawn = emit("normal", _source(generator), shape=new_shape("randn", size), dtype=kind)
    return place_new(drawn, device, requires_grad)


def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``rand`` with the shape of ``input``, and its dtype and device where none is given."""
    kind = _float_dtype("rand_like", dtype or input.dtype)
    drawn = emit("uniform", _source(generator), shape=input.shape, dtype=kind)
    return place_new(drawn, device or input.device, requires_grad)


def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``randn`` with the shape of ``input``, and its dtype and device where none is given."""
    kind = _float_dtype("randn_like", dtype or input.dtype)
    drawn = emit("normal", _source(generator), shape=input.shape, dtype=kind)
    return place_new(drawn, device or input.device, requires_grad)


def randint(
    low: int,
    high: int | Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high), each as likely, of shape ``size``; ``randint(high, size)`` from 0.

    Args:
        dtype: None means int64.

    Raises: UserError if ``high`` is not above ``low``.
    """
    if isinstance(high, Sequence):
        if size is not None:
            raise _C.ArgumentTypeError("randint: high must be an integer: got a sequence")
        size, high = high, None
    if size is None:
        raise _C.ArgumentTypeError("randint: argument size is missing; give the shape")
    if high is None:
        low, high = 0, low
    first, last = as_int("randint", "low", low), as_int("randint", "high", high)
    kind = _C.int64 if dtype is None else as_dtype(dtype)
    shape = new_shape("randint", (size,))
    drawn = _integers(_source(generator), first, last, shape)
    return place_new(cast(drawn, kind), device, requires_grad)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """``randint`` with the shape of ``input``, and its dtype and device where none is given."""
    first, last = (0, low) if high is None else (low, high)
    drawn = _integers(default_generator, first, last, input.shape)
    return place_new(cast(drawn, dtype or input.dtype), device or input.device)


def _integers(generator: Generator, low: int, high: int, shape: Sequence[int]) -> Tensor:
    if high <= low:
        raise _C.UserError(f"randint: no integer is in range: got low {low}, high {high}")
    return emit("random_int", generator, low=low, high=high, shape=shape, dtype=_C.int64)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The integers 0 .. n - 1 in random order, int64 unless ``dtype`` says otherwise.

    Raises: ShapeError if ``n`` is negative.
    """
    shape = new_shape("randperm", (n,))
    kind = _C.int64 if dtype is None else as_dtype(dtype)
    source = _source(generator)
    # The order that sorts keys of 62 bits; each draw gives 31, and ties are out of reach.
    high = _integers(source, 0, 2**31, shape)
    low = _integers(source, 0, 2**31, shape)
    keys = emit("add", emit("mul", high, 2**31), low)
    order = emit("sort", keys, dim=0, descending=False)[1]
    return place_new(cast(order, kind), device, requires_grad)


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """1 with the probability that the element of ``input`` gives (or ``p`` for all), else 0.

    Returns: ``input``'s shape and dtype, no gradient.
    Raises: DtypeError if ``input`` is not floating and ``p`` is not given, UserError for ``p``
    outside [0, 1].
    """
    if p is None:
        _float_dtype("bernoulli", input.dtype)
    elif not 0 <= p <= 1:
        raise _C.UserError(f"bernoulli: p is no probability: got {p}; use 0 to 1")
    kind = _C.float64 if input.dtype is _C.float64 else _C.float32
    drawn = beside(emit("uniform", _source(generator), shape=input.shape, dtype=kind), input)
    return cast(emit("lt", drawn, input if p is None else p), input.dtype)


def normal(
    mean: Operand = 0.0,
    std: Operand = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: _C.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from normal distributions.

    Args:
        mean, std: numbers or tensors, one for each element.
        size: the shape; may be None if one of both is a tensor.

    Raises: UserError if ``std`` is a negative number or no shape is known.
    """
    if not isinstance(std, Tensor) and std < 0:
        raise _C.UserError(f"normal: std is negative: got {std}; use 0 or more")
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is None and not given:
        raise _C.UserError("normal: no shape is known; give size or a tensor")
    if size is None:
        shape = broadcast_shapes("normal", [x.shape for x in given])
    else:
        shape = new_shape("normal", (size,))
    kind = given[0].dtype if dtype is None and given else _float_dtype("normal", dtype)
    drawn = emit("normal", _source(generator), shape=shape, dtype=kind)
    drawn = beside(drawn, given[0]) if given else drawn
    scaled = drawn if not isinstance(std, Tensor) and std == 1 else emit("mul", drawn, std)
    moved = scaled if not isinstance(mean, Tensor) and mean == 0 else emit("add", scaled, mean)
    return place_new(moved, device or (given[0].device if given else None), requires_grad)


@autocast_as("none")
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Positions drawn with probabilities in proportion to weights.

    Args:
        input: weights (n,) or (rows, n), floating, none negative; each row is a distribution.
        num_samples: draws for each row; at most n without ``replacement``.

    Returns: int64 (num_samples,) or (rows, num_samples); no gradient.
    Raises: ShapeError for another number of axes, UserError if too many are drawn or (eager) if
    the weights of a row are negative, not finite or all 0.
    """
    _float_dtype("multinomial", input.dtype)
    if input.ndim not in (1, 2):
        raise _C.ShapeError(
            f"multinomial: expected one or two axes: got shape {tuple(input.shape)}"
        )
    count = as_int("multinomial", "num_samples", num_samples)
    length = input.shape[-1]
    if count < 1 or (not replacement and count > length):
        raise _C.UserError(
            f"multinomial: cannot draw {count} of {length}; draw 1 to {length}, or use replacement"
        )
    weights = reshaped(emit("detach", input), (input.numel() // max(length, 1), length))
    if not _C.is_tracing():
        _check_weights(weights)
        weights = place_new(weights, "cpu")  # in float64, and found by the host
    draw = _with_replacement if replacement else _without_replacement
    drawn = beside(draw(weights, count, _source(generator)), input)
    return drawn if input.ndim == 2 else reshaped(drawn, (count,))


def _check_weights(weights: Tensor) -> None:
    values = to_array(weights)
    if not (numpy.isfinite(values).all() and (values >= 0).all() and values.sum(-1).all()):
        raise _C.UserError(
            "multinomial: the weights must be finite, none negative and not all 0 in a row"
        )


def _with_replacement(weights: Tensor, count: int, generator: Generator) -> Tensor:
    """The place where the running sum passes a uniform number times the whole sum."""
    rows, length = weights.shape
    running = emit("cumsum", cast(weights, _C.float64), dim=1)
    starts = [0, length - 1]
    total = emit("slice", running, starts=starts, sizes=[rows, 1], steps=[1, 1])
    drawn = emit("uniform", generator, shape=(rows, count), dtype=_C.float64)
    marks = emit("mul", drawn, total)
    if not _C.is_tracing():
        table, wanted = to_array(running), to_array(marks)
        pairs = zip(table, wanted, strict=True)
        places = numpy.stack([numpy.searchsorted(a, b, side="right") for a, b in pairs])
        return _C.from_numpy(numpy.minimum(places, length - 1).astype("int64"), copy=True)
    running = emit("reshape", running, shape=(rows, 1, length))
    marks = emit("reshape", marks, shape=(rows, count, 1))
    passed = cast(emit("le", running, marks), _C.int64)
    return emit("minimum", emit("sum", passed, dims=(2,), keepdim=False), length - 1)


def _without_replacement(weights: Tensor, count: int, generator: Generator) -> Tensor:
    """The largest of weight / exponential number (Efraimidis and Spirakis 2006)."""
    wide = cast(weights, _C.float32) if weights.dtype is not _C.float64 else weights
    drawn = emit("uniform", generator, shape=wide.shape, dtype=wide.dtype)
    # -log(1 - u) is 0 for u = 0; the smallest normal float32 keeps 0 / 0 away.
    spread = emit("maximum", emit("neg", emit("log", emit("sub", 1, drawn))), 2.0**-126)
    order = emit("sort", emit("div", wide, spread), dim=1, descending=True)[1]
    sizes = [weights.shape[0], count]
    return emit("slice", order, starts=[0, 0], sizes=sizes, steps=[1, 1])
