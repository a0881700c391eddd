"""Reverse-mode gradients of eager code: backward, grad, Function and the grad modes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from lucid import _C
from lucid._C import Tensor

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode:
    """Context manager and decorator that sets the grad mode of the thread."""

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
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_GradMode):
    """Nothing inside is recorded for gradients. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(False)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)


class enable_grad(_GradMode):
    """Gradients are recorded inside, also within ``no_grad``. Context manager and decorator."""

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(_GradMode):
    """As ``no_grad``; ``inference_mode(False)`` leaves gradients on."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_GradMode):
    """Sets the grad mode at once; as a context manager it puts the old one back at the end."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._before = _C.is_grad_enabled()
        _C.set_grad_enabled(self._enabled)

    def __enter__(self) -> None:
        self._previous.append(self._before)
        _C.set_grad_enabled(self._enabled)


def is_grad_enabled() -> bool:
    """True where operations are recorded for gradients."""
    return _C.is_grad_enabled()


def _as_tuple(value: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _seeds(given: Any, count: int, what: str) -> tuple[Tensor | None, ...]:
    if given is None:
        return (None,) * count
    seeds = (given,) if isinstance(given, Tensor) else tuple(given)
    if len(seeds) != count:
        raise _C.UserError(f"{what}: {count} tensors need {count} gradients: got {len(seeds)}")
    return seeds


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of ``tensors`` to the ``grad`` of the leaves they depend on.

    Args:
        tensors: the roots; each without a gradient in ``grad_tensors`` has one element.
        grad_tensors: a gradient for each root (its shape and dtype), or None for 1.
        retain_graph: keep saved values, so that a second backward can follow.
        create_graph: record the backward, for second derivatives.
        inputs: only these leaves are added to.
    Raises: AutogradError if a root has no history; after any error no ``grad`` has changed.
    """
    roots = _as_tuple(tensors)
    only = () if inputs is None else _as_tuple(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    _C._backward(roots, _seeds(grad_tensors, len(roots), "backward"), retain, create_graph, only)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of ``outputs`` with respect to ``inputs``; nothing is accumulated.

    Args: as for :func:`backward`; ``allow_unused`` gives None for an input that the outputs do
        not depend on, where it is an error otherwise.
    Returns: a tuple, one gradient for each input, with its shape and dtype.
    Raises: AutogradError.
    """
    roots = _as_tuple(outputs)
    retain = create_graph if retain_graph is None else retain_graph
    seeds = _seeds(grad_outputs, len(roots), "grad")
    found = _C._grad(roots, _as_tuple(inputs), seeds, retain, create_graph, allow_unused)
    if create_graph or not _C.is_tracing():
        return found
    # A trace records the backward with its history; without create_graph it is a constant.
    return tuple(None if g is None else g.detach() for g in found)


class FunctionContext:
    """What ``forward`` leaves for ``backward``."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._not_differentiable: tuple[Tensor, ...] = ()
        self._own_results: tuple[int | None, ...] = ()

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
        """Only ``False``, the behaviour here, is taken: an absent gradient is None."""
        if value:
            raise _C.UnsupportedError("set_materialize_grads: absent gradients stay None")

    def _note_results(self, args: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Note which saved tensors are differentiable results: their history is the function."""
        others = {id(t) for t in (*args, *self._not_differentiable)}
        places = {id(r): i for i, r in enumerate(results) if id(r) not in others}
        self._own_results = tuple(places.get(id(t)) for t in self._saved)

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

    ``forward(ctx, *args)`` runs without recording; ``backward(ctx, *grads)`` returns a gradient,
    or None, for each argument of ``forward``. Call it as ``MyFunction.apply(*args)``.
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
                    found = cls.backward(context, *grads)
            finally:
                context._saved = saved
            return found if isinstance(found, tuple) else (found,)

        tied = _C._tie_function(cls.__name__, args, outputs, run)
        marked = [any(o is m for m in context._not_differentiable) for o in outputs]
        tied = tuple(
            o.detach() if skip else t for o, t, skip in zip(outputs, tied, marked, strict=True)
        )
        return tied if isinstance(results, tuple) else tied[0]


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
