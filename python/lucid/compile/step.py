"""make_step: a training step as one executable, behind ordinary eager code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.entries import Compiled, Entry, checked_fallback
from lucid.compile.loss import check_output, input_names, split_result
from lucid.compile.tracing import Subject
from lucid.compile.tree import LEAF, Structure, flatten, unflatten
from lucid.nn.modules import module as module_file
from lucid.nn.modules.container import Sequential
from lucid.nn.modules.module import Module

__all__ = ["Step", "groups_of", "make_autoseg_step", "make_segmented_step", "make_step"]

_MOST_BYTES = 2**62  # a memory limit beyond that limits nothing


class Step(Compiled):
    """A compiled training step; made by :func:`make_step`.

    Calling it as ``step(x, *extra_inputs)`` returns the loss, whose ``backward()`` gives every
    gradient; with ``has_aux`` it is ``(loss, aux)``, the tensors of ``aux`` without history. After
    an error the model, its buffers, the generators and this step are as before the call.

    Attributes: ``segments``, ``eager_only`` (True once a signature was refused and runs eagerly),
    ``cache`` (the compiled signatures, newest first).
    """

    def __init__(
        self,
        model: Module,
        loss_fn: Callable[..., Any],
        dynamic: bool,
        segments: int | str,
        fallback: str,
        has_aux: bool,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(fallback)
        self._memory_limit = memory_limit
        self.segments = segments
        self.dynamic = dynamic
        self._has_aux = has_aux
        self._model = model
        self._loss_fn = loss_fn

    def _names(self, args: tuple[Any, ...]) -> list[str]:
        return input_names(len(args))

    def _checked(
        self, names: list[str], args: tuple[Any, ...], leaves: list[Tensor]
    ) -> list[Structure]:
        if not args:
            raise _C.ArgumentTypeError("step: needs the model's input: step(x, *extra_inputs)")
        structures = [flatten(a, name, leaves) for a, name in zip(args, names, strict=True)]
        if not leaves:
            raise _C.ArgumentTypeError(
                f"step: x must be a Tensor: got {type(args[0]).__name__}; "
                "convert it with lucid.tensor or lucid.from_numpy"
            )
        self._check_devices([*leaves, *self._model.parameters()])
        return structures

    def _make(self, names: list[str], structures: list[Structure], leaves: list[Tensor]) -> Entry:
        entry = super()._make(names, structures, leaves)
        has_parameters = any(True for _ in self._model.parameters())
        if entry.traced.num_targets == 0 and not has_parameters and _C.is_grad_enabled():
            raise _C.UserError(
                f"make_step: nothing to differentiate: the model {type(self._model).__name__} has "
                "no parameters and no input requires a gradient; call the model itself, or set "
                "requires_grad on an input"
            )
        return entry

    def _subject(self, structures: list[Structure], leaves: list[Tensor]) -> Subject:
        return self._subject_of(self._segment_count())

    def _subject_of(self, segments: int) -> Subject:
        """The trace split into that many groups of the model's children."""

        def record(
            recorder: _C.Recorder, arguments: list[Any]
        ) -> tuple[list[Tensor], Structure | None]:
            output = _forward_in_segments(recorder, self._model, arguments[0], segments)
            check_output(output, self._what)
            loss, aux = split_result(
                self._loss_fn(output, *arguments[1:]), self._has_aux, self._what
            )
            results = [loss]
            if not self._has_aux:
                return results, None
            return results, Structure("tuple", tuple, (LEAF, flatten(aux, "aux", results)))

        def compile_trace(
            made: _C.Trace, leaves: list[Tensor], found: list[Tensor]
        ) -> _C.StepEntry:
            return _C.compile_step(made, leaves, found, self._bounded_limit())

        return Subject(
            self._what,
            self._roots(),
            record,
            compile_trace,
            ends_in_loss=True,
            is_differentiable=True,
        )

    def _roots(self) -> tuple[Any, ...]:
        return (self._model, self._loss_fn)

    def _bounded_limit(self) -> int | None:
        return None if self._memory_limit is None else min(self._memory_limit, _MOST_BYTES)

    def _unbounded(self) -> str:
        return "its memory_limit is not kept then\n" if self._memory_limit is not None else ""

    def _details(self, entry: Entry) -> str:
        return describe_recomputation(entry.traced.entry, self._memory_limit)

    def _segment_count(self) -> int:
        """The number of segments of this signature: no more than the model has children."""
        assert isinstance(self.segments, int)
        if self.segments == 1:
            return 1
        assert isinstance(self._model, Sequential)
        most = max(1, len(self._model))
        if self.segments > most:
            note = f"segments={self.segments} is more than the {most} children: {most} are made"
            if note not in self._history:
                self._history.append(note)
        return min(self.segments, most)

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        output = self._model(args[0])
        check_output(output, self._what)
        loss, aux = split_result(self._loss_fn(output, *args[1:]), self._has_aux, self._what)
        if not self._has_aux:
            return loss
        tensors: list[Tensor] = []
        structure = flatten(aux, "aux", tensors)
        detached = iter([t.detach() for t in tensors])
        return loss, unflatten(structure, lambda: next(detached))


def groups_of(model: Sequential, segments: int) -> list[list[Module]]:
    """The children in contiguous groups whose sizes differ by at most one, larger ones first."""
    children = list(model)
    small, larger = divmod(len(children), segments)
    groups, start = [], 0
    for i in range(segments):
        end = start + small + (1 if i < larger else 0)
        groups.append(children[start:end])
        start = end
    return groups


def _forward_in_segments(recorder: _C.Recorder, model: Module, x: Any, segments: int) -> Any:
    if segments == 1:
        return model(x)
    assert isinstance(model, Sequential)
    for observe in tuple(module_file._call_observers):
        observe(model)
    groups = groups_of(model, segments)
    for i, group in enumerate(groups):
        for child in group:
            x = child(x)
        if i + 1 == len(groups):
            return x
        if not isinstance(x, Tensor):
            raise _C.ArgumentTypeError(
                f"make_step: a segment must end with one Tensor: child {type(group[-1]).__name__} "
                f"returned {type(x).__name__}; choose another number of segments"
            )
        recorder.mark()
    return x


def describe_recomputation(entry: _C.StepEntry, memory_limit: int | None) -> str:
    """What a memory limit did to a signature, as the end of its line."""
    done = entry.recomputation()
    if done is None:
        return ""
    text = f"; memory limit {memory_limit} bytes: arena peak {done['peak_before']} without it"
    if not done["repeated_operations"]:
        return f"{text}, nothing is repeated"
    flops = done["repeated_flops"]
    return (
        f"{text}, {done['peak']} with {done['repeated_operations']} operations repeated: about "
        f"{flops:.3g} FLOP more, {100 * flops / max(done['flops'], 1):.1f} % of the step's"
    )


def _check_limit(memory_limit: int | None) -> None:
    """Refuse what is no number of bytes."""
    if memory_limit is None:
        return
    is_count = isinstance(memory_limit, int) and not isinstance(memory_limit, bool)
    if not is_count or memory_limit < 1:
        raise _C.UserError(
            f"make_step: memory_limit must be a positive number of bytes: got {memory_limit!r}"
        )


def _check_segments(model: Module, segments: int | str) -> None:
    """Refuse a bad number of segments, and a model that cannot be split."""
    is_count = isinstance(segments, int) and not isinstance(segments, bool) and segments >= 1
    if not is_count and segments != "auto":
        raise _C.UserError(
            f"make_step: segments must be a positive integer or 'auto': got {segments!r}"
        )
    if segments == 1:
        return
    is_plain = isinstance(model, Sequential) and type(model).forward is Sequential.forward
    if not is_plain:
        raise _C.ArgumentTypeError(
            f"make_step: segments={segments!r} needs an nn.Sequential with its own forward: got "
            f"{type(model).__name__}; use segments=1"
        )
    if model._has_hooks():
        raise _C.ArgumentTypeError(
            f"make_step: segments={segments!r} cannot split an nn.Sequential that has hooks of its "
            "own; register them on its children"
        )


def make_step(
    model: Module,
    loss_fn: Callable[..., Any],
    dynamic: bool = False,
    segments: int | str = 1,
    *,
    fallback: str | None = None,
    has_aux: bool = False,
    memory_limit: int | None = None,
    candidates: Sequence[int] | None = None,
) -> Step:
    """Compile forward, loss and backward of a training step into one executable.

    Args:
        model: the module to train; traced at the first call of each signature.
        loss_fn: ``loss_fn(model(x), *extra_inputs)`` must return one floating element.
        dynamic: accepted so that calls look alike; every batch size gets its own executable.
        segments: number of executables that an ``nn.Sequential`` is split into. Every group of
            children but the last then computes its inside again in the backward, so that only
            what crosses the cuts is kept: less memory for more time, and the same gradients bit
            for bit. ``"auto"`` tries some counts on the first batch and keeps the fastest.
        fallback: what happens to a step that cannot be compiled. ``"warn"``: it runs eagerly
            after one warning that names the operation, line and reason; ``"error"``: it raises;
            ``"silent"``: it runs eagerly. Default: the environment variable LUCID_FALLBACK,
            else ``"warn"``.
        has_aux: ``loss_fn`` returns ``(loss, aux)``, and so does the step; ``aux`` is a tree of
            tensors, returned without history.
        memory_limit: bytes that ``memory()["arena_peak"]`` may reach. The core chooses on the
            whole graph which values to keep and which to compute again in the backward, the
            cheapest first; the gradients stay the same bit for bit. On metal, where that is an
            estimate, the step becomes several executables then. With segments it is chosen
            within each, for what the values kept between them leave; ``segments="auto"`` takes
            the fastest count that keeps to it. If it cannot be met the first call raises UserError
            with the smallest peak found, whatever ``fallback`` says.
        candidates: the counts that ``segments="auto"`` tries.

    Returns: ``step(x, *extra_inputs)``, which returns the loss with a ``grad_fn``:
        ``loss.backward()`` and any optimizer work as in eager code, and on cpu loss and
        gradients equal the eager ones bit for bit.
    Raises: ArgumentTypeError if model or loss_fn is of the wrong type or the model cannot be
        split; UserError for a bad ``fallback``, ``segments`` or limit.
    Source: recomputation by segments: Chen et al. 2016, arXiv:1604.06174; of single values:
        Kirisame et al. 2021, arXiv:2006.09616.
    """
    if not isinstance(model, Module):
        raise _C.ArgumentTypeError(
            f"make_step: model must be an nn.Module: got {type(model).__name__}"
        )
    if not callable(loss_fn):
        raise _C.ArgumentTypeError(
            f"make_step: loss_fn must be callable: got {type(loss_fn).__name__}"
        )
    _check_segments(model, segments)
    chosen = checked_fallback("make_step", fallback)
    _check_limit(memory_limit)
    if segments == "auto":
        from lucid.compile.auto import AutoStep

        return AutoStep(model, loss_fn, bool(dynamic), chosen, has_aux, memory_limit, candidates)
    if candidates is not None:
        raise _C.UnsupportedError("make_step: candidates go with segments='auto'; leave them out")
    return Step(model, loss_fn, bool(dynamic), segments, chosen, has_aux, memory_limit)


def make_segmented_step(
    model: Module, loss_fn: Callable[..., Any], segments: int, **options: Any
) -> Step:
    """:func:`make_step` with ``segments`` as a required number."""
    return make_step(model, loss_fn, segments=segments, **options)


def make_autoseg_step(model: Module, loss_fn: Callable[..., Any], **options: Any) -> Step:
    """:func:`make_step` with ``segments="auto"``."""
    return make_step(model, loss_fn, segments="auto", **options)
