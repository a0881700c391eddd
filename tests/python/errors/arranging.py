"""What functions that arrange and search elements, norms and parametrizations refuse."""

from __future__ import annotations

import lucid
from lucid import nn
from lucid.nn.utils import parametrizations, parametrize
from lucid.optim import swa_utils
from lucid.utils.checkpoint import checkpoint, checkpoint_sequential

from .case import ErrorCase, f32, i64, leaf


class Halved(nn.Module):
    """Another shape than the weight's."""

    def forward(self, weight: lucid.Tensor) -> lucid.Tensor:
        return weight[:1]


def another_way() -> None:
    """A function whose second run differs from the first."""
    calls: list[int] = []

    def function(x: lucid.Tensor) -> lucid.Tensor:
        calls.append(0)
        return x.exp() if len(calls) == 1 else x.sin()

    checkpoint(function, leaf(2)).sum().backward()


CASES = [
    ErrorCase(
        "diag: three axes",
        lambda: lucid.diag(f32(2, 2, 2)),
        lucid.ShapeError,
        "diag: neither vector nor matrix: got shape (2, 2, 2); use diagonal or diag_embed",
    ),
    ErrorCase(
        "diag_embed: no axis",
        lambda: lucid.diag_embed(f32()),
        lucid.ShapeError,
        "diag_embed: a 0-d tensor has no axis; give a vector",
    ),
    ErrorCase(
        "diag_embed: one axis",
        lambda: lucid.diag_embed(f32(2), 0, 1, -1),
        lucid.UserError,
        "diag_embed: dim1 and dim2 are one axis: got 1 and -1",
    ),
    ErrorCase(
        "tril_indices: size",
        lambda: lucid.tril_indices(2, -1),
        lucid.ShapeError,
        "tril_indices: a size is negative: got 2 and -1; use 0 or more",
    ),
    ErrorCase(
        "unfold: window",
        lambda: f32(3).unfold(0, 4, 1),
        lucid.OutOfRangeError,
        "unfold: no window of 4 fits an axis of size 3",
    ),
    ErrorCase(
        "unfold: step",
        lambda: f32(3).unfold(0, 2, 0),
        lucid.UserError,
        "unfold: step must be positive: got 0",
    ),
    ErrorCase(
        "scatter_reduce: reduce",
        lambda: f32(3).scatter_reduce(0, i64(2), f32(2), "prod"),
        lucid.UnsupportedError,
        "scatter_reduce: reduce 'prod' is not available; use one of sum, mean, amax, amin",
    ),
    ErrorCase(
        "searchsorted: side",
        lambda: lucid.searchsorted(f32(3), f32(2), side="middle"),
        lucid.UserError,
        "searchsorted: unknown side: got 'middle'; use 'left' or 'right'",
    ),
    ErrorCase(
        "searchsorted: axes",
        lambda: lucid.searchsorted(f32(2, 3), f32(4, 3)),
        lucid.ShapeError,
        "searchsorted: leading axes differ: (2, 3) and (4, 3); reshape one first",
    ),
    ErrorCase(
        "bucketize: boundaries",
        lambda: lucid.bucketize(f32(2), f32(2, 2)),
        lucid.ShapeError,
        "bucketize: boundaries are not 1-d: got shape (2, 2); flatten them",
    ),
    ErrorCase(
        "bincount: dtype",
        lambda: lucid.bincount(f32(2)),
        lucid.DtypeError,
        "bincount: not an integer dtype: got float32",
    ),
    ErrorCase(
        "bincount: axes",
        lambda: lucid.bincount(i64(2, 2)),
        lucid.ShapeError,
        "bincount: not 1-d: got shape (2, 2); flatten it",
    ),
    ErrorCase(
        "bincount: negative",
        lambda: lucid.bincount(i64(2) - 3),
        lucid.OutOfRangeError,
        "bincount: a number is negative: got -3",
    ),
    ErrorCase(
        "cdist: vector",
        lambda: lucid.cdist(f32(2), f32(2, 2)),
        lucid.ShapeError,
        "cdist: fewer than two axes: got (2,) and (2, 2); give matrices",
    ),
    ErrorCase(
        "quantile: interpolation",
        lambda: lucid.quantile(f32(2), 0.5, interpolation="nearest"),
        lucid.UnsupportedError,
        "quantile: interpolation 'nearest'; use 'linear'",
    ),
    ErrorCase(
        "quantile: q",
        lambda: lucid.quantile(f32(2), 1.5),
        lucid.UserError,
        "quantile: q must be in 0 to 1: got 1.5",
    ),
    ErrorCase(
        "quantile: dtype",
        lambda: lucid.quantile(i64(2), 0.5),
        lucid.DtypeError,
        "quantile: not a floating dtype: got int64; cast the tensor first",
    ),
    ErrorCase(
        "set_float32_matmul_precision",
        lambda: lucid.set_float32_matmul_precision("low"),
        lucid.UserError,
        ("set_float32_matmul_precision: unknown precision: got 'low'; use highest, high or medium"),
    ),
    ErrorCase(
        "AveragedModel: functions",
        lambda: swa_utils.AveragedModel(
            nn.ReLU(),
            avg_fn=swa_utils.get_ema_avg_fn(),
            multi_avg_fn=swa_utils.get_ema_multi_avg_fn(),
        ),
        lucid.UserError,
        "AveragedModel: avg_fn and multi_avg_fn are given; choose one",
    ),
    ErrorCase(
        "get_ema_avg_fn: decay",
        lambda: swa_utils.get_ema_avg_fn(1.5),
        lucid.UserError,
        "get_ema_avg_fn: decay must be in 0 to 1: got 1.5",
    ),
    ErrorCase(
        "diff: n",
        lambda: lucid.diff(f32(2), -1),
        lucid.UserError,
        "diff: n is negative: got -1; use 0 or more",
    ),
    ErrorCase(
        "matrix_norm: vector",
        lambda: lucid.linalg.matrix_norm(f32(2)),
        lucid.ShapeError,
        "matrix_norm: no matrix: got shape (2,); use vector_norm",
    ),
    ErrorCase(
        "matrix_norm: singular values",
        lambda: lucid.linalg.norm(f32(2, 2), 2),
        lucid.UnsupportedError,
        "matrix_norm: ord 2 is not available; use 'fro', 1, -1, inf or -inf",
    ),
    ErrorCase(
        "linalg.norm: three axes",
        lambda: lucid.linalg.norm(f32(2, 2, 2), 1),
        lucid.ShapeError,
        (
            "norm: ord 1 needs one axis or two: got shape (2, 2, 2) and dim None; "
            "use vector_norm for others"
        ),
    ),
    ErrorCase(
        "linalg.norm: name and one axis",
        lambda: lucid.linalg.norm(f32(2), "nuc"),
        lucid.ShapeError,
        ("norm: ord 'nuc' needs two axes: got shape (2,) and dim None; use vector_norm for others"),
    ),
    ErrorCase(
        "matrix_norm: one axis twice",
        lambda: lucid.linalg.matrix_norm(f32(2, 2), dim=(0, -2)),
        lucid.UserError,
        "matrix_norm: an axis is named twice: got dim (0, -2); name each once",
    ),
    ErrorCase(
        "matrix_norm: dim",
        lambda: lucid.linalg.matrix_norm(f32(2, 2), dim=(0, 5)),
        lucid.OutOfRangeError,
        "matrix_norm: dim out of range: got 5 for a tensor of 2 axes; use -2 to 1",
    ),
    ErrorCase(
        "grad: only_inputs",
        lambda: lucid.autograd.grad(leaf(2).sum(), leaf(2), only_inputs=False),
        lucid.UserError,
        "grad: only_inputs must be True; use backward to add to all leaves",
    ),
    ErrorCase(
        "parametrization: type",
        lambda: parametrize.register_parametrization(nn.Linear(2, 3), "weight", Halved()),
        lucid.ShapeError,
        (
            "register_parametrization: the type would change: float32 (3, 2) to float32 (1, 2); "
            "pass unsafe=True"
        ),
    ),
    ErrorCase(
        "parametrization: none",
        lambda: parametrize.remove_parametrizations(nn.Linear(2, 3), "weight"),
        lucid.UserError,
        "remove_parametrizations: Linear has no parametrization of 'weight'",
    ),
    ErrorCase(
        "parametrization: several originals",
        lambda: parametrize.remove_parametrizations(
            parametrizations.weight_norm(nn.Linear(2, 3)), "weight", leave_parametrized=False
        ),
        lucid.UserError,
        ("remove_parametrizations: 'weight' has several originals; pass leave_parametrized=True"),
    ),
    ErrorCase(
        "parametrization: spectral_norm of nothing",
        lambda: parametrizations.spectral_norm(nn.ReLU()),
        lucid.UserError,
        "spectral_norm: ReLU has no parameter 'weight'",
    ),
    ErrorCase(
        "checkpoint: another way",
        another_way,
        lucid.AutogradError,
        (
            "checkpoint: the function ran other operations when it ran again for the backward; "
            "let it depend on its arguments only"
        ),
    ),
    ErrorCase(
        "checkpoint_sequential: segments",
        lambda: checkpoint_sequential([lucid.exp], 2, f32(2)),
        lucid.UserError,
        "checkpoint_sequential: 2 segments of 1 functions; use 1 to 1",
    ),
]
