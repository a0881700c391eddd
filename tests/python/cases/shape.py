"""Operations that make and rearrange tensors, the random ones, and those that read at indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import (
    EDGES,
    GENERATOR,
    HALVES,
    INTEGERS,
    NAN,
    Array,
    OpCase,
    RandomState,
    apart,
    bools,
    integers,
    normal,
    values,
)

ALL_DTYPES = ("bool", *INTEGERS, *HALVES, "float32", "float64")
CREATABLE = (*INTEGERS, *HALVES, "float32", "float64")


def full(shape: list[int], dtype: str, value: float) -> Array:
    return np.full(shape, value, bool if dtype == "bool" else None)


def arange(start: float, step: float, count: int, dtype: str) -> Array:
    return np.asarray([start + i * step for i in range(count)], np.int64 if step == 2 else None)


def constant(data: bytes, shape: list[int], dtype: str) -> Array:
    return np.frombuffer(data, dtype).reshape(shape)


def constant_case(array: Array) -> OpCase:
    attrs = {"data": array.tobytes(), "shape": list(array.shape), "dtype": array.dtype.name}
    return OpCase(
        "constant",
        (),
        constant,
        attrs,
        dtype=array.dtype.name,
        tolerance=0,
        label=f"{array.dtype.name}{array.shape}",
    )


def created(op: str, function: Any, dtype: str, **attrs: Any) -> OpCase:
    label = " ".join(str(v) for v in (*attrs.values(), dtype))
    return OpCase(op, (), function, {**attrs, "dtype": dtype}, dtype=dtype, label=label)


CREATION = [
    *[created("full", full, d, shape=[2, 3], value=1) for d in ALL_DTYPES],
    *[created("full", full, d, shape=[5], value=-2.5) for d in ("float32", "float64", *HALVES)],
    created("full", full, "float32", shape=[], value=float("nan")),
    created("full", full, "float32", shape=[3], value=float("-inf")),
    created("full", full, "float32", shape=[2], value=-0.0),
    created("full", full, "int64", shape=[0, 3], value=7),
    created("full", full, "int64", shape=[2], value=2**62 + 1),
    *[created("arange", arange, d, start=1, step=2, count=7) for d in CREATABLE],
    created("arange", arange, "float32", start=-1.0, step=0.25, count=11),
    created("arange", arange, "float64", start=0.5, step=-0.5, count=6),
    created("arange", arange, "int64", start=5, step=-1, count=6),
    created("arange", arange, "int32", start=0, step=1, count=0),
    constant_case(np.arange(6, dtype=np.float32).reshape(2, 3)),
    constant_case(np.asarray(EDGES, np.float32)),
    constant_case(np.asarray(-(2**60) + 1, np.int64)),
    constant_case(np.zeros((0, 2), np.int32)),
    constant_case(np.asarray([1, -2], np.float16)),
]


def philox_words(state: RandomState, count: int) -> Array:
    """Words of Philox-4x32-10 (Salmon and others 2011, "Parallel random numbers", figure 2)."""
    words = []
    for block in range((count + 3) // 4):
        x = [block & 0xFFFFFFFF, block >> 32, 0, 0]
        key = [state.seed & 0xFFFFFFFF, state.seed >> 32]
        for _ in range(10):
            p0, p1 = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
            x = [
                (p1 >> 32) ^ x[1] ^ key[0],
                p1 & 0xFFFFFFFF,
                (p0 >> 32) ^ x[3] ^ key[1],
                p0 & 0xFFFFFFFF,
            ]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        words += x
    return np.asarray(words, np.uint64)


def partners(words: Array) -> Array:
    """Each word's neighbour in its pair."""
    return words[np.arange(len(words)) ^ 1]


# Digits of a uniform number by dtype, float64 apart: it takes 53 from two words.
UNIFORM_DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def draw_uniform(state: RandomState, shape: list[int], dtype: str) -> Array:
    count = int(np.prod(shape))
    words = philox_words(state, count)
    if dtype == "float64":
        drawn = words * 2.0**-32 + (partners(words) >> np.uint64(11)) * 2.0**-53
    else:
        digits = UNIFORM_DIGITS[dtype]
        drawn = (words >> np.uint64(32 - digits)) * 2.0**-digits
    return drawn[:count].reshape(shape)


def draw_normal(state: RandomState, shape: list[int], dtype: str) -> Array:
    """Box and Muller 1958, on the pairs of words."""
    count = int(np.prod(shape))
    words = philox_words(state, count).astype(np.float64)
    radius = np.sqrt(-2 * np.log((words[0::2] + 0.5) * 2.0**-32))
    angle = 2 * np.pi * words[1::2] * 2.0**-32
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1)[:count].reshape(shape)


def draw_integers(state: RandomState, low: int, high: int, shape: list[int], dtype: str) -> Array:
    count = int(np.prod(shape))
    words = [int(w) for w in philox_words(state, count)]
    if high - low <= 2**32:
        drawn = [low + (w * (high - low) >> 32) for w in words]
    else:
        wide = [(w << 32) | words[i ^ 1] for i, w in enumerate(words)]
        drawn = [low + (w * (high - low) >> 64) for w in wide]
    return np.asarray(drawn[:count], np.int64).reshape(shape)


def dropout(x: Array, state: RandomState, p: float) -> tuple[Array, Array]:
    words = philox_words(state, x.size)[: x.size].reshape(x.shape)
    mask = (words >> np.uint64(8)) * 2.0**-24 >= p
    return (np.where(mask, x / (1 - p), 0.0) if p < 1 else 0 * x), mask


def random(op: str, function: Any, dtype: str, *shape: int, **attrs: Any) -> OpCase:
    label = f"{dtype} {shape} {list(attrs.values())}"
    attrs |= {"shape": list(shape), "dtype": dtype}
    return OpCase(op, (GENERATOR,), function, attrs, dtype=dtype, label=label)


def dropout_case(x: Any, p: float, **more: Any) -> OpCase:
    return OpCase(
        "dropout",
        (x, GENERATOR),
        dropout,
        {"p": p},
        dtype=(x.dtype, "bool"),
        label=f"{x.text} p={p}",
        **more,
    )


RANDOM = [
    *[random("uniform", draw_uniform, d, 3, 7) for d in UNIFORM_DIGITS],
    random("uniform", draw_uniform, "float64", 5),
    random("uniform", draw_uniform, "float32"),
    random("uniform", draw_uniform, "float32", 0, 3),
    random("normal", draw_normal, "float32", 3, 7),
    random("normal", draw_normal, "float64", 5),
    random("normal", draw_normal, "float32"),
    *[random("normal", draw_normal, d, 9) for d in HALVES],
    random("random_int", draw_integers, "int64", 3, 7, low=-3, high=5),
    random("random_int", draw_integers, "int64", 7, low=-(2**40), high=2**41),
    random("random_int", draw_integers, "uint8", 9, low=0, high=256),
    random("random_int", draw_integers, "int32", low=2, high=3),
    random("random_int", draw_integers, "int16", 0, low=-5, high=3),
    dropout_case(normal(3, 7), 0.4),
    dropout_case(normal(67), 0.0),
    dropout_case(normal(5), 1.0),
    dropout_case(normal(), 0.25),
    dropout_case(normal(0, 3), 0.5),
    *[dropout_case(normal(21, dtype=d), 0.5, grad=False) for d in HALVES],
]


def rearranged(op: str, source: Any, function: Any, **attrs: Any) -> OpCase:
    label = f"{source.text} {list(attrs.values())}"
    return OpCase(op, (source,), function, attrs, tolerance=0, label=label)


def reshape(x: Array, shape: list[int]) -> Array:
    return x.reshape(shape)


def permute(x: Array, dims: list[int]) -> Array:
    return np.transpose(x, dims)


def broadcast_to(x: Array, shape: list[int]) -> Array:
    return np.broadcast_to(x, shape)


def concat(*inputs: Array, dim: int) -> Array:
    return np.concatenate(inputs, axis=dim)


def pad(x: Array, low: list[int], high: list[int], value: float) -> Array:
    if not low:
        return x
    return np.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def window(starts: list[int], sizes: Any, steps: list[int]) -> Any:
    axes = [s + np.arange(n) * step for s, n, step in zip(starts, sizes, steps, strict=True)]
    return np.ix_(*axes)


def slice_of(x: Array, starts: list[int], sizes: list[int], steps: list[int]) -> Array:
    return x[window(starts, sizes, steps)]


def slice_update(x: Array, source: Array, starts: list[int], steps: list[int]) -> Array:
    result = np.array(x)
    result[window(starts, source.shape, steps)] = source
    return result


def joined(*sources: Any, dim: int, **more: Any) -> OpCase:
    label = f"{','.join(s.text for s in sources)} {dim}"
    return OpCase("concat", sources, concat, {"dim": dim}, label=label, **more)


def updated(x: Any, source: Any, starts: list[int], steps: list[int], **more: Any) -> OpCase:
    return OpCase(
        "slice_update",
        (x, source),
        slice_update,
        {"starts": starts, "steps": steps},
        tolerance=0,
        **more,
    )


ARRANGED = [
    rearranged("reshape", normal(3, 4), reshape, shape=[2, 6]),
    rearranged("reshape", normal(3, 4), reshape, shape=[12]),
    rearranged("reshape", normal(), reshape, shape=[1, 1]),
    rearranged("reshape", normal(1), reshape, shape=[]),
    rearranged("reshape", normal(0, 3), reshape, shape=[5, 0]),
    rearranged("reshape", integers(2, 3, dtype="int16"), reshape, shape=[6]),
    rearranged("permute", normal(3, 4), permute, dims=[1, 0]),
    rearranged("permute", normal(2, 3, 4), permute, dims=[2, 0, 1]),
    rearranged("permute", normal(2, 3, 4), permute, dims=[0, 1, 2]),
    rearranged("permute", normal(2, 3, 4, 5), permute, dims=[0, 2, 3, 1]),
    rearranged("permute", normal(1, 2, 1, 2, 1, 3), permute, dims=[5, 3, 1, 0, 2, 4]),
    rearranged("permute", normal(), permute, dims=[]),
    rearranged("permute", normal(0, 2), permute, dims=[1, 0]),
    rearranged("permute", integers(33, 17, dtype="uint8"), permute, dims=[1, 0]),
    rearranged("permute", bools(3, 5), permute, dims=[1, 0]),
    *[rearranged("permute", normal(5, 7, dtype=d), permute, dims=[1, 0]) for d in ("float64",)],
    rearranged("broadcast_to", normal(4), broadcast_to, shape=[3, 4]),
    rearranged("broadcast_to", normal(3, 1), broadcast_to, shape=[3, 5]),
    rearranged("broadcast_to", normal(1, 3, 1), broadcast_to, shape=[2, 2, 3, 4]),
    rearranged("broadcast_to", normal(), broadcast_to, shape=[2, 3]),
    rearranged("broadcast_to", normal(), broadcast_to, shape=[]),
    rearranged("broadcast_to", normal(1), broadcast_to, shape=[0]),
    rearranged("broadcast_to", normal(2, 1), broadcast_to, shape=[2, 0]),
    rearranged("broadcast_to", integers(3, 1, dtype="int8"), broadcast_to, shape=[3, 9]),
    joined(normal(2, 3), normal(4, 3), dim=0),
    joined(normal(2, 3), normal(2, 1), normal(2, 2), dim=1),
    joined(normal(2, 3, 2), normal(2, 1, 2), dim=1),
    joined(normal(3), dim=0),
    joined(normal(0, 3), normal(2, 3), dim=0),
    joined(normal(2, 0), normal(2, 3), dim=1),
    joined(integers(3, dtype="int32"), integers(2, dtype="int32"), dim=0),
    joined(integers(3, dtype="int32"), normal(2), dim=0, dtype="float32"),
    joined(bools(3), bools(2), dim=0),
    joined(normal(3, dtype="float16"), normal(4, dtype="float16"), dim=0, grad=False),
    rearranged("pad", normal(3), pad, low=[1], high=[2], value=0),
    rearranged("pad", normal(2, 3), pad, low=[0, 2], high=[1, 0], value=-1.5),
    rearranged("pad", normal(2, 3, 4), pad, low=[0, 0, 0], high=[0, 0, 0], value=1),
    rearranged("pad", normal(0, 2), pad, low=[1, 0], high=[1, 1], value=2),
    rearranged("pad", normal(), pad, low=[], high=[], value=0),
    OpCase(
        "pad",
        (normal(2, 2),),
        pad,
        {"low": [1, 1], "high": [1, 1], "value": float("-inf")},
        grad=False,
    ),
    rearranged("pad", integers(3, dtype="int64"), pad, low=[1], high=[1], value=7),
    rearranged("slice", normal(7), slice_of, starts=[2], sizes=[3], steps=[1]),
    rearranged("slice", normal(7), slice_of, starts=[6], sizes=[4], steps=[-2]),
    rearranged("slice", normal(5, 6), slice_of, starts=[1, 5], sizes=[2, 3], steps=[3, -2]),
    rearranged(
        "slice", normal(2, 3, 4), slice_of, starts=[1, 0, 1], sizes=[1, 3, 2], steps=[1, 1, 1]
    ),
    rearranged("slice", normal(4, 4), slice_of, starts=[0, 0], sizes=[0, 4], steps=[1, 1]),
    rearranged("slice", normal(), slice_of, starts=[], sizes=[], steps=[]),
    rearranged("slice", integers(9, dtype="int16"), slice_of, starts=[8], sizes=[9], steps=[-1]),
    updated(normal(7), normal(3), [2], [1]),
    updated(normal(7), normal(4), [6], [-2]),
    updated(normal(5, 6), normal(2, 3), [1, 5], [3, -2]),
    updated(normal(4, 4), normal(0, 4), [0, 0], [1, 1]),
    updated(normal(), normal(), [], []),
    updated(integers(9, dtype="int32"), integers(3, dtype="int32"), [0], [4]),
    OpCase("detach", (normal(3, 4),), lambda x: x, grad=False, tolerance=0),
    OpCase("detach", (normal(),), lambda x: x, grad=False, tolerance=0),
    OpCase("detach", (integers(3),), lambda x: x, tolerance=0),
]


def take(x: Array, index: Array, dim: int) -> Array:
    return np.take(x, index, axis=dim)


def index_add(x: Array, index: Array, source: Array, dim: int) -> Array:
    result = np.moveaxis(x.copy(), dim, 0)
    lead = x.shape[:dim]
    count = int(np.prod(index.shape))
    moved = np.moveaxis(source.reshape((*lead, count, *x.shape[dim + 1 :])), dim, 0)
    for place, row in zip(index.reshape(-1), moved, strict=True):
        result[place] += row
    return np.moveaxis(result, 0, dim)


def gather(x: Array, index: Array, dim: int) -> Array:
    cut = tuple(slice(None) if i == dim else slice(n) for i, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index, axis=dim)


def scattered(x: Array, index: Array, source: Array, dim: int, add: bool) -> Array:
    result = x.copy()
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[dim] = index[place]
        result[tuple(target)] = source[place] + (result[tuple(target)] if add else 0)
    return result


def scatter(x: Array, index: Array, source: Array, dim: int) -> Array:
    return scattered(x, index, source, dim, False)


def scatter_add(x: Array, index: Array, source: Array, dim: int) -> Array:
    return scattered(x, index, source, dim, True)


def scattered_extreme(take: Any, x: Array, index: Array, source: Array, dim: int) -> Array:
    result = x.copy()
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[dim] = index[place]
        result[tuple(target)] = take(result[tuple(target)], source[place])
    return result


def scatter_max(x: Array, index: Array, source: Array, dim: int) -> Array:
    return scattered_extreme(np.maximum, x, index, source, dim)


def scatter_min(x: Array, index: Array, source: Array, dim: int) -> Array:
    return scattered_extreme(np.minimum, x, index, source, dim)


def places(*shape: int, size: int, dtype: str = "int64") -> Any:
    """Indices of an axis of that size, also counted from its end."""
    return integers(*shape, low=-size, high=size, dtype=dtype)


def permuted(given: list[Any], dtype: str = "int64") -> Any:
    """Indices without repetition along the axis."""
    return values(given, dtype)


def taken(x: Any, index: Any, dim: int, **more: Any) -> OpCase:
    return OpCase(
        "take",
        (x, index),
        take,
        {"dim": dim},
        tolerance=0,
        label=f"{x.text},{index.text} {dim}",
        **more,
    )


def added(x: Any, index: Any, source: Any, dim: int, **more: Any) -> OpCase:
    return OpCase(
        "index_add",
        (x, index, source),
        index_add,
        {"dim": dim},
        label=f"{x.text},{index.text} {dim}",
        **more,
    )


def from_front(index: Any, size: int) -> OpCase:
    return OpCase(
        "index_from_front",
        (index,),
        lambda index, size, function: index,
        {"size": size, "function": "table"},
        tolerance=0,
        grad=False,
        label=f"{index.text} {size}",
    )


def gathered(x: Any, index: Any, dim: int, **more: Any) -> OpCase:
    return OpCase(
        "gather",
        (x, index),
        gather,
        {"dim": dim},
        tolerance=0,
        label=f"{x.text},{index.text} {dim}",
        **more,
    )


SCATTERS = {
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_max": scatter_max,
    "scatter_min": scatter_min,
}


def scatter_case(op: str, x: Any, index: Any, source: Any, dim: int, **more: Any) -> OpCase:
    function = SCATTERS[op]
    return OpCase(
        op, (x, index, source), function, {"dim": dim}, label=f"{x.text},{index.text} {dim}", **more
    )


INDEXED = [
    taken(normal(5, 3), places(4, size=5), 0),
    taken(normal(3, 5), places(4, size=5, dtype="int32"), 1),
    taken(normal(2, 5, 3), places(2, 2, size=5), 1),
    taken(normal(5, 3), places(size=5), 0),
    taken(normal(5), places(0, size=5), 0),
    taken(normal(5, 3), places(0, 2, size=5), 0),
    taken(integers(7, 2, dtype="int16"), places(3, size=7), 0),
    taken(normal(7, 16, dtype="bfloat16"), places(5, size=7), 0, grad=False),
    taken(bools(7), places(3, size=7), 0),
    added(normal(5, 3), places(4, size=5), normal(4, 3), 0),
    added(normal(3, 5), places(7, size=5, dtype="int32"), normal(3, 7), 1),
    added(normal(2, 5, 3), places(2, 2, size=5), normal(2, 2, 2, 3), 1),
    added(normal(5, 3), places(size=5), normal(3), 0),
    added(normal(5), places(0, size=5), normal(0), 0),
    added(integers(5, dtype="int32"), places(9, size=5), integers(9, dtype="int32"), 0),
    from_front(integers(2, 3, low=0, high=5), 5),
    from_front(integers(7, low=0, high=2, dtype="int32"), 2),
    from_front(integers(0, low=0, high=2), 0),
    from_front(integers(low=3, high=4), 4),
    gathered(normal(5, 3), places(2, 3, size=5), 0),
    gathered(normal(3, 5), places(3, 7, size=5, dtype="int32"), 1),
    gathered(normal(3, 5), places(2, 4, size=5), 1),
    gathered(normal(2, 3, 4), places(2, 5, 3, size=3), 1),
    gathered(normal(5), places(0, size=5), 0),
    gathered(integers(5, dtype="uint8"), places(4, size=5), 0),
    scatter_case("scatter", normal(5), permuted([3, 0, -1]), normal(3), 0),
    scatter_case("scatter", normal(3, 4), permuted([[1, 0], [3, -2]], "int32"), normal(2, 2), 1),
    scatter_case("scatter", normal(3, 4), permuted([[2, 1, 0, 2], [0, 2, 1, 1]]), normal(2, 4), 0),
    # Of repeated indices the last write stays.
    scatter_case("scatter", normal(4), permuted([1, 1, -3, 0]), normal(4), 0, grad=False),
    scatter_case(
        "scatter", integers(4, dtype="int8"), permuted([1, 1]), integers(2, dtype="int8"), 0
    ),
    scatter_case("scatter", bools(4), permuted([1, 3]), bools(2), 0),
    scatter_case("scatter", normal(4), places(0, size=4), normal(0), 0),
    scatter_case("scatter_add", normal(5), places(9, size=5), normal(9), 0),
    scatter_case("scatter_add", normal(3, 5), places(3, 7, size=5, dtype="int32"), normal(3, 7), 1),
    scatter_case("scatter_add", normal(3, 5), places(2, 4, size=3), normal(2, 4), 0),
    scatter_case("scatter_add", integers(4), places(6, size=4), integers(6), 0),
    scatter_case("scatter_add", normal(4), places(0, size=4), normal(0), 0),
    *(
        scatter_case(op, *operands)
        for op in ("scatter_max", "scatter_min")
        for operands in (
            (normal(5), places(9, size=5), normal(9), 0),
            (normal(3, 5), places(3, 7, size=5, dtype="int32"), normal(3, 7), 1),
            (normal(3, 5), places(2, 4, size=3), normal(2, 4), 0),
            (integers(4), places(6, size=4), integers(6), 0),
            (normal(4), places(0, size=4), normal(0), 0),
        )
    ),
    scatter_case(
        "scatter_max",
        values([1.0, NAN, 0.0]),
        permuted([0, 1]),
        values([NAN, 3.0]),
        0,
        grad=False,
    ),
]


def cumsum(x: Array, dim: int) -> Array:
    return np.cumsum(x, axis=dim)


def sort(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Stable; nan is the largest."""
    if descending:
        flipped = np.flip(x, dim)
        order = np.argsort(flipped, axis=dim, kind="stable")
        order = np.flip(x.shape[dim] - 1 - order, dim)
    else:
        order = np.argsort(x, axis=dim, kind="stable")
    return np.take_along_axis(x, order, axis=dim), order


def ordered(x: Any, dim: int, descending: bool = False, **more: Any) -> OpCase:
    return OpCase(
        "sort",
        (x,),
        sort,
        {"dim": dim, "descending": descending},
        tolerance=0,
        dtype=(x.dtype, "int64"),
        label=f"{x.text} {dim} {descending}",
        **more,
    )


ORDERED = [
    OpCase("cumsum", (normal(7),), cumsum, {"dim": 0}),
    OpCase("cumsum", (normal(3, 5),), cumsum, {"dim": 0}),
    OpCase("cumsum", (normal(3, 5, 2),), cumsum, {"dim": 1}),
    OpCase("cumsum", (normal(0, 3),), cumsum, {"dim": 0}),
    OpCase("cumsum", (normal(2, 0),), cumsum, {"dim": 1}),
    OpCase("cumsum", (integers(9),), cumsum, {"dim": 0}),
    OpCase("cumsum", (normal(100, dtype="float16"),), cumsum, {"dim": 0}, grad=False),
    ordered(apart(7), 0),
    ordered(apart(3, 5), 1, True),
    ordered(apart(3, 5, 2), 1),
    ordered(apart(5, 3), 0, True),
    ordered(integers(40, low=-2, high=3), 0),
    ordered(integers(40, low=-2, high=3, dtype="int8"), 0, True),
    ordered(values([1.0, float("nan"), -1.0, float("inf"), 0.0, float("nan")]), 0, grad=False),
    ordered(values([1.0, float("nan"), -1.0, float("-inf"), 1.0]), 0, True, grad=False),
    ordered(normal(0, 3), 0),
    ordered(normal(1), 0),
    ordered(normal(33, dtype="bfloat16"), 0, grad=False),
]

CASES = [*CREATION, *RANDOM, *ARRANGED, *INDEXED, *ORDERED]
