"""Scalar operations that NumPy lacks, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

Array = Any


def _erfinv(y: float) -> float:
    """Compute erfinv: a normal quantile, then Newton's method.

    Newton's method is on erf, or on erfc near the ends.
    """
    if math.isnan(y) or abs(y) > 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    tail = (1 - abs(y)) / 2
    x = -NormalDist().inv_cdf(tail) / math.sqrt(2)
    for _ in range(3):
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        central = abs(y) < 0.5
        wrong = math.erf(x) - abs(y) if central else 2 * tail - math.erfc(x)
        x -= wrong / slope
    return math.copysign(x, y)


def _apply_elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of arrays that calls a scalar function for each element."""
    of_all = np.vectorize(function, [np.float64])
    return lambda x: of_all(x).astype(x.dtype)


WORDS = {"erf": _apply_elementwise(math.erf), "erfinv": _apply_elementwise(_erfinv)}
