"""What parameter groups may hold: checks that say what is wrong with one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lucid import _C
from lucid._C import Tensor

if TYPE_CHECKING:
    from lucid.optim.optimizer import Optimizer

__all__ = ["as_pair", "check_common", "check_groups", "check_options", "checked_betas"]
__all__ += ["entries_of", "require_range", "split_names"]


def entries_of(params: Any) -> list[Any]:
    """What an iterable of parameters or of groups holds, in order.

    Raises: ArgumentTypeError for something else.
    """
    if isinstance(params, Tensor):
        raise _C.ArgumentTypeError(
            "optimizer: params must be an iterable of Tensors or dicts: got a Tensor; "
            "put it into a list"
        )
    if isinstance(params, set | frozenset):
        raise _C.ArgumentTypeError(
            "optimizer: params must be in a fixed order: got a set; use a list"
        )
    remedy = "use model.parameters()"
    if isinstance(params, Mapping):
        remedy = "put a group into a list, and of named parameters use .values() or .items()"
    is_iterable = hasattr(type(params), "__iter__") or hasattr(type(params), "__getitem__")
    if isinstance(params, str | bytes | Mapping) or not is_iterable:
        raise _C.ArgumentTypeError(
            "optimizer: params must be an iterable of Tensors or dicts: got "
            f"{type(params).__name__}; {remedy}"
        )
    return list(params)


def split_names(entries: list[Any]) -> tuple[list[str] | None, list[Any]]:
    """Names and parameters of (name, parameter) pairs; None and the entries of bare ones.

    Raises: UserError if only some have names, ArgumentTypeError for tuples that are no such pairs.
    """
    num_named = sum(isinstance(entry, tuple) for entry in entries)
    if num_named == 0:
        return None, entries
    if num_named < len(entries):
        raise _C.UserError(
            f"optimizer: {num_named} of {len(entries)} parameters have names; name all or none"
        )
    for entry in entries:
        if len(entry) != 2 or not isinstance(entry[0], str):
            kinds = ", ".join(type(part).__name__ for part in entry)
            raise _C.ArgumentTypeError(
                f"optimizer: a tuple in params must be a name and a Tensor: got ({kinds})"
            )
    return [name for name, _ in entries], [param for _, param in entries]


def check_groups(groups: Any) -> None:
    """Raise ArgumentTypeError or UserError unless these are dicts with a list of Tensors each."""
    for index, group in enumerate(entries_of(groups)):
        what = f"optimizer: param_groups[{index}]"
        if not isinstance(group, dict):
            raise _C.ArgumentTypeError(
                f"{what} must be a dict: got {type(group).__name__}; use add_param_group"
            )
        if "params" not in group:
            raise _C.UserError(f'{what} has no "params"; put its parameters there')
        for param in entries_of(group["params"]):
            if not isinstance(param, Tensor):
                raise _C.ArgumentTypeError(
                    f"{what} must hold Tensors: got {type(param).__name__}; use add_param_group"
                )


def check_options(optimizer: Optimizer, group: Mapping[str, Any]) -> None:
    """Raise unless a group has every option of its optimizer, in the type of its default.

    Raises: UserError for a missing one, ArgumentTypeError for one of another type.
    """
    for name, default in optimizer.defaults.items():
        if name not in group:
            raise _C.UserError(
                f"optimizer: a parameter group lacks {name}; put it into the group, as in "
                f"param_groups[0][{name!r}] = {default!r}"
            )
        value = group[name]
        if isinstance(default, tuple):
            _require_pair(name, value)
        elif _is_number(default):
            _require_number(name, value)


def require_range(name: str, value: Any, most: float = math.inf) -> None:
    """Raise UserError in PyTorch's words unless a number is from 0 to ``most``."""
    _require_number(name, value)
    if not 0.0 <= value <= most:
        raise _C.UserError(f"Invalid {name}: {value}")


def as_pair(name: str, value: Any) -> Any:
    """Two numbers of any sequence, as an array or range, as a tuple; a tuple or list stays."""
    is_sequence = hasattr(type(value), "__len__") and hasattr(type(value), "__getitem__")
    if isinstance(value, tuple | list | str | bytes | Mapping) or not is_sequence:
        return value
    if getattr(value, "ndim", 1) != 1:
        return value
    return tuple(float(part) if _is_number(part) else part for part in value)


def checked_betas(betas: Any) -> tuple[float, float]:
    """Two numbers in [0, 1), of any sequence. Raises: UserError or ArgumentTypeError for others."""
    pair: tuple[float, float] = as_pair("betas", betas)
    _require_pair("betas", pair)
    for index, beta in enumerate(pair):
        if not 0.0 <= beta < 1.0:
            raise _C.UserError(f"Invalid beta parameter at index {index}: {beta}")
    return pair


def check_common(lr: float, eps: float, weight_decay: float) -> None:
    """Raise UserError for a negative learning rate, eps or weight decay."""
    require_range("learning rate", lr)
    require_range("epsilon value", eps)
    require_range("weight_decay value", weight_decay)


def _is_number(value: object) -> bool:
    if isinstance(value, bool | complex):
        return False
    return isinstance(value, Tensor) or hasattr(type(value), "__float__")


def _require_number(name: str, value: object) -> None:
    if not _is_number(value) and not isinstance(value, bool):
        raise _C.ArgumentTypeError(
            f"optimizer: {name} must be a number: got {type(value).__name__}"
        )
    if isinstance(value, Tensor) and value.numel() != 1:
        raise _C.UserError(
            f"optimizer: {name} must be one number: got a tensor of shape {tuple(value.shape)}"
        )


def _require_pair(name: str, value: Any) -> None:
    if not isinstance(value, tuple | list):
        raise _C.ArgumentTypeError(
            f"optimizer: {name} must be two numbers: got {type(value).__name__}"
        )
    if len(value) != 2:
        raise _C.UserError(f"optimizer: {name} must be two numbers: got {len(value)}")
    for part in value:
        _require_number(name, part)
