"""The elements of a tensor as bytes, little-endian and row-major, and files written whole."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy

from lucid import _C
from lucid._C import Tensor
from lucid.functions.arguments import DeviceLike, place
from lucid.functions.data import to_array

Path = str | os.PathLike[str]

_BFLOAT16 = numpy.dtype("<u4")


def to_bytes(tensor: Tensor) -> bytes:
    """The elements; bfloat16 takes two bytes each."""
    array = to_array(tensor)
    if tensor.dtype is _C.bfloat16:  # given as float32, whose upper half it is
        return (array.view(_BFLOAT16) >> 16).astype("<u2").tobytes()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def num_bytes(dtype: _C.dtype, shape: Sequence[int]) -> int:
    """Bytes of a tensor."""
    return dtype.itemsize * math.prod(shape)


def from_bytes(
    data: bytes, dtype: _C.dtype, shape: Sequence[int], device: DeviceLike | None
) -> Tensor:
    """The tensor that ``to_bytes`` wrote; ``data`` has as many bytes as it takes."""
    assert len(data) == num_bytes(dtype, shape)
    if dtype is _C.bfloat16:
        words = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        wide = _C.from_numpy(words.view("<f4").reshape(shape), copy=True)
        return place(_C.emit("cast", wide, dtype=dtype), device)
    kind = numpy.dtype(bool if dtype is _C.bool_ else dtype.name).newbyteorder("<")
    array = numpy.frombuffer(data, kind).reshape(shape)
    if dtype is _C.bool_:
        # Another byte than 0 and 1 is no bool.
        array = numpy.asarray(array.view("u1") != 0)
    return place(_C.from_numpy(array.astype(kind.newbyteorder("=")), copy=True), device)


def write_whole(file: Path | IO[bytes], write: Callable[[IO[bytes]], Any]) -> None:
    """Write an open file, or a path's: that is replaced at the end, so never left half written."""
    if not isinstance(file, (str, os.PathLike)):
        write(file)
        return
    target = os.path.abspath(os.fspath(file))
    handle, name = tempfile.mkstemp(prefix=".lucid-", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as opened:
            write(opened)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp's files are private
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
