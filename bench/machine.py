"""What the machine can do at most: FLOP/s in registers and bytes/s, measured by machine.cpp."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).resolve().with_name("machine.cpp")
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
_MOST_BYTES = 128 << 20  # a larger working set is read no slower
_LEAST_PASSED_BYTES = 16 << 20  # a round moves at least so much
_ROUNDS = 3


class MachineError(Exception):
    """The limits cannot be measured; the message says why."""


class Machine:
    """FLOP/s and bytes/s of the machine, as the best that was seen so far."""

    def __init__(self, threads: int) -> None:
        """Compiles the loops. Raises: MachineError without a C++ compiler."""
        self._threads = threads
        self._library = _compiled()
        self._library.machine_flops.restype = ctypes.c_double
        self._library.machine_bytes.restype = ctypes.c_double

    def flops_per_second(self) -> float:
        """Single-precision operations a second, a multiply-add counted as two."""
        return float(self._library.machine_flops(self._threads, _ROUNDS))

    def bytes_per_second(self, working_set: int) -> float:
        """Bytes read or written a second, over arrays of so many bytes in all."""
        size = min(max(working_set, 1 << 12), _MOST_BYTES)
        passes = max(1, _LEAST_PASSED_BYTES // size)
        number = self._library.machine_bytes(self._threads, ctypes.c_int64(size), passes, _ROUNDS)
        return float(number)


def _compiled() -> ctypes.CDLL:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None or sys.platform == "win32":
        raise MachineError(f"no C++ compiler: none of {', '.join(_COMPILERS)} on PATH")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "machine.so")
        command = [compiler, *_FLAGS, str(_SOURCE), "-pthread", "-o", file]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise MachineError(f"{compiler} failed: {result.stderr.strip().splitlines()[-1]}")
        return ctypes.CDLL(file)
