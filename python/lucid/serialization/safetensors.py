"""The safetensors format: a JSON header, then the elements of every tensor, one after the other.

Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import IO, Any

from lucid import _C
from lucid._C import Tensor
from lucid.functions.arguments import DeviceLike, as_device, refuse_in_trace
from lucid.serialization.elements import Path, from_bytes, num_bytes, to_bytes, write_whole

__all__ = ["load_safetensors", "save_safetensors"]

_METADATA = "__metadata__"
_MAX_HEADER = 100_000_000
_NAMES = {
    _C.bool_: "BOOL",
    _C.uint8: "U8",
    _C.int8: "I8",
    _C.int16: "I16",
    _C.int32: "I32",
    _C.int64: "I64",
    _C.float16: "F16",
    _C.bfloat16: "BF16",
    _C.float32: "F32",
    _C.float64: "F64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def save_safetensors(
    tensors: Mapping[str, Tensor], filename: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name in the safetensors format.

    Args:
        tensors: as ``module.state_dict()``; a tensor under two names is written twice.
        filename: the path; an older file is replaced once all is written.
        metadata: strings by name for the header.

    Raises: ArgumentTypeError for names that are no strings or values that are no tensors, UserError
        for the name ``__metadata__``; nothing is written then.
    """
    refuse_in_trace("save_safetensors", "a step is being traced", "save after it")
    header: dict[str, Any] = {}
    if metadata is not None:
        header[_METADATA] = _checked_metadata(metadata)
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _C.ArgumentTypeError(
                "save_safetensors: takes tensors by name: got "
                f"{type(name).__name__}: {type(tensor).__name__}"
            )
        if name == _METADATA:
            raise _C.UserError(
                f"save_safetensors: the name {_METADATA} is the format's own; rename the tensor"
            )
    # Wide elements first keeps every tensor aligned, as the format's own writer does.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + num_bytes(tensor.dtype, tensor.shape)
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def write(file: IO[bytes]) -> None:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(to_bytes(tensors[name]))

    write_whole(filename, write)


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    if all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
        return dict(metadata)
    raise _C.ArgumentTypeError("save_safetensors: metadata must be strings by name")


def load_safetensors(filename: Path, device: DeviceLike = "cpu") -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, by name, in the order of the file.

    Args:
        device: where the tensors are made.

    Raises: UserError for a file of another kind, or one that is damaged; UnsupportedError for a
        dtype that lucid lacks; OSError as ``open`` does.
    """
    refuse_in_trace("load_safetensors", "a step is being traced", "load before it")
    name = os.fspath(filename)
    made_on = as_device(device)
    _C.require_device(made_on)
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _read_header(name, file, size)
        places = sorted(
            ((key, *_place(name, key, entry)) for key, entry in header.items() if key != _METADATA),
            key=lambda place: place[3:],
        )
        end = 0
        tensors = {}
        for key, dtype, shape, begin, stop in places:
            if begin != end or stop - begin != num_bytes(dtype, shape):
                raise _damaged(name, f"tensor {key!r} has bytes {begin} to {stop}")
            end = stop
        if start + end != size:
            raise _damaged(name, f"{size} bytes, the header tells of {start + end}")
        for key, dtype, shape, begin, stop in places:
            data = file.read(stop - begin)
            try:
                tensors[key] = from_bytes(data, dtype, shape, made_on)
            except ValueError:  # more axes, or larger ones, than a tensor can have
                raise _damaged(name, f"tensor {key!r} has shape {shape}") from None
    return tensors


def _damaged(name: str, what: str) -> _C.UserError:
    return _C.UserError(f"load_safetensors: {name} is no safetensors file, or damaged: {what}")


def _read_header(name: str, file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    head = file.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
    if length > min(_MAX_HEADER, size - 8):
        raise _damaged(name, f"{size} bytes")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"the header is no JSON: {str(error)[:80]}") from None
    if not isinstance(header, dict):
        raise _damaged(name, "the header is no JSON object")
    return header, 8 + length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands twice")
    return made


def _place(name: str, key: str, entry: Any) -> tuple[_C.dtype, list[int], int, int]:
    """Dtype, shape, first byte and end of one entry of the header."""
    try:
        kind, shape, (begin, end) = entry["dtype"], list(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _damaged(name, f"entry {key!r} of the header") from None
    if not all(type(n) is int and 0 <= n < 2**63 for n in (*shape, begin, end)):
        raise _damaged(name, f"entry {key!r} of the header")
    if kind not in _DTYPES:
        raise _C.UnsupportedError(
            f"load_safetensors: tensor {key!r} is {kind}, which lucid lacks; convert it first"
        )
    return _DTYPES[kind], shape, begin, end
