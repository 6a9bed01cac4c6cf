"""Random choices that depend only on a seed, an epoch and a position.

An order is thus equal with any number of threads, and can resume at any position.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache, partial
from typing import Protocol

import numpy as np

from toolkit.type_aliases import Array

CHUNK = 8192  # positions drawn together, to amortize the cost of NumPy calls
LAST_CHUNK = (1 << 62) - 1  # the chunk of draws for the rest of a buffer at the end
MAX_DRAWN_SIZE = 1 << 16  # maximum size of an order drawn as a full permutation
ROUNDS = 4  # rounds of a strong pseudorandom permutation (Luby and Rackoff 1988)


class ElementDraws(Protocol):
    """Random state of one thread, used for its elements sequentially."""

    def of(self, number: int) -> AbstractContextManager[object]:
        """Return a context in which key generators draw for an element."""


class PassDraws(Protocol):
    """Random state for the elements of a stage in one pass."""

    def draws(self) -> ElementDraws:
        """Return the random state for one thread."""


# Factory from the numbers that identify a pass; set if generators exist.
_draws_factory: Callable[[Sequence[int]], PassDraws] | None = None


def set_draws_factory(make: Callable[[Sequence[int]], PassDraws]) -> None:
    """Set the factory of the random state for parallel elements."""
    global _draws_factory
    _draws_factory = make


def pass_draws(words: Sequence[int]) -> PassDraws | None:
    """Return the random state for a pass, or None if no generator draws keys."""
    return None if _draws_factory is None else _draws_factory(words)


class DrawnSeed(int):
    """Seed drawn by default, because the user gave none."""


def new_seed() -> DrawnSeed:
    """Draw a seed from Python's generator, which `set_random_seed` seeds."""
    return DrawnSeed(random.getrandbits(62))


def key_of(seed: int, epoch: tuple[int, ...], purpose: int = 0) -> Array:
    """Return a generator key of two words for a seed, epoch and purpose."""
    return np.random.SeedSequence([seed, purpose, *epoch]).generate_state(2, np.uint64)


def generator(key: Array, chunk: int = 0) -> np.random.Generator:
    """Return the generator for a chunk of positions."""
    # On first use, NumPy loads its 15 compiled modules of random numbers.
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, chunk]))


def _drawn(key: Array, high: int, chunk: int) -> Array:
    return generator(key, chunk).integers(0, high, CHUNK)


class Draws:
    """Random integers below `high`, one for each position.

    Example:
        >>> from toolkit.data.randomness import Draws, key_of
        >>> draws = Draws(key_of(1, (0,)), 10)
        >>> bool(draws[9000] == Draws(key_of(1, (0,)), 10)[9000])
        True
    """

    def __init__(self, key: Array, high: int) -> None:
        self._chunk = lru_cache(2)(partial(_drawn, key, high))

    def __getitem__(self, position: int) -> int:
        return int(self._chunk(position // CHUNK)[position % CHUNK])

    def before(self, position: int) -> Array:
        """Return the integers of all positions before this one."""
        chunks = [self._chunk(i) for i in range(-(-position // CHUNK))]
        return np.concatenate([np.zeros(0, np.int64), *chunks])[:position]


class Permutation:
    """Random permutation of 0 ... n - 1.

    Large permutations are computed on demand, with constant memory and constant access
    time. The method is a Feistel network on the bits of the position, repeated if the
    result is out of range. It is a permutation for any mixing function.

    Example:
        >>> import numpy as np
        >>> from toolkit.data.randomness import Permutation, key_of
        >>> order = Permutation(key_of(0, (0,)), 100_000)
        >>> len(np.unique(order[np.arange(100_000)]))
        100000
    """

    def __init__(self, key: Array, n: int) -> None:
        self._key, self._n = key, n
        self._keys = generator(key).integers(0, 1 << 32, ROUNDS, np.uint64)
        bits = max(2, (n - 1).bit_length())
        self._widths = bits // 2, bits - bits // 2

    @cached_property
    def _order(self) -> Array:
        return generator(self._key, LAST_CHUNK).permutation(self._n)

    def __getitem__(self, positions: Array) -> Array:
        """Return the values at these positions."""
        if self._n <= MAX_DRAWN_SIZE:
            return self._order[positions]
        values = self._mix(positions.astype(np.uint64))
        invalid = np.flatnonzero(values >= self._n)
        while len(invalid):
            values[invalid] = remixed = self._mix(values[invalid])
            invalid = invalid[remixed >= self._n]
        return values.astype(np.int64)

    def _mix(self, values: Array) -> Array:
        low, high = self._widths
        right, left = values & np.uint64((1 << low) - 1), values >> np.uint64(low)
        for key in self._keys:
            hashed = (right + key) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(29)
            hashed *= np.uint64(0xBF58476D1CE4E5B9)
            left ^= hashed >> np.uint64(64 - high)
            left, right = right, left
            low, high = high, low
        # After an even number of rounds, both halves have their original width.
        return left << np.uint64(low) | right
