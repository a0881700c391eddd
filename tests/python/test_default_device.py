"""set_default_device: where tensors are made that name no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
def test_it_is_part_of_a_signature() -> None:
    compiled = lucid.compile(lambda x: x + lucid.ones(2, device=x.device), fallback="error")
    x = lucid.ones(2)
    compiled(x)
    lucid.set_default_device("metal")
    compiled(x)
    assert compiled.cache_info()["misses"] == 2
    assert "another default device" in compiled.explain()
