"""Transforms of real numbers, of an even number n, by those of n / 2 complex ones.

Neighbours x[2 j] + i x[2 j + 1] have a transform Z. With w = exp(-2 pi i k / n),
S = Z[k] + conj(Z[n/2 - k]) and D = Z[k] - conj(Z[n/2 - k]), that of the real numbers is
(S - i w D) / 2, and that of n/2 - k the conjugate of (S + i w D) / 2.
"""

from __future__ import annotations

import numpy as np

from toolkit.backends.numpy.jit.builder import Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.fourier.butterfly import Butterflies, Complex
from toolkit.backends.numpy.jit.kernels.fourier.stages import Planes, Turns


class Halves:
    """Writes what is before or behind the transform of half as many numbers.

    Args:
        b: what the instructions are for.
        dtype: of the parts.
        half: n / 2.
        turns: takes the factors.
    """

    def __init__(self, b: Kernel, dtype: str, half: int, turns: Turns) -> None:
        self.b, self.dtype, self.half = b, dtype, half
        self.arithmetic = Butterflies(b)
        self.table = turns.add(np.arange(half) / (2 * half))
        # The first vector is within 1 to half - 1, and so are all that begin in its
        # lower half; some numbers are made twice.
        self.lanes = min(b.lanes, 1 << ((half - 1).bit_length() - 1))

    def spectrum(self, source: Planes, target: Planes) -> None:
        """From the transform of complex numbers to that of real ones."""
        with self.b.of_lanes(1):
            first = source.load(0)
            plus = self.b.binary("fadd", first.real, first.imag)
            minus = self.b.binary("fsub", first.real, first.imag)
            zero = self.b.filled(0.0, self.dtype)
            target.store(Complex(plus, zero), 0)
            target.store(Complex(minus, zero), self.half)
        self._pairs(source, target, inverse=False)

    def numbers(self, source: Planes, target: Planes) -> None:
        """From what is to be transformed to real numbers to complex ones, swapped.

        Frequencies but the first and the last one count once, not twice.
        """
        with self.b.of_lanes(1):
            first, last = (source.load(k).real for k in (0, self.half))
            plus = self.b.binary("fadd", first, last)
            minus = self.b.binary("fsub", first, last)
            target.store(Complex(minus, plus), 0)
        self._pairs(source, target, inverse=True)

    def _pairs(self, source: Planes, target: Planes, inverse: bool) -> None:
        """What is made of k and of half - k, from 1 on up to their meeting."""
        with (
            self.b.of_lanes(self.lanes),
            self.b.loop(1, self.half // 2 + 1, self.lanes) as k,
        ):
            mirror = self.half - k - (self.lanes - 1)
            x = source.load(k)
            y = self.arithmetic.conjugate(self._reversed(source.load(mirror)))
            both = self.arithmetic.scaled(self.arithmetic.sum(x, y), 0.5)
            apart = self._turned(self.arithmetic.difference(x, y), k, inverse)
            low = self.arithmetic.sum(both, apart)
            high = self.arithmetic.difference(both, apart)
            high = self.arithmetic.conjugate(self._reversed(high))
            for value, place in ((low, k), (high, mirror)):
                target.store(Complex(*value[::-1]) if inverse else value, place)

    def _turned(self, x: Complex, k: Number, inverse: bool) -> Complex:
        """x * -i w / 2; of an inverse transform, the conjugate factor."""
        cos, sin = (self.b.load(part, k, self.dtype, None) for part in self.table)
        # -i (cos + i sin) = sin - i cos
        factor = self.arithmetic.conjugate(Complex(sin, cos))
        if inverse:
            factor = self.arithmetic.conjugate(factor)
        return self.arithmetic.scaled(self.arithmetic.product(x, factor), 0.5)

    def _reversed(self, x: Complex) -> Complex:
        order = list(reversed(range(self.b.lanes)))
        return Complex(*(self._shuffled(part, order) for part in x))

    def _shuffled(self, x: Value, order: list[int]) -> Value:
        return x if len(order) == 1 else self.b.shuffled(x, x, order)
