"""The stub of the native core names what the core and the package's Python code give it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import lucid
from lucid import _C

STUB = Path(lucid.__file__).with_name("_C.pyi")


def names_in(body: list[ast.stmt]) -> set[str]:
    names = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    names |= {n.target.id for n in body if isinstance(n, ast.AnnAssign) and hasattr(n.target, "id")}
    return names | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets}  # type: ignore[attr-defined]


def absent(stub: str) -> set[str]:
    """What can be used without an underscore and is not in a stub."""
    body = ast.parse(stub).body
    classes = {n.name: names_in(n.body) for n in body if isinstance(n, ast.ClassDef)}

    def public(holder: Any) -> set[str]:
        return {name for name in dir(holder) if not name.startswith("_")}

    methods = {f"Tensor.{name}" for name in public(_C.Tensor) - classes["Tensor"]}
    return methods | (public(_C) - names_in(body))


def test_the_stub_is_whole() -> None:
    assert absent(STUB.read_text()) == set()


def test_what_is_left_out_is_found() -> None:
    stub = STUB.read_text()
    without = stub.replace("    def fliplr(self)", "    def other(self)")
    assert without != stub
    assert absent(without) == {"Tensor.fliplr"}
