"""Norms of vectors and matrices."""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.arguments import Dims, normalize_dims

__all__ = ["matrix_norm", "norm", "vector_norm"]


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: _C.dtype | None = None,
) -> Tensor:
    """``sum(|x|**ord)**(1/ord)`` over ``dim`` (None: all axes), taken as one vector.

    Raises: DtypeError for a dtype that is not floating.
    """
    return fn.norm(x, ord, dim, keepdim, dtype)


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: _C.dtype | None = None,
) -> Tensor:
    """Norms of the matrices in two axes.

    Args:
        ord: ``"fro"``; inf and -inf: the largest and smallest sum of magnitudes of a row; 1 and -1:
            of a column.

    Raises: UnsupportedError for norms by singular values, ShapeError for fewer than two axes,
        OutOfRangeError or UserError for a ``dim`` that is no pair of axes.
    """
    if A.ndim < 2:
        raise _C.ShapeError(f"matrix_norm: no matrix: got shape {tuple(A.shape)}; use vector_norm")
    rows, columns = normalize_dims("matrix_norm", dim, A.ndim)
    if ord == "fro":
        return fn.norm(A, 2, (rows, columns), keepdim, dtype)
    if ord not in (1, -1, fn.inf, -fn.inf):
        raise _C.UnsupportedError(
            f"matrix_norm: ord {ord!r} is not available; use 'fro', 1, -1, inf or -inf"
        )
    summed, other = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = fn.norm(A, 1, summed, True, dtype)
    extreme = fn.amax if ord in (1, fn.inf) else fn.amin
    found = extreme(sums, other, True)
    return found if keepdim else fn.squeeze(found, (rows, columns))


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: _C.dtype | None = None,
) -> Tensor:
    """A vector's norm, or a matrix' where ``dim`` names two axes (or ``A`` has two) and ``ord`` is.

    Args:
        ord: None: the root of the sum of all squares, of any axes.
        dim: None: all axes.

    Raises: ShapeError for an ``ord`` that does not fit the number of axes; otherwise as
        ``vector_norm`` and ``matrix_norm``.
    """
    axes = A.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord is None or (axes == 1 and not isinstance(ord, str)):
        assert not isinstance(ord, str)
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    if axes != 2:
        needed = "two axes" if isinstance(ord, str) else "one axis or two"
        raise _C.ShapeError(
            f"norm: ord {ord!r} needs {needed}: got shape {tuple(A.shape)} and dim {dim}; "
            "use vector_norm for others"
        )
    pair = (-2, -1) if dim is None or isinstance(dim, int) else (dim[0], dim[1])
    return matrix_norm(A, ord, pair, keepdim, dtype=dtype)
