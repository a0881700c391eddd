"""Batches on their way from a worker's process: large tensors and arrays go by shared memory."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import secrets
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy

from lucid._C import Tensor
from lucid.functions.tensor_methods import from_parts, to_array_parts

_MIN_SHARED = 1 << 16  # bytes: a pipe is as fast for less
# Freed blocks that the frames of an interrupt still read: closed with a later one.
_still_read: list[SharedMemory] = []
_FOLDER = "/dev/shm"  # where Linux keeps shared memory; containers often give it little room


@dataclass(frozen=True)
class Packed:
    """A pickled value.

    Attributes:
        data: the pickle without its buffers. sizes: of the buffers, in bytes.
        block: name of the shared memory that holds the buffers, or None.
        version: how often memory of that name was made.
        inline: the buffers, if there is no such block.
    """

    data: bytes
    sizes: list[int]
    block: str | None = None
    version: int = 0
    inline: list[bytes] = field(default_factory=list)


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
    """In a worker: packs values into blocks, whose names the receiver lends it."""

    def __init__(self) -> None:
        self._blocks: dict[str, SharedMemory] = {}
        self._versions: Counter[str] = Counter()

    def pack(self, value: Any, name: str) -> Packed:
        """The value, to be sent; large parts go in the block ``name``, which is made if need be."""
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(value)
        parts = [buffer.raw() for buffer in pickler.buffers]
        sizes = [part.nbytes for part in parts]
        block = self._block(name, sum(sizes))
        if block is None:
            return Packed(file.getvalue(), sizes, inline=[bytes(part) for part in parts])
        assert block.buf is not None
        begin = 0
        for part in parts:
            block.buf[begin : begin + part.nbytes] = part
            begin += part.nbytes
        return Packed(file.getvalue(), sizes, name, self._versions[name])

    def _block(self, name: str, size: int) -> SharedMemory | None:
        """The block of this name with room for ``size`` bytes; None if it is not worth one."""
        block = self._blocks.get(name)
        if block is not None and block.size < size:
            _unlink(self._blocks.pop(name))
            block = None
        if block is None and size >= _MIN_SHARED and _has_room(size):
            block = self._blocks[name] = SharedMemory(name, create=True, size=size)
            self._versions[name] += 1
        return block


class Receiver:
    """In the main process: unpacks what one sender packed, and owns the blocks.

    It names the blocks, so that it can free those of a process that ended before it told of them.
    Made before the sender's process starts: all processes then share one keeper of blocks. A
    worker with a keeper of its own would take its blocks with it when it ends.
    """

    def __init__(self) -> None:
        resource_tracker.ensure_running()
        self._names: list[str] = []
        self._free: list[str] = []
        self._blocks: dict[str, tuple[int, SharedMemory]] = {}

    def lend_block(self) -> str:
        """The name of a block for the sender to fill."""
        if self._free:
            return self._free.pop()
        self._names.append(f"psm_{os.getpid():x}_{secrets.token_hex(6)}")
        return self._names[-1]

    def take_back(self, name: str) -> None:
        """What the block holds has been unpacked, or nobody takes it."""
        self._free.append(name)

    def unpack(self, packed: Packed) -> Any:
        """The value; its elements are copies."""
        if packed.block is None:
            return pickle.loads(packed.data, buffers=packed.inline)
        block = self._block(packed.block, packed.version)
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
                with contextlib.suppress(BufferError):  # an interrupt's frames still read it
                    view.release()

    def close(self) -> None:
        """Free all blocks. The sender's process has ended."""
        for name in self._names:
            _, block = self._blocks.pop(name, (0, None))
            with contextlib.suppress(FileNotFoundError, ValueError):  # not made, or not yet whole
                _unlink(block or SharedMemory(name))
        self._names.clear()
        self._free.clear()

    def _block(self, name: str, version: int) -> SharedMemory:
        known, block = self._blocks.get(name, (0, None))
        if block is None or known != version:
            if block is not None:
                block.close()
            block = SharedMemory(name)
            self._blocks[name] = (version, block)
        return block


def _unlink(block: SharedMemory) -> None:
    block.unlink()
    _still_read.append(block)
    _still_read[:] = [one for one in _still_read if not _closes(one)]


def _closes(block: SharedMemory) -> bool:
    try:
        block.close()
    except BufferError:
        return False
    return True


def _has_room(size: int) -> bool:
    """Memory that is not there would end the process that writes to it."""
    if not sys.platform.startswith("linux"):
        return True
    return os.path.isdir(_FOLDER) and shutil.disk_usage(_FOLDER).free > 2 * size
