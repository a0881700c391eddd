"""What nn.functional refuses."""

from __future__ import annotations

import lucid
import lucid.nn.functional as F

from .case import ErrorCase, f32, i64, truth

looked_up = lucid.compile(F.embedding, fallback="error")

CASES = [
    ErrorCase(
        "F.functional: no tensor",
        lambda: F.relu([1.0]),
        lucid.ArgumentTypeError,
        (
            "relu: operands must be tensors or numbers: got list; convert it with "
            "lucid.tensor or lucid.from_numpy"
        ),
    ),
    ErrorCase(
        "F.conv2d: stride",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2), stride="a"),
        lucid.ArgumentTypeError,
        "conv2d: stride must be an int or 2 ints: got 'a'",
    ),
    ErrorCase(
        "F.conv2d: padding",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2), padding="all"),
        lucid.UserError,
        "conv2d: padding must be 'same', 'valid' or ints: got 'all'",
    ),
    ErrorCase(
        "F.conv2d: padding of strides",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2), padding="same", stride=2),
        lucid.UserError,
        "conv2d: padding='same' is not supported for strides: got (2, 2)",
    ),
    ErrorCase(
        "F.conv2d: weight",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2)),
        lucid.ShapeError,
        "conv2d: weight must have 4 axes: got shape (1, 1, 2)",
    ),
    ErrorCase(
        "F.conv2d: channels",
        lambda: F.conv2d(f32(1, 3, 4, 4), f32(1, 2, 2, 2)),
        lucid.ShapeError,
        (
            "convolution: channels differ: input (1, 3, 4, 4) has 3, weight (1, 2, 2, 2) "
            "expects 2 in each of 1 group; channels must be weight's second size times groups"
        ),
    ),
    ErrorCase(
        "F.conv2d: kernel",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 5, 5)),
        lucid.ShapeError,
        (
            "convolution: kernel is larger than the padded input: input (1, 1, 4, 4), weight "
            "(1, 1, 5, 5), axis 2 has 4 with padding, the kernel covers 5; pad more or take "
            "a smaller kernel"
        ),
    ),
    ErrorCase(
        "F.conv_transpose2d: weight",
        lambda: F.conv_transpose2d(f32(1, 3, 4, 4), f32(2, 1, 2, 2)),
        lucid.ShapeError,
        (
            "conv_transpose2d: weight must be (in_channels, out_channels / groups, kernel): "
            "got (2, 1, 2, 2) for input (1, 3, 4, 4)"
        ),
    ),
    ErrorCase(
        "F.conv_transpose2d: output_padding",
        lambda: F.conv_transpose2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2), output_padding=1),
        lucid.UserError,
        (
            "conv_transpose2d: output_padding must be smaller than stride or dilation: got "
            "(1, 1) for stride (1, 1), dilation (1, 1)"
        ),
    ),
    ErrorCase(
        "F.gelu: approximate",
        lambda: F.gelu(f32(2), "erf"),
        lucid.UserError,
        "gelu: approximate must be 'none' or 'tanh': got 'erf'",
    ),
    ErrorCase(
        "F.celu: alpha", lambda: F.celu(f32(2), 0.0), lucid.UserError, "celu: alpha must not be 0"
    ),
    ErrorCase(
        "F.hardtanh: bounds",
        lambda: F.hardtanh(f32(2), 1.0, 0.0),
        lucid.UserError,
        "hardtanh: min_val must not exceed max_val: got 1.0 and 0.0",
    ),
    ErrorCase(
        "F.glu: odd axis",
        lambda: F.glu(f32(3)),
        lucid.ShapeError,
        "glu: the halved axis must have an even size: got shape (3,), dim -1",
    ),
    ErrorCase(
        "F.prelu: weight",
        lambda: F.prelu(f32(2, 3), f32(2)),
        lucid.ShapeError,
        (
            "prelu: weight must have 1 or as many elements as input has channels: got 2 for "
            "shape (2, 3)"
        ),
    ),
    ErrorCase(
        "F.attention: axes",
        lambda: F.scaled_dot_product_attention(f32(3), f32(3), f32(3)),
        lucid.ShapeError,
        (
            "scaled_dot_product_attention: operands must have at least 2 axes: got query "
            "(3,), key (3,), value (3,)"
        ),
    ),
    ErrorCase(
        "F.attention: shapes",
        lambda: F.scaled_dot_product_attention(f32(4, 3), f32(5, 2), f32(5, 3)),
        lucid.ShapeError,
        (
            "scaled_dot_product_attention: expected (..., T, D), (..., S, D), (..., S, E): "
            "got query (4, 3), key (5, 2), value (5, 3)"
        ),
    ),
    ErrorCase(
        "F.attention: integer mask",
        lambda: F.scaled_dot_product_attention(
            f32(4, 3), f32(4, 3), f32(4, 3), lucid.ones(4, 4, dtype=lucid.int64)
        ),
        lucid.DtypeError,
        (
            "scaled_dot_product_attention: attn_mask must be bool or floating: got "
            "lucid.int64; convert it with .bool()"
        ),
    ),
    ErrorCase(
        "F.attention: mask and causal",
        lambda: F.scaled_dot_product_attention(
            f32(4, 3), f32(4, 3), f32(4, 3), truth(4, 4), is_causal=True
        ),
        lucid.UserError,
        (
            "scaled_dot_product_attention: attn_mask must not be given when is_causal=True; "
            "join them"
        ),
    ),
    ErrorCase(
        "F.dropout: p",
        lambda: F.dropout(f32(2), 1.5),
        lucid.UserError,
        "dropout: p must be from 0 to 1: got 1.5",
    ),
    ErrorCase(
        "F.dropout1d: axes",
        lambda: F.dropout1d(f32(2)),
        lucid.ShapeError,
        "dropout1d: input must have 2 or 3 axes: got (2,)",
    ),
    ErrorCase(
        "F.dropout2d: axes",
        lambda: F.dropout2d(f32(2)),
        lucid.ShapeError,
        "dropout2d: input must have 3 or 4 axes: got (2,)",
    ),
    ErrorCase(
        "F.adaptive_max_pool1d: indices",
        lambda: F.adaptive_max_pool1d(f32(1, 2, 8), 3, return_indices=True),
        lucid.UnsupportedError,
        "adaptive_max_pool1d: return_indices is not supported for bins of any size; use a max_pool "
        "with a kernel_size",
    ),
    ErrorCase(
        "F.adaptive_max_pool2d: indices",
        lambda: F.adaptive_max_pool2d(f32(1, 2, 8, 8), 3, return_indices=True),
        lucid.UnsupportedError,
        "adaptive_max_pool2d: return_indices is not supported for bins of any size; use a max_pool "
        "with a kernel_size",
    ),
    ErrorCase(
        "F.embedding: padding_idx",
        lambda: F.embedding(i64(2), f32(3, 4), padding_idx=3),
        lucid.OutOfRangeError,
        "embedding: padding_idx must be within num_embeddings: got 3 for 3",
    ),
    ErrorCase(
        "F.embedding: max_norm",
        lambda: F.embedding(i64(2), f32(3, 4), max_norm=1.0),
        lucid.UnsupportedError,
        "embedding: max_norm is not supported; leave it unset",
    ),
    ErrorCase(
        "F.embedding: index",
        lambda: F.embedding(lucid.tensor([3]), f32(3, 4)),
        lucid.OutOfRangeError,
        "embedding: index out of range: 3 for size 3",
    ),
    ErrorCase(
        "F.embedding: negative",
        lambda: F.embedding(lucid.tensor([0, -1]), f32(5, 4)),
        lucid.OutOfRangeError,
        "embedding: index out of range: -1 for size 5",
    ),
    ErrorCase(
        "F.embedding: negative in a compiled function",
        lambda: looked_up(lucid.tensor([0, -1]), f32(5, 4)),
        lucid.OutOfRangeError,
        "embedding: index out of range: -1 for size 5",
    ),
    ErrorCase(
        "F.embedding: floats",
        lambda: F.embedding(f32(2), f32(3, 4)),
        lucid.DtypeError,
        "embedding: dtype does not fit an index: float32; cast to int32 or int64 first",
    ),
    ErrorCase(
        "F.one_hot: num_classes",
        lambda: F.one_hot(i64(2), 0),
        lucid.UserError,
        "one_hot: num_classes must be positive or -1: got 0",
    ),
    ErrorCase(
        "F.one_hot: empty",
        lambda: F.one_hot(i64(0)),
        lucid.UserError,
        "one_hot: num_classes must be given for an empty tensor",
    ),
    ErrorCase(
        "F.linear: features",
        lambda: F.linear(f32(2, 3), f32(4, 5)),
        lucid.ShapeError,
        (
            "linear: features differ: input (2, 3) has 3, weight (4, 5) expects 5; the last "
            "axis of input must be in_features"
        ),
    ),
    ErrorCase(
        "F.bilinear: shapes",
        lambda: F.bilinear(f32(2, 3), f32(2, 4), f32(5, 4, 3)),
        lucid.ShapeError,
        "bilinear: shapes do not fit: inputs (2, 3) and (2, 4), weight (5, 4, 3)",
    ),
    ErrorCase(
        "F.mse_loss: reduction",
        lambda: F.mse_loss(f32(2), f32(2), reduction="median"),
        lucid.UserError,
        "mse_loss: reduction must be 'none', 'mean' or 'sum': got 'median'",
    ),
    ErrorCase(
        "F.cross_entropy: 0-d",
        lambda: F.cross_entropy(f32(), i64()),
        lucid.ShapeError,
        "cross_entropy: input must have a class axis: got shape ()",
    ),
    ErrorCase(
        "F.cross_entropy: label_smoothing",
        lambda: F.cross_entropy(f32(2, 3), i64(2), label_smoothing=2.0),
        lucid.UserError,
        "cross_entropy: label_smoothing must be between 0 and 1: got 2.0",
    ),
    ErrorCase(
        "F.cross_entropy: target",
        lambda: F.cross_entropy(f32(2, 3), f32(2)),
        lucid.DtypeError,
        (
            "cross_entropy: target must be int32 or int64 class indices, or probabilities in "
            "the shape (2, 3): got lucid.float32 of shape (2,)"
        ),
    ),
    ErrorCase(
        "F.cross_entropy: rows",
        lambda: F.cross_entropy(f32(2, 3), i64(3)),
        lucid.ShapeError,
        "cross_entropy: target must have shape (2,) for input (2, 3): got (3,)",
    ),
    ErrorCase(
        "F.cross_entropy: reduction",
        lambda: F.cross_entropy(f32(2, 3), i64(2), reduction="all"),
        lucid.UserError,
        "cross_entropy: reduction must be 'none', 'mean' or 'sum': got 'all'",
    ),
    ErrorCase(
        "F.nll_loss: rows",
        lambda: F.nll_loss(f32(2, 3), i64(3)),
        lucid.ShapeError,
        "nll_loss: target must have shape (2,) for input (2, 3): got (3,)",
    ),
    ErrorCase(
        "F.nll_loss: class",
        lambda: F.nll_loss(f32(2, 3), lucid.tensor([0, 3])),
        lucid.OutOfRangeError,
        "nll_loss: index out of range: 3 for size 3",
    ),
    ErrorCase(
        "F.smooth_l1_loss: beta",
        lambda: F.smooth_l1_loss(f32(2), f32(2), beta=-1.0),
        lucid.UserError,
        "smooth_l1_loss: beta must not be negative: got -1.0",
    ),
    ErrorCase(
        "F.huber_loss: delta",
        lambda: F.huber_loss(f32(2), f32(2), delta=0.0),
        lucid.UserError,
        "huber_loss: delta must be positive: got 0.0",
    ),
    ErrorCase(
        "F.binary_cross_entropy: target",
        lambda: F.binary_cross_entropy(f32(2), f32(3)),
        lucid.ShapeError,
        "binary_cross_entropy: target must have the shape of input: got (3,) and (2,)",
    ),
    ErrorCase(
        "F.batch_norm: axes",
        lambda: F.batch_norm(f32(3), None, None, training=True),
        lucid.ShapeError,
        "batch_norm: input must be (N, C, ...): got (3,)",
    ),
    ErrorCase(
        "F.batch_norm: one value",
        lambda: F.batch_norm(f32(1, 3), None, None, training=True),
        lucid.UserError,
        (
            "batch_norm: expected more than 1 value per channel when training: got input (1, "
            "3); use a larger batch, or eval()"
        ),
    ),
    ErrorCase(
        "F.batch_norm: no statistics",
        lambda: F.batch_norm(f32(2, 3), None, None),
        lucid.UserError,
        "batch_norm: running_mean and running_var must be given when training=False",
    ),
    ErrorCase(
        "F.instance_norm: axes",
        lambda: F.instance_norm(f32(3)),
        lucid.ShapeError,
        "instance_norm: input must be (N, C, ...): got (3,)",
    ),
    ErrorCase(
        "F.instance_norm: one element",
        lambda: F.instance_norm(f32(2, 3, 1)),
        lucid.UserError,
        ("instance_norm: expected more than 1 spatial element when training: got input (2, 3, 1)"),
    ),
    ErrorCase(
        "F.layer_norm: no axis",
        lambda: F.layer_norm(f32(2, 3), ()),
        lucid.UserError,
        "layer_norm: normalized_shape must name at least one axis",
    ),
    ErrorCase(
        "F.layer_norm: shape",
        lambda: F.layer_norm(f32(2, 3), (4,)),
        lucid.ShapeError,
        "layer_norm: input must end in normalized_shape (4,): got shape (2, 3)",
    ),
    ErrorCase(
        "F.layer_norm: weight",
        lambda: F.layer_norm(f32(2, 3), (3,), f32(2)),
        lucid.ShapeError,
        (
            "layer_norm: weight does not fit input: weight (2,), input (2, 3); give weight "
            "the shape (3,)"
        ),
    ),
    ErrorCase(
        "F.group_norm: groups",
        lambda: F.group_norm(f32(2, 3), 2),
        lucid.ShapeError,
        "group_norm: num_groups must divide the channels: got 2 for shape (2, 3)",
    ),
    ErrorCase(
        "F.pad: reflection",
        lambda: F.pad(f32(1, 1, 3), (3, 3), mode="reflect"),
        lucid.ShapeError,
        "pad: reflect padding does not fit: got (3, 3) for an axis of size 3",
    ),
    ErrorCase(
        "F.pad: pairs",
        lambda: F.pad(f32(2), (1, 1, 1, 1)),
        lucid.UserError,
        "pad: expected up to 1 pairs for shape (2,): got 4 numbers",
    ),
    ErrorCase(
        "F.pad: mode",
        lambda: F.pad(f32(1, 1, 3), (1, 1), mode="mirror"),
        lucid.UserError,
        "pad: mode must be 'constant', 'reflect', 'replicate' or 'circular': got 'mirror'",
    ),
    ErrorCase(
        "F.pad: negative reflection",
        lambda: F.pad(f32(1, 1, 3), (-1, 1), mode="reflect"),
        lucid.UserError,
        "pad: negative padding needs mode='constant': got (-1, 1)",
    ),
    ErrorCase(
        "F.pad: cut off",
        lambda: F.pad(f32(1, 1, 3), (-2, -2)),
        lucid.ShapeError,
        "pad: negative padding exceeds axis 2: got (-2, -2) for shape (1, 1, 3)",
    ),
    ErrorCase(
        "F.max_pool2d: padding",
        lambda: F.max_pool2d(f32(1, 1, 4, 4), 2, padding=2),
        lucid.UserError,
        (
            "max_pool: padding is more than half the kernel: padding 2, kernel extent 2; pad "
            "the input with pad first"
        ),
    ),
    ErrorCase(
        "F.max_pool2d: kernel",
        lambda: F.max_pool2d(f32(1, 1, 4, 4), 5),
        lucid.ShapeError,
        (
            "max_pool: kernel is larger than the padded input: input (1, 1, 4, 4), axis 2 "
            "has 4 with padding, the kernel covers 5; take a smaller kernel"
        ),
    ),
    ErrorCase(
        "F.avg_pool2d: divisor",
        lambda: F.avg_pool2d(f32(1, 1, 4, 4), 2, divisor_override=0),
        lucid.UserError,
        "avg_pool2d: divisor_override must not be 0",
    ),
    ErrorCase(
        "F.adaptive_avg_pool2d: sizes",
        lambda: F.adaptive_avg_pool2d(f32(1, 1, 4, 4), (1, 2, 3)),
        lucid.UserError,
        "adaptive_avg_pool2d: output_size must be one or 2 ints: got (1, 2, 3)",
    ),
    ErrorCase(
        "F.adaptive_avg_pool2d: size 0",
        lambda: F.adaptive_avg_pool2d(f32(1, 1, 4, 4), -1),
        lucid.ShapeError,
        "adaptive_avg_pool2d: cannot pool (4, 4) to (-1, -1); sizes must be positive",
    ),
    ErrorCase(
        "F.pixel_shuffle: channels",
        lambda: F.pixel_shuffle(f32(1, 3, 2, 2), 2),
        lucid.ShapeError,
        "pixel_shuffle: channels must be a multiple of 4: got shape (1, 3, 2, 2)",
    ),
    ErrorCase(
        "F.pixel_unshuffle: size",
        lambda: F.pixel_unshuffle(f32(1, 1, 3, 3), 2),
        lucid.ShapeError,
        "pixel_unshuffle: height and width must be multiples of 2: got shape (1, 1, 3, 3)",
    ),
    ErrorCase(
        "F.unfold: axes",
        lambda: F.unfold(f32(3, 3), 2),
        lucid.ShapeError,
        "unfold: input must be (N, C, H, W): got (3, 3)",
    ),
    ErrorCase(
        "F.unfold: kernel",
        lambda: F.unfold(f32(1, 1, 3, 3), 4),
        lucid.ShapeError,
        "unfold: no window of (4, 4) fits the padded size (3, 3)",
    ),
    ErrorCase(
        "F.fold: columns",
        lambda: F.fold(f32(1, 3, 4), (3, 3), 2),
        lucid.ShapeError,
        "fold: expected (N, C * 4, 4): got (1, 3, 4)",
    ),
    ErrorCase(
        "F.interpolate: size",
        lambda: F.interpolate(f32(1, 1, 3)),
        lucid.UserError,
        "interpolate: exactly one of size and scale_factor must be given",
    ),
    ErrorCase(
        "F.interpolate: scale_factor",
        lambda: F.interpolate(f32(1, 1, 3), scale_factor=(2.0, 2.0)),
        lucid.UserError,
        "interpolate: scale_factor must be 1 or 1 numbers: got (2.0, 2.0)",
    ),
    ErrorCase(
        "F.interpolate: mode",
        lambda: F.interpolate(f32(1, 1, 3), 6, mode="bicubic"),
        lucid.UnsupportedError,
        (
            "interpolate: mode='bicubic', antialias=False is not supported; use nearest, "
            "nearest-exact, linear, bilinear or area"
        ),
    ),
    ErrorCase(
        "F.interpolate: axes",
        lambda: F.interpolate(f32(1, 1, 3), 6, mode="bilinear"),
        lucid.ShapeError,
        "interpolate: mode='bilinear' does not fit shape (1, 1, 3)",
    ),
    ErrorCase(
        "F.functional: number",
        lambda: F.unfold(3, 2),
        lucid.ArgumentTypeError,
        "unfold: input must be a Tensor: got int; make one with lucid.tensor",
    ),
    ErrorCase(
        "F.conv2d: three strides",
        lambda: F.conv2d(f32(1, 1, 4, 4), f32(1, 1, 2, 2), stride=(1, 1, 1)),
        lucid.UserError,
        "conv2d: stride must be an int or 2 ints: got (1, 1, 1)",
    ),
    ErrorCase(
        "F.interpolate: size 0",
        lambda: F.interpolate(f32(1, 1, 3), 0),
        lucid.ShapeError,
        (
            "interpolate: spatial sizes must be positive: got (3,) to (0,); give a larger "
            "input, size or scale_factor"
        ),
    ),
    ErrorCase(
        "F.one_hot: negative",
        lambda: F.one_hot(lucid.tensor([-2])),
        lucid.OutOfRangeError,
        "one_hot: a class is negative: the largest is -2; use classes from 0 on",
    ),
    ErrorCase(
        "F.one_hot: negative among classes",
        lambda: F.one_hot(lucid.tensor([0, -1]), 3),
        lucid.OutOfRangeError,
        "one_hot: index out of range: -1 for size 3",
    ),
    ErrorCase(
        "F.embedding_bag: option",
        lambda: F.embedding_bag(i64(2, 3), f32(4, 2), sparse=True),
        lucid.UnsupportedError,
        "embedding_bag: sparse is not supported; leave it unset",
    ),
    ErrorCase(
        "F.embedding_bag: mode",
        lambda: F.embedding_bag(i64(2, 3), f32(4, 2), mode="min"),
        lucid.UserError,
        "embedding_bag: mode must be 'sum', 'mean' or 'max': got 'min'",
    ),
    ErrorCase(
        "F.embedding_bag: axes",
        lambda: F.embedding_bag(i64(2, 3, 4), f32(4, 2)),
        lucid.ShapeError,
        "embedding_bag: input must have 1 or 2 axes: got shape (2, 3, 4)",
    ),
    ErrorCase(
        "F.embedding_bag: no offsets",
        lambda: F.embedding_bag(i64(3), f32(4, 2)),
        lucid.UserError,
        "embedding_bag: offsets go with an input of 1 axis: got shape (3,) without offsets",
    ),
    ErrorCase(
        "F.embedding_bag: axes of offsets",
        lambda: F.embedding_bag(i64(3), f32(4, 2), i64(1, 1)),
        lucid.ShapeError,
        "embedding_bag: offsets must have 1 axis: got shape (1, 1)",
    ),
    ErrorCase(
        "F.embedding_bag: max",
        lambda: F.embedding_bag(i64(3), f32(4, 2), i64(1), mode="max"),
        lucid.UnsupportedError,
        (
            "embedding_bag: mode='max' with offsets is not supported; give bags of one size as "
            "(B, N), with padding_idx in the free places"
        ),
    ),
    ErrorCase(
        "F.embedding_bag: factors",
        lambda: F.embedding_bag(i64(2, 3), f32(4, 2), per_sample_weights=f32(2, 3)),
        lucid.UserError,
        "embedding_bag: per_sample_weights go with mode='sum': got 'mean'",
    ),
    ErrorCase(
        "F.embedding_bag: shape of factors",
        lambda: F.embedding_bag(i64(2, 3), f32(4, 2), mode="sum", per_sample_weights=f32(3)),
        lucid.ShapeError,
        "embedding_bag: per_sample_weights must have the shape of input: got (3,) and (2, 3)",
    ),
    ErrorCase(
        "F.embedding_bag: no end",
        lambda: F.embedding_bag(i64(3), f32(4, 2), i64(0), include_last_offset=True),
        lucid.ShapeError,
        "embedding_bag: offsets must have an element with include_last_offset: got (0,)",
    ),
    ErrorCase(
        "F.embedding_bag: first offset",
        lambda: F.embedding_bag(i64(3), f32(4, 2), lucid.tensor([1, 2])),
        lucid.OutOfRangeError,
        "embedding_bag: offsets must start with 0 and never fall: got [1, 2]",
    ),
]
