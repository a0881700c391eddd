"""lucid.compile of functions: results, gradients and state equal the eager ones bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import pytest
from lucid import Tensor
from lucid.compile import CompiledFunction, FallbackWarning, counters, make_step
from test_bit_equality import bits
from zoo import floats


def spent(call: Callable[[], Any]) -> dict[str, int]:
    """What a call adds to the counters of the process."""
    before = counters()
    call()
    return {name: count - before[name] for name, count in counters().items()}


def gradients(tensors: list[Tensor], call: Callable[[], Tensor]) -> list[bytes | None]:
    """The bits of the tensors' gradients after the backward of what ``call`` returns."""
    for tensor in tensors:
        tensor.grad = None
    call().backward()
    found = [bits(tensor.grad) for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    return found


# ------------------------------------------------------------ results


def two_results(x: Tensor, w: Tensor, v: Tensor) -> dict[str, Any]:
    """Results with different gradients, some of them none, in a tree with constants."""
    return {"y": F.gelu(x @ w), "rest": [v * 2.0, x > 0.0, x.shape[0], None], "w": w}


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("first", lambda r: r["y"].sum()),
        ("second", lambda r: (r["rest"][0] ** 2).sum()),
        ("both", lambda r: r["y"].sum() * r["rest"][0].sum()),
        ("parameter", lambda r: (r["w"] ** 2).sum()),
        ("all", lambda r: (r["w"] ** 2).sum() + r["y"].sum() + r["rest"][0].sum()),
    ],
)
def test_gradients_of_some_results(name: str, loss: Callable[[Any], Tensor]) -> None:
    x, w, v = floats(1, 3, 4), floats(2, 4, 2).requires_grad_(), floats(3, 5).requires_grad_()
    compiled = lucid.compile(two_results, fallback="error")
    wanted = gradients([w, v], lambda: loss(two_results(x, w, v)))
    for _ in range(2):
        assert gradients([w, v], lambda: loss(compiled(x, w, v))) == wanted
    assert compiled.cache_info()["entries"] == 1
    found, eager = compiled(x, w, v), two_results(x, w, v)
    assert bits(found["y"]) == bits(eager["y"])
    assert found["rest"][1].tolist() == eager["rest"][1].tolist()
    assert not found["rest"][1].requires_grad
    assert found["rest"][2:] == [3, None]


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: None, None),
        (lambda x: (3, "a", None), (3, "a", None)),
        (lambda x: [], []),
        (lambda x: {"a": ()}, {"a": ()}),
    ],
)
def test_results_without_tensors(function: Callable[..., Any], wanted: Any) -> None:
    compiled = lucid.compile(function, fallback="error")
    assert [compiled(floats(1, 2)) for _ in range(3)] == [wanted] * 3
    assert compiled.cache_info() == {"entries": 1, "hits": 2, "misses": 1, "max_entries": 64}


def test_a_result_that_is_the_argument() -> None:
    compiled = lucid.compile(lambda x: x, fallback="error")
    x = floats(1, 3).requires_grad_()
    y = compiled(x)
    (y * 3.0).sum().backward()
    assert bits(y) == bits(x)
    assert y is not x
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_a_function_that_only_writes() -> None:
    total = lucid.zeros(3)

    def add(x: Tensor) -> None:
        total.add_(x)

    compiled = lucid.compile(add, fallback="error")
    for _ in range(3):
        assert compiled(lucid.ones(3)) is None
    assert total.tolist() == [3.0, 3.0, 3.0]


def test_random_numbers_without_arguments() -> None:
    def draw() -> Tensor:
        return lucid.rand(3) + F.dropout(lucid.ones(3), 0.5)

    compiled = lucid.compile(draw, fallback="error")
    lucid.manual_seed(3)
    wanted = [draw().tolist() for _ in range(3)]
    state = lucid.get_rng_state().tolist()
    lucid.manual_seed(3)
    assert [compiled().tolist() for _ in range(3)] == wanted
    assert lucid.get_rng_state().tolist() == state


def test_keywords_and_structures() -> None:
    def scaled(x: Any, *, by: float = 2.0, mask: Tensor | None = None) -> Tensor:
        y = x["a"] * by + x["b"][0]
        return y if mask is None else y * mask

    compiled = lucid.compile(scaled, fallback="error")
    x = {"a": floats(1, 3), "b": (floats(2, 3), 1)}
    for keywords in ({}, {"by": 3.0}, {"mask": floats(3, 3)}, {"by": 3.0, "mask": floats(4, 3)}):
        for _ in range(2):
            assert bits(compiled(x, **keywords)) == bits(scaled(x, **keywords))
    assert bits(compiled(x=x)) == bits(scaled(x))
    assert compiled.cache_info()["misses"] == 5


def test_warm_call_is_one_run_forward_and_one_backward() -> None:
    w = floats(1, 4, 4).requires_grad_()
    compiled = lucid.compile(lambda x: (x @ w).tanh().sum(), fallback="error")
    x = floats(2, 3, 4)
    compiled(x).backward()
    w.grad = None
    found = spent(lambda: compiled(x).backward())
    assert found["executable_runs"] == 2
    assert found["eager_dispatches"] == found["compilations"] == 0


# ------------------------------------------------------------ backward


def test_backward_twice() -> None:
    w = floats(1, 3).requires_grad_()
    loss = lucid.compile(lambda: (w * w).sum(), fallback="error")()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad is not None
    assert bits(w.grad) == bits(4.0 * w)
    with pytest.raises(lucid.AutogradError, match="freed by an earlier backward"):
        loss.backward()


def test_values_are_those_of_the_forward() -> None:
    w = floats(1, 3).requires_grad_()
    loss = lucid.compile(lambda: (w * w).sum(), fallback="error")()
    wanted = bits(2.0 * w)
    w.data = floats(2, 3)
    loss.backward()
    assert bits(w.grad) == wanted


# ------------------------------------------------------------ modes and traces


def test_grad_mode_and_autocast_are_signatures() -> None:
    linear = nn.Linear(4, 4)
    compiled = lucid.compile(lambda x: linear(x), fallback="error")
    x = floats(1, 3, 4)
    for _ in range(2):
        assert compiled(x).requires_grad
        with lucid.no_grad():
            assert not compiled(x).requires_grad
        with lucid.inference_mode():
            assert not compiled(x).requires_grad
        with lucid.autocast("cpu", lucid.bfloat16):
            y = compiled(x)
            assert y.dtype is lucid.bfloat16
            assert y.tolist() == linear(x).tolist()
    assert compiled.cache_info()["misses"] == 3


def test_inside_the_trace_of_a_step() -> None:
    w = floats(1, 2).requires_grad_()
    scale = lucid.compile(lambda x: x * w, fallback="error")
    inner = lucid.compile(nn.Linear(3, 2), fallback="error")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return scale(self.inner(x))

    model = Model()
    step = make_step(model, lambda y: (y * y).sum(), fallback="error")
    x = floats(2, 4, 3)
    tensors = [*model.parameters(), w]
    assert list(dict(model.named_parameters())) == ["inner.weight", "inner.bias"]
    wanted = gradients(tensors, lambda: (model(x) * model(x)).sum())
    scale(x[:, :2])  # signatures of its own do not disturb those of the step
    for _ in range(2):
        assert gradients(tensors, lambda: step(x)) == wanted
    inner.weight.data = floats(5, 2, 3)
    wanted = gradients(tensors, lambda: (model(x) * model(x)).sum())
    assert gradients(tensors, lambda: step(x)) == wanted


def test_fallback() -> None:
    def reads(x: Tensor) -> float:
        return x.item() * 2.0

    with pytest.warns(FallbackWarning, match="the value of a tensor was asked for"):
        compiled = lucid.compile(reads)
        assert compiled(lucid.ones(1)) == 2.0
    assert compiled(lucid.full((1,), 4.0)) == 8.0
    assert compiled.eager_only
    assert "runs eagerly" in compiled.explain()


def test_an_exception_of_the_user_leaves_everything_as_before() -> None:
    count = lucid.zeros(())
    flags = {"fail": True}

    def fails(x: Tensor) -> Tensor:
        y = F.dropout(x, 0.5)
        count.add_(1.0)
        if flags["fail"]:
            raise ZeroDivisionError("the user's own")
        return y

    compiled = lucid.compile(fails, fallback="error")
    state = lucid.get_rng_state().tolist()
    with pytest.raises(ZeroDivisionError):
        compiled(lucid.ones(3))
    assert count.item() == 0.0
    assert lucid.get_rng_state().tolist() == state
    flags["fail"] = False
    compiled(lucid.ones(3))
    assert count.item() == 1.0


def test_index_out_of_range_at_run_time() -> None:
    count = lucid.zeros(())

    def take(x: Tensor, i: Tensor) -> Tensor:
        count.add_(1.0)
        return lucid.index_select(x, 0, i)

    compiled = lucid.compile(take, fallback="error")
    x = floats(1, 4, 2)
    compiled(x, lucid.tensor([1, 3]))
    with pytest.raises(lucid.OutOfRangeError):
        compiled(x, lucid.tensor([1, 4]))
    assert count.item() == 1.0
    assert bits(compiled(x, lucid.tensor([0, 0]))) == bits(x[:1].expand(2, 2))


# ------------------------------------------------------------ methods, decorators, copies


class Scaled:
    """A plain object with compiled methods."""

    def __init__(self, by: float) -> None:
        self.by = by
        self.weight = lucid.full((2,), by, requires_grad=True)

    @lucid.compile
    def times(self, x: Tensor) -> Tensor:
        """x times the weight."""
        return x * self.weight

    @lucid.compile(dynamic=True)
    def plus(self, x: Tensor, more: float = 0.0) -> Tensor:
        return x + self.by + more

    @staticmethod
    @lucid.compile
    def twice(x: Tensor) -> Tensor:
        return x * 2.0


@lucid.compile
def tripled(x: Tensor) -> Tensor:
    """Three times x."""
    return x * 3.0


@dataclasses.dataclass
class Unhashable:
    """Equal to others of the same number; cannot be hashed."""

    by: float
    added: float = dataclasses.field(default=0.0, compare=False)

    @lucid.compile
    def plus(self, x: Tensor) -> Tensor:
        return x * self.by + self.added


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Equal to others of the same number, and with the same hash."""

    by: float
    added: float = dataclasses.field(default=0.0, compare=False)

    @lucid.compile
    def plus(self, x: Tensor) -> Tensor:
        return x * self.by + self.added


def test_methods() -> None:
    a, b = Scaled(2.0), Scaled(3.0)
    x = lucid.ones(2)
    assert a.times(x).tolist() == [2.0, 2.0]
    assert b.times(x).tolist() == [3.0, 3.0]
    assert a.times is a.times
    assert a.times.cache_info()["entries"] == 1
    assert Scaled.times(b, x).tolist() == [3.0, 3.0]
    assert Scaled.twice(x).tolist() == b.twice(x).tolist() == [2.0, 2.0]
    assert a.plus(x, more=1.0).tolist() == [4.0, 4.0]
    assert a.times.__doc__ == "x times the weight."
    assert isinstance(Scaled.times, CompiledFunction)
    a.by = 5.0
    assert a.plus(x).tolist() == [6.0, 6.0]
    a.weight = lucid.full((2,), 7.0)
    assert a.times(x).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("kind", [Unhashable, Frozen])
def test_objects_that_are_equal_have_methods_of_their_own(kind: type) -> None:
    a, b = kind(2.0, 1.0), kind(2.0, 5.0)
    assert a == b
    assert a.plus(lucid.ones(1)).tolist() == [3.0]
    assert b.plus(lucid.ones(1)).tolist() == [7.0]


def test_instances_are_collected() -> None:
    instance = Scaled(2.0)
    instance.times(lucid.ones(2)).sum().backward()
    instance.plus(lucid.ones(3))
    found = weakref.ref(instance), weakref.ref(instance.weight)
    del instance
    gc.collect()
    assert [reference() for reference in found] == [None, None]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies_of_instances(copied: Callable[[Any], Any]) -> None:
    a = Scaled(2.0)
    a.times(lucid.ones(2))
    b = copied(a)
    b.weight = lucid.full((2,), 4.0)
    assert b.times(lucid.ones(2)).tolist() == [4.0, 4.0]
    assert a.times(lucid.ones(2)).tolist() == [2.0, 2.0]
    assert copied(a.times)(lucid.ones(2)).tolist() == [2.0, 2.0]


def test_copies_of_functions() -> None:
    assert copy.deepcopy(tripled) is pickle.loads(pickle.dumps(tripled)) is tripled
    local = lucid.compile(lambda x: x + 1.0)
    local(lucid.ones(1))
    assert copy.deepcopy(local)(lucid.ones(1)).tolist() == [2.0]


def test_compiling_what_is_compiled() -> None:
    again = lucid.compile(tripled, dynamic=True)
    assert again.dynamic
    assert not tripled.dynamic
    assert again(lucid.ones(1)).tolist() == [3.0]
    method = lucid.compile(Scaled(2.0).times)
    assert method(lucid.ones(2)).tolist() == [2.0, 2.0]


class Forward(nn.Module):
    """Its forward is compiled in the class body."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    @lucid.compile
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh()


def test_a_compiled_forward() -> None:
    model = Forward()
    x = floats(1, 4, 3)
    wanted = gradients(list(model.parameters()), lambda: model.linear(x).tanh().sum())
    assert gradients(list(model.parameters()), lambda: model(x).sum()) == wanted
    assert model.forward.cache_info()["entries"] == 1
    step = make_step(model, lambda y: y.sum(), fallback="error")
    assert gradients(list(model.parameters()), lambda: step(x)) == wanted
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert bits(twin(x)) == bits(model(x))
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]


# ------------------------------------------------------------ what can be asked


def test_reports() -> None:
    w = floats(1, 4, 4).requires_grad_()
    compiled = lucid.compile(lambda x, k=1.0: (x @ w) * k, fallback="error")
    assert compiled.explain() == "nothing has been compiled yet: call it once"
    compiled.compile(floats(2, 3, 4), k=2.0)
    compiled.compile(floats(3, 3, 4), k=2.0)
    memory = compiled.memory()
    assert memory["parameters"] == 64
    assert memory["inputs"] == 48
    assert compiled.timing()["runs"] == 0
    compiled(floats(2, 3, 4), k=2.0).sum().backward()
    assert compiled.timing()["runs"] == 2
    assert compiled.cache_info() == {"entries": 1, "hits": 1, "misses": 1, "max_entries": 64}
    assert compiled.graph_dump().count("graph {") == 2
    compiled(floats(2, 5, 4), k=2.0)
    assert "because of another shape of argument 0" in compiled.explain()
    compiled.clear_cache()
    assert compiled.cache_info()["entries"] == 0
    assert not compiled.eager_only


def test_threads() -> None:
    w = floats(1, 4, 4).requires_grad_()
    compiled = lucid.compile(lambda x: x @ w, fallback="error")
    batches = [floats(i, 1 + i, 4) for i in range(4)]
    wanted = [bits(x @ w) for x in batches]
    differences = []

    def work() -> None:
        for i in range(60):
            if bits(compiled(batches[i % 4])) != wanted[i % 4]:
                differences.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == []
    assert compiled.cache_info()["misses"] == 4
