"""Code generation that product kernels share: the table, addresses, and masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.math.narrow import convert


class Batch(NamedTuple):
    """An axis of a batch: its extent, and the operands' strides."""

    extent: Number
    a: Number
    b: Number


# Lines that share a base pointer: x86 addressing adds 0, 1, 2 or 4 times a stride.
LINES_PER_POINTER = 5


def line_addresses(
    pointers: Sequence[Pointer],
    count: int,
    stride: Number,
    triple_stride: Number,
    every: int = LINES_PER_POINTER,
) -> Iterator[Pointer]:
    """Yield the addresses of lines, of which one in `every` has a pointer."""
    for i in range(count):
        pointer, step = pointers[i // every], i % every
        yield pointer + (triple_stride if step == 3 else step * stride)


class MatrixWriter:
    """Emits code for matrices of one dtype. All strides are in bytes."""

    def __init__(self, builder: Kernel, dtype: str) -> None:
        self.b = builder
        self.dtype = dtype
        self.itemsize: int = dtypes.itemsize(dtype)
        self.vector_bytes: int = builder.lanes * self.itemsize

    def batch_entry(self) -> Batch:
        """Return the next axis of a batch in the table."""
        return self.b.next_entries(Batch)

    def batch_address(
        self, base: Pointer, index: Number, axes: Sequence[Batch], name: str
    ) -> Pointer:
        """Return the address of a matrix of an operand, "a" or "b", in its batch."""
        for axis in reversed(axes[1:]):
            index, step = self.b.split(index, axis.extent)
            base = base + step * getattr(axis, name)
        return base + index * getattr(axes[0], name) if axes else base

    def vectors_of(
        self, rows: Sequence[Pointer], masks: Sequence[Mask]
    ) -> list[tuple[Pointer, Mask]]:
        """Return the address and mask of each vector of some rows."""
        return [
            (row + j * self.vector_bytes, mask)
            for row in rows
            for j, mask in enumerate(masks)
        ]

    def load_vector(self, address: Pointer, mask: Mask = None) -> Value:
        """Load a vector of elements."""
        return self.b.load(address, 0, self.dtype, mask)

    def load_converted(self, address: Pointer, stored: str, mask: Mask = None) -> Value:
        """Load a vector of elements that may be stored as 16-bit floats."""
        value = self.b.load(address, 0, stored, mask)
        return value if stored == self.dtype else convert(self.b, value, self.dtype)

    def scalar_converted(self, address: Pointer, stored: str) -> Value:
        """Load one element that may be stored as a 16-bit float."""
        value = self.b.scalar(address, stored)
        return value if stored == self.dtype else convert(self.b, value, self.dtype)

    def store_vector(self, value: Value, address: Pointer, mask: Mask = None) -> None:
        """Store a vector."""
        self.b.store(value, address, 0, mask)

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y. Integers wrap around."""
        return self.b.binary("fadd" if dtypes.is_float(self.dtype) else "add", x, y)

    def multiply_add(self, total: Value, x: Value, y: Value) -> Value:
        """Return total + x * y."""
        if dtypes.is_float(self.dtype):
            return self.b.intrinsic("fma", x, y, total)
        return self.add(total, self.b.binary("mul", x, y))

    @property
    def zero(self) -> Value:
        """Return a vector of zeros."""
        return self.b.filled(0.0, self.dtype)
