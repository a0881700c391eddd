"""What the operations of networks refuse: products, windows, normalisation, losses, attention."""

from __future__ import annotations

from typing import Any

import lucid

from .case import ErrorCase, emit, f32, f64, i64, truth


def convolve(x: Any, w: Any, bias: Any = None, **given: Any) -> Any:
    attrs = {"stride": [1], "padding_low": [0], "padding_high": [0], "dilation": [1], "groups": 1}
    return emit("convolution", x, w, bias, **{**attrs, **given})


def max_pool(x: Any, **given: Any) -> Any:
    attrs = {"kernel": [2], "stride": [2], "padding": [0], "dilation": [1], "ceil_mode": False}
    return emit("max_pool", x, **{**attrs, **given})


def avg_pool_grad(grad: Any, **given: Any) -> Any:
    attrs = {"input_shape": [1, 1, 4], "kernel": [2], "stride": [2], "padding": [0]}
    rest = {"ceil_mode": False, "count_include_pad": True, "divisor": 0}
    return emit("avg_pool_grad", grad, **{**attrs, **rest, **given})


def cross_entropy(logits: Any, target: Any, weight: Any = None, **given: Any) -> Any:
    attrs = {"ignore_index": -100, "label_smoothing": 0.0, "reduction": "mean"}
    return emit("cross_entropy", logits, target, weight, **{**attrs, **given})


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return emit("attention", q, k, v, mask, causal=False, scale=1.0)


def product(a: Any, b: Any) -> Any:
    return emit("matmul", a, b, transpose_a=False, transpose_b=False)


CASES = [
    ErrorCase(
        "scaled_dot_product_attention: no features",
        lambda: lucid.nn.functional.scaled_dot_product_attention(f32(4, 0), f32(5, 0), f32(5, 3)),
        lucid.ShapeError,
        (
            "scaled_dot_product_attention: the last axis of query and key is empty, so there is no "
            "scale 1 / sqrt(D): got query (4, 0); pass scale="
        ),
    ),
    ErrorCase(
        "matmul: vectors",
        lambda: product(f32(3), f32(3, 2)),
        lucid.ShapeError,
        "matmul: inputs need at least 2 axes: (3,) and (3, 2); add one with reshape",
    ),
    ErrorCase(
        "matmul: inner sizes",
        lambda: product(f32(2, 3), f32(4, 2)),
        lucid.ShapeError,
        (
            "matmul: inner sizes differ: first input (2, 3) has 3, second input (4, 2) has "
            "4; transpose or reshape one of them"
        ),
    ),
    ErrorCase(
        "matmul: leading axes",
        lambda: product(f32(2, 1, 3), f32(4, 3, 2)),
        lucid.ShapeError,
        (
            "matmul: leading axes do not broadcast: (2, 1, 3) and (4, 3, 2); expand or "
            "reshape one of them"
        ),
    ),
    ErrorCase(
        "matmul: dtypes",
        lambda: product(f32(2, 3), f64(3, 2)),
        lucid.DtypeError,
        "matmul: dtypes differ: float32 and float64; cast one of them first",
    ),
    ErrorCase(
        "linear: weight",
        lambda: emit("linear", f32(2, 3), f32(3)),
        lucid.ShapeError,
        "linear: weight needs 2 axes: weight (3,); give (out_features, in_features)",
    ),
    ErrorCase(
        "linear: 0-d input",
        lambda: emit("linear", f32(), f32(2, 3)),
        lucid.ShapeError,
        "linear: input needs at least 1 axis: input (); add one with reshape",
    ),
    ErrorCase(
        "linear: features",
        lambda: emit("linear", f32(2, 3), f32(4, 5)),
        lucid.ShapeError,
        (
            "linear: features differ: input (2, 3) has 3, weight (4, 5) expects 5; the last "
            "axis of input must be in_features"
        ),
    ),
    ErrorCase(
        "linear: bias",
        lambda: emit("linear", f32(2, 3), f32(4, 3), f32(3)),
        lucid.ShapeError,
        ("linear: bias does not fit weight: bias (3,), weight (4, 3); give bias the shape (4,)"),
    ),
    ErrorCase(
        "convolution: axes",
        lambda: convolve(f32(2, 3), f32(4, 3)),
        lucid.ShapeError,
        (
            "convolution: input needs 1 to 3 spatial axes after batch and channels: input "
            "(2, 3), weight (4, 3); add or merge axes with reshape"
        ),
    ),
    ErrorCase(
        "convolution: weight axes",
        lambda: convolve(f32(2, 3, 5), f32(4, 3)),
        lucid.ShapeError,
        (
            "convolution: input and weight need the same number of axes: input (2, 3, 5), "
            "weight (4, 3); give weight (out_channels, in_channels / groups, *kernel)"
        ),
    ),
    ErrorCase(
        "convolution: groups",
        lambda: convolve(f32(2, 4, 5), f32(3, 2, 3), groups=2),
        lucid.ShapeError,
        (
            "convolution: groups must divide the 3 output channels: groups = 2, input (2, 4, "
            "5), weight (3, 2, 3); choose a divisor"
        ),
    ),
    ErrorCase(
        "convolution: channels",
        lambda: convolve(f32(2, 3, 5), f32(4, 2, 3)),
        lucid.ShapeError,
        (
            "convolution: channels differ: input (2, 3, 5) has 3, weight (4, 2, 3) expects 2 "
            "in each of 1 group; channels must be weight's second size times groups"
        ),
    ),
    ErrorCase(
        "convolution: channels of groups",
        lambda: convolve(f32(2, 3, 5), f32(4, 2, 3), groups=2),
        lucid.ShapeError,
        (
            "convolution: channels differ: input (2, 3, 5) has 3, weight (4, 2, 3) expects 2 "
            "in each of 2 groups; channels must be weight's second size times groups"
        ),
    ),
    ErrorCase(
        "convolution: empty kernel",
        lambda: convolve(f32(2, 3, 5), f32(4, 3, 0)),
        lucid.ShapeError,
        (
            "convolution: kernel size out of range: input (2, 3, 5), weight (4, 3, 0); give "
            "weight a kernel of 1 to 2147483647"
        ),
    ),
    ErrorCase(
        "convolution: large kernel",
        lambda: convolve(f32(2, 3, 5), f32(4, 3, 7)),
        lucid.ShapeError,
        (
            "convolution: kernel is larger than the padded input: input (2, 3, 5), weight "
            "(4, 3, 7), axis 2 has 5 with padding, the kernel covers 7; pad more or take a "
            "smaller kernel"
        ),
    ),
    ErrorCase(
        "convolution: stride count",
        lambda: convolve(f32(2, 3, 5), f32(4, 3, 3), stride=[1, 1]),
        lucid.UserError,
        (
            "convolution: stride has a wrong length: [1, 1] for 1 spatial axes; give one "
            "number for each"
        ),
    ),
    ErrorCase(
        "convolution: stride 0",
        lambda: convolve(f32(2, 3, 5), f32(4, 3, 3), stride=[0]),
        lucid.UserError,
        "convolution: stride out of range: [0]; each number must be from 1 to 2147483647",
    ),
    ErrorCase(
        "convolution: bias",
        lambda: convolve(f32(2, 3, 5), f32(4, 3, 3), f32(3)),
        lucid.ShapeError,
        (
            "convolution: bias does not fit weight: bias (3,), weight (4, 3, 3); give bias "
            "the shape (4,)"
        ),
    ),
    ErrorCase(
        "convolution: dtypes",
        lambda: convolve(f32(2, 3, 5), f64(4, 3, 3)),
        lucid.DtypeError,
        "convolution: dtypes differ: input float32, weight float64; cast one of them",
    ),
    ErrorCase(
        "convolution: integers",
        lambda: convolve(i64(2, 3, 5), i64(4, 3, 3)),
        lucid.DtypeError,
        "convolution: input must be floating point: got int64; cast it to float32 first",
    ),
    ErrorCase(
        "convolution_weight_grad: gradient",
        lambda: emit(
            "convolution_weight_grad",
            f32(2, 4, 4),
            f32(2, 3, 5),
            weight_shape=[4, 3, 3],
            stride=[1],
            padding_low=[0],
            padding_high=[0],
            dilation=[1],
            groups=1,
        ),
        lucid.ShapeError,
        (
            "convolution_weight_grad: gradient does not fit: grad (2, 4, 4), input (2, 3, "
            "5), weight (4, 3, 3); give grad the shape (2, 4, 3)"
        ),
    ),
    ErrorCase(
        "max_pool: axes",
        lambda: max_pool(f32(2, 3)),
        lucid.ShapeError,
        (
            "max_pool: kernel does not fit input: kernel [2], input (2, 3); give (batch, "
            "channels, *spatial) with 1 to 3 spatial axes and one kernel size for each"
        ),
    ),
    ErrorCase(
        "max_pool: padding",
        lambda: max_pool(f32(1, 1, 4), padding=[2]),
        lucid.UserError,
        (
            "max_pool: padding is more than half the kernel: padding 2, kernel extent 2; pad "
            "the input with pad first"
        ),
    ),
    ErrorCase(
        "max_pool: large kernel",
        lambda: max_pool(f32(1, 1, 4), kernel=[5]),
        lucid.ShapeError,
        (
            "max_pool: kernel is larger than the padded input: input (1, 1, 4), axis 2 has 4 "
            "with padding, the kernel covers 5; take a smaller kernel"
        ),
    ),
    ErrorCase(
        "max_pool: only padding",
        lambda: max_pool(f32(1, 1, 1), kernel=[2], padding=[1], dilation=[2], stride=[1]),
        lucid.ShapeError,
        (
            "max_pool: a window lies in the padding only: input (1, 1, 1), axis 2, padding "
            "1, dilation 2; pad or dilate less"
        ),
    ),
    ErrorCase(
        "max_pool_grad: channels",
        lambda: emit(
            "max_pool_grad",
            f32(1, 2, 2),
            lucid.zeros(1, 2, 2, dtype=lucid.int32),
            input_shape=[1, 1, 4],
        ),
        lucid.ShapeError,
        (
            "max_pool_grad: grad does not fit the pooled input: grad (1, 2, 2), input (1, 1, "
            "4); batch, channels and number of axes must agree"
        ),
    ),
    ErrorCase(
        "max_pool_grad: indices' dtype",
        lambda: emit("max_pool_grad", f32(1, 1, 2), i64(1, 1, 2), input_shape=[1, 1, 4]),
        lucid.DtypeError,
        "max_pool_grad: indices must be int32: got int64; cast it to int32 first",
    ),
    ErrorCase(
        "max_pool_grad: indices' shape",
        lambda: emit(
            "max_pool_grad",
            f32(1, 1, 2),
            lucid.zeros(1, 1, 3, dtype=lucid.int32),
            input_shape=[1, 1, 4],
        ),
        lucid.ShapeError,
        (
            "max_pool_grad: indices does not fit grad: indices (1, 1, 3), grad (1, 1, 2); "
            "give indices the shape (1, 1, 2)"
        ),
    ),
    ErrorCase(
        "avg_pool_grad: gradient",
        lambda: avg_pool_grad(f32(1, 1, 3)),
        lucid.ShapeError,
        (
            "avg_pool_grad: grad does not fit the pooled input: grad (1, 1, 3), input (1, 1, "
            "4); give grad the shape (1, 1, 2)"
        ),
    ),
    ErrorCase(
        "layer_norm: axes",
        lambda: emit("layer_norm", f32(2, 3), None, None, axes=3, eps=1e-5),
        lucid.ShapeError,
        (
            "layer_norm: axes out of range: 3 trailing axes of input (2, 3); normalise at "
            "least one axis and at most all"
        ),
    ),
    ErrorCase(
        "layer_norm: eps",
        lambda: emit("layer_norm", f32(2, 3), None, None, axes=1, eps=-1.0),
        lucid.UserError,
        "layer_norm: eps must not be negative: got -1.0; 1e-5 is usual",
    ),
    ErrorCase(
        "layer_norm: weight",
        lambda: emit("layer_norm", f32(2, 3), f32(2), None, axes=1, eps=1e-5),
        lucid.ShapeError,
        (
            "layer_norm: weight does not fit input: weight (2,), input (2, 3); give weight "
            "the shape (3,)"
        ),
    ),
    ErrorCase(
        "batch_norm: axes",
        lambda: emit("batch_norm", f32(3), None, None, eps=1e-5),
        lucid.ShapeError,
        "batch_norm: input needs at least 2 axes: input (3,); give (batch, channels, ...)",
    ),
    ErrorCase(
        "cross_entropy: axes",
        lambda: cross_entropy(f32(3), i64(3)),
        lucid.ShapeError,
        (
            "cross_entropy: logits need 2 axes and at least 1 class: logits (3,); reshape to "
            "(rows, classes)"
        ),
    ),
    ErrorCase(
        "cross_entropy: rows",
        lambda: cross_entropy(f32(2, 3), i64(3)),
        lucid.ShapeError,
        (
            "cross_entropy: target does not fit logits: target (3,), logits (2, 3); give "
            "target the shape (2,)"
        ),
    ),
    ErrorCase(
        "cross_entropy: target's dtype",
        lambda: cross_entropy(f32(2, 3), f32(2)),
        lucid.DtypeError,
        ("cross_entropy: target must be int32 or int64: got float32; cast it to int64 first"),
    ),
    ErrorCase(
        "cross_entropy: class out of range",
        lambda: cross_entropy(f32(2, 3), lucid.tensor([0, 7])),
        lucid.OutOfRangeError,
        "cross_entropy: target out of range: 7 for 3 classes",
    ),
    ErrorCase(
        "cross_entropy: weight",
        lambda: cross_entropy(f32(2, 3), i64(2), f32(2)),
        lucid.ShapeError,
        (
            "cross_entropy: weight does not fit logits: weight (2,), logits (2, 3); give "
            "weight the shape (3,)"
        ),
    ),
    ErrorCase(
        "cross_entropy: reduction",
        lambda: cross_entropy(f32(2, 3), i64(2), reduction="median"),
        lucid.UserError,
        'cross_entropy: unknown reduction: got "median"; use "none", "mean" or "sum"',
    ),
    ErrorCase(
        "cross_entropy: label_smoothing",
        lambda: cross_entropy(f32(2, 3), i64(2), label_smoothing=1.5),
        lucid.UserError,
        "cross_entropy: label_smoothing must be from 0 to 1: got 1.5; 0.1 is usual",
    ),
    ErrorCase(
        "attention: axes",
        lambda: attend(f32(3), f32(3), f32(3)),
        lucid.ShapeError,
        (
            "attention: inputs need at least 2 axes: query (3,), key (3,), value (3,); give "
            "(..., length, features)"
        ),
    ),
    ErrorCase(
        "attention: leading axes",
        lambda: attend(f32(2, 4, 3), f32(5, 4, 3), f32(5, 4, 3)),
        lucid.ShapeError,
        (
            "attention: leading axes differ: query (2, 4, 3), key (5, 4, 3), value (5, 4, "
            "3); expand them to one shape"
        ),
    ),
    ErrorCase(
        "attention: features",
        lambda: attend(f32(4, 3), f32(4, 2), f32(4, 3)),
        lucid.ShapeError,
        (
            "attention: features of query and key differ: query (4, 3), key (4, 2), value "
            "(4, 3); project them to one size"
        ),
    ),
    ErrorCase(
        "attention: lengths",
        lambda: attend(f32(4, 3), f32(5, 3), f32(4, 3)),
        lucid.ShapeError,
        (
            "attention: lengths of key and value differ: query (4, 3), key (5, 3), value (4, "
            "3); give one value for each key"
        ),
    ),
    ErrorCase(
        "attention: no keys",
        lambda: attend(f32(4, 3), f32(0, 3), f32(0, 3)),
        lucid.ShapeError,
        ("attention: there are no keys: query (4, 3), key (0, 3), value (0, 3); give at least one"),
    ),
    ErrorCase(
        "attention: mask's shape",
        lambda: attend(f32(4, 3), f32(5, 3), f32(5, 3), truth(2, 5)),
        lucid.ShapeError,
        (
            "attention: mask does not broadcast to the scores: mask (2, 5), scores (4, 5); "
            "give (..., queries, keys) with sizes of 1 where it repeats"
        ),
    ),
    ErrorCase(
        "attention: mask's dtype",
        lambda: attend(f32(4, 3), f32(5, 3), f32(5, 3), i64(4, 5)),
        lucid.DtypeError,
        "attention: mask must be bool or float32: got int64; cast it first",
    ),
    ErrorCase(
        "max_pool_grad: index out of range",
        lambda: emit(
            "max_pool_grad",
            f32(1, 1, 1),
            lucid.full((1, 1, 1), 9, dtype=lucid.int32),
            input_shape=[1, 1, 4],
        ),
        lucid.OutOfRangeError,
        "max_pool_grad: index out of range: 9 for size 4",
    ),
]
