"""detect_anomaly: backwards that stop where a gradient becomes nan."""

from __future__ import annotations

from types import TracebackType

from lucid import _C

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled"]
__all__ += ["set_detect_anomaly"]

# Of the process, as the grad engine's: whether it is on, and whether nan is looked for.
_mode = (False, True)


def _set(mode: tuple[bool, bool]) -> None:
    global _mode
    _mode = mode
    _C._set_anomaly_mode(*mode)


def is_anomaly_enabled() -> bool:
    """True while anomalies are looked for."""
    return _mode[0]


def is_anomaly_check_nan_enabled() -> bool:
    """True if a nan in a gradient counts as one."""
    return _mode[1]


class set_detect_anomaly:
    """Turns the search on or off at once; as a context manager it puts the old mode back.

    While it is on, every operation that is recorded notes the line that made it, and a
    ``backward`` or ``grad`` that meets nan in a gradient raises AutogradError with the operation
    and that line, before any ``grad`` has changed. The gradients of a compiled step are checked
    as one: leave it uncompiled to find the operation. For debugging: each gradient is read.

    Args:
        mode: on or off.
        check_nan: False notes lines only.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._mode = (bool(mode), bool(check_nan))
        self._before = _mode
        self._previous: list[tuple[bool, bool]] = []
        _set(self._mode)

    def __enter__(self) -> None:
        self._previous.append(_mode if self._previous else self._before)
        _set(self._mode)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _set(self._previous.pop())


class detect_anomaly(set_detect_anomaly):
    """Context manager: inside, a gradient that becomes nan is an error; see
    :class:`set_detect_anomaly`."""

    def __init__(self, check_nan: bool = True) -> None:
        self._mode = (True, bool(check_nan))
        self._previous = []

    def __enter__(self) -> None:
        self._previous.append(_mode)
        _set(self._mode)
