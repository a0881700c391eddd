"""The dtype of every function's result under autocast: PyTorch 2.13's lists, written out by hand.

A row gives the call, on the inputs a (4, 4) and b (4, 4) and others made of them, and the dtype for
float32 inputs, for inputs of the low dtype, and for a in float32 beside b in the low dtype. LOW
stands for the mode's dtype, None for a call that is not made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.nn.functional.recurrent import gru_layer, lstm_layer, rnn_layer

LOW = "low"
WIDE = "float32"


@dataclass(frozen=True)
class Row:
    """A call and the dtypes of its result."""

    name: str
    call: Callable[[Tensor, Tensor], Any]
    wide: str
    low: str
    mixed: str | None


def positive(x: Tensor) -> Tensor:
    """Numbers over 1 in the dtype of x."""
    return x.abs() + 1.5


def rows(names: str, call: Callable[[str], Any], *dtypes: str | None) -> list[Row]:
    wide, low, mixed = dtypes
    assert wide is not None and low is not None
    return [Row(name, call(name), wide, low, mixed) for name in names.split()]


def tall(x: Tensor, count: int) -> Tensor:
    """x so many times, one below the other."""
    return lucid.cat([x] * count)


def classes(x: Tensor) -> Tensor:
    return lucid.arange(4, device=x.device)


LOW_PRECISION = [
    Row("affine_grid", lambda a, b: F.affine_grid(a[None, :2, :3], (1, 1, 2, 3)), LOW, LOW, None),
    *rows("matmul mm", lambda n: lambda a, b: getattr(lucid, n)(a, b), LOW, LOW, LOW),
    Row("operator @", lambda a, b: a @ b, LOW, LOW, LOW),
    Row("vectors @", lambda a, b: a[0] @ b[0], LOW, LOW, LOW),
    Row("mv", lambda a, b: lucid.mv(a, b[0]), LOW, LOW, LOW),
    Row("bmm", lambda a, b: lucid.bmm(a[None], b[None]), LOW, LOW, LOW),
    Row("addmm", lambda a, b: lucid.addmm(a, a, b), LOW, LOW, LOW),
    Row("addmv", lambda a, b: lucid.addmv(a[0], a, b[0]), LOW, LOW, LOW),
    Row("baddbmm", lambda a, b: lucid.baddbmm(a, a[None], b[None]), LOW, LOW, LOW),
    Row("einsum", lambda a, b: lucid.einsum("ij,jk->ik", a, b), LOW, LOW, LOW),
    Row("einsum sum", lambda a, b: lucid.einsum("ij,kl->ik", a, b), LOW, LOW, LOW),
    Row("linear", lambda a, b: F.linear(a, b, b[0]), LOW, LOW, LOW),
    Row("linear of one", lambda a, b: F.linear(a, b[0], b[0, 0]), LOW, LOW, LOW),
    Row("conv1d", lambda a, b: F.conv1d(a[None], b[:, :, None], a[0]), LOW, LOW, LOW),
    Row("conv2d", lambda a, b: F.conv2d(a[None, None], b[None, None]), LOW, LOW, LOW),
    Row(
        "transposed",
        lambda a, b: F.conv_transpose2d(a[None, None], b[None, None], a[0, :1]),
        LOW,
        LOW,
        LOW,
    ),
    Row("prelu", lambda a, b: F.prelu(a, b[0]), LOW, LOW, LOW),
    Row("attention", lambda a, b: F.scaled_dot_product_attention(a, b, b), LOW, LOW, LOW),
    Row("rnn_layer", lambda a, b: rnn_layer(a[None], b, a, b, a[0])[0], LOW, LOW, LOW),
    Row("gru_layer", lambda a, b: gru_layer(a[None], b, tall(a, 3), tall(b, 3))[1], LOW, LOW, LOW),
    Row(
        "lstm_layer", lambda a, b: lstm_layer(a[None], b, a, tall(a, 4), tall(b, 4))[2], *[LOW] * 3
    ),
    Row("attention mask", lambda a, b: F.scaled_dot_product_attention(a, a, a, b), LOW, LOW, LOW),
]

FLOAT32 = [
    *rows(
        "reflect replicate",
        lambda n: lambda a, b: F.pad(a, (1, 1), mode=n),
        WIDE,
        WIDE,
        None,
    ),
    Row(
        "grid_sample",
        lambda a, b: F.grid_sample(a[None, None], b[None, :, :2, None].expand(1, 4, 2, 2)),
        WIDE,
        WIDE,
        WIDE,
    ),
    *rows("exp expm1 sinh cosh tan", lambda n: lambda a, b: getattr(a, n)(), WIDE, WIDE, None),
    *rows("acos asin", lambda n: lambda a, b: getattr(a * 0.1, n)(), WIDE, WIDE, None),
    *rows(
        "log log10 log1p log2 reciprocal rsqrt",
        lambda n: lambda a, b: getattr(positive(a), n)(),
        WIDE,
        WIDE,
        None,
    ),
    *rows("sum prod norm", lambda n: lambda a, b: getattr(a, n)(), WIDE, WIDE, None),
    *rows(
        "cumsum cumprod softmax log_softmax logsumexp",
        lambda n: lambda a, b: getattr(lucid, n)(a, 1),
        WIDE,
        WIDE,
        None,
    ),
    *rows(
        "softmax log_softmax softmin",
        lambda n: lambda a, b: getattr(F, n)(a, dim=1),
        WIDE,
        WIDE,
        None,
    ),
    *rows(
        "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss hinge_embedding_loss"
        " binary_cross_entropy_with_logits soft_margin_loss cosine_similarity pairwise_distance",
        lambda n: lambda a, b: getattr(F, n)(a, b),
        WIDE,
        WIDE,
        WIDE,
    ),
    Row("pow 2", lambda a, b: a**2, WIDE, WIDE, None),
    Row("pow 0.5", lambda a, b: positive(a) ** 0.5, WIDE, WIDE, None),
    Row("pow of tensors", lambda a, b: positive(a) ** b, WIDE, WIDE, WIDE),
    Row("2 ** x", lambda a, b: 2.0**a, WIDE, WIDE, None),
    Row("trace", lambda a, b: lucid.trace(a), WIDE, WIDE, None),
    Row("softplus", lambda a, b: F.softplus(a), WIDE, WIDE, None),
    Row("layer_norm", lambda a, b: F.layer_norm(a, (4,), b[0], b[1]), WIDE, WIDE, WIDE),
    Row("group_norm", lambda a, b: F.group_norm(a, 2, b[0], b[1]), WIDE, WIDE, WIDE),
    Row("rms_norm", lambda a, b: F.rms_norm(a, (4,), b[0]), WIDE, WIDE, WIDE),
    Row("cross_entropy", lambda a, b: F.cross_entropy(a, classes(a), b[0]), WIDE, WIDE, WIDE),
    Row("cross_entropy, probabilities", lambda a, b: F.cross_entropy(a, b.abs()), WIDE, WIDE, WIDE),
    Row("nll_loss", lambda a, b: F.nll_loss(a, classes(a)), WIDE, WIDE, None),
    Row(
        "binary_cross_entropy",
        lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
        WIDE,
        WIDE,
        WIDE,
    ),
    Row(
        "margin_ranking_loss", lambda a, b: F.margin_ranking_loss(a, b, a.sign()), WIDE, WIDE, WIDE
    ),
    Row("triplet_margin_loss", lambda a, b: F.triplet_margin_loss(a, b, b), WIDE, WIDE, WIDE),
    Row(
        "cosine_embedding_loss",
        lambda a, b: F.cosine_embedding_loss(a, b, lucid.ones(4, dtype=lucid.int64)),
        WIDE,
        WIDE,
        WIDE,
    ),
]

WIDEST = [
    *rows("addcmul addcdiv", lambda n: lambda a, b: getattr(lucid, n)(b, a, b), WIDE, LOW, WIDE),
    *rows("atan2 dot", lambda n: lambda a, b: getattr(lucid, n)(a[0], b[0]), WIDE, LOW, WIDE),
    *rows("cat stack", lambda n: lambda a, b: getattr(lucid, n)([a, b]), WIDE, LOW, WIDE),
    *rows(
        "add sub mul div maximum", lambda n: lambda a, b: getattr(lucid, n)(a, b), WIDE, LOW, WIDE
    ),
    Row("where", lambda a, b: lucid.where(a > 0, a, b), WIDE, LOW, WIDE),
    Row("tensordot", lambda a, b: lucid.tensordot(a, b, 1), WIDE, LOW, WIDE),
    Row("bilinear", lambda a, b: F.bilinear(a, b, b[None]), WIDE, LOW, WIDE),
    Row("index_copy", lambda a, b: lucid.index_copy(b, 0, classes(a), a), WIDE, LOW, WIDE),
    Row(
        "scatter_add",
        lambda a, b: lucid.scatter_add(b, 0, lucid.zeros(4, 4).long(), a),
        WIDE,
        LOW,
        WIDE,
    ),
]

ALONE = [
    *rows(
        "neg abs sqrt square sin tanh atan erf sigmoid relu floor clone mean var std amax"
        " acosh asinh",
        lambda n: lambda a, b: getattr(lucid, n)(positive(a)),
        WIDE,
        LOW,
        None,
    ),
    *rows(
        "gelu silu elu selu celu mish hardtanh hardswish logsigmoid softsign tanhshrink leaky_relu",
        lambda n: lambda a, b: getattr(F, n)(a),
        WIDE,
        LOW,
        None,
    ),
    Row("logaddexp", lambda a, b: lucid.logaddexp(a, b), WIDE, LOW, WIDE),
    Row("xlogy", lambda a, b: lucid.xlogy(a, positive(b)), WIDE, LOW, WIDE),
    Row("batch_norm", lambda a, b: F.batch_norm(a, None, None, b[0], b[1], True), WIDE, LOW, None),
    Row(
        "batch_norm, half input",
        lambda a, b: F.batch_norm(b, None, None, a[0], a[1], True),
        WIDE,
        LOW,
        LOW,
    ),
    Row(
        "instance_norm, half input",
        lambda a, b: F.instance_norm(b[None], None, None, a[0], a[1]),
        WIDE,
        LOW,
        LOW,
    ),
    Row("max_pool", lambda a, b: F.max_pool2d(a[None], 2), WIDE, LOW, None),
    Row("avg_pool", lambda a, b: F.avg_pool2d(a[None], 2), WIDE, LOW, None),
    Row("embedding", lambda a, b: F.embedding(classes(a), a), WIDE, LOW, None),
    Row("reshape", lambda a, b: a.reshape(16), WIDE, LOW, None),
    Row("exp_", lambda a, b: a.clone().exp_(), WIDE, LOW, None),
    Row("pow_", lambda a, b: a.clone().pow_(2), WIDE, LOW, None),
    Row("addcmul_", lambda a, b: a.clone().addcmul_(b, b), WIDE, LOW, WIDE),
    Row("sum dtype", lambda a, b: a.sum(dtype=lucid.float16), "float16", "float16", None),
    Row(
        "softmax dtype",
        lambda a, b: F.softmax(a, 1, dtype=lucid.float16),
        "float16",
        "float16",
        None,
    ),
    Row("cumsum dtype", lambda a, b: a.cumsum(0, dtype=lucid.float16), "float16", "float16", None),
]

ROWS = [*LOW_PRECISION, *FLOAT32, *WIDEST, *ALONE]
