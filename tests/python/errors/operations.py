"""What the operations themselves refuse: their infer functions, called through emit."""

from __future__ import annotations

from typing import Any

import lucid

from .case import ErrorCase, emit, f32, f64, i64, truth

F32 = lucid.float32


def draw(low: int, high: int, dtype: Any = lucid.int64) -> Any:
    generator = lucid.default_generator
    return emit("random_int", generator, low=low, high=high, shape=[2], dtype=dtype)


CASES = [
    ErrorCase(
        "emit: unknown operation",
        lambda: emit("no_such"),
        lucid.UserError,
        "emit: no operation named no_such",
    ),
    ErrorCase(
        "emit: no name",
        lambda: lucid._C.emit(),
        lucid.UserError,
        "emit: needs the name of an operation",
    ),
    ErrorCase(
        "emit: name is no string",
        lambda: lucid._C.emit(3),
        lucid.ArgumentTypeError,
        "emit: the operation's name must be a string",
    ),
    ErrorCase(
        "emit: unknown attribute",
        lambda: emit("neg", f32(2), dim=1),
        lucid.UserError,
        "neg: no attribute named dim",
    ),
    ErrorCase(
        "emit: attribute missing",
        lambda: emit("softmax", f32(2)),
        lucid.UserError,
        "softmax: attribute dim is missing",
    ),
    ErrorCase(
        "emit: attribute of a wrong type",
        lambda: emit("softmax", f32(2), dim="last"),
        lucid.ArgumentTypeError,
        "softmax: dim must be an integer: got str",
    ),
    ErrorCase(
        "emit: bool attribute of a wrong type",
        lambda: emit("sum", f32(2), dims=[0], keepdim=1),
        lucid.ArgumentTypeError,
        "sum: keepdim must be a bool: got int",
    ),
    ErrorCase(
        "emit: float attribute of a wrong type",
        lambda: emit("leaky_relu", f32(2), negative_slope="a"),
        lucid.ArgumentTypeError,
        "leaky_relu: negative_slope must be a number: got str",
    ),
    ErrorCase(
        "emit: string attribute of a wrong type",
        lambda: emit("gelu", f32(2), approximate=1),
        lucid.ArgumentTypeError,
        "gelu: approximate must be a string: got int",
    ),
    ErrorCase(
        "emit: list attribute of a wrong type",
        lambda: emit("reshape", f32(2), shape=2),
        lucid.ArgumentTypeError,
        "reshape: shape must be a sequence of integers: got int",
    ),
    ErrorCase(
        "emit: dtype attribute of a wrong type",
        lambda: emit("cast", f32(2), dtype="float32"),
        lucid.ArgumentTypeError,
        "cast: dtype must be a dtype: got str",
    ),
    ErrorCase(
        "emit: integer of 65 bits",
        lambda: emit("full", shape=[2**64], dtype=F32, value=0),
        lucid.UserError,
        "full: shape does not fit into 64 bits",
    ),
    ErrorCase(
        "emit: operand of 65 bits",
        lambda: emit("add", i64(2), 2**64),
        lucid.UserError,
        "add: number does not fit into 64 bits",
    ),
    ErrorCase(
        "emit: operand is a string",
        lambda: emit("neg", "text"),
        lucid.ArgumentTypeError,
        (
            "neg: operands must be tensors or numbers: got str; convert it with lucid.tensor "
            "or lucid.from_numpy"
        ),
    ),
    ErrorCase(
        "emit: too few inputs",
        lambda: emit("add", f32(2)),
        lucid.UserError,
        "add: takes 2 inputs: got 1",
    ),
    ErrorCase(
        "emit: too many inputs",
        lambda: emit("neg", f32(2), f32(2)),
        lucid.UserError,
        "neg: takes 1 input: got 2",
    ),
    ErrorCase(
        "emit: absent input", lambda: emit("neg", None), lucid.UserError, "neg: input 0 is missing"
    ),
    ErrorCase(
        "emit: generator as input",
        lambda: emit("neg", lucid.default_generator),
        lucid.ArgumentTypeError,
        "neg: input 0 is a generator; pass a tensor",
    ),
    ErrorCase(
        "view: no tensor",
        lambda: lucid._C.view("reshape"),
        lucid.UserError,
        "view: takes an operation's name and a tensor",
    ),
    ErrorCase(
        "view: number as base",
        lambda: lucid._C.view("reshape", 3, shape=[]),
        lucid.ArgumentTypeError,
        (
            "view: the base must be a Tensor: got int; convert it with lucid.tensor or "
            "lucid.from_numpy"
        ),
    ),
    ErrorCase(
        "op_info: unknown",
        lambda: lucid._C.op_info("no_such"),
        lucid.UserError,
        "op_info: no operation named no_such",
    ),
    ErrorCase(
        "decompose: no name",
        lambda: lucid._C.decompose(),
        lucid.UserError,
        "decompose: needs the name of an operation",
    ),
    ErrorCase(
        "decompose: no decomposition",
        lambda: lucid._C.decompose("relu", f32(2)),
        lucid.UserError,
        "decompose: the operation has no simpler form: relu; op_info tells which have one",
    ),
    ErrorCase(
        "decompose: number",
        lambda: lucid._C.decompose("silu", 1.0),
        lucid.ArgumentTypeError,
        "decompose: an input is no tensor; pass tensors and None",
    ),
    ErrorCase(
        "decompose: integers",
        lambda: lucid._C.decompose("silu", i64(2)),
        lucid.DtypeError,
        "silu: dtype is not floating: int64; cast to a floating dtype first",
    ),
    ErrorCase(
        "shape: nine axes",
        lambda: lucid.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1),
        lucid.ShapeError,
        "full: tensor of 9 axes: at most 8 are supported; merge axes with reshape",
    ),
    ErrorCase(
        "shape: negative",
        lambda: emit("full", shape=[-2], dtype=F32, value=0),
        lucid.ShapeError,
        "full: negative size -2 in a shape",
    ),
    ErrorCase(
        "shape: too large",
        lambda: emit("full", shape=[2**31, 2**31], dtype=F32, value=0),
        lucid.ShapeError,
        "full: shape (2147483648, 2147483648) has 2^60 elements or more",
    ),
    ErrorCase(
        "axis out of range",
        lambda: emit("softmax", f32(2, 3), dim=2),
        lucid.OutOfRangeError,
        "softmax: axis out of range: 2 for shape (2, 3); use 0 to 1",
    ),
    ErrorCase(
        "axis of a 0-d tensor",
        lambda: emit("softmax", f32(), dim=0),
        lucid.OutOfRangeError,
        (
            "softmax: axis out of range: 0 for shape (); a 0-d tensor has no axes, reshape "
            "it to (1,) first"
        ),
    ),
    ErrorCase(
        "axis twice",
        lambda: emit("sum", f32(2, 3), dims=[1, 1], keepdim=False),
        lucid.UserError,
        "sum: axis stands twice: 1 in [1, 1]; list each axis once",
    ),
    ErrorCase(
        "dtypes differ",
        lambda: emit("slice_update", f32(2), f64(2), starts=[0], steps=[1]),
        lucid.DtypeError,
        "slice_update: dtypes differ: float32 and float64; cast one of them first",
    ),
    ErrorCase(
        "not floating",
        lambda: emit("softmax", i64(2), dim=0),
        lucid.DtypeError,
        "softmax: input must be floating point: got int64; cast it to float32 first",
    ),
    ErrorCase(
        "not a number",
        lambda: emit("neg", truth(2)),
        lucid.DtypeError,
        "neg: dtype is not a number: bool; cast to an integer or floating dtype first",
    ),
    ErrorCase(
        "floating where bits are asked",
        lambda: emit("bitwise_not", f32(2)),
        lucid.DtypeError,
        "bitwise_not: dtype is floating: float32; cast to an integer dtype or bool first",
    ),
    ErrorCase(
        "index not integral",
        lambda: emit("take", f32(2), f32(2), dim=0),
        lucid.DtypeError,
        "take: dtype does not fit an index: float32; cast to int32 or int64 first",
    ),
    ErrorCase(
        "generator state",
        lambda: emit("uniform", f32(2), shape=[2], dtype=F32),
        lucid.ArgumentTypeError,
        (
            "uniform: input is no generator state: float32[2]; pass int64[2], the seed and "
            "the offset"
        ),
    ),
    ErrorCase(
        "shapes do not broadcast",
        lambda: emit("add", f32(2, 3), f32(4)),
        lucid.ShapeError,
        "add: shapes differ: (2, 3) and (4,); broadcast one of them first",
    ),
    ErrorCase(
        "three shapes do not broadcast",
        lambda: emit("where", truth(2), f32(3), f32()),
        lucid.ShapeError,
        "where: shapes differ: (2,), (3,) and (); broadcast one of them first",
    ),
    ErrorCase(
        "condition not bool",
        lambda: emit("where", f32(2), f32(2), f32(2)),
        lucid.DtypeError,
        "where: condition is not bool: float32; compare or cast to bool first",
    ),
    ErrorCase(
        "gelu: form",
        lambda: emit("gelu", f32(2), approximate="erf"),
        lucid.UserError,
        "gelu: approximate is unknown: 'erf'; use 'none' or 'tanh'",
    ),
    ErrorCase(
        "arange: bool",
        lambda: emit("arange", start=0, step=1, count=2, dtype=lucid.bool_),
        lucid.DtypeError,
        "arange: dtype is not a number: bool; use an integer or floating dtype",
    ),
    ErrorCase(
        "arange: negative count",
        lambda: emit("arange", start=0, step=1, count=-2, dtype=F32),
        lucid.UserError,
        "arange: count is negative: -2; use 0 or more",
    ),
    ErrorCase(
        "constant: bytes",
        lambda: emit("constant", data="abc", shape=[2], dtype=F32),
        lucid.UserError,
        "constant: data has another size: 3 bytes for float32[2]; give 8",
    ),
    ErrorCase(
        "uniform: integers",
        lambda: emit("uniform", lucid.default_generator, shape=[2], dtype=lucid.int64),
        lucid.DtypeError,
        "uniform: dtype is not floating: int64; draw float32 and cast, or use random_int",
    ),
    ErrorCase(
        "random_int: floats",
        lambda: draw(0, 2, F32),
        lucid.DtypeError,
        "random_int: dtype is not an integer: float32; draw int64 and cast",
    ),
    ErrorCase(
        "random_int: empty range",
        lambda: draw(3, 3),
        lucid.UserError,
        "random_int: range is empty: 3 to 3; low must be less than high",
    ),
    ErrorCase(
        "random_int: range too wide",
        lambda: draw(0, 300, lucid.uint8),
        lucid.UserError,
        "random_int: range does not fit uint8: 0 to 300; use a wider dtype",
    ),
    ErrorCase(
        "dropout: probability",
        lambda: emit("dropout", f32(2), lucid.default_generator, p=1.5),
        lucid.UserError,
        "dropout: probability out of range: 1.5; use 0 to 1",
    ),
    ErrorCase(
        "reshape: elements",
        lambda: emit("reshape", f32(2, 3), shape=[4]),
        lucid.ShapeError,
        "reshape: element counts differ: (2, 3) has 6 and (4,) has 4; choose a shape of 6",
    ),
    ErrorCase(
        "permute: axis twice",
        lambda: emit("permute", f32(2, 3), dims=[0, 0]),
        lucid.UserError,
        "permute: axis stands twice: 0 in [0, 0]; list each axis once",
    ),
    ErrorCase(
        "permute: axis missing",
        lambda: emit("permute", f32(2, 3), dims=[0]),
        lucid.UserError,
        (
            "permute: dims do not list every axis: [0] for shape (2, 3); list each of its 2 "
            "axes once"
        ),
    ),
    ErrorCase(
        "broadcast_to",
        lambda: emit("broadcast_to", f32(2, 3), shape=[2, 4]),
        lucid.ShapeError,
        (
            "broadcast_to: shape does not broadcast: (2, 3) to (2, 4); sizes must be equal "
            "or 1, aligned at the last axis"
        ),
    ),
    ErrorCase(
        "concat: shapes",
        lambda: emit("concat", f32(2, 3), f32(2, 4), dim=0),
        lucid.ShapeError,
        ("concat: shapes differ: (2, 3) and (2, 4); all sizes but that of axis 0 must be equal"),
    ),
    ErrorCase(
        "pad: widths",
        lambda: emit("pad", f32(2, 3), low=[1], high=[1, 1], value=0),
        lucid.UserError,
        (
            "pad: widths do not fit: low [1] and high [1, 1] for shape (2, 3); give one "
            "width for each axis"
        ),
    ),
    ErrorCase(
        "pad: negative width",
        lambda: emit("pad", f32(2), low=[-1], high=[0], value=0),
        lucid.UserError,
        ("pad: width out of range: low [-1] and high [0]; use 0 or more, and cut with slice"),
    ),
    ErrorCase(
        "slice: entries",
        lambda: emit("slice", f32(2, 3), starts=[0], sizes=[1], steps=[1]),
        lucid.UserError,
        (
            "slice: window does not fit: starts [0], sizes [1] and steps [1] for shape (2, "
            "3); give one entry for each axis"
        ),
    ),
    ErrorCase(
        "slice: out of range",
        lambda: emit("slice", f32(4), starts=[2], sizes=[3], steps=[1]),
        lucid.OutOfRangeError,
        (
            "slice: window out of range: start 2, size 3 and step 1 on axis 0 of shape (4,); "
            "keep each element on the axis"
        ),
    ),
    ErrorCase(
        "slice_update: out of range",
        lambda: emit("slice_update", f32(4), f32(3), starts=[2], steps=[1]),
        lucid.OutOfRangeError,
        (
            "slice_update: window out of range: start 2, size 3 and step 1 on axis 0 of "
            "shape (4,); keep each element on the axis"
        ),
    ),
    ErrorCase(
        "take: axes",
        lambda: emit("take", f32(1, 1, 1, 1, 1), i64(1, 1, 1, 1, 1), dim=0),
        lucid.ShapeError,
        (
            "take: result has too many axes: 9 of shapes (1, 1, 1, 1, 1) and (1, 1, 1, 1, "
            "1); at most 8 are supported"
        ),
    ),
    ErrorCase(
        "index_add: source",
        lambda: emit("index_add", f32(4, 3), i64(2), f32(3, 3), dim=0),
        lucid.ShapeError,
        ("index_add: source does not fit: (3, 3) for input (4, 3) and index (2,); use (2, 3)"),
    ),
    ErrorCase(
        "gather: index",
        lambda: emit("gather", f32(4, 3), i64(2, 5), dim=0),
        lucid.ShapeError,
        (
            "gather: index does not fit: (2, 5) for input (4, 3); it needs the same rank "
            "and, off axis 0, sizes no larger than the input's"
        ),
    ),
    ErrorCase(
        "scatter: source",
        lambda: emit("scatter", f32(4, 3), i64(2, 3), f32(2, 2), dim=0),
        lucid.ShapeError,
        (
            "scatter: shapes of index and source differ: (2, 3) and (2, 2); slice the source "
            "to the index's shape"
        ),
    ),
    ErrorCase(
        "argmax: empty axis",
        lambda: emit("argmax", f32(0, 3), dim=0, keepdim=False),
        lucid.ShapeError,
        "argmax: axis is empty: axis 0 of shape (0, 3); reduce an axis that has elements",
    ),
    ErrorCase(
        "amax: empty axis",
        lambda: emit("amax", f32(0, 3), dims=[0], keepdim=False),
        lucid.ShapeError,
        "amax: axis is empty: axis 0 of shape (0, 3); reduce an axis that has elements",
    ),
    ErrorCase(
        "take: index",
        lambda: emit("take", f32(5), lucid.tensor([7]), dim=0),
        lucid.OutOfRangeError,
        "take: index out of range: 7 for size 5",
    ),
    ErrorCase(
        "gather: index out of range",
        lambda: emit("gather", f32(5), lucid.tensor([-6]), dim=0),
        lucid.OutOfRangeError,
        "gather: index out of range: -6 for size 5",
    ),
    ErrorCase(
        "scatter: index out of range",
        lambda: emit("scatter", f32(5), lucid.tensor([5]), f32(1), dim=0),
        lucid.OutOfRangeError,
        "scatter: index out of range: 5 for size 5",
    ),
    ErrorCase(
        "index_add: index out of range",
        lambda: emit("index_add", f32(5), lucid.tensor([5]), f32(1), dim=0),
        lucid.OutOfRangeError,
        "index_add: index out of range: 5 for size 5",
    ),
    ErrorCase(
        "floor_divide: by zero",
        lambda: i64(2) // lucid.tensor([1, 0]),
        lucid.UserError,
        (
            "floor_divide: integer division by zero; convert the operands with .float(), or "
            "replace the zeros with lucid.where"
        ),
    ),
    ErrorCase(
        "remainder: by zero",
        lambda: i64(2) % 0,
        lucid.UserError,
        (
            "remainder: integer division by zero; convert the operands with .float(), or "
            "replace the zeros with lucid.where"
        ),
    ),
    ErrorCase(
        "fmod: by zero",
        lambda: lucid.fmod(lucid.tensor([1], dtype=lucid.uint8), 0),
        lucid.UserError,
        (
            "fmod: integer division by zero; convert the operands with .float(), or replace "
            "the zeros with lucid.where"
        ),
    ),
    ErrorCase(
        "pow: negative exponent",
        lambda: lucid.pow(i64(2), lucid.tensor([2, -1])),
        lucid.UserError,
        (
            "pow: integers to negative integer powers are not allowed; convert the base with "
            ".float()"
        ),
    ),
    ErrorCase(
        "pow: negative number",
        lambda: lucid.pow(i64(2), -1),
        lucid.UserError,
        (
            "pow: integers to negative integer powers are not allowed; convert the base with "
            ".float()"
        ),
    ),
    ErrorCase(
        "cumsum: bool kernel",
        lambda: emit("cumsum", truth(2), dim=0),
        lucid.DtypeError,
        "cumsum: dtype is not a number: bool; cast to an integer or floating dtype first",
    ),
    ErrorCase(
        "prod: bool kernel",
        lambda: emit("prod", truth(2), dims=[0], keepdim=False),
        lucid.DtypeError,
        "prod: dtype is not a number: bool; cast to an integer or floating dtype first",
    ),
]
