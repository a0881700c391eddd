"""diagnose: what a function does, operation by operation, and what of it can be compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.compile.entries import Compiled, lasting_reason
from lucid.compile.function import CompiledFunction
from lucid.compile.fused import FusedStep
from lucid.compile.module import CompiledModule
from lucid.compile.outside import Before
from lucid.compile.report import DiagnosisReport, OpInfo
from lucid.compile.step import Step
from lucid.compile.tracing import Subject, trace
from lucid.compile.tree import Structure
from lucid.nn.modules.module import Module

__all__ = ["DiagnosisReport", "OpInfo", "diagnose"]


def diagnose(
    fn: Module | Callable[..., Any], *example_inputs: Any, device: str | _C.device | None = None
) -> DiagnosisReport:
    """List every operation of a function: its line, types, gradient and cost, and what is compiled.

    The function is traced on symbolic tensors and compiled as its first call would be, and
    parameters, buffers, gradients, generators and attributes stay as they are. No number is
    computed, unless the trace is refused: the function may fill caches, and is called once to see
    what it does then. A function that cannot be compiled gives a report too: what it recorded
    until it was refused, and the operation, line, reason and remedy.

    Args:
        fn: a module, a function of tensors (a closure such as ``lambda: loss_fn(model(x), t)``
            as well), or what ``make_step`` or ``lucid.compile`` returned: the reason is then the
            text that its call with ``fallback="error"`` raises.
        example_inputs: arguments of one call; only their shapes, dtypes and devices count.
        device: asks the backend of another device than that of the inputs whether it can run the
            operations and their gradients. Where that device does not exist it is unknown.

    Returns: :class:`DiagnosisReport`.
    Raises: ArgumentTypeError if ``fn`` cannot be called or an input is no tree of tensors;
        UnsupportedError for a fused step; TraceError inside of a compiled step; whatever the
        function itself raises where it is wrong in eager code, too.
    """
    compiled = _compiled(fn)
    asked = None if device is None else _C.device(device).type
    if _C.is_tracing():
        raise _C.TraceError("diagnose: called inside a compiled step; call it outside of the step")
    leaves: list[Tensor] = []
    names = compiled._names(example_inputs)
    structures = compiled._checked(names, example_inputs, leaves)
    subject = compiled._subject(structures, leaves)
    found = _Found(subject)
    before = Before(subject.roots, example_inputs, leaves)
    try:
        found.trace(structures, leaves)
        if isinstance(found.error, _C.TraceError) and before.is_whole:
            found = _after_a_call(compiled, example_inputs, before, found, (structures, leaves))
    finally:
        before.restore()
    own = leaves[0].device.type if leaves else None
    return found.report(isinstance(compiled, Step), asked, own or "cpu")


def _compiled(fn: Any) -> Compiled:
    """The compiled form of what is diagnosed, with nothing compiled yet."""
    if isinstance(fn, CompiledModule):
        return fn._calls
    if isinstance(fn, FusedStep):
        raise _C.UnsupportedError(
            "diagnose: a fused step cannot be diagnosed; give it make_step(model, loss_fn), whose "
            "forward and backward are the same"
        )
    if isinstance(fn, Compiled):
        return fn
    if isinstance(fn, type) or not callable(fn):
        kind = f"the class {fn.__name__}" if isinstance(fn, type) else type(fn).__name__
        raise _C.ArgumentTypeError(
            f"diagnose: fn must be a module or a function: got {kind}; make an instance first"
        )
    return CompiledFunction(fn, False, "error")


def _after_a_call(
    compiled: Compiled,
    args: tuple[Any, ...],
    before: Before,
    first: _Found,
    given: tuple[list[Structure], list[Tensor]],
) -> _Found:
    """What is found once an eager call has filled the caches, as the first call would do it."""
    second = _Found(compiled._subject(*given))
    try:
        compiled._begin_eagerly(args)
        if before.difference() is None:
            return first
        second.trace(*given)
    except Exception:  # it is no better in eager code: the reason is the first one
        return first
    assert first.error is not None
    is_same = second.error is not None and lasting_reason(first.error, second.error) is first.error
    return first if is_same else second


class _Found:
    """One trace of a subject, and how it ended."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._recorder: _C.Recorder | None = None
        self._is_recorded = False  # the function returned
        self.error: Exception | None = None

    def trace(self, structures: list[Structure], leaves: list[Tensor]) -> None:
        """Trace and compile; keeps what refuses to be compiled."""
        subject = dataclasses.replace(self._subject, record=self._record, recorder=self._keeping)
        try:
            trace(subject, structures, leaves)
        except (_C.TraceError, _C.UnsupportedError) as error:
            self.error = error
        except Exception as error:
            if not self._noted():
                raise
            self.error = error  # it may come of what was refused before

    def _keeping(self, what: str) -> _C.Recorder:
        self._recorder = _C.Recorder(what, keeps=True)
        self._is_recorded = False
        return self._recorder

    def _record(
        self, recorder: _C.Recorder, arguments: list[Any]
    ) -> tuple[list[Tensor], Structure | None]:
        results = self._subject.record(recorder, arguments)
        self._is_recorded = True
        return results

    def _noted(self) -> list[tuple[str, int]]:
        if self._recorder is None:
            return []
        refusals: list[tuple[str, int]] = self._recorder.diagnose(False, None)["refusals"]
        return refusals

    def report(self, is_step: bool, asked: str | None, own: str) -> DiagnosisReport:
        """The rows of the trace, and the refusals at their places among them."""
        assert self._recorder is not None
        # What has been compiled need not be asked again.
        is_asked = asked is not None or self.error is not None
        found = self._recorder.diagnose(is_step, (asked or own) if is_asked else None)
        reasons = [text for text, _ in found["refusals"]]
        refused = [(count, _refused(text)) for text, count in found["refusals"]]
        rows = [_row(row, found["unavailable"]) for row in found["rows"]]
        if self.error is not None:
            text = str(self.error)
            reasons.append(text)
            if not self._is_recorded or not _mark(rows, text):
                refused.append((len(rows), _refused(text)))
        for count, row in reversed(refused):
            if row.op != self._subject.what:
                rows.insert(count, row)
        return DiagnosisReport(
            ops=tuple(dataclasses.replace(row, index=i) for i, row in enumerate(rows)),
            device=asked or own,
            reasons=tuple(reasons),
            unavailable=found["unavailable"] or None,
            complete=self._is_recorded,
        )


def _parts(text: str) -> tuple[str, str, str]:
    """What a message says, and the file and line at its end."""
    message, _, place = text.partition("\n  at ")
    file, _, line = place.partition("\n")[0].rpartition(":")
    return message, file, line


def _refused(text: str) -> OpInfo:
    """The row of an operation that was refused before it was recorded."""
    message, file, line = _parts(text)
    return OpInfo(
        op=message.partition(":")[0],
        file=file,
        line=int(line) if line.isdigit() else 0,
        compiled=False,
        reason=message,
    )


def _mark(rows: list[OpInfo], text: str) -> bool:
    """Mark the recorded operations that a message of the compiler names; False for none."""
    message, file, line = _parts(text)
    is_found = False
    for i, row in enumerate(rows):
        is_here = not file or (row.file, str(row.line)) == (file, line)
        if row.op == message.partition(":")[0] and is_here:
            rows[i] = dataclasses.replace(row, compiled=False, reason=message)
            is_found = True
    return is_found


def _row(row: dict[str, Any], unavailable: str) -> OpInfo:
    inputs, outputs = row["inputs"], row["outputs"]
    gap = row["gap"] or unavailable or None
    return OpInfo(
        op=row["op"],
        file=row["file"],
        line=row["line"],
        compiled=None if unavailable else not row["gap"],
        reason=None if gap is None else _parts(gap)[0],
        attributes=row["attributes"],
        input_dtypes=tuple(dtype for dtype, _ in inputs),
        input_shapes=tuple(shape for _, shape in inputs),
        output_dtypes=tuple(dtype for dtype, _ in outputs),
        output_shapes=tuple(shape for _, shape in outputs),
        gradient=row["gradient"],
        has_rule=row["has_rule"],
        flops=row["flops"],
        bytes=row["bytes"],
        backward_flops=row["backward_flops"],
        backward_bytes=row["backward_bytes"],
        backward_ops=tuple(row["backward_ops"]),
        effort=row["effort"],
        removed_by=row["removed_by"] or None,
    )
