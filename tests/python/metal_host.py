"""What the test double of Metal tells of itself, and what it can be asked to do."""

from __future__ import annotations

import ctypes
import functools

from lucid import _C


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(_C.__file__)


def is_host() -> bool:
    """True if this build runs on the double, not on a GPU."""
    return hasattr(_library(), "metalhost_num_compilations")


def count(name: str) -> int:
    """A count without arguments: ``num_compilations``, ``num_package_loads``, ``live_objects``."""
    function = getattr(_library(), f"metalhost_{name}")
    function.restype = ctypes.c_long
    return int(function())


def ask(name: str, *arguments: int | bytes) -> None:
    """Calls a hook that returns nothing: ``rearrange_packages``, ``fail_next_command_buffer``."""
    getattr(_library(), f"metalhost_{name}")(*arguments)


class _Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_long)
        for name in (
            "buffers",
            "command_queues",
            "command_buffers",
            "graphs",
            "tensors",
            "tensor_data",
            "executables",
            "others",
        )
    ]


def live_objects() -> dict[str, int]:
    """Objects of each kind that are alive."""
    function = _library().metalhost_live_object_counts
    function.restype = _Counts
    counts = function()
    return {name: int(getattr(counts, name)) for name, _ in _Counts._fields_}
