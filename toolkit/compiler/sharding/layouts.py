"""Shardings of a value over the ranks of one mesh axis."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

from toolkit.comm import Group, Leaves
from toolkit.definitions.records import record
from toolkit.ir import Spec


class Split(NamedTuple):
    """Sharding in which each rank has a part of the units of an axis.

    The extent of the axis is major * units * minor. If (steps, batch) were merged into
    one axis, `major` is the number of steps; if (batch, steps) were merged, `minor` is.
    """

    axis: int
    major: int = 1
    minor: int = 1

    def units(self, spec: Spec) -> int:
        """Return the total number of units of a value with this spec."""
        return spec.shape[self.axis] // (self.major * self.minor)

    def local(self, spec: Spec, units: int) -> Spec:
        """Return the spec of a shard with this number of units."""
        shape = list(spec.shape)
        shape[self.axis] = self.major * units * self.minor
        return spec.with_shape(shape)


class Partial(NamedTuple):
    """Sharding in which each leaf has a term; the value is all terms combined by `op`.

    Attributes:
        op: "sum", "prod", "max" or "min".
        units: units of the combined axis: they determine the leaves that have a term.
    """

    op: str
    units: int


# None: every rank has the whole value (replicated).
Layout: TypeAlias = Split | Partial | None


@record
class MeshAxis:
    """One axis of a mesh, from the perspective of this rank.

    Attributes:
        name: name of the axis.
        group: the group of ranks along it.
        leaves: the number of parts of a split axis, independent of the number of ranks;
            each rank has adjacent parts.
        even: whether only extents that are divisible by the number of leaves are split.
        can_gather: whether ranks can read the parts of all ranks. Micro-batches cannot,
            because they run one after the other.
        reduction: "tree" to add the terms of all leaves along a tree; "nccl" to add the
            terms of ranks in the order of NCCL.
    """

    name: str
    group: Group
    leaves: int
    even: bool = True
    can_gather: bool = True
    reduction: str = "tree"

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def bound(self, leaf: int, units: int) -> int:
        """Return the first unit of a leaf."""
        return _first_row(leaf, units, self.leaves)

    def rows(self, units: int, rank: int | None = None) -> range:
        """Return the units of a rank; None: of this rank."""
        rank = self.group.rank if rank is None else rank
        return _rows_of_rank(units, self.leaves, rank, self.group.size)

    def present(self, units: int) -> Leaves:
        """Return the leaves that have units."""
        return Leaves.of_rows(units, self.leaves)

    def local_slices(self, split: Split, spec: Spec) -> tuple[slice, ...]:
        """Return the slices of this rank's shard, which must be one range of units.

        Args:
            split: sharding of the value.
            spec: spec of the whole value, or an array.
        """
        rows = self.rows(split.units(spec))
        bounds = slice(rows.start * split.minor, rows.stop * split.minor)
        return (*(slice(None),) * split.axis, bounds)


def _first_row(leaf: int, units: int, leaves: int) -> int:
    return leaf * units // leaves


@lru_cache(maxsize=1024)  # each step asks for the rows of its batch
def _rows_of_rank(units: int, leaves: int, rank: int, ranks: int) -> range:
    owned = Leaves.of_rows(units, leaves).range_of_rank(rank, ranks)
    start, stop = (
        _first_row(leaf, units, leaves) for leaf in (owned.start, owned.stop)
    )
    return range(start, stop)


def reshaped(
    split: Split, shape: tuple[int, ...], new_shape: tuple[int, ...]
) -> Split | None:
    """Return the sharding after a reshape, or None if no axis holds the units."""
    units = shape[split.axis] // (split.major * split.minor)
    major = prod(shape[: split.axis]) * split.major
    before = 1
    for axis, extent in enumerate(new_shape):
        if before * extent > major or (before * extent == major and units == 1):
            split_after = Split(axis, major // before, 0)
            remainder = (
                extent // (split_after.major * units) if split_after.major else 0
            )
            fits = before * split_after.major == major
            if fits and split_after.major * units * remainder == extent:
                return split_after._replace(minor=remainder)
            return None
        before *= extent
    return None
