"""Functions of the package's root that arrange, search and measure elements, as reference cases."""

from __future__ import annotations

from cases.case import NAN, apart, integers, normal, uniform, values
from reference_form import top

MATRIX = normal(3, 4)
LINE = values([-1.0, 0.0, 0.0, 0.5, 2.0])

# Where an element of the input is left out but equals the result, PyTorch gives it a share of the
# gradient: none does here.
SELVES = {
    True: values([[1.0, 5.0, 2.0, 0.5], [3.0, 3.0, -1.0, 4.0]]),
    False: values([[9.0] * 4, [8.0] * 4]),
}

ARRANGING = [
    top("diag of a vector", lambda t, x: (t.diag(x), t.diag(x, 2), x.diag(-1)), normal(3)),
    top("diag of a matrix", lambda t, x: (t.diag(x), t.diag(x, 1), t.diag(x, -2)), MATRIX),
    top(
        "diag_embed",
        lambda t, x: (t.diag_embed(x), t.diag_embed(x, 1, 0, 2), x.diag_embed(-2)),
        MATRIX,
    ),
    top(
        "atleast", lambda t, x: (t.atleast_1d(x[0, 0]), t.atleast_3d(x), t.atleast_2d(x[0])), MATRIX
    ),
    top("atleast several", lambda t, x: t.atleast_3d(x[0, 0], x[0], x), MATRIX),
    top("column_stack", lambda t, x: t.column_stack([x[:, 0], x]), MATRIX),
    top("dstack", lambda t, x: t.dstack([x, x[None][0]]), MATRIX),
    top("flips", lambda t, x: (t.fliplr(x), x.flipud(), t.flip(x, dims=(0, 1))), MATRIX),
    top("moveaxis", lambda t, x: t.moveaxis(x, (0, 1), (-1, 0)), normal(2, 3, 4)),
    top("split_with_sizes", lambda t, x: x.split_with_sizes([1, 3], 1), MATRIX),
    top("unfold", lambda t, x: (x.unfold(0, 2, 1), x.unfold(-1, 3, 2)), normal(4, 6)),
    top("unfold middle", lambda t, x: x.unfold(1, 2, 2), normal(2, 5, 3)),
    top(
        "triangles",
        lambda t, x: (x[tuple(t.tril_indices(3, 4))], x[tuple(t.triu_indices(3, 4, 1))]),
        MATRIX,
    ),
    top("keywords", lambda t, x: t.reshape(t.permute(x, dims=(1, 0)), shape=(2, 6)), MATRIX),
    top("expand keyword", lambda t, x: x.expand(size=(2, 3, 4)), MATRIX),
    top("diff", lambda t, x: (t.diff(x), x.diff(2, 0), t.diff(x, prepend=x[:, :1])), MATRIX),
    top("inner", lambda t, x, y: (t.inner(x, y), x[0].inner(y[0])), MATRIX, normal(2, 4)),
    top("cdist", lambda t, x, y: t.cdist(x, y), MATRIX, normal(5, 4)),
    top("cdist p", lambda t, x, y: t.cdist(x, y, p=1.0), normal(2, 3, 4), normal(2, 5, 4)),
    top("exp2", lambda t, x: t.exp2(x), normal(5)),
    top("logit", lambda t, x: (t.logit(x), t.logit(x, eps=0.2)), uniform(6, low=0.1, high=0.9)),
    top("nansum", lambda t, x: (t.nansum(x), t.nansum(x, 1)), values([[1.0, NAN], [2.0, 3.0]])),
    top("nanmean", lambda t, x: (t.nanmean(x, 1), x.nanmean()), values([[1.0, NAN], [2.0, 3.0]])),
    top(
        "vector_norm", lambda t, x: (t.linalg.vector_norm(x), t.linalg.vector_norm(x, 3, 1)), MATRIX
    ),
    top(
        "linalg.norm",
        lambda t, x: (t.linalg.norm(x), t.linalg.norm(x, dim=1), t.linalg.norm(x, "fro")),
        MATRIX,
    ),
    top(
        "matrix_norm",
        lambda t, x: [t.linalg.matrix_norm(x, p) for p in ("fro", 1, float("inf"))][1],
        apart(3, 4),
    ),
    top(
        "matrix_norm rows",
        lambda t, x: t.linalg.norm(x, float("inf"), (0, 2), True),
        apart(3, 2, 4),
    ),
    top(
        "searchsorted",
        lambda t, s, x: (
            t.searchsorted(s, x),
            t.searchsorted(s, x, right=True),
            t.searchsorted(s, x, side="right"),
            t.bucketize(x, s),
            t.bucketize(x, s, right=True),
        ),
        LINE,
        values([[-2.0, 0.0, 0.3], [2.0, 9.0, -1.0]]),
    ),
    top(
        "searchsorted rows",
        lambda t, s, x: t.searchsorted(s.sort(-1)[0], x, right=True),
        normal(3, 5),
        normal(3, 2),
    ),
    top(
        "isin",
        lambda t, x, y: (t.isin(x, y), t.isin(x, y, invert=True)),
        integers(3, 4),
        integers(5),
    ),
    top(
        "bincount",
        lambda t, x, w: (t.bincount(x), t.bincount(x, minlength=9), t.bincount(x, w.detach())),
        integers(7, low=0, high=5),
        normal(7),
    ),
    top("argwhere", lambda t, x: t.argwhere(x > 0), MATRIX),
    *(
        top(
            f"scatter_reduce {reduce} {'with' if own else 'without'} self",
            lambda t, x, i, s, reduce=reduce, own=own: t.scatter_reduce(
                x, 1, i, s, reduce, include_self=own
            ),
            SELVES[own],
            values([[0, 0, 1, 3, 3], [1, 1, 1, 2, 0]], "int64"),
            values([[1.0, 4.0, 5.0, 0.25, 0.25], [3.0, 3.0, 2.0, -2.0, 7.0]]),
        )
        for reduce in ("sum", "mean", "amax", "amin")
        for own in (True, False)
    ),
    top(
        "scatter_reduce integers",
        lambda t, x, i, s: tuple(
            t.zeros_like(x).scatter_reduce(0, i, s, r, include_self=False) for r in ("mean", "amin")
        ),
        integers(4),
        values([0, 0, 1, 3, 3], "int64"),
        integers(5),
    ),
    top("aminmax", lambda t, x: (*t.aminmax(x), *x.aminmax(dim=1, keepdim=True)), apart(3, 4)),
    top(
        "quantile",
        lambda t, x, q: (
            t.quantile(x, 0.3),
            x.quantile(q.detach()),
            t.quantile(x, q.detach(), dim=1),
            t.quantile(x, q.detach(), dim=0, keepdim=True),
            t.quantile(x, 0.5, keepdim=True),
            t.quantile(x, 1.0, dim=-1),
        ),
        apart(4, 5),
        values([0.0, 0.25, 0.6]),
    ),
    top(
        "quantile of nan",
        lambda t, x: t.quantile(x.detach(), 0.5, 1),
        values([[1.0, NAN], [2.0, 3.0]]),
    ),
    top(
        "index_put",
        lambda t, x, v, i: (
            t.index_put(x, (i[:2], i[:2] + 1), v[:2]),
            x.index_put((i,), v[:, None], accumulate=True),
            t.zeros_like(x).index_put_((i, i), v, True),
        ),
        MATRIX,
        normal(3),
        values([0, 2, 2], "int64"),
    ),
    top("type", lambda t, x: x.type(t.int64), MATRIX),
    top(
        "grad of nothing",
        lambda t, x, y: t.autograd.grad(x.exp().sum(), (x, y), materialize_grads=True),
        normal(3),
        normal(2),
    ),
]
