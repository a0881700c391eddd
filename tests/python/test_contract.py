"""The promises of make_step that have no test elsewhere, and the check that each has one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import lucid.optim as optim
import pytest
from lucid import Tensor
from lucid.compile import RecompileWarning, make_step
from lucid.compile.step import groups_of
from zoo import floats, labels, mlp, normalized_mlp, regression

ROOT = Path(__file__).resolve().parents[2]


def promises(text: str) -> list[tuple[int, list[str]]]:
    """Numbers and test names of the contract's table."""
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", text, re.MULTILINE)
    return [(int(number), re.findall(r"`([^`]+)`", tests)) for number, tests in rows]


def missing_tests(text: str) -> list[str]:
    """Numbers without a test, and tests that do not exist."""
    found = []
    for number, tests in promises(text):
        if not tests:
            found.append(f"promise {number} has no test")
        for test in tests:
            file, name = test.split("::")
            source = (ROOT / "tests" / "python" / file).read_text(encoding="utf-8")
            if f"def {name}(" not in source:
                found.append(f"promise {number}: {test} does not exist")
    return found


def test_every_promise_has_a_test() -> None:
    text = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    numbers = [number for number, _ in promises(text)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 17
    assert missing_tests(text) == []


def test_the_check_can_fail() -> None:
    text = "| 1 | promised |  |\n| 2 | also | `test_contract.py::test_nothing` |\n"
    assert missing_tests(text) == [
        "promise 1 has no test",
        "promise 2: test_contract.py::test_nothing does not exist",
    ]


def test_signature() -> None:
    parameters = list(inspect.signature(make_step).parameters.values())
    assert [p.name for p in parameters[:4]] == ["model", "loss_fn", "dynamic", "segments"]
    assert [p.default for p in parameters[2:4]] == [False, 1]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters[:4])
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[4:])
    assert callable(make_step(mlp(), F.cross_entropy, False, 1))


def test_traced_once() -> None:
    symbolic: list[bool] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            print(x.is_symbolic, file=log)
            return self.linear(x)

    class Log:
        def write(self, text: str) -> None:
            if text.strip():
                symbolic.append(text == "True")

    log: Any = Log()
    step = make_step(Watched(), F.cross_entropy, fallback="silent")
    for i in range(3):
        step(*regression(i)).backward()
    assert symbolic[0]
    assert symbolic.count(True) == 1


def test_loss_is_tied_to_the_parameters() -> None:
    model = normalized_mlp()
    loss = make_step(model, F.cross_entropy, fallback="error")(*regression(0))
    assert loss.shape == ()
    assert loss.grad_fn is not None
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    assert all(p.grad.shape == p.shape for p in model.parameters())


def test_dynamic_is_per_shape() -> None:
    model = mlp()
    step = make_step(model, F.cross_entropy, dynamic=True, fallback="error")
    for rows in (6, 3, 1, 6):
        x, t = floats(rows, rows, 8), labels(rows, 4, rows)
        assert step(x, t).item() == F.cross_entropy(model(x), t).item()
    assert step.cache_info()["entries"] == 3


@pytest.mark.parametrize(
    ("children", "segments", "sizes"),
    [(7, 3, [3, 2, 2]), (4, 2, [2, 2]), (5, 4, [2, 1, 1, 1]), (3, 3, [1, 1, 1])],
)
def test_groups(children: int, segments: int, sizes: list[int]) -> None:
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(children)])
    groups = groups_of(model, segments)
    assert [len(group) for group in groups] == sizes
    assert [m for group in groups for m in group] == list(model)


def test_the_usual_loop() -> None:
    lucid.manual_seed(0)
    model = nn.Linear(8, 4).to("cpu")
    step = make_step(model, lambda y, t: F.cross_entropy(y, t))
    opt = optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        opt.zero_grad()
        loss = step(*regression(0))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_many_signatures_are_told() -> None:
    model = nn.Linear(4, 1)
    step = make_step(model, lambda y, w: (y * w).sum(), fallback="error")
    x = floats(1, 3, 4)
    for weight in range(7):
        step(x, float(weight))
    many = "8 signatures have been compiled.*pass a 0-d tensor"
    with pytest.warns(RecompileWarning, match=many) as caught:
        step(x, 7.5)
    assert caught[0].filename == __file__


def test_gradient_penalty_inside_the_loss() -> None:
    lucid.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    class Penalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_() if not x.requires_grad else x
            y = self.model(x)
            (slope,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
            return (slope**2).sum() + y.sum()

    wrapped = Penalized()
    x = floats(2, 5, 4).requires_grad_()
    wrapped(x).backward()
    wanted = [p.grad.numpy().tobytes() for p in wrapped.parameters() if p.grad is not None]
    wrapped.zero_grad()
    step = make_step(wrapped, lambda y: y, fallback="error")
    step(floats(2, 5, 4).requires_grad_()).backward()
    found = [p.grad.numpy().tobytes() for p in wrapped.parameters() if p.grad is not None]
    assert found == wanted
