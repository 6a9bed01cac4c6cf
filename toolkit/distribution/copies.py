"""Copies of what ranks hold of split variables, with the next rank: one may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from toolkit import comm
from toolkit.comm import Group
from toolkit.core.placement import held, move
from toolkit.distribution.elastic import recovery
from toolkit.distribution.placements import Parts
from toolkit.errors import LaunchError

Array = Any


class Copies:
    """The parts of variables that the rank before this one holds, as of the same step.

    A step that computes new values sends them to the next rank before they count. Until
    then both have what was before, too.

    Args:
        place: the part of a variable that this rank is to hold, for ranks as they are.
    """

    def __init__(self, place: Callable[[Any], Parts | None]) -> None:
        self._place = place
        self._variables: list[ref[Any]] = []
        self._before: dict[Any, Array] = {}  # of the rank before, by variable
        self._next: dict[Any, Array] = {}  # the same, of the step that is not over
        self._new: dict[Any, Array] = {}  # of this rank

    def add(self, variable: Any) -> None:
        """Look after a variable, whose placement is a part along its first axis."""
        self._variables.append(ref(variable))

    def variables(self) -> list[Any]:
        """Those that are there, in the order in which all ranks made them."""
        found = (made() for made in self._variables)
        return [v for v in found if v is not None and v.placement is not None]

    def begin(self) -> None:
        """Send what variables hold, which nothing is a copy of yet."""
        self._send({v: held(v) for v in self.variables()})
        self._before, self._next = {**self._before, **self._next}, {}

    def settle(self, written: Sequence[Any], arrays: list[Array]) -> None:
        """End a step: its new values count when this returns.

        Args:
            written: the variables that it writes.
            arrays: their new values; where a rank was lost meanwhile, those of parts
                become those of the parts that this rank holds now.
        """
        version = recovery.version
        pairs = zip(written, arrays, strict=True)
        self._new = {v: array for v, array in pairs if v.placement is not None}
        self._send(self._new)
        try:
            recovery.settle()
        finally:
            new, self._new = self._new, {}
            later, self._next = self._next, {}
        if version == recovery.version:
            self._before.update(later)
            return
        for number, variable in enumerate(written):
            if variable in new:
                arrays[number] = variable._tensor._array

    def spread_anew(self, resize: Callable[[], Group], counts: bool) -> None:
        """Put parts together that are left, and give each rank its new part.

        Args:
            resize: makes the groups of the ranks that are left, and returns that of the
                ranks before.
            counts: whether the new values of the step count in which a rank was lost.
        """
        before = resize()
        world, variables = comm.world(), self.variables()
        there = comm.exchange(world, before.rank)
        mine = {v: held(v) for v in variables} | (self._new if counts else {})
        copies = self._before | (self._next if counts else {})
        wholes = {v: self._whole(v, mine, copies, before, there) for v in variables}
        for variable, whole in wholes.items():
            move(variable, self._place(variable), whole)
        self._before, self._next, self._new = {}, {}, {}
        self.begin()

    def _whole(
        self,
        variable: Any,
        mine: dict[Any, Array],
        copies: dict[Any, Array],
        before: Group,
        there: list[int],
    ) -> Array:
        """The value of a variable, from its parts and the copies of lost ones.

        Args:
            variable: that was held in parts.
            mine: what this rank has, by variable.
            copies: what the rank before it had.
            before: the group that held the parts.
            there: the ranks of it that are left, in the order of those of the world.
        """
        world, ranks = comm.world(), before.size
        whole = np.empty(variable.shape, mine[variable].dtype)
        (axis, split), *_ = variable.placement.splits
        for rank in range(ranks):
            is_lost = rank not in there
            holder = (rank + 1) % ranks if is_lost else rank
            if holder not in there or ranks == 1:
                raise LaunchError(
                    f"variable {variable.path!r}: rank {rank} is lost, and rank "
                    f"{holder}, which had a copy of its part; start the job again from "
                    "a checkpoint"
                )
            rows = axis.rows(split.units(variable.spec), rank)
            part = whole[rows.start : rows.stop]
            if before.rank == holder:
                part[...] = (copies if is_lost else mine)[variable]
            world.broadcast(part, there.index(holder))
        return whole

    def _send(self, arrays: dict[Any, Array]) -> None:
        """Send this rank's parts to the next one; those of the one before come here."""
        world = comm.world()
        if not arrays or world.size == 1:
            return
        after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for variable, array in arrays.items():
            (axis, split), *_ = variable.placement.splits
            rows = axis.rows(split.units(variable.spec), before)
            copy = np.empty((len(rows), *array.shape[1:]), array.dtype)
            counts = [0] * world.size, [0] * world.size
            counts[0][after], counts[1][before] = array.nbytes, copy.nbytes
            world.all_to_all(np.ascontiguousarray(array), counts[0], copy, counts[1])
            self._next[variable] = copy
