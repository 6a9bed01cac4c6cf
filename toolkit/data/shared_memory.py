"""Memory that two processes share, for the arrays of elements on their way."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from typing import Any

from toolkit.data.pickling import dumps

ALIGN = 64
FIRST = 1 << 20  # bytes; a channel grows when an element needs more
SMALL = 1 << 14  # bytes: smaller elements go through the pipe whole


class Channel:
    """Memory for elements on their way in one direction: a file without a name."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = _nameless_file()
            os.ftruncate(fd, FIRST)
        self.fd: int = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)

    def view(self, size: int) -> mmap.mmap:
        """The memory, made larger if it is smaller than this."""
        if len(self._map) < size:
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size + size // 2)
            # The old map is not closed: arrays may still lie in it.
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
        return self._map

    def close(self) -> None:
        """Let go of the file; the memory goes when nobody looks at it any more."""
        fd, self.fd = self.fd, -1  # nobody else closes it meanwhile
        if fd >= 0:
            os.close(fd)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # not bounded by /dev/shm, which may be small
        return os.memfd_create("toolkit-data")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Exchange:
    """Elements between two processes, one at a time in each direction.

    Args:
        fds: of the channels to the worker and back, in the worker.
    """

    def __init__(self, fds: tuple[int, int] | None = None) -> None:
        self._channels = [Channel(fd) for fd in fds or (None, None)]
        self.fds: tuple[int, ...] = tuple(channel.fd for channel in self._channels)

    def put(self, direction: int, element: Any) -> tuple[bytes, list[tuple[int, int]]]:
        """What to send through the pipe for an element, whose arrays are put here."""
        buffers: list[pickle.PickleBuffer] = []
        data = dumps(element, buffers)
        raws = [buffer.raw() for buffer in buffers]
        if sum(raw.nbytes for raw in raws) < SMALL:
            return dumps(element) if raws else data, []
        places, at = [], 0
        for raw in raws:
            places.append((at, raw.nbytes))
            at += raw.nbytes + -raw.nbytes % ALIGN
        memory = self._channels[direction].view(at)
        for (start, size), raw in zip(places, raws, strict=True):
            memory[start : start + size] = raw
        return data, places

    def get(self, direction: int, message: Any) -> Any:
        """The element, whose arrays are copied from here."""
        data, places = message
        if not places:
            return pickle.loads(data)
        memory = self._channels[direction].view(sum(places[-1]))
        copies = [bytearray(memory[start : start + size]) for start, size in places]
        return pickle.loads(data, buffers=copies)

    def close(self) -> None:
        """Let go of the memory."""
        for channel in self._channels:
            channel.close()
