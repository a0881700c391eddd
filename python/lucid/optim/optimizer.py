"""Optimizer: parameter groups, state and the loop over parameters.

A subclass says what one update computes as a pure function of tensors and numbers (``update``),
which tensors a parameter's state has (``_tensors``), and which numbers belong to a step
(``_numbers``). All parameters are updated by one executable; ``lucid.optim.update`` traces it.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.autograd import enable_grad, no_grad
from lucid.nn.parameter import clear_grad
from lucid.optim.groups import as_pair, check_groups, check_options, entries_of, split_names
from lucid.optim.loading import check_form, check_origin
from lucid.optim.update import Updates

ParamsLike = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Group = dict[str, Any]


class Numbers(NamedTuple):
    """What an update takes besides tensors."""

    #: Numbers that may change from step to step, computed on the host in double precision.
    scalars: dict[str, float]
    #: Choices that select another arithmetic (flags, terms left out); rarely change.
    options: Mapping[str, Hashable]
    #: For :func:`follows_from_group`: the last of ``scalars`` for a count of steps.
    by_step: Callable[[int], tuple[float, ...]] = lambda step: ()


Method = TypeVar("Method", bound=Callable[..., Numbers])


def follows_from_group(numbers: Method) -> Method:
    """Mark a ``_numbers`` whose result follows from the values of the group, but for the numbers
    that ``by_step`` tells: a step whose group has not changed asks only for those."""
    numbers.follows_from_group = True  # type: ignore[attr-defined]
    return numbers


#: New parameter and new state tensors.
Updated = tuple[Tensor, dict[str, Tensor]]


class Optimizer:
    """Base class of the optimizers.

    Args:
        params: tensors, (name, tensor) pairs, or dicts with "params" and options of their own.
        defaults: options of groups that do not give their own.

    Raises: UserError for no parameters, ArgumentTypeError for something else than tensors.
    """

    param_groups: list[Group]
    state: defaultdict[Tensor, dict[str, Any]]
    defaults: dict[str, Any]

    def __init__(self, params: ParamsLike, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._updates = Updates(self)
        self.state = defaultdict(dict)
        self.param_groups = []
        entries = entries_of(params)
        if len(entries) == 0:
            raise _C.UserError(
                "optimizer: the parameter list is empty; give at least one parameter"
            )
        groups: list[Any] = entries if isinstance(entries[0], dict) else [{"params": entries}]
        for group in groups:
            self.add_param_group(group)

    # ------------------------------------------------------------ groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own.

        Args:
            param_group: "params" (a tensor, tensors or (name, tensor) pairs) and options;
                missing options take their defaults.

        Raises: UserError if a parameter is listed already or is not a leaf, and for a missing
            entry; ArgumentTypeError for entries of another type. Then nothing has been added.
        """
        if not isinstance(param_group, dict):
            raise _C.ArgumentTypeError(
                f"optimizer: a parameter group must be a dict: got {type(param_group).__name__}"
            )
        group = dict(param_group)
        if "params" not in group:
            raise _C.UserError(
                'optimizer: a parameter group has no "params"; put its parameters there'
            )
        given = group["params"]
        names, params = split_names([given] if isinstance(given, Tensor) else entries_of(given))
        self._check_params(params)
        group["params"] = params
        if names is not None:
            group["param_names"] = names
        for other in self.param_groups:
            if ("param_names" in other) != ("param_names" in group):
                raise _C.UserError(
                    "optimizer: only some of the groups have names for their parameters; name all "
                    "or none"
                )
        for name, value in self.defaults.items():
            group.setdefault(name, value)
            if isinstance(value, tuple | list):
                group[name] = as_pair(name, group[name])
        self.param_groups.append(group)

    def _check_params(self, params: list[Any]) -> None:
        known = {id(param) for group in self.param_groups for param in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise _C.ArgumentTypeError(
                    f"optimizer: params must be Tensors: got {type(param).__name__}"
                )
            if not param.is_leaf:
                raise _C.UserError(
                    "optimizer: a tensor is the result of an operation; give leaf tensors only"
                )
            if id(param) in known:
                raise _C.UserError("optimizer: a parameter is listed twice; list each once")
            known.add(id(param))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or put zeros into it."""
        for group in self.param_groups:
            for param in group["params"]:
                clear_grad(param, set_to_none)

    # ------------------------------------------------------------ the update

    def _tensors(self, param: Tensor, group: Group, state: dict[str, Any]) -> dict[str, Tensor]:
        """The state tensors that ``update`` takes, made in ``state`` where they are new."""
        raise _C.UnsupportedError(f"{type(self).__name__}: _tensors is not defined")

    def _numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        """Advance the counts of a parameter's state and compute the numbers of this step."""
        raise _C.UnsupportedError(f"{type(self).__name__}: _numbers is not defined")

    def checked_numbers(self, group: Group, counters: dict[str, Any]) -> Numbers:
        """As ``_numbers``, with an error that names the option that it could not use."""
        try:
            return self._numbers(group, counters)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            check_options(self, group)
            raise

    @staticmethod
    def update(
        parameter: Tensor,
        gradient: Tensor,
        tensors: dict[str, Tensor],
        scalars: Mapping[str, float],
        options: Mapping[str, Hashable],
    ) -> Updated:
        """The new parameter and state; a pure function that keeps nothing."""
        raise _C.UnsupportedError("optimizer: update is not defined; a subclass gives it")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, all in one executable.

        After an error nothing is updated. Groups with ``foreach=False`` are updated parameter by
        parameter, one operation at a time, with the same results bit for bit: for debugging.

        Args:
            closure: computes the loss anew and calls ``backward``; run first if given.

        Returns: what the closure returned, else None.
        Raises: TraceError inside a compiled step or function.
        """
        if closure is None and self._updates.run_again():
            return None
        if closure is not None and not callable(closure):
            raise _C.ArgumentTypeError(
                f"optimizer: closure must be a function: got {type(closure).__name__}"
            )
        if _C.is_tracing():
            raise _C.TraceError(
                "optimizer: step was called inside a trace, whose later runs would not advance "
                "the optimizer's counts; call it after the step, or use lucid.compile.fused_step"
            )
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            pairs = self._with_gradients()
            for param, group in pairs:
                if group.get("foreach") is False:
                    self._update_one(param, group)
            self._updates.run([pair for pair in pairs if pair[1].get("foreach") is not False])
        return loss

    def _with_gradients(self) -> list[tuple[Tensor, Group]]:
        """The parameters that have gradients, with their groups."""
        try:
            return [
                (param, group)
                for group in self.param_groups
                for param in group["params"]
                if param.grad is not None
            ]
        except (AttributeError, KeyError, TypeError):
            check_groups(self.param_groups)
            raise

    def _update_one(self, param: Tensor, group: Group) -> None:
        state = dict(self.state.get(param, {}))
        tensors = self._tensors(param, group, state)
        numbers = self.checked_numbers(group, state)
        gradient = param.grad
        assert gradient is not None
        value, tensors = self.update(param, gradient, tensors, numbers.scalars, numbers.options)
        param.assign_(value)
        for name, tensor in tensors.items():
            known = state.get(name)
            if known is None:
                state[name] = tensor
            else:
                known.assign_(tensor)
        if state:
            self.state.setdefault(param, {}).update(state)

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """State and groups in PyTorch's format, with parameters named by their number.

        Returns: {"state": {number: {name: value}}, "param_groups": [{..., "params": numbers}]}.
        """
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {numbers[id(param)]: dict(values) for param, values in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; tensors are copied to the parameters' dtype.

        Raises: UserError if groups or their sizes differ, or the state is one of another class;
            ShapeError or DtypeError for a tensor of another kind; ArgumentTypeError for something
            else than a state. Then nothing has been changed.
        """
        check_form(state_dict)
        saved = [dict(group) for group in state_dict["param_groups"]]
        if len(saved) != len(self.param_groups):
            raise _C.UserError(
                f"load_state_dict: numbers of parameter groups differ: got {len(saved)} for "
                f"{len(self.param_groups)}"
            )
        for old, new in zip(self.param_groups, saved, strict=True):
            if len(old["params"]) != len(new["params"]):
                raise _C.UserError(
                    "load_state_dict: sizes of a parameter group differ: got "
                    f"{len(new['params'])} for {len(old['params'])}"
                )
        check_origin(self, saved, state_dict["state"])
        by_number = {
            number: param
            for old, new in zip(self.param_groups, saved, strict=True)
            for number, param in zip(new["params"], old["params"], strict=True)
        }
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            param = by_number.get(number)
            if param is not None:
                state[param] = {
                    name: _load_value(name, value, param) for name, value in values.items()
                }
        options = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in saved])
        self.state = state
        for old, new in zip(self.param_groups, options, strict=True):
            old.update(new)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for index, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {index}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


def _load_value(name: str, value: Any, param: Tensor) -> Any:
    """One entry of a saved state: the step count as a number, tensors in the parameter's dtype."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if name in ("step", "mu_product"):
        return value.item()
    value = value.detach().clone()
    if value.is_floating_point() and value.dtype != param.dtype:
        value = value.to(param.dtype)
    return value if value.device == param.device else value.to(param.device)


# ---------------------------------------------------------------- shared by the subclasses


def refuse_differentiable(name: str, differentiable: bool) -> None:
    """Raise UnsupportedError if the update shall be differentiated."""
    if differentiable:
        raise _C.UnsupportedError(f"{name}: differentiable=True is not supported; leave it False")


def ensure(state: dict[str, Any], param: Tensor, *names: str) -> dict[str, Tensor]:
    """The named state tensors, zeros in the parameter's shape where they are new."""
    for name in names:
        if name not in state:
            state[name] = fn.zeros_like(param)
    return {name: state[name] for name in names}


def advance(counters: dict[str, Any]) -> int:
    """Count one step; returns the count, 1 at the first."""
    step = int(counters.get("step", 0)) + 1
    counters["step"] = step
    return step


def decayed_gradient(
    parameter: Tensor,
    gradient: Tensor,
    scalars: Mapping[str, float],
    options: Mapping[str, Hashable],
) -> Tensor:
    """The gradient with its sign for ``maximize`` and with the L2 penalty's gradient."""
    if options["maximize"]:
        gradient = -gradient
    if options["has_decay"]:
        gradient = gradient + parameter * scalars["weight_decay"]
    return gradient


def moved_towards(old: Tensor, new: Tensor, share: float) -> Tensor:
    """old + share * (new - old)."""
    return old + (new - old) * share
