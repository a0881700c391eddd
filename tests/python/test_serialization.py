"""save and load, and the safetensors format: round trips, damaged files, nothing run."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
import pytest
from lucid import Tensor
from zoo import convnet, floats

DTYPES = [
    getattr(lucid, name)
    for name in "bool_ uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
]
EDGES = [0.0, -0.0, 1.0, -2.5, 65504.0, math.inf, -math.inf, math.nan, 2.0**-20]


def sample(dtype: lucid.dtype) -> Tensor:
    if dtype.is_floating_point:
        return lucid.tensor([EDGES, EDGES]).to(dtype)
    return lucid.tensor([[0, 1, 2], [3, 100, 127]]).to(dtype)


def bits(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return tensor.dtype.name, tuple(tensor.shape), tensor.detach().numpy().tobytes()


def same(a: Any, b: Any) -> bool:
    """Equal in types and values, tensors bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return bits(a) == bits(b) and a.requires_grad == b.requires_grad
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def round_trip(obj: Any) -> Any:
    file = io.BytesIO()
    lucid.save(obj, file)
    file.seek(0)
    return lucid.load(file)


# ---------------------------------------------------------------- save and load


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_dtypes(dtype: lucid.dtype, tmp_path: Path) -> None:
    tensors = {"a": sample(dtype), "empty": lucid.zeros(0, 3).to(dtype), "one": sample(dtype)[1, 1]}
    assert same(round_trip(tensors), tensors)
    path = tmp_path / "a.safetensors"
    lucid.save_safetensors(tensors, path)
    assert same(dict(sorted(lucid.load_safetensors(path).items())), dict(sorted(tensors.items())))


def test_tree() -> None:
    tree = {
        "numbers": [None, True, 3, -(2**70), 0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324],
        "text": ("a", "ü\n\ud83d", "", b"\x00\xff"),
        7: OrderedDict([("x", ()), ((1, "b"), [])]),
        None: {"float": 1, "tensor": [0, False]},
        "kinds": (lucid.bfloat16, lucid.device("cpu")),
        "leaf": floats(1, 2).requires_grad_(),
        "parameter": nn.Parameter(floats(2, 2, 2)),
        "frozen": nn.Parameter(floats(3, 1), requires_grad=False),
        "view": floats(4, 3, 4)[1:, ::2].T,
    }
    assert same(round_trip(tree), tree)


def test_a_result_is_saved_without_history() -> None:
    result = floats(1, 2).requires_grad_() * 2
    found = round_trip(result)
    assert bits(found) == bits(result) and not found.requires_grad


def test_one_tensor_stays_one() -> None:
    shared = floats(1, 3)
    found = round_trip({"a": shared, "b": [shared], "c": shared.clone()})
    found["a"].add_(1)
    assert found["b"][0] is found["a"]
    assert bits(found["c"]) == bits(shared)


def test_training_goes_on(tmp_path: Path) -> None:
    def parts() -> tuple[nn.Module, optim.Optimizer, lucid.amp.GradScaler]:
        model = convnet().eval()
        return model, optim.Adam(model.parameters(), lr=0.01), lucid.amp.GradScaler()

    def train(model: nn.Module, optimizer: optim.Optimizer, scaler: lucid.amp.GradScaler) -> None:
        optimizer.zero_grad()
        scaler.scale(model(floats(1, 5, 1, 9, 8)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    first, second = parts(), parts()
    train(*first)
    lucid.save([part.state_dict() for part in first], tmp_path / "checkpoint")
    for part, state in zip(second, lucid.load(tmp_path / "checkpoint"), strict=True):
        part.load_state_dict(state)
    for all_parts in (first, second):
        train(*all_parts)
    assert same(first[0].state_dict(), second[0].state_dict())


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lucid.save([1], path)
    with pytest.raises(lucid.ArgumentTypeError, match=r"no module can be saved: obj\['b'\]\[0\]"):
        lucid.save({"a": lucid.ones(2), "b": [os]}, path)
    assert lucid.load(str(path)) == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


class Dangerous:
    """Unpickling this would run code."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("should_not_exist",)


def test_pickles_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").write_bytes(pickle.dumps(Dangerous()))
    with zipfile.ZipFile("zipped", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Dangerous()))
    for name in ("plain", "zipped"):
        with pytest.raises(lucid.UserError, match=f"{name} is no file of lucid.save, or damaged"):
            lucid.load(name)
    assert not Path("should_not_exist").exists()


def archive_of(described: Any, **entries: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        text = described if isinstance(described, str) else json.dumps(described)
        archive.writestr("lucid.json", text)
        for name, data in entries.items():
            archive.writestr(f"tensors/{name[1:]}", data)
    file.seek(0)
    return file


def tree_of(tree: Any, *types: Any) -> dict[str, Any]:
    return {"format": 1, "tensors": list(types), "tree": tree}


FLOAT = {"dtype": "float32", "shape": [2]}
DAMAGED = {
    "no json": ("{",),
    "no object": ("[]",),
    "deep": ("[" * 100_000,),
    "no tree": ({"format": 1, "tensors": []},),
    "unknown kind": (tree_of({"code": "x"}),),
    "two kinds": (tree_of({"list": [], "tuple": []}),),
    "bare list": (tree_of([1]),),
    "pairs": (tree_of({"dict": [[1, 2, 3]]}),),
    "unhashable": (tree_of({"dict": [[{"list": []}, 1]]}),),
    "float": (tree_of({"float": "1.0"}),),
    "base64": (tree_of({"bytes": "*"}),),
    "dtype": (tree_of({"dtype": "float8"}),),
    "device": (tree_of({"device": "cuda"}),),
    "no such tensor": (tree_of({"tensor": [0, False]}),),
    "no entry": (tree_of(1, FLOAT),),
    "short": (tree_of(1, FLOAT), b"1234"),
    "negative": (tree_of(1, {"dtype": "float32", "shape": [-2]}), b"12345678"),
    "bool in a shape": (tree_of(1, {"dtype": "int8", "shape": [True]}), b"1"),
    "huge": (tree_of(1, {"dtype": "float32", "shape": [2**62, 0]}), b""),
    "leaf of integers": (
        tree_of({"tensor": [0, True]}, {"dtype": "int8", "shape": [1]}),
        b"1",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_archives(name: str) -> None:
    described, *data = DAMAGED[name]
    entries = {f"t{i}": d for i, d in enumerate(data)}
    with pytest.raises(lucid.UserError, match="is no file of lucid.save, or damaged"):
        lucid.load(archive_of(described, **entries))


def test_every_cut_and_flip_is_seen() -> None:
    file = io.BytesIO()
    lucid.save({"a": floats(1, 3), "b": 1}, file)
    whole = file.getvalue()
    for size in range(0, len(whole) - 1, 7):
        with pytest.raises(lucid.UserError):
            lucid.load(io.BytesIO(whole[:size]))
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 0x55
        try:
            found = lucid.load(io.BytesIO(bytes(flipped)))
        except lucid.Error:
            continue
        assert same(found, {"a": floats(1, 3), "b": 1})  # a byte that says nothing of the data


@pytest.mark.parametrize("compressed", ["lucid.json", "tensors/0"])
def test_compressed_entries_are_refused(compressed: str) -> None:
    file = io.BytesIO()
    entries = {"lucid.json": json.dumps(tree_of(1, FLOAT)).encode(), "tensors/0": b"12345678"}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            kind = zipfile.ZIP_DEFLATED if name == compressed else zipfile.ZIP_STORED
            archive.writestr(name, data, kind)
    with pytest.raises(lucid.UserError, match="damaged"):
        lucid.load(file)


# ---------------------------------------------------------------- safetensors

# Written by hand from the format's description: two tensors, the second before the first.
HEADER = (
    b'{"__metadata__":{"from":"hand"},'
    b'"w":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},'
    b'"b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}'
)
BODY = b"\x80\x3f" + struct.pack("<2f", 1.5, -2.0)


def written(tmp_path: Path, header: bytes, body: bytes, length: int | None = None) -> Path:
    path = tmp_path / "x.safetensors"
    size = len(header) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + header + body)
    return path


def test_reads_a_file_written_by_hand(tmp_path: Path) -> None:
    found = lucid.load_safetensors(written(tmp_path, HEADER, BODY))
    assert list(found) == ["b", "w"]
    assert found["w"].tolist() == [1.5, -2.0]
    assert found["b"].dtype is lucid.bfloat16 and found["b"].item() == 1.0


def test_writes_the_format(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {"n": lucid.tensor([1, 2]).to(lucid.uint8), "w": lucid.tensor([1.5])}
    lucid.save_safetensors(tensors, path, {"format": "pt"})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "n": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
    }
    assert data[8 + length :] == struct.pack("<f", 1.5) + b"\x01\x02"


def test_state_dict_as_safetensors(tmp_path: Path) -> None:
    model, other = convnet(), convnet()
    lucid.save_safetensors(model.state_dict(), tmp_path / "m")
    other.load_state_dict(lucid.load_safetensors(tmp_path / "m"))
    assert [bits(v) for v in model.state_dict().values()] == [
        bits(v) for v in other.state_dict().values()
    ]


def entry(**changes: Any) -> bytes:
    return json.dumps(
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}
    ).encode()


BROKEN = {
    "empty": (b"", b"", 8),
    "long header": (b"{}", b"", 1000),
    "no json": (b"{,}", b"", None),
    "no utf-8": (b'{"\xff":1}', b"", None),
    "deep": (b"[" * 100_000, b"", None),
    "a list": (b"[]", b"", None),
    "entry": (b'{"w":1}', b"", None),
    "twice": (b'{"w":1,"w":2}', b"", None),
    "missing bytes": (entry(), b"1234", None),
    "more bytes": (entry(), b"123456789", None),
    "hole": (entry(data_offsets=[1, 9]), b"123456789", None),
    "size": (entry(shape=[3]), b"12345678", None),
    "negative": (entry(shape=[-2]), b"12345678", None),
    "offsets": (entry(data_offsets=[0, 8, 9]), b"12345678", None),
    "floats": (entry(shape=[2.0]), b"12345678", None),
    "huge": (entry(shape=[2**62, 0], data_offsets=[0, 0]), b"", None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_safetensors(name: str, tmp_path: Path) -> None:
    with pytest.raises(lucid.UserError, match="is no safetensors file, or damaged"):
        lucid.load_safetensors(written(tmp_path, *BROKEN[name]))
