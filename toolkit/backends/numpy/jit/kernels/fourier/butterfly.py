"""Transforms of a few complex numbers in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel


class Complex(NamedTuple):
    """Vectors of real and of imaginary parts."""

    real: Value
    imag: Value


class Butterflies:
    """Emits arithmetic of complex vectors."""

    def __init__(self, builder: Kernel) -> None:
        self.b = builder

    def transform(self, x: Sequence[Complex]) -> list[Complex]:
        """Return sum(x[k] * exp(-2 pi i j k / n)) for each j."""
        n = len(x)
        if n <= 2:
            return [self.add(*x), self.subtract(*x)] if n == 2 else list(x)
        a = 4 if n % 16 == 0 else _smallest_factor(n)
        if a == n:
            return self._transform_odd(x)
        # Element a * i + j is the i-th of part j. Result k + b * l is the l-th of row
        # k.
        b = n // a
        inner = [self.transform(x[j::a]) for j in range(a)]
        rows = [
            self.transform([self.rotate(inner[j][k], j * k, n) for j in range(a)])
            for k in range(b)
        ]
        return [rows[k][m] for m in range(a) for k in range(b)]

    def _transform_odd(self, x: Sequence[Complex]) -> list[Complex]:
        """Transform an odd number of elements. A cosine or sine serves two of them."""
        n = len(x)
        first, half = x[0], range(1, n // 2 + 1)
        sums = [self.add(x[k], x[n - k]) for k in half]
        differences = [self.subtract(x[k], x[n - k]) for k in half]
        total = first
        for pair_sum in sums:
            total = self.add(total, pair_sum)
        results = {0: total}
        for j in half:
            angles = [j * k % n * (2 * math.pi / n) for k in half]
            even = self._weighted_sum(first, sums, [math.cos(a) for a in angles])
            odd = self._weighted_sum(None, differences, [math.sin(a) for a in angles])
            rotated = Complex(odd.imag, self._negative(odd.real))
            results[j] = self.add(even, rotated)
            results[n - j] = self.subtract(even, rotated)
        return [results[j] for j in range(n)]

    def _weighted_sum(
        self, start: Complex | None, x: Sequence[Complex], factors: Sequence[float]
    ) -> Complex:
        """Return start + the sum of factors * x."""
        result = start
        for number, factor in zip(x, factors, strict=True):
            scale = self.b.constant(factor, number.real)
            if result is None:
                result = Complex(
                    *(self._multiply(scale, component) for component in number)
                )
            else:
                result = Complex(
                    *(
                        self._fma(scale, component, previous)
                        for component, previous in zip(number, result, strict=True)
                    )
                )
        assert result is not None
        return result

    # --- arithmetic -------------------------------------------------------------------

    def add(self, x: Complex, y: Complex) -> Complex:
        """Return x + y."""
        return Complex(self._add(x.real, y.real), self._add(x.imag, y.imag))

    def subtract(self, x: Complex, y: Complex) -> Complex:
        """Return x - y."""
        return Complex(self._subtract(x.real, y.real), self._subtract(x.imag, y.imag))

    def multiply(self, x: Complex, y: Complex) -> Complex:
        """Return x * y."""
        imag_product = self._negative(self._multiply(x.imag, y.imag))
        return Complex(
            self._fma(x.real, y.real, imag_product),
            self._fma(x.real, y.imag, self._multiply(x.imag, y.real)),
        )

    def conjugate(self, x: Complex) -> Complex:
        """Return x with the opposite imaginary part."""
        return Complex(x.real, self._negative(x.imag))

    def scale(self, x: Complex, factor: float) -> Complex:
        """Return x * factor."""
        scale = self.b.constant(factor, x.real)
        return Complex(self._multiply(scale, x.real), self._multiply(scale, x.imag))

    def rotate(self, x: Complex, numerator: int, n: int) -> Complex:
        """Return x * exp(-2 pi i part / n)."""
        numerator %= n
        if 8 * numerator % n == 0:
            return self._rotate_eighths(x, 8 * numerator // n)
        angle = -2 * math.pi * numerator / n
        cos, sin = (self.b.constant(f(angle), x.real) for f in (math.cos, math.sin))
        return self.multiply(x, Complex(cos, sin))

    def _rotate_eighths(self, x: Complex, count: int) -> Complex:
        """Return x * exp(-pi i count / 4)."""
        if count % 2:
            components = self._add(x.real, x.imag), self._subtract(x.imag, x.real)
            x = self.scale(Complex(*components), math.sqrt(0.5))
        for _ in range(count // 2):
            x = Complex(x.imag, self._negative(x.real))
        return x

    def _add(self, x: Value, y: Value) -> Value:
        return self.b.binary("fadd", x, y)

    def _subtract(self, x: Value, y: Value) -> Value:
        return self.b.binary("fsub", x, y)

    def _multiply(self, x: Value, y: Value) -> Value:
        return self.b.binary("fmul", x, y)

    def _fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.b.intrinsic("fma", x, y, z)

    def _negative(self, x: Value) -> Value:
        return self.b.let(f"fneg {x.type} {x}", x.dtype, x.lanes)


def _smallest_factor(n: int) -> int:
    return next((k for k in range(2, math.isqrt(n) + 1) if n % k == 0), n)
