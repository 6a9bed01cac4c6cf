"""Windows for signals: (n,) weights, in floatx, that decrease towards both ends."""

from __future__ import annotations

import math
from collections.abc import Callable

from toolkit import settings
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import known_values
from toolkit.ops.creation import arange, ones
from toolkit.ops.elementwise import maximum
from toolkit.ops.numeric import absolute
from toolkit.ops.special import i0
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import cos, sqrt
from toolkit.type_aliases import TensorLike


def _window(op: str, x: TensorLike, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `weights` at x points from 0 to 1."""
    n = int(known_values(op, convert(x), "pass the length as a Python integer"))
    if n <= 1:
        return ones((max(n, 0),))
    return weights(arange(n, dtype=settings.floatx()) / (n - 1))


@operation
def bartlett(x: TensorLike) -> Tensor:
    """Create the triangular window 1 - abs(2 * t - 1) for t from 0 to 1.

    Args:
        x: the number of points, an integer.

    Returns:
        A floatx tensor of shape (x,).

    Example:
        >>> from toolkit import ops
        >>> print(ops.bartlett(5))
        [0.  0.5 1.  0.5 0. ]
    """
    return _window("bartlett", x, lambda t: 1 - absolute(2 * t - 1))


@operation
def hanning(x: TensorLike) -> Tensor:
    """Create the window 0.5 - 0.5 * cos(2 * pi * t) for t from 0 to 1.

    Args:
        x: the number of points, an integer.

    Returns:
        A floatx tensor of shape (x,).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.hanning(5), 3))
        [0.  0.5 1.  0.5 0. ]
    """
    return _window("hanning", x, lambda t: 0.5 - 0.5 * cos(2 * math.pi * t))


@operation
def hamming(x: TensorLike) -> Tensor:
    """Create the window 0.54 - 0.46 * cos(2 * pi * t) for t from 0 to 1.

    Args:
        x: the number of points, an integer.

    Returns:
        A floatx tensor of shape (x,).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.hamming(5), 3))
        [0.08 0.54 1.   0.54 0.08]
    """
    return _window("hamming", x, lambda t: 0.54 - 0.46 * cos(2 * math.pi * t))


@operation
def blackman(x: TensorLike) -> Tensor:
    """Create the window 0.42 - 0.5 * cos(2 * pi * t) + 0.08 * cos(4 * pi * t).

    The points t are from 0 to 1.

    Args:
        x: the number of points, an integer.

    Returns:
        A floatx tensor of shape (x,).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.absolute(ops.blackman(5)), 3))
        [0.   0.34 1.   0.34 0.  ]
    """

    def weights(t: Tensor) -> Tensor:
        return 0.42 - 0.5 * cos(2 * math.pi * t) + 0.08 * cos(4 * math.pi * t)

    return _window("blackman", x, weights)


@operation
def kaiser(x: TensorLike, beta: float) -> Tensor:
    """Create the Kaiser window i0(beta * sqrt(1 - (2 * t - 1) ** 2)) / i0(beta).

    The points t are from 0 to 1.

    Args:
        x: the number of points, an integer.
        beta: the shape parameter; a larger number makes the window narrower, and 0
            gives ones.

    Returns:
        A floatx tensor of shape (x,).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.kaiser(5, 4.0), 3))
        [0.088 0.633 1.    0.633 0.088]
    """

    def weights(t: Tensor) -> Tensor:
        squared = maximum(1 - (2 * t - 1) ** 2, 0.0)
        return i0(beta * sqrt(squared)) / i0(convert(beta, t.dtype))

    return _window("kaiser", x, weights)
