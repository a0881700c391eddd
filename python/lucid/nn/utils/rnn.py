"""Sequences of different lengths in one tensor."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.nn.functional._arguments import require_tensors
from lucid.nn.packed import PackedSequence, Ragged

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


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
    Raises: UserError for no sequence or another side, ArgumentTypeError for what is no tensor,
        ShapeError for a tensor without axes.
    """
    if len(sequences) == 0:
        raise _C.UserError("pad_sequence: expected at least one sequence: got none")
    if padding_side not in ("left", "right"):
        raise _C.UserError(
            f"pad_sequence: padding_side must be left or right: got {padding_side!r}"
        )
    _require_sequences("pad_sequence", sequences)
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
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Drop the padding of sequences; recurrent layers take the result.

    Args:
        input: (T, N, *), or (N, T, *) with ``batch_first``.
        lengths: N lengths from 1 to T.
        enforce_sorted: they must not rise; False sorts the sequences.

    Returns: a PackedSequence.
    Raises: UserError for lengths that do not fit or rise, TraceError for a tensor of them in a
        trace, where the shapes depend on them: give a list, or pack outside.
    """
    op = "pack_padded_sequence"
    require_tensors(op, input=input)
    if input.ndim < 2:
        raise _C.ShapeError(f"{op}: input must be (T, N, *): got shape {tuple(input.shape)}")
    padded = input.transpose(0, 1) if batch_first else input
    counts = _lengths(op, lengths, int(padded.shape[0]), int(padded.shape[1]))
    order = None
    if not enforce_sorted:
        order = sorted(range(len(counts)), key=lambda i: -counts[i])
        counts = [counts[i] for i in order]
    elif any(later > sooner for sooner, later in itertools.pairwise(counts)):
        raise _C.UserError(f"{op}: lengths rise: got {counts}; pass enforce_sorted=False")
    ragged = Ragged(counts)
    sizes = ragged.batch_sizes
    padded = padded.narrow(0, 0, ragged.num_steps)
    if order is None:
        return PackedSequence.of_sizes(sizes, ragged.pack(padded))
    index = fn.tensor(order, dtype=_C.int64, device=input.device)
    data = ragged.pack(fn.index_select(padded, 1, index))
    return PackedSequence.of_sizes(sizes, data, index, invert_permutation(index))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack_padded_sequence`.

    Args:
        total_length: number of steps, at least the longest length; None for that.

    Returns: (T, N, *), or (N, T, *) with ``batch_first``, and the lengths (N,) int64.
    Raises: UserError for a ``total_length`` below the longest length.
    """
    op = "pad_packed_sequence"
    _require_packed(op, sequence)
    ragged = Ragged.of(sequence)
    if total_length is not None and total_length < ragged.num_steps:
        raise _C.UserError(
            f"{op}: total_length is below the longest sequence: got {total_length} for "
            f"{ragged.num_steps}"
        )
    padded = ragged.pad(sequence.data, padding_value, total_length)
    lengths = fn.tensor(ragged.lengths, dtype=_C.int64, device="cpu")
    if sequence.unsorted_indices is not None:
        padded = fn.index_select(padded, 1, sequence.unsorted_indices)
        lengths = fn.index_select(lengths, 0, sequence.unsorted_indices.to("cpu"))
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, *); see :func:`pad_sequence` and :func:`pack_padded_sequence`."""
    _require_sequences("pack_sequence", sequences)
    lengths = [int(sequence.shape[0]) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences (L_i, *) of a padded tensor.

    Raises: UserError for lengths that do not fit.
    """
    op = "unpad_sequence"
    require_tensors(op, padded_sequences=padded_sequences)
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    counts = _lengths(op, lengths, int(rows.shape[1]), int(rows.shape[0]))
    return [rows[i].narrow(0, 0, count) for i, count in enumerate(counts)]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences (L_i, *) of a packed one."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation: Tensor) -> Tensor:
    """The permutation that leads back."""
    return fn.argsort(permutation)


def _require_sequences(op: str, sequences: Sequence[Tensor]) -> None:
    for i, sequence in enumerate(sequences):
        require_tensors(op, **{f"sequence {i}": sequence})
        if sequence.ndim == 0:
            raise _C.ShapeError(
                f"{op}: sequence {i} must have at least one axis: got shape (); use .reshape(1)"
            )


def _require_packed(op: str, sequence: object) -> None:
    if not isinstance(sequence, PackedSequence):
        raise _C.ArgumentTypeError(
            f"{op}: expected a PackedSequence: got {type(sequence).__name__}; make one with "
            "pack_padded_sequence"
        )


def _lengths(op: str, lengths: Tensor | Sequence[int], longest: int, count: int) -> list[int]:
    """Lengths as ints. Raises: UserError unless there are ``count`` from 1 to ``longest``."""
    given = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    try:
        numbers = [operator.index(length) for length in given]
    except TypeError:
        raise _C.ArgumentTypeError(
            f"{op}: lengths must be ints, or a tensor (N,) of them: got {given!r}"
        ) from None
    if count == 0:
        raise _C.ShapeError(f"{op}: expected at least one sequence: got none")
    if len(numbers) != count or not all(1 <= length <= longest for length in numbers):
        raise _C.UserError(
            f"{op}: lengths must be {count} numbers from 1 to {longest}: got {numbers}"
        )
    return numbers
