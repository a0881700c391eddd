"""compile: a function or module as executables, forward and backward, behind an ordinary call."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.dynamic import SizedEntry, size_of, trace_sized
from lucid.compile.entries import Compiled, Entry
from lucid.compile.tracing import Subject
from lucid.compile.tree import Keywords, Structure, flatten

__all__ = ["CompiledFunction"]


class CompiledFunction(Compiled):
    """A function of tensors, compiled; made by :func:`lucid.compile.compile`.

    Calling it gives what the function gives. Tensors of the result carry a compiled backward, so
    that ``loss.backward()`` works through them; inside another trace the function itself is
    traced. Assigned in a class body it acts as a method.
    """

    _what = "compile"

    def __init__(self, function: Callable[..., Any], dynamic: bool, fallback: str) -> None:
        super().__init__(fallback)
        functools.update_wrapper(self, function, updated=())
        self.dynamic = dynamic
        self._function = function
        self._methods: weakref.WeakKeyDictionary[Any, CompiledFunction] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the compiled function returns.

        Raises: what the function raises; TraceError or UnsupportedError for a function that
            cannot be compiled, with ``fallback="error"``. After an error modules, buffers and
            generators are as before the call.
        """
        if kwargs:
            args = (*args, Keywords(kwargs))
        if _C.is_tracing():
            return self._run_eagerly(args)
        entries = self._entries
        if entries:
            result = entries[0].try_run(args)
            if result is not None:
                self._hits += 1
                return result
        return self._slow(args)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._methods is None:
            self._methods = weakref.WeakKeyDictionary()
        known = self._methods.get(instance)
        if known is None:
            # The method must not keep its instance, which keeps it, alive from here.
            known = _BoundFunction(self._function, instance, self.dynamic, self._fallback)
            self._methods[instance] = known
        return known

    def _names(self, args: tuple[Any, ...]) -> list[str]:
        names = [f"argument {i}" for i in range(len(args))]
        if args and isinstance(args[-1], Keywords):
            names[-1] = "keywords"
        return names

    def _subject(self, structures: list[Structure], leaves: list[Tensor]) -> Subject:
        def record(
            recorder: _C.Recorder, arguments: list[Any]
        ) -> tuple[list[Tensor], Structure | None]:
            results: list[Tensor] = []
            structure = _result_structure(self._called(tuple(arguments)), results)
            return results, None if structure.kind == "leaf" else structure

        def compile_trace(
            trace: _C.Trace, leaves: list[Tensor], found: list[Tensor]
        ) -> _C.StepEntry:
            return _C.compile_function(trace, leaves, found, True)

        return Subject(self._what, (self._root(),), record, compile_trace)

    def _make(self, names: list[str], structures: list[Structure], leaves: list[Tensor]) -> Entry:
        size = size_of(leaves) if self.dynamic else None
        if size is None:
            return super()._make(names, structures, leaves)
        subject = self._subject(structures, leaves)
        traced, sized = trace_sized(subject, structures, leaves, size)
        if isinstance(sized, str):
            self._history.append(sized)
            return Entry(names, structures, leaves, traced)
        return SizedEntry(names, structures, leaves, traced, sized, size)

    def _root(self) -> Any:
        """What the code can read is reached from here."""
        return self._function

    def _called(self, args: tuple[Any, ...]) -> Any:
        if args and isinstance(args[-1], Keywords):
            return self._root()(*args[:-1], **args[-1])
        return self._root()(*args)

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        return self._called(args)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._function, '__qualname__', self._function)!s}>"


class _BoundFunction(CompiledFunction):
    """A compiled method of one instance, which it does not keep alive."""

    def __init__(
        self, function: Callable[..., Any], instance: Any, dynamic: bool, fallback: str
    ) -> None:
        super().__init__(function, dynamic, fallback)
        self._instance = weakref.ref(instance)

    def _root(self) -> Any:
        instance = self._instance()
        if instance is None:
            raise _C.UserError("compile: the object that this method belongs to is gone")
        return types.MethodType(self._function, instance)


def _result_structure(value: Any, leaves: list[Tensor]) -> Structure:
    try:
        return flatten(value, "the result", leaves)
    except _C.ArgumentTypeError as error:
        raise _C.TraceError(
            f"compile: the result holds something that cannot be put together again: {error}"
        ) from None
