"""bench/compare.py: two builds side by side."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import lucid
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
BUILD = Path(lucid.__file__).resolve().parents[1]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "compare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def a_build_apart(folder: Path, more: str) -> Path:
    """The same build in a folder of its own, with `more` at the end of its __init__.py."""
    package = folder / "lucid"
    package.mkdir()
    for part in (BUILD / "lucid").iterdir():
        if part.name != "__init__.py":
            (package / part.name).symlink_to(part)
    text = (BUILD / "lucid" / "__init__.py").read_text()
    (package / "__init__.py").write_text(text + more)
    return folder


@pytest.mark.parametrize("contestant, mode", [("lucid_step", "grads"), ("lucid_fused", "sgd")])
def test_a_build_beside_itself(contestant: str, mode: str) -> None:
    effort = ("--workloads", "mlp_tiny", "--rounds", 3, "--seconds", 0.02)
    found = run(BUILD, BUILD, *effort, "--contestant", contestant, "--mode", mode)
    assert found.returncode == 0, found.stderr
    number = r"\d+(?:\.\d+)?(?:e-\d+)?"
    row = rf"\| mlp_tiny +\| ({number}) \({number}-{number}\) +\| ({number}) +"
    match = re.search(row + rf"\| {number} +\| {number} +\| equal +\|", found.stdout)
    assert match, found.stdout
    assert all(0.2 < float(ratio) < 5 for ratio in match.groups())


def test_other_losses_are_told(tmp_path: Path) -> None:
    other = a_build_apart(
        tmp_path,
        "\nimport lucid.nn.functional as _F\n_mean = _F.cross_entropy\n"
        "_F.cross_entropy = lambda *a, **k: _mean(*a, **k) * 1.001\n",
    )
    found = run(BUILD, other, "--workloads", "mlp_tiny", "--rounds", 1, "--seconds", 0.01)
    assert found.returncode == 1, found.stderr + found.stdout
    assert "DIFFER" in found.stdout


def test_a_path_without_a_build(tmp_path: Path) -> None:
    found = run(BUILD, tmp_path, "--workloads", "mlp_tiny", "--rounds", 1)
    assert found.returncode == 2
    assert f"error: {tmp_path}: neither a source tree with lucid built in place" in found.stderr
