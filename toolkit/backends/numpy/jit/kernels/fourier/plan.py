"""Which transforms are computed in stages, and of which lengths these are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolkit.backends.numpy.jit.processor import current

DTYPES = ("float32", "float64")
# Elements of the longest row, and column: what a core's own cache holds of it.
LONGEST, LONGEST_COLUMN = 1 << 14, 1 << 11
# The lengths that one stage transforms, larger ones first: what is left when
# those before are taken out. More elements than 8 are more than there are registers.
_ODD = (5, 3, 7, 11, 13)


def radices(n: int) -> tuple[int, ...] | None:
    """The lengths of the stages, whose product is n; None if a factor is too large.

    The first one is a power of two if it can be: later stages have as many elements
    next to each other, which fill vectors.
    """
    twos = (n & -n).bit_length() - 1
    odd = []
    rest = n >> twos
    for prime in _ODD:
        while rest % prime == 0:
            odd.append(prime)
            rest //= prime
    if rest > 1:
        return None
    first, *others = _of_twos(twos) or [1]
    return tuple(r for r in (first, *odd, *others) if r > 1) or (1,)


def _of_twos(exponent: int) -> list[int]:
    """Powers of two of at most 8, the largest first."""
    eights, left = divmod(exponent, 3)
    if left == 1 and eights:  # 4 * 4, not 8 * 2
        return [8] * (eights - 1) + [4, 4]
    return [8] * eights + [1 << left] * (left > 0)


def fits(n: int, longest: int = LONGEST) -> bool:
    """Whether complex numbers, so many, are transformed in stages."""
    return 1 < n <= longest and radices(n) is not None


def fits_along(shape: Sequence[int], axis: int) -> bool:
    """Whether complex numbers along an axis are."""
    is_row = math.prod(shape[axis + 1 :]) == 1
    return fits(shape[axis], LONGEST if is_row else LONGEST_COLUMN)


def fits_real(n: int) -> bool:
    """Whether real numbers, so many, are: they are half as many complex ones."""
    return n % 2 == 0 and n // 2 > 1 and fits(n // 2)


def fills_vectors(n: int) -> bool:
    """Whether stages of one row have vectors to fill, of four elements at least."""
    return n % 4 == 0


def vector_lanes(itemsize: int) -> int:
    """The elements of a vector."""
    return max(1, current().lanes * 4 // itemsize)


def common_lanes(count: int, lanes: int) -> int:
    """The largest vector that divides a count."""
    return math.gcd(count, lanes)
