"""What mixed precision does with functions that are made of several operations.

An operation's own policy stands in its row in the core. A function that PyTorch's lists name as a
whole, or whose steps have policies that the function as a whole has not, is marked here: its
arguments are cast once and its inside runs as written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from lucid import _C
from lucid._C import Tensor, emit

__all__ = ["autocast_as", "without_autocast"]

F = TypeVar("F", bound=Callable[..., Any])

#: "low": to the mode's dtype; "float32"; "widest": to float32 if an argument has it; "none".
POLICIES = ("low", "float32", "widest", "none")


def without_autocast(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call inside which mixed precision is off."""
    enabled = _C.suspend_autocast()
    try:
        return function(*args, **kwargs)
    finally:
        _C.resume_autocast(enabled)


def autocast_as(policy: str) -> Callable[[F], F]:
    """Marks a function: under autocast its floating arguments are cast, its inside is not."""
    assert policy in POLICIES

    def mark(function: F) -> F:
        def marked(*args: Any, **kwargs: Any) -> Any:
            if not _C.is_autocast_on():
                return function(*args, **kwargs)
            if policy != "none":
                args, kwargs = _cast_arguments(policy, args, kwargs)
            return without_autocast(function, *args, **kwargs)

        for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            setattr(marked, name, getattr(function, name))
        # Not __wrapped__: this is the function itself for all that look for one.
        marked.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        marked.__dict__["autocast_policy"] = policy
        return marked  # type: ignore[return-value]

    return mark


def _cast_arguments(
    policy: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    tensors = [t for value in (*args, *kwargs.values()) for t in _castable(value)]
    target = None
    if policy == "float32" and tensors:
        target = _C.float32
    elif policy == "low" and tensors:
        target = _C.autocast_mode(tensors[0].device)[1]
    elif policy == "widest":
        for tensor in tensors:
            target = tensor.dtype if target is None else _C.promote_types(target, tensor.dtype)
    if target is None:
        return args, kwargs
    return (
        tuple(_cast(value, target) for value in args),
        {name: _cast(value, target) for name, value in kwargs.items()},
    )


def _castable(value: Any) -> list[Tensor]:
    """The tensors in an argument that mixed precision may cast."""
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _castable(item)]
    if not isinstance(value, Tensor) or not value.dtype.is_floating_point:
        return []
    is_cast = value.dtype is not _C.float64 and _C.autocast_mode(value.device)[0]
    return [value] if is_cast else []


def _cast(value: Any, dtype: _C.dtype) -> Any:
    if isinstance(value, (list, tuple)) and _castable(value):
        return [_cast(item, dtype) for item in value]
    if not _castable(value) or value.dtype is dtype:
        return value
    return emit("cast", value, dtype=dtype)
