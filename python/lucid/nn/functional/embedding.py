"""Table look-up and one-hot vectors."""

from __future__ import annotations

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import from_front, require_tensors


def _padding_row(padding_idx: int, rows: int) -> int:
    """Return ``padding_idx`` counted from the front."""
    if not -rows <= padding_idx < rows:
        raise _C.OutOfRangeError(
            f"embedding: padding_idx must be within num_embeddings: got {padding_idx} for {rows}"
        )
    return padding_idx % rows


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` chosen by ``input``.

    Args:
        input: any shape, int32 or int64, 0 to V - 1.
        weight: (V, ...), usually (V, D).
        padding_idx: the row that gets no gradient; its values are looked up like any other.
        max_norm, norm_type, scale_grad_by_freq, sparse: PyTorch's; only the defaults are
            supported.

    Returns: (*input.shape, *weight.shape[1:]).
    Raises: OutOfRangeError for an index outside the table, UnsupportedError for an option.
    """
    require_tensors("embedding", input=input, weight=weight)
    options = {
        "max_norm": max_norm is not None,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    for name, is_set in options.items():
        if is_set:
            raise _C.UnsupportedError(f"embedding: {name} is not supported; leave it unset")
    rows = weight.shape[0]
    output = _C.emit("take", weight, from_front("embedding", input, rows), dim=0)
    if padding_idx is None:
        return output
    is_padding = (input == _padding_row(padding_idx, rows)).reshape(
        *input.shape, *(1 for _ in weight.shape[1:])
    )
    return fn.where(is_padding, output.detach(), output)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Vectors that are 1 at the class and 0 elsewhere.

    Args:
        tensor: any shape, int32 or int64, 0 to ``num_classes`` - 1.
        num_classes: -1 reads the largest class from the data, which a trace cannot do.

    Returns: (*tensor.shape, num_classes), int64.
    Raises: OutOfRangeError for a class outside the range.
    """
    require_tensors("one_hot", tensor=tensor)
    if num_classes == -1:
        if tensor.numel() == 0:
            raise _C.UserError("one_hot: num_classes must be given for an empty tensor")
        num_classes = int(fn.amax(tensor).item()) + 1
        if num_classes < 1:
            raise _C.OutOfRangeError(
                f"one_hot: a class is negative: the largest is {num_classes - 1}; "
                "use classes from 0 on"
            )
    if num_classes < 1:
        raise _C.UserError(f"one_hot: num_classes must be positive or -1: got {num_classes}")
    device = tensor.device
    shape = tuple(tensor.shape)
    zeros = fn.zeros((*shape, num_classes), dtype=_C.int64, device=device)
    ones = fn.ones((*shape, 1), dtype=_C.int64, device=device)
    index = from_front("one_hot", tensor, num_classes).unsqueeze(-1)
    return _C.emit("scatter", zeros, index, ones, dim=len(shape))
