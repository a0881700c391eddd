"""What diagnose returns: rows of operations, their totals, and a table to read."""

from __future__ import annotations

import dataclasses
import linecache
import os
from collections.abc import Sequence
from typing import Any

from lucid import _C

__all__ = ["DiagnosisReport", "OpInfo"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class OpInfo:
    """One operation of a diagnosed function.

    Costs are counts that follow from the operation and its shapes, no measurements: ``flops`` with
    a multiplication and an addition as two, and a function like exp as several; ``bytes`` read and
    written, each operand once. They are None where the operation was refused, those of the
    backward also where the trace broke off. ``effort`` weighs flops and bytes, forward and
    backward, against each other, for sorting.
    """

    op: str
    #: The user's line; "" and 0 if no line of the user's was running.
    file: str
    line: int
    #: None where the device cannot be asked.
    compiled: bool | None
    #: Why it is not compiled, with the remedy.
    reason: str | None = None
    index: int = 0
    attributes: str = ""
    #: None for an optional input that is absent.
    input_dtypes: tuple[_C.dtype | None, ...] = ()
    input_shapes: tuple[Shape | None, ...] = ()
    output_dtypes: tuple[_C.dtype, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    #: "flows" through; "none": nothing that needs one goes in; "stops": detached, made under
    #: no_grad or no floating result; "missing": needed, but there is no rule; "unknown".
    gradient: str = "unknown"
    #: Is there a gradient rule? None for an operation that was refused.
    has_rule: bool | None = None
    flops: float | None = None
    bytes: float | None = None
    #: What the gradient rule appends, before the passes simplify it.
    backward_flops: float | None = None
    backward_bytes: float | None = None
    backward_ops: tuple[str, ...] = ()
    effort: float | None = None
    #: The pass that dropped, merged or rewrote it ("drop_dead", "merge_common", ...).
    removed_by: str | None = None

    @property
    def at(self) -> str:
        """``file:line``, or ""."""
        return f"{self.file}:{self.line}" if self.file else ""

    def to_dict(self) -> dict[str, Any]:
        """Its fields in types that JSON knows; dtypes by name."""
        result: dict[str, Any] = {**dataclasses.asdict(self), "at": self.at}
        for field in ("input_dtypes", "output_dtypes"):
            result[field] = [None if d is None else d.name for d in getattr(self, field)]
        for field in ("input_shapes", "output_shapes"):
            result[field] = [None if s is None else list(s) for s in getattr(self, field)]
        result["backward_ops"] = list(self.backward_ops)
        return result


@dataclasses.dataclass(frozen=True)
class DiagnosisReport:
    """What :func:`lucid.compile.diagnose` found. ``str(report)`` is a table."""

    #: In the order in which they were recorded; refused operations stand where they were met.
    ops: tuple[OpInfo, ...]
    device: str
    #: Why the function cannot be compiled, first met first, as its call would raise it.
    reasons: tuple[str, ...] = ()
    #: Why the device could not be asked what it can run.
    unavailable: str | None = None
    #: False if the function was refused on its way: what comes after that line is unknown.
    complete: bool = True

    @property
    def compiled(self) -> bool | None:
        """True if all of it is compiled; None if that is unknown."""
        if self.reasons or any(row.compiled is False for row in self.ops):
            return False
        return None if self.unavailable else True

    @property
    def reason(self) -> str | None:
        """Why it is not compiled, or why that is unknown; None if it is compiled."""
        if self.reasons:
            return self.reasons[0]
        for row in self.ops:
            if row.compiled is False:
                return f"{row.reason}\n  at {row.at}" if row.at else row.reason
        return self.unavailable

    @property
    def remedy(self) -> str | None:
        """What to do about the reason."""
        message = (self.reason or "").partition("\n")[0]
        return message.rpartition("; ")[2] if "; " in message else None

    @property
    def flops(self) -> float:
        """Floating-point operations of one forward, before the passes."""
        return sum(row.flops or 0.0 for row in self.ops)

    @property
    def bytes(self) -> float:
        """Bytes that one forward reads and writes, before the passes."""
        return sum(row.bytes or 0.0 for row in self.ops)

    @property
    def backward_flops(self) -> float | None:
        """Floating-point operations of one backward; None if a part is unknown."""
        return _total([row.backward_flops for row in self.ops])

    @property
    def backward_bytes(self) -> float | None:
        """Bytes that one backward reads and writes; None if a part is unknown."""
        return _total([row.backward_bytes for row in self.ops])

    def by_line(self) -> list[dict[str, Any]]:
        """The operations summed up by the user's line, the most work first.

        Returns: dicts of ``at``, ``file``, ``line``, ``source`` (the text of the line), ``ops``
            (how often each operation stands there), ``flops``, ``bytes``, ``backward_flops``,
            ``backward_bytes`` (None if unknown) and ``compiled``.
        """
        lines: dict[str, list[OpInfo]] = {}
        for row in self.ops:
            lines.setdefault(row.at, []).append(row)
        ordered = sorted(lines.values(), key=lambda rows: -sum(map(_effort, rows)))
        return [_line(rows) for rows in ordered]

    def to_dict(self) -> dict[str, Any]:
        """The whole report in types that JSON knows."""
        totals = ("flops", "bytes", "backward_flops", "backward_bytes")
        heads = ("device", "compiled", "reason", "remedy", "unavailable", "complete")
        result = {name: getattr(self, name) for name in (*heads, *totals)}
        result["reasons"] = list(self.reasons)
        result["ops"] = [row.to_dict() for row in self.ops]
        result["by_line"] = self.by_line()
        return result

    def summary(self, top: int | None = None) -> str:
        """A table of the operations; with ``top`` only that many, the most work first.

        Raises: UserError if ``top`` is no positive number.
        """
        rows = list(self.ops)
        if top is not None:
            if not isinstance(top, int) or isinstance(top, bool) or top < 1:
                raise _C.UserError(f"summary: top must be a positive integer: got {top!r}")
            rows = sorted(rows, key=lambda row: -_effort(row))[:top]
        return "\n".join([*self._heading(), *_table(rows)])

    def __str__(self) -> str:
        return self.summary()

    def _heading(self) -> list[str]:
        verdict = {True: "compiled", False: "not compiled", None: "unknown if compiled"}
        lines = [f"{len(self.ops)} operations on {self.device}: {verdict[self.compiled]}"]
        reasons = self.reasons or tuple(filter(None, (self.reason,)))
        lines += [f"  {reason}" for reason in reasons]
        if not self.complete:
            lines.append("  what comes after that line is unknown")
        backward = (
            "backward unknown"
            if self.backward_flops is None
            else f"backward {_count(self.backward_flops)}FLOP, {_count(self.backward_bytes)}B"
        )
        so_far = "" if self.complete else " so far"
        forward = f"forward {_count(self.flops)}FLOP, {_count(self.bytes)}B{so_far}"
        lines.append(f"  {forward}; {backward}")
        return lines


def _total(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return float(sum(known)) if len(known) == len(parts) else None


def _effort(row: OpInfo) -> float:
    return row.effort or 0.0


def _line(rows: list[OpInfo]) -> dict[str, Any]:
    """The rows of one line as one."""
    first = rows[0]
    ops: dict[str, int] = {}
    for row in rows:
        ops[row.op] = ops.get(row.op, 0) + 1
    states = [row.compiled for row in rows]
    return {
        "at": first.at,
        "file": first.file,
        "line": first.line,
        "source": linecache.getline(first.file, first.line).strip() if first.file else "",
        "ops": ops,
        "flops": sum(row.flops or 0.0 for row in rows),
        "bytes": sum(row.bytes or 0.0 for row in rows),
        "backward_flops": _total([row.backward_flops for row in rows]),
        "backward_bytes": _total([row.backward_bytes for row in rows]),
        "compiled": False if False in states else None if None in states else True,
    }


# ---------------------------------------------------------------- the table


def _count(number: float | None) -> str:
    """A number with three digits and a unit: ``1.23 M``."""
    if number is None:
        return "?"
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or unit == "T":
            break
        number /= 1000
    return f"{number:.3g} {unit}"


def _types(dtypes: Sequence[_C.dtype | None], shapes: Sequence[Shape | None]) -> str:
    pairs = zip(dtypes, shapes, strict=True)
    return ", ".join("-" if d is None else f"{d.name}{list(s or ())}" for d, s in pairs)


def _note(row: OpInfo) -> str:
    if row.compiled is False:
        return "REFUSED"
    notes = ["unknown"] if row.compiled is None else []
    if row.removed_by is not None:
        notes.append(f"gone: {row.removed_by}")
    return ", ".join(notes)


def _table(rows: list[OpInfo]) -> list[str]:
    """Aligned columns under a head; numbers to the right."""
    head = ("", "operation", "at", "inputs", "outputs", "gradient", "FLOP", "B")
    cells = [(*head, "back FLOP", "back B", "")]
    for row in rows:
        place = f"{os.path.basename(row.file)}:{row.line}" if row.file else ""
        cells.append(
            (
                str(row.index),
                row.op,
                place,
                _types(row.input_dtypes, row.input_shapes),
                _types(row.output_dtypes, row.output_shapes),
                row.gradient,
                _count(row.flops),
                _count(row.bytes),
                _count(row.backward_flops),
                _count(row.backward_bytes),
                _note(row),
            )
        )
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    is_number = [i == 0 or 6 <= i <= 9 for i in range(len(widths))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in cells
    ]
