"""What saving and loading refuse."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
from typing import Any

import lucid

from .case import ErrorCase, f32


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(201):
        nested = [nested]
    return nested


def load(described: Any, data: bytes = b"", kind: int = zipfile.ZIP_STORED) -> Any:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("lucid.json", json.dumps(described), kind)
        archive.writestr("tensors/0", data)
    file.seek(0)
    return lucid.load(file)


def tensors_of(*shape: int) -> dict[str, Any]:
    return {"format": 1, "tensors": [{"dtype": "int8", "shape": shape}], "tree": None}


def load_safetensors(header: bytes, data: bytes = b"") -> Any:
    """Loads a file x in a folder of its own."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with open("x", "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + data)
            return lucid.load_safetensors("x")
        finally:
            os.chdir(before)


def entry(shape: Any, offsets: Any, dtype: str = "U8") -> bytes:
    return json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


DAMAGED = "load: the open file is no file of lucid.save, or damaged: "
REMEDY = "; for weights of others use load_safetensors"
BROKEN = "load_safetensors: x is no safetensors file, or damaged: "

CASES = [
    ErrorCase(
        "save: a module",
        lambda: lucid.save({"m": lucid.nn.ReLU()}, io.BytesIO()),
        lucid.ArgumentTypeError,
        "save: no ReLU can be saved: obj['m']; save tensors, numbers, strings and containers of "
        "them, of a module its state_dict()",
    ),
    ErrorCase(
        "save: depth",
        lambda: lucid.save(deep(), io.BytesIO()),
        lucid.UserError,
        f"save: containers are nested deeper than 200: obj{'[0]' * 19}...; does one hold itself?",
    ),
    ErrorCase(
        "load: weights_only",
        lambda: lucid.load("x", weights_only=False),
        lucid.UnsupportedError,
        "load: weights_only=False would run code from the file; only True is there",
    ),
    ErrorCase(
        "load: map_location",
        lambda: lucid.load("x", {"cpu": "cpu"}),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "load: map_location must be a device: got dict; move tensors after loading",
    ),
    ErrorCase(
        "load: a later format",
        lambda: load({"format": 2}),
        lucid.UnsupportedError,
        "load: the open file has format 2, this version reads 1; use a newer lucid",
    ),
    ErrorCase(
        "load: no archive",
        lambda: lucid.load(io.BytesIO(b"no archive")),
        lucid.UserError,
        f"{DAMAGED}BadZipFile: File is not a zip file{REMEDY}",
    ),
    ErrorCase(
        "load: shape",
        lambda: load(tensors_of(-1)),
        lucid.UserError,
        f"{DAMAGED}_Broken: tensor 0 has shape [-1]{REMEDY}",
    ),
    ErrorCase(
        "load: size",
        lambda: load(tensors_of(2), b"1"),
        lucid.UserError,
        f"{DAMAGED}_Broken: tensor 0 has 1 bytes, not 2{REMEDY}",
    ),
    ErrorCase(
        "load: compressed",
        lambda: load(tensors_of(2), b"12", zipfile.ZIP_DEFLATED),
        lucid.UserError,
        f"{DAMAGED}_Broken: the tree is compressed{REMEDY}",
    ),
    ErrorCase(
        "save_safetensors: a number",
        lambda: lucid.save_safetensors({"a": 1.0}, "x"),  # type: ignore[dict-item]
        lucid.ArgumentTypeError,
        "save_safetensors: takes tensors by name: got str: float",
    ),
    ErrorCase(
        "save_safetensors: the format's name",
        lambda: lucid.save_safetensors({"__metadata__": f32(1)}, "x"),
        lucid.UserError,
        "save_safetensors: the name __metadata__ is the format's own; rename the tensor",
    ),
    ErrorCase(
        "save_safetensors: metadata",
        lambda: lucid.save_safetensors({}, "x", {"epoch": 1}),  # type: ignore[dict-item]
        lucid.ArgumentTypeError,
        "save_safetensors: metadata must be strings by name",
    ),
    ErrorCase(
        "load_safetensors: header",
        lambda: load_safetensors(b'{"w":1,"w":2}'),
        lucid.UserError,
        f"{BROKEN}the header is no JSON: a name stands twice",
    ),
    ErrorCase(
        "load_safetensors: dtype",
        lambda: load_safetensors(entry([1], [0, 1], "F8_E4M3"), b"1"),
        lucid.UnsupportedError,
        "load_safetensors: tensor 'w' is F8_E4M3, which lucid lacks; convert it first",
    ),
    ErrorCase(
        "load_safetensors: a list",
        lambda: load_safetensors(b"[]"),
        lucid.UserError,
        f"{BROKEN}the header is no JSON object",
    ),
    ErrorCase(
        "load_safetensors: entry",
        lambda: load_safetensors(b'{"w":1}'),
        lucid.UserError,
        f"{BROKEN}entry 'w' of the header",
    ),
    ErrorCase(
        "load_safetensors: end",
        lambda: load_safetensors(b"{}", b"1"),
        lucid.UserError,
        f"{BROKEN}11 bytes, the header tells of 10",
    ),
    ErrorCase(
        "load_safetensors: axes",
        lambda: load_safetensors(entry([1] * 70, [0, 1]), b"1"),
        lucid.UserError,
        f"{BROKEN}tensor 'w' has shape {[1] * 70}",
    ),
    ErrorCase(
        "load_safetensors: bytes",
        lambda: load_safetensors(entry([2], [0, 1]), b"1"),
        lucid.UserError,
        f"{BROKEN}tensor 'w' has bytes 0 to 1",
    ),
]
