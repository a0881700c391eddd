"""EmbeddingBag and Conv3d against NumPy, and as compiled steps."""

from __future__ import annotations

import itertools
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from lucid.compile import make_step
from zoo import floats

BAGS = [[1, 5, 1], [], [2], [0, 3, 3, 2], []]
TABLE = floats(1, 6, 3)


def reduced(bag: list[int], mode: str, padding: int | None, factors: list[float]) -> Any:
    """One bag, in NumPy."""
    rows = [f * TABLE.numpy()[i] for i, f in zip(bag, factors, strict=True) if i != padding]
    if not rows:
        return np.zeros(3, np.float32)
    return {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, axis=0)


@pytest.mark.parametrize("padding", [None, 3, -4])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("has_end", [False, True])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_bags_by_offsets(kind: str, has_end: bool, mode: str, padding: int | None) -> None:
    flat = list(itertools.chain(*BAGS))
    starts = [0, *itertools.accumulate(map(len, BAGS))]
    dtype = getattr(lucid, kind)
    tail = [4, 4] if has_end else []
    factors = [0.5 + i for i in range(len(flat))] if mode == "sum" else [1.0] * len(flat)
    found = F.embedding_bag(
        lucid.tensor([*flat, *tail], dtype=dtype),
        TABLE,
        lucid.tensor(starts if has_end else starts[:-1], dtype=dtype),
        mode=mode,
        per_sample_weights=lucid.tensor([*factors, *map(float, tail)]) if mode == "sum" else None,
        include_last_offset=has_end,
        padding_idx=padding,
    )
    row = None if padding is None else padding % 6
    wanted = [
        reduced(bag, mode, row, factors[start : start + len(bag)])
        for bag, start in zip(BAGS, starts, strict=False)
    ]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size(mode: str, padding: int | None) -> None:
    bags = [[1, 5, 1], [3, 3, 3], [3, 0, 2]]
    found = F.embedding_bag(lucid.tensor(bags), TABLE, mode=mode, padding_idx=padding)
    wanted = [reduced(bag, mode, padding, [1.0] * 3) for bag in bags]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)
    empty = F.embedding_bag(lucid.zeros(2, 0).long(), TABLE, mode=mode)
    assert empty.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_compiled_bags(mode: str) -> None:
    layer = nn.EmbeddingBag(6, 3, mode=mode, padding_idx=0)
    assert layer.weight[0].tolist() == [0.0] * 3
    assert repr(layer) == f"EmbeddingBag(6, 3, mode={mode!r}, padding_idx=0)"

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = layer

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return self.bags(x["input"], x["offsets"])

    model = Model()
    batch = {"input": lucid.tensor([1, 0, 5, 5, 2]), "offsets": lucid.tensor([0, 2, 2])}
    found = []
    for run in (model, make_step(model, lambda y: (y * y).sum(), fallback="error")):
        layer.weight.grad = None
        loss = run(batch)
        loss = (loss * loss).sum() if run is model else loss
        loss.backward()
        assert layer.weight.grad is not None
        found.append((loss.item(), layer.weight.grad.tolist()))
    assert found[0] == found[1]
    assert found[0][1][0] == [0.0] * 3
    assert found[0][1][5] != [0.0] * 3


@pytest.mark.parametrize("offsets", [[1, 2], [0, 3, 1], [0, -1], [0, 9]])
def test_bad_offsets_of_a_compiled_step(offsets: list[int]) -> None:
    layer = nn.EmbeddingBag(6, 3)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = layer

        def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
            return self.bags(*x)

    step = make_step(Model(), lambda y: y.sum(), fallback="error")
    with pytest.raises(lucid.OutOfRangeError, match="index out of range"):
        step((lucid.tensor([1, 2, 3]), lucid.tensor(offsets)))


def conv3d(x: Any, w: Any, b: Any, stride: int, pad: int, groups: int) -> Any:
    """Cross-correlation, window by window, in NumPy."""
    x = np.pad(x, ((0, 0), (0, 0), *[(pad, pad)] * 3))
    sizes = [(n - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // outputs * inputs
        for place in itertools.product(*map(range, sizes)):
            window = tuple(
                slice(p * stride, p * stride + k) for p, k in zip(place, w.shape[2:], strict=True)
            )
            part = x[(slice(None), slice(first, first + inputs), *window)]
            out[(slice(None), o, *place)] = (part * w[o]).sum((1, 2, 3, 4)) + b[o]
    return out


@pytest.mark.parametrize(("stride", "pad", "groups"), [(1, 0, 1), (2, 1, 1), (1, 1, 2)])
def test_conv3d(stride: int, pad: int, groups: int) -> None:
    layer = nn.Conv3d(4, 6, (2, 3, 2), stride, pad, groups=groups).double()
    x = floats(2, 2, 4, 4, 5, 3).double()
    weight, bias = (p.detach().numpy() for p in (layer.weight, layer.bias))  # type: ignore[union-attr]
    wanted = conv3d(x.numpy(), weight, bias, stride, pad, groups)
    np.testing.assert_allclose(layer(x).detach().numpy(), wanted, rtol=1e-10)
    np.testing.assert_allclose(layer(x[0]).detach().numpy(), wanted[0], rtol=1e-10)
    assert tuple(layer.weight.shape) == (6, 4 // groups, 2, 3, 2)


@pytest.mark.parametrize("mode", ["zeros", "circular", "replicate", "reflect"])
def test_compiled_conv3d(mode: str) -> None:
    model = nn.Sequential(nn.Conv3d(2, 3, 2, padding=1, padding_mode=mode), nn.ReLU())
    x = floats(3, 2, 2, 3, 4, 3)
    step = make_step(model, lambda y: (y * y).sum(), fallback="error")
    found = []
    for compiled in (False, True):
        model.zero_grad()
        loss = step(x) if compiled else (model(x) ** 2).sum()
        loss.backward()
        found.append([loss.item(), *[p.grad.tolist() for p in model.parameters()]])  # type: ignore[union-attr]
    assert found[0] == found[1]
