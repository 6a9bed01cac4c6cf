"""Random choices that depend on a seed, an epoch and a position, and on nothing else.

So an order is the same with any number of threads, and can be taken up anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

CHUNK = 8192  # positions whose choices are made at once: NumPy's calls cost little then
LAST = (1 << 62) - 1  # the chunk of draws for what stays in a buffer at the end
SMALL = 1 << 16  # up to here a whole permutation is drawn at once
ROUNDS = 4  # of mixing: as many make a strong permutation (Luby and Rackoff 1988)


class ElementDraws(Protocol):
    """What a thread draws for elements, one after the other."""

    def of(self, number: int) -> AbstractContextManager[object]:
        """A context in which generators of keys give those of an element."""


class Elements(Protocol):
    """The elements that a stage makes in one pass, each with draws of its own."""

    def draws(self) -> ElementDraws:
        """What a thread needs."""


# Makes one of the numbers that tell a pass from others; set where there are generators.
_make_elements: Callable[[Sequence[int]], Elements] | None = None


def set_elements(make: Callable[[Sequence[int]], Elements]) -> None:
    """Have elements that are made side by side draw from what this makes."""
    global _make_elements
    _make_elements = make


def elements_of(words: Sequence[int]) -> Elements | None:
    """The elements of a pass that has these numbers; None: nothing draws keys."""
    return None if _make_elements is None else _make_elements(words)


class DrawnSeed(int):
    """A seed that nobody has given."""


def new_seed() -> DrawnSeed:
    """A seed from Python's generator, which `set_random_seed` seeds."""
    return DrawnSeed(random.getrandbits(62))


def key_of(seed: int, epoch: tuple[int, ...], purpose: int = 0) -> Array:
    """Two words for a generator, different for each seed, epoch and purpose."""
    return np.random.SeedSequence([seed, purpose, *epoch]).generate_state(2, np.uint64)


def generator(key: Array, chunk: int = 0) -> np.random.Generator:
    """A generator of its own for each chunk of positions."""
    # NumPy loads its 15 compiled modules of random numbers when one is first used.
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

    def upto(self, position: int) -> Array:
        """The integers of all positions before this one."""
        chunks = [self._chunk(i) for i in range(-(-position // CHUNK))]
        return np.concatenate([np.zeros(0, np.int64), *chunks])[:position]


class Permutation:
    """A random order of 0 ... n - 1.

    Large ones are computed where they are asked for, by rounds of mixing whose result
    is a permutation whatever they mix (a Feistel network on the bits of the position,
    repeated where it leaves the range): nothing is kept, and any place is as near.

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
        return generator(self._key, LAST).permutation(self._n)

    def __getitem__(self, positions: Array) -> Array:
        """What stands at these positions."""
        if self._n <= SMALL:
            return self._order[positions]
        values = self._mix(positions.astype(np.uint64))
        outside = np.flatnonzero(values >= self._n)
        while len(outside):
            values[outside] = again = self._mix(values[outside])
            outside = outside[again >= self._n]
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
        # An even number of rounds: both halves have their width again.
        return left << np.uint64(low) | right
