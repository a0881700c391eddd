"""The oldest macOS that is built for, decided by cmake/LucidMacos.cmake before the compiler is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def cmake() -> str:
    """The command; the one beside the interpreter first."""
    beside = Path(sys.executable).with_name("cmake")
    return str(beside) if beside.exists() else shutil.which("cmake") or ""


def target(tmp_path: Path, given: str, environment: str | None, is_mac: bool = True) -> str:
    """What CMAKE_OSX_DEPLOYMENT_TARGET becomes; "" where it stays unset."""
    script = tmp_path / "script.cmake"
    script.write_text(
        f"set(CMAKE_HOST_APPLE {'ON' if is_mac else 'OFF'})\n"
        + (f"set(CMAKE_OSX_DEPLOYMENT_TARGET {given})\n" if given else "")
        + f"include({ROOT}/cmake/LucidMacos.cmake)\n"
        + 'message("found=${CMAKE_OSX_DEPLOYMENT_TARGET}")\n'
    )
    variables = {k: v for k, v in os.environ.items() if k != "MACOSX_DEPLOYMENT_TARGET"}
    if environment is not None:
        variables["MACOSX_DEPLOYMENT_TARGET"] = environment
    done = subprocess.run(
        [cmake(), "-P", str(script)], env=variables, capture_output=True, text=True, check=True
    )
    return done.stderr.partition("found=")[2].strip()


@pytest.mark.skipif(not cmake(), reason="needs cmake")
@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("", None, "14.0"),
        ("", "11.0", "14.0"),
        ("", "13.6", "14.0"),
        ("", "15.0", ""),  # project() takes it from the environment
        ("10.15", None, "14.0"),
        ("15.2", "11.0", "15.2"),
    ],
)
def test_nothing_older_than_14(
    tmp_path: Path, given: str, environment: str | None, expected: str
) -> None:
    assert target(tmp_path, given, environment) == expected


@pytest.mark.skipif(not cmake(), reason="needs cmake")
def test_other_systems_are_left_alone(tmp_path: Path) -> None:
    assert target(tmp_path, "", None, is_mac=False) == ""


def test_the_wheel_is_named_so() -> None:
    """The name of a wheel follows the environment variable, not CMake's."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'environment = { MACOSX_DEPLOYMENT_TARGET = "14.0" }' in text
