"""CompiledModule: a module whose calls run compiled, and that is that module in all else."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

from lucid import _C
from lucid._C import Tensor
from lucid.compile.entries import Compiled, checked_fallback
from lucid.compile.freeze import freeze
from lucid.compile.function import CompiledFunction
from lucid.compile.reach import KEPT_STEPS, STRUCTURE, Place
from lucid.compile.step import Step, make_step
from lucid.nn.modules.module import Module

__all__ = ["CompiledModule", "compile", "compiled_step"]

_MAX_STEPS = 16

Self = TypeVar("Self", bound="CompiledModule")


class CompiledModule(Module):
    """A module, compiled; made by :func:`lucid.compile.compile`.

    Calls run executables, forward and backward; parameters, buffers, children, hooks, mode and
    attributes are those of the module itself, read and written through. Names of
    ``state_dict`` and ``named_parameters`` are the module's own.
    """

    _target: Module

    def __init__(self, target: Module, dynamic: bool = False, fallback: str | None = None) -> None:
        # The dicts of the target itself: whatever lists or changes them sees one module.
        self.__dict__.update({name: target.__dict__[name] for name in STRUCTURE})
        self.__dict__.update(
            _non_persistent_buffers_set=target._non_persistent_buffers_set,
            _target=target,
            _compiled=CompiledFunction(target, dynamic, checked_fallback("compile", fallback)),
        )

    @property
    def _calls(self) -> Compiled:
        found: Compiled = self.__dict__["_compiled"]
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns; see :class:`CompiledFunction` for errors."""
        return self.__dict__["_compiled"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._target, name)

    def __getitem__(self, index: Any) -> Any:
        target: Any = self._target
        return target[index]

    def __len__(self) -> int:
        target: Any = self._target
        return len(target)

    def __iter__(self) -> Any:
        target: Any = self._target
        return iter(target)

    def __bool__(self) -> bool:
        return True  # whatever the target's length, if it has one

    def __reduce__(self) -> Any:
        calls = self.__dict__["_compiled"]
        return (CompiledModule, (self._target, calls.dynamic, calls._fallback))

    def train(self: Self, mode: bool = True) -> Self:
        """Set the module's mode; returns self."""
        self._target.train(mode)
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, not compiled."""
        return self._target.forward(*args, **kwargs)

    def extra_repr(self) -> str:
        """What ``repr`` of the module shows."""
        return self._target.extra_repr()

    def _get_name(self) -> str:
        return f"CompiledModule of {self._target._get_name()}"

    def step(self, *args: Any, loss_fn: Callable[..., Any]) -> Tensor:
        """The loss of ``loss_fn(module(x), *extra)`` by a compiled step; see :func:`make_step`.

        Args:
            args: ``x, *extra_inputs``.
            loss_fn: functions of the same code and closure share one step.

        Returns: the loss with a ``grad_fn``: ``loss.backward()`` gives every gradient.
        """
        return compiled_step(self._target, loss_fn, *args)

    # ------------------------------------------------------------ what can be asked

    def cache_info(self) -> dict[str, int]:
        """Counts of compiled calls: ``entries``, ``hits``, ``misses``, ``max_entries``."""
        return self._calls.cache_info()

    def clear_cache(self) -> None:
        """Forget all compiled calls."""
        self._calls.clear_cache()

    def explain(self) -> str:
        """One line a signature: what was compiled and why, or why it runs eagerly."""
        return self._calls.explain()

    def timing(self) -> dict[str, float]:
        """Seconds of compiling and of runs of the current signature, and its number of runs."""
        return self._calls.timing()

    def memory(self) -> dict[str, Any]:
        """Exact bytes of the current signature."""
        return self._calls.memory()

    def graph_dump(self) -> str:
        """The compiled graphs of the current signature as text."""
        return self._calls.graph_dump()

    @property
    def eager_only(self) -> bool:
        """True if every signature met so far was refused and runs eagerly."""
        return self._calls.eager_only


def _check_target(target: object) -> None:
    if isinstance(target, (staticmethod, classmethod)):
        kind = type(target).__name__
        raise _C.ArgumentTypeError(
            f"compile: expected a module or a function: got a {kind}; put @{kind} above "
            "@lucid.compile"
        )
    if isinstance(target, Compiled):
        raise _C.ArgumentTypeError(
            f"compile: expected a module or a function: got a {type(target).__name__}, which is "
            "compiled already; call it as it is"
        )
    if isinstance(target, type) or not callable(target):
        kind = "a class" if isinstance(target, type) else type(target).__name__
        raise _C.ArgumentTypeError(
            f"compile: expected a module or a function: got {kind}; make an instance first"
        )


def _forwarded(name: str) -> Callable[..., Any]:
    """A method that calls the target's own, which its class may define anew."""

    @functools.wraps(getattr(Module, name))
    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._target, name)(*args, **kwargs)
        return self if result is self._target else result

    return method


for _name in dir(Module):
    _is_method = isinstance(getattr(Module, _name), types.FunctionType)
    if _is_method and not _name.startswith("__") and _name not in vars(CompiledModule):
        setattr(CompiledModule, _name, _forwarded(_name))


def compile(target: Any = None, dynamic: bool = False, *, fallback: str | None = None) -> Any:
    """Compile the calls of a module or function, forward and backward.

    Args:
        target: a module, or a function of tensors (and numbers, strings, and lists, tuples or
            dicts of them). Without it, a decorator is returned: ``@compile(dynamic=True)``. What
            is compiled already is compiled anew, with the options given here.
        dynamic: one trace serves all sizes of the arguments' first axis: another size infers
            shapes and plans memory again, and traces nothing. A function whose graph depends on
            that size in another way than through shapes is compiled for each size.
        fallback: what happens to a call that cannot be compiled: see :func:`make_step`.

    Returns: :class:`CompiledModule` for a module, else :class:`CompiledFunction`. Results are
        equal to the uncompiled ones bit for bit on cpu, and differentiable.
    Raises: ArgumentTypeError for a class or something that cannot be called.
    """
    if target is None:
        return functools.partial(compile, dynamic=dynamic, fallback=fallback)
    chosen = checked_fallback("compile", fallback)
    if isinstance(target, CompiledModule):
        target = target._target
    if isinstance(target, CompiledFunction):
        target = target._function
    _check_target(target)
    if isinstance(target, Module):
        return CompiledModule(target, bool(dynamic), chosen)
    return CompiledFunction(target, bool(dynamic), chosen)


# ---------------------------------------------------------------- steps that are kept by model


class _Steps:
    """The steps of one model, most recently used first; copies of the model begin without."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Step]] = []

    def of(self, model: Module, loss_fn: Callable[..., Any]) -> Step:
        """The step of functions that mean the same as ``loss_fn``."""
        key = _meaning(loss_fn)
        for entry in self._known:
            if entry[0] == key:
                self._known.remove(entry)
                self._known.insert(0, entry)
                return entry[1]
        step = make_step(model, loss_fn)
        self._known = [(key, step), *self._known][:_MAX_STEPS]
        return step

    def __reduce__(self) -> Any:
        return (_Steps, ())


def _meaning(loss_fn: Any) -> Any:
    """Equal for functions of one code, defaults and closure."""
    if not isinstance(loss_fn, types.FunctionType):
        return freeze(loss_fn, True)
    places = [Place(cell, None, "cell", "") for cell in loss_fn.__closure__ or ()]
    closure = [freeze(place.get(), True) for place in places]
    defaults = freeze((loss_fn.__defaults__, loss_fn.__kwdefaults__), True)
    return (loss_fn.__code__, freeze(loss_fn.__globals__, True, 0), defaults, closure)


def compiled_step(model: Module, loss_fn: Callable[..., Any], *args: Any) -> Tensor:
    """One compiled step of ``loss_fn(model(x), *extra)``; the steps are kept with the model.

    Args:
        model: the module to train.
        loss_fn: functions of the same code, defaults and closure share one step, so that a
            lambda written in a loop compiles once.
        args: ``x, *extra_inputs``.

    Returns: the loss with a ``grad_fn``, as a step of :func:`make_step` returns it.
    Raises: ArgumentTypeError if model or loss_fn is of the wrong type; what the step raises.
    """
    if isinstance(model, CompiledModule):
        model = model._target
    if not isinstance(model, Module):
        raise _C.ArgumentTypeError(
            f"compiled_step: model must be an nn.Module: got {type(model).__name__}"
        )
    steps = model.__dict__.get(KEPT_STEPS)
    if steps is None:
        steps = model.__dict__[KEPT_STEPS] = _Steps()
    result: Tensor = steps.of(model, loss_fn)(*args)
    return result
