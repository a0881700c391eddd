"""Hooks of a module: what runs before and after its forward, and in its backward."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.autograd.function import Function

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
Grads = tuple[Tensor | None, ...]

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


class BackwardHook(Function):
    """The identity of tensors; what its callable makes of their gradients goes on."""

    @staticmethod
    def forward(ctx: Any, on_grads: Callable[[Grads], Grads], *tensors: Tensor) -> Any:
        ctx.on_grads = on_grads
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, *ctx.on_grads(grads))


def _differentiable(values: tuple[Any, ...]) -> list[int]:
    """The places of tensors that gradients flow to."""
    return [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]


def _tapped(values: tuple[Any, ...], on_grads: Callable[[Grads], Grads]) -> tuple[Any, ...]:
    """The values, whose gradients (None for a value that has none) pass through ``on_grads``."""
    places = _differentiable(values)

    def among_all(found: Grads) -> Grads:
        grads: list[Tensor | None] = [None] * len(values)
        for place, grad in zip(places, found, strict=True):
            grads[place] = grad
        changed = on_grads(tuple(grads))
        return tuple(changed[place] for place in places)

    result = list(values)
    for place, tied in zip(
        places, BackwardHook.apply(among_all, *(values[i] for i in places)), strict=True
    ):
        result[place] = tied
    return tuple(result)


class _BackwardHooks:
    """The backward hooks of one call of a module, between its results and its arguments."""

    def __init__(self, module: Hooked, args: tuple[Any, ...]) -> None:
        self._module = module
        self._hooks = list(module._backward_hooks.values())
        self._pre_hooks = list(module._backward_pre_hooks.values())
        self._num_args = len(args)
        self._has_inputs = bool(_differentiable(args))
        self._grad_output: Grads = ()

    def tap_args(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of ``forward``: where the hooks run, if a gradient gets there."""
        if not (self._has_inputs and self._hooks):
            return args
        return _tapped(args, self._run_hooks)

    def tap_result(self, result: Any) -> Any:
        """The result of ``forward``, a tensor or a tuple or list: where the pre-hooks run."""
        values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not _differentiable(values):
            return result
        tapped = _tapped(values, self._run_pre_hooks)
        if isinstance(result, Tensor):
            return tapped[0]
        is_named = hasattr(result, "_fields")
        return type(result)(*tapped) if is_named else type(result)(tapped)

    def _run_pre_hooks(self, grad_output: Grads) -> Grads:
        for hook in self._pre_hooks:
            grad_output = _changed("pre-hook", grad_output, hook(self._module, grad_output))
        self._grad_output = grad_output
        if self._hooks and not self._has_inputs:
            self._run_hooks((None,) * self._num_args)
        return grad_output

    def _run_hooks(self, grad_input: Grads) -> Grads:
        for hook in self._hooks:
            result = hook(self._module, grad_input, self._grad_output)
            grad_input = _changed("hook", grad_input, result)
        return grad_input


def _changed(kind: str, grads: Grads, result: Any) -> Grads:
    """The gradients after a hook that returned ``result``."""
    if result is None:
        return grads
    changed = result if isinstance(result, tuple) else (result,)
    if len(changed) != len(grads):
        raise _C.UserError(
            f"full backward {kind}: expected None or {len(grads)} gradients: got {len(changed)}"
        )
    for i, (old, new) in enumerate(zip(grads, changed, strict=True)):
        if new is not None and not isinstance(new, Tensor):
            raise _C.ArgumentTypeError(
                f"full backward {kind}: gradient {i} must be a Tensor or None: got "
                f"{type(new).__name__}"
            )
        if old is None and new is not None:
            raise _C.UserError(
                f"full backward {kind}: there is no gradient {i} to replace; return None for it"
            )
    return changed


class Hooked:
    """The part of a module that keeps hooks and calls ``forward`` between them."""

    _forward_hooks: OrderedDict[int, tuple[Callable[..., Any], bool]]
    _forward_pre_hooks: OrderedDict[int, tuple[Callable[..., Any], bool]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    forward: Callable[..., Any]

    def _make_hooks(self) -> None:
        """No hooks yet, past ``__setattr__``."""
        self.__dict__.update({kind: OrderedDict() for kind in HOOKS})

    def _has_hooks(self) -> bool:
        """True if a call does more than ``forward``."""
        return bool(
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        )

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
        backward = None
        if self._backward_hooks or self._backward_pre_hooks:
            backward = _BackwardHooks(self, args)
            args = backward.tap_args(args)
        output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            result = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            if result is not None:
                output = result
        return output if backward is None else backward.tap_result(output)

    def _add_hook(self, hooks: OrderedDict[int, Any], hook: Any, prepend: bool) -> RemovableHandle:
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
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
        return self._add_hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

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
        return self._add_hook(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` once gradients reach the arguments.

        Args:
            hook: gets a tuple of gradients for the positional arguments of ``forward`` and one for
                its results, with None where there is no gradient; returns None, or gradients that
                take the place of ``grad_input``. If no argument needs a gradient it runs when
                those of the results are there. It must not change gradients in place.
            prepend: run before the hooks that are there.

        In a compiled step a hook is traced: what it computes is compiled, and one that asks for a
        gradient's values is refused. As in PyTorch, results in a dict are not seen.
        Raises, in the backward: UserError or ArgumentTypeError for what a hook returned.
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before gradients go back through the module.

        Args:
            hook: gets a tuple of gradients for the results; returns None, or gradients that take
                their place.
            prepend: run before the hooks that are there.
        """
        return self._add_hook(self._backward_pre_hooks, hook, prepend)
