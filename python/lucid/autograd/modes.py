"""Grad modes of a thread: context managers and decorators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from lucid import _C

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode:
    """Context manager and decorator that sets the grad mode of the thread."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(_C.is_grad_enabled())
        _C.set_grad_enabled(self._enabled)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.set_grad_enabled(self._previous.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_GradMode):
    """Nothing inside is recorded for gradients. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(False)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)


class enable_grad(_GradMode):
    """Gradients are recorded inside, also within ``no_grad``. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(_GradMode):
    """As ``no_grad``; ``inference_mode(False)`` leaves gradients on."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_GradMode):
    """Sets the grad mode at once; as a context manager it puts the old one back at the end."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._before = _C.is_grad_enabled()
        _C.set_grad_enabled(self._enabled)

    def __enter__(self) -> None:
        self._previous.append(self._before)
        _C.set_grad_enabled(self._enabled)


def is_grad_enabled() -> bool:
    """True where operations are recorded for gradients."""
    return _C.is_grad_enabled()
