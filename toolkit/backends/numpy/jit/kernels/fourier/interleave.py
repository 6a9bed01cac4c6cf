"""Interleaving of vectors by shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel

# Bytes of a section: processors shuffle within it in one cycle.
_SECTION = 16


def interleave_vectors(b: Kernel, vectors: Sequence[Value]) -> list[Value]:
    """Return all first elements of the vectors, then all second ones, and so on.

    Args:
        b: the builder.
        vectors: the vectors, a power of two of them.
    """
    return _Permutation(b, vectors).interleave() if b.lanes > 1 else list(vectors)


def deinterleave_vectors(b: Kernel, first: Value, second: Value) -> tuple[Value, Value]:
    """Return the even and the odd elements of two consecutive vectors."""
    numbers = range(2 * b.lanes)
    even, odd = (b.shuffled(first, second, numbers[start::2]) for start in (0, 1))
    return even, odd


class _Permutation:
    """Vectors during a permutation, and the bits of their elements' original numbers.

    The number of an element has the bits (1, j) of its vector and the bits (0, i) of
    its lane, the highest first in each list. A step exchanges bits.
    """

    def __init__(self, b: Kernel, vectors: Sequence[Value]) -> None:
        self.b = b
        self.vectors = list(vectors)
        self.outer = [(1, j) for j in reversed(range(len(vectors).bit_length() - 1))]
        self.inner = [(0, i) for i in reversed(range(b.lanes.bit_length() - 1))]

    def interleave(self) -> list[Value]:
        """Return the vectors in the order in which lane bits are the higher bits."""
        target = [*self.inner, *self.outer]
        outer_count = len(self.outer)
        itemsize = dtypes.itemsize(self.vectors[0].dtype)
        section = min((_SECTION // itemsize).bit_length() - 1, len(self.inner))
        for bit in self.outer[-section:]:
            self._push(bit, section)
        lowest = target[outer_count:]
        for position, bit in enumerate(lowest):
            if self.inner[position] == bit:
                continue
            if bit in self.inner:
                self._exchange(0, self.inner.index(bit))
            self._exchange(self.outer.index(bit), position)
        return [self._vector(target[:outer_count], k) for k in range(len(self.vectors))]

    def _vector(self, order: Sequence[tuple[int, int]], number: int) -> Value:
        """Return the vector with a given number, whose bits are in a given order."""
        index = 0
        for shift, bit in enumerate(reversed(order)):
            if number >> shift & 1:
                index |= self._weight(self.outer.index(bit))
        return self.vectors[index]

    def _weight(self, index: int) -> int:
        """Return the weight of an outer bit in the number of a vector."""
        return 1 << (len(self.outer) - 1 - index)

    def _pairs(self, index: int) -> list[tuple[int, int]]:
        """Return the pairs of vector numbers that differ in one bit."""
        weight = self._weight(index)
        numbers = range(len(self.vectors))
        return [(k, k | weight) for k in numbers if not k & weight]

    def _push(self, bit: tuple[int, int], section: int) -> None:
        """Make an outer bit the lowest lane bit, within sections of lanes."""
        index, size = self.outer.index(bit), 1 << section
        half, lanes = size // 2, self.b.lanes
        for x, y in self._pairs(index):
            a, b = self.vectors[x], self.vectors[y]
            for target, start in ((x, 0), (y, half)):
                order = [
                    base + start + k + side
                    for base in range(0, lanes, size)
                    for k in range(half)
                    for side in (0, lanes)
                ]
                self.vectors[target] = self.b.shuffled(a, b, order)
        first = len(self.inner) - section
        self.outer[index] = self.inner.pop(first)
        self.inner.append(bit)

    def _exchange(self, index: int, position: int) -> None:
        """Exchange an outer bit and a lane bit."""
        weight, lanes = 1 << (len(self.inner) - 1 - position), self.b.lanes
        numbers = range(lanes)
        low = [k if not k & weight else lanes + k - weight for k in numbers]
        high = [k + weight if not k & weight else lanes + k for k in numbers]
        for x, y in self._pairs(index):
            pair = self.vectors[x], self.vectors[y]
            self.vectors[x], self.vectors[y] = (
                self.b.shuffled(*pair, order) for order in (low, high)
            )
        self.outer[index], self.inner[position] = (
            self.inner[position],
            self.outer[index],
        )
