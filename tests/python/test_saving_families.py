"""Saved signatures of dynamic sizes, and trees that a file holds by name."""

from __future__ import annotations

import collections
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lucid
import pytest
from lucid import Tensor, nn
from lucid.compile import CompiledModule, counters, load_compiled, save_compiled


class Both(NamedTuple):
    """A result with names."""

    first: Tensor
    second: tuple[Tensor, int]


Loose = collections.namedtuple("Loose", ["value"])  # noqa: PYI024  (the untyped form)


class Net(nn.Module):
    """Normalises, drops, draws and reshapes: every kind of number that follows the size."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Both:
        y = self.drop(self.norm(self.inner(x)))
        y = y + lucid.rand(x.shape[0], 4)
        flat = y.reshape(2 * x.shape[0], 2)[1:]
        return Both(y * scale - y.mean(), (lucid.cat([flat, flat]), 3))


def make_net() -> Net:
    lucid.manual_seed(3)
    return Net()


def rows(count: int) -> Tensor:
    lucid.manual_seed(4)
    return lucid.randn(count, 6)


def outcome(function: Callable[..., Any], model: nn.Module, x: Tensor) -> list[Any]:
    model.zero_grad()
    lucid.manual_seed(5)
    result = function(x, scale=0.5)
    assert type(result) is Both and type(result.second) is tuple
    (result.first.square().sum() + result.second[0].sum()).backward()
    tensors = [result.first, result.second[0], *(p.grad for p in model.parameters())]
    return [t.detach().numpy().tobytes() for t in tensors if t is not None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "module.lucid"


def saved(path: Path, size: int = 5) -> None:
    compiled = lucid.compile(make_net(), dynamic=True, fallback="error")
    compiled(rows(size), scale=0.5)
    compiled(rows(size + 4), scale=0.5)  # the newest size is not the traced one
    save_compiled(compiled, path)


def loaded_from(path: Path) -> tuple[CompiledModule, nn.Module]:
    model = make_net()
    loaded = load_compiled(path, model, fallback="error")
    assert isinstance(loaded, CompiledModule)
    return loaded, model


def test_a_family_serves_all_sizes(path: Path) -> None:
    saved(path)
    loaded, model = loaded_from(path)
    for count in (2, 5, 9, 40, 7):
        assert outcome(loaded, model, rows(count)) == outcome(model, model, rows(count))
    assert loaded.cache_info() == {"entries": 1, "hits": 5, "misses": 0, "max_entries": 64}
    before = counters()
    outcome(loaded, model, rows(40))
    assert counters()["compilations"] == before["compilations"]


def test_sizes_that_stand_for_themselves_are_traced(path: Path) -> None:
    saved(path)
    loaded, model = loaded_from(path)
    assert outcome(loaded, model, rows(1)) == outcome(model, model, rows(1))
    assert loaded.cache_info()["misses"] == 1


def test_saved_again_it_is_the_same(path: Path) -> None:
    saved(path)
    loaded, model = loaded_from(path)
    outcome(loaded, model, rows(8))
    save_compiled(loaded, path)
    before = path.read_bytes()
    loaded, model = loaded_from(path)
    assert outcome(loaded, model, rows(12)) == outcome(model, model, rows(12))
    save_compiled(loaded, path)
    assert path.read_bytes() == before


def test_another_process_reads_it(path: Path) -> None:
    saved(path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from test_saving_families import *\n"
        "loaded, model = loaded_from(Path(sys.argv[1]))\n"
        "assert outcome(loaded, model, rows(11)) == outcome(model, model, rows(11))\n"
        "assert loaded.cache_info()['misses'] == 0\n"
    )
    here = str(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", script, str(path), here], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A file whose checksum fits but whose first signature was changed."""
    magic, _, text = path.read_bytes().split(b"\n", 2)
    body = json.loads(text)
    change(body["signatures"][0])
    text = json.dumps(body).encode()
    header = {"version": 2, "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}
    path.write_bytes(magic + b"\n" + json.dumps(header).encode() + b"\n" + text)


def first_place(signature: dict[str, Any], place: int, value: Any) -> None:
    signature["sized"]["places"][0][place] = value


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no sizes": lambda s: s.pop("sized"),
    "no places": lambda s: s["sized"].pop("places"),
    "operation": lambda s: first_place(s, 0, 10**6),
    "negative operation": lambda s: first_place(s, 0, -1),
    "attribute": lambda s: first_place(s, 1, 99),
    "element": lambda s: first_place(s, 2, 99),
    "factor": lambda s: first_place(s, 3, 7),
    "large factor": lambda s: first_place(s, 3, 2**62),
    "no number": lambda s: first_place(s, 4, "one"),
    "more than a number": lambda s: first_place(s, 4, 2**70),
    "short place": lambda s: s["sized"]["places"][0].pop(),
    "out of order": lambda s: s["sized"]["places"].reverse(),
    "size": lambda s: s["sized"].update(size=6),
    "arguments": lambda s: s["sized"].update(arguments=[]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_sizes_are_refused(path: Path, forgery: str) -> None:
    saved(path)
    changed(path, FORGERIES[forgery])
    with pytest.raises(lucid.Error):
        loaded_from(path)


def least_factor(signature: dict[str, Any]) -> None:
    """A factor whose product with an even size is 0 in 64 bits."""
    place = signature["sized"]["places"][0]
    place[4] += place[3] * signature["sized"]["size"]
    place[3] = -(2**63)


def size_of_nothing(size: int) -> Callable[[dict[str, Any]], None]:
    """A size that no argument and no number follows."""

    def change(signature: dict[str, Any]) -> None:
        arguments = [False] * len(signature["sized"]["arguments"])
        signature["sized"].update(size=size, places=[], arguments=arguments)

    return change


@pytest.mark.parametrize("change", [least_factor, size_of_nothing(2**40), size_of_nothing(-1)])
def test_forged_numbers_are_bounded(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    saved(path, size=6)
    changed(path, change)
    with pytest.raises(lucid.UserError, match="load_compiled: the file's sizes do not fit its"):
        loaded_from(path)


def output_class(*described: Any) -> Callable[[dict[str, Any]], None]:
    def change(signature: dict[str, Any]) -> None:
        signature["output"]["class"] = list(described)

    return change


@pytest.mark.parametrize(
    "described",
    [
        ("no_such_module", "Both", ["first", "second"]),
        (__name__, "Neither", ["first", "second"]),
        (__name__, "Both", ["first", "third"]),
        (__name__, "Net", ["first", "second"]),
        ("subprocess", "Popen", ["first", "second"]),
        ("os", "system", []),
    ],
)
def test_a_class_that_is_not_there(path: Path, described: Any) -> None:
    saved(path)
    changed(path, output_class(*described))
    with pytest.raises(lucid.UserError, match="which is not there; import its module first"):
        loaded_from(path)


class Returns(nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        object.__setattr__(self, "function", staticmethod(function))

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def test_named_tuples_of_the_package_and_of_collections(path: Path) -> None:
    for function in (lambda x: x.max(dim=0), lambda x: [Loose(x + 1)]):
        model = Returns(function)
        compiled = lucid.compile(model, fallback="error")
        expected = compiled(rows(3))
        save_compiled(compiled, path)
        found = load_compiled(path, model, fallback="error")(rows(3))
        assert type(found) is type(expected)
        assert type(found[0]) is type(expected[0])


def local_class() -> Callable[[Tensor], Any]:
    class Local(NamedTuple):
        value: Tensor

    return lambda x: Local(x + 1)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (local_class(), "the class of a named tuple cannot be found as .*Local; define it in a"),
        (lambda x: {(1, 2): x + 1}, "a dict has a key of type tuple, which a file cannot hold"),
    ],
)
def test_trees_that_a_file_cannot_hold(path: Path, function: Any, text: str) -> None:
    compiled = lucid.compile(Returns(function), fallback="error")
    compiled(rows(3))
    with pytest.raises(lucid.UnsupportedError, match=f"save_compiled: {text}"):
        save_compiled(compiled, path)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_are_refused_by_name(path: Path, kind: str) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    compiled = lucid.compile(model, fallback="error")
    compiled(rows(3))
    handle = getattr(model[1], f"register_{kind}_hook")(lambda *args: None)
    compiled(rows(3))
    with pytest.raises(lucid.UnsupportedError, match="save_compiled: module '1' has hooks"):
        save_compiled(compiled, path)
    handle.remove()
    save_compiled(compiled, path)
    load_compiled(path, model)
