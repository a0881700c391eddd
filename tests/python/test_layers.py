"""The rules on who may include whom, checked on the sources themselves."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Lowest first: a layer includes only from itself and from those before it.
LAYERS = (
    "support",
    "ir",
    "ops",
    "autodiff",
    "passes",
    "planner",
    "backends",
    "runtime",
    "compile",
    "bindings",
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|import)[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
RETAIN = re.compile(r"\b(retain|release|autorelease)\b")
SUFFIXES = (".h", ".cpp", ".m", ".mm")


def find_violations(csrc: Path) -> list[str]:
    """One line, `file: what is wrong`, for each broken rule under csrc."""
    violations = []
    for path in sorted(csrc.rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        place = path.relative_to(csrc)
        text = path.read_text(encoding="utf-8")
        layer = place.parts[0]
        is_metal = place.parts[:2] == ("backends", "metal")
        if layer not in LAYERS:
            violations.append(f"{place}: {layer} is not a layer")
            continue
        for included in INCLUDE.findall(text):
            parts = included.split("/")
            if layer != "bindings" and (parts[0] == "pybind11" or parts[-1] == "Python.h"):
                violations.append(f"{place}: only bindings may include {included}")
            if not (csrc / included).is_file():
                continue
            if LAYERS.index(parts[0]) > LAYERS.index(layer):
                violations.append(f"{place}: {layer} must not include {included}")
            device = place.parts[1] if layer == "backends" and len(place.parts) > 2 else None
            other = parts[1] if parts[0] == "backends" and len(parts) > 2 else None
            if device and other and device != other:
                violations.append(f"{place}: backends/{device} must not include {included}")
        if path.suffix in (".m", ".mm") and not is_metal:
            violations.append(f"{place}: only backends/metal may be Objective-C++")
        if is_metal and path.name != "retained.h" and RETAIN.search(text):
            violations.append(f"{place}: only retained.h may speak of retain and release")
    return violations


def test_sources_keep_the_rules() -> None:
    assert (ROOT / "csrc" / "support").is_dir()
    assert find_violations(ROOT / "csrc") == []


def plant(csrc: Path, files: dict[str, str]) -> None:
    for place, text in files.items():
        path = csrc / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


CASES: tuple[tuple[dict[str, str], list[str]], ...] = (
    (
        {"ir/graph.h": '#include "ops/registry.h"\n', "ops/registry.h": ""},
        ["ir/graph.h: ir must not include ops/registry.h"],
    ),
    (
        {"runtime/tensor.cpp": "#include <pybind11/pybind11.h>\n  #  include <Python.h>\n"},
        [
            "runtime/tensor.cpp: only bindings may include pybind11/pybind11.h",
            "runtime/tensor.cpp: only bindings may include Python.h",
        ],
    ),
    (
        {
            "backends/cpu/kernel.cpp": '#include "backends/metal/device.h"\n',
            "backends/metal/device.h": "",
        },
        ["backends/cpu/kernel.cpp: backends/cpu must not include backends/metal/device.h"],
    ),
    (
        {"backends/metal/device.mm": "[device release];\n", "backends/metal/retained.h": "release"},
        ["backends/metal/device.mm: only retained.h may speak of retain and release"],
    ),
    (
        {"runtime/tensor.mm": ""},
        ["runtime/tensor.mm: only backends/metal may be Objective-C++"],
    ),
    ({"util/misc.h": ""}, ["util/misc.h: util is not a layer"]),
    (
        {
            "bindings/module.cpp": '#include <pybind11/pybind11.h>\n#include "ir/graph.h"\n',
            "ir/graph.h": "#include <vector>\n",
        },
        [],
    ),
)


@pytest.mark.parametrize(("files", "expected"), CASES)
def test_planted_violation_is_found(
    tmp_path: Path, files: dict[str, str], expected: list[str]
) -> None:
    plant(tmp_path, files)
    assert find_violations(tmp_path) == expected
