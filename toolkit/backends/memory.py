"""Memory of a backend: arrays, arenas, copies and addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.pending_copy import PendingCopy
from toolkit.plans.operands import ALIGNMENT

Array = Any


class Memory:
    """Memory of the host, for NumPy arrays; a subclass describes another memory."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate an uninitialized array."""
        return np.empty(shape, dtypes.numpy_dtype(dtype))

    def on_shortage(self, release: Callable[[], None]) -> None:
        """Register a method that frees memory when memory is short."""

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Array]:
        """Allocate arrays as `empty` does, for the results of one call."""
        return [self.empty(*spec) for spec in specs]

    def allocators(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Callable[[], Array]]:
        """Return functions that allocate the results of one call, one for each spec."""
        return [partial(self.empty, *spec) for spec in specs]

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """Return `value` as an array; copy only if necessary; None keeps its dtype."""
        return np.asarray(value, None if dtype is None else dtypes.numpy_dtype(dtype))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """Return the content as a NumPy array, without a copy of shared memory."""
        return np.asarray(array)

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Start to copy arrays to the host; an accelerator continues to compute."""
        return PendingCopy(lambda: list(map(self.to_numpy, arrays)))

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """Allocate a 64-byte aligned 1-D uint8 array; `plan` describes its content."""
        block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + nbytes]

    def allocate_aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate as `empty` does, 64-byte aligned: no vector crosses a cache line."""
        nbytes = math.prod(shape) * dtypes.itemsize(dtype)
        return self.view(self.arena(nbytes), 0, shape, dtype)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """Return an array on the bytes of `arena` that start at `offset`."""
        return np.ndarray(shape, dtypes.numpy_dtype(dtype), arena, offset)

    def owns(self, array: Any) -> bool:
        """Return whether an array is in the memory of this backend."""
        return type(array) is np.ndarray

    def adopt(self, array: Any) -> Array:
        """Copy another library's array that is on this backend's device."""
        return np.array(array)

    def copy_array(self, array: Any) -> Array:
        """Return a copy without other references, in this backend's memory."""
        copy = self.allocate_aligned(array.shape, dtypes.name_of(array.dtype))
        copy[...] = self.as_row_major(array)
        return copy

    def overwrite(self, target: Array, source: Any) -> None:
        """Copy an array, from any device, over an array of this backend."""
        target[...] = self.as_row_major(source)

    def as_row_major(self, array: Any) -> Array:
        """Return an array for generated code: in this backend's memory, row-major."""
        if type(array) is np.ndarray and array.flags.c_contiguous:
            return array
        return np.array(to_host(array), order="C")

    def constant(self, array: Any) -> Array:
        """Return a constant of a program, given as a NumPy array."""
        return np.asarray(array, order="C")

    def address(self, array: Array) -> int:
        """Return the address of an array's first byte."""
        return int(array.ctypes.data)


# The memories in use outside the host's memory.
device_memories: list[Memory] = []


def memory_of(array: Any) -> Memory | None:
    """Return the memory that holds an array; None for the host's memory."""
    if array is None or type(array) is np.ndarray:
        return None
    return next((memory for memory in device_memories if memory.owns(array)), None)


def to_host(array: Any) -> Array:
    """Return an array as a NumPy array, copied from its device if necessary."""
    memory = memory_of(array)
    return np.asarray(array) if memory is None else memory.to_numpy(array)
