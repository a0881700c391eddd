"""Products of vectors, matrices and batches of matrices, and sums of products by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucid import _C
from lucid._C import Tensor, emit
from lucid.functions.arguments import cast, normalize_dim, reshaped
from lucid.functions.dtypes import promote_types
from lucid.functions.precision import autocast_as
from lucid.functions.reduction import norm
from lucid.functions.shape import diagonal, unsqueeze

__all__ = [
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "cdist",
    "dot",
    "einsum",
    "inner",
    "matmul",
    "mm",
    "mv",
    "outer",
    "tensordot",
    "trace",
]


def _product(a: Tensor, b: Tensor) -> Tensor:
    return emit("matmul", a, b, transpose_a=False, transpose_b=False)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product (..., n, k) x (..., k, m) -> (..., n, m).

    Leading axes broadcast. A vector on the left is a row, on the right a column, and its axis is
    missing in the result; two vectors give a 0-d tensor.

    Raises: ShapeError if the inner sizes differ or an operand has no axis, DtypeError if the dtypes
        differ.
    """
    left, right = input.ndim, other.ndim
    if left > 1 and right > 1:
        return emit("matmul", input, other, transpose_a=False, transpose_b=False)
    if left == 0 or right == 0 or input.shape[-1] != other.shape[-2 if right > 1 else -1]:
        raise _C.ShapeError(
            f"matmul: shapes differ: {tuple(input.shape)} and {tuple(other.shape)}; "
            "the last axis of the first must match the rows of the second"
        )
    rows = emit("reshape", input, shape=(1, input.shape[0])) if left == 1 else input
    columns = emit("reshape", other, shape=(other.shape[0], 1)) if right == 1 else other
    shape = _product(rows, columns)
    kept = list(shape.shape)
    if right == 1:
        del kept[-1]
    if left == 1:
        del kept[-1 if right == 1 else -2]
    return emit("reshape", shape, shape=kept)


def _require_axes(op: str, ranks: Sequence[int], *tensors: Tensor) -> None:
    for rank, x in zip(ranks, tensors, strict=True):
        if x.ndim != rank:
            shapes = " and ".join(str(tuple(y.shape)) for y in tensors)
            wanted = " and ".join(str(r) for r in ranks)
            raise _C.ShapeError(
                f"{op}: expected tensors of {wanted} axes: got {shapes}; use matmul"
            )


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices (n, k) x (k, m). Raises: ShapeError for other shapes."""
    _require_axes("mm", (2, 2), input, mat2)
    return _product(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices (b, n, k) x (b, k, m). Raises: ShapeError for others."""
    _require_axes("bmm", (3, 3), input, mat2)
    if input.shape[0] != mat2.shape[0]:
        raise _C.ShapeError(
            f"bmm: batches differ: {tuple(input.shape)} and {tuple(mat2.shape)}; use matmul"
        )
    return _product(input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix (n, k) and a vector (k,). Raises: ShapeError for other shapes."""
    _require_axes("mv", (2, 1), input, vec)
    return matmul(input, vec)


@autocast_as("widest")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of the products of two vectors of one size, 0-d. Raises: ShapeError for other shapes."""
    _require_axes("dot", (1, 1), input, tensor)
    return matmul(input, tensor)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of (n,) and one of (m,), (n, m). Raises: ShapeError."""
    _require_axes("outer", (1, 1), input, vec2)
    return emit("mul", emit("reshape", input, shape=(input.shape[0], 1)), vec2)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axes of both, whose sizes are equal; a 0-d tensor scales.

    Returns: the other axes of ``input``, then those of ``other``.
    """
    if input.ndim == 0 or other.ndim == 0:
        return emit("mul", input, other)
    return tensordot(input, other, ([-1], [-1]))


@autocast_as("float32")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all rows of one matrix to all rows of another; leading axes broadcast.

    Args:
        x1, x2: (..., n, k) and (..., m, k).
        p: order of the norm of the difference.

    Returns: (..., n, m). The differences are formed, so that equal rows have distance 0, whose
    gradient is 0.
    """
    if x1.ndim < 2 or x2.ndim < 2:
        raise _C.ShapeError(
            f"cdist: fewer than two axes: got {tuple(x1.shape)} and {tuple(x2.shape)}; "
            "give matrices"
        )
    return norm(emit("sub", unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


def trace(input: Tensor) -> Tensor:
    """Sum of a matrix' diagonal, 0-d. Raises: ShapeError for another number of axes."""
    _require_axes("trace", (2,), input)
    line = diagonal(input)
    return emit("sum", line, dims=(0,), keepdim=False)


def _combined(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """``beta * input + alpha * product``; with beta 0, nan in ``input`` has no effect."""
    if alpha != 1:
        product = emit("mul", product, alpha)
    if beta == 0:
        return product
    return emit("add", input if beta == 1 else emit("mul", input, beta), product)


@autocast_as("low")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``; ``input`` broadcasts to the product (n, m)."""
    return _combined(input, mm(mat1, mat2), beta, alpha)


@autocast_as("low")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``; ``input`` broadcasts to the product (n,)."""
    return _combined(input, mv(mat, vec), beta, alpha)


@autocast_as("low")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2)``; ``input`` broadcasts to the product."""
    return _combined(input, bmm(batch1, batch2), beta, alpha)


@autocast_as("widest")
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[int | Sequence[int]] = 2) -> Tensor:
    """Sum of products over pairs of axes.

    Args:
        dims: a number n: the last n axes of ``a`` with the first n of ``b``; or two lists of axes.

    Returns: the remaining axes of ``a``, then those of ``b``.
    Raises: ShapeError if paired axes differ in size, UserError if the lists differ in length.
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise _C.UserError(f"tensordot: dims out of range: got {dims}; use 0 or more axes")
        ours, theirs = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        first, second = [[d] if isinstance(d, int) else list(d) for d in dims]
        ours = [normalize_dim("tensordot", d, a.ndim) for d in first]
        theirs = [normalize_dim("tensordot", d, b.ndim) for d in second]
    if len(ours) != len(theirs):
        raise _C.UserError(f"tensordot: numbers of axes differ: got {ours} and {theirs}")
    if [a.shape[d] for d in ours] != [b.shape[d] for d in theirs]:
        raise _C.ShapeError(
            f"tensordot: shapes differ: {tuple(a.shape)} at {ours} and {tuple(b.shape)} at {theirs}"
        )
    kept_a = [d for d in range(a.ndim) if d not in ours]
    kept_b = [d for d in range(b.ndim) if d not in theirs]
    inner = math.prod(a.shape[d] for d in ours)
    rows = math.prod(a.shape[d] for d in kept_a)
    columns = math.prod(b.shape[d] for d in kept_b)
    left = reshaped(_permuted(a, kept_a + ours), (rows, inner))
    right = reshaped(_permuted(b, theirs + kept_b), (inner, columns))
    shape = [a.shape[d] for d in kept_a] + [b.shape[d] for d in kept_b]
    return reshaped(_product(left, right), shape)


def _permuted(input: Tensor, order: list[int]) -> Tensor:
    return input if order == sorted(order) else emit("permute", input, dims=order)


@autocast_as("low")
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """Sum of products in Einstein's notation, as in ``einsum("bij,bjk->bik", a, b)``.

    Args:
        equation: a letter for each axis, ``...`` for axes that broadcast; without ``->`` the result
            has the letters that occur once, in alphabetical order.
        operands: one tensor for each term; they are joined from left to right.

    Raises: UserError for a bad equation, ShapeError if one letter stands for different sizes.
    """
    given = operands[0] if len(operands) == 1 and not isinstance(operands[0], Tensor) else operands
    tensors = [x for x in given if isinstance(x, Tensor)]
    terms, result = _parse(equation, tensors)
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promote_types(dtype, x.dtype)
    parts = [_diagonals(term, cast(x, dtype)) for term, x in zip(terms, tensors, strict=True)]
    labels, joined = parts[0]
    for i, (other_labels, other) in enumerate(parts[1:], 1):
        needed = set(result).union(*[p[0] for p in parts[i + 1 :]])
        labels, joined = _join(labels, joined, other_labels, other, needed)
    gone = tuple(i for i, label in enumerate(labels) if label not in result)
    if gone:
        joined = emit("sum", joined, dims=gone, keepdim=False)
    labels = [label for label in labels if label in result]
    return _permuted(joined, [labels.index(label) for label in result])


def _parse(equation: str, tensors: list[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Labels of each term's axes and of the result's; axes of ``...`` are numbered from the end."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors) or not tensors:
        raise _C.UserError(
            f"einsum: {equation!r} has {len(terms)} terms for {len(tensors)} tensors"
        )
    labelled = [_labels(equation, t, x.ndim) for t, x in zip(terms, tensors, strict=True)]
    dots = max((sum(label.isdigit() for label in term) for term in labelled), default=0)
    sizes: dict[str, int] = {}
    for term, x in zip(labelled, tensors, strict=True):
        for label, n in zip(term, x.shape, strict=True):
            known = sizes.setdefault(label, n)
            if known == 1:
                sizes[label] = n
            elif n not in (1, known):
                raise _C.ShapeError(f"einsum: {label!r} stands for sizes {known} and {n}")
    if arrow:
        result = _labels(equation, right, len(right.replace("...", "")) + dots)
        if len(set(result)) != len(result) or not set(result) <= set(sizes):
            raise _C.UserError(f"einsum: the result of {equation!r} repeats or invents a letter")
        return labelled, result
    letters = "".join(terms).replace(".", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return labelled, [str(i) for i in range(dots - 1, -1, -1)] + once


def _labels(equation: str, term: str, ndim: int) -> list[str]:
    before, dots, after = term.partition("...")
    letters = before + after
    count = ndim - len(letters)
    if (letters and not letters.isalpha()) or count < 0 or (count and not dots):
        raise _C.UserError(
            f"einsum: {term!r} in {equation!r} does not fit a tensor of {ndim} axes; "
            "use one letter for each axis"
        )
    return [*before, *[str(i) for i in range(count - 1, -1, -1)], *after]


def _diagonals(labels: list[str], input: Tensor) -> tuple[list[str], Tensor]:
    """Axes of one label are reduced to their diagonal."""
    labels = list(labels)
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            input = diagonal(input, 0, first, second)
            del labels[second], labels[first]
            labels.append(label)
    return labels, input


def _join(
    ours: list[str], a: Tensor, theirs: list[str], b: Tensor, needed: set[str]
) -> tuple[list[str], Tensor]:
    """One tensor of two: labels of both that nothing else needs are summed by a matrix product."""
    ours, a = _without_lonely(ours, a, needed | set(theirs))
    theirs, b = _without_lonely(theirs, b, needed | set(ours))
    size_a, size_b = dict(zip(ours, a.shape, strict=True)), dict(zip(theirs, b.shape, strict=True))
    both = [c for c in ours if c in size_b]
    inner = [c for c in both if c not in needed]
    # A size of 1 against a larger one broadcasts, which only the element-wise product does.
    if not inner or any(size_a[c] != size_b[c] for c in both):
        return _join_elementwise(ours, a, theirs, b, needed)
    batch = [c for c in both if c in needed]
    rows = [c for c in ours if c not in both]
    columns = [c for c in theirs if c not in both]

    def matrix(x: Tensor, labels: list[str], groups: list[list[str]]) -> Tensor:
        sizes = dict(zip(labels, x.shape, strict=True))
        moved = _permuted(x, [labels.index(c) for group in groups for c in group])
        return reshaped(moved, [math.prod(sizes[c] for c in group) for group in groups])

    left = matrix(a, ours, [batch, rows, inner])
    right = matrix(b, theirs, [batch, inner, columns])
    labels = batch + rows + columns
    shape = [size_a.get(c, size_b.get(c, 1)) for c in labels]
    return labels, reshaped(_product(left, right), shape)


def _without_lonely(labels: list[str], x: Tensor, needed: set[str]) -> tuple[list[str], Tensor]:
    """Sums the axes that nobody else needs."""
    gone = tuple(i for i, c in enumerate(labels) if c not in needed)
    if gone:
        x = emit("sum", x, dims=gone, keepdim=False)
    return [c for c in labels if c in needed], x


def _join_elementwise(
    ours: list[str], a: Tensor, theirs: list[str], b: Tensor, needed: set[str]
) -> tuple[list[str], Tensor]:
    labels = ours + [c for c in theirs if c not in ours]

    def aligned(x: Tensor, own: list[str]) -> Tensor:
        order = [own.index(c) for c in labels if c in own]
        sizes = dict(zip(own, x.shape, strict=True))
        return reshaped(_permuted(x, order), [sizes.get(c, 1) for c in labels])

    product = emit("mul", aligned(a, ours), aligned(b, theirs))
    return _without_lonely(labels, product, needed)
