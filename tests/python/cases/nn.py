"""Convolution, pooling and softmax, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import (
    HALVES,
    INF,
    NAN,
    Array,
    OpCase,
    Sample,
    apart,
    normal,
    positive,
    values,
)

Ints = list[int]


def correlate(
    x: Array, w: Array, stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int
) -> Array:
    """Cross-correlation, one kernel element after the other."""
    padded = np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)])
    kernel = w.shape[2:]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
    ]
    inputs = np.split(padded, groups, axis=1)
    filters = np.split(w, groups, axis=0)
    results = []
    for part, weight in zip(inputs, filters, strict=True):
        y = np.zeros((x.shape[0], weight.shape[0], *sizes))
        for place in np.ndindex(*kernel):
            cut = tuple(
                slice(p * d, p * d + (n - 1) * s + 1, s)
                for p, d, n, s in zip(place, dilation, sizes, stride, strict=True)
            )
            taps = part[(slice(None), slice(None), *cut)]
            y += np.einsum("nc...,oc->no...", taps, weight[(slice(None), slice(None), *place)])
        results.append(y)
    return np.concatenate(results, axis=1)


def convolution(x: Array, w: Array, bias: Array | None = None, **geometry: Any) -> Array:
    y = correlate(x, w, *geometry_of(geometry))
    return y if bias is None else y + bias.reshape(-1, *[1] * (x.ndim - 2))


def geometry_of(attrs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(attrs[n] for n in ("stride", "padding_low", "padding_high", "dilation", "groups"))


def adjoint(linear: Any, shape: Ints, grad: Array) -> Array:
    """The transposed linear function applied to grad, column by column."""
    result = np.zeros(shape)
    for place in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[place] = 1
        result[place] = np.sum(linear(unit) * grad)
    return result


def input_grad(grad: Array, w: Array, input_shape: Ints, **geometry: Any) -> Array:
    return adjoint(lambda x: correlate(x, w, *geometry_of(geometry)), input_shape, grad)


def weight_grad(grad: Array, x: Array, weight_shape: Ints, **geometry: Any) -> Array:
    return adjoint(lambda w: correlate(x, w, *geometry_of(geometry)), weight_shape, grad)


def geometry(rank: int, **given: Any) -> dict[str, Any]:
    defaults = {
        "stride": [1] * rank,
        "padding_low": [0] * rank,
        "padding_high": [0] * rank,
        "dilation": [1] * rank,
        "groups": 1,
    }
    return {**defaults, **given}


def convolutions(
    x: Ints,
    w: Ints,
    adjoints: bool = True,
    dtype: str = "float32",
    sample: Any = normal,
    more: Any = None,
    **given: Any,
) -> list[OpCase]:
    """A convolution with and without bias and its two adjoints."""
    more = more or {}
    attrs = geometry(len(x) - 2, **given)
    label = f"{x} {w} {given} {dtype}".replace(" ", "").replace("'", "")
    out = list(convolution(np.zeros(x), np.zeros(w), **attrs).shape)
    bias = sample(w[0], dtype=dtype)
    inputs = (sample(*x, dtype=dtype), sample(*w, dtype=dtype))
    rows = [OpCase("convolution", (*inputs, bias), convolution, attrs, label=label, **more)]
    if not adjoints:
        return rows
    grad = sample(*out, dtype=dtype)
    return [
        *rows,
        OpCase(
            "convolution", (*inputs, None), convolution, attrs, label="no bias " + label, **more
        ),
        OpCase(
            "convolution_input_grad",
            (grad, inputs[1]),
            input_grad,
            {"input_shape": x, **attrs},
            label=label,
            **more,
        ),
        OpCase(
            "convolution_weight_grad",
            (grad, inputs[0]),
            weight_grad,
            {"weight_shape": w, **attrs},
            label=label,
            **more,
        ),
    ]


LARGE = {"grad": False, "tolerance": 3e-6, "reason": "sums of hundreds of terms"}
HALF = {"grad": False}

CONVOLUTIONS = [
    *convolutions([2, 3, 5, 6], [4, 3, 3, 3]),
    *convolutions([1, 2, 5, 4], [3, 2, 2, 3], padding_low=[1, 1], padding_high=[1, 1]),
    *convolutions(
        [2, 2, 5, 5], [2, 2, 3, 3], stride=[2, 2], padding_low=[1, 1], padding_high=[1, 1]
    ),
    *convolutions([1, 2, 6, 5], [2, 2, 2, 2], stride=[2, 3]),
    *convolutions([1, 2, 7, 6], [2, 2, 3, 2], dilation=[2, 3]),
    *convolutions([2, 4, 4, 4], [6, 2, 3, 3], groups=2, padding_low=[1, 0], padding_high=[0, 1]),
    *convolutions([1, 3, 4, 4], [3, 1, 3, 3], groups=3, padding_low=[1, 1], padding_high=[1, 1]),
    *convolutions([2, 3, 4, 4], [5, 3, 1, 1]),
    *convolutions([1, 1, 3, 3], [1, 1, 3, 3]),
    *convolutions([1, 2, 5, 5], [2, 2, 2, 2], padding_low=[0, 0], padding_high=[1, 1]),
    *convolutions([0, 2, 4, 4], [3, 2, 3, 3]),
    *convolutions([3, 1, 9, 9], [8, 1, 5, 5], more=LARGE),
    *convolutions(
        [2, 16, 8, 8],
        [32, 16, 3, 3],
        padding_low=[1, 1],
        padding_high=[1, 1],
        more=LARGE,
    ),
    *convolutions([2, 17, 7, 9], [19, 17, 3, 3], adjoints=False, stride=[2, 2], more=LARGE),
    *convolutions(
        [5, 16, 15, 17],
        [33, 16, 3, 3],
        adjoints=False,
        padding_low=[1, 1],
        padding_high=[1, 1],
        more=LARGE,
    ),
    *[r for d in HALVES for r in convolutions([1, 3, 5, 5], [4, 3, 3, 3], dtype=d, more=HALF)],
]


def windows(
    x: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Any:
    """Output sizes, and for each output place the input places under the window."""
    sizes = []
    for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        sizes.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)

    def taps(place: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [
            tuple(
                o * s - p + t * d
                for o, s, p, t, d in zip(place, stride, padding, tap, dilation, strict=True)
            )
            for tap in np.ndindex(*kernel)
        ]

    return sizes, taps


def is_inside(place: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    return all(0 <= p < n for p, n in zip(place, sizes, strict=True))


def max_pool(x: Array, **attrs: Any) -> tuple[Array, Array]:
    sizes, taps = windows(x, **attrs)
    y = np.full((*x.shape[:2], *sizes), -INF)
    index = np.zeros(y.shape, np.int32)
    for place in np.ndindex(*y.shape):
        first = True  # of equals the first, of nans the last, as in PyTorch
        for tap in taps(place[2:]):
            if not is_inside(tap, x.shape[2:]):
                continue
            value = x[(*place[:2], *tap)]
            if first or value > y[place] or (np.isnan(value)):
                y[place] = value
                index[place] = np.ravel_multi_index(tap, x.shape[2:])
            first = False
    return y, index


def max_pool_grad(grad: Array, indices: Array, input_shape: Ints) -> Array:
    result = np.zeros((*input_shape[:2], int(np.prod(input_shape[2:]))))
    for place in np.ndindex(*grad.shape):
        result[(*place[:2], indices[place])] += grad[place]
    return result.reshape(input_shape)


def avg_pool(
    x: Array,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int,
) -> Array:
    sizes, taps = windows(x, kernel, stride, padding, [1] * len(kernel), ceil_mode)
    y = np.zeros((*x.shape[:2], *sizes))
    padded = [n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]
    for place in np.ndindex(*y.shape):
        found = taps(place[2:])
        inside = [t for t in found if is_inside(t, x.shape[2:])]
        # With padding counted, the window still ends where the padding ends.
        counted = [
            t for t in found if is_inside([a + p for a, p in zip(t, padding, strict=True)], padded)
        ]
        count = divisor or len(counted if count_include_pad else inside)
        y[place] = sum(x[(*place[:2], *t)] for t in inside) / count
    return y


def avg_pool_grad(grad: Array, input_shape: Ints, **attrs: Any) -> Array:
    return adjoint(lambda x: avg_pool(x, **attrs), input_shape, grad)


def max_pooling(
    x: Any,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints | None = None,
    dilation: Ints | None = None,
    ceil_mode: bool = False,
    **more: Any,
) -> OpCase:
    rank = len(kernel)
    attrs = {
        "kernel": kernel,
        "stride": stride or kernel,
        "padding": padding or [0] * rank,
        "dilation": dilation or [1] * rank,
        "ceil_mode": ceil_mode,
    }
    return OpCase(
        "max_pool",
        (x,),
        max_pool,
        attrs,
        dtype=(x.dtype, "int32"),
        tolerance=0,
        label=f"{x.text} {list(attrs.values())}",
        **more,
    )


def average(
    x: Any,
    kernel: Ints,
    stride: Ints | None = None,
    padding: Ints | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int = 0,
    **more: Any,
) -> list[OpCase]:
    attrs = {
        "kernel": kernel,
        "stride": stride or kernel,
        "padding": padding or [0] * len(kernel),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "divisor": divisor,
    }
    row = OpCase(
        "avg_pool", (x,), avg_pool, attrs, label=f"{x.text} {list(attrs.values())}", **more
    )
    array = row.arrays()[0]
    grad = normal(*avg_pool(array, **attrs).shape, dtype=x.dtype)
    return [
        row,
        OpCase(
            "avg_pool_grad",
            (grad,),
            avg_pool_grad,
            {"input_shape": list(array.shape), **attrs},
            label=row.label,
            **more,
        ),
    ]


POOLING = [
    max_pooling(apart(2, 3, 4, 6), [2, 2]),
    max_pooling(apart(1, 2, 5, 5), [3, 3], [2, 2], [1, 1]),
    max_pooling(apart(1, 2, 5, 6), [2, 3], [1, 2]),
    max_pooling(apart(1, 1, 7, 7), [2, 2], [2, 2], [1, 1], [2, 2]),
    max_pooling(apart(1, 2, 5, 5), [2, 2], ceil_mode=True),
    max_pooling(apart(1, 2, 9), [3], [2], [1]),
    max_pooling(apart(0, 2, 4, 4), [2, 2]),
    max_pooling(apart(2, 17, 6, 6), [2, 2], grad=False),
    max_pooling(values(np.ones((1, 1, 4, 4))), [2, 2], grad=False),
    max_pooling(values([[[[1.0, NAN, 2.0, 3.0], [-INF, 0.0, NAN, NAN]]]]), [2, 2], grad=False),
    max_pooling(values(np.full((1, 1, 2, 2), -INF)), [2, 2], grad=False),
    *[max_pooling(apart(1, 2, 4, 4, dtype=d), [2, 2], grad=False) for d in HALVES],
    OpCase(
        "max_pool_grad",
        (normal(1, 2, 2, 2), values([[[[0, 3], [8, 11]]] * 2], "int32", (1, 2, 2, 2))),
        max_pool_grad,
        {"input_shape": [1, 2, 3, 4]},
    ),
    OpCase(
        "max_pool_grad",
        (normal(1, 1, 5), values([[[4, 4, 0, 1, 4]]], "int32")),
        max_pool_grad,
        {"input_shape": [1, 1, 6]},
    ),
    *average(normal(2, 3, 4, 6), [2, 2]),
    *average(normal(1, 2, 5, 5), [3, 3], [2, 2], [1, 1]),
    *average(normal(1, 2, 5, 5), [3, 3], [2, 2], [1, 1], count_include_pad=False),
    *average(normal(1, 2, 5, 5), [2, 2], ceil_mode=True),
    *average(normal(1, 1, 6, 6), [3, 3], [2, 2], [1, 1], ceil_mode=True),
    *average(normal(1, 1, 6, 6), [3, 3], [2, 2], [1, 1], ceil_mode=True, count_include_pad=False),
    *average(normal(1, 2, 4, 5), [2, 3], [1, 2], divisor=5),
    *average(normal(1, 2, 9), [3], [2], [1]),
    *average(normal(0, 2, 4, 4), [2, 2]),
    *average(normal(1, 2, 4, 4, dtype="bfloat16"), [2, 2], grad=False),
]


def softmax(x: Array, dim: int) -> Array:
    if x.size == 0:
        return x
    powers = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return powers / np.sum(powers, axis=dim, keepdims=True)


def log_softmax(x: Array, dim: int) -> Array:
    if x.size == 0:
        return x
    shifted = x - np.max(x, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def softmax_grad(grad: Array, y: Array, dim: int) -> Array:
    return y * (grad - np.sum(grad * y, axis=dim, keepdims=True))


def log_softmax_grad(grad: Array, y: Array, dim: int) -> Array:
    return grad - np.exp(y) * np.sum(grad, axis=dim, keepdims=True)


def softmax_rows(op: str, function: Any) -> list[OpCase]:
    return [
        OpCase(op, (normal(3, 5),), function, {"dim": 1}),
        OpCase(op, (normal(3, 5),), function, {"dim": 0}),
        OpCase(op, (normal(2, 3, 4),), function, {"dim": 1}),
        OpCase(op, (normal(1),), function, {"dim": 0}),
        OpCase(op, (normal(3, 1),), function, {"dim": 1}),
        OpCase(op, (normal(0, 4),), function, {"dim": 1}),
        OpCase(op, (normal(3, 0),), function, {"dim": 1}),
        OpCase(op, (normal(5, 131, scale=10.0),), function, {"dim": 1}, grad=False),
        OpCase(op, (normal(131, 5),), function, {"dim": 0}, grad=False),
        OpCase(
            op,
            (values([[1e4, 0.0, -1e4], [-INF, 0.0, 1.0], [3e38, 3e38, -3e38]]),),
            function,
            {"dim": 1},
            grad=False,
        ),
        OpCase(
            op, (values([[-INF, -INF], [NAN, 1.0], [INF, 0.0]]),), function, {"dim": 1}, grad=False
        ),
        *[OpCase(op, (normal(3, 17, dtype=d),), function, {"dim": 1}, grad=False) for d in HALVES],
    ]


def softmax_grad_rows(op: str, function: Any, y: Any) -> list[OpCase]:
    return [
        OpCase(op, (normal(3, 5), y(3, 5)), function, {"dim": 1}),
        OpCase(op, (normal(3, 5), y(3, 5)), function, {"dim": 0}),
        OpCase(op, (normal(2, 3, 4), y(2, 3, 4)), function, {"dim": 1}),
        OpCase(op, (normal(0, 4), y(0, 4)), function, {"dim": 1}),
        OpCase(op, (normal(5, 131), y(5, 131)), function, {"dim": 1}, grad=False),
        *[
            OpCase(
                op, (normal(3, 17, dtype=d), y(3, 17, dtype=d)), function, {"dim": 1}, grad=False
            )
            for d in HALVES
        ],
    ]


def probabilities(*shape: int, dtype: str = "float32") -> Any:
    made = positive(*shape, dtype=dtype)
    return Sample(lambda rng: made.make(rng) / 10, dtype, made.text)


SOFTMAX = [
    *softmax_rows("softmax", softmax),
    *softmax_rows("log_softmax", log_softmax),
    *softmax_grad_rows("softmax_grad", softmax_grad, probabilities),
    *softmax_grad_rows("log_softmax_grad", log_softmax_grad, normal),
]

CASES = [*CONVOLUTIONS, *POOLING, *SOFTMAX]
