"""set_default_device: where tensors are made that name no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import Tensor, nn

needs_metal = pytest.mark.skipif(
    not lucid.metal.is_available(), reason="this build has no metal device"
)
MAKERS: dict[str, Callable[[], Tensor]] = {
    "zeros": lambda: lucid.zeros(2),
    "ones": lambda: lucid.ones(2),
    "empty": lambda: lucid.empty(2),
    "full": lambda: lucid.full((2,), 3.0),
    "tensor": lambda: lucid.tensor([1.0, 2.0]),
    "array": lambda: lucid.as_tensor(np.ones(2, np.float32)),
    "arange": lambda: lucid.arange(3),
    "linspace": lambda: lucid.linspace(0, 1, 3),
    "logspace": lambda: lucid.logspace(0, 1, 3),
    "eye": lambda: lucid.eye(2),
    "rand": lambda: lucid.rand(2),
    "randn": lambda: lucid.randn(2),
    "randint": lambda: lucid.randint(0, 3, (2,)),
    "randperm": lambda: lucid.randperm(3),
    "normal": lambda: lucid.normal(0.0, 1.0, (2,)),
    "parameter": lambda: nn.Linear(2, 2).weight,
    "buffer": lambda: nn.BatchNorm1d(2).running_mean,  # type: ignore[dict-item, return-value]
}


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    lucid.set_default_device(None)


def test_what_is_set_is_read() -> None:
    assert lucid.get_default_device() == lucid.device("cpu")
    for device in ("cpu", lucid.device("cpu"), None):
        lucid.set_default_device(device)
        assert lucid.get_default_device() == lucid.device("cpu")


@pytest.mark.skipif(lucid.metal.is_available(), reason="this build has a metal device")
def test_a_device_that_is_not_there_changes_nothing() -> None:
    for device in ("metal", "mps", "gpu"):
        with pytest.raises(lucid.DeviceUnavailableError, match="metal"):
            lucid.set_default_device(device)
    with pytest.raises(lucid.UserError, match="device: unknown device 'tpu'"):
        lucid.set_default_device("tpu")
    assert lucid.get_default_device() == lucid.device("cpu")
    assert lucid.zeros(2).device == lucid.device("cpu")


@needs_metal
@pytest.mark.parametrize("name", MAKERS)
def test_tensors_are_made_there(name: str) -> None:
    lucid.set_default_device("metal")
    assert MAKERS[name]().device == lucid.device("metal")
    lucid.set_default_device(None)
    assert MAKERS[name]().device == lucid.device("cpu")


@needs_metal
def test_what_has_a_device_keeps_it() -> None:
    there = lucid.ones(2)
    lucid.set_default_device("metal")
    assert lucid.as_tensor(there) is there
    assert lucid.zeros_like(there).device == there.device
    assert lucid.rand_like(there).device == there.device
    assert lucid.normal(there, 1.0).device == there.device
    assert (there + 1).device == there.device
    assert there.to(lucid.float64).device == there.device
    assert lucid.zeros(2, device="cpu").device == there.device
    assert lucid.from_numpy(np.ones(2)).device == there.device
    sampler = lucid.utils.data.RandomSampler(range(5))
    assert sorted(sampler) == [0, 1, 2, 3, 4]


@needs_metal
def test_float64_on_the_cpu_from_there() -> None:
    there = lucid.tensor([0.5, 1.0], device="metal", requires_grad=True)
    for found in (there.to("cpu", lucid.float64), lucid.as_tensor(there, lucid.float64, "cpu")):
        assert (found.device, found.dtype) == (lucid.device("cpu"), lucid.float64)
        assert found.tolist() == [0.5, 1.0]
    found.sum().backward()
    assert there.grad is not None and there.grad.device == lucid.device("metal")
    assert there.grad.tolist() == [1.0, 1.0]


@needs_metal
@pytest.mark.parametrize("replacement", [False, True])
def test_weights_of_a_sampler_are_on_the_cpu(replacement: bool) -> None:
    lucid.set_default_device("metal")
    there = lucid.tensor([0.0, 1.0, 3.0])
    for weights in ([0.0, 1.0, 3.0], there):
        sampler = lucid.utils.data.WeightedRandomSampler(weights, 2, replacement)  # type: ignore[arg-type]
        assert sampler.weights.device == lucid.device("cpu")
        assert sampler.weights.dtype == lucid.float64
        drawn = list(sampler)
        assert set(drawn) <= {1, 2} and len(drawn) == 2


@needs_metal
@pytest.mark.parametrize(
    "samples",
    [
        [1.5, 2.5],
        [1, 2],
        [True, False],
        [np.ones(2), np.zeros(2)],
        [np.float64(1.5), np.float64(2.5)],
        [np.ones(2, np.float32), np.zeros(2, np.float32)],
    ],
)
def test_batches_of_numbers_and_arrays_are_on_the_cpu(samples: list[Any]) -> None:
    expected = lucid.utils.data.default_collate(samples)
    lucid.set_default_device("metal")
    found = lucid.utils.data.default_collate(samples)
    assert (found.device, found.dtype) == (lucid.device("cpu"), expected.dtype)
    assert found.tolist() == expected.tolist()
    there = lucid.utils.data.default_collate([lucid.ones(2), lucid.zeros(2)])
    assert there.device == lucid.device("metal")


@needs_metal
def test_a_loader_of_numbers() -> None:
    lucid.set_default_device("metal")
    samples = [(float(i), i) for i in range(6)]
    loader = lucid.utils.data.DataLoader(samples, batch_size=4, shuffle=True)
    seen = [number for values, _ in loader for number in values.tolist()]
    assert sorted(seen) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@needs_metal
def test_it_is_part_of_a_signature() -> None:
    compiled = lucid.compile(lambda x: x + lucid.ones(2, device=x.device), fallback="error")
    x = lucid.ones(2)
    compiled(x)
    lucid.set_default_device("metal")
    compiled(x)
    assert compiled.cache_info()["misses"] == 2
    assert "another default device" in compiled.explain()
