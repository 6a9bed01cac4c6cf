"""Sums over ranks in a fixed order: the same bits however many ranks there are.

The batch axis is cut into leaves, and terms of leaves are combined along a binary tree
over them. A rank has an interval of leaves and brings the sums of the largest subtrees
inside of it; which rank combines the rest does not change the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from toolkit.comm.group import Array, Group, offsets_of
from toolkit.errors import ArgumentError, DTypeError, ShapeError, unknown_choice

OPERATIONS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}
# Its key, its combination, and whether the memory of that may be written.
_Subtree: TypeAlias = tuple[tuple[int, int], Array, bool]
# What a combination of no terms is; there is none of "max" and "min".
_OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True}
# Up to so many bytes each rank gets all pieces and combines them itself.
_SMALL = 8 << 10
# A rank's part of one round: what is received and combined stays in the cache.
_ROUND = 512 << 10
# Parts start at multiples of so many bytes, so that no two ranks share a cache line.
_ALIGNMENT = 64


@dataclass(frozen=True)
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


def all_reduce(
    group: Group,
    pieces: Sequence[Sequence[Array]],
    leaves: Leaves,
    outs: Sequence[Array],
    op: str = "sum",
) -> None:
    """Combine the pieces of all ranks along the tree, for several tensors at once.

    The tensors go together, so that many small ones cost as little as one; those of
    different dtypes go one dtype after the other. A single tensor is sent from where it
    is, without a copy.

    Args:
        group: all of whose ranks call this with tensors of the same shapes.
        pieces: for each tensor this rank's pieces, in the order of `leaves.pieces`.
        leaves: what the pieces are of.
        outs: for each tensor a contiguous array for the result; it may be one of the
            pieces.
        op: "sum", "prod", "max", "min", "any" or "all".
    """
    tree = _Tree(group, leaves, op)
    for tensor, out in zip(pieces, outs, strict=True):
        tree.check(tensor, out)
    for same in _by_dtype(outs):
        if len(same) == 1:
            tensor, out = pieces[same[0]], outs[same[0]]
            tree.all_reduce([piece.reshape(-1) for piece in tensor], out.reshape(-1))
            continue
        flats = [
            np.concatenate([pieces[i][k].reshape(-1) for i in same])
            for k in range(len(tree.mine))
        ]
        total = sum(outs[i].size for i in same)
        joined = flats[0] if flats else np.empty(total, outs[same[0]].dtype)
        tree.all_reduce(flats, joined)
        start = 0
        for i in same:
            outs[i].reshape(-1)[:] = joined[start : start + outs[i].size]
            start += outs[i].size


def reduce_scatter(
    group: Group,
    pieces: Sequence[Array],
    leaves: Leaves,
    out: Array,
    op: str = "sum",
) -> None:
    """Combine the pieces of all ranks along the tree, and keep this rank's part.

    Args:
        group: all of whose ranks call this.
        pieces: this rank's, in the order of `leaves.pieces`: (ranks * n, ...).
        leaves: what the pieces are of.
        out: for the rows rank * n up to the next rank's: (n, ...).
        op: "sum", "prod", "max", "min", "any" or "all".
    """
    tree = _Tree(group, leaves, op)
    if out.ndim == 0:
        raise ShapeError("reduce_scatter: expected out of one axis at least")
    whole = (group.size * out.shape[0], *out.shape[1:])
    tree.check(pieces, out, whole)
    flats = [piece.reshape(-1) for piece in pieces]
    part = out.reshape(-1)
    starts = [rank * part.size for rank in range(group.size)]
    for low, high in _rounds(part.size, part.itemsize):
        bounds = [(start + low, start + high) for start in starts]
        tree.reduce(flats, bounds, part[low:high])


class _Tree:
    """How the pieces of all ranks are combined.

    Args:
        group: of the ranks that bring them.
        leaves: what they are of.
        op: the name of what combines two.
    """

    def __init__(self, group: Group, leaves: Leaves, op: str) -> None:
        if op not in OPERATIONS:
            raise unknown_choice("all_reduce: op", op, OPERATIONS)
        self.group = group
        self.leaves = leaves
        self.op = op
        self.combine = OPERATIONS[op]
        self.pieces = [leaves.pieces(r, group.size) for r in range(group.size)]
        self.mine = self.pieces[group.rank]
        self._memory: Array | None = None

    def check(
        self, pieces: Sequence[Array], out: Array, shape: tuple[int, ...] | None = None
    ) -> None:
        """Refuse pieces that are not as many, of other shapes, dtypes or layouts."""
        shape = out.shape if shape is None else shape
        if len(pieces) != len(self.mine):
            raise ArgumentError(
                f"all_reduce: expected {len(self.mine)} pieces {self.mine} of rank "
                f"{self.group.rank}; received {len(pieces)}"
            )
        for array in (*pieces, out):
            if not array.flags.c_contiguous:
                raise ArgumentError("all_reduce: expected contiguous arrays")
            if array.dtype != out.dtype:
                raise DTypeError(
                    f"all_reduce: expected pieces of {out.dtype}, as out; received "
                    f"{array.dtype}"
                )
        for piece in pieces:
            if piece.shape != shape:
                raise ShapeError(
                    f"all_reduce: expected pieces of shape {shape}; received "
                    f"{piece.shape}"
                )
        if not self.leaves.present and self.op not in _OF_NOTHING:
            raise ArgumentError(
                f"all_reduce: no rank has rows to take the {self.op} of"
            )

    def all_reduce(self, flats: Sequence[Array], out: Array) -> None:
        """Combine flat pieces into `out`, which has the result on all ranks."""
        size, itemsize = self.group.size, out.itemsize
        if size == 1:
            own = zip(self.mine, flats, strict=True)
            self._combine([(key, flat, False) for key, flat in own], out)
        elif out.nbytes <= _SMALL:
            self._gather_all(flats, out)
        else:
            for low, high in _rounds(out.size, itemsize, size):
                bounds = _cut(low, high, size, _ALIGNMENT // itemsize or 1)
                mine = out[slice(*bounds[self.group.rank])]
                self.reduce(flats, bounds, mine)
                counts = [(stop - start) * itemsize for start, stop in bounds]
                self.group.all_gather_varying(mine, out[low:high], counts)

    def _gather_all(self, flats: Sequence[Array], out: Array) -> None:
        """Send all pieces to all ranks; each combines them: the least latency."""
        counts = [len(theirs) * out.nbytes for theirs in self.pieces]
        send = np.concatenate([out[:0], *flats])
        received = np.empty(sum(counts) // out.itemsize, out.dtype)
        self.group.all_gather_varying(send, received, counts)
        keys = [key for theirs in self.pieces for key in theirs]
        parts = list(received.reshape(len(keys), out.size))
        have = zip(keys, parts, strict=True)
        self._combine([(key, part, True) for key, part in have], out)

    def reduce(
        self, flats: Sequence[Array], bounds: Sequence[tuple[int, int]], out: Array
    ) -> None:
        """Send each rank its part of the pieces, and combine this rank's into `out`.

        Args:
            flats: this rank's pieces.
            bounds: the part of each rank, as (start, stop) of elements.
            out: for this rank's part; it may be a part of a piece.
        """
        rank, itemsize = self.group.rank, out.itemsize
        theirs = [0 if r == rank else len(keys) for r, keys in enumerate(self.pieces)]
        received = self._scratch(sum(theirs) * out.size, out.dtype)
        lengths = [stop - start for start, stop in bounds]
        counts = [n * len(flats) * itemsize for n in lengths]
        counts[rank] = 0
        if len(flats) == 1:
            send, starts = flats[0], [start * itemsize for start, _ in bounds]
        else:
            parts = [
                flat[start:stop]
                for r, (start, stop) in enumerate(bounds)
                if r != rank
                for flat in flats
            ]
            send, starts = np.concatenate([out[:0], *parts]), offsets_of(counts)
        self.group.all_to_all(
            send, counts, received, [n * out.nbytes for n in theirs], starts
        )
        own = slice(*bounds[rank])
        have = [(key, f[own], False) for key, f in zip(self.mine, flats, strict=True)]
        keys = [key for r, keys in enumerate(self.pieces) if r != rank for key in keys]
        parts = list(received.reshape(len(keys), out.size))
        have += [(key, part, True) for key, part in zip(keys, parts, strict=True)]
        self._combine(have, out)

    def _scratch(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Memory for what is received, kept from round to round."""
        if self._memory is None or self._memory.size < size:
            self._memory = np.empty(size, dtype)
        return self._memory[:size]

    def _combine(self, have: Sequence[_Subtree], out: Array) -> None:
        """Combine subtrees up the tree into `out`."""
        found = {key: (array, temporary) for key, array, temporary in have}
        # What overflows or is not a number shows in the result, as it does elsewhere.
        with np.errstate(all="ignore"):
            total = self._up(found, 0, self.leaves.span, out)
        if total is None:
            out[...] = _OF_NOTHING[self.op]
        elif total[0] is not out:
            out[...] = total[0]

    def _up(
        self,
        have: dict[tuple[int, int], tuple[Array, bool]],
        first: int,
        size: int,
        out: Array | None,
    ) -> tuple[Array, bool] | None:
        """A subtree's combination and whether its memory may be written.

        It is None if no leaf of it is present. Only the last combination writes to
        `out`, which may be one of the operands.
        """
        if (first, size) in have:
            return have[first, size]
        if size == 1:
            return None
        half = size // 2
        left = self._up(have, first, half, None)
        right = self._up(have, first + half, half, None)
        if left is None or right is None:
            return right if left is None else left
        if out is None:
            out = next((array for array, temporary in (left, right) if temporary), None)
        return self.combine(left[0], right[0], out=out), True


def _by_dtype(arrays: Sequence[Array]) -> list[list[int]]:
    """Positions of arrays of the same dtype, in the order of their first."""
    found: dict[np.dtype[Any], list[int]] = {}
    for position, array in enumerate(arrays):
        found.setdefault(array.dtype, []).append(position)
    return list(found.values())


def _rounds(size: int, itemsize: int, ranks: int = 1) -> list[tuple[int, int]]:
    """Cut elements into rounds, of about `_ROUND` bytes for each rank."""
    count = max(1, -(-size * itemsize // (ranks * _ROUND)))
    return _cut(0, size, count, _ALIGNMENT // itemsize or 1)


def _cut(start: int, stop: int, count: int, multiple: int) -> list[tuple[int, int]]:
    """Cut start..stop into `count` parts that start at multiples after `start`."""
    units = -(-(stop - start) // multiple)
    bounds = [
        min(start + i * units // count * multiple, stop) for i in range(count + 1)
    ]
    return list(zip(bounds[:-1], bounds[1:], strict=True))
