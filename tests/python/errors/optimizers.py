"""What optimizers refuse: parameters, groups, options and states."""

from __future__ import annotations

from typing import Any

import lucid
import numpy
from lucid import nn, optim

from .case import ErrorCase, f32, leaf


def sgd(**options: Any) -> optim.SGD:
    return optim.SGD([leaf(2)], **{"lr": 0.1, **options})


def foreign_state() -> dict[str, Any]:
    """A state whose groups fit Adam, but whose tensors are those of Adamax."""
    state = optim.Adam([leaf(2)]).state_dict()
    state["state"] = {0: {"step": 1, "exp_avg": f32(2), "exp_inf": f32(2)}}
    return state


def state_with(**values: Any) -> dict[str, Any]:
    """A state of Adam with other values for its parameter of two elements."""
    state = optim.Adam([leaf(2)]).state_dict()
    state["state"] = {0: {"step": 1, "exp_avg": f32(2), "exp_avg_sq": f32(2), **values}}
    return state


class Plain(optim.Optimizer):
    """Defines nothing."""


class Counts(optim.Optimizer):
    """Defines nothing."""


def plain_step() -> None:
    parameter = leaf(2)
    parameter.grad = f32(2)
    Plain([parameter], {"lr": 0.1}).step()


def loaded(groups: list[Any]) -> None:
    sgd().load_state_dict({"state": {}, "param_groups": groups})


def shared_parameter() -> None:
    parameter = leaf(2)
    optim.SGD([{"params": [parameter]}, {"params": [parameter]}], lr=0.1)


def stepped(name: str, value: Any, kind: Any = optim.Adam) -> None:
    """A step with an entry of its group changed, or taken out if the value is REMOVED."""
    parameter = leaf(2)
    parameter.grad = f32(2)
    optimizer = kind([parameter], lr=0.1)
    before = parameter.tolist()
    if value is REMOVED:
        del optimizer.param_groups[0][name]
    else:
        optimizer.param_groups[0][name] = value
    try:
        optimizer.step()
    finally:
        assert parameter.tolist() == before
        assert not optimizer.state


REMOVED = object()


def with_more_groups(more: Any) -> None:
    parameter = leaf(2)
    parameter.grad = f32(2)
    optimizer = optim.SGD([parameter], lr=0.1)
    optimizer.param_groups.append(more)
    optimizer.step()


def adding(group: Any, first: Any = None) -> None:
    optimizer = optim.SGD([leaf(2)] if first is None else first, lr=0.1)
    try:
        optimizer.add_param_group(group)
    finally:
        assert len(optimizer.param_groups) == 1


CASES = [
    ErrorCase(
        "optimizer: a tensor",
        lambda: optim.SGD(leaf(2), lr=0.1),
        lucid.ArgumentTypeError,
        (
            "optimizer: params must be an iterable of Tensors or dicts: got a Tensor; put it "
            "into a list"
        ),
    ),
    ErrorCase(
        "optimizer: no parameters",
        lambda: optim.SGD([], lr=0.1),
        lucid.UserError,
        "optimizer: the parameter list is empty; give at least one parameter",
    ),
    ErrorCase(
        "optimizer: a set",
        lambda: optim.SGD([{"params": {leaf(2)}}], lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: params must be in a fixed order: got a set; use a list",
    ),
    ErrorCase(
        "optimizer: number",
        lambda: optim.SGD([3], lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: params must be Tensors: got int",
    ),
    ErrorCase(
        "optimizer: no leaf",
        lambda: optim.SGD([leaf(2) * 2], lr=0.1),
        lucid.UserError,
        "optimizer: a tensor is the result of an operation; give leaf tensors only",
    ),
    ErrorCase(
        "optimizer: shared parameter",
        lambda: shared_parameter(),
        lucid.UserError,
        "optimizer: a parameter is listed twice; list each once",
    ),
    ErrorCase(
        "optimizer: a module",
        lambda: optim.SGD(nn.Linear(2, 2), lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: params must be an iterable of Tensors or dicts: got Linear; use "
        "model.parameters()",
    ),
    ErrorCase(
        "optimizer: None",
        lambda: optim.SGD(None, lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: params must be an iterable of Tensors or dicts: got NoneType; use "
        "model.parameters()",
    ),
    ErrorCase(
        "optimizer: a dict",
        lambda: optim.SGD({"a": leaf(2)}, lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: params must be an iterable of Tensors or dicts: got dict; put a group "
        "into a list, and of named parameters use .values() or .items()",
    ),
    ErrorCase(
        "optimizer: twice in one list",
        lambda: optim.SGD([leaf(2)] * 2, lr=0.1),
        lucid.UserError,
        "optimizer: a parameter is listed twice; list each once",
    ),
    ErrorCase(
        "optimizer: some names",
        lambda: optim.SGD([("a", leaf(2)), leaf(2)], lr=0.1),
        lucid.UserError,
        "optimizer: 1 of 2 parameters have names; name all or none",
    ),
    ErrorCase(
        "optimizer: a long tuple",
        lambda: optim.SGD([("a", leaf(2), 3)], lr=0.1),
        lucid.ArgumentTypeError,
        "optimizer: a tuple in params must be a name and a Tensor: got (str, Tensor, int)",
    ),
    ErrorCase(
        "optimizer: a group with names",
        lambda: adding({"params": [("a", leaf(2))]}),
        lucid.UserError,
        "optimizer: only some of the groups have names for their parameters; name all or none",
    ),
    ErrorCase(
        "optimizer: a group without params",
        lambda: adding({"lr": 0.1}),
        lucid.UserError,
        'optimizer: a parameter group has no "params"; put its parameters there',
    ),
    ErrorCase(
        "optimizer: a number for params",
        lambda: adding({"params": 3}),
        lucid.ArgumentTypeError,
        "optimizer: params must be an iterable of Tensors or dicts: got int; use "
        "model.parameters()",
    ),
    ErrorCase(
        "optimizer: text for a number",
        lambda: optim.SGD([leaf(2)], lr="0.1"),
        lucid.ArgumentTypeError,
        "optimizer: learning rate must be a number: got str",
    ),
    ErrorCase(
        "optimizer: two learning rates",
        lambda: optim.SGD([leaf(2)], lr=f32(2)),
        lucid.UserError,
        "optimizer: learning rate must be one number: got a tensor of shape (2,)",
    ),
    ErrorCase(
        "optimizer: a negative tensor",
        lambda: sgd(lr=lucid.tensor(-0.5)),
        lucid.UserError,
        "Invalid learning rate: -0.5",
    ),
    ErrorCase(
        "optimizer: one beta",
        lambda: optim.Adam([leaf(2)], betas=(0.9,)),
        lucid.UserError,
        "optimizer: betas must be two numbers: got 1",
    ),
    ErrorCase(
        "optimizer: a number for betas",
        lambda: optim.Adam([leaf(2)], betas=0.9),
        lucid.ArgumentTypeError,
        "optimizer: betas must be two numbers: got float",
    ),
    ErrorCase(
        "optimizer: betas become None",
        lambda: stepped("betas", None),
        lucid.ArgumentTypeError,
        "optimizer: betas must be two numbers: got NoneType",
    ),
    ErrorCase(
        "optimizer: an option becomes None",
        lambda: stepped("eps", None),
        lucid.ArgumentTypeError,
        "optimizer: an option must be a number: got NoneType; set it in the optimizer's "
        "param_groups",
    ),
    ErrorCase(
        "optimizer: the rate becomes None",
        lambda: stepped("lr", None),
        lucid.ArgumentTypeError,
        "optimizer: lr must be a number: got NoneType",
    ),
    ErrorCase(
        "optimizer: an option is removed",
        lambda: stepped("lr", REMOVED),
        lucid.UserError,
        "optimizer: a parameter group lacks lr; put it into the group, as in "
        "param_groups[0]['lr'] = 0.1",
    ),
    ErrorCase(
        "optimizer: params are removed",
        lambda: stepped("params", REMOVED),
        lucid.UserError,
        'optimizer: param_groups[0] has no "params"; put its parameters there',
    ),
    ErrorCase(
        "optimizer: a number among params",
        lambda: stepped("params", [3]),
        lucid.ArgumentTypeError,
        "optimizer: param_groups[0] must hold Tensors: got int; use add_param_group",
    ),
    ErrorCase(
        "optimizer: a number among groups",
        lambda: with_more_groups(3),
        lucid.ArgumentTypeError,
        "optimizer: param_groups[1] must be a dict: got int; use add_param_group",
    ),
    ErrorCase(
        "optimizer: closure",
        lambda: sgd().step(3),
        lucid.ArgumentTypeError,
        "optimizer: closure must be a function: got int",
    ),
    ErrorCase(
        "optimizer: state is a number",
        lambda: sgd().load_state_dict(3),
        lucid.ArgumentTypeError,
        "load_state_dict: the state must be a dict: got int",
    ),
    ErrorCase(
        "optimizer: state lacks a part",
        lambda: sgd().load_state_dict({"state": {}}),
        lucid.UserError,
        "load_state_dict: the state has no 'param_groups'; give what state_dict() gave",
    ),
    ErrorCase(
        "optimizer: groups of a state are a number",
        lambda: loaded(3),
        lucid.ArgumentTypeError,
        "load_state_dict: 'param_groups' must be a list: got int",
    ),
    ErrorCase(
        "optimizer: group of a state",
        lambda: loaded([3]),
        lucid.ArgumentTypeError,
        "load_state_dict: 'param_groups'[0] must be a dict: got int",
    ),
    ErrorCase(
        "optimizer: group of a state without params",
        lambda: loaded([{}]),
        lucid.UserError,
        "load_state_dict: 'param_groups'[0] has no list 'params'; give what state_dict() gave",
    ),
    ErrorCase(
        "optimizer: state of a parameter",
        lambda: sgd().load_state_dict({"state": {0: 3}, "param_groups": []}),
        lucid.ArgumentTypeError,
        "load_state_dict: 'state'[0] must be a dict: got int",
    ),
    ErrorCase(
        "optimizer: group",
        lambda: sgd().add_param_group([leaf(2)]),
        lucid.ArgumentTypeError,
        "optimizer: a parameter group must be a dict: got list",
    ),
    ErrorCase(
        "optimizer: groups of a state",
        lambda: loaded([]),
        lucid.UserError,
        "load_state_dict: numbers of parameter groups differ: got 0 for 1",
    ),
    ErrorCase(
        "optimizer: sizes of a state",
        lambda: loaded([{"params": [0, 1]}]),
        lucid.UserError,
        "load_state_dict: sizes of a parameter group differ: got 2 for 1",
    ),
    ErrorCase(
        "optimizer: state of another class",
        lambda: optim.Adam([leaf(2)]).load_state_dict(sgd().state_dict()),
        lucid.UserError,
        "load_state_dict: the state of SGD does not fit Adam: a group lacks amsgrad, betas, eps; "
        "load it into an optimizer of the class that it was saved from",
    ),
    ErrorCase(
        "optimizer: tensors of another class",
        lambda: optim.Adam([leaf(2)]).load_state_dict(foreign_state()),
        lucid.UserError,
        "load_state_dict: Adam keeps exp_avg, exp_avg_sq of a parameter: got exp_avg, exp_inf; "
        "load it into an optimizer of the class that it was saved from",
    ),
    ErrorCase(
        "optimizer: tensor of another shape",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(exp_avg_sq=f32(3))),
        lucid.ShapeError,
        "load_state_dict: exp_avg_sq of parameter 0 has another shape: got (3,) for (2,); load it "
        "into an optimizer of the model that it was saved from",
    ),
    ErrorCase(
        "optimizer: count of several elements",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(step=f32(2))),
        lucid.ShapeError,
        "load_state_dict: step of parameter 0 must be one number: got a tensor of shape (2,)",
    ),
    ErrorCase(
        "optimizer: text for a count",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(step="x")),
        lucid.UserError,
        "load_state_dict: step of parameter 0 must be a number that is not negative: got 'x'",
    ),
    ErrorCase(
        "optimizer: no count",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(step=None)),
        lucid.UserError,
        "load_state_dict: step of parameter 0 must be a number that is not negative: got None",
    ),
    ErrorCase(
        "optimizer: negative count",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(step=-1)),
        lucid.UserError,
        "load_state_dict: step of parameter 0 must be a number that is not negative: got -1",
    ),
    ErrorCase(
        "optimizer: count that is nan",
        lambda: optim.Adam([leaf(2)]).load_state_dict(state_with(step=float("nan"))),
        lucid.UserError,
        "load_state_dict: step of parameter 0 must be a number that is not negative: got nan",
    ),
    ErrorCase(
        "optimizer: state of whole numbers",
        lambda: optim.Adam([leaf(2)]).load_state_dict(
            state_with(exp_avg=lucid.zeros(2, dtype=lucid.int64))
        ),
        lucid.DtypeError,
        "load_state_dict: exp_avg of parameter 0 must be of a dtype like float32: got int64",
    ),
    ErrorCase(
        "optimizer: array of three for betas",
        lambda: optim.Adam([leaf(2)], betas=numpy.ones(3)),  # type: ignore[arg-type]
        lucid.UserError,
        "optimizer: betas must be two numbers: got 3",
    ),
    ErrorCase(
        "optimizer: set for betas",
        lambda: optim.Adam([leaf(2)], betas={0.9, 0.99}),  # type: ignore[arg-type]
        lucid.ArgumentTypeError,
        "optimizer: betas must be two numbers: got set",
    ),
    ErrorCase(
        "optimizer: differentiable",
        lambda: sgd(differentiable=True),
        lucid.UnsupportedError,
        "SGD: differentiable=True is not supported; leave it False",
    ),
    ErrorCase("SGD: lr", lambda: sgd(lr=-1.0), lucid.UserError, "Invalid learning rate: -1.0"),
    ErrorCase(
        "SGD: momentum", lambda: sgd(momentum=-1.0), lucid.UserError, "Invalid momentum value: -1.0"
    ),
    ErrorCase(
        "SGD: weight_decay",
        lambda: sgd(weight_decay=-1.0),
        lucid.UserError,
        "Invalid weight_decay value: -1.0",
    ),
    ErrorCase(
        "SGD: nesterov",
        lambda: sgd(nesterov=True),
        lucid.UserError,
        "SGD: nesterov needs a momentum above 0 and a dampening of 0",
    ),
    ErrorCase(
        "Adam: betas",
        lambda: optim.Adam([leaf(2)], betas=(1.0, 0.9)),
        lucid.UserError,
        "Invalid beta parameter at index 0: 1.0",
    ),
    ErrorCase(
        "Adam: eps",
        lambda: optim.Adam([leaf(2)], eps=-1.0),
        lucid.UserError,
        "Invalid epsilon value: -1.0",
    ),
    ErrorCase(
        "AdamW: lr",
        lambda: optim.AdamW([leaf(2)], lr=-1.0),
        lucid.UserError,
        "Invalid learning rate: -1.0",
    ),
    ErrorCase(
        "RMSprop: alpha",
        lambda: optim.RMSprop([leaf(2)], alpha=-1.0),
        lucid.UserError,
        "Invalid alpha value: -1.0",
    ),
    ErrorCase(
        "Adagrad: lr_decay",
        lambda: optim.Adagrad([leaf(2)], lr_decay=-1.0),
        lucid.UserError,
        "Invalid lr_decay value: -1.0",
    ),
    ErrorCase(
        "Adadelta: rho",
        lambda: optim.Adadelta([leaf(2)], rho=2.0),
        lucid.UserError,
        "Invalid rho value: 2.0",
    ),
    ErrorCase(
        "optimizer: no _tensors",
        lambda: plain_step(),
        lucid.UnsupportedError,
        "Plain: _tensors is not defined",
    ),
    ErrorCase(
        "optimizer: no _numbers",
        lambda: Counts([leaf(2)], {})._numbers({}, {}),
        lucid.UnsupportedError,
        "Counts: _numbers is not defined",
    ),
    ErrorCase(
        "optimizer: no update function",
        lambda: Plain.update(leaf(2), f32(2), {}, {}, {}),
        lucid.UnsupportedError,
        "optimizer: update is not defined; a subclass gives it",
    ),
]
