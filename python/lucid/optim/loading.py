"""Whose state is it? Refuses a saved state of another class of optimizer by name."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lucid import _C
from lucid._C import Tensor

if TYPE_CHECKING:
    from lucid.optim.optimizer import Optimizer

__all__ = ["check_form", "check_origin"]

# Options that choose how an update runs, or came in late: states of other versions lack them.
_SWITCHES = frozenset(
    ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")
)
_COUNTS = frozenset(("step", "mu_product"))


def check_form(state_dict: Any) -> None:
    """Raise ArgumentTypeError or UserError unless this looks like the state of an optimizer."""
    what = "load_state_dict: "
    _require_mapping(f"{what}the state", state_dict)
    for name in ("state", "param_groups"):
        if name not in state_dict:
            raise _C.UserError(f"{what}the state has no {name!r}; give what state_dict() gave")
    _require_mapping(f"{what}'state'", state_dict["state"])
    for number, values in state_dict["state"].items():
        _require_mapping(f"{what}'state'[{number!r}]", values)
    groups = state_dict["param_groups"]
    if not isinstance(groups, list | tuple):
        raise _C.ArgumentTypeError(
            f"{what}'param_groups' must be a list: got {type(groups).__name__}"
        )
    for index, group in enumerate(groups):
        _require_mapping(f"{what}'param_groups'[{index}]", group)
        if not isinstance(group.get("params"), list | tuple):
            raise _C.UserError(
                f"{what}'param_groups'[{index}] has no list 'params'; give what state_dict() gave"
            )


def _require_mapping(what: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise _C.ArgumentTypeError(f"{what} must be a dict: got {type(value).__name__}")


def check_origin(
    optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], states: Mapping[Any, Any]
) -> None:
    """Raise UserError unless saved groups and states are of the optimizer's class."""
    mine = frozenset(optimizer.defaults) - _SWITCHES
    for group in groups:
        saved = frozenset(group) - _SWITCHES
        name, its = _class_of(saved)
        if mine <= saved and its <= mine:
            continue
        missing, more = sorted(mine - saved), sorted(its - mine)
        found = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(more)}"
        raise _C.UserError(
            f"load_state_dict: the state of {name} does not fit {type(optimizer).__name__}: a "
            f"group {found}; load it into an optimizer of the class that it was saved from"
        )
    _check_states(optimizer, groups, states)


def _class_of(options: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The classes of this package that have the most of these options, and those."""
    from lucid import optim

    names: list[str] = []
    best: frozenset[str] = frozenset()
    for name in optim.__all__:
        kind = getattr(optim, name)
        if name == "Optimizer" or not isinstance(kind, type):
            continue
        its = frozenset(inspect.signature(kind).parameters) - _SWITCHES - {"params"}
        if its == best:
            names.append(name)
        elif its <= options and len(its) > len(best):
            names, best = [name], its
    return " or ".join(names) or "another class", best


def _check_states(
    optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], states: Mapping[Any, Any]
) -> None:
    """Compare the tensors of each parameter's state with those that the optimizer would make."""
    for saved, group in zip(groups, optimizer.param_groups, strict=True):
        for number, param in zip(saved["params"], group["params"], strict=True):
            values = states.get(number, {})
            found = {n: v for n, v in values.items() if isinstance(v, Tensor) and n not in _COUNTS}
            _check_counts(number, values)
            if not found:
                continue
            wanted = optimizer._tensors(param, {**group, **saved}, {})
            if not wanted.keys() <= found.keys():
                raise _C.UserError(
                    f"load_state_dict: {type(optimizer).__name__} keeps "
                    f"{', '.join(sorted(wanted))} of a parameter: got {', '.join(sorted(found))}; "
                    "load it into an optimizer of the class that it was saved from"
                )
            for name, made in wanted.items():
                if found[name].shape != made.shape:
                    raise _C.ShapeError(
                        f"load_state_dict: {name} of parameter {number} has another shape: got "
                        f"{found[name].shape} for {made.shape}; load it into an optimizer of the "
                        "model that it was saved from"
                    )
                if found[name].is_floating_point() != made.is_floating_point():
                    raise _C.DtypeError(
                        f"load_state_dict: {name} of parameter {number} must be of a dtype like "
                        f"{made.dtype.name}: got {found[name].dtype.name}"
                    )


def _check_counts(number: Any, values: Mapping[str, Any]) -> None:
    for name in _COUNTS & values.keys():
        value = values[name]
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise _C.ShapeError(
                    f"load_state_dict: {name} of parameter {number} must be one number: got a "
                    f"tensor of shape {value.shape}"
                )
            value = value.item()
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise _C.UserError(
                f"load_state_dict: {name} of parameter {number} must be a number that is not "
                f"negative: got {value!r}"
            )
