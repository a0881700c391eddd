"""What functions of shape, order and subscripts refuse, and the methods of tensors."""

from __future__ import annotations

from typing import Any

import lucid

from .case import ErrorCase, f32, i64, truth


def assign(x: Any, place: Any, value: Any) -> None:
    x[place] = value


CASES = [
    ErrorCase(
        "flatten: order",
        lambda: lucid.flatten(f32(2, 3, 4), 2, 1),
        lucid.UserError,
        "flatten: start_dim comes after end_dim: got 2 and 1; swap them",
    ),
    ErrorCase(
        "unflatten: sizes",
        lambda: lucid.unflatten(f32(6), 0, (4, 2)),
        lucid.ShapeError,
        ("unflatten: the sizes do not fit: got (4, 2) for size 6; use sizes whose product is 6"),
    ),
    ErrorCase(
        "permute: dims",
        lambda: lucid.permute(f32(2, 3), (0, 0)),
        lucid.UserError,
        "permute: dims must name each axis once: got (0, 0) for a tensor of shape (2, 3)",
    ),
    ErrorCase(
        "t: axes",
        lambda: lucid.t(f32(2, 3, 4)),
        lucid.ShapeError,
        "t: more than two axes: got shape (2, 3, 4); use transpose or mT",
    ),
    ErrorCase(
        "movedim: lengths",
        lambda: lucid.movedim(f32(2, 3), (0, 1), (0,)),
        lucid.UserError,
        "movedim: lengths differ: got (0, 1) and (0,)",
    ),
    ErrorCase(
        "narrow: 0-d",
        lambda: lucid.narrow(f32(), 0, 0, 1),
        lucid.OutOfRangeError,
        "narrow: a 0-d tensor has no axis; give one with an axis",
    ),
    ErrorCase(
        "narrow: range",
        lambda: lucid.narrow(f32(3), 0, 2, 2),
        lucid.OutOfRangeError,
        "narrow: out of range: got start 2, length 2 for size 3",
    ),
    ErrorCase(
        "select: 0-d",
        lambda: lucid.select(f32(), 0, 0),
        lucid.OutOfRangeError,
        "select: a 0-d tensor has no axis; use item() to read it",
    ),
    ErrorCase(
        "select: range",
        lambda: lucid.select(f32(3), 0, 3),
        lucid.OutOfRangeError,
        "index: out of range: got 3 for axis 0 of size 3",
    ),
    ErrorCase(
        "unbind: 0-d",
        lambda: lucid.unbind(f32()),
        lucid.OutOfRangeError,
        "unbind: a 0-d tensor has no axis; give one with an axis",
    ),
    ErrorCase(
        "split: 0-d",
        lambda: lucid.split(f32(), 1),
        lucid.OutOfRangeError,
        "split: a 0-d tensor has no axis; give one with an axis",
    ),
    ErrorCase(
        "split: piece",
        lambda: lucid.split(f32(3), 0),
        lucid.UserError,
        "split: the size of a piece must be positive: got 0",
    ),
    ErrorCase(
        "split: sizes",
        lambda: lucid.split(f32(3), [1, 1]),
        lucid.UserError,
        "split: the sizes do not add up to the axis: got [1, 1] for size 3",
    ),
    ErrorCase(
        "chunk: chunks",
        lambda: lucid.chunk(f32(3), 0),
        lucid.UserError,
        "chunk: chunks must be positive: got 0",
    ),
    ErrorCase(
        "diagonal: dims",
        lambda: lucid.diagonal(f32(2, 3), 0, 1, 1),
        lucid.UserError,
        "diagonal: dim1 and dim2 are one axis: got 1 and 1",
    ),
    ErrorCase(
        "expand",
        lambda: f32(2, 3).expand(2, 4),
        lucid.ShapeError,
        ("expand: shapes do not fit: got (2, 3) for (2, 4); each axis must have that size or 1"),
    ),
    ErrorCase(
        "transpose: one axis",
        lambda: lucid.transpose(f32(2, 3), 0),
        lucid.UserError,
        "transpose: one axis is missing; give both dim0 and dim1, or none",
    ),
    ErrorCase(
        "cat: nothing",
        lambda: lucid.cat([]),
        lucid.UserError,
        "cat: no tensors are given; give at least one",
    ),
    ErrorCase(
        "cat: 0-d",
        lambda: lucid.cat([f32(), f32()]),
        lucid.ShapeError,
        "cat: a tensor has no axis; use stack for 0-d tensors",
    ),
    ErrorCase(
        "cat: shapes",
        lambda: lucid.cat([f32(2, 3), f32(2, 4)]),
        lucid.ShapeError,
        ("concat: shapes differ: (2, 3) and (2, 4); all sizes but that of axis 0 must be equal"),
    ),
    ErrorCase(
        "stack: nothing",
        lambda: lucid.stack([]),
        lucid.UserError,
        "stack: no tensors are given; give at least one",
    ),
    ErrorCase(
        "stack: shapes",
        lambda: lucid.stack([f32(2), f32(3)]),
        lucid.ShapeError,
        "stack: shapes differ: (2,) and (3,); reshape one first",
    ),
    ErrorCase(
        "repeat: counts",
        lambda: f32(2, 3).repeat(2),
        lucid.ShapeError,
        "repeat: got (2,) for shape (2, 3); give 0 or more for each axis",
    ),
    ErrorCase(
        "roll: lengths",
        lambda: lucid.roll(f32(2, 3), (1, 1), (0,)),
        lucid.UserError,
        "roll: lengths differ: got shifts (1, 1) and dims (0,)",
    ),
    ErrorCase(
        "meshgrid: indexing",
        lambda: lucid.meshgrid(f32(2), indexing="yx"),
        lucid.UserError,
        "meshgrid: unknown indexing: got 'yx'; use 'ij' or 'xy'",
    ),
    ErrorCase(
        "meshgrid: axes",
        lambda: lucid.meshgrid(f32(2, 3)),
        lucid.ShapeError,
        "meshgrid: a tensor has more than one axis; flatten it first",
    ),
    ErrorCase(
        "topk: k",
        lambda: lucid.topk(f32(3), 4),
        lucid.OutOfRangeError,
        "topk: k out of range: got 4 for size 3",
    ),
    ErrorCase(
        "kthvalue: k",
        lambda: lucid.kthvalue(f32(3), 0),
        lucid.OutOfRangeError,
        "kthvalue: k out of range: got 0 for size 3",
    ),
    ErrorCase(
        "median: empty",
        lambda: lucid.median(f32(0), 0),
        lucid.OutOfRangeError,
        "median: the axis has no elements; give at least one",
    ),
    ErrorCase(
        "index: floats",
        lambda: f32(3)[f32(1)],
        lucid.DtypeError,
        ("index: an index tensor cannot be float32; use bool for a mask, int64 for positions"),
    ),
    ErrorCase(
        "index: too many",
        lambda: f32(3)[0, 0],
        lucid.OutOfRangeError,
        "index: too many indices: got 2 for a tensor of 1 axis",
    ),
    ErrorCase(
        "index: two ellipses",
        lambda: f32(3)[..., ...],
        lucid.UserError,
        "index: more than one ellipsis; use '...' once",
    ),
    ErrorCase(
        "index: range",
        lambda: f32(3)[3],
        lucid.OutOfRangeError,
        "index: out of range: got 3 for axis 0 of size 3",
    ),
    ErrorCase(
        "index: step 0",
        lambda: f32(3)[::0],
        lucid.UserError,
        "index: a slice has step 0; use another step",
    ),
    ErrorCase(
        "index: bound",
        lambda: f32(3)["a":],
        lucid.ArgumentTypeError,
        "index: slice bounds must be integers: got slice('a', None, None)",
    ),
    ErrorCase(
        "index: text",
        lambda: f32(3)["a"],
        lucid.ArgumentTypeError,
        (
            "index: cannot index with str; use integers, slices, '...', None, masks or "
            "integer tensors"
        ),
    ),
    ErrorCase(
        "index: value",
        lambda: assign(f32(3), slice(0, 2), f32(3)),
        lucid.ShapeError,
        ("index: the value has shape (3,), the indexed part (2,); broadcast or reshape it first"),
    ),
    ErrorCase(
        "index: masked value",
        lambda: assign(lucid.ones(3), truth(3), f32(2)),
        lucid.ShapeError,
        ("index: the value has shape (2,), the indexed part (0,); broadcast or reshape it first"),
    ),
    ErrorCase(
        "index: mask's shape",
        lambda: f32(3)[truth(2)],
        lucid.ShapeError,
        ("index: the mask has shape (2,), the axes that it covers (3,); use a mask of that shape"),
    ),
    ErrorCase(
        "index: tensor out of range",
        lambda: f32(3)[lucid.tensor([3])],
        lucid.OutOfRangeError,
        "take: index out of range: 3 for size 3",
    ),
    ErrorCase(
        "len: 0-d",
        lambda: len(f32()),
        lucid.ArgumentTypeError,
        "len: a 0-d tensor has no length; use item()",
    ),
    ErrorCase(
        "bool: several elements",
        lambda: bool(f32(2)),
        lucid.UserError,
        (
            "bool: expected one element: got shape (2,); reduce it first, for example with "
            "any() or sum()"
        ),
    ),
    ErrorCase(
        "int: several elements",
        lambda: int(f32(2)),
        lucid.UserError,
        (
            "int: expected one element: got shape (2,); reduce it first, for example with "
            "any() or sum()"
        ),
    ),
    ErrorCase(
        "item: several",
        lambda: f32(2).item(),
        lucid.ShapeError,
        ("item: takes a tensor of one element: got shape (2,); reduce it first or use tolist()"),
    ),
    ErrorCase(
        "index: tensors",
        lambda: f32(3, 3)[i64(2), i64(3)],
        lucid.ShapeError,
        "index: the index tensors do not broadcast: (2,), (3,); reshape one first",
    ),
    ErrorCase(
        "index: masked rows",
        lambda: assign(f32(3, 2), truth(3), f32(3)),
        lucid.ShapeError,
        (
            "index: the value has shape (3,), the masked tensor (3, 2); give a number, or "
            "one that broadcasts"
        ),
    ),
    ErrorCase(
        "getitem of a view: range",
        lambda: f32(3, 2)[0, 2],
        lucid.OutOfRangeError,
        "index: out of range: got 2 for axis 1 of size 2",
    ),
    ErrorCase(
        "size: 0-d",
        lambda: f32().size(0),
        lucid.OutOfRangeError,
        "size: a 0-d tensor has no axis; use size() or shape",
    ),
    ErrorCase(
        "mT: one axis",
        lambda: f32(3).mT,
        lucid.ShapeError,
        "mT: fewer than two axes: got shape (3,); give a matrix",
    ),
    ErrorCase(
        "iter: 0-d",
        lambda: list(iter(f32())),
        lucid.ArgumentTypeError,
        "iter: a 0-d tensor has no elements; use item()",
    ),
    ErrorCase(
        "index: of a list",
        lambda: [1, 2][f32()],
        lucid.ArgumentTypeError,
        "index: only a 0-d integer tensor counts as an index: got float32 of shape ()",
    ),
]
