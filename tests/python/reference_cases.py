"""Functions that are compared with values recorded from PyTorch, written once for both libraries.

The functions take the library's module (`torch` or `lucid`) or a part of it, and use only names
that both have. tools/record_references.py runs them with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cases.case import INF, Sample, apart, bools, integers, normal, positive, uniform, values
from reference_arranging import ARRANGING
from reference_form import FunctionCase, top


def case(name: str, run: Callable[..., Any], *inputs: Sample, coarse: str = "") -> FunctionCase:
    return FunctionCase(name, run, inputs, coarse=coarse)


SINGLE_SIXTH = "PyTorch's gradient takes 1/6 in float32"


IMAGE = normal(2, 4, 5, 6)
KERNEL = normal(6, 4, 3, 3)
BIAS = normal(6)

CONVOLUTIONS = [
    case("conv2d", lambda F, x, w, b: F.conv2d(x, w, b), IMAGE, KERNEL, BIAS),
    case("conv2d stride", lambda F, x, w: F.conv2d(x, w, stride=2), IMAGE, KERNEL),
    case("conv2d strides", lambda F, x, w: F.conv2d(x, w, stride=(1, 2)), IMAGE, KERNEL),
    case("conv2d padding", lambda F, x, w: F.conv2d(x, w, padding=(2, 1)), IMAGE, KERNEL),
    case("conv2d dilation", lambda F, x, w: F.conv2d(x, w, dilation=2), IMAGE, KERNEL),
    case(
        "conv2d groups",
        lambda F, x, w, b: F.conv2d(x, w, b, padding=1, groups=2),
        IMAGE,
        normal(6, 2, 3, 3),
        BIAS,
    ),
    case("conv2d depthwise", lambda F, x, w: F.conv2d(x, w, groups=4), IMAGE, normal(8, 1, 3, 3)),
    case("conv2d same", lambda F, x, w: F.conv2d(x, w, padding="same"), IMAGE, KERNEL),
    case(
        "conv2d same even",
        lambda F, x, w: F.conv2d(x, w, padding="same", dilation=(1, 2)),
        IMAGE,
        normal(3, 4, 2, 4),
    ),
    case("conv2d valid", lambda F, x, w: F.conv2d(x, w, padding="valid"), IMAGE, KERNEL),
    case("conv2d one image", lambda F, x, w: F.conv2d(x, w), normal(4, 5, 6), KERNEL),
    case(
        "conv2d all",
        lambda F, x, w, b: F.conv2d(x, w, b, 2, 3, 2, 2),
        normal(2, 4, 7, 8),
        normal(6, 2, 3, 2),
        BIAS,
    ),
]

PLANES = apart(2, 3, 6, 7)

POOLING = [
    case("max_pool2d", lambda F, x: F.max_pool2d(x, 2), PLANES),
    case("max_pool2d stride", lambda F, x: F.max_pool2d(x, 3, stride=2), PLANES),
    case("max_pool2d padding", lambda F, x: F.max_pool2d(x, (3, 2), 2, (1, 0)), PLANES),
    case("max_pool2d dilation", lambda F, x: F.max_pool2d(x, 2, 1, 1, 2), PLANES),
    case("max_pool2d ceil", lambda F, x: F.max_pool2d(x, 2, ceil_mode=True), apart(1, 2, 5, 7)),
    case(
        "max_pool2d ties",
        lambda F, x: F.max_pool2d(x, 2, 1),
        integers(1, 2, 5, 5, high=-6, dtype="float32"),
    ),
    case("avg_pool2d", lambda F, x: F.avg_pool2d(x, 2), PLANES),
    case("avg_pool2d padding", lambda F, x: F.avg_pool2d(x, 3, 2, 1), PLANES),
    case(
        "avg_pool2d inside",
        lambda F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        PLANES,
    ),
    case("avg_pool2d ceil", lambda F, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), PLANES),
    case(
        "avg_pool2d ceil odd", lambda F, x: F.avg_pool2d(x, 2, ceil_mode=True), normal(1, 2, 5, 7)
    ),
    case("avg_pool2d divisor", lambda F, x: F.avg_pool2d(x, 2, 1, divisor_override=3), PLANES),
    case("adaptive_avg_pool2d", lambda F, x: F.adaptive_avg_pool2d(x, 1), PLANES),
    case("adaptive_avg_pool2d odd", lambda F, x: F.adaptive_avg_pool2d(x, (4, 3)), PLANES),
]


def batch_norm(F: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(x, mean.detach(), variance.detach(), weight, bias, False, 0.1, 1e-3)


NORMALIZATION = [
    case(
        "layer_norm",
        lambda F, x, w, b: F.layer_norm(x, (4, 5), w, b),
        normal(3, 4, 5),
        normal(4, 5),
        normal(4, 5),
    ),
    case("layer_norm plain", lambda F, x: F.layer_norm(x, (5,), eps=0.1), normal(3, 4, 5)),
    case(
        "batch_norm evaluation",
        batch_norm,
        normal(3, 2, 4),
        normal(2),
        normal(2),
        normal(2),
        positive(2),
    ),
    case(
        "batch_norm training",
        lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True),
        normal(3, 2, 4),
        normal(2),
        normal(2),
    ),
    case(
        "group_norm",
        lambda F, x, w, b: F.group_norm(x, 2, w, b),
        normal(3, 4, 5),
        normal(4),
        normal(4),
    ),
    case("normalize", lambda F, x: F.normalize(x, dim=1), normal(3, 5)),
    case("rms_norm", lambda F, x, w: F.rms_norm(x, (5,), w, 1e-5), normal(3, 5), normal(5)),
]

LOGITS = normal(6, 5)
CLASSES = integers(6, low=0, high=5)
SOME_IGNORED = values([1, -100, 3, 0, -100, 2], "int64")

CROSS_ENTROPY = [
    case(
        f"cross_entropy {reduction} {smoothing} {is_weighted} {is_ignoring}",
        lambda F, x, t, w, r=reduction, s=smoothing, use=is_weighted: F.cross_entropy(
            x, t, w.detach() if use else None, reduction=r, label_smoothing=s
        ),
        LOGITS,
        SOME_IGNORED if is_ignoring else CLASSES,
        positive(5),
    )
    for reduction in ("mean", "sum", "none")
    for smoothing in (0.0, 0.1)
    for is_weighted in (False, True)
    for is_ignoring in (False, True)
]

LOSSES = [
    *CROSS_ENTROPY,
    case(
        "cross_entropy ignore_index",
        lambda F, x, t: F.cross_entropy(x, t, ignore_index=2),
        LOGITS,
        CLASSES,
    ),
    case(
        "cross_entropy planes",
        lambda F, x, t: F.cross_entropy(x, t),
        normal(2, 3, 2, 2),
        integers(2, 2, 2, low=0, high=3),
    ),
    case(
        "cross_entropy probabilities",
        lambda F, x, t: F.cross_entropy(x, t.detach(), label_smoothing=0.1),
        LOGITS,
        uniform(6, 5, low=0.0, high=0.4),
    ),
    case("nll_loss", lambda F, x, t: F.nll_loss(x, t), LOGITS, SOME_IGNORED),
    *[
        case(
            f"{name} {r}",
            lambda F, x, y, n=name, r=r: getattr(F, n)(x, y, reduction=r),
            normal(4, 5),
            normal(4, 5),
        )
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss")
        for r in ("mean", "sum", "none")
    ],
    case(
        "soft_margin_loss", lambda F, x, y: F.soft_margin_loss(x, y.detach()), LOGITS, normal(6, 5)
    ),
    case(
        "smooth_l1_loss beta",
        lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.3),
        LOGITS,
        normal(6, 5),
    ),
    case("huber_loss delta", lambda F, x, y: F.huber_loss(x, y, delta=0.3), LOGITS, normal(6, 5)),
    case(
        "binary_cross_entropy",
        lambda F, x, y: F.binary_cross_entropy(x, y.detach()),
        uniform(4, 5, low=0.1, high=0.9),
        uniform(4, 5, low=0.0, high=1.0),
    ),
    case(
        "binary_cross_entropy_with_logits",
        lambda F, x, y, p: F.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=p.detach()),
        normal(4, 5, scale=8.0),
        uniform(4, 5, low=0.0, high=1.0),
        positive(5),
    ),
    case(
        "kl_div",
        lambda F, x, y: F.kl_div(x, y, reduction="batchmean"),
        normal(4, 5),
        uniform(4, 5, low=0.1, high=0.4),
    ),
    case(
        "gaussian_nll_loss",
        lambda F, x, y, v: F.gaussian_nll_loss(x, y, v),
        normal(4, 5),
        normal(4, 5),
        positive(4, 5),
    ),
    case(
        "cosine_embedding_loss",
        lambda F, x, y, t: F.cosine_embedding_loss(x, y, t),
        normal(4, 5),
        normal(4, 5),
        values([1, -1, -1, 1], "int64"),
        coarse="PyTorch adds 1e-12 to the squared lengths",
    ),
    case(
        "cosine_similarity",
        lambda F, x, y: F.cosine_similarity(x, y, dim=1),
        normal(4, 5),
        normal(4, 5),
    ),
    case(
        "margin_ranking_loss",
        lambda F, x, y, t: F.margin_ranking_loss(x, y, t, margin=0.3),
        normal(6),
        normal(6),
        values([1, -1, -1, 1, 1, -1], "int64"),
    ),
    case(
        "triplet_margin_loss",
        lambda F, a, p, n: F.triplet_margin_loss(a, p, n),
        normal(4, 5),
        normal(4, 5),
        normal(4, 5),
    ),
    case(
        "hinge_embedding_loss",
        lambda F, x, t: F.hinge_embedding_loss(x, t),
        normal(6),
        values([1, -1, -1, 1, 1, -1], "int64"),
    ),
]

WIDE = values([*[i / 4 for i in range(-25, 26)], -60.0, 60.0, -1e3, 1e3])

ACTIVATIONS = [
    *[
        case(name, lambda F, x, n=name: getattr(F, n)(x), WIDE)
        for name in (
            "relu",
            "leaky_relu",
            "gelu",
            "silu",
            "tanh",
            "sigmoid",
            "softplus",
            "logsigmoid",
            "elu",
            "selu",
            "celu",
            "hardtanh",
            "relu6",
            "hardswish",
            "mish",
            "softsign",
            "tanhshrink",
            "hardshrink",
            "softshrink",
        )
    ],
    case("hardsigmoid", lambda F, x: F.hardsigmoid(x), WIDE, coarse=SINGLE_SIXTH),
    case("gelu tanh", lambda F, x: F.gelu(x, approximate="tanh"), WIDE),
    case("softplus beta", lambda F, x: F.softplus(x, beta=2.0, threshold=3.0), WIDE),
    case("leaky_relu slope", lambda F, x: F.leaky_relu(x, 0.2), WIDE),
    case("prelu", lambda F, x, w: F.prelu(x, w), normal(3, 4, 5), normal(4)),
    case("glu", lambda F, x: F.glu(x, dim=1), normal(3, 6)),
    case("softmax", lambda F, x: F.softmax(x, dim=-1), normal(3, 7, scale=5.0)),
    case("softmax first", lambda F, x: F.softmax(x, dim=0), normal(3, 7)),
    case("softmin", lambda F, x: F.softmin(x, dim=1), normal(3, 7)),
    case("log_softmax", lambda F, x: F.log_softmax(x, dim=-1), normal(3, 7, scale=5.0)),
    case("log_softmax middle", lambda F, x: F.log_softmax(x, dim=1), normal(2, 3, 4)),
]

QKV = (normal(2, 3, 4, 5), normal(2, 3, 6, 5), normal(2, 3, 6, 4))
SQUARE = (normal(2, 4, 5), normal(2, 4, 5), normal(2, 4, 3))
# The second query may attend to nothing.
ROW_MASKED = values([[True, False] * 3, [False] * 6, [True] * 6, [False, True] * 3], "bool")


def attention(F: Any, q: Any, k: Any, v: Any, mask: Any = None, **more: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **more)


ATTENTION = [
    case("attention", attention, *QKV),
    case("attention causal", lambda F, *a: attention(F, *a, is_causal=True), *SQUARE),
    case("attention causal wide", lambda F, *a: attention(F, *a, is_causal=True), *QKV),
    case("attention scale", lambda F, *a: attention(F, *a, scale=0.7), *QKV),
    case("attention mask", attention, *QKV, bools(4, 6)),
    case("attention masked row", attention, *QKV, ROW_MASKED),
    case(
        "attention added mask",
        lambda F, *a: attention(F, *a[:3], a[3].detach()),
        *QKV,
        normal(2, 1, 4, 6),
    ),
    case("attention mask of heads", attention, *QKV, bools(2, 3, 4, 6)),
]

OTHERS = [
    case("linear", lambda F, x, w, b: F.linear(x, w, b), normal(2, 3, 4), normal(5, 4), normal(5)),
    case(
        "bilinear",
        lambda F, x, y, w: F.bilinear(x, y, w),
        normal(3, 4),
        normal(3, 5),
        normal(2, 4, 5),
    ),
    case(
        "embedding",
        lambda F, w, i: F.embedding(i, w),
        normal(7, 3),
        values([[0, 6, 2], [2, 2, 5]], "int64"),
    ),
    case(
        "embedding padding",
        lambda F, w, i: F.embedding(i, w, padding_idx=2),
        normal(7, 3),
        values([[0, 6, 2], [2, 2, 5]], "int32"),
    ),
    case("pad", lambda F, x: F.pad(x, (1, 2, 0, 1), value=0.5), normal(2, 3, 4)),
    case("pad reflect", lambda F, x: F.pad(x, (1, 2), mode="reflect"), normal(2, 3, 4)),
    case("pad replicate", lambda F, x: F.pad(x, (1, 2), mode="replicate"), normal(2, 3, 4)),
]


# Where a function has no derivative, PyTorch's choice is ours; signs of zero and infinities.
KINKS = values([-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0])
TIES_OF_KINKS = values([-3.0, 0.0, 0.5, 0.0, 0.0, 0.5, 2.0, 3.0, 5.0])
TIED = values([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])

AT_KINKS = [
    *[
        top(f"{name} at kinks", lambda t, x, n=name: getattr(t, n)(x), KINKS)
        for name in ("abs", "sign", "relu", "floor", "ceil", "round", "trunc", "square")
    ],
    *[
        top(f"{name} at kinks", lambda t, x, n=name: getattr(t.nn.functional, n)(x), KINKS)
        for name in (
            "leaky_relu",
            "elu",
            "hardtanh",
            "softshrink",
            "hardshrink",
            "relu6",
            "hardswish",
            "softsign",
        )
    ],
    case("hardsigmoid at kinks", lambda F, x: F.hardsigmoid(x), KINKS, coarse=SINGLE_SIXTH),
    top("sqrt at 0", lambda t, x: t.sqrt(x), values([0.0, 4.0])),
    top("clamp at bounds", lambda t, x: t.clamp(x, -1.0, 1.0), KINKS),
    top(
        "clamp at tensor bounds",
        lambda t, x, a, b: t.clamp(x, a, b),
        KINKS,
        values(-1.0),
        values(1.0),
    ),
    top("maximum of ties", lambda t, x, y: t.maximum(x, y), KINKS, TIES_OF_KINKS),
    top("minimum of ties", lambda t, x, y: t.minimum(x, y), KINKS, TIES_OF_KINKS),
    top("amax of ties", lambda t, x: t.amax(x, dim=1), TIED),
    top("amin of ties", lambda t, x: t.amin(x, dim=(0, 1)), TIED),
    top("max of ties", lambda t, x: t.max(x, dim=1)[0], TIED),
    top("max of all ties", lambda t, x: t.max(x), TIED),
    top("median", lambda t, x: t.median(x, dim=1)[0], apart(3, 6)),
    top("sort of ties", lambda t, x: t.sort(x, dim=1, stable=True)[0], TIED),
    top("prod of zeros", lambda t, x: t.prod(x, dim=1), values([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]])),
    top("pow at 0", lambda t, x: t.pow(x, 2.0), KINKS),
    top(
        "pow of exponents",
        lambda t, x, y: t.pow(x, y),
        values([0.0, 0.0, 2.0, 3.0]),
        values([0.0, 2.0, 0.0, -1.0]),
    ),
    top("norm of zeros", lambda t, x: t.norm(x), values([0.0, 0.0])),
    top("var", lambda t, x: t.var(x, dim=1), normal(3, 5)),
    top("std", lambda t, x: t.std(x, dim=0, unbiased=False), normal(3, 5)),
    top("logsumexp", lambda t, x: t.logsumexp(x, dim=1), normal(3, 5, scale=30.0)),
    top("cumprod", lambda t, x: t.cumprod(x, dim=1), positive(3, 5)),
    top("where at nan", lambda t, x: t.where(x > 0, t.sqrt(t.abs(x)), x), KINKS),
    top(
        "remainder",
        lambda t, x, y: t.remainder(x, y),
        apart(3, 5),
        values([2.0, -3.0, 1.25, -0.75, 7.0]),
    ),
    top(
        "floor_divide",
        lambda t, x, y: t.floor_divide(x.detach(), y.detach()),
        apart(3, 5),
        values([2.0, -3.0, 1.25, -0.75, 7.0]),
    ),
    top("division by 0", lambda t, x: x / 0.0, values([1.0, -1.0])),
    top(
        "nan_to_num",
        lambda t, x: t.nan_to_num(x, 0.5, 2.0, -3.0),
        values([float("nan"), INF, -INF, 1.5]),
    ),
    top("lerp", lambda t, x, y: t.lerp(x, y, 0.3), normal(3), normal(3)),
    top("einsum", lambda t, x, y: t.einsum("bij,bjk->ik", x, y), normal(2, 3, 4), normal(2, 4, 5)),
    top(
        "index_select",
        lambda t, x, i: t.index_select(x, 1, i),
        normal(3, 5),
        values([4, 0, 0, 2], "int64"),
    ),
    top(
        "gather",
        lambda t, x, i: t.gather(x, 1, i),
        normal(2, 5),
        values([[4, 0, 0], [1, 1, 3]], "int64"),
    ),
    top("tril", lambda t, x: t.tril(x, 1), normal(4, 5)),
    top("roll", lambda t, x: t.roll(x, 2, 1), normal(3, 5)),
    top("topk", lambda t, x: t.topk(x, 3, dim=1)[0], apart(3, 7)),
]

SAMPLED = normal(2, 3, 4, 5)
PLACES = uniform(2, 3, 3, 2, low=-2.6, high=2.6)
VOLUME = normal(2, 2, 3, 4, 5)
PLACES_IN_VOLUME = uniform(2, 2, 3, 3, 3, low=-1.6, high=1.6)


def sampled(mode: str, padding: str, align: bool, image: Sample, places: Sample) -> FunctionCase:
    ends = "aligned" if align else "edges"
    return case(
        f"grid_sample {mode} {padding} {ends} {'3d' if image is VOLUME else '2d'}",
        lambda F, x, g: F.grid_sample(x, g, mode, padding, align),
        image,
        places,
    )


GRIDS = [
    *(
        sampled(mode, padding, align, SAMPLED, PLACES)
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for align in (True, False)
    ),
    *(
        sampled(mode, padding, align, VOLUME, PLACES_IN_VOLUME)
        for mode in ("bilinear", "nearest")
        for padding, align in (("zeros", False), ("border", True), ("reflection", False))
    ),
    *(
        case(
            f"affine_grid {len(size) - 2}d {'aligned' if align else 'edges'}",
            lambda F, t, size=size, align=align: F.affine_grid(t, size, align),
            normal(2, len(size) - 2, len(size) - 1),
        )
        for size in ((2, 3, 4, 5), (2, 1, 3, 4, 2))
        for align in (True, False)
    ),
]

FUNCTIONS = [
    *GRIDS,
    *CONVOLUTIONS,
    *POOLING,
    *NORMALIZATION,
    *LOSSES,
    *ACTIVATIONS,
    *ATTENTION,
    *OTHERS,
    *AT_KINKS,
    *ARRANGING,
]
