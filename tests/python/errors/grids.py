"""What sampling at positions refuses."""

from __future__ import annotations

import lucid
import lucid.nn.functional as F

from .case import ErrorCase, f32, f64

CASES = [
    ErrorCase(
        "affine_grid: size",
        lambda: F.affine_grid(f32(1, 2, 3), (1, 2, 3)),
        lucid.ShapeError,
        "affine_grid: size must be 4 or 5 positive sizes: got (1, 2, 3)",
    ),
    ErrorCase(
        "affine_grid: theta",
        lambda: F.affine_grid(f32(1, 3, 4), (1, 2, 3, 4)),
        lucid.ShapeError,
        "affine_grid: theta does not go with size (1, 2, 3, 4): got shape (1, 3, 4); it must be "
        "(1, 2, 3)",
    ),
    ErrorCase(
        "grid_sample: axes",
        lambda: F.grid_sample(f32(1, 2, 3), f32(1, 2, 2)),
        lucid.ShapeError,
        "grid_sample: input and grid must both have 4 or 5 axes: got shapes (1, 2, 3) and "
        "(1, 2, 2)",
    ),
    ErrorCase(
        "grid_sample: grid",
        lambda: F.grid_sample(f32(2, 1, 3, 3), f32(1, 2, 2, 3)),
        lucid.ShapeError,
        "grid_sample: grid must be (2, ..., 2) for an input of shape (2, 1, 3, 3): got (1, 2, 2, "
        "3)",
    ),
    ErrorCase(
        "grid_sample: no elements",
        lambda: F.grid_sample(f32(1, 1, 0, 3), f32(1, 2, 2, 2)),
        lucid.ShapeError,
        "grid_sample: the image must not be empty: got shape (1, 1, 0, 3)",
    ),
    ErrorCase(
        "grid_sample: dtypes",
        lambda: F.grid_sample(f32(1, 1, 3, 3), f64(1, 2, 2, 2)),
        lucid.DtypeError,
        "grid_sample: input and grid must have one dtype: got float32 and float64; convert one "
        "with .to()",
    ),
    ErrorCase(
        "grid_sample: mode",
        lambda: F.grid_sample(f32(1, 1, 3, 3, 3), f32(1, 2, 2, 2, 3), mode="bicubic"),
        lucid.UserError,
        "grid_sample: mode must be bilinear, nearest or, for images, bicubic: got 'bicubic'",
    ),
    ErrorCase(
        "grid_sample: padding_mode",
        lambda: F.grid_sample(f32(1, 1, 3, 3), f32(1, 2, 2, 2), padding_mode="circular"),
        lucid.UserError,
        "grid_sample: padding_mode must be one of zeros, border, reflection: got 'circular'",
    ),
]
