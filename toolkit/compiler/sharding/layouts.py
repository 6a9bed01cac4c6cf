"""How a value is spread over the ranks of one mesh axis."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, TypeAlias

from toolkit.comm import Group, Leaves
from toolkit.definitions.records import record
from toolkit.ir import Spec


class Split(NamedTuple):
    """Each rank has a part of the units of an axis.

    The extent of the axis is major * units * minor: (steps, batch) that were merged to
    one axis have the steps as `major`, (batch, steps) have them as `minor`.
    """

    axis: int
    major: int = 1
    minor: int = 1

    def units(self, spec: Spec) -> int:
        """How many units a value of this spec has in all."""
        return spec.shape[self.axis] // (self.major * self.minor)

    def local(self, spec: Spec, units: int) -> Spec:
        """The spec of so many of the units."""
        shape = list(spec.shape)
        shape[self.axis] = self.major * units * self.minor
        return spec.with_shape(shape)


class Partial(NamedTuple):
    """Each leaf has a term; all terms combined by `op` are the value.

    Attributes:
        op: "sum", "prod", "max" or "min".
        units: of the axis that was combined: they tell which leaves have a term.
    """

    op: str
    units: int


# None: every rank has the whole value.
Layout: TypeAlias = Split | Partial | None


@record
class MeshAxis:
    """One axis of a mesh, as the rank sees it that this process is.

    Attributes:
        name: of the axis.
        group: the ranks along it.
        leaves: into how many parts what is split along it is cut, whatever the number
            of ranks; each rank has neighbouring ones.
        even: whether only extents are split that all leaves have the same part of.
    """

    name: str
    group: Group
    leaves: int
    even: bool = True

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def bound(self, leaf: int, units: int) -> int:
        """The first unit of a leaf."""
        return leaf * units // self.leaves

    def rows(self, units: int, rank: int | None = None) -> range:
        """The units of a rank, this one if None."""
        owned = self.present(units).owned(
            self.group.rank if rank is None else rank, self.group.size
        )
        return range(self.bound(owned.start, units), self.bound(owned.stop, units))

    def present(self, units: int) -> Leaves:
        """The leaves that have units."""
        return Leaves.of_rows(units, self.leaves)

    def part(self, split: Split, spec: Any) -> tuple[slice, ...]:
        """Where this rank's part of a value is, which has one run of units.

        Args:
            split: how the value is split.
            spec: of the whole value, or an array.
        """
        rows = self.rows(split.units(spec))
        part = slice(rows.start * split.minor, rows.stop * split.minor)
        return (*(slice(None),) * split.axis, part)


def reshaped(
    split: Split, given: tuple[int, ...], made: tuple[int, ...]
) -> Split | None:
    """The layout after a reshape; None if its units are not in one axis any more."""
    units = given[split.axis] // (split.major * split.minor)
    major = prod(given[: split.axis]) * split.major
    before = 1
    for axis, extent in enumerate(made):
        if before * extent > major or (before * extent == major and units == 1):
            found = Split(axis, major // before, 0)
            rest = extent // (found.major * units) if found.major else 0
            fits = before * found.major == major
            if fits and found.major * units * rest == extent:
                return found._replace(minor=rest)
            return None
        before *= extent
    return None
