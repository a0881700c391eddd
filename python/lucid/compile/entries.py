"""What every compiled callable shares: its signatures, the newest first, and their refusals."""

from __future__ import annotations

import dataclasses
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.outside import Before
from lucid.compile.reach import Rooted
from lucid.compile.signature import describe_tensor
from lucid.compile.tracing import Subject, Traced, in_turn, trace
from lucid.compile.tree import Structure, flatten, leaf_names, unflatten
from lucid.functions.arguments import user_stacklevel

__all__ = ["MISS", "Compiled", "Entry", "FallbackWarning", "RecompileWarning", "Served"]
__all__ += ["checked_fallback", "lasting_reason"]

_REFUSED = (_C.TraceError, _C.UnsupportedError)
_FALLBACKS = ("warn", "error", "silent")
_MAX_ENTRIES = 64
_MANY_SIGNATURES = 8
_MAX_LINES = 1000
_MAX_SIZES_SHOWN = 8
_LOOKS = 1000
_TRIES = 5

#: Names, structures and tensors of the arguments of a call.
Given = tuple[list[str], list[Structure], list[Tensor]]
#: What :meth:`Entry.try_run` gives for another signature: None is a result like others.
MISS = object()


class FallbackWarning(UserWarning):
    """A step could not be compiled and runs eagerly."""


class RecompileWarning(UserWarning):
    """A step was compiled for many signatures."""


def checked_fallback(what: str, fallback: str | None) -> str:
    """The choice that holds: the one given, else LUCID_FALLBACK, else "warn"."""
    chosen = os.environ.get("LUCID_FALLBACK", "warn") if fallback is None else fallback
    if chosen not in _FALLBACKS:
        raise _C.UserError(
            f"{what}: fallback must be one of {', '.join(_FALLBACKS)}: got {chosen!r}"
        )
    return chosen


class Entry:
    """One compiled signature. ``names`` is what messages call the arguments."""

    def __init__(
        self, names: list[str], structures: list[Structure], leaves: list[Tensor], traced: Traced
    ) -> None:
        self.names = names
        self.structures = structures
        self.is_flat = all(s.kind == "leaf" for s in structures)
        self.traced = traced
        self.fields = fields_of(names, structures, leaves)
        #: Where one signature serves many sizes of the first axis: those met so far.
        self.sizes: set[int] = set()
        #: What the eager call changed after which this was traced.
        self.filled: str | None = None

    def try_run(self, args: tuple[Any, ...], scalars: tuple[float, ...] = ()) -> Any:
        """The results in their structure; ``MISS`` for another signature."""
        if not self.traced.signature.holds():
            return MISS
        if not self.is_flat:
            leaves: list[Tensor] = []
            if flatten_all(self.names, args, leaves) != self.structures:
                return MISS
            args = tuple(leaves)
        result = self._entry(args).try_run(args, scalars)
        if result is None:
            return MISS
        if self.traced.output is None:
            return result
        results = iter(result if isinstance(result, tuple) else (result,))
        return unflatten(self.traced.output, lambda: next(results))

    def _entry(self, leaves: tuple[Tensor, ...]) -> _C.StepEntry:
        return self.traced.entry

    def rebind(
        self, names: list[str], structures: list[Structure], leaves: list[Tensor]
    ) -> str | None:
        """Fetch the captured tensors anew; the name of what differs if the entry does not fit."""
        found = None
        for _ in range(_LOOKS):
            version = _C.module_version()
            found = self._rebind(names, structures, leaves)
            if found is not None or _C.module_version() == version:
                break  # else another thread has changed a module meanwhile
        return found

    def _rebind(
        self, names: list[str], structures: list[Structure], leaves: list[Tensor]
    ) -> str | None:
        entry = self._entry(tuple(leaves))
        if structures != self.structures or not entry.accepts(leaves):
            fields = fields_of(names, structures, leaves)
            differing = [k for k, v in fields.items() if self.fields.get(k, Entry) != v]
            return next(iter(differing), "arguments")
        found = self.traced.signature.difference()
        if found is not None:
            return found
        captures = self.traced.signature.captures()
        if captures is None:
            return "way in which tensors are tied"
        if not entry.rebind(captures):
            return self.traced.signature.tensor_difference(captures)
        self.traced.signature.refresh()
        return None


@dataclasses.dataclass(frozen=True)
class Served:
    """A line on a signature, with the sizes of the first axis that it was planned for by now."""

    line: str
    sizes: set[int]  # shared with the entry; empty where its shapes are its own

    def __str__(self) -> str:
        if not self.sizes:
            return self.line
        first = sorted(self.sizes)[:_MAX_SIZES_SHOWN]
        listed = ", ".join(map(str, first))
        more = len(self.sizes) - len(first)
        rest = f" and {more} more up to {max(self.sizes)}" if more else ""
        return f"{self.line}; for any size of the first axis, so far {listed}{rest}"


class _Refusal:
    """A signature that cannot be compiled."""

    def __init__(self, key: Any, reason: str) -> None:
        self.key = key
        self.reason = reason
        self.is_changing = False  # the calls change attributes


def fields_of(
    names: list[str], structures: list[Structure], leaves: list[Tensor]
) -> dict[str, Any]:
    """What a signature fixes of the arguments and of the process, by how messages call it."""
    fields: dict[str, Any] = {
        "grad mode": _C.is_grad_enabled(),
        "default dtype": _C.get_default_dtype(),
        "default device": _C.get_default_device(),
        "autocast": _autocast_dtypes(),
        "number of arguments": len(structures),
    }
    leaf_labels = []
    for what, structure in zip(names, structures, strict=True):
        kind = "value" if structure.kind == "static" else "structure"
        fields[f"{kind} of {what}"] = structure
        leaf_labels += leaf_names(structure, what)
    for i, (name, leaf) in enumerate(zip(leaf_labels, leaves, strict=True)):
        for field, value in describe_tensor(leaf).items():
            fields[f"{field} of {name}"] = value
        same = [other for other in range(i) if leaves[other]._cell_id == leaf._cell_id]
        fields[f"way in which {name} shares another argument's memory"] = same[:1]
    return fields


def _autocast_dtypes() -> list[str | None]:
    """The low dtype of autocast on each device where it is on."""
    modes = [_C.autocast_mode(_C.device(name)) for name in ("cpu", "metal")]
    return [low.name if enabled else None for enabled, low in modes]


def flatten_all(names: list[str], args: tuple[Any, ...], leaves: list[Tensor]) -> list[Structure]:
    """Append the tensors of all arguments to ``leaves``; returns the arguments' structures."""
    if len(names) != len(args):
        return []
    return [flatten(value, name, leaves) for value, name in zip(args, names, strict=True)]


class Compiled(Rooted):
    """Base of the compiled callables: looks a call's signature up, or traces and compiles it.

    A subclass gives ``_roots``, ``_subject`` (what is traced for a signature) and
    ``_run_eagerly``.

    A trace that is refused may have met a cache that the first call fills: a mask made where an
    attribute is None, an entry of a dict, a result of a ``functools.lru_cache``. So the call is
    eager then, and if it changed anything that the code can read, the signature is traced once
    more, for the calls that follow. What changes again is no cache.
    """

    _what = "make_step"

    def __init__(self, fallback: str) -> None:
        self._fallback = fallback
        self._entries: list[Entry] = []
        self._refusals: list[_Refusal] = []
        self._lasting: set[str] = set()  # reasons that a call does not take away
        self._is_calling = False  # eagerly, for another trace
        self._history: deque[str | Served] = deque(maxlen=_MAX_LINES)
        self._lock = threading.RLock()
        self._hits = 0
        self._misses = 0

    # ------------------------------------------------------------ what a subclass says

    def _subject(self, structures: list[Structure], leaves: list[Tensor]) -> Subject:
        """What is traced for these arguments."""
        raise NotImplementedError

    def _run_eagerly(self, args: tuple[Any, ...]) -> Any:
        """The same without compiling."""
        raise NotImplementedError

    def _begin_eagerly(self, args: tuple[Any, ...]) -> Callable[[], Any]:
        """Run the user's code; what is given does the rest of an eager call."""
        result = self._run_eagerly(args)
        return lambda: result

    def _names(self, args: tuple[Any, ...]) -> list[str]:
        """What messages call the arguments."""
        return [f"argument {i}" for i in range(len(args))]

    def _checked(
        self, names: list[str], args: tuple[Any, ...], leaves: list[Tensor]
    ) -> list[Structure]:
        """The structures of good arguments; raises for others."""
        structures = flatten_all(names, args, leaves)
        self._check_devices(leaves)
        return structures

    def _check_devices(self, leaves: list[Tensor]) -> None:
        devices = {t.device.type for t in leaves}
        if len(devices) > 1:
            raise _C.DeviceError(
                f"{self._what}: tensors on several devices: {', '.join(sorted(devices))}; "
                "move model and inputs to one with .to()"
            )

    def _make(self, names: list[str], structures: list[Structure], leaves: list[Tensor]) -> Entry:
        """Trace and compile one signature."""
        return Entry(names, structures, leaves, self._trace(structures, leaves))

    def _trace(self, structures: list[Structure], leaves: list[Tensor]) -> Traced:
        return trace(self._subject(structures, leaves), structures, leaves)

    def _run(
        self,
        entry: Entry,
        args: tuple[Any, ...],
        structures: list[Structure],
        leaves: list[Tensor],
    ) -> Any:
        """Run an entry that fits: again if another thread has changed a module just now."""
        for _ in range(_LOOKS):
            result = entry.try_run(args)
            if result is not MISS or entry.rebind(entry.names, structures, leaves) is not None:
                return result
        return MISS

    # ------------------------------------------------------------ calls

    def __call__(self, *args: Any) -> Any:
        entries = self._entries
        if entries:
            result = entries[0].try_run(args)
            if result is not MISS:
                self._hits += 1
                return result
        return self._slow(args)

    def _slow(self, args: tuple[Any, ...]) -> Any:
        """A call that the newest signature does not fit."""
        self._check_outside()
        leaves: list[Tensor] = []
        names = self._names(args)
        structures = self._checked(names, args, leaves)
        with self._lock:
            differences = []
            for entry in self._entries:
                found = entry.rebind(names, structures, leaves)
                if found is not None:
                    differences.append(found)
                    continue
                result = self._run(entry, args, structures, leaves)
                if result is not MISS:
                    self._hits += 1
                    self._to_front(entry)
                    return result
            key = (fields_of(names, structures, leaves), _C.module_version())
            refusal = next((r for r in self._refusals if r.key == key), None)
            if refusal is None:
                made, result = self._compile_and_run(names, structures, leaves, args)
                if made is not None:
                    self._keep(made, leaves, differences)
                if result is not MISS:
                    return result
                refusal = self._refusals[0]
        result = self._run_eagerly(args)
        self._renew(refusal)
        return result

    def _compile_and_run(
        self,
        names: list[str],
        structures: list[Structure],
        leaves: list[Tensor],
        args: tuple[Any, ...],
    ) -> tuple[Entry | None, Any]:
        """An entry and the call's result; neither where the signature falls back to eager."""
        for _ in range(_TRIES):
            with in_turn():
                made, result = self._compile(names, structures, leaves, args)
                if made is not None and result is MISS:
                    result = self._run(made, args, structures, leaves)
            if made is None or result is not MISS:
                return made, result
            if threading.active_count() == 1:
                break  # else another thread has changed what both read
        raise _C.InternalError(f"{self._what}: a fresh executable refused its own call")

    def _renew(self, refusal: _Refusal) -> None:
        """After an eager call: what that changed itself is no reason to trace again.

        Once such a call changes nothing more, as after a warm-up that is counted, it is one.
        """
        fields, before = refusal.key
        now = _C.module_version()
        if now != before:
            refusal.key, refusal.is_changing = (fields, now), True
        elif refusal.is_changing:
            with self._lock:
                self._refusals = [r for r in self._refusals if r is not refusal]

    def _check_outside(self) -> None:
        if _C.is_tracing():
            raise _C.TraceError(
                f"{self._what}: a compiled step was called inside the trace of another; call its "
                "model instead"
            )

    def _compile(
        self,
        names: list[str],
        structures: list[Structure],
        leaves: list[Tensor],
        args: tuple[Any, ...],
        is_call: bool = True,
    ) -> tuple[Entry | None, Any]:
        """An entry, None where the signature falls back to eager; what an eager call gave, if any.

        With ``is_call`` False nothing is called: what had to run leaves no trace.
        """
        given = (names, structures, leaves)
        try:
            return self._make(*given), MISS
        except _C.UnsupportedError as error:
            self._refuse_or_raise(given, error)
            return None, MISS
        except _C.TraceError as error:
            if self._is_calling or str(error) in self._lasting:
                self._refuse_or_raise(given, error)
                return None, MISS
            return self._call_and_trace(args, given, error, is_call)

    def _refuse_or_raise(self, given: Given, error: Exception) -> None:
        try:
            if self._fallback == "error":
                raise error
            self._refuse(*given, error)
        finally:
            del error  # whose traceback leads back here

    def _call_and_trace(
        self, args: tuple[Any, ...], given: Given, first: Exception, is_call: bool
    ) -> tuple[Entry | None, Any]:
        """Run eagerly and trace again: the entry and the call's result."""
        before = Before(self._roots(), args, given[2])
        if not before.is_whole:
            self._refuse_or_raise(given, first)
            return None, MISS
        made: Entry | Exception = first
        result = MISS
        self._is_calling = True
        is_tracing = False
        try:
            finish = self._begin_eagerly(args)
            is_tracing = True  # what is raised now is no error of the call
            made = self._made_now(given, before.difference(), first)
            is_tracing = False
            if is_call and (isinstance(made, Entry) or self._fallback != "error"):
                result = finish()
        except BaseException as caught:
            before.restore()
            is_of_call = isinstance(caught, Exception) and not isinstance(caught, _C.InternalError)
            is_of_call = is_of_call and not is_tracing
            if isinstance(made, Entry) or self._fallback != "error" or not is_of_call:
                raise  # else the reason of the first trace is raised below
        else:
            if result is MISS:
                before.restore()
        finally:
            self._is_calling = False
        try:
            if isinstance(made, Entry):
                return made, result
            self._lasting = {str(made), *list(self._lasting)[-_MAX_ENTRIES:]}
            self._refuse_or_raise(given, made)
            return None, result
        finally:
            del made  # an error's traceback leads back here, and to the arguments

    def _made_now(self, given: Given, filled: str | None, first: Exception) -> Entry | Exception:
        """An entry that fits now that ``filled`` has changed, or why there is none."""
        if filled is None:
            return first
        for entry in self._entries:
            if entry.rebind(*given) is None:
                return entry
        try:
            made = self._make(*given)
        except _REFUSED as caught:
            return lasting_reason(first, caught)
        except (_C.InternalError, _C.UserError):  # as a memory limit that is not met
            raise
        except Exception:  # the next eager call would raise it
            return first
        made.filled = filled
        return made

    def compile(self, *args: Any) -> None:
        """Compile for these arguments without running: ``memory()`` is known then.

        Code that a trace refuses is called once, as it may fill a cache; what it did is undone.
        """
        leaves: list[Tensor] = []
        names = self._names(args)
        structures = self._checked(names, args, leaves)
        with self._lock:
            for entry in self._entries:
                if entry.rebind(names, structures, leaves) is None:
                    self._to_front(entry)
                    return
            with in_turn():
                made, _ = self._compile(names, structures, leaves, args, is_call=False)
            if made is not None:
                self._keep(made, leaves, [])

    def _keep(self, entry: Entry, leaves: list[Tensor], differences: list[str]) -> None:
        """Keep an entry whose first run has succeeded, or that fits again."""
        if entry in self._entries:
            self._to_front(entry)
            return
        self._misses += 1
        because = f", because of another {differences[0]}" if differences else ""
        line = (
            f"signature {self._misses}: {_describe(leaves)}, compiled "
            f"{entry.traced.entry.num_nodes} operations{because}"
            f"{self._details(entry)}"
        )
        if entry.filled is not None:
            line += f"; its first call ran eagerly, since it changed {entry.filled}"
        self._history.append(Served(line, entry.sizes))
        self._to_front(entry)
        if self._misses == _MANY_SIGNATURES:
            warnings.warn(
                f"{self._what}: {self._misses} signatures have been compiled, the last one because "
                f"of another {differences[0] if differences else 'argument'}; for a number that "
                "changes at each step pass a 0-d tensor, for lengths that vary pad to a few sizes; "
                "explain() lists them all",
                RecompileWarning,
                stacklevel=user_stacklevel(),
            )

    def _details(self, entry: Entry) -> str:
        """What else explain() tells of a signature."""
        return ""

    def _unbounded(self) -> str:
        """What a fallback means for a memory limit, as a line of its own."""
        return ""

    def _to_front(self, entry: Entry) -> None:
        rest = [e for e in self._entries if e is not entry]
        self._entries = [entry, *rest][:_MAX_ENTRIES]

    def _refuse(
        self,
        names: list[str],
        structures: list[Structure],
        leaves: list[Tensor],
        error: Exception,
    ) -> None:
        reason = str(error)
        key = (fields_of(names, structures, leaves), _C.module_version())
        self._refusals = [_Refusal(key, reason), *self._refusals][:_MAX_ENTRIES]
        self._history.append(f"{_describe(leaves)}: runs eagerly: {reason}")
        if self._fallback == "warn":
            warnings.warn(
                f"{self._what}: this step runs eagerly: {reason}\n{self._unbounded()}"
                'pass fallback="error" to raise instead, or "silent" to be told nothing',
                FallbackWarning,
                stacklevel=user_stacklevel(),
            )

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
        """Counts of this callable: ``entries``, ``hits``, ``misses``, ``max_entries``."""
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
            self._lasting = set()

    def explain(self) -> str:
        """One line a signature: what was compiled and why, or why it runs eagerly. Oldest first."""
        if not self._history:
            return "nothing has been compiled yet: call it once"
        return "\n".join(map(str, self._history))

    def timing(self) -> dict[str, float]:
        """Seconds of compiling and of runs of the current signature, and its number of runs."""
        return self._current("timing").timing()

    def memory(self) -> dict[str, Any]:
        """Exact bytes of the current signature, known before the first run.

        Returns: ``parameters``, ``inputs``, ``outputs``, ``arena_peak`` (arenas, and values kept
            between executables, at the worst moment), ``is_estimate`` (True where the backend does
            not know its peak, as metal), and ``segments``: a list of the same for each segment.
        """
        return self._current("memory").memory()

    def graph_dump(self) -> str:
        """The compiled graph of the current signature as text, one line an operation."""
        return self._current("graph_dump").graph_text()

    def _current(self, what: str) -> _C.StepEntry:
        if self._entries:
            return self._entries[0].traced.entry
        raise _C.UserError(f"{what}: nothing has been compiled yet: call it once")


def lasting_reason(first: Exception, second: Exception) -> Exception:
    """Why nothing is compiled, by the traces before and after an eager call.

    What the second one gives, as the first may be about a cache; of one line, the first.
    """
    place = str(second).partition("\n  at ")[2]
    return first if place and place == str(first).partition("\n  at ")[2] else second


def _describe(leaves: list[Tensor]) -> str:
    return "(" + ", ".join(f"{t.dtype.name}{list(t.shape)}" for t in leaves) + ")"
