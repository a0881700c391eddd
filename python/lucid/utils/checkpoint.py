"""checkpoint: values saved for a backward are dropped, and computed again when it comes to them.

In a compiled step there is nothing to drop by hand: what is kept is planned for the whole step
(``memory_limit`` of ``make_step``), so that the function simply runs. Either way the gradients are
those of the plain call, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.functions.random import get_rng_state, set_rng_state
from lucid.nn.modules.container import Sequential

__all__ = ["checkpoint", "checkpoint_sequential"]


def _snapshot(value: Any) -> Any:
    """The same value, also if it is written to before the backward."""
    if isinstance(value, Tensor):
        return _C._snapshot(value)
    if type(value) in (list, tuple):
        return type(value)(_snapshot(v) for v in value)
    if type(value) is dict:
        return {k: _snapshot(v) for k, v in value.items()}
    return value


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, which runs once more in the backward instead of being saved.

    Args:
        function: depends on its arguments and on tensors that stay as they are until the backward.
            Tensors that it writes, as running statistics, are written once.
        use_reentrant: taken for PyTorch's sake; there is one way here, that of ``False``.
        preserve_rng_state: the second run draws the same random numbers.

    Returns: what ``function`` returns.
    Raises: AutogradError in the backward if the second run goes another way than the first.
    Source: Chen and others 2016, arXiv:1604.06174, section 4.
    """
    if _C.is_tracing() or not _C.is_grad_enabled():
        return function(*args, **kwargs)
    kept, named = _snapshot(args), _snapshot(kwargs)
    state = get_rng_state() if preserve_rng_state else None

    def again() -> None:
        if state is None:
            function(*kept, **named)
            return
        now = get_rng_state()
        set_rng_state(state)
        try:
            function(*kept, **named)
        finally:
            set_rng_state(now)

    return _C._checkpointed(lambda: function(*args, **kwargs), again)


def checkpoint_sequential(
    functions: Sequential | Sequence[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """The functions one after the other, all groups of them but the last under ``checkpoint``.

    Args:
        functions: a Sequential, or callables of one argument.
        segments: the number of groups, of equal size but for the last, which takes the rest.

    Raises: UserError unless there are 1 to ``len(functions)`` segments.
    """
    children: list[Any] = list(functions)
    if not 1 <= segments <= len(children):
        raise _C.UserError(
            f"checkpoint_sequential: {segments} segments of {len(children)} functions; "
            f"use 1 to {len(children)}"
        )

    def group(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for child in children[start:end]:
                value = child(value)
            return value

        return run

    size = len(children) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(group(start, start + size), input, preserve_rng_state=preserve_rng_state)
    return group(last, len(children))(input)
