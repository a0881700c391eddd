"""The Python examples of the README and of docs/ run as printed, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def python_examples(markdown: str) -> str:
    """The fenced python blocks, each at its own line numbers; all else is blank."""
    lines = []
    fence = None
    for line in markdown.splitlines():
        opening = re.match(r"\s*(```+)\s*(\w*)", line)
        if fence is None and opening:
            fence = opening.group(2) or "text"
            lines.append("")
        elif fence is not None and line.strip().startswith("```"):
            fence = None
            lines.append("")
        else:
            lines.append(line if fence == "python" else "")
    return "\n".join(lines) + "\n"


def run_examples(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the source in a process of its own, with `folder` as working directory."""
    script = folder / "README.md.py"
    script.write_text(source, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    source = python_examples(text)
    assert bool(source.strip()) == ("```python" in text)
    assert source.strip() or page != "README.md", "README.md has no python example"
    result = run_examples(source, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("block", "is_run"), [("python", True), ("bash", False), ("", False), ("text", False)]
)
def test_a_failing_example_is_found(tmp_path: Path, block: str, is_run: bool) -> None:
    source = python_examples(f"text\n\n```{block}\nraise ValueError('line 4')\n```\n")
    result = run_examples(source, tmp_path)
    assert ("line 4, in <module>" in result.stderr) == is_run
    assert (result.returncode != 0) == is_run
