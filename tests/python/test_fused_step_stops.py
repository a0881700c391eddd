"""What stops a fused step from outside: a search for anomalies, warnings made errors."""

from __future__ import annotations

import warnings

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import _C
from lucid.compile import fused_step
from test_bit_equality import bits
from test_fused_step import eight_rows


def test_under_detect_anomaly_nothing_is_updated() -> None:
    model = nn.Linear(2, 2)
    step = fused_step(
        model,
        lambda y, t: (y * t).sum(),
        optim.SGD(model.parameters(), lr=0.1),
        fallback="error",
    )
    good, bad = lucid.ones(1, 2), lucid.tensor([[float("nan"), 1.0]])
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with lucid.autograd.detect_anomaly(), pytest.raises(lucid.AutogradError, match="nan"):
        step(good, bad)
    assert all(
        (p.detach().numpy() == b).all() for p, b in zip(model.parameters(), before, strict=True)
    )
    step(good, good)
    assert step.cache_info()["entries"] == 1


@pytest.mark.parametrize("is_fused", [True, False])
def test_a_warning_made_an_error_loses_no_update(is_fused: bool) -> None:
    def trained(text: str | None) -> list[bytes | None]:
        lucid.manual_seed(0)
        model = nn.Linear(8, 4)
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        batch = eight_rows(1)
        fused = fused_step(model, F.cross_entropy, optimizer)

        def step() -> None:
            if is_fused:
                fused(*batch)
            else:
                optimizer.zero_grad()
                F.cross_entropy(model(batch[0]), batch[1]).backward()
                optimizer.step()

        for i in range(4):
            if i == 2 and text is not None:
                _C._notify(text)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    with pytest.raises(UserWarning, match=text):
                        step()
            step()
        return [bits(param) for param in model.parameters()]

    assert trained(f"planted {is_fused}") == trained(None)
