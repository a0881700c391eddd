"""Environments of the peers: each peer is installed into one of its own under bench/.envs."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".envs"

# Exact versions, so that results repeat. The CPU serves in all of them but mlx.
REQUIREMENTS = {
    "torch": ("torch==2.13.0", "numpy>=2,<3"),
    "jax": ("jax==0.10.2", "numpy>=2,<3"),
    "mlx": ("mlx==0.32.4", "numpy>=2,<3"),
    "plot": ("matplotlib>=3.8,<4",),
}


class InstallError(Exception):
    """An environment could not be made; the message says why."""


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        reason = "\n  ".join((errors or lines)[-3:])
        raise InstallError(f"{' '.join(command[1:])} failed:\n  {reason}")


def prepare(name: str) -> Path:
    """Makes the environment unless it is there already; returns its interpreter.

    Raises: InstallError with pip's own words if something could not be installed.
    """
    requirements = REQUIREMENTS[name]
    folder = FOLDER / name
    python = folder / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = "\n".join(requirements) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"-- installing {name} into {folder}", file=sys.stderr, flush=True)
    try:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / ".gitignore").write_text("*\n")
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallError(f"could not make {folder}: {error}") from error
    _run([str(python), "-m", "pip", "--disable-pip-version-check", "install", *requirements])
    stamp.write_text(wanted)
    return python
