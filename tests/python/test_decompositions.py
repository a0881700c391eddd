"""Fused operations against their own decompositions, over the table of operations."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
from cases.case import FLOATS, Array, OpCase
from lucid import Tensor
from op_cases import CASES
from op_running import SMALLEST, call, is_single, operands, to_numpy

FUSED = {name: case for name, case in CASES.items() if lucid._C.op_info(case.op)["has_decompose"]}
# Error of a chain of operations, over the value of an element-wise one, else over the largest:
# each node of a decomposition rounds to the dtype, the fused operation of halves once.
TOLERANCES = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 3e-6, "float64": 1e-12}
# So many times what a row allows between the operation and NumPy.
ROW_SHARE = 5
# A factor below the normal range has lost digits; in units of the least positive number.
SUBNORMAL_SLACK = 128


def floating(value: Any) -> Any:
    """A tensor as an element-wise operation of floats takes it; the rest unchanged."""
    is_integer = isinstance(value, Tensor) and not value.dtype.is_floating_point
    return value.to(lucid.get_default_dtype()) if is_integer else value


def decompose(case: OpCase, inputs: list[Any]) -> tuple[Tensor, ...]:
    if lucid._C.op_info(case.op)["is_elementwise"]:
        inputs = [floating(value) for value in inputs]
    return lucid._C.decompose(case.op, *inputs, **case.attrs)


def tolerance(case: OpCase, dtype: str) -> float:
    own = ROW_SHARE * (case.tolerance or 0.0) * (1e-7 if dtype == "float64" else 1)
    return max(TOLERANCES[dtype], own)


def check_close(
    found: Array, wanted: Array, dtype: str, limit: float, is_elementwise: bool
) -> None:
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    found, wanted = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    scale = np.abs(wanted) if is_elementwise else np.max(np.abs(wanted), initial=0.0)
    allowed = limit * scale + SUBNORMAL_SLACK * SMALLEST[dtype]
    worst = np.max(np.abs(found - wanted) / allowed, initial=0.0)
    assert worst <= 1, f"error is {worst:.3g} times what is allowed:\n{found}\nparts\n{wanted}"


def check(case: OpCase, wide: bool) -> None:
    inputs = operands(case, wide)
    fused = call(case, inputs, wide)
    parts = decompose(case, inputs)
    assert len(fused) == len(parts)
    is_elementwise = lucid._C.op_info(case.op)["is_elementwise"]
    for found, wanted in zip(fused, parts, strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert not wanted.requires_grad
        arrays = to_numpy(found), to_numpy(wanted)
        name = found.dtype.name
        if name in FLOATS:
            check_close(*arrays, name, tolerance(case, name), is_elementwise)
        else:
            np.testing.assert_array_equal(*arrays)


@pytest.mark.parametrize("case", FUSED.values(), ids=FUSED.keys())
def test_equals_its_decomposition(case: OpCase) -> None:
    check(case, wide=False)
    if is_single(case):
        check(case, wide=True)


def test_gradients_are_off() -> None:
    x = lucid.ones(2, requires_grad=True)
    assert not lucid._C.decompose("silu", x)[0].requires_grad
    assert lucid.is_grad_enabled()


def test_planted_difference_is_found() -> None:
    with pytest.raises(AssertionError, match="times what is allowed"):
        check_close(np.ones(2), np.asarray([1, 1 + 1e-11]), "float64", 1e-12, is_elementwise=True)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        check_close(np.zeros(1), np.full(1, np.nan), "float64", 1e-12, is_elementwise=True)
