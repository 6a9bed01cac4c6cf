"""The factors of transforms: points of the unit circle."""

from __future__ import annotations

import numpy as np


def unit_circle(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2 pi `turns`; exact at quarters of a turn, where one of them is 0.

    Where one sum with these makes a coefficient of real numbers, its imaginary part is
    then 0 where symmetry makes it 0. Both are computed in double precision, of angles
    up to an eighth of a turn.
    """
    quarters = np.rint(4 * turns)
    angles = 2 * np.pi * (turns - quarters / 4)
    cos, sin = np.cos(angles), np.sin(angles)
    number = quarters.astype("int64") % 4
    is_odd, sign = number % 2 == 1, np.where(number < 2, 1.0, -1.0)
    # + 0.0: there is no negative zero among them.
    return (
        sign * np.where(is_odd, -sin, cos) + 0.0,
        sign * np.where(is_odd, cos, sin) + 0.0,
    )
