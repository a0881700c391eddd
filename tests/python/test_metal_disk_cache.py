"""LUCID_COMPILE_CACHE_DIR on the metal device: what a second process finds, and damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lucid
import metal_host
import pytest

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(
        not lucid.metal.is_available() or not metal_host.is_host(),
        reason="needs the double, which counts compilations",
    ),
]

HERE = Path(__file__).parent

# A training run in a process of its own; prints what it found as JSON.
PROGRAM = """
import json, sys, warnings
import lucid, lucid.nn as nn, lucid.nn.functional as F, lucid.optim as optim
import metal_host
from lucid.compile import cache_info, counters, make_step

warnings.simplefilter("always")
caught = warnings.catch_warnings(record=True)
messages = caught.__enter__()
options = json.loads(sys.argv[1])
if options.get("rearranged"):
    metal_host.ask("rearrange_packages", 1)
lucid.manual_seed(3)
width = options.get("width", 6)
model = nn.Sequential(
    nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, width), nn.Linear(width, 3)
).to("metal")
step = make_step(model, F.cross_entropy, fallback="error")
batch = (lucid.randn(4, 6).to("metal"), lucid.tensor([0, 1, 2, 1]).to("metal"))
if options.get("equal_types"):
    function = lucid.compile(lambda a, b: a @ b - a)
    before = metal_host.count("num_compilations")
    with lucid.no_grad():
        result = function(lucid.randn(6, 6).to("metal"), lucid.randn(6, 6).to("metal"))
    compiled = metal_host.count("num_compilations") - before
    losses = result.flatten().tolist()
else:
    losses = []
    before = metal_host.count("num_compilations")
    for _ in range(3):
        loss = step(*batch)
        if not losses:
            compiled = metal_host.count("num_compilations") - before
        loss.backward()
        losses.append(loss.item())
        with lucid.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.1)
        model.zero_grad()
info = cache_info()
print(json.dumps({
    "losses": losses,
    "compiled": compiled,
    "compilations": counters()["compilations"],
    "loads": metal_host.count("num_package_loads"),
    "hits": info["disk_hits"], "misses": info["disk_misses"], "writes": info["disk_writes"],
    "warnings": [str(m.message) for m in messages],
}))
"""


def train(folder: Path | str | None, check: bool = True, **options: Any) -> dict[str, Any]:
    """What a process found that trained with that cache folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
    environment.pop("LUCID_COMPILE_CACHE_DIR", None)
    if folder is not None:
        environment["LUCID_COMPILE_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(options)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if not check:
        return {"status": done.returncode, "error": done.stderr}
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.lucid"))


def test_a_second_process_loads_and_does_not_compile(tmp_path: Path) -> None:
    without = train(None)
    first = train(tmp_path)
    second = train(tmp_path)
    assert without["losses"] == first["losses"] == second["losses"]
    assert (without["compiled"], without["hits"], without["misses"]) == (1, 0, 0)
    assert (first["compiled"], first["hits"], first["misses"], first["writes"]) == (1, 0, 1, 1)
    assert (second["compiled"], second["hits"], second["misses"], second["writes"]) == (0, 1, 0, 0)
    assert (first["compilations"], second["compilations"]) == (1, 0)
    assert (first["loads"], second["loads"]) == (0, 1)
    assert without["warnings"] == first["warnings"] == second["warnings"] == []
    assert len(entries(tmp_path)) == 1
    assert sorted(tmp_path.iterdir()) == entries(tmp_path)  # nothing unfinished stays


def test_other_shapes_are_other_entries(tmp_path: Path) -> None:
    train(tmp_path, width=6)
    other = train(tmp_path, width=8)
    assert (other["compiled"], other["hits"], other["writes"]) == (1, 0, 1)
    assert len(entries(tmp_path)) == 2
    assert train(tmp_path, width=8)["hits"] == 1


def damaged_files(entry: Path) -> list[Path]:
    return [path for path in sorted(entry.rglob("*")) if path.is_file()]


@pytest.mark.parametrize(
    ("damage", "which"),
    [
        *(("truncate", 0), ("truncate", 1), ("truncate", 2)),
        *(("flip", 0), ("flip", 1), ("flip", 2)),
        *(("remove", 0), ("remove", 1), ("empty", 0), ("empty", 2)),
    ],
)
def test_a_damaged_entry_is_compiled_anew(tmp_path: Path, damage: str, which: int) -> None:
    expected = train(tmp_path)["losses"]
    [entry] = entries(tmp_path)
    path = damaged_files(entry)[which]
    content = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "remove":
        path.unlink()
    else:
        path.write_bytes(b"")
    found = train(tmp_path)
    assert found["losses"] == expected
    assert (found["compiled"], found["hits"], found["writes"], found["loads"]) == (1, 0, 1, 0)
    # An entry without its index is none.
    is_gone = damage == "remove" and path.name == "entry"
    said = [text for text in found["warnings"] if "compile cache" in text]
    assert len(said) == (0 if is_gone else 1)
    if not is_gone:
        assert said[0] == (
            f"compile cache: an entry is not used, because it is damaged: {entry}; "
            "its graph is compiled anew"
        )
    again = train(tmp_path)
    assert (again["compiled"], again["hits"], again["warnings"]) == (0, 1, [])


def test_a_foreign_entry_is_not_taken(tmp_path: Path) -> None:
    """The entry of another graph under the name of this one: its key tells."""
    train(tmp_path, width=6)
    [mine] = entries(tmp_path)
    expected = train(tmp_path, width=8)["losses"]
    [other] = [entry for entry in entries(tmp_path) if entry != mine]
    shutil.rmtree(other)
    shutil.copytree(mine, other)
    found = train(tmp_path, width=8)
    assert found["losses"] == expected
    assert (found["compiled"], found["hits"], found["writes"]) == (1, 0, 1)


def test_foreign_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder.lucid").mkdir()
    train(tmp_path)
    train(tmp_path, width=8)
    monkeypatch.setenv("LUCID_COMPILE_CACHE_DIR", str(tmp_path))
    assert lucid.compile.clear_disk_cache() == 2
    assert lucid.compile.clear_disk_cache() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "folder.lucid"}
    assert train(tmp_path)["compiled"] == 1


def test_nothing_to_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCID_COMPILE_CACHE_DIR", raising=False)
    assert lucid.compile.clear_disk_cache() == 0


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    found = train(blocked / "cache")
    assert (found["compiled"], found["writes"]) == (1, 0)
    [said] = found["warnings"]
    assert said == (
        f"compile cache: cannot write to {blocked / 'cache'}: Not a directory; let "
        "LUCID_COMPILE_CACHE_DIR name a folder that can be written, or unset it"
    )


def test_another_order_of_equal_types_is_found_out(tmp_path: Path) -> None:
    """Feeds of one shape and dtype that change places give other numbers."""
    expected = train(tmp_path, equal_types=True)["losses"]
    found = train(tmp_path, equal_types=True, rearranged=True)
    assert found["losses"] == expected
    assert (found["compiled"], found["hits"], found["loads"]) == (1, 0, 1)
    [said] = found["warnings"]
    assert "it gives other results than when it was stored" in said


def test_a_process_that_dies_of_an_entry_is_the_last(tmp_path: Path) -> None:
    """Feeds of several shapes that change places end the process, as on macOS: once."""
    expected = train(tmp_path)["losses"]
    died = train(tmp_path, check=False, rearranged=True)
    assert died["status"] == -signal.SIGABRT
    for _ in range(2):
        found = train(tmp_path, rearranged=True)
        assert found["losses"] == expected
        assert (found["compiled"], found["hits"], found["loads"], found["writes"]) == (1, 0, 0, 0)
        [said] = found["warnings"]
        assert said.startswith(
            "compile cache: a process died while it loaded an executable, so none is loaded any "
            "more: lucid 0.1.0-"
        )
    refusal = next(tmp_path.glob("refused.*"))
    assert str(refusal) in said
    refusal.unlink()
    assert train(tmp_path)["hits"] == 1


def test_many_processes_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
    environment["LUCID_COMPILE_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", PROGRAM, "{}"]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    found = [
        json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in running
    ]
    assert len({tuple(each["losses"]) for each in found}) == 1
    assert [each["warnings"] for each in found] == [[]] * 4
    assert sum(each["writes"] for each in found) == 1
    assert sorted(tmp_path.iterdir()) == entries(tmp_path)
    assert train(tmp_path)["hits"] == 1


def test_the_cpu_does_not_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_COMPILE_CACHE_DIR", str(tmp_path / "cache"))
    step = lucid.compile.make_step(lucid.nn.Linear(3, 2), lambda y: y.sum(), fallback="error")
    step(lucid.zeros(5, 3)).backward()
    assert not (tmp_path / "cache").exists()
