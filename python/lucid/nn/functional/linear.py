"""Affine maps of the last axis."""

from __future__ import annotations

from lucid import _C
from lucid._C import Tensor
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import require_tensors


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b along the last axis.

    Args:
        input: (..., in_features), floating point.
        weight: (out_features, in_features), or (in_features,) for a single output.
        bias: (out_features,) or () respectively; None means 0.

    Returns: (..., out_features), or (...) for a single output.
    Raises: ShapeError if the shapes do not fit, DtypeError if the dtypes differ.
    """
    require_tensors("linear", input=input, weight=weight)
    if weight.ndim == 1:
        row = None if bias is None else bias.reshape(1)
        return _C.emit("linear", input, weight.reshape(1, -1), row).squeeze(-1)
    return _C.emit("linear", input, weight, bias)


@autocast_as("widest")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x1^T W_o x2 + b_o.

    Args:
        input1: (..., in1_features).
        input2: (..., in2_features), the same leading axes.
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,); None means 0.

    Returns: (..., out_features).
    Raises: ShapeError if the shapes do not fit.
    """
    require_tensors("bilinear", input1=input1, input2=input2, weight=weight)
    leading = tuple(input1.shape[:-1])
    fits = weight.ndim == 3 and tuple(weight.shape[1:]) == (input1.shape[-1], input2.shape[-1])
    if not fits or leading != tuple(input2.shape[:-1]):
        raise _C.ShapeError(
            f"bilinear: shapes do not fit: inputs {tuple(input1.shape)} and "
            f"{tuple(input2.shape)}, weight {tuple(weight.shape)}"
        )
    outputs, size1, size2 = weight.shape
    by_first = weight.permute(1, 0, 2).reshape(size1, outputs * size2)
    rows = _C.emit(
        "matmul", input1.reshape(-1, size1), by_first, transpose_a=False, transpose_b=False
    )
    product = _C.emit(
        "matmul",
        rows.reshape(-1, outputs, size2),
        input2.reshape(-1, size2, 1),
        transpose_a=False,
        transpose_b=False,
    ).reshape(*leading, outputs)
    return product if bias is None else product + bias
