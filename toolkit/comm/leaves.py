"""A batch axis in leaves, and the binary tree in which their terms are combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from toolkit.definitions.records import record

# A subtree: its first leaf and how many leaves it spans.
Subtree: TypeAlias = tuple[int, int]
T = TypeVar("T")


@record
class Leaves:
    """A batch axis cut into leaves, of which those in `present` have rows.

    Attributes:
        count: how many leaves; the tree spans the next power of two.
        present: which of them have rows, in ascending order.

    Example:
        >>> from toolkit.comm import Leaves
        >>> Leaves.of_rows(3, 4)
        Leaves(count=4, present=(1, 2, 3))
        >>> Leaves.of_rows(8, 8).pieces(rank=1, ranks=3)
        [(2, 2), (4, 1)]
    """

    count: int
    present: tuple[int, ...]

    @classmethod
    def of_rows(cls, rows: int, count: int) -> Leaves:
        """The leaves of a batch: leaf i has the rows i*rows//count up to the next's."""
        bounds = [i * rows // count for i in range(count + 1)]
        return cls(count, tuple(i for i in range(count) if bounds[i] < bounds[i + 1]))

    @property
    def span(self) -> int:
        """The number of leaves of the whole tree: a power of two."""
        return 1 << (self.count - 1).bit_length()

    def owned(self, rank: int, ranks: int) -> range:
        """The leaves of a rank, some of which may have no rows."""
        return range(rank * self.count // ranks, (rank + 1) * self.count // ranks)

    def pieces(self, rank: int, ranks: int) -> list[tuple[int, int]]:
        """The largest subtrees, as (first leaf, size), inside of what a rank owns.

        Those without a present leaf are left out.
        """
        return list(self._pieces(0, self.span, self.owned(rank, ranks)))

    def _pieces(self, first: int, size: int, owned: range) -> Iterator[tuple[int, int]]:
        leaves = range(first, min(first + size, self.count))
        if not any(leaf in leaves and leaf in owned for leaf in self.present):
            return
        if leaves.start in owned and leaves.stop <= owned.stop:
            yield first, size
        else:
            yield from self._pieces(first, size // 2, owned)
            yield from self._pieces(first + size // 2, size // 2, owned)


@lru_cache(maxsize=256)
def pieces_of_ranks(leaves: Leaves, ranks: int) -> tuple[tuple[Subtree, ...], ...]:
    """The pieces of each rank; a step asks again and again."""
    return tuple(tuple(leaves.pieces(rank, ranks)) for rank in range(ranks))


def combined(
    tree: Subtree,
    found: Callable[[Subtree], T | None],
    combine: Callable[[T, T], T],
) -> T | None:
    """A subtree, from those that are there: left halves before right ones.

    An absent half is left out. This is the one order of sums over leaves.

    Args:
        tree: the subtree.
        found: what is there of a subtree, or None.
        combine: of the left and the right half.

    Returns:
        The combination; None if no leaf of it is there.
    """
    whole = found(tree)
    first, size = tree
    if whole is not None or size == 1:
        return whole
    left = combined((first, size // 2), found, combine)
    right = combined((first + size // 2, size // 2), found, combine)
    if left is None or right is None:
        return right if left is None else left
    return combine(left, right)


class Step(NamedTuple):
    """One combination of two operands.

    Attributes:
        left, right: positions among the operands, which results are appended to.
        target: position of the operand whose memory takes the result; -1 for new one.
    """

    left: int
    right: int
    target: int


def steps(leaves: Leaves, keys: Sequence[Subtree], kept: int) -> tuple[Step, ...]:
    """The combinations up the tree, in their order; the last one is the whole.

    Args:
        leaves: of the tree.
        keys: the subtrees whose combinations are there.
        kept: how many of them, from the first one on, may not be overwritten.
    """
    at = {key: position for position, key in enumerate(keys)}
    found: list[Step] = []

    def combine(left: int, right: int) -> int:
        target = next((i for i in (left, right) if i >= kept), -1)
        found.append(Step(left, right, target))
        return len(keys) + len(found) - 1

    combined((0, leaves.span), at.get, combine)
    return tuple(found)
