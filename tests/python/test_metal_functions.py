"""What stands above the operations, on tensors of the metal device: results stay there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import Tensor
from zoo import floats

pytestmark = [
    pytest.mark.metal,
    pytest.mark.skipif(not lucid.metal.is_available(), reason="this build has no metal device"),
]

ROWS: dict[str, Callable[[Tensor], Any]] = {
    "index integer": lambda x: x[1],
    "index slices": lambda x: x[1:, ::2],
    "index backwards": lambda x: x.flip(0)[:, -1:],
    "index list": lambda x: x[[0, 2]],
    "index tensor": lambda x: x[lucid.tensor([0, 2])],
    "index pairs": lambda x: x[lucid.tensor([0, 2]), lucid.tensor([1, -1])],
    "index mask": lambda x: x[x > 0],
    "index ellipsis": lambda x: x[..., None, 0],
    "nonzero": lambda x: (x > 0).nonzero(),
    "masked_select": lambda x: lucid.masked_select(x, x > 0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 5.0),
    "unique": lambda x: lucid.unique((x * 2).round()),
    "one_hot": lambda x: F.one_hot(lucid.tensor([0, 2], device=x.device), 4),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "repeat_interleave counts": lambda x: lucid.repeat_interleave(
        x, lucid.tensor([1, 0, 2], device=x.device), 0
    ),
    "reflect pad": lambda x: F.pad(x[None], (1, 2), "reflect"),
    "circular pad": lambda x: F.pad(x[None], (1, 2), "circular"),
    "tril": lambda x: lucid.tril(x, 1),
    "triu": lambda x: x.triu(),
    "diag": lambda x: lucid.diagonal(x),
    "topk": lambda x: lucid.topk(x, 2),
    "sort": lambda x: x.sort(1, descending=True),
    "argsort": lambda x: x.argsort(0),
    "kthvalue": lambda x: lucid.kthvalue(x, 2),
    "median": lambda x: x.median(),
    "max": lambda x: x.max(1),
    "max of a scalar": lambda x: x[0, 0].max(0),
    "std": lambda x: x.std(1),
    "norm": lambda x: lucid.norm(x),
    "cumprod": lambda x: x.cumprod(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "einsum": lambda x: lucid.einsum("ij,kj->ik", x, x),
    "outer": lambda x: lucid.outer(x[0], x[1]),
    "meshgrid": lambda x: lucid.meshgrid(x[0], x[1], indexing="ij"),
    "stack": lambda x: lucid.stack([x, x], 1),
    "split": lambda x: x.split(2, 1),
    "roll": lambda x: x.roll(1, 0),
    "tile": lambda x: x.tile(2, 1),
    "scatter number": lambda x: x.scatter(1, lucid.tensor([[0], [1], [2]], device=x.device), 9.0),
    "gather": lambda x: x.gather(1, lucid.tensor([[0], [1], [2]], device=x.device)),
    "index_select": lambda x: x.index_select(0, lucid.tensor([2, 0], device=x.device)),
    "take_along_dim": lambda x: lucid.take_along_dim(x, x.argsort(1), 1),
    "zeros_like": lambda x: lucid.zeros_like(x),
    "new_zeros": lambda x: x.new_zeros(3),
    "new_tensor": lambda x: x.new_tensor([1.0, 2.0]),
    "clone": lambda x: x.clone(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "long": lambda x: x.long(),
    "bool": lambda x: x.bool(),
    "where numbers": lambda x: lucid.where(x > 0, 1.0, 0.0),
    "pow": lambda x: x**2,
    "rpow": lambda x: 2.0**x,
    "floor division": lambda x: x.long() // 2,
    "modulo": lambda x: x.long() % 3,
    "integer product": lambda x: x.long() @ x.long().T,
    "count_nonzero": lambda x: lucid.count_nonzero(x > 0),
    "isclose": lambda x: lucid.isclose(x, x + 1e-9),
    "nan_to_num": lambda x: lucid.nan_to_num(x / 0.0),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "unfold": lambda x: F.unfold(x[None, None], 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 12, 1, 1)[:, :4], 2),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "normalize": lambda x: F.normalize(x),
    "embedding_bag": lambda x: x[lucid.tensor([[0, 1], [2, 2]], device=x.device)].sum(1),
}


def flat(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("run", ROWS.values(), ids=ROWS.keys())
def test_results_stay_on_the_device(run: Callable[[Tensor], Any]) -> None:
    x = floats(3, 3, 4)
    for found, wanted in zip(flat(run(x.to("metal"))), flat(run(x)), strict=True):
        assert found.device.type == "metal"
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(
            found.float().numpy(), wanted.float().numpy(), rtol=2e-6, atol=2e-6
        )


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "number": lambda x: x.__setitem__(0, 7.0),
    "slice": lambda x: x.__setitem__((slice(None), slice(1, 3)), 2.0),
    "list": lambda x: x.__setitem__([0, 2], [1.0, 2.0, 3.0, 4.0]),
    "mask": lambda x: x.__setitem__(x > 0, 0.0),
    "array": lambda x: x.__setitem__(1, np.ones(4, np.float32)),
    "add_": lambda x: x.add_(1.5),
    "mul_": lambda x: x.mul_(x),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3.0),
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "copy_": lambda x: x.copy_(x * 2),
    "through a view": lambda x: x[0].add_(1.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_in_place_changes(write: Callable[[Tensor], Any]) -> None:
    wanted = floats(3, 3, 4).clone()
    found = wanted.to("metal")
    write(found)
    write(wanted)
    assert found.device.type == "metal"
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: lucid.zeros(2, 3, device=d),
        lambda d: lucid.arange(5, device=d),
        lambda d: lucid.linspace(0, 1, 5, device=d),
        lambda d: lucid.eye(3, device=d),
        lambda d: lucid.full((2,), 3, device=d),
        lambda d: lucid.tensor([[1.0], [2.0]], device=d),
        lambda d: lucid.as_tensor(np.arange(3), device=d),
        lambda d: lucid.rand(5, device=d, generator=lucid.Generator(1)),
        lambda d: lucid.randn(5, device=d, generator=lucid.Generator(1)),
        lambda d: lucid.randint(0, 9, (5,), device=d, generator=lucid.Generator(1)),
        lambda d: lucid.randperm(5, device=d, generator=lucid.Generator(1)),
        lambda d: lucid.zeros(0, 3, device=d),
    ],
)
def test_creation(make: Callable[[str], Tensor]) -> None:
    found, wanted = make("metal"), make("cpu")
    assert (found.device.type, found.dtype) == ("metal", wanted.dtype)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_names_of_the_device() -> None:
    x = floats(1, 3)
    assert x.to("mps").device == x.to("gpu").device == lucid.device("metal")
    assert x.metal().cpu().device.type == "cpu"
    assert "metal" in repr(x.metal())


def test_copies_are_of_the_device(tmp_path: Path) -> None:
    x = floats(1, 3).metal()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.device.type == "metal"
        np.testing.assert_array_equal(again.numpy(), x.numpy())
    lucid.save({"x": x}, tmp_path / "x.pt")
    loaded = lucid.load(tmp_path / "x.pt", map_location="metal")["x"]
    assert loaded.device.type == "metal"
    np.testing.assert_array_equal(loaded.numpy(), x.numpy())


def test_numpy_shares_the_memory_and_keeps_it() -> None:
    x = floats(1, 3).metal() * 2
    array = x.numpy()
    expected = floats(1, 3).numpy() * 2
    del x
    lucid.metal.empty_cache()
    lucid.zeros(3, device="metal")
    np.testing.assert_array_equal(array, expected)
    assert not array.flags.writeable


def test_a_state_of_the_cpu_is_loaded() -> None:
    source = nn.Linear(3, 2)
    target = nn.Linear(3, 2).to("metal")
    target.load_state_dict(source.state_dict())
    assert target.weight.device.type == "metal"
    np.testing.assert_array_equal(target.weight.detach().numpy(), source.weight.detach().numpy())


def test_gradients_are_clipped() -> None:
    model = nn.Linear(3, 2).to("metal")
    (model(floats(1, 4, 3).metal()) ** 2).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    total = sum(float((p.grad**2).sum().item()) for p in model.parameters())
    assert total == pytest.approx(0.01, rel=1e-4)


def test_type_as_moves_to_where_the_dtype_exists() -> None:
    x = lucid.tensor([1.5, -2.0], device="metal")
    like = lucid.zeros(1, dtype=lucid.float64)
    found = x.type_as(like)
    assert (found.dtype, found.device, found.tolist()) == (lucid.float64, like.device, [1.5, -2.0])
    back = lucid.tensor([1.5, -2.0], dtype=lucid.float64).type_as(x)
    assert (back.dtype, back.device, back.tolist()) == (x.dtype, x.device, [1.5, -2.0])
    assert x.type_as(lucid.zeros(3, device="metal")) is x
