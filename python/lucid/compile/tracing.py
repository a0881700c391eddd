"""One trace of ``loss_fn(model(x), *extra)`` on symbolic tensors, and what it may not do."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from lucid import _C
from lucid._C import Tensor
from lucid.autograd import no_grad
from lucid.compile.freeze import freeze, is_container, restorer
from lucid.compile.reach import STRUCTURE, Reach, plain_attributes
from lucid.compile.signature import Signature
from lucid.compile.tree import Structure, flatten, unflatten
from lucid.nn.modules import module as module_file
from lucid.nn.modules.container import Sequential
from lucid.nn.modules.module import Module

__all__ = ["Traced", "check_loss", "check_output", "groups_of", "split_result", "trace_step"]


# How often a step is traced where another thread may have drawn from a global generator meanwhile.
_TRIES = 5
_PACKAGE = os.path.dirname(_C.__file__) + os.sep


class Traced:
    """A compiled signature: the entry of the core and the signature that guards it.

    ``aux`` is the structure of the auxiliary results, None where there are none.
    """

    def __init__(
        self, entry: _C.StepEntry, signature: Signature, num_targets: int, aux: Structure | None
    ) -> None:
        self.entry = entry
        self.signature = signature
        self.num_targets = num_targets
        self.aux = aux


def check_output(output: Any) -> None:
    """Refuse a model's result without any tensor."""
    leaves: list[Tensor] = []
    try:
        flatten(output, "output", leaves)
    except _C.ArgumentTypeError:
        return  # an object of the user's own; the loss function knows what to do with it
    if not leaves:
        raise _C.ArgumentTypeError(
            f"make_step: the model returned no tensor: got {type(output).__name__}; "
            "return the tensor that the loss function takes"
        )


def split_result(result: Any, has_aux: bool) -> tuple[Tensor, Any]:
    """The loss, checked, and the auxiliary results of what the loss function returned."""
    if not has_aux:
        return check_loss(result), None
    if not isinstance(result, tuple) or len(result) != 2:
        raise _C.ArgumentTypeError(
            "make_step: with has_aux=True the loss function must return (loss, aux): "
            f"got {type(result).__name__}"
        )
    return check_loss(result[0]), result[1]


def check_loss(loss: Any) -> Tensor:
    """Refuse a loss that is not one floating element."""
    if not isinstance(loss, Tensor):
        raise _C.ArgumentTypeError(
            f"make_step: the loss function must return one Tensor: got {type(loss).__name__}; "
            "add the parts up to one loss"
        )
    if loss.numel() != 1:
        raise _C.ShapeError(
            f"make_step: the loss must have one element: got shape {loss.shape}; "
            "reduce it with .mean() or .sum()"
        )
    if not loss.dtype.is_floating_point:
        raise _C.DtypeError(
            f"make_step: the loss must be floating: got {loss.dtype.name}; convert it with .float()"
        )
    return loss


class _OutsideState:
    """Attributes, containers and foreign generators as they were before a trace."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._attributes = [(m, dict(plain_attributes(m))) for m in reach.modules]
        self._frozen = [
            {k: freeze(v, True) for k, v in attributes.items()}
            for _, attributes in self._attributes
        ]
        self._structure = [
            (m, kind, dict(getattr(m, kind))) for m in reach.modules for kind in STRUCTURE
        ]
        self._places = [(p, p.get(), freeze(p.get(), True)) for p in reach.places]
        containers = [v for _, attributes in self._attributes for v in attributes.values()]
        containers += [value for _, value, _ in self._places]
        self._restore_containers = restorer([v for v in containers if is_container(v)])
        self._random = random.getstate()
        self._numpy = numpy.random.get_state(legacy=False)

    def write_buffers(self) -> None:
        """Turn buffers that were assigned a computed value into writes of the old ones.

        Until the forward is over the old tensor keeps its value: the forward may hold it.
        """
        for module, kind, entries in self._structure:
            for key, old in entries.items() if kind == "_buffers" else ():
                new = module._buffers.get(key)
                if new is not old and new is not None and old is not None and new.is_symbolic:
                    module._buffers[key] = old
                    with no_grad():
                        old.assign_(new.detach())

    def difference(self) -> str | None:
        """What the trace changed outside of tensors, or None."""
        for module, kind, entries in self._structure:
            now = getattr(module, kind)
            if list(now) != list(entries):
                return f"{kind[1:]} of {type(module).__name__}"
            for key, value in entries.items():
                if now[key] is not value:
                    return f"{kind[1:]} of {type(module).__name__}: {key}"
        for (module, _), frozen in zip(self._attributes, self._frozen, strict=True):
            now = {k: freeze(v, True) for k, v in plain_attributes(module).items()}
            for key in {**frozen, **now}:
                if frozen.get(key) != now.get(key):
                    return f"attribute {type(module).__name__}.{key}"
        for place, _, before in self._places:
            if freeze(place.get(), True) != before:
                return f"variable {place.name}"
        if random.getstate() != self._random:
            return "Python's random generator"
        state = numpy.random.get_state(legacy=False)
        if repr(state) != repr(self._numpy):
            return "NumPy's random generator"
        return None

    def restore(self) -> None:
        """Put everything back."""
        self._restore_containers()
        for module, kind, entries in self._structure:
            known = getattr(module, kind)
            if list(map(id, known.values())) != list(map(id, entries.values())):
                known.clear()
                known.update(entries)
        _C.bump_state()
        for module, attributes in self._attributes:
            for key in [k for k in plain_attributes(module) if k not in attributes]:
                del module.__dict__[key]
            module.__dict__.update(attributes)
        for place, value, _ in self._places:
            if place.get() is not value:
                place.put(value)
        random.setstate(self._random)
        numpy.random.set_state(self._numpy)


class _GeneratorMovedError(_C.TraceError):
    """A global generator moved: by the trace, or by another thread meanwhile."""


def trace_step(
    model: Module,
    loss_fn: Callable[..., Any],
    structures: list[Structure],
    leaves: list[Tensor],
    segments: int,
    has_aux: bool,
) -> Traced:
    """Trace and compile one signature, split into ``segments`` groups of the model's children.

    Raises: TraceError for what a trace cannot carry; whatever the user's own code raises. The
        model, its buffers, its attributes and the generators are then as before.
    """
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            return _trace(model, loss_fn, structures, leaves, segments, has_aux)
        except _GeneratorMovedError as error:
            if last or threading.active_count() == 1:
                raise _C.TraceError(str(error)) from None
    raise AssertionError("unreachable")


def _trace(
    model: Module,
    loss_fn: Callable[..., Any],
    structures: list[Structure],
    leaves: list[Tensor],
    segments: int,
    has_aux: bool,
) -> Traced:
    reach = Reach(model, loss_fn)
    before = _OutsideState(reach)
    called: dict[int, Module] = {}
    made: dict[int, Module] = {}
    recorder = _C.Recorder()
    try:
        with _observing(called, made):
            results, aux = _record(recorder, model, loss_fn, structures, leaves, segments, has_aux)
        before.write_buffers()
        with _observing(called, made):
            recorder.differentiate(results)
        trace = recorder.finish(results)
        changed = before.difference()
        if changed is not None:
            kind = _GeneratorMovedError if changed.endswith("generator") else _C.TraceError
            raise kind(
                f"make_step: the step changed {changed}, which a compiled run would not repeat; "
                "keep such state in a registered buffer, or compute it outside of the step"
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
            f"make_step: a module {type(unknown[0]).__name__} was called that no attribute, "
            "closure or global leads to; make it an attribute of the model"
        )
    lasting = [module for place, module in called.items() if place not in made]
    signature = Signature(reach, lasting, trace.captures)
    found = signature.captures()
    if found is None:
        raise _C.TraceError(
            "make_step: a tensor that the step reads stands in several places that were changed "
            "while the step ran; keep it in one attribute"
        )
    entry = _C.compile_step(trace, leaves, found)
    return Traced(entry, signature, num_targets, aux)


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


def _record(
    recorder: _C.Recorder,
    model: Module,
    loss_fn: Callable[..., Any],
    structures: list[Structure],
    leaves: list[Tensor],
    segments: int,
    has_aux: bool,
) -> tuple[list[Tensor], Structure | None]:
    """The results, the loss first, and the structure of the auxiliary ones."""
    proxies: dict[int, Tensor] = {}
    stand_ins = []
    for leaf in leaves:
        known = proxies.get(leaf._cell_id)
        stand_in = recorder.argument(leaf)
        stand_ins.append(known if known is not None else stand_in)
        proxies.setdefault(leaf._cell_id, stand_in)
    remaining = iter(stand_ins)
    arguments = [unflatten(s, lambda: next(remaining)) for s in structures]
    output = _forward_in_segments(recorder, model, arguments[0], segments)
    check_output(output)
    loss, aux = split_result(loss_fn(output, *arguments[1:]), has_aux)
    results = [loss]
    structure = flatten(aux, "aux", results) if has_aux else None
    return results, structure
