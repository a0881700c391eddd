"""Parameters as one flat vector and back."""

from __future__ import annotations

from collections.abc import Iterable

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import no_grad


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of ``parameters``, one tensor after the other, as (n,)."""
    return fn.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Put the elements of ``vec`` into ``parameters``, in place.

    Raises: ArgumentTypeError unless ``vec`` is a tensor, ShapeError if it is too short.
    """
    if not isinstance(vec, Tensor):
        raise _C.ArgumentTypeError(
            f"vector_to_parameters: vec must be a Tensor: got {type(vec).__name__}"
        )
    start = 0
    with no_grad():
        for param in parameters:
            count = param.numel()
            if start + count > vec.numel():
                raise _C.ShapeError(
                    f"vector_to_parameters: vec is too short: got {vec.numel()} elements"
                )
            part = vec.detach().narrow(0, start, count).reshape(tuple(param.shape))
            param.assign_(part if part.dtype == param.dtype else part.to(param.dtype))
            start += count
