"""Saved states of optimizers: only the class that saved one takes it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import lucid
import lucid.nn as nn
import lucid.optim as optim
import numpy as np
import pytest
from lucid import Tensor
from optimizers import everything
from zoo import floats

KINDS = {
    name: getattr(optim, name)
    for name in optim.__all__
    if name not in ("Optimizer", "lr_scheduler", "swa_utils")
}
# These two are one class, but for how they decay.
FAMILIES = [{"Adam", "AdamW"}]


def stepped(kind: Any, **options: Any) -> tuple[nn.Linear, optim.Optimizer]:
    lucid.manual_seed(2)
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), **options)
    for i in range(2):
        optimizer.zero_grad()
        model(floats(i, 4, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize(("theirs", "mine"), list(itertools.product(KINDS, KINDS)))
def test_who_takes_which_state(theirs: str, mine: str) -> None:
    _, source = stepped(KINDS[theirs])
    model, target = stepped(KINDS[mine], lr=0.5)
    before = everything(model, target)
    state = copy.deepcopy(source.state_dict())
    if theirs == mine or {theirs, mine} in FAMILIES:
        target.load_state_dict(state)
        assert target.param_groups[0]["lr"] == source.param_groups[0]["lr"]
        return
    with pytest.raises(lucid.UserError, match=f"load_state_dict: .*{mine}") as caught:
        target.load_state_dict(state)
    assert theirs in str(caught.value) or "keeps exp_avg" in str(caught.value)
    assert everything(model, target) == before


def test_adamw_goes_on_decaying_as_such() -> None:
    _, adam = stepped(optim.Adam, weight_decay=0.1)
    _, adamw = stepped(optim.AdamW)
    adamw.load_state_dict(adam.state_dict())
    assert adamw.param_groups[0]["weight_decay"] == 0.1
    assert adamw.param_groups[0]["decoupled_weight_decay"] is True


@pytest.mark.parametrize("name", KINDS)
def test_a_state_of_an_older_version_or_of_a_script(name: str) -> None:
    """Switches may be missing, and groups may hold what a script or a schedule has put there."""
    model, source = stepped(KINDS[name])
    state = copy.deepcopy(source.state_dict())
    for group in state["param_groups"]:
        for switch in ("foreach", "maximize", "capturable", "differentiable", "fused"):
            group.pop(switch, None)
        group.update(initial_lr=0.1, name="all", lr_scale=2.0)
    twin, target = stepped(KINDS[name])
    target.load_state_dict(state)
    assert target.param_groups[0]["name"] == "all"
    for m, optimizer in ((model, source), (twin, target)):
        optimizer.zero_grad()
        m(floats(5, 4, 3)).square().sum().backward()
        optimizer.step()
    for mine, its in zip(model.parameters(), twin.parameters(), strict=True):
        assert mine.tolist() == its.tolist()


def test_amsgrad_comes_with_the_state() -> None:
    for saved, live in ((True, False), (False, True)):
        _, source = stepped(optim.Adam, amsgrad=saved)
        _, target = stepped(optim.Adam, amsgrad=live)
        target.load_state_dict(source.state_dict())
        assert target.param_groups[0]["amsgrad"] is saved


class Signs(optim.Optimizer):
    """An optimizer of a user's own."""

    def __init__(self, params: Any, lr: float = 0.01, factor: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "factor": factor})


def test_an_optimizer_of_a_user() -> None:
    source, target = (Signs([nn.Parameter(lucid.ones(2))], lr=lr) for lr in (0.3, 0.1))
    target.load_state_dict(source.state_dict())
    assert target.param_groups[0]["lr"] == 0.3
    text = "load_state_dict: the state of Adam or AdamW does not fit Signs: a group lacks factor"
    with pytest.raises(lucid.UserError, match=text):
        target.load_state_dict(optim.Adam([nn.Parameter(lucid.ones(2))]).state_dict())
    text = "load_state_dict: the state of another class does not fit SGD"
    with pytest.raises(lucid.UserError, match=text):
        optim.SGD([nn.Parameter(lucid.ones(2))]).load_state_dict(source.state_dict())


@pytest.mark.parametrize(
    ("name", "value"),
    [("exp_avg", lucid.zeros(3)), ("exp_avg_sq", lucid.zeros(2, 1)), ("step", lucid.zeros(2))],
)
def test_a_state_that_does_not_fit_changes_nothing(name: str, value: Tensor) -> None:
    model, optimizer = stepped(optim.Adam)
    other = optim.Adam(model.parameters(), lr=0.5).state_dict()
    other["state"] = copy.deepcopy(optimizer.state_dict()["state"])
    other["state"][1][name] = value
    groups, state = copy.deepcopy(optimizer.param_groups), optimizer.state
    before = repr(list(state.values()))
    with pytest.raises(lucid.ShapeError, match=f"load_state_dict: {name} of parameter 1 "):
        optimizer.load_state_dict(other)
    assert optimizer.state is state
    assert repr(list(state.values())) == before
    assert [g["lr"] for g in optimizer.param_groups] == [g["lr"] for g in groups]


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax])
@pytest.mark.parametrize(
    "betas",
    [
        np.array([0.5, 0.75]),
        np.array([0.5, 0.75], np.float32),
        [0.5, 0.75],
        lucid.tensor([0.5, 0.75]),
    ],
)
def test_betas_are_any_sequence_of_two_numbers(kind: Any, betas: Any) -> None:
    results = []
    for given in ((0.5, 0.75), betas):
        for is_in_the_group in (False, True):
            lucid.manual_seed(3)
            model = nn.Linear(3, 2)
            params: Any = list(model.parameters())
            options: dict[str, Any] = {"betas": given}
            if is_in_the_group:
                params, options = [{"params": params, **options}], {}
            optimizer = kind(params, lr=0.1, **options)
            for _ in range(3):
                optimizer.zero_grad()
                model(lucid.ones(4, 3)).square().sum().backward()
                optimizer.step()
            results.append([p.tolist() for p in model.parameters()])
    assert results[0] == results[1] == results[2] == results[3]
