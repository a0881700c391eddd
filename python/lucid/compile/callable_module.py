"""Makes ``lucid.compile`` both the module and the function of that name."""

from __future__ import annotations

import sys
import types
from typing import Any

from lucid.compile.module import compile

__all__ = ["make_callable"]


class _CallableModule(types.ModuleType):
    """A module that is called as its function ``compile``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return compile(*args, **kwargs)


def make_callable(name: str) -> None:
    """Let the imported module of that name be called; see :func:`lucid.compile.compile`."""
    sys.modules[name].__class__ = _CallableModule
