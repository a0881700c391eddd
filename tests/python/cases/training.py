"""Normalisation, cross-entropy and attention, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import HALVES, INF, Array, OpCase, Sample, integers, normal, positive, values


def normalized(
    x: Array,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> tuple[Array, ...]:
    mean = np.mean(x, axis=axes, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(variance + eps)
    y = (x - mean) * rstd
    if weight is not None:
        y = y * weight.reshape(shape)
    if bias is not None:
        y = y + bias.reshape(shape)
    return y, mean.squeeze(axes), variance.squeeze(axes), rstd.squeeze(axes)


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, axes: int, eps: float
) -> tuple[Array, ...]:
    trailing = tuple(range(x.ndim - axes, x.ndim))
    y, mean, _, rstd = normalized(x, trailing, x.shape[x.ndim - axes :], weight, bias, eps)
    return y, mean, rstd


def batch_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float
) -> tuple[Array, ...]:
    others = tuple(i for i in range(x.ndim) if i != 1)
    shape = tuple(n if i == 1 else 1 for i, n in enumerate(x.shape))
    return normalized(x, others, shape, weight, bias, eps)


def normalized_grad(
    grad: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    axes: tuple[int, ...],
    others: tuple[int, ...],
) -> tuple[Array, ...]:
    """Gradients of x, weight and bias: x is normalised over axes, the others sum the latter two."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = tuple(1 if i in others else n for i, n in enumerate(x.shape))
    z = (x - mean.reshape(kept)) * rstd.reshape(kept)
    h = grad if weight is None else grad * weight.reshape(shape)
    along = np.mean(h * z, axis=axes, keepdims=True)
    dx = rstd.reshape(kept) * (h - np.mean(h, axis=axes, keepdims=True) - z * along)
    return dx, np.sum(grad * z, axis=others), np.sum(grad, axis=others)


def layer_norm_grad(
    grad: Array, x: Array, mean: Array, rstd: Array, weight: Array | None = None, *, axes: int
) -> tuple[Array, ...]:
    leading = tuple(range(x.ndim - axes))
    trailing = tuple(range(x.ndim - axes, x.ndim))
    return normalized_grad(grad, x, mean, rstd, weight, trailing, leading)


def batch_norm_grad(
    grad: Array, x: Array, mean: Array, rstd: Array, weight: Array | None = None
) -> tuple[Array, ...]:
    others = tuple(i for i in range(x.ndim) if i != 1)
    return normalized_grad(grad, x, mean, rstd, weight, others, others)


def statistics(dtype: str) -> str:
    """Dtype of saved statistics."""
    return "float32" if dtype in HALVES else dtype


def layer(x: Any, axes: int, *affine: Any, eps: float = 1e-5, **more: Any) -> OpCase:
    kept = statistics(x.dtype)
    return OpCase(
        "layer_norm",
        (x, *affine),
        layer_norm,
        {"axes": axes, "eps": eps},
        dtype=(x.dtype, kept, kept),
        label=f"{x.text} {axes} {len(affine)} {eps}",
        **more,
    )


def batch(x: Any, *affine: Any, eps: float = 1e-5, **more: Any) -> OpCase:
    kept = statistics(x.dtype)
    return OpCase(
        "batch_norm",
        (x, *affine),
        batch_norm,
        {"eps": eps},
        dtype=(x.dtype, kept, kept, kept),
        label=f"{x.text} {len(affine)} {eps}",
        **more,
    )


def norm_grad(op: str, x: Any, statistic: tuple[int, ...], weight: Any, grad: Any = (0,)) -> OpCase:
    """Only linear in grad: its share can be checked with statistics that are not those of x."""
    is_layer = op == "layer_norm_grad"
    mean = normal(*statistic, dtype=statistics(x.dtype))
    rstd = positive(*statistic, dtype=statistics(x.dtype))
    inputs = (normal(*shape_of(x), dtype=x.dtype), x, mean, rstd, weight)
    attrs = {"axes": len(shape_of(x)) - len(statistic)} if is_layer else {}
    return OpCase(
        op,
        inputs,
        layer_norm_grad if is_layer else batch_norm_grad,
        attrs,
        grad=grad,
        label=f"{x.text} {weight and weight.text}",
        dtype=(x.dtype,) * 3,
    )


def shape_of(sample: Sample) -> tuple[int, ...]:
    return sample.make(np.random.default_rng(0)).shape


OFFSET = {"grad": False, "tolerance": 2e-5, "reason": "a mean of 100 costs float32 two digits"}

NORMALIZATION = [
    layer(normal(3, 5), 1, normal(5), normal(5)),
    layer(normal(3, 5), 1),
    layer(normal(3, 5), 1, normal(5), None),
    layer(normal(3, 5), 1, None, normal(5)),
    layer(normal(2, 3, 4), 2, normal(3, 4), normal(3, 4)),
    layer(normal(2, 3), 2, normal(2, 3), normal(2, 3)),
    layer(normal(6), 1, normal(6), normal(6), eps=0.1),
    layer(normal(0, 5), 1, normal(5), normal(5)),
    layer(normal(5, 131), 1, normal(131), normal(131), grad=False),
    layer(
        Sample(lambda rng: 100 + rng.standard_normal((3, 64)), "float32", "shifted"), 1, **OFFSET
    ),
    *[
        layer(normal(3, 16, dtype=d), 1, normal(16, dtype=d), normal(16, dtype=d), grad=False)
        for d in HALVES
    ],
    norm_grad("layer_norm_grad", normal(3, 5), (3,), normal(5)),
    norm_grad("layer_norm_grad", normal(3, 5), (3,), None),
    norm_grad("layer_norm_grad", normal(2, 3, 4), (2,), normal(3, 4)),
    norm_grad("layer_norm_grad", normal(5, 131), (5,), normal(131), grad=False),
    norm_grad(
        "layer_norm_grad",
        normal(3, 5, dtype="bfloat16"),
        (3,),
        normal(5, dtype="bfloat16"),
        grad=False,
    ),
    batch(normal(5, 3), normal(3), normal(3)),
    batch(normal(4, 3)),
    batch(normal(2, 3, 2, 2), normal(3), normal(3)),
    batch(normal(2, 3, 2, 2), normal(3), None),
    batch(normal(3, 2, 5), None, normal(2), eps=0.1),
    batch(normal(8, 17, 5, 5), normal(17), normal(17), grad=False),
    batch(normal(64, 33), normal(33), normal(33), grad=False),
    batch(normal(9, 33, 11, 7), normal(33), normal(33), grad=False),
    layer(normal(129, 257), 1, normal(257), normal(257), grad=False),
    batch(Sample(lambda rng: 100 + rng.standard_normal((32, 3)), "float32", "shifted"), **OFFSET),
    *[
        batch(normal(6, 3, dtype=d), normal(3, dtype=d), normal(3, dtype=d), grad=False)
        for d in HALVES
    ],
    norm_grad("batch_norm_grad", normal(5, 3), (3,), normal(3)),
    norm_grad("batch_norm_grad", normal(2, 3, 2, 2), (3,), normal(3)),
    norm_grad("batch_norm_grad", normal(2, 3, 2, 2), (3,), None),
    norm_grad("batch_norm_grad", normal(8, 17, 5, 5), (17,), normal(17), grad=False),
    norm_grad(
        "batch_norm_grad",
        normal(6, 3, dtype="float16"),
        (3,),
        normal(3, dtype="float16"),
        grad=False,
    ),
]


def log_sum_exp(x: Array) -> Array:
    high = np.max(x, axis=-1, keepdims=True)
    high = np.where(np.isfinite(high), high, 0)
    return (np.log(np.sum(np.exp(x - high), axis=-1, keepdims=True)) + high)[..., 0]


def distribution(
    logits: Array, target: Array, weight: Array | None, ignore_index: int, label_smoothing: float
) -> tuple[Array, Array, Array]:
    """Weighted target distribution, row weights, and which rows count."""
    rows, classes = logits.shape
    active = target != ignore_index
    safe = np.where(active, target, 0)
    per_class = np.ones(classes) if weight is None else weight
    row_weight = np.where(active, per_class[safe], 0.0)
    wanted = np.zeros((rows, classes))
    wanted[np.arange(rows), safe] = (1 - label_smoothing) * row_weight
    wanted += label_smoothing / classes * per_class
    return wanted * active[:, None], row_weight, active


def cross_entropy(
    logits: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> tuple[Array, Array]:
    wanted, row_weight, _ = distribution(logits, target, weight, ignore_index, label_smoothing)
    total = log_sum_exp(logits)
    terms = np.where(wanted == 0, 0.0, wanted * (logits - total[:, None]))
    loss = -np.sum(terms, axis=1)
    if reduction == "sum":
        loss = np.sum(loss)
    if reduction == "mean":
        loss = np.sum(loss) / np.sum(row_weight)
    return loss, total


def cross_entropy_grad(
    grad: Array,
    logits: Array,
    target: Array,
    total: Array,
    weight: Array | None = None,
    *,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Array:
    wanted, row_weight, active = distribution(logits, target, weight, ignore_index, label_smoothing)
    each = grad / np.sum(row_weight) if reduction == "mean" else grad
    share = np.exp(logits - total[:, None]) * np.sum(wanted, axis=1, keepdims=True) - wanted
    return np.where(active[:, None], np.reshape(each, (-1, 1)) * share, 0.0)


def loss_attrs(reduction: str, smoothing: float, ignore: int) -> dict[str, Any]:
    return {"ignore_index": ignore, "label_smoothing": smoothing, "reduction": reduction}


def loss(
    logits: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore: int = -100,
    grad: Any = (0,),
    **more: Any,
) -> OpCase:
    label = f"{logits.text} {target.dtype} {reduction} {smoothing} {ignore} {weight is not None}"
    return OpCase(
        "cross_entropy",
        (logits, target, weight),
        cross_entropy,
        loss_attrs(reduction, smoothing, ignore),
        grad=grad,
        label=label,
        dtype=(logits.dtype, statistics(logits.dtype)),
        **more,
    )


def loss_grad(
    logits: Any,
    target: Any,
    total: Any,
    weight: Any = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore: int = -100,
    **more: Any,
) -> OpCase:
    rows = shape_of(logits)[:1]
    grad = normal(*(rows if reduction == "none" else ()), dtype=logits.dtype)
    label = f"{logits.text} {reduction} {smoothing} {ignore} {weight is not None}"
    return OpCase(
        "cross_entropy_grad",
        (grad, logits, target, total, weight),
        cross_entropy_grad,
        loss_attrs(reduction, smoothing, ignore),
        grad=more.pop("grad", (0,)),
        label=label,
        **more,
    )


def classes(*shape: int, count: int, dtype: str = "int64") -> Sample:
    return integers(*shape, low=0, high=count, dtype=dtype)


SOME_IGNORED = values([1, -100, 3, 0, -100, 2], "int64")

LOSSES = [
    *[
        loss(normal(6, 5), classes(6, count=5), weight, reduction, smoothing)
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.1)
        for weight in (None, positive(5))
    ],
    *[
        loss(normal(6, 5), SOME_IGNORED, weight, reduction, smoothing)
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.2)
        for weight in (None, positive(5))
    ],
    loss(normal(6, 5), classes(6, count=5, dtype="int32"), ignore=2),
    loss(normal(4, 1), classes(4, count=1)),
    loss(normal(1, 3), classes(1, count=3), smoothing=1.0),
    loss(normal(0, 3), classes(0, count=3), reduction="sum"),
    loss(normal(0, 3), classes(0, count=3), reduction="none"),
    # Nothing to take a mean of: nan, and gradients of 0.
    loss(normal(2, 3), values([-100, -100], "int64"), grad=False),
    loss(normal(0, 3), classes(0, count=3), grad=False),
    loss(normal(257, 131), classes(257, count=131), positive(131), smoothing=0.1, grad=False),
    loss(normal(33, 131, scale=8.0), classes(33, count=131), grad=False),
    loss(
        values([[1e4, 0.0], [0.0, -1e4], [-INF, 1.0]]),
        values([0, 0, 1], "int64"),
        reduction="none",
        grad=False,
    ),
    *[loss(normal(6, 5, dtype=d), classes(6, count=5), grad=False) for d in HALVES],
    *[
        loss_grad(normal(6, 5), SOME_IGNORED, positive(6), weight, reduction, smoothing)
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.2)
        for weight in (None, positive(5))
    ],
    loss_grad(normal(2, 3), values([-100, -100], "int64"), positive(2), grad=False),
    loss_grad(normal(33, 131), classes(33, count=131), positive(33), grad=False),
    loss_grad(normal(6, 5, dtype="float16"), SOME_IGNORED, positive(6), grad=False),
]


def scores_of(q: Array, k: Array, mask: Array | None, causal: bool, scale: float) -> Array:
    scores = scale * (q @ np.swapaxes(k, -1, -2))
    if mask is not None:
        scores = np.where(mask, scores, -INF) if mask.dtype == bool else scores + mask
    if causal:
        allowed = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None]
        scores = np.where(allowed, scores, -INF)
    return scores


def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, causal: bool, scale: float
) -> tuple[Array, Array]:
    scores = scores_of(q, k, mask, causal, scale)
    total = log_sum_exp(scores)
    weights = np.where(np.isneginf(scores), 0.0, np.exp(scores - total[..., None]))
    return weights @ v, total


def attention_grad(
    grad: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    total: Array,
    mask: Array | None = None,
    *,
    causal: bool,
    scale: float,
) -> tuple[Array, ...]:
    scores = scores_of(q, k, mask, causal, scale)
    weights = np.where(np.isneginf(scores), 0.0, np.exp(scores - total[..., None]))
    rows = np.sum(grad * out, axis=-1, keepdims=True)
    d_scores = scale * weights * (grad @ np.swapaxes(v, -1, -2) - rows)
    return (d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad)


def attending(
    lead: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    mask: Any = None,
    causal: bool = False,
    dtype: str = "float32",
    **more: Any,
) -> list[OpCase]:
    """Attention of T queries to S keys of D features, values of E, and its gradient."""
    t, s, d, e = sizes
    attrs = {"causal": causal, "scale": d**-0.5}
    q, k, v = (normal(*lead, *n, dtype=dtype) for n in ((t, d), (s, d), (s, e)))
    label = f"{lead} {sizes} {causal} {mask and mask.text} {dtype}"
    grad = more.pop("grad", (0, 1, 2))
    total = positive(*lead, t, dtype=statistics(dtype))
    return [
        OpCase(
            "attention",
            (q, k, v, mask),
            attention,
            attrs,
            grad=grad,
            label=label,
            dtype=(dtype, statistics(dtype)),
            **more,
        ),
        OpCase(
            "attention_grad",
            (
                normal(*lead, t, e, dtype=dtype),
                q,
                k,
                v,
                normal(*lead, t, e, dtype=dtype),
                total,
                mask,
            ),
            attention_grad,
            attrs,
            grad=grad and (0,),
            label=label,
            dtype=(dtype,) * 3,
            **more,
        ),
    ]


# Query 1 may attend to nothing.
ONE_ROW_MASKED = values([[True, False, True, True], [False] * 4, [True] * 4], "bool")

ATTENTION = [
    *attending((2,), (3, 4, 5, 2)),
    *attending((), (3, 3, 2, 2), causal=True),
    *attending((2, 2), (4, 4, 3, 3), causal=True),
    *attending((2,), (2, 4, 3, 3), causal=True),
    *attending((2,), (4, 2, 3, 3), causal=True),
    *attending((2, 1), (3, 4, 2, 3), ONE_ROW_MASKED),
    *attending((2,), (3, 4, 2, 3), normal(3, 4)),
    *attending((2, 2), (3, 4, 2, 3), normal(2, 1, 1, 4)),
    *attending((), (3, 4, 2, 3), ONE_ROW_MASKED, causal=True),
    *attending((1,), (1, 1, 1, 1)),
    *attending((0,), (3, 4, 2, 3)),
    *attending((2,), (67, 70, 16, 16), causal=True, grad=()),
    *attending((1, 2), (33, 130, 9, 17), grad=()),
    *attending((3, 2), (65, 129, 16, 16), normal(65, 129), grad=()),
    *attending(
        (2,),
        (5, 5, 8, 8),
        dtype="bfloat16",
        grad=(),
        tolerance=2e-2,
        reason="the gradient rounds two products to bfloat16",
    ),
    *attending(
        (2,),
        (5, 5, 8, 8),
        dtype="float16",
        grad=(),
        tolerance=2e-3,
        reason="the gradient rounds two products to float16",
    ),
]

CASES = [*NORMALIZATION, *LOSSES, *ATTENTION]
