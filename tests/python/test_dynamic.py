"""lucid.compile(dynamic=True): one trace for all sizes, and never a result of another size."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import pytest
from lucid import Tensor
from lucid.compile import CompiledFunction, dynamic
from test_bit_equality import bits, grad_bits
from test_compile_function import spent
from zoo import floats, labels

pytestmark = pytest.mark.filterwarnings("ignore::lucid.compile.RecompileWarning")

SIZES = (4, 7, 2, 64, 33, 100, 0, 1, 5)
WEIGHT, OTHER = floats(11, 3, 3), floats(12, 3, 3)


class Counted:
    """Counts the traces made for all sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traces = 0
        self._trace = dynamic.trace
        monkeypatch.setattr(dynamic, "trace", self.trace)

    def trace(self, *args: Any) -> Any:
        self.traces += 1
        return self._trace(*args)


def leaves(value: Any) -> list[Any]:
    """The parts of a result; of a tensor its shape and bits."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value.shape, bits(value)] if isinstance(value, Tensor) else [value]


def compare(function: Callable[..., Any], sizes: tuple[int, ...], *shape: int) -> CompiledFunction:
    """The compiled function, after it was compared with the eager one at all sizes."""
    compiled: CompiledFunction = lucid.compile(function, dynamic=True, fallback="error")
    for i, size in enumerate(sizes):
        x = floats(i, size, *shape)
        state = lucid.get_rng_state()
        wanted = leaves(function(x)), lucid.get_rng_state().tolist()
        lucid.set_rng_state(state)
        assert (leaves(compiled(x)), lucid.get_rng_state().tolist()) == wanted, f"size {size}"
    return compiled


# ------------------------------------------------------------ one trace


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("product", lambda x: (x @ WEIGHT).relu()),
        ("mean", lambda x: (x.mean(), x.mean(0), x.softmax(0), x.cumsum(0))),
        ("random", lambda x: F.dropout(F.dropout(x, 0.5), 0.3) + lucid.rand_like(x)),
        ("permuted", lambda x: x[lucid.randperm(x.shape[0])]),
        ("counted", lambda x: x * lucid.arange(x.shape[0]).unsqueeze(1)),
        ("square", lambda x: x @ x.t()),
        ("flat", lambda x: (x.reshape(-1), x.reshape(x.shape[0] * 3))),
        ("last", lambda x: (x[-1], x[: x.shape[0] - 1]) if x.shape[0] > 0 else x),
        ("zeros", lambda x: lucid.cat([x, lucid.zeros(x.shape[0], 2)], dim=1)),
        ("average", lambda x: x.sum(0) / x.shape[0] + x.std(0) * (2 * x.shape[0] + 1)),
        ("two axes", lambda x: x.repeat(2, 1)),
    ],
)
def test_one_trace_for_all_sizes(
    name: str, function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    lucid.manual_seed(1)
    compiled = compare(function, SIZES, 3)
    assert counted.traces == 3  # at the first size, the smallest and a large one
    assert compiled.cache_info()["misses"] == 3  # 0 and 1 stand for themselves
    assert "compiled for each size" not in compiled.explain()


def test_a_new_size_traces_and_dispatches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = lucid.compile(lambda x: (x @ WEIGHT).relu(), dynamic=True, fallback="error")
    compiled(floats(1, 4, 3))
    counted = Counted(monkeypatch)
    for size in range(2, 90):  # more than are kept
        x = floats(size, size, 3)
        found = spent(lambda: compiled(x))  # noqa: B023
        assert (found["executable_runs"], found["eager_dispatches"]) == (1, 0)
        assert bits(compiled(x)) == bits((x @ WEIGHT).relu())
    assert counted.traces == 0
    assert compiled.cache_info()["entries"] == 1
    assert compiled.memory()["inputs"] == 89 * 12 + 36


def test_explain_names_the_sizes() -> None:
    compiled = lucid.compile(lambda x: (x @ WEIGHT).relu(), dynamic=True, fallback="error")
    for size in (5, 1, 40, 5, 3):
        compiled(floats(1, size, 3))
    first, alone = compiled.explain().splitlines()
    assert first.startswith("signature 1: (float32[5, 3]), compiled")
    assert first.endswith("; for any size of the first axis, so far 3, 5, 40")
    assert "(float32[1, 3])" in alone and "so far" not in alone
    for size in range(2, 90):  # more than are kept
        compiled(floats(1, size, 3))
    assert (
        compiled.explain()
        .splitlines()[0]
        .endswith("so far 2, 3, 4, 5, 6, 7, 8, 9 and 80 more up to 89")
    )


def test_several_arguments() -> None:
    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(0), y.sum(0)

    compiled = lucid.compile(sums, dynamic=True, fallback="error")
    for n, m in [(4, 4), (5, 5), (4, 6), (6, 4), (5, 7), (1, 1), (1, 5), (4, 4), (9, 9)]:
        x, y = floats(n, n, 3), floats(m + 50, m, 3)
        assert leaves(compiled(x, y)) == leaves(sums(x, y)), (n, m)


def test_labels_and_scalars() -> None:
    def loss(scale: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y * scale, t)

    compiled = lucid.compile(loss, dynamic=True, fallback="error")
    for n in (4, 9, 3):
        scale, y, t = floats(n), floats(n, n, 5), labels(n, 5, n)
        assert bits(compiled(scale, y, t)) == bits(loss(scale, y, t))
    assert compiled.cache_info()["entries"] == 1
    with pytest.raises(lucid.OutOfRangeError):
        compiled(floats(1), floats(1, 6, 5), lucid.full((6,), 7, dtype=lucid.int64))


def test_writes_of_arguments_and_buffers() -> None:
    total = lucid.zeros(3)

    def double(x: Tensor) -> Tensor:
        total.add_(x.sum(0))
        return x.mul_(2.0).sum()

    compiled = lucid.compile(double, dynamic=True, fallback="error")
    for n in (4, 9, 3):
        x = lucid.ones(n, 3)
        compiled(x)
        assert x.tolist() == [[2.0] * 3] * n
    assert total.tolist() == [16.0] * 3
    assert compiled.cache_info()["entries"] == 1


# ------------------------------------------------------------ what depends on the size otherwise


def loop(x: Tensor) -> Tensor:
    for i in range(x.shape[0]):
        x = x + i
    return x


DECIDED = (
    "compile: the code decides by the size of the first axis, or computes with it; keep the "
    "computation in tensors"
)
OTHERWISE = "compile: the graph depends on the size of the first axis in more than its shapes: "
GROWS = (
    "compile: the number of operations grows with the size of the first axis; replace the loop "
    "over it by operations on whole tensors"
)
SQUARE = OTHERWISE + "shapes at 500009 are not those that follow from 4"
NUMBERS = (
    "compile: the result holds numbers that depend on the size of the first axis; return tensors, "
    "whose shapes tell it"
)


@pytest.mark.parametrize(
    ("name", "function", "reason"),
    [
        ("equal", lambda x: x * 2 if x.shape[0] == 64 else x, DECIDED),
        ("between", lambda x: x * 2 if 50 < x.shape[0] < 80 else x, DECIDED),
        ("even", lambda x: x * 2 if x.shape[0] % 2 == 0 else x, DECIDED),
        ("len", lambda x: x * 2 if len(x) == 64 else x, DECIDED),
        ("size", lambda x: x * 2 if x.size(0) in (33, 64) else x, DECIDED),
        ("numel", lambda x: x * 2 if x.numel() == 192 else x, DECIDED),
        ("shape", lambda x: x * 2 if x.shape == (64, 3) else x, DECIDED),
        ("sum", lambda x: x * 2 if x.shape[0] + 36 == 100 else x, DECIDED),
        ("table", lambda x: x * {64: 2.0, 33: 3.0}.get(x.shape[0], 1.0), DECIDED),
        ("bits", lambda x: x * 2 if x.shape[0] & 1 else x, DECIDED),
        ("integer", lambda x: x * 2 if int(x.shape[0]) == 64 else x, DECIDED),
        ("half", lambda x: x[: x.shape[0] // 2], DECIDED),
        ("padded", lambda x: F.pad(x, (0, 0, 0, max(0, 50 - x.shape[0]))), DECIDED),
        ("a later axis", lambda x: x * 2 if x.t().shape[1] == 64 else x, DECIDED),
        (
            "inverse",
            lambda x: x.sum() * (1.0 / (x.shape[0] + 1)),
            OTHERWISE + "full: attribute 2 differs",
        ),
        ("halves", lambda x: x * 2 if x.shape[0] / 2 > 16 else x, DECIDED),
        ("times", lambda x: x * 2 if x.shape[0] * 0.5 > 16 else x, DECIDED),
        ("bound", lambda x: x * 2 if 40.0 < x.shape[0] else x, GROWS),
        (
            "bound",
            lambda x: x if 40.0 < x.shape[0] else x * 2,
            OTHERWISE + "2 operations at 4, 0 at 1000003",
        ),
        ("root", lambda x: x * 2 if math.sqrt(x.shape[0]) == 8 else x, DECIDED),
        ("square", lambda x: x * (x.shape[0] * x.shape[0]), SQUARE),
        ("first 50", lambda x: x[:50], OTHERWISE + "slice: attribute 1 is 4 at 4, 50 at 1000003"),
        (
            "chunks",
            lambda x: tuple(x.chunk(2)),
            OTHERWISE + "slice: attribute 1 is 2 at 4, 500002 at 1000003",
        ),
        ("loop", loop, GROWS),
        ("result", lambda x: (x * 2, x.shape[0]), NUMBERS),
        (
            "operation",
            lambda x: x.exp() if 40.0 < x.shape[0] else x.tanh(),
            OTHERWISE + "tanh: another operation or operand",
        ),
        (
            "tensor",
            lambda x: x @ (WEIGHT if 40.0 < x.shape[0] else OTHER),
            OTHERWISE + "other tensors are read, written or returned",
        ),
        ("outside", lambda x: x + WEIGHT if x.shape[0] == 3 else x, DECIDED),
    ],
)
def test_compiled_for_each_size(name: str, function: Callable[..., Any], reason: str) -> None:
    compiled = compare(function, SIZES, 3)
    first, *others = compiled.explain().splitlines()
    assert first == f"compiled for each size: {reason}"
    assert not any("compiled for each size" in line for line in others)
    assert compiled.cache_info()["misses"] == len(SIZES)


def test_a_bound_below_the_first_size() -> None:
    compiled = compare(lambda x: x * 2 if 40.0 < x.shape[0] else x, (64, 33, 41, 5), 3)
    assert "shapes at 2 are not those that follow from 64" in compiled.explain()


def test_questions_that_have_one_answer() -> None:
    def harmless(x: Tensor) -> Tensor:
        assert x.shape[0] > 1
        assert x.shape[0] == x.t().shape[1]
        if not x.shape[0]:
            return x
        rows, columns = x.shape
        return x.reshape(rows * columns).reshape(rows, columns) + lucid.zeros(x.shape)

    assert compare(harmless, SIZES[:6], 3).cache_info()["entries"] == 1


def test_a_window_that_fits_some_sizes() -> None:
    compiled = lucid.compile(lambda x: x[:50] * 2.0, dynamic=True, fallback="error")
    for size in (64, 70, 33, 64, 50, 49):
        x = floats(size, size, 3)
        assert bits(compiled(x)) == bits(x[:50] * 2.0)
    with pytest.raises(lucid.OutOfRangeError, match="index: out of range: got 8"):
        lucid.compile(lambda x: x[8], dynamic=True, fallback="error")(floats(1, 8, 3))


def test_a_captured_tensor_of_that_size() -> None:
    compiled = lucid.compile(lambda x: x + WEIGHT, dynamic=True, fallback="error")
    assert bits(compiled(WEIGHT)) == bits(WEIGHT + WEIGHT)
    with pytest.raises(lucid.ShapeError):
        compiled(floats(1, 4, 3))


def test_clearing_forgets_what_was_refused() -> None:
    choice = [64]
    compiled = lucid.compile(
        lambda x: x * 2 if x.shape[0] == choice[0] else x, dynamic=True, fallback="error"
    )
    compiled(floats(1, 4, 3))
    compiled.clear_cache()
    compiled(floats(1, 4, 3))
    assert compiled.explain().count("compiled for each size") == 2


# ------------------------------------------------------------ modules that change


class Twins:
    """A module, its compiled copy, and what is done to both."""

    def __init__(self, model: nn.Module) -> None:
        self.eager = model
        self.twin = copy.deepcopy(model)
        self.compiled = lucid.compile(self.twin, dynamic=True, fallback="error")

    def both(self, change: Callable[[Any], Any]) -> None:
        """Change both modules."""
        change(self.eager)
        change(self.twin)

    def compare(self, x: Tensor) -> None:
        """Compare forward, backward, buffers and generator on one input."""
        state = lucid.get_rng_state()
        found = []
        for module in (self.eager, self.compiled):
            lucid.set_rng_state(state)
            leaf = x.clone().requires_grad_()
            y = module(leaf)
            y.square().sum().backward()
            of = self.eager if module is self.eager else self.twin
            buffers = [bits(b) for b in of.buffers()]
            generator = lucid.get_rng_state().tolist()
            found.append((bits(y), bits(leaf.grad), grad_bits(of), buffers, generator))
            of.zero_grad()
        assert found[0] == found[1]


def replace_weight(model: Any) -> None:
    model[0].weight = nn.Parameter(floats(77, *model[0].weight.shape))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("another dropout", lambda m: setattr(m[2], "p", 0.1)),
        ("eval", lambda m: m.eval()),
        ("frozen", lambda m: m[0].requires_grad_(False)),
        ("another parameter", replace_weight),
        ("another value", lambda m: setattr(m[0].weight, "data", floats(78, 4, 3))),
        ("a hook", lambda m: m.register_forward_hook(lambda m, i, o: o * 2.0)),
        ("another child", lambda m: setattr(m, "1", nn.Tanh())),
    ],
)
def test_changes_between_sizes(name: str, change: Callable[[Any], Any]) -> None:
    lucid.manual_seed(5)
    twins = Twins(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.5)))
    for size in (4, 7):
        twins.compare(floats(size, size, 3))
    twins.both(change)
    for size in (9, 4, 7, 12):  # the first is a size that was not planned before
        twins.compare(floats(size, size, 3))


def test_dtype_changes_between_sizes() -> None:
    twins = Twins(nn.Sequential(nn.Linear(3, 4), nn.GELU()))
    twins.compare(floats(1, 4, 3))
    twins.both(lambda m: m.double())
    for size in (5, 4):
        twins.compare(floats(size, size, 3).double())
    twins.both(lambda m: m.float())
    for size in (6, 4):
        twins.compare(floats(size, size, 3))


@pytest.mark.parametrize(
    ("name", "model", "shape"),
    [
        (
            "convnet",
            lambda: nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
            ),
            (1, 8, 8),
        ),
        (
            "attention",
            lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True),
            (5, 8),
        ),
    ],
)
def test_networks(name: str, model: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    lucid.manual_seed(5)
    twins = Twins(model())
    for size in (4, 7, 2, 33, 4):
        twins.compare(floats(size, size, *shape))
    assert twins.compiled.cache_info()["entries"] == 1


def test_batch_norm_is_compiled_for_each_size() -> None:
    # Its running variance holds n / (n - 1) as a number.
    twins = Twins(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    for size in (4, 7, 2, 33):
        twins.compare(floats(size, size, 3))
    assert "compiled for each size" in twins.compiled.explain()
    twins.both(lambda m: m.eval())
    twins.compare(floats(1, 5, 3))
