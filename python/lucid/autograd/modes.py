"""Grad modes of a thread: context managers and decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from lucid import _C

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


def run_inside(context: Callable[[], AbstractContextManager[Any]], function: F) -> F:
    """``function`` as one whose body runs inside ``context()``.

    The body of a generator function does so from each start to the next ``yield``: between them
    its caller is outside.
    """
    if not inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        resume: Callable[[Any], Any] = inner.send
        given: Any = None
        while True:
            try:
                with context():
                    value = resume(given)
            except StopIteration as end:
                return end.value
            try:
                resume, given = inner.send, (yield value)
            except GeneratorExit:
                with context():
                    inner.close()
                raise
            except BaseException as error:
                resume, given = inner.throw, error

    return generator  # type: ignore[return-value]


class _GradMode:
    """Context manager and decorator that sets the grad mode of the thread.

    One object may be entered again while it is entered.
    """

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
        # A mode of its own for each call: threads may run the function at once.
        return run_inside(functools.partial(_GradMode, self._enabled), function)


class _BareDecorator(_GradMode):
    """A mode that decorates with and without parentheses."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]):
            return cls()(args[0])
        return super().__new__(cls)


class no_grad(_BareDecorator):
    """Nothing inside is recorded for gradients. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(_BareDecorator):
    """Gradients are recorded inside, also within ``no_grad``. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(_BareDecorator):
    """As ``no_grad``; ``inference_mode(False)`` leaves gradients on."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_GradMode):
    """Sets the grad mode at once; as a context manager it puts the old one back at the end.

    As a decorator it puts the old one back at once, and sets it where the function runs.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._before = _C.is_grad_enabled()
        _C.set_grad_enabled(self._enabled)

    def __enter__(self) -> None:
        self._previous.append(_C.is_grad_enabled() if self._previous else self._before)
        _C.set_grad_enabled(self._enabled)

    def __call__(self, function: F) -> F:
        _C.set_grad_enabled(self._before)
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """True where operations are recorded for gradients."""
    return _C.is_grad_enabled()
