"""make_step: a training step as one executable, behind ordinary eager code."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.tracing import Traced, check_loss, check_output, trace_step
from lucid.compile.tree import Structure, flatten
from lucid.nn.modules.module import Module

__all__ = ["FallbackWarning", "Step", "make_step"]

_FALLBACKS = ("warn", "error", "silent")
_MAX_ENTRIES = 64


class FallbackWarning(UserWarning):
    """A step could not be compiled and runs eagerly."""


class _Entry:
    """One signature of a step: compiled, or refused with a reason and run eagerly."""

    def __init__(self, structures: list[Structure], traced: Traced) -> None:
        self.structures = structures
        self.is_flat = all(s.kind == "leaf" for s in structures)
        self.traced = traced

    def try_run(self, args: tuple[Any, ...]) -> Tensor | None:
        """The loss, or None where the call has another signature."""
        if not self.traced.signature.holds():
            return None
        if not self.is_flat:
            leaves: list[Tensor] = []
            if _flatten_all(args, leaves) != self.structures:
                return None
            args = tuple(leaves)
        return self.traced.entry.try_run(args)

    def rebind(self, structures: list[Structure], leaves: list[Tensor]) -> str | None:
        """Fetch the captured tensors anew; the name of what differs if the entry does not fit."""
        if structures != self.structures or not self.traced.entry.accepts(leaves):
            return "arguments"
        found = self.traced.signature.difference()
        if found is not None:
            return found
        captures = self.traced.signature.captures()
        if captures is None:
            return "which parameters are tied"
        if not self.traced.entry.rebind(captures):
            return "shape, dtype, device or requires_grad of a parameter"
        self.traced.signature.refresh()
        return None


class _Refusal:
    """A signature that cannot be compiled."""

    def __init__(self, structures: list[Structure], leaves: list[Tensor], reason: str) -> None:
        self.key = _refusal_key(structures, leaves)
        self.reason = reason


def _refusal_key(structures: list[Structure], leaves: list[Tensor]) -> Any:
    types = [(t.shape, t.dtype.name, t.requires_grad) for t in leaves]
    return (structures, types, _C.module_version(), _C.is_grad_enabled())


def _flatten_all(args: tuple[Any, ...], leaves: list[Tensor]) -> list[Structure]:
    names = ["x", *(f"extra input {i}" for i in range(1, len(args)))]
    return [flatten(value, name, leaves) for value, name in zip(args, names, strict=True)]


class Step:
    """A compiled training step; made by :func:`make_step`.

    Calling it as ``step(x, *extra_inputs)`` returns the loss. Attributes: ``segments``,
    ``eager_only`` (True once a signature was refused and runs eagerly), ``cache`` (the compiled
    signatures, newest first).
    """

    def __init__(
        self, model: Module, loss_fn: Callable[..., Any], dynamic: bool, fallback: str
    ) -> None:
        self.segments = 1
        self.dynamic = dynamic
        self._model = model
        self._loss_fn = loss_fn
        self._fallback = fallback
        self._entries: list[_Entry] = []
        self._refusals: list[_Refusal] = []
        self._history: list[str] = []
        self._lock = threading.RLock()
        self._hits = 0
        self._misses = 0

    def __call__(self, *args: Any) -> Tensor:
        """Run one step: returns the loss, whose ``backward()`` gives every gradient.

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

    def _slow(self, args: tuple[Any, ...]) -> Tensor:
        """A call that the newest signature does not fit."""
        leaves: list[Tensor] = []
        structures = self._checked(args, leaves)
        with self._lock:
            differences = []
            for entry in self._entries:
                found = entry.rebind(structures, leaves)
                if found is not None:
                    differences.append(found)
                    continue
                loss = entry.try_run(args)
                if loss is not None:
                    self._hits += 1
                    self._to_front(entry)
                    return loss
            key = _refusal_key(structures, leaves) if self._refusals else None
            refused = any(r.key == key for r in self._refusals)
            if not refused:
                made = self._compile(structures, leaves)
                if made is not None:
                    loss = made.try_run(args)
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
            traced = trace_step(self._model, self._loss_fn, structures, leaves)
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
        return _Entry(structures, traced)

    def _keep(self, entry: _Entry, leaves: list[Tensor], differences: list[str]) -> None:
        """Keep an entry whose first run has succeeded."""
        self._misses += 1
        because = f": another {differences[0]}" if differences else ""
        self._history.append(
            f"signature {self._misses}: {_describe(leaves)}, compiled "
            f"{entry.traced.entry.num_nodes} operations{because}"
        )
        self._to_front(entry)

    def _to_front(self, entry: _Entry) -> None:
        rest = [e for e in self._entries if e is not entry]
        self._entries = [entry, *rest][:_MAX_ENTRIES]

    def _refuse(self, structures: list[Structure], leaves: list[Tensor], error: Exception) -> None:
        reason = str(error)
        self._refusals = [_Refusal(structures, leaves, reason), *self._refusals][:_MAX_ENTRIES]
        self._history.append(f"{_describe(leaves)}: runs eagerly: {reason}")
        if self._fallback == "warn":
            warnings.warn(
                f"make_step: this step runs eagerly: {reason}\n"
                'pass fallback="error" to raise instead, or "silent" to be told nothing',
                FallbackWarning,
                stacklevel=5,
            )

    def _run_eagerly(self, args: tuple[Any, ...]) -> Tensor:
        output = self._model(args[0])
        check_output(output)
        return check_loss(self._loss_fn(output, *args[1:]))

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
        """One line a signature: what was compiled and why, or why it runs eagerly."""
        if not self._history:
            return "nothing has been compiled yet: call the step once"
        return "\n".join(self._history)

    def timing(self) -> dict[str, float]:
        """Seconds of compiling and of runs of the current signature, and its number of runs."""
        return self._current("timing").timing()

    def memory(self) -> dict[str, int]:
        """Bytes of the current signature: ``parameters inputs outputs arena_peak``; exact."""
        return self._current("memory").memory()

    def graph_dump(self) -> str:
        """The compiled graph of the current signature as text, one line an operation."""
        return self._current("graph_dump").graph_text()

    def _current(self, what: str) -> _C.StepEntry:
        if self._entries:
            return self._entries[0].traced.entry
        raise _C.UserError(f"{what}: nothing has been compiled yet: call the step once")


def _describe(leaves: list[Tensor]) -> str:
    return "(" + ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in leaves) + ")"


def make_step(
    model: Module,
    loss_fn: Callable[..., Any],
    dynamic: bool = False,
    segments: int | str = 1,
    *,
    fallback: str | None = None,
) -> Step:
    """Compile forward, loss and backward of a training step into one executable.

    Args:
        model: the module to train; traced at the first call of each signature.
        loss_fn: ``loss_fn(model(x), *extra_inputs)`` must return one floating element.
        dynamic: accepted so that calls look alike; every batch size gets its own executable.
        segments: only 1 in this version.
        fallback: what happens to a step that cannot be compiled. ``"warn"``: it runs eagerly
            after one warning that names the operation, line and reason; ``"error"``: it raises;
            ``"silent"``: it runs eagerly. Default: the environment variable LUCID_FALLBACK,
            else ``"warn"``.

    Returns: ``step(x, *extra_inputs)``, which returns the loss with a ``grad_fn``:
        ``loss.backward()`` and any optimizer work as in eager code, and on cpu loss and
        gradients equal the eager ones bit for bit.
    Raises: ArgumentTypeError if model or loss_fn is of the wrong type, UserError for a bad
        ``fallback``, UnsupportedError for ``segments`` other than 1.
    """
    if not isinstance(model, Module):
        raise _C.ArgumentTypeError(
            f"make_step: model must be an nn.Module: got {type(model).__name__}"
        )
    if not callable(loss_fn):
        raise _C.ArgumentTypeError(
            f"make_step: loss_fn must be callable: got {type(loss_fn).__name__}"
        )
    if isinstance(segments, bool) or segments != 1:
        raise _C.UnsupportedError(
            f"make_step: segments={segments!r} is not available in this version: splitting a step "
            "into several executables is a coming feature; use segments=1"
        )
    chosen = os.environ.get("LUCID_FALLBACK", "warn") if fallback is None else fallback
    if chosen not in _FALLBACKS:
        raise _C.UserError(
            f"make_step: fallback must be one of {', '.join(_FALLBACKS)}: got {chosen!r}"
        )
    return Step(model, loss_fn, bool(dynamic), chosen)
