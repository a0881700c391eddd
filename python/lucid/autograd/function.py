"""Function: an operation with a gradient rule of its own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lucid import _C
from lucid._C import Tensor
from lucid.autograd.modes import no_grad, set_grad_enabled

__all__ = ["Function", "FunctionContext", "once_differentiable"]

F = TypeVar("F", bound=Callable[..., Any])
_Type = tuple[Any, _C.dtype, _C.device]  # shape, dtype and device


class FunctionContext:
    """What ``forward`` leaves for ``backward``."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._not_differentiable: tuple[Tensor, ...] = ()
        self._own_results: tuple[int | None, ...] = ()
        self._materializes = True
        self._types: tuple[_Type, ...] = ()  # of the results, for zeros in place of gradients

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors until the backward has run."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to ``save_for_backward``."""
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare results of ``forward`` that have no gradient."""
        self._not_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether ``backward`` gets zeros for a result without a gradient (the default), or None.

        A rule that skips what is None saves that work.
        """
        self._materializes = bool(value)

    def _note_results(self, args: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Note which saved tensors are differentiable results: their history is the function."""
        others = {id(t) for t in (*args, *self._not_differentiable)}
        places = {id(r): i for i, r in enumerate(results) if id(r) not in others}
        self._own_results = tuple(places.get(id(t)) for t in self._saved)

    def _materialized(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The gradients of the results, with zeros for absent ones if the rule takes them."""
        if not self._materializes:
            return grads
        return tuple(
            _zeros(*kind) if grad is None else grad
            for grad, kind in zip(grads, self._types, strict=True)
        )

    def _tie_saved(self, tie_result: Callable[[int, Tensor], Tensor]) -> None:
        """Give the saved results their history, for a backward that is differentiated itself."""
        pairs = zip(self._saved, self._own_results, strict=True)
        self._saved = tuple(
            t
            if t is None or place is None or not t.dtype.is_floating_point
            else tie_result(place, t)
            for t, place in pairs
        )


class Function:
    """An operation with its own gradient: subclass it with static ``forward`` and ``backward``.

    ``forward(ctx, *args)`` runs without recording; ``backward(ctx, *grads)`` gets a gradient for
    each result, zeros where there is none (see ``ctx.set_materialize_grads``), and returns one, or
    None, for each argument of ``forward``. Call it as ``MyFunction.apply(*args)``.
    A compiled step traces through both. There they see shapes only, so one that asks for values,
    as NumPy code does, is refused with TraceError: make it a ``lucid.compile.custom_op``.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the results."""
        raise NotImplementedError("Function: forward is not defined")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of the arguments from gradients of the results."""
        raise NotImplementedError("Function: backward is not defined")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward`` and tie its results into the graph."""
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        context = FunctionContext(needs)
        with no_grad(), _pointing_to_custom_op(f"{cls.__name__}.forward"):
            results = cls.forward(context, *args)
        if not (any(needs) and _C.is_grad_enabled()):
            return results
        outputs = results if isinstance(results, tuple) else (results,)
        context._note_results(args, outputs)

        def run(
            grads: tuple[Tensor | None, ...],
            create_graph: bool,
            tie_result: Callable[[int, Tensor], Tensor] | None,
        ) -> tuple[Any, ...]:
            saved = context._saved
            if tie_result is not None:
                context._tie_saved(tie_result)
            try:
                with (
                    set_grad_enabled(create_graph),
                    _pointing_to_custom_op(f"{cls.__name__}.backward"),
                ):
                    found = cls.backward(context, *context._materialized(grads))
            finally:
                context._saved = saved
            return found if isinstance(found, tuple) else (found,)

        tied = _C._tie_function(cls.__name__, args, outputs, run)
        context._types = tuple((o.shape, o.dtype, o.device) for o in outputs)
        marked = [any(o is m for m in context._not_differentiable) for o in outputs]
        tied = tuple(
            o.detach() if skip else t for o, t, skip in zip(outputs, tied, marked, strict=True)
        )
        return tied if isinstance(results, tuple) else tied[0]


def once_differentiable(backward: F) -> F:
    """Decorator of a ``backward`` whose gradients have no gradients of their own.

    It runs without recording, so it may work on values in place, and what would go through it a
    second time raises AutogradError.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = backward(ctx, *grads)
        sources = tuple(g for g in grads if isinstance(g, Tensor) and g.requires_grad)
        if not (sources and _C.is_grad_enabled()):
            return found
        outputs = found if isinstance(found, tuple) else (found,)
        tensors = tuple(o for o in outputs if isinstance(o, Tensor))
        tied = iter(_C._tie_function(backward.__qualname__, sources, tensors, _refuse_twice))
        results = tuple(next(tied) if isinstance(o, Tensor) else o for o in outputs)
        return results if isinstance(found, tuple) else results[0]

    return wrapped  # type: ignore[return-value]


def _zeros(shape: Any, dtype: _C.dtype, device: _C.device) -> Tensor:
    from lucid import functions as fn

    return fn.zeros(shape, dtype=dtype, device=device)


def _refuse_twice(*args: Any) -> tuple[Any, ...]:
    raise _C.AutogradError(
        "backward: a gradient goes twice through a function whose backward is once_differentiable; "
        "leave the decorator out, or ask for no second derivatives"
    )


@contextlib.contextmanager
def _pointing_to_custom_op(what: str) -> Iterator[None]:
    """Names the way out where a function asks a traced tensor for its value."""
    try:
        yield
    except _C.TraceError as error:
        text, separator, place = str(error).partition("\n  at ")
        if any(asked in text for asked in _ASKING) and "custom_op" not in text:
            error.args = (
                f"{text}; {what} can work on values as a lucid.compile.custom_op{separator}{place}",
            )
        raise


# What the refusals of values in a trace say.
_ASKING = ("was asked for inside a compiled step", "a NumPy array inside a compiled step")
