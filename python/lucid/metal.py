"""The Metal device of Apple's GPUs. Every function exists on every platform.

Work on ``device="metal"`` is submitted and runs beside Python; reading a tensor waits for it.
Where there is no device, the counters are 0 and there is nothing to wait for.
"""

from __future__ import annotations

from lucid import _C

__all__ = [
    "empty_cache",
    "get_device_name",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "synchronize",
]


def is_available() -> bool:
    """True if tensors can be moved to ``"metal"``."""
    return _C.metal_is_available()


def synchronize() -> None:
    """Wait for all work given to the device.

    Raises: the first error of that work that no reader of its results has met.
    """
    _C.metal_synchronize()


def memory_allocated() -> int:
    """Bytes that tensors on the device hold now."""
    return _C.metal_memory_allocated()


def max_memory_allocated() -> int:
    """High-water mark of ``memory_allocated``, in bytes."""
    return _C.metal_max_memory_allocated()


def reset_peak_memory_stats() -> None:
    """Start ``max_memory_allocated`` anew from what is in use now."""
    _C.metal_reset_peak_memory()


def empty_cache() -> None:
    """Give memory that is kept for later tensors back to the system."""
    _C.metal_empty_cache()


def get_device_name() -> str:
    """The device's name. Raises: DeviceUnavailableError where there is none."""
    return _C.metal_device_name()
