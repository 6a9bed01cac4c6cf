"""Leaves of a batch axis, and the binary tree that combines their terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from toolkit.definitions.records import record

# Subtree: the first leaf and the number of leaves.
Subtree: TypeAlias = tuple[int, int]
T = TypeVar("T")


@record
class Leaves:
    """Batch axis split into leaves; the leaves in `present` have rows.

    Attributes:
        count: the number of leaves; the tree spans the next power of two.
        present: the indices of leaves with rows, in ascending order.

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
        """Return the leaves of a batch: leaf i starts at row i*rows//count."""
        return _leaves_of_rows(rows, count)

    @property
    def span(self) -> int:
        """Return the number of leaves of the full tree: a power of two."""
        return 1 << (self.count - 1).bit_length()

    def range_of_rank(self, rank: int, ranks: int) -> range:
        """Return the leaves of a rank; some can be empty."""
        return range(rank * self.count // ranks, (rank + 1) * self.count // ranks)

    def pieces(self, rank: int, ranks: int) -> list[tuple[int, int]]:
        """Return the largest subtrees within a rank's leaves, as (first leaf, size).

        Subtrees without a present leaf are omitted.
        """
        return list(self._pieces(0, self.span, self.range_of_rank(rank, ranks)))

    def _pieces(
        self, first: int, size: int, local_leaves: range
    ) -> Iterator[tuple[int, int]]:
        leaves = range(first, min(first + size, self.count))
        if not any(leaf in leaves and leaf in local_leaves for leaf in self.present):
            return
        if leaves.start in local_leaves and leaves.stop <= local_leaves.stop:
            yield first, size
        else:
            yield from self._pieces(first, size // 2, local_leaves)
            yield from self._pieces(first + size // 2, size // 2, local_leaves)


@lru_cache(maxsize=256)
def pieces_of_ranks(leaves: Leaves, ranks: int) -> tuple[tuple[Subtree, ...], ...]:
    """Return the pieces of each rank, cached because each step needs them."""
    return tuple(tuple(leaves.pieces(rank, ranks)) for rank in range(ranks))


def combine_subtree(
    tree: Subtree,
    get_value: Callable[[Subtree], T | None],
    combine: Callable[[T, T], T],
) -> T | None:
    """Combine a subtree from its available parts: left halves before right halves.

    A missing half is skipped. This is the only order of reductions over leaves.

    Args:
        tree: the subtree.
        get_value: a function that returns the value of a subtree, or None.
        combine: a function of the left and the right half.

    Returns:
        The combination, or None if no leaf is available.
    """
    value = get_value(tree)
    first, size = tree
    if value is not None or size == 1:
        return value
    lhs = combine_subtree((first, size // 2), get_value, combine)
    rhs = combine_subtree((first + size // 2, size // 2), get_value, combine)
    if lhs is None or rhs is None:
        return rhs if lhs is None else lhs
    return combine(lhs, rhs)


class Step(NamedTuple):
    """Combination of two operands.

    Attributes:
        lhs, rhs: indices of operands; results are appended to the operands.
        target: the index of the operand whose memory receives the result; -1 allocates
            memory.
    """

    lhs: int
    rhs: int
    target: int


def combination_steps(
    leaves: Leaves, keys: Sequence[Subtree], preserved_count: int
) -> tuple[Step, ...]:
    """Return the combinations up the tree in order; the last one is the root.

    Args:
        leaves: the leaves of the tree.
        keys: the subtrees of the given operands.
        preserved_count: the number of leading operands that must not be overwritten.
    """
    indices = {key: index for index, key in enumerate(keys)}
    steps: list[Step] = []

    def combine(lhs: int, rhs: int) -> int:
        target = next((i for i in (lhs, rhs) if i >= preserved_count), -1)
        steps.append(Step(lhs, rhs, target))
        return len(keys) + len(steps) - 1

    combine_subtree((0, leaves.span), indices.get, combine)
    return tuple(steps)


@lru_cache(maxsize=1024)
def _leaves_of_rows(rows: int, count: int) -> Leaves:
    bounds = [i * rows // count for i in range(count + 1)]
    present = tuple(i for i in range(count) if bounds[i] < bounds[i + 1])
    return Leaves(count, present)
