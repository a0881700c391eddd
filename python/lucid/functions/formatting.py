"""How tensors are printed."""

from __future__ import annotations

import numpy

from lucid import _C
from lucid._C import Tensor
from lucid.functions.data import to_array
from lucid.functions.dtypes import dtype_name

# A tensor of more elements is printed with this many at each end of an axis.
_MANY = 1000
_EDGE = 3


def _elements(x: Tensor) -> str:
    return numpy.array2string(
        to_array(x),
        precision=4,
        separator=", ",
        threshold=_MANY,
        edgeitems=_EDGE,
        prefix="tensor(",
        floatmode="maxprec_equal",
    )


def to_text(x: Tensor) -> str:
    """``tensor([[1., 2.]])``; the dtype is named unless it is that of a number's tensor.

    A symbolic tensor has no elements to show: ``tensor(<symbolic float32[2, 3]>)``.
    """
    name = dtype_name(x.dtype)
    if x.is_symbolic:
        return f"tensor(<symbolic {name}[{', '.join(str(n) for n in x.shape)}]>)"
    parts = [_elements(x)]
    if x.numel() == 0 and x.ndim > 1:
        parts.append(f"shape={tuple(x.shape)}")
    if x.dtype not in (_C.bool_, _C.int64, _C.get_default_dtype()) or (
        x.numel() == 0 and x.dtype is not _C.get_default_dtype()
    ):
        parts.append(f"dtype=lucid.{name}")
    if x.device.type != "cpu":
        parts.append(f"device={x.device.type!r}")
    if x.grad_fn is not None:
        parts.append(f"grad_fn={x.grad_fn!r}")
    elif x.requires_grad:
        parts.append("requires_grad=True")
    return f"tensor({', '.join(parts)})"


def format_element(x: Tensor, spec: str) -> str:
    """``format(x, spec)``: a tensor of no axes as its number, others by ``to_text``.

    Raises: ArgumentTypeError for a specification of a tensor with axes.
    """
    if x.ndim == 0 and not x.is_symbolic:
        return format(x.item(), spec)
    if spec:
        raise _C.ArgumentTypeError(
            f"format: a specification needs one number: got {spec!r} for shape {tuple(x.shape)}; "
            "use item()"
        )
    return to_text(x)
