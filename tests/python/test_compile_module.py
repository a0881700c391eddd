"""lucid.compile of modules, and compiled_step: one module, read and written through."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import CompiledModule, compiled_step, make_step
from test_bit_equality import bits, grad_bits, state_bits
from zoo import WORKLOADS, Workload, floats, labels, normalized_mlp, regression


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_training_is_equal(workload: Workload, dynamic: bool) -> None:
    lucid.manual_seed(7)
    model = workload.model()
    twin = copy.deepcopy(model)
    compiled = lucid.compile(twin, dynamic=dynamic, fallback="error")
    optimizers = [optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, compiled)]
    for i in range(4):
        batch = workload.batch(i)
        state = lucid.get_rng_state()
        found: list[Any] = []
        for module, optimizer in zip((model, compiled), optimizers, strict=True):
            lucid.set_rng_state(state)
            optimizer.zero_grad()
            loss = workload.loss(module(batch[0]), *batch[1:])
            loss.backward()
            found.append((bits(loss), lucid.get_rng_state().tolist()))
            found[-1] += (grad_bits(model if module is model else twin),)
            optimizer.step()
        assert found[0] == found[1], f"step {i}"
    assert state_bits(model) == state_bits(twin)
    assert not compiled.eager_only


def test_it_is_the_module() -> None:
    model = normalized_mlp()
    compiled = lucid.compile(model)
    assert isinstance(compiled, nn.Module)
    assert isinstance(compiled, CompiledModule)
    assert list(compiled.state_dict()) == list(model.state_dict())
    names = [name for name, _ in model.named_parameters()]
    assert [name for name, _ in compiled.named_parameters()] == names
    assert (len(compiled), compiled[0], list(compiled)) == (9, model[0], list(model))
    assert bool(lucid.compile(nn.ModuleList()))
    compiled.eval()
    assert not model.training
    assert not model[3].training
    assert compiled.train() is compiled
    assert model.training
    compiled.note = "n"
    assert model.note == "n"
    del compiled.note
    assert not hasattr(model, "note")
    compiled.extra = nn.Linear(2, 2)
    assert "extra" in dict(model.named_children())
    assert compiled.double() is compiled
    assert model[0].weight.dtype is lucid.float64
    assert compiled.to(lucid.float32).requires_grad_(False) is compiled
    assert not model[0].weight.requires_grad
    assert repr(compiled).startswith("CompiledModule of Sequential(")
    assert lucid.compile(compiled)._target is model


def test_state_modes_and_hooks_between_calls() -> None:
    lucid.manual_seed(1)
    model = normalized_mlp()
    twin = copy.deepcopy(model)
    compiled = lucid.compile(twin, fallback="error")
    x = regression(1)[0]

    def same(x: Tensor) -> None:
        state = lucid.get_rng_state()
        wanted = bits(model(x))
        lucid.set_rng_state(state)
        assert bits(compiled(x)) == wanted
        assert state_bits(model) == state_bits(twin)

    same(x)
    for module in (model, compiled):
        module.eval()
    same(x)
    other = normalized_mlp().state_dict()
    for module in (model, compiled):
        module.load_state_dict(other)
    same(x)
    hooks = [m.register_forward_hook(lambda m, i, o: o * 2.0) for m in (model, compiled)]
    same(x)
    for hook in hooks:
        hook.remove()
    for module in (model, compiled):
        module[3].p = 0.9
        module.train()
    same(x)
    for module in (model, compiled):
        module.double()
    same(x.double())
    for module in (model, compiled):
        module[0].weight = nn.Parameter(floats(9, 16, 8).double())
    same(x.double())


class Overriding(nn.Module):
    """Defines anew what nn.Module has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def parameters(self, recurse: bool = True) -> Any:
        return iter([self.linear.bias])

    def train(self, mode: bool = True) -> Overriding:
        self.modes = [*getattr(self, "modes", []), mode]
        return super().train(mode)


def test_methods_that_the_class_defines_anew() -> None:
    compiled = lucid.compile(Overriding())
    assert len(list(compiled.parameters())) == 1
    assert compiled.eval() is compiled
    assert compiled.modes == [False]


def test_as_a_child() -> None:
    compiled = lucid.compile(nn.Linear(3, 4), fallback="error")
    model = nn.Sequential(compiled, nn.ReLU(), nn.Linear(4, 2))
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    before = bits(compiled.weight)
    model(floats(1, 5, 3)).sum().backward()
    optimizer.step()
    assert bits(compiled.weight) != before
    assert compiled.cache_info()["entries"] == 1
    model.double().eval()
    assert compiled.weight.dtype is lucid.float64
    step = make_step(model, lambda y: y.sum(), fallback="error")
    wanted = bits(model(floats(1, 5, 3).double()).sum())
    assert bits(step(floats(1, 5, 3).double())) == wanted


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_copies(copied: Callable[[Any], Any]) -> None:
    compiled = lucid.compile(nn.Linear(3, 4), dynamic=True, fallback="error")
    compiled(floats(1, 5, 3))
    twin = copied(compiled)
    assert isinstance(twin, CompiledModule)
    assert twin._target is not compiled._target
    wanted = bits(compiled(floats(1, 5, 3)))
    compiled.weight.data = floats(2, 4, 3)
    assert bits(twin(floats(1, 5, 3))) == wanted
    assert twin.cache_info()["misses"] == 1


def test_reports_of_a_module() -> None:
    compiled = lucid.compile(nn.Linear(3, 4))
    compiled(floats(1, 5, 3)).sum().backward()
    assert compiled.cache_info() == {"entries": 1, "hits": 0, "misses": 1, "max_entries": 64}
    assert compiled.memory()["parameters"] == 64
    assert compiled.timing()["runs"] == 2
    assert "linear" in compiled.graph_dump()
    assert compiled.explain().startswith("signature 1: (float32[5, 3]), compiled")
    assert not compiled.eager_only
    compiled.clear_cache()
    assert compiled.cache_info()["entries"] == 0


# ------------------------------------------------------------ compiled_step


def test_a_lambda_in_a_loop_compiles_once() -> None:
    model = nn.Linear(3, 2)
    x, t = floats(1, 4, 3), labels(1, 2, 4)
    for _ in range(4):
        compiled_step(model, lambda y, t: F.cross_entropy(y, t), x, t).backward()
    (entry,) = model.__dict__["_kept_steps"]._known
    assert entry[1].cache_info() == {"entries": 1, "hits": 3, "misses": 1, "max_entries": 64}
    for scale in (1.0, 2.0, 1.0):
        loss = compiled_step(model, lambda y, t: F.cross_entropy(y, t) * scale, x, t)  # noqa: B023
        assert bits(loss) == bits(F.cross_entropy(model(x), t) * scale)
    compiled = lucid.compile(model)
    wanted = bits(F.cross_entropy(model(x), t))
    assert bits(compiled.step(x, t, loss_fn=F.cross_entropy)) == wanted


def test_kept_steps_are_no_part_of_the_model() -> None:
    model = nn.Linear(3, 2)
    before = repr(model)
    compiled_step(model, F.cross_entropy, floats(1, 4, 3), labels(1, 2, 4))
    assert repr(model) == before
    assert list(model.state_dict()) == ["weight", "bias"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.__dict__["_kept_steps"]._known == []
    make_step(model, F.cross_entropy, fallback="error")(floats(1, 4, 3), labels(1, 2, 4))


def test_models_and_steps_are_collected() -> None:
    model = nn.Linear(3, 2)
    x, t = floats(1, 4, 3), labels(1, 2, 4)
    compiled = lucid.compile(model, dynamic=True)
    compiled(x).sum().backward()
    compiled(floats(1, 7, 3))
    compiled_step(model, F.cross_entropy, x, t).backward()
    function = lucid.compile(lambda x, module=model: module(x))
    function(x)
    found = [weakref.ref(v) for v in (model, model.weight, compiled, function)]
    del model, compiled, function
    gc.collect()
    assert [reference() for reference in found] == [None] * 4
