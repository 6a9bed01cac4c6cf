"""Redundant copies of sharded variables on the next rank, to survive a lost rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from toolkit import comm
from toolkit.comm import Group
from toolkit.core.placement import change_placement, local_shard
from toolkit.distribution.elastic import recovery
from toolkit.distribution.placements import ShardPlacement
from toolkit.errors import LaunchError

Array = Any


class ShardCopies:
    """Copies of the previous rank's shards, from the same step.

    A step sends its new values to the next rank before they are committed. Until then,
    both ranks also keep the old values.

    Args:
        place: a function that returns this rank's placement of a variable, for the
            current ranks.
    """

    def __init__(self, place: Callable[[Any], ShardPlacement | None]) -> None:
        self._place = place
        self._variables: list[ref[Any]] = []
        self._before: dict[Any, Array] = {}  # copies of the previous rank, by variable
        self._next: dict[Any, Array] = {}  # the same, for the uncommitted step
        self._new: dict[Any, Array] = {}  # new values of this rank

    def add(self, variable: Any) -> None:
        """Add a variable that is sharded along its first axis."""
        self._variables.append(ref(variable))

    def variables(self) -> list[Any]:
        """Return the live variables, in the creation order of all ranks."""
        found = (made() for made in self._variables)
        return [v for v in found if v is not None and v.placement is not None]

    def begin(self) -> None:
        """Send the values of variables that have no copy yet."""
        self._send({v: local_shard(v) for v in self.variables()})
        self._before, self._next = {**self._before, **self._next}, {}

    def settle(self, written: Sequence[Any], arrays: list[Array]) -> None:
        """Commit a step: its new values are valid after the return.

        Args:
            written: the variables that it writes.
            arrays: their new values. After the loss of a rank, the values of shards are
                replaced by the new shards of this rank.
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
        """Combine the remaining shards, and give each rank its new shard.

        Args:
            resize: a function that creates the groups of the remaining ranks and
                returns the previous group.
            counts: whether the new values of the interrupted step are valid.
        """
        before = resize()
        world, variables = comm.world(), self.variables()
        there = comm.exchange(world, before.rank)
        mine = {v: local_shard(v) for v in variables} | (self._new if counts else {})
        copies = self._before | (self._next if counts else {})
        wholes = {v: self._whole(v, mine, copies, before, there) for v in variables}
        for variable, whole in wholes.items():
            change_placement(variable, self._place(variable), whole)
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
        """Return the value of a variable, from its shards and the copies of lost ones.

        Args:
            variable: the sharded variable.
            mine: the values of this rank, by variable.
            copies: the copies of the previous rank's values.
            before: the group that held the shards.
            there: its remaining ranks, in world order.
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
        """Send this rank's shards to the next rank, and receive the previous rank's."""
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
