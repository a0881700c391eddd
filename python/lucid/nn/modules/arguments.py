"""What Module's methods are given: names, targets of ``to``, new values; and printing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.nn.parameter import Parameter


def parse_target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Device and dtype out of the arguments that ``to`` accepts."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    other = kwargs.pop("tensor", None)
    for ignored in ("non_blocking", "copy", "memory_format"):
        kwargs.pop(ignored, None)
    if kwargs:
        raise _C.ArgumentTypeError(
            f"to: unknown argument: got {next(iter(kwargs))!r}; use device, dtype or tensor"
        )
    for value in args:
        if isinstance(value, _C.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            other = value
        elif isinstance(value, (str, _C.device)):
            device = value
        elif value is not None and not isinstance(value, bool):
            raise _C.ArgumentTypeError(
                f"to: expected a device, a dtype or a tensor: got {type(value).__name__}"
            )
    if other is not None:
        device, dtype = other.device, other.dtype
    return device, dtype


def replace_data(param: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    """Give a parameter and its gradient the values ``fn`` of their own; the object stays."""
    data = param.detach()
    changed = fn(data)
    if changed is not data:
        param.data = changed
    if param.grad is not None:
        param.grad = fn(param.grad.detach())


def indent(text: str) -> str:
    """Indent every line but the first by two spaces."""
    return text.replace("\n", "\n  ")


def check_name(owner: object, kind: str, name: object, known: Mapping[str, object]) -> str:
    """Return ``name`` if a new entry of this kind may have it."""
    if not isinstance(name, str):
        raise _C.ArgumentTypeError(
            f"register_{kind}: the name must be a string: got {type(name).__name__}"
        )
    if "." in name:
        raise _C.UserError(
            f"register_{kind}: the name has a dot: got {name!r}; entries of children are set there"
        )
    if name == "":
        raise _C.UserError(f"register_{kind}: the name is empty; give one")
    if hasattr(owner, name) and name not in known:
        raise _C.UserError(
            f"register_{kind}: the module has another attribute of that name: got {name!r}; "
            "choose another name"
        )
    return name
