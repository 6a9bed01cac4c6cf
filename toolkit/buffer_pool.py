"""Buffer pool: memory of released arrays, reused for new arrays.

New memory costs more than writing to it: the system maps it page by page, and clears
each page.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

_Array = np.ndarray[Any, Any]

# Vector instructions need it, and copies too. On AMD Zen 3, `rep movsb` takes five
# times as long if the destination is 16 bytes after the source, modulo the page size,
# as with two NumPy arrays.
_ALIGNMENT = 64
# Reference count of a block that only one variable references.
_UNUSED_COUNT = 2
# One block may have at most this fraction (1/4) of the pool. A larger block would evict
# all others, and stay long after a large embedding is released.
_MAX_FRACTION = 4


class BufferPool:
    """A pool that allocates arrays in the memory of released ones; thread-safe.

    Args:
        max_blocks: maximum number of blocks. In a pipeline one batch is in use while
            the next one is computed, and a batch may have several arrays.
        nbytes: maximum size of the pool. Arrays larger than 1/4 of it are not pooled.
        min_nbytes: minimum bytes of an array; the allocator of the process already
            keeps smaller ones.

    Example:
        >>> from toolkit.buffer_pool import BufferPool
        >>> pool = BufferPool()
        >>> array = pool.empty((256, 256), "float32")
        >>> address = array.ctypes.data
        >>> del array
        >>> pool.empty((256, 256), "float32").ctypes.data == address
        True
    """

    def __init__(
        self, max_blocks: int = 4, nbytes: int | None = None, min_nbytes: int = 1 << 16
    ) -> None:
        self._blocks: deque[Any] = deque(maxlen=max_blocks)
        self._nbytes = sys.maxsize if nbytes is None else nbytes
        self.min_nbytes, self._max_nbytes = min_nbytes, self._nbytes // _MAX_FRACTION

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialized array."""
        return self.allocator(shape, dtype)()

    def allocator(
        self, shape: tuple[int, ...], dtype: DTypeLike
    ) -> Callable[[], _Array]:
        """Return a function that returns uninitialized arrays of a shape and dtype."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        if not self.min_nbytes <= nbytes <= self._max_nbytes or dtype.hasobject:
            return partial(np.empty, shape, dtype)
        return partial(self._allocate, nbytes, shape, dtype)

    def _allocate(
        self, nbytes: int, shape: tuple[int, ...], dtype: DTypeLike
    ) -> _Array:
        """Return an array in the memory of a block."""
        block = self._take_block(nbytes + _ALIGNMENT)
        if block is None:
            block = np.empty(nbytes + _ALIGNMENT, np.uint8)
            self._evict(block.nbytes)
        # An array, and each view of it, references its block.
        array = np.ndarray(shape, dtype, block, -block.ctypes.data % _ALIGNMENT)
        self._blocks.append(block)
        return array

    def _take_block(self, nbytes: int) -> Any:
        """Remove an unreferenced block from the pool and return it.

        During the check, no other thread or signal handler can take it.
        """
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()
            except IndexError:
                break
            if block.nbytes == nbytes and getrefcount(block) == _UNUSED_COUNT:
                return block
            self._blocks.append(block)
        return None

    def release_unused(self) -> None:
        """Release the blocks that no array uses."""
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()
            except IndexError:
                break
            if getrefcount(block) != _UNUSED_COUNT:
                self._blocks.append(block)

    def _evict(self, nbytes: int) -> None:
        """Release the oldest blocks, to make room for one more."""
        max_nbytes = self._nbytes - nbytes
        while (
            self._blocks and sum(block.nbytes for block in [*self._blocks]) > max_nbytes
        ):
            self._blocks.popleft()


# For results of programs and of eager operations, on the host.
RESULT_POOL = BufferPool(max_blocks=64, nbytes=1 << 28, min_nbytes=1 << 20)
_releases: list[Callable[[], None]] = [RESULT_POOL.release_unused]


def on_release(release: Callable[[], None]) -> None:
    """Call a function that releases spare memory in `release_spare_memory`.

    Args:
        release: the function.
    """
    _releases.append(release)


def release_spare_memory() -> None:
    """Return the spare memory of this process to the operating system.

    Functions that release or replace large arrays call it at their end. It takes less
    than a millisecond.
    """
    for release in _releases:
        release()
    if _trim_heap is not None:
        _trim_heap(0)


def _find_heap_trim() -> Callable[[int], int] | None:
    """Return the function that trims the heap of the C library, if it has one.

    The GNU C library keeps freed arrays of up to 32 MiB in the heap.
    """
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


_trim_heap: Callable[[int], int] | None = _find_heap_trim()
