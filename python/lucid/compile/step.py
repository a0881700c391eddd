"""make_step: a training step as one executable, behind ordinary eager code."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.signature import describe_tensor
from lucid.compile.tracing import Traced, check_output, split_result, trace_step
from lucid.compile.tree import Structure, flatten, leaf_names, unflatten
from lucid.nn.modules.container import Sequential
from lucid.nn.modules.module import Module

__all__ = [
    "FallbackWarning",
    "RecompileWarning",
    "Step",
    "make_autoseg_step",
    "make_segmented_step",
    "make_step",
]

_FALLBACKS = ("warn", "error", "silent")
_MAX_ENTRIES = 64
_MANY_SIGNATURES = 8
_MAX_LINES = 1000
_LOOKS = 1000
_MOST_BYTES = 2**62  # a memory limit beyond that limits nothing


class FallbackWarning(UserWarning):
    """A step could not be compiled and runs eagerly."""


class RecompileWarning(UserWarning):
    """A step was compiled for many signatures."""


class _Entry:
    """One signature of a step: compiled, or refused with a reason and run eagerly."""

    def __init__(self, structures: list[Structure], leaves: list[Tensor], traced: Traced) -> None:
        self.structures = structures
        self.is_flat = all(s.kind == "leaf" for s in structures)
        self.traced = traced
        self.fields = _fields(structures, leaves)

    def try_run(self, args: tuple[Any, ...]) -> Any:
        """The loss, with auxiliary results ``(loss, aux)``; None for another signature."""
        if not self.traced.signature.holds():
            return None
        if not self.is_flat:
            leaves: list[Tensor] = []
            if _flatten_all(args, leaves) != self.structures:
                return None
            args = tuple(leaves)
        result = self.traced.entry.try_run(args)
        if result is None or self.traced.aux is None:
            return result
        results = iter(result if isinstance(result, tuple) else (result,))
        return next(results), unflatten(self.traced.aux, lambda: next(results))

    def rebind(self, structures: list[Structure], leaves: list[Tensor]) -> str | None:
        """Fetch the captured tensors anew; the name of what differs if the entry does not fit."""
        found = None
        for _ in range(_LOOKS):
            version = _C.module_version()
            found = self._rebind(structures, leaves)
            if found is not None or _C.module_version() == version:
                break  # else another thread has changed a module meanwhile
        return found

    def _rebind(self, structures: list[Structure], leaves: list[Tensor]) -> str | None:
        if structures != self.structures or not self.traced.entry.accepts(leaves):
            fields = _fields(structures, leaves)
            differing = [k for k, v in fields.items() if self.fields.get(k, Step) != v]
            return next(iter(differing), "arguments")
        found = self.traced.signature.difference()
        if found is not None:
            return found
        captures = self.traced.signature.captures()
        if captures is None:
            return "way in which tensors are tied"
        if not self.traced.entry.rebind(captures):
            return self.traced.signature.tensor_difference(captures)
        self.traced.signature.refresh()
        return None


class _Refusal:
    """A signature that cannot be compiled."""

    def __init__(self, structures: list[Structure], leaves: list[Tensor], reason: str) -> None:
        self.key = _refusal_key(structures, leaves)
        self.reason = reason


def _refusal_key(structures: list[Structure], leaves: list[Tensor]) -> Any:
    return (_fields(structures, leaves), _C.module_version())


def _fields(structures: list[Structure], leaves: list[Tensor]) -> dict[str, Any]:
    """What a signature fixes of the arguments and of the process, by how messages call it."""
    fields: dict[str, Any] = {
        "grad mode": _C.is_grad_enabled(),
        "default dtype": _C.get_default_dtype(),
        "number of arguments": len(structures),
    }
    names = []
    for what, structure in zip(_argument_names(len(structures)), structures, strict=True):
        kind = "value" if structure.kind == "static" else "structure"
        fields[f"{kind} of {what}"] = structure
        names += leaf_names(structure, what)
    for i, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        for field, value in describe_tensor(leaf).items():
            fields[f"{field} of {name}"] = value
        same = [other for other in range(i) if leaves[other]._cell_id == leaf._cell_id]
        fields[f"way in which {name} shares another argument's memory"] = same[:1]
    return fields


def _argument_names(count: int) -> list[str]:
    return ["x", *(f"extra input {i}" for i in range(1, count))]


def _flatten_all(args: tuple[Any, ...], leaves: list[Tensor]) -> list[Structure]:
    names = _argument_names(len(args))
    return [flatten(value, name, leaves) for value, name in zip(args, names, strict=True)]


class Step:
    """A compiled training step; made by :func:`make_step`.

    Calling it as ``step(x, *extra_inputs)`` returns the loss. Attributes: ``segments``,
    ``eager_only`` (True once a signature was refused and runs eagerly), ``cache`` (the compiled
    signatures, newest first).
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
        self.segments = segments
        self._memory_limit = memory_limit
        self.dynamic = dynamic
        self._has_aux = has_aux
        self._model = model
        self._loss_fn = loss_fn
        self._fallback = fallback
        self._entries: list[_Entry] = []
        self._refusals: list[_Refusal] = []
        self._history: deque[str] = deque(maxlen=_MAX_LINES)
        self._lock = threading.RLock()
        self._hits = 0
        self._misses = 0

    def __call__(self, *args: Any) -> Any:
        """Run one step: returns the loss, whose ``backward()`` gives every gradient.

        With ``has_aux`` the result is ``(loss, aux)``, the tensors of ``aux`` without history.

        Raises: what the model and the loss function raise; TraceError or UnsupportedError for a
            step that cannot be compiled, with ``fallback="error"``. After an error the model,
            its buffers, the generators and this step are as before the call.
        """
        entries = self._entries
        if entries:
            loss = entries[0].try_run(args)
            if loss is not None:
                self._hits += 1
                return loss
        return self._slow(args)

    def _slow(self, args: tuple[Any, ...]) -> Any:
        """A call that the newest signature does not fit."""
        if _C.is_tracing():
            raise _C.TraceError(
                "make_step: a compiled step was called inside the trace of another; call its "
                "model instead"
            )
        leaves: list[Tensor] = []
        structures = self._checked(args, leaves)
        with self._lock:
            differences = []
            for entry in self._entries:
                found = entry.rebind(structures, leaves)
                if found is not None:
                    differences.append(found)
                    continue
                loss = _run(entry, args, structures, leaves)
                if loss is not None:
                    self._hits += 1
                    self._to_front(entry)
                    return loss
            key = _refusal_key(structures, leaves) if self._refusals else None
            refused = any(r.key == key for r in self._refusals)
            if not refused:
                made = self._compile(structures, leaves)
                if made is not None:
                    loss = _run(made, args, structures, leaves)
                    if loss is None:
                        raise _C.InternalError("make_step: a fresh executable refused its own call")
                    self._keep(made, leaves, differences)
                    return loss
        return self._run_eagerly(args)

    def _checked(self, args: tuple[Any, ...], leaves: list[Tensor]) -> list[Structure]:
        if not args:
            raise _C.ArgumentTypeError("step: needs the model's input: step(x, *extra_inputs)")
        structures = _flatten_all(args, leaves)
        if not leaves:
            raise _C.ArgumentTypeError(
                f"step: x must be a Tensor: got {type(args[0]).__name__}; "
                "convert it with lucid.tensor or lucid.from_numpy"
            )
        devices = {t.device.type for t in leaves}
        devices |= {p.device.type for p in self._model.parameters()}
        if len(devices) > 1:
            raise _C.DeviceError(
                f"step: tensors on several devices: {', '.join(sorted(devices))}; "
                "move model and inputs to one with .to()"
            )
        return structures

    def _compile(self, structures: list[Structure], leaves: list[Tensor]) -> _Entry | None:
        """Trace and compile; None where the signature falls back to eager."""
        try:
            traced = self._trace(structures, leaves)
        except (_C.TraceError, _C.UnsupportedError) as error:
            if self._fallback == "error":
                raise
            self._refuse(structures, leaves, error)
            return None
        has_parameters = any(True for _ in self._model.parameters())
        if traced.num_targets == 0 and not has_parameters and _C.is_grad_enabled():
            raise _C.UserError(
                f"make_step: nothing to differentiate: the model {type(self._model).__name__} has "
                "no parameters and no input requires a gradient; call the model itself, or set "
                "requires_grad on an input"
            )
        return _Entry(structures, leaves, traced)

    def _trace(self, structures: list[Structure], leaves: list[Tensor]) -> Traced:
        count = self._segment_count(structures, leaves)
        return trace_step(
            self._model,
            self._loss_fn,
            structures,
            leaves,
            count,
            self._has_aux,
            None if self._memory_limit is None else min(self._memory_limit, _MOST_BYTES),
        )

    def _segment_count(self, structures: list[Structure], leaves: list[Tensor]) -> int:
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

    def compile(self, *args: Any) -> None:
        """Compile for these arguments without running: ``memory()`` is known then."""
        leaves: list[Tensor] = []
        structures = self._checked(args, leaves)
        with self._lock:
            made = self._compile(structures, leaves)
            if made is not None:
                self._keep(made, leaves, [])

    def _keep(self, entry: _Entry, leaves: list[Tensor], differences: list[str]) -> None:
        """Keep an entry whose first run has succeeded."""
        self._misses += 1
        because = f", because of another {differences[0]}" if differences else ""
        self._history.append(
            f"signature {self._misses}: {_describe(leaves)}, compiled "
            f"{entry.traced.entry.num_nodes} operations{because}"
            f"{_describe_recomputation(entry.traced.entry, self._memory_limit)}"
        )
        self._to_front(entry)
        if self._misses == _MANY_SIGNATURES:
            warnings.warn(
                f"make_step: {self._misses} signatures have been compiled, the last one because of "
                f"another {differences[0] if differences else 'argument'}; for a number that "
                "changes at each step pass a 0-d tensor, for lengths that vary pad to a few sizes; "
                "step.explain() lists them all",
                RecompileWarning,
                stacklevel=5,
            )

    def _to_front(self, entry: _Entry) -> None:
        rest = [e for e in self._entries if e is not entry]
        self._entries = [entry, *rest][:_MAX_ENTRIES]

    def _refuse(self, structures: list[Structure], leaves: list[Tensor], error: Exception) -> None:
        reason = str(error)
        self._refusals = [_Refusal(structures, leaves, reason), *self._refusals][:_MAX_ENTRIES]
        self._history.append(f"{_describe(leaves)}: runs eagerly: {reason}")
        if self._fallback == "warn":
            warnings.warn(
                f"make_step: this step runs eagerly: {reason}\n{self._unbounded()}"
                'pass fallback="error" to raise instead, or "silent" to be told nothing',
                FallbackWarning,
                stacklevel=5,
            )

    def _unbounded(self) -> str:
        """What a fallback means for a memory limit, as a line of its own."""
        return "its memory_limit is not kept then\n" if self._memory_limit is not None else ""

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        output = self._model(args[0])
        check_output(output)
        loss, aux = split_result(self._loss_fn(output, *args[1:]), self._has_aux)
        if not self._has_aux:
            return loss
        tensors: list[Tensor] = []
        structure = flatten(aux, "aux", tensors)
        detached = iter([t.detach() for t in tensors])
        return loss, unflatten(structure, lambda: next(detached))

    # ------------------------------------------------------------ what can be asked

    @property
    def eager_only(self) -> bool:
        """True if every signature met so far was refused and runs eagerly."""
        return bool(self._refusals) and not self._entries

    @property
    def cache(self) -> tuple[Any, ...]:
        """The compiled signatures, most recently used first."""
        return tuple(entry.traced.entry for entry in self._entries)

    def cache_info(self) -> dict[str, int]:
        """Counts of this step: ``entries``, ``hits``, ``misses``, ``max_entries``."""
        return {
            "entries": len(self._entries),
            "hits": self._hits,
            "misses": self._misses,
            "max_entries": _MAX_ENTRIES,
        }

    def clear_cache(self) -> None:
        """Forget all signatures; losses that are still alive keep what they need."""
        with self._lock:
            self._entries = []
            self._refusals = []

    def explain(self) -> str:
        """One line a signature: what was compiled and why, or why it runs eagerly. Oldest first."""
        if not self._history:
            return "nothing has been compiled yet: call the step once"
        return "\n".join(self._history)

    def timing(self) -> dict[str, float]:
        """Seconds of compiling and of runs of the current signature, and its number of runs."""
        return self._current("timing").timing()

    def memory(self) -> dict[str, Any]:
        """Exact bytes of the current signature, known before the first run.

        Returns: ``parameters``, ``inputs``, ``outputs``, ``arena_peak`` (arenas, and values kept
            between segments, at the worst moment), and ``segments``: the same for each segment.
        """
        return self._current("memory").memory()

    def graph_dump(self) -> str:
        """The compiled graph of the current signature as text, one line an operation."""
        return self._current("graph_dump").graph_text()

    def _current(self, what: str) -> _C.StepEntry:
        if self._entries:
            return self._entries[0].traced.entry
        raise _C.UserError(f"{what}: nothing has been compiled yet: call the step once")


def _run(
    entry: _Entry, args: tuple[Any, ...], structures: list[Structure], leaves: list[Tensor]
) -> Any:
    """Run an entry that fits: again if another thread has changed a module just now."""
    for _ in range(_LOOKS):
        result = entry.try_run(args)
        if result is not None or entry.rebind(structures, leaves) is not None:
            return result
    return None


def _describe(leaves: list[Tensor]) -> str:
    return "(" + ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in leaves) + ")"


def _describe_recomputation(entry: _C.StepEntry, memory_limit: int | None) -> str:
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


def _check_limit(memory_limit: int | None, segments: int | str) -> None:
    """Refuse what is no number of bytes, and a limit that does not go with the segments."""
    if memory_limit is None:
        return
    is_count = isinstance(memory_limit, int) and not isinstance(memory_limit, bool)
    if not is_count or memory_limit < 1:
        raise _C.UserError(
            f"make_step: memory_limit must be a positive number of bytes: got {memory_limit!r}"
        )
    if segments not in (1, "auto"):
        raise _C.UnsupportedError(
            f"make_step: memory_limit does not go with a number of segments: got "
            f"segments={segments}; leave segments out, and what to recompute is chosen on the "
            "whole graph, or take segments='auto'"
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
    if model._forward_hooks or model._forward_pre_hooks:
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
            cheapest first; the gradients stay the same bit for bit. With ``segments="auto"`` only
            counts that keep to it are taken. If it cannot be met the first call raises UserError
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
    chosen = os.environ.get("LUCID_FALLBACK", "warn") if fallback is None else fallback
    if chosen not in _FALLBACKS:
        raise _C.UserError(
            f"make_step: fallback must be one of {', '.join(_FALLBACKS)}: got {chosen!r}"
        )
    _check_limit(memory_limit, segments)
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
