"""Memory of arrays that nobody has any more, used again for the next ones.

New memory costs more than what is written to it: the system hands it over page by page,
and clears each.
"""

from __future__ import annotations

import sys
from collections import deque
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

# Vectors like it, and so do copies: `rep movsb` of AMD's Zen 3 takes five times as long
# where it writes 16 bytes behind what it reads, within pages, as where two of NumPy's
# own arrays begin.
_ALIGNMENT = 64
# References to a block that only a variable has.
_UNUSED = 2
# Of all that is kept one block may be this part: one that is as large as all others
# would be kept in their place, long after a table of embeddings is gone.
_MOST_OF_ALL = 4


class Spares:
    """Makes arrays, in the memory of earlier ones that are gone; for any thread.

    Args:
        most: blocks of memory that are kept. Of a pipeline one batch is in use while
            the next one is made, and there may be several arrays.
        nbytes: of all of them. Larger arrays than a quarter of it are not kept.
        least: bytes of an array; smaller ones come from memory that the process keeps.

    Example:
        >>> from toolkit.spares import Spares
        >>> spares = Spares()
        >>> array = spares.empty((256, 256), "float32")
        >>> address = array.ctypes.data
        >>> del array
        >>> spares.empty((256, 256), "float32").ctypes.data == address
        True
    """

    def __init__(
        self, most: int = 4, nbytes: int | None = None, least: int = 1 << 16
    ) -> None:
        self._blocks: deque[Any] = deque(maxlen=most)
        self._nbytes = sys.maxsize if nbytes is None else nbytes
        self._least, self._most = least, self._nbytes // _MOST_OF_ALL

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of any content."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        if not self._least <= nbytes <= self._most or dtype.hasobject:
            return np.empty(shape, dtype)
        block = self._taken(nbytes + _ALIGNMENT)
        if block is None:
            block = np.empty(nbytes + _ALIGNMENT, np.uint8)
            self._make_room(block.nbytes)
        # Whoever has an array, or a view of it, holds its block.
        array = np.ndarray(shape, dtype, block, -block.ctypes.data % _ALIGNMENT)
        self._blocks.append(block)
        return array

    def _taken(self, nbytes: int) -> Any:
        """A block that nobody else has; it is no longer among those that are kept.

        While it is looked at, no other thread, nor a signal's handler, finds it.
        """
        for _ in range(len(self._blocks)):
            try:
                block = self._blocks.popleft()
            except IndexError:
                break
            if block.nbytes == nbytes and getrefcount(block) == _UNUSED:
                return block
            self._blocks.append(block)
        return None

    def _make_room(self, nbytes: int) -> None:
        """Let go the blocks that have been there longest, for one more."""
        left = self._nbytes - nbytes
        while self._blocks and sum(block.nbytes for block in [*self._blocks]) > left:
            self._blocks.popleft()


# Of the results of programs and of eager operations, on the host.
RESULTS = Spares(most=64, nbytes=1 << 28, least=1 << 20)
