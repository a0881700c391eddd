"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack sequences, padded to the longest.

    Args:
        sequences: tensors (L_i, *), alike after the first axis.
        batch_first: (N, L, *) instead of (L, N, *).
        padding_side: "right" or "left".

    Returns: (L, N, *) or (N, L, *).
    Raises: UserError for no sequence or another side.
    """
    if len(sequences) == 0:
        raise _C.UserError("pad_sequence: expected at least one sequence: got none")
    if padding_side not in ("left", "right"):
        raise _C.UserError(
            f"pad_sequence: padding_side must be left or right: got {padding_side!r}"
        )
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        low, high = (missing, 0) if padding_side == "left" else (0, missing)
        rest = (0,) * (sequence.ndim - 1)
        padded.append(
            _C.emit("pad", sequence, low=(low, *rest), high=(high, *rest), value=padding_value)
        )
    return fn.stack(padded, dim=0 if batch_first else 1)


def pack_padded_sequence(
    input: Tensor, lengths: object, batch_first: bool = False, enforce_sorted: bool = True
) -> Tensor:
    """Packed sequences do not exist here: their shapes depend on the lengths.

    Raises: UnsupportedError, always.
    """
    raise _C.UnsupportedError(
        "pack_padded_sequence: packed sequences are not supported; run the padded input and take "
        "output[lengths - 1, arange(N)]"
    )
