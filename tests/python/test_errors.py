"""Every message has a row with its exact text, and follows one form."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import lucid
import pytest
from error_cases import CASES
from errors.case import ErrorCase

ROOT = Path(__file__).resolve().parents[2]
# A piece of a message that is shorter says too little to be looked for.
SHORTEST = 6

# Pieces of the messages that no call in Python meets.
UNREACHABLE = (
    # Rules, kernels and traces are the core's own.
    ": has no gradient; detach its input if none is meant",
    ": a gradient rule reads a value that its operation did not declare in vjp_reads",
    "a leaf's accumulator is not applied",
    ": a value without a tensor cannot be captured",
    ": no host calls functions here; define it in Python",
    ": an operand belongs to a trace that has ended",
    "step: a probe with arguments of another signature",
    " where the executable takes ",
    # It takes another thread that changes the model meanwhile.
    (
        ": a tensor that the step reads stands in several places that were changed while the step "
        "ran; keep it in one attribute"
    ),
    # No rule known reads more for the gradients of some results than for those of all.
    (
        "backward: the gradients of some results of a compiled function would run its impure "
        "operations again; give all results a gradient, or leave it uncompiled"
    ),
    # An earlier check refuses the same call.
    "step: the loss must be one floating element: got ",
    ": reduction over zero elements has no value",
    ": no cpu kernel for ",
    "); convert them to float32 first",
    "convolution: no kernel for dtype ",
    "matmul: no product of dtype ",
    " is the result of an operation; compute it in forward, or detach it first",
    # It takes two devices, or more memory than there is.
    ": tensors on two devices: ",
    "; move model and inputs to one with .to()",
    "in-place change: the tensor is on ",
    "make_step: this device does not keep to a memory_limit: its arena takes ",
    " cannot be compiled; move the tensor before the step",
    "to: dtype does not exist on metal: float64; cast to float32 first",
    "plane has 2^31 elements or more: input ",
)

# Files whose messages are compared in tests of their own, partly as patterns.
WITHOUT_ROWS = ("custom.py", "saved.cpp", "saving.py")


def without_place(text: str) -> str:
    """The message without the user's line."""
    return text.split("\n  at ")[0]


def rows() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@rows()
def test_text(case: ErrorCase) -> None:
    with pytest.raises(case.error) as caught:
        case.call()
    assert type(caught.value) is case.error
    assert without_place(str(caught.value)) == case.text


def is_foreign(text: str) -> bool:
    """True for the words of PyTorch or Python that are kept, and for texts with a graph."""
    return text.startswith(("Invalid ", "Error(s) in loading", "`", "'", "graph broken"))


def has_form(text: str) -> bool:
    """True for `<op>: <what is wrong>`: on one line, without a final period."""
    return re.fullmatch(r"(?:[^:\n]|::)+: [^\n]*[^.\n]", text) is not None


@rows()
def test_form(case: ErrorCase) -> None:
    assert has_form(case.text) or is_foreign(case.text)


def test_names_are_distinct() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


def arguments(source: str, start: int) -> str:
    """What stands between the bracket before ``start`` and the one that closes it."""
    token = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')
    depth = 1
    for found in token.finditer(source, start):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if depth == 0:
            return source[start : found.start()]
    return source[start:]


def cpp_messages(source: str) -> Iterator[str]:
    """The longest piece of text of each call of fail, refuse or Error."""
    for call in re.finditer(r"\b(?:fail|refuse|Error)\(", source):
        given = re.sub(r'"\s+"', "", arguments(source, call.end()))
        pieces = re.findall(r'"((?:[^"\\]|\\.)*)"', given)
        yield max((p.replace('\\"', '"') for p in pieces), key=len, default="")


def python_messages(source: str) -> Iterator[str]:
    """The longest piece of text of each error that is raised."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        kind = node.exc.func
        name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")
        if name in ("InternalError", "AssertionError"):
            continue  # our own fault: no input leads to it
        inside = [part for argument in node.exc.args for part in ast.walk(argument)]
        values = [part.value for part in inside if isinstance(part, ast.Constant)]
        yield max((value for value in values if isinstance(value, str)), key=len, default="")


def known_texts() -> str:
    """The texts of the rows, and all that other tests compare messages with."""
    texts = [case.text for case in CASES]
    folder = ROOT / "tests" / "python"
    names = ("autograd", "user_scripts", "dynamic", "compile_tools", "profile")
    others = [folder / f"test_{name}.py" for name in names]
    for path in (*folder.glob("test_step*.py"), *others):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        texts += [value.replace("\\", "") for value in values if isinstance(value, str)]
    return "\n".join(texts)


def without_row(
    messages: Callable[[str], Iterator[str]], sources: list[Path], texts: str
) -> list[str]:
    """The messages of the sources that no row shows, by file."""
    missing = []
    for path in sources:
        for piece in messages(path.read_text(encoding="utf-8")):
            is_known = len(piece) < SHORTEST or piece in texts or piece in UNREACHABLE
            if not is_known:
                missing.append(f"{path.name}: {piece}")
    return missing


@pytest.mark.parametrize("folder", ["ops", "backends/cpu/kernels", "runtime", "support", "compile"])
def test_messages_of_the_core_have_rows(folder: str) -> None:
    found = sorted((ROOT / "csrc" / folder).rglob("*.cpp"))
    sources = [path for path in found if path.name not in WITHOUT_ROWS]
    assert sources
    assert without_row(cpp_messages, sources, known_texts()) == []


@pytest.mark.parametrize(
    "folder",
    ["amp", "autograd", "compile", "functions", "nn", "optim", "serialization", "utils"],
)
def test_messages_of_the_package_have_rows(folder: str) -> None:
    found = sorted(Path(lucid.__file__).parent.joinpath(folder).rglob("*.py"))
    sources = [path for path in found if path.name not in WITHOUT_ROWS]
    assert sources
    assert without_row(python_messages, sources, known_texts()) == []


def test_unreachable_messages_exist_and_have_no_row() -> None:
    found: set[str] = set()
    for path in (ROOT / "csrc").rglob("*.cpp"):
        found.update(cpp_messages(path.read_text(encoding="utf-8")))
    for path in Path(lucid.__file__).parent.rglob("*.py"):
        found.update(python_messages(path.read_text(encoding="utf-8")))
    texts = known_texts()
    assert [piece for piece in UNREACHABLE if piece not in found or piece in texts] == []


def test_out_of_memory() -> None:
    # What is in use depends on the tests before.
    text = r"out of memory: \d+ bytes asked on cpu, \d+ bytes in use by tensors"
    with pytest.raises(lucid.OutOfMemoryError) as caught:
        lucid.zeros(2**50)
    assert re.fullmatch(text, str(caught.value))


def test_planted_messages_are_found(tmp_path: Path) -> None:
    cpp = tmp_path / "planted.cpp"
    cpp.write_text('args.fail("planted (one): " + text(")") + "; "\n"more to it");')
    assert without_row(cpp_messages, [cpp], "") == ["planted.cpp: planted (one): "]
    assert without_row(cpp_messages, [cpp], "op: planted (one): 3") == []
    python = tmp_path / "planted.py"
    python.write_text('raise UserError(f"planted: {value} is wrong")')
    assert without_row(python_messages, [python], "") == ["planted.py: planted: "]


@pytest.mark.parametrize("text", ["no operation", "op: ends with a period.", "op: two\nlines"])
def test_planted_forms_are_found(text: str) -> None:
    assert not has_form(text)
