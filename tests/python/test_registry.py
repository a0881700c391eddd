"""Every operation has what an operation must have: rows, a kernel, a doc, a way to be called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import lucid
import pytest
from op_cases import CASES
from op_running import call, operands

PACKAGE = Path(lucid.__file__).parent
NAMES = tuple(lucid._C.op_names())
# Gradients of other operations: only their rules call them.
CALLED_BY_RULES = {
    "attention_grad",
    "avg_pool_grad",
    "batch_norm_grad",
    "convolution_weight_grad",
    "cross_entropy_grad",
    "custom_grad",
    "custom_impure_grad",
    "gelu_grad",
    "gru_layer_grad",
    "layer_norm_grad",
    "log_softmax_grad",
    "lstm_layer_grad",
    "max_pool_grad",
    "rnn_layer_grad",
    "softmax_grad",
    "with_gradient",
}
# Their rules refuse by the user's name, come with a trace, or would be of integers.
RULES_OF_OTHERS = ("custom_grad", "custom_impure_grad", "with_gradient", "index_from_front")
ROWS = {name: [case for case in CASES.values() if case.op == name] for name in NAMES}


def without_rows(names: Iterable[str], rows: Iterable[str]) -> list[str]:
    """Operations that have no row."""
    return sorted(set(names) - set(rows))


def not_called(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Operations whose name no Python source has as a string."""
    strings = {text for source in sources for text in re.findall(r"\"(\w+)\"", source)}
    return sorted(set(names) - strings)


def test_every_operation_has_a_row() -> None:
    assert without_rows(NAMES, (case.op for case in CASES.values())) == []


def test_every_row_has_an_operation() -> None:
    assert {case.op for case in CASES.values()} <= set(NAMES)


def test_every_operation_is_called_from_python() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    assert not_called(NAMES, sources) == sorted(CALLED_BY_RULES)


def test_planted_operations_are_found() -> None:
    assert without_rows(["add", "planted"], ["add", "sub"]) == ["planted"]
    assert not_called(["add", "planted"], ['emit("add", x)', "planted"]) == ["planted"]


@pytest.mark.parametrize("name", NAMES)
def test_operation_is_documented(name: str) -> None:
    info = lucid._C.op_info(name)
    assert info["name"] == name
    assert len(info["doc"]) >= 2
    assert "\n" not in info["doc"]
    assert not info["doc"].endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_operation_has_a_kernel(name: str) -> None:
    case = ROWS[name][0]
    outputs = call(case, operands(case))
    assert all(output.device.type == "cpu" and not output.is_symbolic for output in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_checked_where_there_is_a_rule(name: str) -> None:
    """An operation with a rule, or a decomposition that gives one, has a row that checks it."""
    info = lucid._C.op_info(name)
    is_differentiable = info["has_vjp"] or info["has_decompose"]
    is_differentiable = is_differentiable and name not in RULES_OF_OTHERS
    assert any(case.grad_places() for case in ROWS[name]) == is_differentiable


@pytest.mark.parametrize("name", NAMES)
def test_attributes_of_rows_are_those_of_the_operation(name: str) -> None:
    attributes = set(lucid._C.op_info(name)["attributes"]) - {"offset"}
    for case in ROWS[name]:
        assert set(case.attrs) == attributes
