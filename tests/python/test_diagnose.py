"""diagnose: the operations of a function, their lines, gradients and costs, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy
import pytest
from diagnosed import floats, place
from lucid.compile import DiagnosisReport, OpInfo, counters, diagnose, make_step

WEIGHT = nn.Parameter(lucid.ones(3, 8))
BIAS = nn.Parameter(lucid.zeros(3))
FILTERS = nn.Parameter(lucid.ones(4, 3, 3, 3))


def only(report: DiagnosisReport, op: str) -> OpInfo:
    """The only row of that operation."""
    rows = [row for row in report.ops if row.op == op]
    assert len(rows) == 1, [row.op for row in report.ops]
    return rows[0]


def costs(row: OpInfo) -> tuple[float | None, ...]:
    return (row.flops, row.bytes, row.backward_flops, row.backward_bytes)


# ---------------------------------------------------------------- costs

COSTS: list[tuple[str, Callable[..., Any], tuple[lucid.Tensor, ...], tuple[float, ...]]] = [
    # 2 M N K; all three matrices once.
    (
        "matmul",
        lambda a, b: a @ b,
        (floats(4, 8), floats(8, 16)),
        (2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16), 0, 0),
    ),
    # The batch of the second operand is broadcast.
    (
        "matmul",
        lambda a, b: a @ b,
        (floats(5, 4, 8), floats(8, 16)),
        (5 * 2 * 4 * 8 * 16, 4 * (5 * 4 * 8 + 8 * 16 + 5 * 4 * 16), 0, 0),
    ),
    # Each output has K products and sums and one bias. Backward: dW is a product, db a sum.
    (
        "linear",
        lambda x: F.linear(x, WEIGHT, BIAS),
        (floats(5, 8),),
        (
            5 * 3 * (2 * 8 + 1),
            4 * (5 * 8 + 3 * 8 + 3 + 5 * 3),
            2 * 5 * 8 * 3 + 5 * 3,
            4 * (5 * 3 + 5 * 8 + 3 * 8) + 4 * (5 * 3 + 3),
        ),
    ),
    # Each of the 2*4*6*6 outputs has 3*3*3 products and sums; so has the filters' gradient.
    (
        "convolution",
        lambda x: F.conv2d(x, FILTERS),
        (floats(2, 3, 8, 8),),
        (
            2 * (2 * 4 * 6 * 6) * 27,
            4 * (2 * 3 * 8 * 8 + 4 * 27 + 2 * 4 * 6 * 6),
            2 * (2 * 4 * 6 * 6) * 27,
            4 * (2 * 3 * 8 * 8 + 4 * 27 + 2 * 4 * 6 * 6),
        ),
    ),
    # 2*4*8*8 scores: two products over 16 features, and 32 for the softmax. The log-sum-exp of
    # each of the 2*4*8 queries is written, too.
    (
        "attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (floats(2, 4, 8, 16), floats(2, 4, 8, 16), floats(2, 4, 8, 16)),
        (512 * (2 * 16 + 2 * 16 + 32), 4 * (4 * 1024 + 64), 0, 0),
    ),
    ("sum", lambda x: x.sum(), (floats(6, 7),), (42, 4 * (42 + 1), 0, 0)),
    ("amax", lambda x: x.amax(1), (floats(6, 7),), (42, 4 * (42 + 6), 0, 0)),
    ("add", lambda x, y: x + y, (floats(10), floats(10)), (10, 4 * 30, 0, 0)),
    ("exp", lambda x: x.exp(), (floats(10),), (24 * 10, 4 * 20, 0, 0)),
    ("reshape", lambda x: x.reshape(2, 5), (floats(10),), (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("op", "fn", "inputs", "expected"), COSTS, ids=[c[0] for c in COSTS])
def test_costs(
    op: str,
    fn: Callable[..., Any],
    inputs: tuple[lucid.Tensor, ...],
    expected: tuple[float, ...],
) -> None:
    report = diagnose(fn, *inputs)
    assert report.compiled is True
    assert costs(only(report, op)) == expected
    assert (report.flops, report.bytes) == expected[:2]
    assert (report.backward_flops, report.backward_bytes) == expected[2:]


def test_half_types_take_half_the_bytes() -> None:
    x = floats(6, 7).to(lucid.float16)
    assert only(diagnose(lambda x: x.sum(), x), "sum").bytes == 2 * (42 + 1)


# ---------------------------------------------------------------- rows


def two_lines(x: lucid.Tensor) -> lucid.Tensor:
    h = F.linear(x, WEIGHT, BIAS)  # first line
    return h.exp().sum()  # second line


def asks_item(x: lucid.Tensor) -> lucid.Tensor:
    y = x.exp()
    return y.sum() if y.sum().item() > 1 else y.mean()


def test_rows() -> None:
    report = diagnose(two_lines, floats(5, 8))
    assert [row.op for row in report.ops] == ["linear", "exp", "sum"]
    assert [row.index for row in report.ops] == [0, 1, 2]
    assert [row.at for row in report.ops] == [
        place(__file__, "first line"),
        place(__file__, "second line"),
        place(__file__, "second line"),
    ]
    linear = report.ops[0]
    assert linear.input_shapes == ((5, 8), (3, 8), (3,))
    assert linear.input_dtypes == (lucid.float32,) * 3
    assert linear.output_shapes == ((5, 3),)
    assert linear.output_dtypes == (lucid.float32,)
    assert report.ops[2].attributes == "dims=[0, 1], keepdim=false"
    assert all(row.compiled is True and row.reason is None for row in report.ops)
    assert (report.compiled, report.reason, report.remedy) == (True, None, None)
    assert report.complete
    assert report.device == "cpu"


def test_absent_inputs() -> None:
    row = only(diagnose(lambda x: F.linear(x, WEIGHT), floats(5, 8)), "linear")
    assert row.input_shapes[:2] == ((5, 8), (3, 8))
    assert row.input_shapes[2:] in ((), (None,))


def test_module_and_closure() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    x, t = floats(2, 4), lucid.tensor([0, 2])
    assert [row.op for row in diagnose(model, x).ops] == ["linear", "relu"]
    report = diagnose(lambda: F.cross_entropy(model(x), t))
    assert [row.op for row in report.ops][:2] == ["linear", "relu"]
    assert report.compiled is True


def test_trees_and_numbers() -> None:
    report = diagnose(
        lambda pair, k: pair["a"] * k + pair["b"], {"a": floats(3), "b": floats(3)}, 2
    )
    assert report.compiled is True
    assert only(report, "mul").output_shapes == ((3,),)


def test_compiled_callables() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    x = floats(2, 4)
    reports = [diagnose(fn, x) for fn in (model, lucid.compile(model))]
    assert reports[0] == reports[1]
    for segments in (1, 2, "auto"):
        step = make_step(model, lambda y: y.sum(), segments=segments)
        report = diagnose(step, x)
        assert [row.op for row in report.ops] == ["linear", "relu", "sum"]
        assert step.cache == ()
        assert step.explain() == "nothing has been compiled yet: call it once"


class Scaled:
    """An object with a method."""

    def __init__(self) -> None:
        self.scale = floats(3)

    def apply(self, x: lucid.Tensor, power: int = 1) -> lucid.Tensor:
        return x.exp() * self.scale**power


def test_methods_and_partials() -> None:
    x = floats(2, 3)
    for fn in (Scaled().apply, functools.partial(Scaled().apply, power=1)):
        report = diagnose(fn, x)
        assert report.compiled is True, report.reason
        assert {"exp", "mul"} <= {row.op for row in report.ops}


def test_nothing_to_do() -> None:
    report = diagnose(lambda x: x, floats(3))
    assert (report.ops, report.compiled, report.flops, report.backward_flops) == ((), True, 0, 0)
    assert str(report).splitlines()[0] == "0 operations on cpu: compiled"
    assert report.by_line() == []


def test_autocast_shows_its_casts() -> None:
    with lucid.autocast("cpu", lucid.bfloat16):
        report = diagnose(lambda x: F.linear(x, WEIGHT, BIAS), floats(5, 8))
    assert [row.op for row in report.ops] == ["cast", "cast", "cast", "linear"]
    assert report.ops[3].input_dtypes == (lucid.bfloat16,) * 3


def test_only_the_loss_of_a_step_is_differentiated() -> None:
    model = nn.Linear(4, 3)

    def loss_fn(y: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        return y.sum(), y.exp()

    row = only(diagnose(make_step(model, loss_fn, has_aux=True), floats(2, 4)), "exp")
    assert (row.backward_flops, row.backward_ops) == (0, ())
    row = only(diagnose(lambda x: loss_fn(model(x)), floats(2, 4)), "exp")
    assert row.backward_ops == ("mul",)
    assert row.backward_flops == 6


# ---------------------------------------------------------------- gradients


def gradient_of(fn: Callable[..., Any], *inputs: lucid.Tensor) -> dict[str, str]:
    return {row.op: row.gradient for row in diagnose(fn, *inputs).ops}


def without_grad(x: lucid.Tensor) -> lucid.Tensor:
    with lucid.no_grad():
        return x.exp()


def test_gradient_flow() -> None:
    x, y = floats(4), floats(4, requires_grad=True)
    assert gradient_of(lambda x, y: x.exp() * y, x, y) == {"exp": "none", "mul": "flows"}
    assert gradient_of(lambda y: y.detach().exp(), y) == {"detach": "stops", "exp": "none"}
    assert gradient_of(lambda y: y.argmax(0), y) == {"argmax": "stops"}
    assert gradient_of(without_grad, y) == {"exp": "stops"}
    with lucid.no_grad():
        assert gradient_of(lambda y: y.exp(), y) == {"exp": "none"}
        assert diagnose(lambda y: y.exp(), y).backward_flops == 0


def test_has_rule() -> None:
    report = diagnose(lambda y: y.exp().argmax(0), floats(4, requires_grad=True))
    assert [(row.op, row.has_rule) for row in report.ops] == [("exp", True), ("argmax", False)]


# ---------------------------------------------------------------- passes


def repeated(x: lucid.Tensor) -> lucid.Tensor:
    lucid.cos(x)  # unused
    return (x.exp() + x.exp()).reshape(5)  # twice


def test_what_the_passes_remove() -> None:
    report = diagnose(repeated, floats(5))
    found = [(row.op, row.removed_by) for row in report.ops]
    assert found == [
        ("cos", "drop_dead"),
        ("exp", None),
        ("exp", "merge_common"),
        ("add", None),
        ("reshape", "simplify"),
    ]
    assert only(report, "cos").at == place(__file__, "unused")
    assert "gone: merge_common" in str(report)


# ---------------------------------------------------------------- devices


def test_a_device_that_is_not_here_is_unknown() -> None:
    try:
        lucid.zeros(1).to("metal")
    except lucid.DeviceUnavailableError as error:
        reason = str(error)
    else:
        pytest.skip("this build has the device")
    report = diagnose(two_lines, floats(5, 8), device="metal")
    assert report.compiled is None
    assert report.unavailable is not None
    assert reason.partition(":")[2] == report.unavailable.partition(":")[2]
    assert report.reason == report.unavailable
    assert [row.compiled for row in report.ops] == [None, None, None]
    assert str(report).splitlines()[0] == "3 operations on metal: unknown if compiled"
    assert diagnose(asks_item, floats(4, 2), device="metal").compiled is False


def test_the_backend_is_asked() -> None:
    report = diagnose(two_lines, floats(5, 8), device=lucid.device("cpu"))
    assert report.compiled is True
    assert [row.reason for row in report.ops] == [None, None, None]


# ---------------------------------------------------------------- nothing happens


class Stateful(nn.Module):
    """Batch norm, dropout, a buffer that is assigned, and a list that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("mean", lucid.zeros(4))
        self.seen: list[int] = []

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        self.seen.append(len(self.seen))
        self.mean = x.mean(0).detach()
        y: lucid.Tensor = self.drop(self.norm(x))
        return y


def state_of(model: nn.Module) -> list[Any]:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [
        [(name, id(t), t.tolist(), t.requires_grad) for name, t in tensors],
        [
            None if p.grad is None else (p.grad._cell_id, p.grad.tolist())
            for p in model.parameters()
        ],
        lucid._C.default_generator.get_state(),
        random.getstate(),
        repr(numpy.random.get_state(legacy=False)),
        lucid.is_grad_enabled(),
    ]


def zeroes_gradients(model: nn.Module, x: lucid.Tensor) -> lucid.Tensor:
    for parameter in model.parameters():
        parameter.grad = None
    random.random()
    numpy.random.rand()
    y: lucid.Tensor = model(x)
    y.sum().backward()
    return y


@pytest.mark.parametrize("is_refused", [False, True])
def test_nothing_changes(is_refused: bool) -> None:
    model = Stateful()
    model(floats(8, 4)).sum().backward()
    x = floats(8, 4)
    before, seen = state_of(model), list(model.seen)
    runs = counters()
    if is_refused:
        report = diagnose(lambda x: zeroes_gradients(model, x), x)
        assert report.reason is not None
        assert report.reason.startswith("grad: the gradient of a tensor was set inside")
        assert report.reasons[-1].startswith("backward: ")
    else:
        assert diagnose(model, x).reason == (
            "compile: the step changed attribute Stateful.seen, which a compiled run would not "
            "repeat; keep such state in a registered buffer, or compute it outside of the step"
        )
    assert state_of(model) == before
    assert model.seen == seen
    now = counters()
    assert now["executable_runs"] == runs["executable_runs"]


def test_no_operation_runs() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    x = floats(8, 4)
    step = make_step(model, lambda y: y.sum())
    diagnose(step, x)
    before, state = counters(), state_of(model)
    report = diagnose(step, x)
    now = counters()
    assert report.compiled is True
    assert now["eager_dispatches"] - before["eager_dispatches"] <= 0
    assert now["executable_runs"] == before["executable_runs"]
    assert now["compilations"] == before["compilations"]
    assert state_of(model)[0:3] == state[0:3]


def test_the_first_call_finds_its_executable() -> None:
    model = nn.Linear(11, 13)
    step = make_step(model, lambda y: y.tanh().sum())
    diagnose(step, floats(3, 11))
    before = counters()["compilations"]
    step(floats(3, 11)).backward()
    assert counters()["compilations"] == before


# ---------------------------------------------------------------- the report


def test_by_line() -> None:
    lines = diagnose(two_lines, floats(5, 8)).by_line()
    assert [line["at"] for line in lines] == [
        place(__file__, "first line"),
        place(__file__, "second line"),
    ]
    assert lines[0]["source"] == "h = F.linear(x, WEIGHT, BIAS)  # first line"
    assert [line["ops"] for line in lines] == [{"linear": 1}, {"exp": 1, "sum": 1}]
    assert (lines[1]["flops"], lines[1]["bytes"]) == (24 * 15 + 15, 4 * 30 + 4 * 16)
    assert [line["compiled"] for line in lines] == [True, True]
    refused = diagnose(asks_item, floats(2, 2)).by_line()[-1]
    assert (refused["compiled"], refused["backward_flops"]) == (False, None)


@pytest.mark.parametrize("fn", [two_lines, asks_item])
def test_to_dict_is_json(fn: Callable[..., Any]) -> None:
    report = diagnose(fn, floats(5, 8))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["compiled"] is report.compiled
    assert found["flops"] == report.flops
    assert found["reason"] == report.reason
    assert len(found["ops"]) == len(report.ops)
    first = found["ops"][0]
    assert first["at"] == report.ops[0].at
    assert first["input_dtypes"][0] == "float32"
    assert first["input_shapes"][0] == [5, 8]
    fields = {field.name for field in dataclasses.fields(OpInfo)} | {"at"}
    assert set(first) == fields


def test_summary() -> None:
    report = diagnose(two_lines, floats(5, 8))
    assert str(report) == report.summary()
    lines = report.summary().splitlines()
    assert lines[0] == "3 operations on cpu: compiled"
    assert lines[1] == "  forward 630 FLOP, 512 B; backward 270 FLOP, 632 B"
    head, *rows = lines[2:]
    assert head.split() == "operation at inputs outputs gradient FLOP B back FLOP back B".split()
    assert len(rows) == 3
    column = head.index("operation")
    assert [row[column:].split()[0] for row in rows] == ["linear", "exp", "sum"]
    end = head.index("FLOP") + len("FLOP")
    assert [row[:end].split()[-1] for row in rows] == ["255", "360", "15"]


def test_summary_of_the_most_work() -> None:
    report = diagnose(two_lines, floats(5, 8))
    rows = report.summary(top=2).splitlines()[3:]
    assert [row.split()[1] for row in rows] == ["linear", "exp"]
    for top in (0, -1, True, 1.5, "2"):
        with pytest.raises(lucid.UserError, match=r"^summary: top must be a positive integer: got"):
            report.summary(top=top)  # type: ignore[arg-type]
