"""What a measured process does to itself: its resident high-water mark and its priority."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def reset_peak() -> None:
    """Makes the resident high-water mark start anew where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the mark stays that of importing, which a small workload may not exceed


def peak_bytes() -> int:
    """The resident high-water mark."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def be_realtime() -> None:
    """Lets this thread, and those it starts from now on, go before all ordinary programs."""
    if not hasattr(os, "sched_setscheduler"):
        raise OSError("real-time scheduling is for Linux only")
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
