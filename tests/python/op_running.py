"""Runs rows of the table of operations and compares what they give."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
from cases.case import FLOATS, HALVES, Array, Input, OpCase, RandomState, Sample
from lucid import Tensor

# Relative error allowed where a row does not say otherwise: some units in the last place.
TOLERANCES = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-13}
# Least positive number of each dtype: what rounding may cost below the normal range.
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}


def dtype_of(name: str) -> Any:
    return lucid.bool_ if name == "bool" else getattr(lucid, name)


def widened(name: str, wide: bool) -> str:
    return "float64" if wide and name == "float32" else name


def to_tensor(array: Array, dtype: str) -> Tensor:
    """A tensor of these values, rounded to the dtype by NumPy where NumPy has it."""
    if dtype == "bfloat16":
        return lucid.tensor(np.asarray(array, np.float64)).to(lucid.bfloat16)
    return lucid.tensor(np.asarray(array).astype(dtype))


def to_numpy(tensor: Tensor) -> Array:
    """Values as NumPy holds them; bfloat16 as float32."""
    tensor = tensor.detach()
    return np.array(
        tensor.to(lucid.float32).numpy() if tensor.dtype == lucid.bfloat16 else tensor.numpy()
    )


def to_bytes(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else to_numpy(tensor).tobytes()


def operands(case: OpCase, wide: bool = False) -> list[Any]:
    """The row's inputs for lucid: tensors, numbers, None and the generator."""
    return [
        operand(source, array, wide)
        for source, array in zip(case.inputs, case.arrays(), strict=True)
    ]


def operand(source: Input, array: Any, wide: bool) -> Any:
    if isinstance(source, Sample):
        with np.errstate(over="ignore", invalid="ignore"):
            return to_tensor(array, widened(source.dtype, wide))
    return lucid.default_generator if isinstance(source, RandomState) else source


def call(case: OpCase, inputs: list[Any], wide: bool = False) -> tuple[Tensor, ...]:
    """The outputs of the operation. The generator is put into the row's state first."""
    for source in case.inputs:
        if isinstance(source, RandomState) and not lucid._C.is_tracing():
            lucid.default_generator.manual_seed(source.seed)
    attrs = dict(case.attrs)
    if "dtype" in attrs:
        attrs["dtype"] = dtype_of(widened(attrs["dtype"], wide))
    if "results" in attrs and wide:
        attrs["results"] = attrs["results"].replace("float32", "float64")
    result = lucid._C.emit(case.op, *inputs, **attrs)
    return result if isinstance(result, tuple) else (result,)


def reference(case: OpCase, inputs: list[Any]) -> tuple[Array | None, ...]:
    """What NumPy gives in float64 for the values that the tensors hold."""
    assert case.numpy is not None
    given = []
    for source, value in zip(case.inputs, inputs, strict=True):
        array = to_numpy(value) if isinstance(value, Tensor) else value
        if isinstance(source, Sample) and source.is_floating:
            array = array.astype(np.float64)
        given.append(source if isinstance(source, RandomState) else array)
    with np.errstate(all="ignore"):
        result = case.numpy(*given, **case.attrs)
    return result if isinstance(result, tuple) else (result,)


def expected_dtypes(case: OpCase, count: int, wide: bool) -> list[str]:
    if isinstance(case.dtype, tuple):
        names = list(case.dtype)
    else:
        first = next((i.dtype for i in case.inputs if isinstance(i, Sample)), "")
        names = [case.dtype or first] * count
    return [widened(name, wide) for name in names]


def check_output(
    got: Tensor, expected: Array, dtype: str, tolerance: float | None, is_elementwise: bool
) -> None:
    """Raises AssertionError unless shape, dtype and values are as expected."""
    assert got.dtype.name == dtype
    assert tuple(got.shape) == np.shape(expected)
    found = to_numpy(got)
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected).astype(found.dtype)
    if dtype not in FLOATS:
        np.testing.assert_array_equal(found, wanted)
        return
    check_floats(found, wanted, dtype, tolerance, is_elementwise)


def check_floats(
    found: Array, wanted: Array, dtype: str, tolerance: float | None, is_elementwise: bool
) -> None:
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    found, wanted = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    if tolerance == 0:
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
        return
    scale = np.abs(wanted) if is_elementwise else np.max(np.abs(wanted), initial=0.0)
    limit = TOLERANCES[dtype] if tolerance is None else tolerance
    allowed = limit * scale + SMALLEST[dtype]
    error = np.abs(found - wanted)
    with np.errstate(all="ignore"):
        share = error / allowed
    assert np.all(error <= allowed), (
        f"error is {np.nanmax(share):.3g} times what is allowed:\n{found}\nexpected\n{wanted}"
    )


def is_single(case: OpCase) -> bool:
    """True if the row can also run in float64."""
    dtypes = {i.dtype for i in case.inputs if isinstance(i, Sample) and i.is_floating}
    return dtypes == {"float32"} and case.attrs.get("dtype") not in HALVES
