"""Memory of one GPU, for the arrays of programs and of eager calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.memory import SMALL, pack_offsets
from toolkit.backends.kernels import KernelTable
from toolkit.backends.memory import Memory
from toolkit.backends.pending_copy import PendingCopy
from toolkit.plans.operands import align_up

Array = Any
# Bytes of the widest load of a kernel.
ALIGNED = 16


class DeviceMemory(Memory):
    """Memory of one GPU.

    Args:
        device: the device.
        kernels: convert arrays to another dtype, and views to row-major order.
    """

    def __init__(self, device: Device, kernels: KernelTable) -> None:
        self.device = device
        self.kernels = kernels

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return self.device.allocate(shape, dtype, "an array")

    def on_shortage(self, release: Callable[[], None]) -> None:
        self.device.on_shortage(release)

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Array]:
        """Allocate arrays as `empty` does; small ones share one block of memory."""
        offsets, end = _pack_results(tuple(specs))
        if not end:
            return super().allocate_results(specs)
        block = self.empty((end,), "uint8")
        return [
            self.empty(*spec) if offset is None else self.view(block, offset, *spec)
            for offset, spec in zip(offsets, specs, strict=True)
        ]

    def allocate_aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate an array as `empty` does: the pool aligns all allocations."""
        return self.empty(shape, dtype)

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """Allocate the memory of a program's intermediate values.

        Raises:
            OutOfDeviceMemory: the message names the largest values.
        """
        return self.device.allocate((align_up(nbytes),), "uint8", "the arena", plan)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        return self.device.view(arena, offset, shape, dtype)

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """Return an array on this device; copy only if necessary."""
        if dtype is None:
            return self.device.place(value)
        if self.device.owns(value) and dtypes.name_of(value.dtype) != dtype:
            return self.kernels["cast"](value, dtype=dtype)
        return self.device.place(value, dtypes.numpy_dtype(dtype))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy to host memory; raise the error of an earlier out-of-range index."""
        if not self.device.owns(array):
            return np.asarray(array)
        return self.device.download(self.as_row_major(array))

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Start to copy arrays to the host on a separate stream."""
        return self.device.fetch(list(map(self.as_row_major, arrays)))

    def owns(self, array: Any) -> bool:
        """Return whether an array is in the memory of the device."""
        return self.device.owns(array)

    def adopt(self, array: Any) -> Array:
        """Copy an array of another library to this device, by DLPack or CUDA."""
        with self.device.failing():
            return self.device.adopt(array)

    def copy_array(self, array: Any) -> Array:
        """Return a copy of an array that has no other reference."""
        copy = self.empty(array.shape, dtypes.name_of(array.dtype))
        self.overwrite(copy, array)
        return copy

    def overwrite(self, target: Array, source: Any) -> None:
        """Start a copy of an array, from any device, into one on this device."""
        source = self.as_row_major(source)
        with self.device.scope(), self.device.failing():
            self.device.copy(self.address(target), self.address(source), target.nbytes)

    def as_row_major(self, array: Any) -> Array:
        """Return an array as steps expect it: on the device, row-major and aligned.

        Kernels load several elements at a time, so a view of some rows is copied if its
        first element is not aligned.
        """
        result = self.asarray(array)
        if result.flags.c_contiguous and self.device.address(result) % ALIGNED == 0:
            return result
        return self.kernels["stop_gradient"](result)

    def constant(self, array: Any) -> Array:
        """Copy a constant of a program to device memory."""
        return self.asarray(np.asarray(array, order="C"))

    def address(self, array: Array) -> int:
        """Return the device address of an array's first element."""
        return self.device.address(array)


@lru_cache(256)
def _pack_results(
    specs: tuple[tuple[tuple[int, ...], str], ...],
) -> tuple[list[int | None], int]:
    """Return the offsets of small arrays in one block (else None), and its size."""
    sizes = [math.prod(shape) * dtypes.itemsize(dtype) for shape, dtype in specs]
    small = [i for i, nbytes in enumerate(sizes) if nbytes <= SMALL]
    if len(small) < 2:
        return [None] * len(specs), 0
    offsets, end = pack_offsets([sizes[i] for i in small])
    by_index = dict(zip(small, offsets, strict=True))
    return [by_index.get(i) for i in range(len(specs))], end
