"""Winograd's transforms: several outputs of three taps for fewer multiplications.

A correlation of 6 inputs with 3 taps is a product of polynomials, known from its values
at 6 points: transform both, multiply, and transform back. In two dimensions a tile of
4 x 4 outputs takes 36 multiplications instead of 144: that is F(4, 3). By F(2, 3) one
of 2 x 2 outputs takes 16 instead of 36.

Reference: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel

# Of a line of F(4, 3).
OUTPUTS, TAPS, POINTS = 4, 3, 6
# Its points are 0, infinity, and plus and minus these. With them errors are several
# times smaller than with 1 and 2, and their squares are exact.
_A, _B = 0.75, 1.5

Line = Callable[[Sequence[Value]], list[Value]]


class Transforms(ABC):
    """Emits transforms of lines of vectors."""

    def __init__(self, builder: Kernel) -> None:
        self.b = builder

    @abstractmethod
    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """Inputs at the points."""

    @abstractmethod
    def outputs(self, m: Sequence[Value]) -> list[Value]:
        """Outputs from products at the points."""

    @abstractmethod
    def weights(self, g: Sequence[Value]) -> list[Value]:
        """3 taps at the points."""

    # --- arithmetic -------------------------------------------------------------------

    def _add(self, factor: float, x: Value, y: Value) -> Value:
        """factor * x + y."""
        return self.b.intrinsic("fma", self.b.constant(factor, x), x, y)

    def _times(self, factor: float, x: Value) -> Value:
        return self.b.binary("fmul", self.b.constant(factor, x), x)

    def _sum(self, x: Value, y: Value) -> Value:
        return self.b.binary("fadd", x, y)

    def _difference(self, x: Value, y: Value) -> Value:
        return self.b.binary("fsub", x, y)


class TwoOutputs(Transforms):
    """F(2, 3), at 0, 1, -1 and infinity: but for halves it only adds."""

    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """4 inputs at the 4 points."""
        return [
            self._difference(d[0], d[2]),
            self._sum(d[2], d[1]),
            self._difference(d[2], d[1]),
            self._difference(d[3], d[1]),
        ]

    def outputs(self, m: Sequence[Value]) -> list[Value]:
        """2 outputs from products at the 4 points."""
        zero, plus, minus, last = m
        return [
            self._sum(zero, self._sum(plus, minus)),
            self._sum(last, self._difference(plus, minus)),
        ]

    def weights(self, g: Sequence[Value]) -> list[Value]:
        """3 taps at the 4 points."""
        even = self._times(0.5, self._sum(g[0], g[2]))
        odd = self._times(0.5, g[1])
        return [g[0], self._sum(even, odd), self._difference(even, odd), g[2]]


class FourOutputs(Transforms):
    """F(4, 3), at 0, infinity, and plus and minus `_A` and `_B`."""

    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """6 inputs at the 6 points: polynomials with zeros at all other points."""
        low, high = _A * _A, _B * _B

        def outer(zero: Value, two: Value, four: Value) -> Value:
            """four - (A² + B²) two + A² B² zero."""
            return self._add(low * high, zero, self._add(-low - high, two, four))

        def pair(point: float, other: float) -> tuple[Value, Value]:
            even = self._add(-other, d[2], d[4])
            odd = self._add(-other, d[1], d[3])
            return self._add(point, odd, even), self._add(-point, odd, even)

        return [
            outer(d[0], d[2], d[4]),
            *pair(_A, high),
            *pair(_B, low),
            outer(d[1], d[3], d[5]),
        ]

    def outputs(self, m: Sequence[Value]) -> list[Value]:
        """4 outputs from products at the 6 points."""
        zero, plus_a, minus_a, plus_b, minus_b, last = m
        even = self._sum(plus_a, minus_a), self._sum(plus_b, minus_b)
        odd = self._difference(plus_a, minus_a), self._difference(plus_b, minus_b)

        def moment(power: int, pair: tuple[Value, Value]) -> Value:
            first = self._times(_A**power, pair[0])
            return self._add(_B**power, pair[1], first)

        return [
            self._sum(zero, self._sum(*even)),
            moment(1, odd),
            moment(2, even),
            self._sum(last, moment(3, odd)),
        ]

    def weights(self, g: Sequence[Value]) -> list[Value]:
        """3 taps at the 6 points, scaled so that the inputs need no division."""
        result = [self._times(1 / (_A * _A * _B * _B), g[0])]
        for point, other in ((_A, _B), (_B, _A)):
            scale = _scale(point, other)
            even = self._add(scale * point**2, g[2], self._times(scale, g[0]))
            odd = self._times(scale * point, g[1])
            result += [self._sum(even, odd), self._difference(even, odd)]
        return [*result, g[2]]

    def gradients(self, g: Sequence[Value]) -> list[Value]:
        """4 outputs' gradients at the 6 points."""
        result = [g[0]]
        for point in (_A, _B):
            even = self._add(point**2, g[2], g[0])
            odd = self._add(point**2, g[3], g[1])
            result += [self._add(point, odd, even), self._add(-point, odd, even)]
        return [*result, g[3]]

    def taps(self, m: Sequence[Value]) -> list[Value]:
        """The gradients of 3 taps from products at the 6 points."""
        zero, plus_a, minus_a, plus_b, minus_b, last = m
        even = self._sum(plus_a, minus_a), self._sum(plus_b, minus_b)
        odd = self._difference(plus_a, minus_a), self._difference(plus_b, minus_b)

        def moment(power: int, pair: tuple[Value, Value]) -> Value:
            first = self._times(_scale(_A, _B) * _A**power, pair[0])
            return self._add(_scale(_B, _A) * _B**power, pair[1], first)

        return [
            self._add(1 / (_A * _A * _B * _B), zero, moment(0, even)),
            moment(1, odd),
            self._sum(last, moment(2, even)),
        ]


def _scale(point: float, other: float) -> float:
    """1 / the product of a point's distances from all other points."""
    return 1 / (2 * point**2 * (point**2 - other**2))


def transforms(builder: Kernel, outputs: int) -> Transforms:
    """Those for so many outputs of a line: 2 or 4."""
    return (TwoOutputs if outputs == 2 else FourOutputs)(builder)


def columns_first(tile: Sequence[Sequence[Value]], line: Line) -> list[list[Value]]:
    """A tile, given as columns, with its columns transformed; as rows."""
    return [list(row) for row in zip(*map(line, tile), strict=True)]
