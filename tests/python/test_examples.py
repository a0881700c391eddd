"""The example that needs nothing but the package, run for a few steps."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_language(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["language.py", "--steps", "30"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "language.py"), run_name="__main__")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "first 5 losses equal those of eager code bit for bit: True" in printed
