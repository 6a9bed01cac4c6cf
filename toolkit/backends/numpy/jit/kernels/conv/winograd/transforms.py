"""Winograd's transforms: several outputs of three taps with fewer multiplications.

A correlation of 6 inputs with 3 taps is a product of polynomials, which is defined by
its values at 6 points: transform both, multiply, and transform back. In two dimensions
a tile of 4 x 4 outputs takes 36 multiplications instead of 144: F(4, 3). With F(2, 3) a
tile of 2 x 2 outputs takes 16 instead of 36.

Reference: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel

# The outputs, taps and points of a line of F(4, 3).
OUTPUTS, TAPS, POINTS = 4, 3, 6
# Its points are 0, infinity, and plus and minus these. Their errors are several times
# smaller than with 1 and 2, and their squares are exact.
_A, _B = 0.75, 1.5

Line = Callable[[Sequence[Value]], list[Value]]


class Transforms(ABC):
    """Emits transforms of lines of vectors."""

    def __init__(self, builder: Kernel) -> None:
        self.b = builder

    @abstractmethod
    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """Transform inputs to the points."""

    @abstractmethod
    def outputs(self, m: Sequence[Value]) -> list[Value]:
        """Transform products at the points to outputs."""

    @abstractmethod
    def weights(self, g: Sequence[Value]) -> list[Value]:
        """Transform 3 taps to the points."""

    # --- arithmetic -------------------------------------------------------------------

    def _add(self, factor: float, x: Value, y: Value) -> Value:
        """Return factor * x + y."""
        return self.b.intrinsic("fma", self.b.constant(factor, x), x, y)

    def _times(self, factor: float, x: Value) -> Value:
        return self.b.binary("fmul", self.b.constant(factor, x), x)

    def _sum(self, x: Value, y: Value) -> Value:
        return self.b.binary("fadd", x, y)

    def _difference(self, x: Value, y: Value) -> Value:
        return self.b.binary("fsub", x, y)


class TwoOutputs(Transforms):
    """F(2, 3) at 0, 1, -1 and infinity. Except for factors of 0.5 it only adds."""

    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """Transform 4 inputs to the 4 points."""
        return [
            self._difference(d[0], d[2]),
            self._sum(d[2], d[1]),
            self._difference(d[2], d[1]),
            self._difference(d[3], d[1]),
        ]

    def outputs(self, m: Sequence[Value]) -> list[Value]:
        """Transform products at the 4 points to 2 outputs."""
        zero, plus, minus, last = m
        return [
            self._sum(zero, self._sum(plus, minus)),
            self._sum(last, self._difference(plus, minus)),
        ]

    def weights(self, g: Sequence[Value]) -> list[Value]:
        """Transform 3 taps to the 4 points."""
        even = self._times(0.5, self._sum(g[0], g[2]))
        odd = self._times(0.5, g[1])
        return [g[0], self._sum(even, odd), self._difference(even, odd), g[2]]


class FourOutputs(Transforms):
    """F(4, 3) at 0, infinity, and plus and minus `_A` and `_B`."""

    def inputs(self, d: Sequence[Value]) -> list[Value]:
        """Transform 6 inputs to the 6 points: polynomials, 0 at the other points."""
        low, high = _A * _A, _B * _B

        def outer(zero: Value, two: Value, four: Value) -> Value:
            """Return four - (A² + B²) two + A² B² zero."""
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
        """Transform products at the 6 points to 4 outputs."""
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
        """Transform 3 taps to the 6 points. The scale saves divisions of inputs."""
        result = [self._times(1 / (_A * _A * _B * _B), g[0])]
        for point, other in ((_A, _B), (_B, _A)):
            scale = _scale(point, other)
            even = self._add(scale * point**2, g[2], self._times(scale, g[0]))
            odd = self._times(scale * point, g[1])
            result += [self._sum(even, odd), self._difference(even, odd)]
        return [*result, g[2]]

    def gradients(self, g: Sequence[Value]) -> list[Value]:
        """Transform the gradients of 4 outputs to the 6 points."""
        result = [g[0]]
        for point in (_A, _B):
            even = self._add(point**2, g[2], g[0])
            odd = self._add(point**2, g[3], g[1])
            result += [self._add(point, odd, even), self._add(-point, odd, even)]
        return [*result, g[3]]

    def taps(self, m: Sequence[Value]) -> list[Value]:
        """Transform products at the 6 points to the gradients of 3 taps."""
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
    """Return 1 / the product of a point's distances from all other points."""
    return 1 / (2 * point**2 * (point**2 - other**2))


def transforms(builder: Kernel, outputs: int) -> Transforms:
    """Return the transforms for 2 or 4 outputs of a line."""
    return (TwoOutputs if outputs == 2 else FourOutputs)(builder)


def columns_first(tile: Sequence[Sequence[Value]], line: Line) -> list[list[Value]]:
    """Return a tile, given as columns, with its columns transformed, as rows."""
    return [list(row) for row in zip(*map(line, tile), strict=True)]
