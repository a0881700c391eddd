"""Memory limits that cannot be met; the numbers of the messages depend on kernels and plans."""

from __future__ import annotations

import re
from typing import Any

import lucid
import lucid.nn as nn
import pytest
from lucid.compile import make_step
from zoo import floats


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {},
            r"make_step: memory_limit=1 bytes cannot be met: the smallest peak found is \d+ bytes, "
            r"against \d+ without a limit; raise the limit or make the batch smaller",
        ),
        (
            {"segments": "auto"},
            r"make_step: memory_limit=1 bytes cannot be met: the smallest peak of the counts "
            r"\[1, 2\] is \d+ bytes; raise the limit or try more counts with candidates=",
        ),
    ],
)
def test_limits_that_cannot_be_met(options: dict[str, Any], text: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    step = make_step(model, lambda y: y.sum(), memory_limit=1, fallback="silent", **options)
    with pytest.raises(lucid.UserError) as caught:
        step(floats(1, 3, 2))
    assert re.fullmatch(text, str(caught.value))
