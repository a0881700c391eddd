"""What functions that make tensors and compute with them refuse."""

from __future__ import annotations

import copy

import lucid
import numpy
from lucid.functions import dtypes

from .case import ErrorCase, f32, i64, leaf, truth

CASES = [
    ErrorCase(
        "axis",
        lambda: lucid.softmax(f32(2, 3), 2),
        lucid.OutOfRangeError,
        "softmax: dim out of range: got 2 for a tensor of 2 axes; use -2 to 1",
    ),
    ErrorCase(
        "axis: negative",
        lambda: lucid.sum(f32(2, 3), -3),
        lucid.OutOfRangeError,
        "sum: dim out of range: got -3 for a tensor of 2 axes; use -2 to 1",
    ),
    ErrorCase(
        "axis: 0-d tensor",
        lambda: lucid.softmax(f32(), 1),
        lucid.OutOfRangeError,
        "softmax: dim out of range: got 1 for a tensor of 0 axes; use -1 to 0",
    ),
    ErrorCase(
        "axis: no integer",
        lambda: lucid.softmax(f32(2), "a"),
        lucid.ArgumentTypeError,
        "softmax: dim must be an integer: got str",
    ),
    ErrorCase(
        "axis: named twice",
        lambda: lucid.sum(f32(2, 3), (0, -2)),
        lucid.UserError,
        "sum: an axis is named twice: got dim (0, -2); name each once",
    ),
    ErrorCase(
        "axis: of a new one",
        lambda: lucid.unsqueeze(f32(2, 3), 4),
        lucid.OutOfRangeError,
        "unsqueeze: dim out of range: got 4 for a tensor of 2 axes; use -3 to 2",
    ),
    ErrorCase(
        "argument missing",
        lambda: lucid.softmax(f32(2)),
        lucid.ArgumentTypeError,
        "softmax: argument dim is missing",
    ),
    ErrorCase(
        "to: device without copy",
        lambda: f32(2).to("metal"),
        lucid.DeviceUnavailableError,
        (
            "device metal: not available in this build; needs macOS 14 or later on an Apple "
            "GPU; available: cpu"
        ),
    ),
    ErrorCase(
        "size: two unknown",
        lambda: f32(2, 3).reshape(-1, -1),
        lucid.ShapeError,
        "reshape: more than one size is unknown: got (-1, -1); use -1 once",
    ),
    ErrorCase(
        "size: unknown does not divide",
        lambda: f32(2, 3).reshape(4, -1),
        lucid.ShapeError,
        (
            "reshape: -1 cannot be found: got shape (4, -1) for 6 elements; use sizes whose "
            "product divides 6"
        ),
    ),
    ErrorCase(
        "size: negative",
        lambda: lucid.zeros(-2),
        lucid.ShapeError,
        "zeros: a size is negative: got (-2,); use sizes of 0 or more",
    ),
    ErrorCase(
        "size: no integer",
        lambda: lucid.zeros("a"),
        lucid.ArgumentTypeError,
        "zeros: size must be an integer: got str",
    ),
    ErrorCase(
        "elements differ",
        lambda: f32(2, 3).reshape(4),
        lucid.ShapeError,
        "reshape: element counts differ: (2, 3) has 6 and (4,) has 4; choose a shape of 6",
    ),
    ErrorCase(
        "masked_fill: number",
        lambda: lucid.masked_fill(i64(3), truth(3), 0.5),
        lucid.DtypeError,
        (
            "masked_fill: a number does not fit into int64: got 0.5; cast the tensor or "
            "round the number"
        ),
    ),
    ErrorCase(
        "broadcast_tensors",
        lambda: lucid.broadcast_tensors(f32(2), f32(3)),
        lucid.ShapeError,
        "broadcast_tensors: shapes differ: (3,) and (2,); broadcast one of them first",
    ),
    ErrorCase(
        "where: one side",
        lambda: lucid.where(truth(2), f32(2)),
        lucid.UserError,
        "where: one side is missing; give both input and other, or neither",
    ),
    ErrorCase(
        "full: number does not fit",
        lambda: lucid.full((2,), float("inf"), dtype=lucid.int64),
        lucid.UserError,
        "full: a number does not fit into int64: got inf; use a float dtype",
    ),
    ErrorCase(
        "arange: step 0",
        lambda: lucid.arange(0, 3, 0),
        lucid.UserError,
        "arange: step is 0 or a bound is not finite: got start 0, end 3, step 0",
    ),
    ErrorCase(
        "arange: step's sign",
        lambda: lucid.arange(0, 3, -1),
        lucid.UserError,
        ("arange: step leads away from end: got start 0, end 3, step -1; change the sign of step"),
    ),
    ErrorCase(
        "linspace: steps",
        lambda: lucid.linspace(0, 1, -1),
        lucid.UserError,
        "linspace: steps is negative: got -1; use 0 or more",
    ),
    ErrorCase(
        "tril: one axis",
        lambda: lucid.tril(f32(3)),
        lucid.ShapeError,
        "tril: fewer than two axes: got shape (3,); give a matrix",
    ),
    ErrorCase(
        "tensor: text",
        lambda: lucid.tensor("a"),
        lucid.ArgumentTypeError,
        (
            "tensor: expected numbers: got str of <U1; give numbers, nested lists of numbers "
            "or a NumPy array"
        ),
    ),
    ErrorCase(
        "tensor: list of text",
        lambda: lucid.tensor(["a"]),
        lucid.ArgumentTypeError,
        (
            "tensor: expected numbers: got list of <U1; give numbers, nested lists of "
            "numbers or a NumPy array"
        ),
    ),
    ErrorCase(
        "tensor: number does not fit",
        lambda: lucid.tensor([300], dtype=lucid.uint8),
        lucid.UserError,
        "tensor: a number does not fit into uint8: got 300 to 300; use a wider dtype",
    ),
    ErrorCase(
        "tensor: ragged",
        lambda: lucid.tensor([[1, 2], [3]]),
        lucid.UserError,
        (
            "tensor: the nested lists are ragged: data[1] has shape (1,), data[0] (2,); give "
            "every list one length"
        ),
    ),
    ErrorCase(
        "tensor: dtype of the array",
        lambda: lucid.tensor(numpy.zeros(2, numpy.complex64)),
        lucid.DtypeError,
        (
            "tensor: a dtype that lucid lacks: got complex64; convert the array with astype, "
            "for example to float32"
        ),
    ),
    ErrorCase(
        "dtype: number",
        lambda: lucid.zeros(2, dtype=3),
        lucid.ArgumentTypeError,
        "dtype: expected a dtype such as lucid.float32: got 3",
    ),
    ErrorCase(
        "dtype: name",
        lambda: lucid.zeros(2, dtype="float8"),
        lucid.ArgumentTypeError,
        "dtype: expected a dtype such as lucid.float32: got 'float8'",
    ),
    ErrorCase(
        "finfo: integers",
        lambda: lucid.finfo(lucid.int64),
        lucid.DtypeError,
        "finfo: not a floating dtype: got int64; use iinfo",
    ),
    ErrorCase(
        "iinfo: floats",
        lambda: lucid.iinfo(lucid.float32),
        lucid.DtypeError,
        "iinfo: not an integer dtype: got float32; use finfo",
    ),
    ErrorCase(
        "format: several elements",
        lambda: f"{f32(2):.3f}",
        lucid.ArgumentTypeError,
        "format: a specification needs one number: got '.3f' for shape (2,); use item()",
    ),
    ErrorCase(
        "repeat_interleave: counts",
        lambda: lucid.repeat_interleave(f32(3), i64(2)),
        lucid.ShapeError,
        (
            "repeat_interleave: repeats of shape (2,) for size 3; give one integer of 0 or "
            "more for each element"
        ),
    ),
    ErrorCase(
        "index_select: axes",
        lambda: lucid.index_select(f32(3), 0, i64(1, 1)),
        lucid.ShapeError,
        (
            "index_select: index has more than one axis: got shape (1, 1); flatten it, or "
            "use x[index]"
        ),
    ),
    ErrorCase(
        "take_along_dim: axes",
        lambda: lucid.take_along_dim(f32(3, 2), i64(3), 0),
        lucid.ShapeError,
        "take_along_dim: numbers of axes differ: (3, 2) and (3,); reshape one first",
    ),
    ErrorCase(
        "scatter: nothing",
        lambda: f32(3).scatter(0, i64(1)),
        lucid.UserError,
        "scatter: nothing to write; give src or value",
    ),
    ErrorCase(
        "scatter: reduce",
        lambda: f32(3).scatter(0, i64(1), f32(1), reduce="multiply"),
        lucid.UnsupportedError,
        "scatter: reduce 'multiply' is not available; use None or 'add'",
    ),
    ErrorCase(
        "scatter: small source",
        lambda: f32(3).scatter(0, i64(2), f32(1)),
        lucid.ShapeError,
        "scatter: src is smaller than index: (1,) and (2,); broadcast it first",
    ),
    ErrorCase(
        "index_copy: places",
        lambda: lucid.index_copy(f32(3, 2), 0, i64(2), f32(3, 2)),
        lucid.ShapeError,
        "index_copy: 2 places for shape (3, 2); give one for each",
    ),
    ErrorCase(
        "masked_select: mask",
        lambda: lucid.masked_select(f32(3), i64(3)),
        lucid.DtypeError,
        "masked_select: mask is not bool: got int64",
    ),
    ErrorCase(
        "one_hot: floats",
        lambda: lucid.one_hot(f32(3)),
        lucid.DtypeError,
        "one_hot: classes must be int32 or int64: got float32",
    ),
    ErrorCase(
        "one_hot: no class",
        lambda: lucid.one_hot(i64(0)),
        lucid.UserError,
        "one_hot: no class to count from; give num_classes",
    ),
    ErrorCase(
        "one_hot: negative",
        lambda: lucid.one_hot(lucid.tensor([-2])),
        lucid.OutOfRangeError,
        "one_hot: a class is negative: the largest is -2; use classes from 0 on",
    ),
    ErrorCase(
        "pad: amounts",
        lambda: lucid.pad(f32(2), (1, 1, 1, 1)),
        lucid.UserError,
        "pad: got 4 numbers for a tensor of shape (2,); give two for each padded axis",
    ),
    ErrorCase(
        "pad: mode",
        lambda: lucid.pad(f32(2), (1, 1), mode="mirror"),
        lucid.UserError,
        "pad: unknown mode: got 'mirror'; use constant, reflect, replicate or circular",
    ),
    ErrorCase(
        "pad: cut off",
        lambda: lucid.pad(f32(2), (-2, -2)),
        lucid.ShapeError,
        "pad: more is cut off than there is: got shape (2,)",
    ),
    ErrorCase(
        "pad: reflect",
        lambda: lucid.pad(f32(2), (2, 2), mode="reflect"),
        lucid.ShapeError,
        "pad: reflect by 2 and 2 is too much for size 2",
    ),
    ErrorCase(
        "in place: shape",
        lambda: f32(3).mul_(f32(2, 3)),
        lucid.ShapeError,
        ("mul_: the result has shape (2, 3), the tensor (3,); use mul, which makes a new tensor"),
    ),
    ErrorCase(
        "in place: dtype",
        lambda: i64(3).mul_(f32(3)),
        lucid.DtypeError,
        (
            "mul_: the result is float32, the tensor int64, which cannot hold it; cast the "
            "tensor first"
        ),
    ),
    ErrorCase(
        "fill_: axes",
        lambda: f32(3).fill_(f32(3)),
        lucid.ShapeError,
        "fill_: value has axes: got shape (3,); use copy_",
    ),
    ErrorCase(
        "copy_: shapes",
        lambda: f32(3).copy_(f32(2)),
        lucid.ShapeError,
        "copy_: shapes differ: (3,) and (2,); reshape the source first",
    ),
    ErrorCase(
        "normal_: integers",
        lambda: i64(3).normal_(),
        lucid.DtypeError,
        "normal_: not a floating dtype: got int64; cast the tensor first",
    ),
    ErrorCase(
        "uniform_: range",
        lambda: f32(3).uniform_(1, 0),
        lucid.UserError,
        "uniform_: the range is empty: got 1 to 0; swap them",
    ),
    ErrorCase(
        "normal_: std",
        lambda: f32(3).normal_(0, -1),
        lucid.UserError,
        "normal_: std is negative: got -1; use 0 or more",
    ),
    ErrorCase(
        "exponential_: lambd",
        lambda: f32(3).exponential_(0),
        lucid.UserError,
        "exponential_: lambd must be positive: got 0",
    ),
    ErrorCase(
        "random_: range",
        lambda: i64(3).random_(3, 3),
        lucid.UserError,
        "random_: no integer is in range: got 3 to 3; give to",
    ),
    ErrorCase(
        "matmul: shapes",
        lambda: lucid.matmul(f32(2, 3), f32(4, 2)),
        lucid.ShapeError,
        (
            "matmul: inner sizes differ: first input (2, 3) has 3, second input (4, 2) has "
            "4; transpose or reshape one of them"
        ),
    ),
    ErrorCase(
        "mm: axes",
        lambda: lucid.mm(f32(3), f32(3, 2)),
        lucid.ShapeError,
        "mm: expected tensors of 2 and 2 axes: got (3,) and (3, 2); use matmul",
    ),
    ErrorCase(
        "bmm: batches",
        lambda: lucid.bmm(f32(2, 3, 4), f32(3, 4, 2)),
        lucid.ShapeError,
        "bmm: batches differ: (2, 3, 4) and (3, 4, 2); use matmul",
    ),
    ErrorCase(
        "dot: axes",
        lambda: lucid.dot(f32(2, 3), f32(3)),
        lucid.ShapeError,
        "dot: expected tensors of 1 and 1 axes: got (2, 3) and (3,); use matmul",
    ),
    ErrorCase(
        "tensordot: counts",
        lambda: lucid.tensordot(f32(2, 3), f32(3, 2), ([0], [0, 1])),
        lucid.UserError,
        "tensordot: numbers of axes differ: got [0] and [0, 1]",
    ),
    ErrorCase(
        "tensordot: shapes",
        lambda: lucid.tensordot(f32(2, 3), f32(4, 2), 1),
        lucid.ShapeError,
        "tensordot: shapes differ: (2, 3) at [1] and (4, 2) at [0]",
    ),
    ErrorCase(
        "tensordot: dims",
        lambda: lucid.tensordot(f32(2, 3), f32(3, 2), 3),
        lucid.UserError,
        "tensordot: dims out of range: got 3; use 0 or more axes",
    ),
    ErrorCase(
        "einsum: terms",
        lambda: lucid.einsum("ij,jk->ik", f32(2, 3)),
        lucid.UserError,
        "einsum: 'ij,jk->ik' has 2 terms for 1 tensors",
    ),
    ErrorCase(
        "einsum: axes",
        lambda: lucid.einsum("ij->i", f32(3)),
        lucid.UserError,
        ("einsum: 'ij' in 'ij->i' does not fit a tensor of 1 axes; use one letter for each axis"),
    ),
    ErrorCase(
        "einsum: result",
        lambda: lucid.einsum("ij->ik", f32(2, 3)),
        lucid.UserError,
        "einsum: the result of 'ij->ik' repeats or invents a letter",
    ),
    ErrorCase(
        "einsum: sizes",
        lambda: lucid.einsum("ij,jk->ik", f32(2, 3), f32(4, 2)),
        lucid.ShapeError,
        "einsum: 'j' stands for sizes 3 and 4",
    ),
    ErrorCase(
        "div: rounding_mode",
        lambda: lucid.div(f32(2), 2, rounding_mode="up"),
        lucid.UserError,
        "div: unknown rounding_mode: got 'up'; use None, 'trunc' or 'floor'",
    ),
    ErrorCase(
        "clamp: no bound",
        lambda: lucid.clamp(f32(2)),
        lucid.UserError,
        "clamp: no bound is given; give min, max or both",
    ),
    ErrorCase(
        "rand: integers",
        lambda: lucid.rand(2, dtype=lucid.int64),
        lucid.DtypeError,
        "rand: not a floating dtype: got int64; use randint for integers",
    ),
    ErrorCase(
        "randint: no size",
        lambda: lucid.randint(3),
        lucid.ArgumentTypeError,
        "randint: argument size is missing; give the shape",
    ),
    ErrorCase(
        "randint: range",
        lambda: lucid.randint(3, 3, (2,)),
        lucid.UserError,
        "randint: no integer is in range: got low 3, high 3",
    ),
    ErrorCase(
        "randint: sequence",
        lambda: lucid.randint((2,), (2,)),
        lucid.ArgumentTypeError,
        "randint: high must be an integer: got tuple",
    ),
    ErrorCase(
        "normal: std",
        lambda: lucid.normal(0.0, -1.0, (2,)),
        lucid.UserError,
        "normal: std is negative: got -1.0; use 0 or more",
    ),
    ErrorCase(
        "normal: no shape",
        lambda: lucid.normal(0.0, 1.0),
        lucid.UserError,
        "normal: no shape is known; give size or a tensor",
    ),
    ErrorCase(
        "multinomial: axes",
        lambda: lucid.multinomial(f32(2, 3, 4), 1),
        lucid.ShapeError,
        "multinomial: expected one or two axes: got shape (2, 3, 4)",
    ),
    ErrorCase(
        "multinomial: count",
        lambda: lucid.multinomial(lucid.ones(3), 4),
        lucid.UserError,
        "multinomial: cannot draw 4 of 3; draw 1 to 3, or use replacement",
    ),
    ErrorCase(
        "multinomial: weights",
        lambda: lucid.multinomial(f32(3), 1),
        lucid.UserError,
        "multinomial: the weights must be finite, none negative and not all 0 in a row",
    ),
    ErrorCase(
        "bernoulli: p",
        lambda: lucid.bernoulli(f32(3), 1.5),
        lucid.UserError,
        "bernoulli: p is no probability: got 1.5; use 0 to 1",
    ),
    ErrorCase(
        "mean: integers",
        lambda: lucid.mean(i64(3)),
        lucid.DtypeError,
        "mean: not a floating dtype: got int64; give dtype= or cast the tensor",
    ),
    ErrorCase(
        "var: integers",
        lambda: lucid.var(i64(3)),
        lucid.DtypeError,
        "var: not a floating dtype: got int64; cast the tensor first",
    ),
    ErrorCase(
        "var: unbiased and correction",
        lambda: lucid.var(f32(3), unbiased=True, correction=1),
        lucid.UserError,
        "var: both unbiased and correction are given; give one of them",
    ),
    ErrorCase(
        "norm: integers",
        lambda: lucid.norm(i64(3)),
        lucid.DtypeError,
        "norm: not a floating dtype: got int64; cast the tensor first",
    ),
    ErrorCase(
        "norm: p",
        lambda: lucid.norm(f32(3), "nuc"),
        lucid.UserError,
        "norm: unknown p: got 'nuc'; use a number or 'fro'",
    ),
    ErrorCase(
        "array: no copy",
        lambda: f32(2).__array__(numpy.float64, copy=False),
        lucid.UserError,
        "array: a copy is needed to give dtype <class 'numpy.float64'>; allow it",
    ),
    ErrorCase(
        "deepcopy: history",
        lambda: copy.deepcopy(leaf(2) * 2),
        lucid.AutogradError,
        (
            "deepcopy: the tensor is no leaf, and its history cannot be copied; copy "
            "x.detach().clone() instead"
        ),
    ),
    ErrorCase(
        "matmul: of two vectors",
        lambda: lucid.matmul(f32(3), f32(2)),
        lucid.ShapeError,
        (
            "matmul: shapes differ: (3,) and (2,); the last axis of the first must match the "
            "rows of the second"
        ),
    ),
    ErrorCase(
        "dtype: unknown",
        lambda: dtypes.dtype_from_name("float8"),
        lucid.DtypeError,
        (
            "dtype: unknown name: got 'float8'; use one of ['bfloat16', 'bool', 'float16', "
            "'float32', 'float64', 'int16', 'int32', 'int64', 'int8', 'uint8']"
        ),
    ),
    ErrorCase(
        "randint: high is a sequence",
        lambda: lucid.randint(0, (2,), (2,)),
        lucid.ArgumentTypeError,
        "randint: high must be an integer: got a sequence",
    ),
]
