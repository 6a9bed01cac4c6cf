"""Twiddle factors: points of the unit circle."""

from __future__ import annotations

import numpy as np


def unit_circle(cycles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of 2 pi `cycles`, exact at multiples of a quarter.

    A sum with these factors over real numbers has an imaginary part of 0 where symmetry
    requires it. Both are computed in double precision from angles of at most an eighth.
    """
    quarters = np.rint(4 * cycles)
    angles = 2 * np.pi * (cycles - quarters / 4)
    cos, sin = np.cos(angles), np.sin(angles)
    number = quarters.astype("int64") % 4
    is_odd, sign = number % 2 == 1, np.where(number < 2, 1.0, -1.0)
    # + 0.0 removes negative zeros.
    return (
        sign * np.where(is_odd, -sin, cos) + 0.0,
        sign * np.where(is_odd, cos, sin) + 0.0,
    )
