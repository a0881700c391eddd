"""Second names of arguments: ``x`` is ``input``, ``axis`` is ``dim``, ``keepdims`` is ``keepdim``.

What takes sizes or axes one by one, as ``flip(x, 0, 1)``, also takes them by name: ``dims=(0, 1)``;
only the methods ``reshape`` and ``view`` do not.

The functions themselves are written with PyTorch's names. The wrappers made here spell out the
same signature and add the second names as keywords, so that a positional call costs one more
Python call and nothing else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, MutableMapping
from types import FunctionType
from typing import Any, NoReturn

from lucid import _C

_ALIASES = {"input": "x", "dim": "axis", "keepdim": "keepdims"}
_LISTED = ("dims", "shape", "size")
# Methods that every layer calls: a wrapper would take a fifth of their time.
_AS_THEY_ARE = ("reshape", "view")


class _Missing:
    def __repr__(self) -> str:
        return "<required>"


_MISSING = _Missing()


def _missing(op: str, name: str) -> NoReturn:
    raise _C.ArgumentTypeError(f"{op}: argument {name} is missing")


def _source(name: str, parameters: list[inspect.Parameter], aliased: list[str]) -> str:
    """Text of a function that forwards to ``_inner``; defaults are read from ``_defaults``."""
    head: list[str] = []
    call: list[str] = []
    body: list[str] = []
    starred = False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            is_listed = p.name in _LISTED
            many = f"_{p.name}" if is_listed else p.name
            head.extend([f"*{many}", f"{p.name}=_MISSING"] if is_listed else [f"*{many}"])
            call.append(f"*{many}")
            if is_listed:
                body.append(f"    if {p.name} is not _MISSING: {many} = ({p.name},)")
            starred = True
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            head.append("*")
            starred = True
        required = p.default is p.empty
        keyword = p.kind is p.KEYWORD_ONLY
        head.append(f"{p.name}=_MISSING" if required else f"{p.name}=_defaults[{p.name!r}]")
        call.append(f"{p.name}={p.name}" if keyword else p.name)
        if p.name in aliased:
            other = _ALIASES[p.name]
            body.append(f"    if {other} is not _MISSING: {p.name} = {other}")
        if required:
            body.append(f"    if {p.name} is _MISSING: _missing({name!r}, {p.name!r})")
    if not starred:
        head.append("*")
    head.extend(f"{_ALIASES[p]}=_MISSING" for p in aliased)
    lines = [f"def {name}({', '.join(head)}):", *body, f"    return _inner({', '.join(call)})"]
    return "\n".join(lines)


def with_aliases(function: Callable[..., Any], method: bool = False) -> Callable[..., Any]:
    """``function``, which then also takes the second names; itself if it has none.

    Args:
        method: the first parameter is ``self`` of a tensor and needs no second name.
    """
    parameters = list(inspect.signature(function).parameters.values())
    names = {p.name for p in parameters}
    first = parameters[0].name if parameters else ""
    aliased = [
        p.name
        for p in parameters
        if p.name in _ALIASES
        and _ALIASES[p.name] not in names
        and (p.name != "input" or (p.name == first and not method))
    ]
    is_listed = any(p.kind is p.VAR_POSITIONAL and p.name in _LISTED for p in parameters)
    if method and function.__name__ in _AS_THEY_ARE:
        return function
    if not (aliased or is_listed) or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    scope: dict[str, Any] = {
        "_inner": function,
        "_defaults": defaults,
        "_MISSING": _MISSING,
        "_missing": _missing,
    }
    source = _source(function.__name__, parameters, aliased)
    # The wrapper's lines count as the function's file: they are no line of the user's.
    exec(compile(source, function.__code__.co_filename, "exec"), scope)
    return functools.wraps(function)(scope[function.__name__])


def accept_aliases(namespace: MutableMapping[str, Any]) -> None:
    """Replaces every public function of the package in ``namespace`` by its wrapper."""
    for name, value in list(namespace.items()):
        if isinstance(value, FunctionType) and value.__module__.startswith("lucid."):
            if not name.startswith("_") and not hasattr(value, "__wrapped__"):
                namespace[name] = with_aliases(value)
