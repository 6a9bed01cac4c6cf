"""Memory of batches that nobody has any more, used again for the next ones.

New memory costs more than what is copied to it: the system hands it over page by page,
and clears each.
"""

from __future__ import annotations

from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from toolkit.data.structure import Array

# Smaller arrays come from memory that the process keeps.
_LEAST_BYTES = 1 << 16
# Vectors like it, and so do copies: `rep movsb` of AMD's Zen 3 takes five times as long
# where it writes 16 bytes behind what it reads, within pages, as where two of NumPy's
# own arrays begin.
_ALIGNMENT = 64
# One batch is in use while the next one is made, and there may be several arrays.
_MOST = 4
# References to a block in a list while a loop looks at it.
_UNUSED = 3


class Spares:
    """Makes arrays, in the memory of earlier ones that are gone; for one thread.

    Example:
        >>> from toolkit.data.spares import Spares
        >>> spares = Spares()
        >>> array = spares.empty((256, 256), "float32")
        >>> address = array.ctypes.data
        >>> del array
        >>> spares.empty((256, 256), "float32").ctypes.data == address
        True
    """

    def __init__(self) -> None:
        self._blocks: list[Array] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array of any content."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < _LEAST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        # Whoever has an array, or a view of it, holds its block.
        block = self._block(nbytes + _ALIGNMENT)
        return np.ndarray(shape, dtype, block, -block.ctypes.data % _ALIGNMENT)

    def _block(self, nbytes: int) -> Array:
        """A block that nobody else has."""
        for block in self._blocks:
            if getrefcount(block) == _UNUSED and block.nbytes == nbytes:
                return block
        block = np.empty(nbytes, np.uint8)
        self._blocks = [*self._blocks[1 - _MOST :], block]
        return block
