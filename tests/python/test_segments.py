"""Steps split into segments: the same bits, less memory, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import (
    counters,
    make_autoseg_step,
    make_segmented_step,
    make_step,
)
from test_bit_equality import bits, grad_bits, state_bits
from zoo import convnet, floats, labels, mlp, normalized_mlp, regression


class Scale(nn.Module):
    """Element-wise scale by a weight that other layers may share."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def tied() -> nn.Module:
    """One weight in three segments, a frozen layer and an identity between them."""
    weight = nn.Parameter(floats(1, 8))
    frozen = nn.Linear(8, 8).requires_grad_(False)
    return nn.Sequential(
        Scale(weight),
        nn.Tanh(),
        nn.Identity(),
        frozen,
        Scale(weight),
        nn.Dropout(0.4),
        Scale(weight),
    )


def bottleneck(blocks: int, wide: int, narrow: int) -> nn.Module:
    """Blocks of Linear, GELU, Linear, LayerNorm."""
    layers: list[nn.Module] = []
    for _ in range(blocks):
        layers.append(
            nn.Sequential(
                nn.Linear(wide, narrow), nn.GELU(), nn.Linear(narrow, wide), nn.LayerNorm(wide)
            )
        )
    return nn.Sequential(*layers)


Batch = Callable[[int], tuple[Tensor, ...]]

MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], Batch]] = {
    "mlp": (mlp, F.cross_entropy, regression),
    "normalized_mlp": (normalized_mlp, F.cross_entropy, regression),
    "convnet": (
        convnet,
        F.cross_entropy,
        lambda seed: (floats(seed, 5, 1, 9, 8), labels(seed, 10, 5)),
    ),
    "tied": (
        tied,
        lambda y, c: (y * c).sum(),
        lambda seed: (floats(seed, 3, 8), floats(seed + 1, 3, 8)),
    ),
    "bottleneck": (
        lambda: bottleneck(4, 16, 8),
        F.cross_entropy,
        lambda seed: (floats(seed, 6, 16), labels(seed, 16, 6)),
    ),
}


def train(model: nn.Module, step: Callable[..., Tensor], batch: Batch) -> list[Any]:
    """Ten steps; every third scales its loss, every fourth needs a gradient of the input."""
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    record: list[Any] = []
    for i in range(10):
        x, *extra = batch(i)
        if i % 4 == 3:
            x.requires_grad_()
        optimizer.zero_grad()
        loss = step(x, *extra)
        ((loss / 3) if i % 3 == 2 else loss).backward()
        record.append((bits(loss), grad_bits(model), bits(x.grad)))
        optimizer.step()
    return [*record, state_bits(model), lucid.get_rng_state().tolist()]


@pytest.mark.parametrize("segments", [2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_one_segment(name: str, segments: int) -> None:
    make_model, loss_fn, batch = MODELS[name]
    lucid.manual_seed(4)
    whole = make_model()
    parted = copy.deepcopy(whole)
    state = lucid.get_rng_state()
    wanted = train(whole, make_step(whole, loss_fn, fallback="error"), batch)
    lucid.set_rng_state(state)
    step = make_segmented_step(parted, loss_fn, segments, fallback="error")
    assert train(parted, step, batch) == wanted
    assert step.segments == segments


def test_runs_and_allocations() -> None:
    model = bottleneck(4, 16, 8)
    step = make_step(model, F.cross_entropy, segments=4, fallback="error")
    batch = MODELS["bottleneck"][2](0)
    for _ in range(2):
        step(*batch).backward()
    before = counters()["executable_runs"]
    loss = step(*batch)
    assert counters()["executable_runs"] - before == 4
    loss.backward()
    assert counters()["executable_runs"] - before == 7


def test_memory_of_a_deep_stack() -> None:
    model = bottleneck(48, 64, 16)
    batch = (floats(1, 64, 64), labels(1, 64, 64))
    peaks = {}
    for segments in (1, 8):
        step = make_step(model, F.cross_entropy, segments=segments, fallback="error")
        step.compile(*batch)
        memory = step.memory()
        assert len(memory["segments"]) == segments
        peaks[segments] = memory["arena_peak"]
        assert memory["outputs"] == 4 + sum(p.nbytes for p in model.parameters())
        allocated, loss = lucid._C.memory_allocated(), step(*batch)
        kept = lucid._C.memory_allocated() - allocated
        assert kept <= memory["arena_peak"] + memory["outputs"]
        loss.backward()
        model.zero_grad()
    assert peaks[8] <= 0.3 * peaks[1]


def test_error_in_the_middle_of_the_backward_leaves_no_gradient() -> None:
    model = mlp()
    step = make_step(model, F.cross_entropy, segments=3, fallback="error")
    handle = model[0].weight.register_hook(lambda g: (_ for _ in ()).throw(ValueError("mine")))
    loss = step(*regression(0))
    with pytest.raises(ValueError, match="mine"):
        loss.backward()
    assert all(p.grad is None for p in model.parameters())
    handle.remove()
    step(*regression(0)).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_more_segments_than_children() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    step = make_step(model, F.cross_entropy, segments=9, fallback="error")
    step(*regression(0)).backward()
    assert "segments=9 is more than the 3 children: 3 are made" in step.explain()
    assert len(step.memory()["segments"]) == 3


def test_auto() -> None:
    lucid.manual_seed(2)
    model = normalized_mlp()
    step = make_autoseg_step(model, F.cross_entropy, candidates=[1, 3], fallback="error")
    with pytest.raises(lucid.UserError, match="nothing has been probed yet"):
        step.chosen_segments()  # type: ignore[attr-defined]
    state, buffers = lucid.get_rng_state(), state_bits(model)
    twin = copy.deepcopy(model)
    step.compile(*regression(0))
    assert lucid.get_rng_state().tolist() == state.tolist()
    assert state_bits(model) == buffers
    assert all(p.grad is None for p in model.parameters())
    rows = step.probe_results()  # type: ignore[attr-defined]
    assert [row["segments"] for row in rows] == [1, 3]
    assert all(row["median_ms"] > 0 and row["planned_peak_bytes"] > 0 for row in rows)
    fastest = min(rows, key=lambda row: row["median_ms"])["segments"]
    assert step.chosen_segments() == fastest  # type: ignore[attr-defined]
    wanted = train(twin, make_step(twin, F.cross_entropy, fallback="error"), regression)
    lucid.set_rng_state(state)
    assert train(model, step, regression) == wanted


def test_auxiliary_results() -> None:
    model = normalized_mlp()

    def loss_fn(y: Tensor, t: Tensor) -> Any:
        right = (y.argmax(dim=1) == t).float().mean()
        return F.cross_entropy(y, t), {"logits": y, "accuracy": right, "name": "batch"}

    for segments in (1, 3):
        lucid.manual_seed(3)
        twin = copy.deepcopy(model)
        step = make_step(twin, loss_fn, segments=segments, has_aux=True, fallback="error")
        for i in range(2):
            loss, aux = step(*regression(i))
            loss.backward()
        assert set(aux) == {"logits", "accuracy", "name"}
        assert aux["name"] == "batch"
        assert not aux["logits"].requires_grad
        assert aux["logits"].shape == (6, 4)
        lucid.manual_seed(3)
        eager = copy.deepcopy(model)
        for i in range(2):
            y = eager(regression(i)[0])
        assert bits(aux["logits"]) == bits(y)


class Two(nn.Module):
    """Returns two tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class First(nn.Module):
    """Takes the first of two tensors."""

    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        return x[0]


def hooked() -> nn.Module:
    """A container with a hook of its own."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.register_forward_hook(lambda module, args, output: output * 2.0)
    return model


def test_boundary_that_is_no_tensor() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Two(), First(), nn.Linear(2, 2))
    step = make_step(model, lambda y: y.sum(), segments=2, fallback="error")
    text = (
        "make_step: a segment must end with one Tensor: child Two returned tuple; choose another "
        "number of segments"
    )
    with pytest.raises(TypeError) as caught:
        step(floats(1, 3, 2))
    assert str(caught.value) == text
    make_step(model, lambda y: y.sum(), segments=4 - 3, fallback="error")(
        floats(1, 3, 2)
    ).backward()


@pytest.mark.parametrize("count", [0, -1, True, False, 1.5, "all", None])
def test_bad_counts(count: Any) -> None:
    with pytest.raises(ValueError) as caught:
        make_step(mlp(), F.cross_entropy, segments=count)
    assert str(caught.value) == (
        f"make_step: segments must be a positive integer or 'auto': got {count!r}"
    )


@pytest.mark.parametrize("segments", [2, "auto"])
def test_models_that_cannot_be_split(segments: Any) -> None:
    class Own(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return x

    for model in (nn.Linear(2, 2), Own(nn.Linear(2, 2)), hooked()):
        with pytest.raises(TypeError, match=f"make_step: segments={segments!r}"):
            make_step(model, F.cross_entropy, segments=segments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"candidates": []}, "candidates must be positive integers: got []"),
        ({"candidates": [1, 0]}, "candidates must be positive integers: got [1, 0]"),
        ({"memory_limit": -5}, "memory_limit must be a positive number of bytes: got -5"),
        ({"memory_limit": True}, "memory_limit must be a positive number of bytes: got True"),
    ],
)
def test_bad_options_of_auto(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        make_step(mlp(), F.cross_entropy, segments="auto", **options)
    assert str(caught.value) == f"make_step: {text}"


def test_has_aux_wants_a_pair() -> None:
    step = make_step(mlp(), F.cross_entropy, has_aux=True, fallback="error")
    with pytest.raises(TypeError, match=r"must return \(loss, aux\): got Tensor"):
        step(*regression(0))
