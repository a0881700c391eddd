"""The tree of modules: who stands in it, once or everywhere."""

from __future__ import annotations

import lucid.nn as nn


def test_modules_that_stand_twice() -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert [type(m) for m in model.modules()] == [nn.Sequential, nn.Linear, nn.ReLU]
    everywhere = list(model.modules(remove_duplicate=False))
    assert [type(m) for m in everywhere] == [nn.Sequential, nn.Linear, nn.ReLU, nn.Linear]
    assert [name for name, _ in model.named_modules()] == ["", "0", "1"]
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    assert names == ["", "0", "1", "2"]
