"""Transforms in stages: short transforms, then multiplication by twiddle factors.

A stage of radix r reads elements [p + m * k, q] for k < r and transforms them. It
multiplies the j-th result by w ** (p * j) and stores it at [r * p + j, q]. Here p < m,
and q counts the results of earlier stages; each stage multiplies their number by r. The
last stage leaves the results in order, so no permutation is needed between stages.

Reference: Stockham, High-speed convolution and correlation, 1966.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.fourier.butterfly import Butterflies, Complex
from toolkit.backends.numpy.jit.kernels.fourier.interleave import (
    deinterleave_vectors,
    interleave_vectors,
)
from toolkit.backends.numpy.jit.kernels.fourier.plan import common_lanes
from toolkit.backends.numpy.jit.kernels.fourier.twiddles import unit_circle
from toolkit.plans.operands import align_up

# Bytes between the parts of a buffer, so that equal offsets map to different cache
# sets.
_PLANE_GAP_BYTES = 192


class ComplexArray(Protocol):
    """An array of complex numbers that are loaded and stored by index."""

    def load(self, index: Number, vector: int = 0) -> Complex:
        """Return the vector that starts at an element."""

    def store(self, x: Complex, index: Number, vector: int = 0) -> None:
        """Store a vector."""


class Planes:
    """Complex numbers in two planes: real parts and imaginary parts.

    Args:
        b: the builder.
        dtype: of the parts.
        real, imag: the addresses of the planes.
        stride: the elements from one number to the next.
        masks: the mask of each vector of an element. In a row, a vector has several
            elements.
    """

    def __init__(
        self,
        b: Kernel,
        dtype: str,
        real: Pointer,
        imag: Pointer,
        stride: Number = 1,
        masks: Sequence[Mask] = (None,),
    ) -> None:
        self.b, self.dtype, self.planes = b, dtype, (real, imag)
        self.stride, self.masks = stride, masks

    def load(self, index: Number, vector: int = 0) -> Complex:
        """Return the vector that starts at an element."""
        offset = self._offset(index, vector)
        mask = self.masks[vector]
        return Complex(*(self.b.load(p, offset, self.dtype, mask) for p in self.planes))

    def store(self, x: Complex, index: Number, vector: int = 0) -> None:
        """Store a vector."""
        offset = self._offset(index, vector)
        for value, plane in zip(x, self.planes, strict=True):
            self.b.store(value, plane, offset, self.masks[vector])

    def _offset(self, index: Number, vector: int) -> Number:
        return index * self.stride + vector * self.b.lanes


class LaneRows:
    """Elements of several rows, a row in each lane.

    Args:
        b: the builder.
        dtype: of the parts.
        real, imag: the addresses of the first row.
        length: of a row.
        count: the number of rows, or None if there is one for every lane.
    """

    def __init__(
        self,
        b: Kernel,
        dtype: str,
        real: Pointer,
        imag: Pointer,
        length: int,
        count: Index | None,
    ) -> None:
        self.b, self.dtype, self.planes = b, dtype, (real, imag)
        self.length, self.count = length, count
        self.mask = None if count is None else b.first_lanes(count)

    def load(self, index: Number, vector: int = 0) -> Complex:
        """Return an element of each row."""
        stride = self.length * dtypes.itemsize(self.dtype)
        components = [
            self.b.gather(plane + index, stride, 0, self.dtype, self.mask)
            for plane in self.planes
        ]
        return Complex(*components)

    def store(self, x: Complex, index: Number, vector: int = 0) -> None:
        """Store an element of each row."""
        for lane in range(self.b.lanes):
            if self.count is None:
                self._store_lane(x, index, lane)
                continue
            with self.b.when(self.count > lane):
                self._store_lane(x, index, lane)

    def _store_lane(self, x: Complex, index: Number, lane: int) -> None:
        for value, plane in zip(x, self.planes, strict=True):
            text = f"extractelement {value.type} {value}, i64 {lane}"
            element = self.b.let(text, self.dtype)
            self.b.put_scalar(element, plane + (index + lane * self.length))


class RealPairs:
    """Real numbers, of which two neighbours are one complex number."""

    def __init__(self, b: Kernel, dtype: str, start: Pointer, is_swapped: bool) -> None:
        self.b, self.dtype, self.start, self.is_swapped = b, dtype, start, is_swapped

    def load(self, index: Number, vector: int = 0) -> Complex:
        """Return the vector that starts at an element."""
        first, second = (
            self.b.load(self.start, index * 2 + k * self.b.lanes, self.dtype, None)
            for k in range(2)
        )
        pair = deinterleave_vectors(self.b, first, second)
        return Complex(*(reversed(pair) if self.is_swapped else pair))

    def store(self, x: Complex, index: Number, vector: int = 0) -> None:
        """Store a vector."""
        vectors = interleave_vectors(self.b, x[::-1] if self.is_swapped else x)
        for k, value in enumerate(vectors):
            self.b.store(value, self.start, index * 2 + k * self.b.lanes, None)


class TwiddleTable:
    """The twiddle factors of a kernel: one constant, computed in double precision."""

    def __init__(self, b: Kernel, dtype: str) -> None:
        self.b, self.dtype = b, dtype
        self.chunks: list[bytes] = []
        self.size = 0

    def add(self, cycles: np.ndarray) -> tuple[Pointer, Pointer]:
        """Return the addresses of the two parts of exp(-2 pi i cycles)."""
        addresses = [
            self._add(np.ascontiguousarray(component, self.dtype))
            for component in unit_circle(-(cycles % 1.0))
        ]
        return addresses[0], addresses[1]

    def _add(self, content: np.ndarray) -> Pointer:
        start, data = self.size, content.tobytes()
        data += bytes(align_up(len(data)) - len(data))
        self.chunks.append(data)
        self.size += len(data)
        return Pointer(self.b, "@turns").element(start, "i8")

    def declare(self) -> None:
        """Declare the constant."""
        if not self.size:
            return
        text = "".join(f"\\{byte:02X}" for byte in b"".join(self.chunks))
        self.b.declarations.add(
            f"@turns = private unnamed_addr constant [{self.size} x i8] "
            f'c"{text}", align 64'
        )


class Stages:
    """Emits the stages of one transform.

    Args:
        b: the builder.
        dtype: of the parts.
        radices: the radix of each stage.
        vectors: the vectors of an element. 0: an element is one number of a row.
        buffers: the address of up to two buffers for intermediate results.
    """

    def __init__(
        self,
        b: Kernel,
        dtype: str,
        radices: Sequence[int],
        vectors: int,
        buffers: Pointer,
    ) -> None:
        self.b, self.dtype, self.radices = b, dtype, radices
        self.vectors = vectors
        self.n = int(np.prod(radices))
        self.twiddles = TwiddleTable(b, dtype)
        self.arithmetic = Butterflies(b)
        width = max(1, vectors * b.lanes)
        plane = plane_bytes(self.n * width, dtype)
        self.buffers = [
            self._planes(buffers + 2 * k * plane, plane, width) for k in range(2)
        ]

    def _planes(self, start: Pointer, plane: int, width: int) -> Planes:
        masks = [None] * max(1, self.vectors)
        return Planes(self.b, self.dtype, start, start + plane, width, masks)

    def write(self, source: ComplexArray, target: ComplexArray) -> None:
        """Transform a row, or columns.

        Args:
            source: the operand, which is not the first buffer.
            target: the destination.
        """
        stride = 1
        for number, radix in enumerate(self.radices):
            is_last = number + 1 == len(self.radices)
            stage_target = target if is_last else self.buffers[number % 2]
            if number or self.vectors:
                self._stage(radix, stride, source, stage_target)
            else:
                self._first_row_stage(radix, source, stage_target)
            source = stage_target
            stride *= radix

    def _stage(
        self, radix: int, stride: int, source: ComplexArray, target: ComplexArray
    ) -> None:
        """Emit a stage in which all lanes of a vector have the same twiddle factor."""
        m = self.n // (stride * radix)
        if not self.vectors:
            lanes, vectors, step = common_lanes(stride, self.b.lanes), 1, 0
        else:
            lanes, vectors, step = self.b.lanes, self.vectors, 1
        table = self._table(radix, m) if m > 1 else None
        with self.b.of_lanes(lanes), self.b.elidable_loop(m) as p:
            factors = self._factors(table, p, radix)
            with self.b.elidable_loop(stride, step or lanes) as q:
                for vector in range(vectors):
                    index = p * stride + q
                    x = [
                        source.load(index + stride * m * k, vector)
                        for k in range(radix)
                    ]
                    y = self.arithmetic.transform(x)
                    index = p * (stride * radix) + q
                    for j, value in enumerate(y):
                        if j and factors:
                            value = self.arithmetic.multiply(value, factors[j - 1])
                        target.store(value, index + stride * j, vector)

    def _table(self, radix: int, m: int) -> tuple[Pointer, Pointer]:
        cycles = np.outer(np.arange(m), np.arange(1, radix)) / (m * radix)
        return self.twiddles.add(cycles)

    def _factors(
        self, table: tuple[Pointer, Pointer] | None, p: Number, radix: int
    ) -> list[Complex]:
        """Return the twiddle factors of one p, for each j > 0."""
        if table is None:
            return []

        def in_all_lanes(plane: Pointer, index: Number) -> Value:
            address = self.b.at(plane, index, self.dtype)
            return self.b.splat(self.b.scalar(address, self.dtype))

        indices = [p * (radix - 1) + j for j in range(radix - 1)]
        return [Complex(*(in_all_lanes(t, k) for t in table)) for k in indices]

    def _first_row_stage(
        self, radix: int, source: ComplexArray, target: ComplexArray
    ) -> None:
        """Emit the first stage of a row: each lane has a different twiddle factor."""
        m = self.n // radix
        lanes = min(self.b.lanes, 1 << (m.bit_length() - 1))
        if radix & (radix - 1):
            lanes = 1  # only a power of two of vectors can be interleaved
        cycles = np.outer(np.arange(1, radix), np.arange(m)) / self.n
        table = self.twiddles.add(cycles)
        with self.b.of_lanes(lanes), self.b.elidable_loop(m, lanes) as start:
            # The last vector may overlap the previous one.
            p = start if m % lanes == 0 else self.b.min(start, m - lanes)
            y = self.arithmetic.transform(
                [source.load(p + m * k) for k in range(radix)]
            )
            for j in range(1, radix):
                factor = Complex(
                    *(self.b.load(t, p + m * (j - 1), self.dtype, None) for t in table)
                )
                y[j] = self.arithmetic.multiply(y[j], factor)
            components = [
                interleave_vectors(self.b, [getattr(v, component) for v in y])
                for component in ("real", "imag")
            ]
            for k, value in enumerate(zip(*components, strict=True)):
                target.store(Complex(*value), p * radix + k * lanes)


def plane_bytes(count: int, dtype: str) -> int:
    """Return the bytes of one plane of a buffer."""
    return align_up(count * dtypes.itemsize(dtype)) + _PLANE_GAP_BYTES
