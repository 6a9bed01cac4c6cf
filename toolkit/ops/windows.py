"""Windows for signals: (n,) weights, in floatx, that decrease towards both ends."""

from __future__ import annotations

import math
from collections.abc import Callable

from toolkit import settings
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import known_values
from toolkit.ops.creation import arange, ones
from toolkit.ops.elementwise import cos, maximum, sqrt
from toolkit.ops.numeric import absolute
from toolkit.ops.special import i0
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


def _window(op: str, x: TensorLike, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `weights` at x points from 0 to 1."""
    n = int(known_values(op, convert(x), "pass the length as a Python integer"))
    if n <= 1:
        return ones((max(n, 0),))
    return weights(arange(n, dtype=settings.floatx()) / (n - 1))


@operation
def bartlett(x: TensorLike) -> Tensor:
    """Return the triangular window of x points."""
    return _window("bartlett", x, lambda t: 1 - absolute(2 * t - 1))


@operation
def hanning(x: TensorLike) -> Tensor:
    """Return the window 0.5 - 0.5 * cos(2 pi t) of x points."""
    return _window("hanning", x, lambda t: 0.5 - 0.5 * cos(2 * math.pi * t))


@operation
def hamming(x: TensorLike) -> Tensor:
    """Return the window 0.54 - 0.46 * cos(2 pi t) of x points."""
    return _window("hamming", x, lambda t: 0.54 - 0.46 * cos(2 * math.pi * t))


@operation
def blackman(x: TensorLike) -> Tensor:
    """Return the window 0.42 - 0.5 * cos(2 pi t) + 0.08 * cos(4 pi t) of x points."""

    def weights(t: Tensor) -> Tensor:
        return 0.42 - 0.5 * cos(2 * math.pi * t) + 0.08 * cos(4 * math.pi * t)

    return _window("blackman", x, weights)


@operation
def kaiser(x: TensorLike, beta: float) -> Tensor:
    """Return the Kaiser window of x points; a larger `beta` makes it narrower."""

    def weights(t: Tensor) -> Tensor:
        squared = maximum(1 - (2 * t - 1) ** 2, 0.0)
        return i0(beta * sqrt(squared)) / i0(convert(beta, t.dtype))

    return _window("kaiser", x, weights)
