"""The lengths of transforms that are computed in stages, and their radices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolkit.backends.numpy.jit.processor import current

DTYPES = ("float32", "float64")
# Elements of the longest row and of the longest column: both fit the L2 cache.
MAX_ROW, MAX_COLUMN = 1 << 14, 1 << 11
# Odd radices, the best first. A radix above 8 needs more than the registers.
_ODD_RADICES = (5, 3, 7, 11, 13)


def radices(n: int) -> tuple[int, ...] | None:
    """Return the radices, whose product is n, or None if a prime factor is too large.

    The first radix is a power of two if possible. Later stages have at least this
    number of contiguous elements, which fill vectors.
    """
    twos = (n & -n).bit_length() - 1
    odd = []
    remainder = n >> twos
    for prime in _ODD_RADICES:
        while remainder % prime == 0:
            odd.append(prime)
            remainder //= prime
    if remainder > 1:
        return None
    first, *smaller = _powers_of_two(twos) or [1]
    return tuple(r for r in (first, *odd, *smaller) if r > 1) or (1,)


def _powers_of_two(exponent: int) -> list[int]:
    """Return powers of two of at most 8, the largest first."""
    eights, remaining = divmod(exponent, 3)
    if remaining == 1 and eights:  # 4 * 4, not 8 * 2
        return [8] * (eights - 1) + [4, 4]
    return [8] * eights + [1 << remaining] * (remaining > 0)


def is_supported(n: int, longest: int = MAX_ROW) -> bool:
    """Return whether transforms of n complex numbers are computed in stages."""
    return 1 < n <= longest and radices(n) is not None


def is_axis_supported(shape: Sequence[int], axis: int) -> bool:
    """Return whether complex transforms along an axis are computed in stages."""
    is_row = math.prod(shape[axis + 1 :]) == 1
    return is_supported(shape[axis], MAX_ROW if is_row else MAX_COLUMN)


def is_real_supported(n: int) -> bool:
    """Return whether transforms of n real numbers are computed in stages."""
    return n % 2 == 0 and n // 2 > 1 and is_supported(n // 2)


def fills_vectors(n: int) -> bool:
    """Return whether a row fills vectors of at least four elements."""
    return n % 4 == 0


def vector_lanes(itemsize: int) -> int:
    """Return the number of elements of a vector."""
    return max(1, current().lanes * 4 // itemsize)


def common_lanes(count: int, lanes: int) -> int:
    """Return the largest number of lanes that divides a count."""
    return math.gcd(count, lanes)
