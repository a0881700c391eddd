"""What helps to look into a compilation: dumped graphs, passes on text, environment variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import FallbackWarning, fused_step, make_step
from zoo import floats

SCRIPT = """
import lucid, lucid.nn as nn
from lucid.compile import make_step
step = make_step(nn.Linear(4, 3), lambda y: (y * 1.0).tanh().sum())
step(lucid.ones(2, 4)).backward()
"""


def run_script(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process with more environment variables."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )


def test_dumped_graphs(tmp_path: Path) -> None:
    folder = tmp_path / "ir"
    result = run_script(SCRIPT, LUCID_DUMP_IR=str(folder))
    assert result.returncode == 0, result.stderr
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "00-traced.ir",
        "01-simplify.ir",
        "02-fold_constants.ir",
        "03-merge_common.ir",
        "04-mask_pooled.ir",
        "05-drop_dead.ir",
        "06-save_memory.ir",
    ]
    before = (folder / names[0]).read_text(encoding="utf-8")
    after = (folder / names[-1]).read_text(encoding="utf-8")
    assert "detach" not in after
    assert before.count("full()") > after.count("full()") == 1
    assert lucid._C.run_passes(before) == lucid._C.parse_graph(after)


def test_dump_into_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = run_script(SCRIPT, LUCID_DUMP_IR=str(tmp_path / "file" / "ir"))
    assert result.returncode == 1
    assert "LUCID_DUMP_IR: cannot write " in result.stderr


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        ("error", 1, "TraceError"),
        ("silent", 0, ""),
        ("warn", 0, "FallbackWarning: make_step: this step runs eagerly: item:"),
        ("never", 1, "make_step: fallback must be one of warn, error, silent: got 'never'"),
    ],
)
def test_fallback_from_the_environment(value: str, code: int, text: str) -> None:
    script = SCRIPT.replace(".sum())", ".sum() * y.sum().item())")
    result = run_script(script, LUCID_FALLBACK=value)
    assert result.returncode == code, result.stderr
    assert text in result.stderr
    if not text:
        assert result.stderr == ""


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("kind", ["make_step", "compile", "fused_step"])
def test_a_warning_is_at_the_line_of_the_call(kind: str, is_cached: bool) -> None:
    counts: list[int] = []

    def loss(y: Tensor) -> Tensor:
        counts.extend([1] * is_cached)
        return y.sum() * y.sum().item()

    model = nn.Linear(4, 3)
    made = {
        "make_step": lambda: make_step(model, loss, fallback="warn"),
        "compile": lambda: lucid.compile(lambda x: loss(model(x)), fallback="warn"),
        "fused_step": lambda: fused_step(
            model, loss, optim.SGD(model.parameters(), lr=0.1), fallback="warn"
        ),
    }[kind]()
    with pytest.warns(FallbackWarning) as caught:
        made(floats(1, 2, 4))
    assert [warning.filename for warning in caught] == [__file__]


def test_warning_names_operation_line_and_remedy() -> None:
    step = make_step(nn.Linear(4, 3), lambda y: y.sum() * y.sum().item(), fallback="warn")
    with pytest.warns(FallbackWarning) as caught:
        step(floats(1, 2, 4)).backward()
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("make_step: this step runs eagerly: item: the value of a tensor")
    assert f"at {__file__}:" in text
    assert 'pass fallback="error" to raise instead' in text
    assert warning.filename == __file__
    step(floats(2, 2, 4)).backward()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "graph {\n  %0 = input argument float32[2]\n  %1 = nope(%0) : float32[2]\n"
            "  return %1\n}",
            "graph text, line 3: unknown operation nope",
        ),
        (
            "graph {\n  %1 = tanh(%0) : float32[2]\n  return %1\n}",
            "graph text, line 2: %0 is used before it is made",
        ),
    ],
)
def test_bad_graph_text(text: str, message: str) -> None:
    with pytest.raises(lucid.UserError) as caught:
        lucid._C.parse_graph(text)
    assert str(caught.value) == message


def test_verifier_catches_a_wrong_type() -> None:
    text = "graph {\n  %0 = input argument float32[2]\n  %1 = tanh(%0) : float32[3]\n  return %1\n}"
    with pytest.raises(lucid.UserError, match="tanh makes float32\\[2\\] but %1 is float32\\[3\\]"):
        lucid._C.parse_graph(text)


def test_star_import_hides_no_builtin() -> None:
    names: dict[str, Any] = {}
    exec("from lucid.compile import *", names)
    assert "compile" not in names
    assert names["make_step"] is lucid.compile.make_step
    assert all(hasattr(lucid.compile, name) for name in lucid.compile.__all__)
    assert callable(lucid.compile.compile)
