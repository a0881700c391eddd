"""Joining samples into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Join samples of one structure along a new first axis.

    Args:
        batch: samples: tensors, NumPy arrays, numbers, strings, or mappings and sequences of
            those.

    Returns: a tensor (N, ...) for tensors, arrays and numbers (int64 or float64), the list of
        strings, and the same structure of batches for mappings and sequences. Tensors stay on
        their device; batches of arrays and numbers are on the cpu.
    Raises: ArgumentTypeError for another type, UserError if sequences differ in length.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return fn.stack(list(batch))
    if isinstance(first, (numpy.ndarray, numpy.generic)):
        return fn.tensor(numpy.stack([numpy.asarray(sample) for sample in batch]), device="cpu")
    if isinstance(first, bool):
        return fn.tensor(list(batch), dtype=_C.bool_, device="cpu")
    if isinstance(first, int):
        return fn.tensor(list(batch), dtype=_C.int64, device="cpu")
    if isinstance(first, float):
        return fn.tensor(list(batch), dtype=_C.float64, device="cpu")
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        columns = (default_collate(column) for column in zip(*batch, strict=True))
        return type(first)(*columns)
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise _C.UserError("default_collate: samples have different lengths; give a collate_fn")
        return [default_collate(column) for column in zip(*batch, strict=True)]
    raise _C.ArgumentTypeError(
        "default_collate: samples must be tensors, NumPy arrays, numbers, strings, dicts "
        f"or lists: got {type(first).__name__}"
    )
