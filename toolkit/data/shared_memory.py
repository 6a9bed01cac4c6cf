"""Shared memory for the transfer of element arrays between two processes."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from typing import Any

from toolkit.data.pickling import dumps

ALIGN = 64
INITIAL_SIZE = 1 << 20  # bytes; the initial size of a channel, which can grow
MAX_INLINE_SIZE = 1 << 14  # bytes: smaller elements use only the pipe


class Channel:
    """Shared memory for one direction of transfer: an anonymous file."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = _nameless_file()
            os.ftruncate(fd, INITIAL_SIZE)
        self.fd: int = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)

    def view(self, size: int) -> mmap.mmap:
        """Return the memory, extended to at least this size."""
        if len(self._map) < size:
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size + size // 2)
            # The old map stays open: arrays can still refer to it.
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
        return self._map

    def close(self) -> None:
        """Close the file; the memory is freed after the last view."""
        fd, self.fd = self.fd, -1  # prevents a second close
        if fd >= 0:
            os.close(fd)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # /dev/shm can be small
        return os.memfd_create("toolkit-data")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Exchange:
    """Transfer of elements between two processes, one at a time in each direction.

    Args:
        fds: in the worker, the file descriptors of the channels to and from the worker.
    """

    def __init__(self, fds: tuple[int, int] | None = None) -> None:
        self._channels = [Channel(fd) for fd in fds or (None, None)]
        self.fds: tuple[int, ...] = tuple(channel.fd for channel in self._channels)

    def put(self, direction: int, element: Any) -> tuple[bytes, list[tuple[int, int]]]:
        """Store the arrays of an element and return the message for the pipe."""
        buffers: list[pickle.PickleBuffer] = []
        data = dumps(element, buffers)
        raws = [buffer.raw() for buffer in buffers]
        if sum(raw.nbytes for raw in raws) < MAX_INLINE_SIZE:
            return dumps(element) if raws else data, []
        locations, at = [], 0
        for raw in raws:
            locations.append((at, raw.nbytes))
            at += raw.nbytes + -raw.nbytes % ALIGN
        memory = self._channels[direction].view(at)
        for (start, size), raw in zip(locations, raws, strict=True):
            memory[start : start + size] = raw
        return data, locations

    def get(self, direction: int, message: Any) -> Any:
        """Return the element of a message, with copies of its arrays."""
        data, locations = message
        if not locations:
            return pickle.loads(data)
        memory = self._channels[direction].view(sum(locations[-1]))
        copies = [bytearray(memory[start : start + size]) for start, size in locations]
        return pickle.loads(data, buffers=copies)

    def close(self) -> None:
        """Release the memory."""
        for channel in self._channels:
            channel.close()
