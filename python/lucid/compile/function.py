"""compile: a function or module as executables, forward and backward, behind an ordinary call."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.dynamic import SizedEntry, size_of, trace_sized
from lucid.compile.entries import MISS, Compiled, Entry
from lucid.compile.reach import KEPT_METHODS
from lucid.compile.tracing import Subject
from lucid.compile.tree import Keywords, Structure, flatten

__all__ = ["CompiledFunction"]


class _KeptMethods(dict["CompiledFunction", "CompiledFunction"]):
    """The compiled methods of one object; copies of the object begin without."""

    def __reduce__(self) -> Any:
        return (_KeptMethods, ())


class CompiledFunction(Compiled):
    """A function of tensors, compiled; made by :func:`lucid.compile.compile`.

    Calling it gives what the function gives: new tensors, also where the function returns one of
    its arguments. Tensors of the result carry a compiled backward, so that ``loss.backward()``
    works through them; inside another trace the function itself is traced. Assigned in a class
    body it acts as a method, and each object has signatures of its own.
    """

    _what = "compile"

    def __init__(self, function: Callable[..., Any], dynamic: bool, fallback: str) -> None:
        super().__init__(fallback)
        functools.update_wrapper(self, function, updated=())
        self.dynamic = dynamic
        self._function = function
        self._owner: type | None = None
        self._per_size: list[Any] = []  # kinds of arguments that no trace serves at all sizes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the compiled function returns.

        Raises: what the function raises; TraceError or UnsupportedError for a function that
            cannot be compiled, with ``fallback="error"``. After an error modules, buffers and
            generators are as before the call.
        """
        if self._owner is not None and args and isinstance(args[0], self._owner):
            return self.__get__(args[0])(*args[1:], **kwargs)
        args = _with_keywords(args, kwargs)
        if _C.is_tracing():
            return self._run_eagerly(args)
        entries = self._entries
        if entries:
            result = entries[0].try_run(args)
            if result is not MISS:
                self._hits += 1
                return result
        return self._slow(args)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these arguments without running: ``memory()`` is known then."""
        super().compile(*_with_keywords(args, kwargs))

    # ------------------------------------------------------------ methods

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or not isinstance(self._function, types.FunctionType):
            return self
        # With the object, so that it and its signatures, which refer to it, go together.
        kept = getattr(instance, "__dict__", {}).get(KEPT_METHODS)
        if kept is None:
            kept = _KeptMethods()
            _keep_with(instance, kept)
        known = kept.get(self)
        if known is None:
            method = types.MethodType(self._function, instance)
            known = kept.setdefault(self, CompiledFunction(method, self.dynamic, self._fallback))
        return known

    def __reduce__(self) -> Any:
        function = self._function
        if isinstance(function, types.MethodType):
            holder, name = function.__self__, function.__name__
            if getattr(holder, name, None) is self:
                return (getattr, (holder, name))
        elif _named(self) is self:
            return self.__qualname__  # as functions are: copies are the same
        return (CompiledFunction, (function, self.dynamic, self._fallback))

    # ------------------------------------------------------------ compiling

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

        return Subject(self._what, self._roots(), record, compile_trace, is_differentiable=True)

    def _make(self, names: list[str], structures: list[Structure], leaves: list[Tensor]) -> Entry:
        size = size_of(leaves) if self.dynamic else None
        kind = (structures, [(leaf.dtype, leaf.ndim) for leaf in leaves])
        if size is None or kind in self._per_size:
            return super()._make(names, structures, leaves)
        subject = self._subject(structures, leaves)
        traced, sized = trace_sized(subject, structures, leaves, size)
        if isinstance(sized, str):
            self._per_size.append(kind)
            self._history.append(sized)
            return Entry(names, structures, leaves, traced)
        return SizedEntry(names, structures, leaves, traced, sized, size)

    def clear_cache(self) -> None:
        """Forget all signatures; losses that are still alive keep what they need."""
        super().clear_cache()
        self._per_size = []

    def _roots(self) -> tuple[Any, ...]:
        return (self._function,)

    def _called(self, args: tuple[Any, ...]) -> Any:
        if args and isinstance(args[-1], Keywords):
            return self._function(*args[:-1], **args[-1])
        return self._function(*args)

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        return self._called(args)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._function, '__qualname__', self._function)!s}>"


def _with_keywords(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments as one tuple."""
    return (*args, Keywords(kwargs)) if kwargs else args


def _named(function: CompiledFunction) -> Any:
    """What stands under the function's own name in its module."""
    found: Any = sys.modules.get(function.__module__)
    for name in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found


def _keep_with(instance: Any, kept: _KeptMethods) -> None:
    """Put the compiled methods of an object into it."""
    if isinstance(instance, type):
        setattr(instance, KEPT_METHODS, kept)
        return
    if not hasattr(instance, "__dict__"):
        raise _C.ArgumentTypeError(
            f"compile: an object with compiled methods needs a __dict__: got "
            f"{type(instance).__name__}, whose class has __slots__; leave them out"
        )
    instance.__dict__[KEPT_METHODS] = kept


def _result_structure(value: Any, leaves: list[Tensor]) -> Structure:
    try:
        return flatten(value, "the result", leaves, is_result=True)
    except _C.ArgumentTypeError as error:
        raise _C.TraceError(
            f"compile: the result holds something that cannot be put together again: {error}"
        ) from None
