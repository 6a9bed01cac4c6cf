"""Transforms of an even number n of real numbers by n / 2 complex ones.

The complex numbers x[2 j] + i x[2 j + 1] have the transform Z. With w = exp(-2 pi i k /
n), S = Z[k] + conj(Z[n/2 - k]) and D = Z[k] - conj(Z[n/2 - k]), the real transform at k
is (S - i w D) / 2. At n/2 - k it is the conjugate of (S + i w D) / 2.
"""

from __future__ import annotations

import numpy as np

from toolkit.backends.numpy.jit.builder import Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.fourier.butterfly import Butterflies, Complex
from toolkit.backends.numpy.jit.kernels.fourier.stages import Planes, TwiddleTable


class RealTransform:
    """Emits the epilogue or the prologue of the complex transform of half the length.

    Args:
        b: the builder.
        dtype: of the parts.
        half: n / 2.
        twiddles: the table of twiddle factors.
    """

    def __init__(
        self, b: Kernel, dtype: str, half: int, twiddles: TwiddleTable
    ) -> None:
        self.b, self.dtype, self.half = b, dtype, half
        self.arithmetic = Butterflies(b)
        self.table = twiddles.add(np.arange(half) / (2 * half))
        # Vectors that start in the lower half of 1 to half - 1 must end in that range.
        # Some numbers are computed twice.
        self.lanes = min(b.lanes, 1 << ((half - 1).bit_length() - 1))

    def spectrum(self, source: Planes, target: Planes) -> None:
        """Compute the real transform from the complex one."""
        with self.b.of_lanes(1):
            first = source.load(0)
            plus = self.b.binary("fadd", first.real, first.imag)
            minus = self.b.binary("fsub", first.real, first.imag)
            zero = self.b.filled(0.0, self.dtype)
            target.store(Complex(plus, zero), 0)
            target.store(Complex(minus, zero), self.half)
        self._pairs(source, target, inverse=False)

    def numbers(self, source: Planes, target: Planes) -> None:
        """Compute the operand of the complex transform from a half spectrum, swapped.

        All frequencies except the first and the last count once, not twice.
        """
        with self.b.of_lanes(1):
            first, last = (source.load(k).real for k in (0, self.half))
            plus = self.b.binary("fadd", first, last)
            minus = self.b.binary("fsub", first, last)
            target.store(Complex(minus, plus), 0)
        self._pairs(source, target, inverse=True)

    def _pairs(self, source: Planes, target: Planes, inverse: bool) -> None:
        """Compute the results at k and half - k, for k from 1 to the middle."""
        with (
            self.b.of_lanes(self.lanes),
            self.b.loop(1, self.half // 2 + 1, self.lanes) as k,
        ):
            mirror = self.half - k - (self.lanes - 1)
            x = source.load(k)
            y = self.arithmetic.conjugate(self._reverse_lanes(source.load(mirror)))
            half_sum = self.arithmetic.scale(self.arithmetic.add(x, y), 0.5)
            half_difference = self._multiply_twiddle(
                self.arithmetic.subtract(x, y), k, inverse
            )
            low = self.arithmetic.add(half_sum, half_difference)
            high = self.arithmetic.subtract(half_sum, half_difference)
            high = self.arithmetic.conjugate(self._reverse_lanes(high))
            for value, index in ((low, k), (high, mirror)):
                target.store(Complex(*value[::-1]) if inverse else value, index)

    def _multiply_twiddle(self, x: Complex, k: Number, inverse: bool) -> Complex:
        """Return x * -i w / 2, or for an inverse x times the conjugate factor."""
        cos, sin = (
            self.b.load(component, k, self.dtype, None) for component in self.table
        )
        # -i (cos + i sin) = sin - i cos
        factor = self.arithmetic.conjugate(Complex(sin, cos))
        if inverse:
            factor = self.arithmetic.conjugate(factor)
        return self.arithmetic.scale(self.arithmetic.multiply(x, factor), 0.5)

    def _reverse_lanes(self, x: Complex) -> Complex:
        order = list(reversed(range(self.b.lanes)))
        return Complex(*(self._shuffle(component, order) for component in x))

    def _shuffle(self, x: Value, order: list[int]) -> Value:
        return x if len(order) == 1 else self.b.shuffled(x, x, order)
