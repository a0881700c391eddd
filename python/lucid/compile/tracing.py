"""One trace of the user's code on symbolic tensors, and what it may not do."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.movers import GLOBAL_GENERATORS
from lucid.compile.outside import OutsideState
from lucid.compile.reach import Place, Reach
from lucid.compile.signature import Signature
from lucid.compile.tree import Structure, flatten, unflatten
from lucid.nn.modules import module as module_file
from lucid.nn.modules.module import Module

__all__ = ["Subject", "Traced", "in_turn", "trace"]


# How often a step is traced where another thread may have drawn from a global generator meanwhile.
_TRIES = 5
_LONGEST_WAIT = 10.0  # seconds
_PACKAGE = os.path.dirname(_C.__file__) + os.sep


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is traced, and how."""

    #: Begins every message.
    what: str
    #: All that the traced code can read is reached from these.
    roots: tuple[Any, ...]
    #: Runs the code on symbolic arguments: its results, and their structure if it is more than
    #: one tensor.
    record: Callable[[_C.Recorder, list[Any]], tuple[list[Tensor], Structure | None]]
    #: Compiles a trace for the given leaves and the tensors that its captures' paths lead to.
    compile: Callable[[_C.Trace, list[Tensor], list[Tensor]], _C.StepEntry]
    #: The first result is a loss, whose backward belongs to the compiled step.
    ends_in_loss: bool = False
    #: Gradients may be asked of the results.
    is_differentiable: bool = False
    #: Places of tensors that the roots do not lead to, asked for after the trace.
    places: Callable[[], list[Place]] = list
    #: Size that the first axis of the tensors named by ``sized`` is traced with, None for theirs.
    size: int | None = None
    #: By leaf: does its first axis follow ``size``?
    sized: tuple[bool, ...] = ()
    #: More operations are refused; None for no bound.
    max_nodes: int | None = None
    #: Makes the recorder that begins its messages with ``what``.
    recorder: Callable[[str], _C.Recorder] = _C.Recorder


class Traced:
    """A compiled signature: the entry of the core and the signature that guards it.

    ``output`` is the structure of the results, None where there is one tensor alone. ``trace`` is
    kept to be saved, with what it says of its arguments.
    """

    def __init__(
        self,
        entry: _C.StepEntry,
        signature: Signature,
        num_targets: int,
        output: Structure | None,
        trace: _C.Trace,
        leaves: list[Tensor],
    ) -> None:
        self.entry = entry
        self.signature = signature
        self.num_targets = num_targets
        self.output = output
        self.trace = trace
        self.leaves = [_describe_leaf(leaf, leaves[:i]) for i, leaf in enumerate(leaves)]


def _describe_leaf(leaf: Tensor, before: list[Tensor]) -> list[Any]:
    """Shape, dtype, device, requires_grad, and the place of an earlier leaf that it is."""
    same = [i for i, other in enumerate(before) if other._cell_id == leaf._cell_id]
    described = [list(leaf.shape), leaf.dtype.name, leaf.device.type, leaf.requires_grad]
    return [*described, same[0] if same else None]


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """One thread traces at a time: caches that threads share hold its symbolic tensors meanwhile.

    A thread that has waited for long goes on, since the other one may be waiting for it.
    """
    lock = _turn[0]
    has_turn = lock.acquire(timeout=_LONGEST_WAIT)
    try:
        yield
    finally:
        if has_turn:
            lock.release()


_turn = [threading.RLock()]
# Of a child process nobody holds the lock.
os.register_at_fork(after_in_child=lambda: _turn.__setitem__(0, threading.RLock()))


class _GeneratorMovedError(_C.TraceError):
    """A global generator moved: by the trace, or by another thread meanwhile."""


def trace(subject: Subject, structures: list[Structure], leaves: list[Tensor]) -> Traced:
    """Trace and compile one signature.

    Raises: TraceError for what a trace cannot carry; whatever the user's own code raises. The
        model, its buffers, its attributes and the generators are then as before.
    """
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            with in_turn():
                # What the code puts into context variables stays inside.
                return contextvars.copy_context().run(_trace, subject, structures, leaves)
        except _GeneratorMovedError as error:
            if last or threading.active_count() == 1:
                raise _C.TraceError(str(error)) from None
    raise AssertionError("unreachable")


def _trace(subject: Subject, structures: list[Structure], leaves: list[Tensor]) -> Traced:
    reach = _reach_of(subject)
    before = OutsideState(reach)
    called: dict[int, Module] = {}
    made: dict[int, Module] = {}
    recorder = subject.recorder(subject.what)
    if subject.max_nodes is not None:
        recorder.limit_nodes(subject.max_nodes)
    try:
        with _observing(called, made):
            arguments = _stand_ins(recorder, subject, structures, leaves)
            given = _tensors_of(arguments, structures)
            results, output = subject.record(recorder, list(arguments))
        if _tensors_of(arguments, structures) != given:
            raise _C.TraceError(
                f"{subject.what}: the step changed a list or dict that is an argument, which a "
                "compiled run would not repeat; return what it computes instead"
            )
        before.write_buffers()
        if subject.is_differentiable:
            with _observing(called, made):
                _differentiate(recorder, results, subject)
        trace = recorder.finish(results)
        changed = before.difference()
        if changed is not None:
            kind = _GeneratorMovedError if changed in GLOBAL_GENERATORS else _C.TraceError
            raise kind(
                f"{subject.what}: the step changed {changed}, which a compiled run would not "
                "repeat; keep such state in a registered buffer, or compute it outside of the step"
            )
    except BaseException as error:
        before.restore()
        if isinstance(error, _C.Error):
            _add_location(error)
        raise
    finally:
        recorder.cancel()
    num_targets = trace.num_targets
    known = {id(module) for module in reach.modules} | made.keys()
    unknown = [module for place, module in called.items() if place not in known]
    if unknown:
        raise _C.TraceError(
            f"{subject.what}: a module {type(unknown[0]).__name__} was called that no attribute, "
            "closure or global leads to; make it an attribute of the model"
        )
    for place in subject.places():
        reach.tensors.setdefault(place.get()._cell_id, []).append(place)
    lasting = [module for place, module in called.items() if place not in made]
    signature = Signature(reach, lasting, trace.captures, subject.what)
    found = signature.captures()
    if found is None:
        raise _C.TraceError(
            f"{subject.what}: a tensor that the step reads stands in several places that were "
            "changed while the step ran; keep it in one attribute"
        )
    kept = trace.copy()
    entry = subject.compile(trace, leaves, found)
    return Traced(entry, signature, num_targets, output, kept, leaves)


def _reach_of(subject: Subject) -> Reach:
    """What the step leads to. Raises: TraceError for an iterator, which cannot be put back."""
    reach = Reach(*subject.roots)
    if reach.iterators:
        raise _C.TraceError(
            f"{subject.what}: the step reads from an iterator, {reach.iterators[0].name}, which a "
            "compiled run would not advance; pass what it gives as an argument"
        )
    return reach


def _tensors_of(arguments: list[Any], structures: list[Structure]) -> list[int] | None:
    """Identities of the tensors in arguments; None if those have other structures by now."""
    tensors: list[Tensor] = []
    try:
        found = [flatten(argument, "argument", tensors) for argument in arguments]
    except _C.Error:
        return None
    return list(map(id, tensors)) if found == structures else None


def _differentiate(recorder: _C.Recorder, results: list[Tensor], subject: Subject) -> None:
    """Record the backward, where rules of functions have a part in it.

    Of results whose backward nobody may ask for, a rule's own exception is a reason to run eagerly.
    """
    try:
        recorder.differentiate(results, subject.ends_in_loss)
    except Exception as error:
        if subject.ends_in_loss or isinstance(error, _C.Error):
            raise
        raise _C.TraceError(
            f"{subject.what}: the backward of an autograd.Function raised {type(error).__name__}: "
            f"{error}; call it under no_grad where no gradient is wanted"
        ) from error


def _add_location(error: _C.Error) -> None:
    """Append the user's line to an error that the package's Python code raised."""
    text = str(error)
    if "\n  at " in text:
        return
    place, traceback = None, error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            place = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    if place is not None:
        error.args = (f"{text}\n  at {place}",)


@contextlib.contextmanager
def _observing(called: dict[int, Module], made: dict[int, Module]) -> Iterator[None]:
    """Collect the modules that this thread calls and makes."""
    thread = threading.get_ident()

    def collect(modules: dict[int, Module]) -> Callable[[Module], None]:
        def observe(module: Module) -> None:
            if threading.get_ident() == thread:
                modules.setdefault(id(module), module)

        return observe

    observers = (
        (module_file._call_observers, collect(called)),
        (module_file._made_observers, collect(made)),
    )
    for listeners, observe in observers:
        listeners.append(observe)
    try:
        yield
    finally:
        for listeners, observe in observers:
            listeners.remove(observe)


def _stand_ins(
    recorder: _C.Recorder, subject: Subject, structures: list[Structure], leaves: list[Tensor]
) -> list[Any]:
    """The arguments with symbolic tensors; one tensor given twice has one stand-in."""
    proxies: dict[int, Tensor] = {}
    stand_ins = []
    for i, leaf in enumerate(leaves):
        known = proxies.get(leaf._cell_id)
        is_sized = subject.size is not None and subject.sized[i]
        stand_in = recorder.argument(leaf, subject.size if is_sized else None)
        stand_ins.append(known if known is not None else stand_in)
        proxies.setdefault(leaf._cell_id, stand_in)
    remaining = iter(stand_ins)
    return [unflatten(s, lambda: next(remaining)) for s in structures]
