"""AveragedModel: the means of the parameters that it was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn as nn
import numpy as np
import pytest
from lucid.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn
from zoo import floats


def exponential(values: list[Any]) -> Any:
    mean = values[0]
    for value in values[1:]:
        mean = 0.75 * mean + 0.25 * value
    return mean


KINDS: list[tuple[dict[str, Any], Callable[[list[Any]], Any]]] = [
    ({}, lambda values: np.mean(values, axis=0)),
    ({"avg_fn": get_ema_avg_fn(0.75)}, exponential),
    ({"multi_avg_fn": get_ema_multi_avg_fn(0.75)}, exponential),
]


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize(("options", "mean"), KINDS, ids=["swa", "ema", "multi"])
def test_means(
    options: dict[str, Any], mean: Callable[[list[Any]], Any], use_buffers: bool
) -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    averaged = AveragedModel(model, use_buffers=use_buffers, **options)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.5)
    shown: dict[str, list[Any]] = {name: [] for name in model.state_dict()}
    for i in range(4):
        model(floats(i, 5, 3)).square().sum().backward()
        optimizer.step()
        averaged.update_parameters(model)
        for name, value in model.state_dict().items():
            shown[name].append(value.numpy().copy())
    parameters = dict(model.named_parameters())
    for name, value in averaged.module.state_dict().items():
        is_mean = name in parameters or (use_buffers and value.dtype.is_floating_point)
        wanted = mean(shown[name]) if is_mean else shown[name][-1]
        np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    assert averaged.n_averaged.item() == 4
    assert averaged.eval()(floats(9, 2, 3)).shape == (2, 4)
    twin = AveragedModel(model)
    twin.load_state_dict(averaged.state_dict())
    assert twin.n_averaged.item() == 4
