"""The form of a row in the table of operations, and the generators of sample inputs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = ("uint8", *SIGNED)

INF = float("inf")
NAN = float("nan")
# Zeros, infinities, nan, subnormals of float32, its extremes, halves that are ties of rounding.
EDGES = (
    *(0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38),
    *(3.4028235e38, -3.4028235e38, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5),
    *(0.99999994, 1.0000001, 88.7, -88.7, 104.0, -104.0, 1e-7, 8388609.0, -16777216.0, 3e9),
)
# The same for float64.
WIDE_EDGES = (
    *(0.0, -0.0, INF, -INF, NAN, 5e-324, -5e-324, 1e-310, 2.2250738585072014e-308),
    *(1.7976931348623157e308, -1.7976931348623157e308, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5),
    *(709.7, -709.7, -745.0, 1e-16, 4503599627370497.0, 1e22),
)
# The same for float16; all of them are bfloat16 numbers or become some.
HALF_EDGES = (0.0, -0.0, INF, -INF, NAN, 6e-8, -6e-8, 65504.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5)
# Few values that meet every branch of a function of two inputs when each is paired with each.
PAIRED_EDGES = (0.0, -0.0, INF, -INF, NAN, 1e-45, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 1e38)


@dataclass(frozen=True)
class Sample:
    """One input: how to make it, and the dtype that it has as a tensor."""

    make: Callable[[np.random.Generator], Array]
    dtype: str
    text: str

    @property
    def is_floating(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True)
class RandomState:
    """Stands for the default generator, seeded with this before each call."""

    seed: int = 0


GENERATOR = RandomState(1234)
Input = Sample | RandomState | float | int | None


@dataclass(frozen=True)
class OpCase:
    """One call of an operation and what it must give.

    numpy: the result from the inputs (floating ones as float64) and the attributes; a tuple where
        the operation has several outputs, None in it for one that is not compared. None: nothing
        is known but that eager and compiled agree.
    grad: which floating inputs are differentiated and checked: all, none, or their places.
    second: also check the derivative of the gradient.
    dtype: of the outputs; where not given, the first input's.
    tolerance: error over the expected value (over the largest one, if the operation is not
        element-wise); 0 asks for the same bits. None: 1e-6 in float32 and what it is in other
        dtypes. A looser one says why in `reason`.
    """

    op: str
    inputs: tuple[Input, ...]
    numpy: Callable[..., Any] | None
    attrs: dict[str, Any] = field(default_factory=dict)
    grad: bool | tuple[int, ...] = True
    second: bool = True
    dtype: str | tuple[str, ...] = ""
    tolerance: float | None = None
    reason: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        assert (self.tolerance or 0) <= 1e-6 or self.reason, f"{self.op}: why so loose?"

    @property
    def name(self) -> str:
        texts = [i.text if isinstance(i, Sample) else "_" if i is None else "" for i in self.inputs]
        return "-".join([self.op, self.label or ",".join(t for t in texts if t)]).rstrip("-")

    def arrays(self) -> list[Any]:
        """The inputs' values; the same at each call, and for any order of the table."""
        made = []
        for place, source in enumerate(self.inputs):
            if isinstance(source, Sample):
                seed = zlib.crc32(f"{self.op} {place} {source.text}".encode())
                made.append(source.make(np.random.default_rng(seed)))
            else:
                made.append(source)
        return made

    def grad_places(self) -> tuple[int, ...]:
        """Places of the inputs that are differentiated."""
        floating = [i for i, s in enumerate(self.inputs) if isinstance(s, Sample) and s.is_floating]
        if isinstance(self.grad, tuple):
            assert set(self.grad) <= set(floating), self.name
            return self.grad
        return tuple(floating) if self.grad else ()


def _text(shape: Sequence[int], dtype: str, what: str = "") -> str:
    short = dtype.replace("float", "f").replace("uint", "u").replace("int", "i")
    return f"{what}{short}[{'x'.join(map(str, shape))}]"


def normal(*shape: int, dtype: str = "float32", scale: float = 1.0) -> Sample:
    """Normal numbers of mean 0."""
    return Sample(lambda rng: scale * rng.standard_normal(shape), dtype, _text(shape, dtype))


def uniform(*shape: int, low: float, high: float, dtype: str = "float32") -> Sample:
    """Evenly distributed numbers."""
    return Sample(lambda rng: rng.uniform(low, high, shape), dtype, _text(shape, dtype))


def sweep(count: int, dtype: str = "float32") -> Sample:
    """Numbers of either sign whose exponents cover the range of float32 evenly."""

    def make(rng: np.random.Generator) -> Array:
        return rng.choice([-1.0, 1.0], count) * np.exp2(rng.uniform(-130, 127, count))

    return Sample(make, dtype, _text((count,), dtype, "sweep "))


def positive(*shape: int, dtype: str = "float32") -> Sample:
    """Numbers from 0.5 to 2.5."""
    return uniform(*shape, low=0.5, high=2.5, dtype=dtype)


def apart(*shape: int, dtype: str = "float32", shift: float = 0.2) -> Sample:
    """Shuffled numbers, each 0.5 from the next; their distance to integers and halves is shift."""

    def make(rng: np.random.Generator) -> Array:
        count = int(np.prod(shape))
        return (rng.permutation(count).reshape(shape) - count // 2) * 0.5 + shift

    return Sample(make, dtype, _text(shape, dtype, "apart "))


def integers(*shape: int, low: int = -9, high: int = 10, dtype: str = "int64") -> Sample:
    """Integers low .. high - 1; 0 is raised to low for an unsigned dtype."""
    if dtype == "uint8":
        low = max(low, 0)
    return Sample(lambda rng: rng.integers(low, high, shape), dtype, _text(shape, dtype))


def bools(*shape: int) -> Sample:
    """Fair bools."""
    return Sample(lambda rng: rng.random(shape) < 0.5, "bool", _text(shape, "bool"))


def values(given: Any, dtype: str = "float32", shape: tuple[int, ...] | None = None) -> Sample:
    """These values."""
    array = np.asarray(given) if shape is None else np.reshape(given, shape)
    return Sample(lambda rng: array, dtype, _text(array.shape, dtype, "values "))


def column(given: Sequence[Any], dtype: str = "float32") -> Sample:
    """These values along axis 0 of a matrix of one column."""
    return values(given, dtype, (len(given), 1))
