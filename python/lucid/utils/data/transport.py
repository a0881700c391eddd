"""Batches on their way from a worker's process: large tensors and arrays go by shared memory."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import sys
import threading
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy

from lucid._C import Tensor
from lucid.functions.tensor_methods import from_parts, to_array_parts

_MIN_SHARED = 1 << 16  # bytes: a pipe is as fast for less
_FOLDER = "/dev/shm"  # where Linux keeps shared memory; containers often give it little room


@dataclass(frozen=True)
class Packed:
    """A pickled value.

    Attributes:
        data: the pickle without its buffers. sizes: of the buffers, in bytes.
        block: name of the shared memory that holds the buffers, or None.
        inline: the buffers, if there is no such block.
        retired: name of a block that is gone.
    """

    data: bytes
    sizes: list[int]
    block: str | None = None
    inline: list[bytes] = field(default_factory=list)
    retired: str | None = None


class _Pickler(pickle.Pickler):
    """Leaves the elements of tensors and of plain arrays out of the pickle, in ``buffers``."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._take)
        self.buffers: list[pickle.PickleBuffer] = []
        self._own: set[int] = set()

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor:
            array, *rest = to_array_parts(value)
            return from_parts, (self._buffer(array), *rest, value.requires_grad)
        if type(value) is numpy.ndarray and value.dtype.kind in "biufc":
            return _copy_array, (self._buffer(value), value.dtype, value.shape)
        return NotImplemented

    def _buffer(self, array: numpy.ndarray[Any, Any]) -> pickle.PickleBuffer:
        flat = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
        buffer = pickle.PickleBuffer(flat.data)
        self._own.add(id(buffer))
        return buffer

    def _take(self, buffer: pickle.PickleBuffer) -> bool:
        if id(buffer) not in self._own:
            return True  # of another type, which might not copy it: into the pickle
        self.buffers.append(buffer)
        return False


def _copy_array(
    data: Any, dtype: numpy.dtype[Any], shape: tuple[int, ...]
) -> numpy.ndarray[Any, Any]:
    return numpy.frombuffer(data, dtype=dtype).reshape(shape).copy()


class Sender:
    """In a worker: packs values into blocks, which come back to be filled again."""

    def __init__(self) -> None:
        self._blocks: dict[str, SharedMemory] = {}

    def pack(self, value: Any, free: str | None) -> Packed:
        """The value, to be sent.

        Args:
            free: a block of this sender whose value was taken.
        """
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(value)
        parts = [buffer.raw() for buffer in pickler.buffers]
        sizes = [part.nbytes for part in parts]
        total = sum(sizes)
        retired = None
        if free is not None and self._blocks[free].size < total:
            _unlink(self._blocks.pop(free))
            retired, free = free, None
        if free is None and (total < _MIN_SHARED or not _has_room(total)):
            inline = [bytes(part) for part in parts]
            return Packed(file.getvalue(), sizes, inline=inline, retired=retired)
        block = SharedMemory(create=True, size=total) if free is None else self._blocks[free]
        self._blocks[block.name] = block
        assert block.buf is not None
        begin = 0
        for part in parts:
            block.buf[begin : begin + part.nbytes] = part
            begin += part.nbytes
        return Packed(file.getvalue(), sizes, block.name, retired=retired)


class Receiver:
    """In the main process: unpacks what one sender packed, and owns the blocks.

    Made before the sender's process starts: all processes then share one keeper of blocks. A
    worker with a keeper of its own would take its blocks with it when it ends. ``discard`` and
    ``close`` may be called by any thread.
    """

    def __init__(self) -> None:
        resource_tracker.ensure_running()
        self._blocks: dict[str, SharedMemory] = {}
        self._free: list[str] = []
        self._is_closed = False
        self._lock = threading.RLock()

    def free_block(self) -> str | None:
        """A block for the sender to fill again, or None."""
        return self._free.pop() if self._free else None

    def unpack(self, packed: Packed) -> Any:
        """The value; its elements are copies."""
        block = self._block_of(packed)
        if block is None:
            return pickle.loads(packed.data, buffers=packed.inline)
        assert block.buf is not None
        views = []
        begin = 0
        for size in packed.sizes:
            views.append(block.buf[begin : begin + size])
            begin += size
        try:
            return pickle.loads(packed.data, buffers=views)
        finally:
            for view in views:
                view.release()
            self._free.append(block.name)

    def discard(self, packed: Packed) -> None:
        """Nobody takes that value."""
        with self._lock, contextlib.suppress(FileNotFoundError):  # ``close`` freed it while it came
            block = self._block_of(packed)
            if block is not None:
                self._free.append(block.name)
            if self._is_closed:
                self.close()

    def close(self) -> None:
        """Free all blocks, now and whenever one is still to come."""
        with self._lock:
            self._is_closed = True
            self._free.clear()
            while self._blocks:
                _unlink(self._blocks.popitem()[1])

    def _block_of(self, packed: Packed) -> SharedMemory | None:
        with self._lock:
            retired = self._blocks.pop(packed.retired, None) if packed.retired else None
            if retired is not None:
                retired.close()
            if packed.block is None:
                return None
            if packed.block not in self._blocks:
                self._blocks[packed.block] = SharedMemory(packed.block)
            return self._blocks[packed.block]


def _unlink(block: SharedMemory) -> None:
    block.close()
    with contextlib.suppress(FileNotFoundError):  # the other side has freed it
        block.unlink()


def _has_room(size: int) -> bool:
    """Memory that is not there would end the process that writes to it."""
    if not sys.platform.startswith("linux"):
        return True
    return os.path.isdir(_FOLDER) and shutil.disk_usage(_FOLDER).free > 2 * size
