"""Hooks of a module: what runs before and after its forward."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lucid import _C

_next_id = itertools.count()


class RemovableHandle:
    """Removes one hook from the module that it was registered on; also a context manager.

    Args:
        hooks: the module's hooks of one kind, by id; the handle does not keep them alive.
    """

    def __init__(self, hooks: OrderedDict[int, Any]) -> None:
        self._hooks = weakref.ref(hooks)
        self.id = next(_next_id)

    def remove(self) -> None:
        """Take the hook out; removing it twice does nothing."""
        hooks = self._hooks()
        if hooks is not None and hooks.pop(self.id, None) is not None:
            _C.bump_state()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Hooked:
    """The part of a module that keeps hooks and calls ``forward`` between them."""

    _forward_hooks: OrderedDict[int, tuple[Callable[..., Any], bool]]
    _forward_pre_hooks: OrderedDict[int, tuple[Callable[..., Any], bool]]
    forward: Callable[..., Any]

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            if with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise _C.UserError(
                            "forward pre-hook: with_kwargs=True expects None or "
                            f"(args, kwargs): got {changed!r}"
                        )
                    args, kwargs = changed
                continue
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            result = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            if result is not None:
                output = result
        return output

    def _add_hook(
        self,
        hooks: OrderedDict[int, tuple[Callable[..., Any], bool]],
        hook: Callable[..., Any],
        prepend: bool,
        with_kwargs: bool,
    ) -> RemovableHandle:
        handle = RemovableHandle(hooks)
        hooks[handle.id] = (hook, with_kwargs)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        _C.bump_state()
        return handle

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; a result replaces the arguments.

        Args:
            hook: returns None, a tuple of arguments or a single one. ``with_kwargs``: takes
                (module, args, kwargs) and returns None or (args, kwargs).
            prepend: run before the hooks that are there.
        """
        return self._add_hook(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; a result replaces the output.

        Args:
            hook: returns None or the new output. ``with_kwargs``: takes (module, args,
                kwargs, output).
            prepend: run before the hooks that are there.
            always_call: only False is supported.

        Raises: UnsupportedError for ``always_call``.
        """
        if always_call:
            raise _C.UnsupportedError("register_forward_hook: always_call must be False")
        return self._add_hook(self._forward_hooks, hook, prepend, with_kwargs)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Not supported yet; use ``Tensor.register_hook`` on the module's output.

        Raises: UnsupportedError, always.
        """
        raise _C.UnsupportedError(
            "register_full_backward_hook: not supported; use Tensor.register_hook on the output"
        )
