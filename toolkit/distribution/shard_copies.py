"""Redundant copies of sharded variables on the next rank, to survive a lost rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from toolkit import comm
from toolkit.backends.memory import to_host
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
        placement_of: a function that returns this rank's placement of a variable, for
            the current ranks.
    """

    def __init__(self, placement_of: Callable[[Any], ShardPlacement | None]) -> None:
        self._placement_of = placement_of
        self._variables: list[ref[Any]] = []
        # Copies of the previous rank's shards, by variable.
        self._copies: dict[Any, Array] = {}
        # Copies of the step that is not committed.
        self._pending_copies: dict[Any, Array] = {}
        # New values of this rank.
        self._new_values: dict[Any, Array] = {}

    def add(self, variable: Any) -> None:
        """Add a variable that is sharded along its first axis."""
        self._variables.append(ref(variable))

    def variables(self) -> list[Any]:
        """Return the live variables, in the creation order of all ranks."""
        variables = (reference() for reference in self._variables)
        return [v for v in variables if v is not None and v.placement is not None]

    def begin(self) -> None:
        """Send the values of all variables, because assignments may change them."""
        self._send({v: local_shard(v) for v in self.variables()})
        self._copies, self._pending_copies = (
            {**self._copies, **self._pending_copies},
            {},
        )

    def commit(self, written: Sequence[Any], arrays: list[Array]) -> None:
        """Commit a step: its new values are valid after the return.

        Args:
            written: the variables that it writes.
            arrays: their new values. After the loss of a rank, the values of shards are
                replaced by the new shards of this rank.
        """
        version = recovery.version
        pairs = zip(written, arrays, strict=True)
        self._new_values = {
            v: to_host(array) for v, array in pairs if v.placement is not None
        }
        self._send(self._new_values)
        try:
            recovery.commit()
        finally:
            new_values, self._new_values = self._new_values, {}
            sent_copies, self._pending_copies = self._pending_copies, {}
        if version == recovery.version:
            self._copies.update(sent_copies)
            return
        for index, variable in enumerate(written):
            if variable in new_values:
                arrays[index] = variable._tensor._array

    def redistribute(self, resize: Callable[[], Group], is_committed: bool) -> None:
        """Combine the remaining shards, and create the new shard of each rank.

        Args:
            resize: a function that creates the groups of the remaining ranks and
                returns the previous group.
            is_committed: whether the new values of the interrupted step are valid.
        """
        previous_group = resize()
        world, variables = comm.world(), self.variables()
        survivors = comm.exchange(world, previous_group.rank)
        local_values = {v: local_shard(v) for v in variables} | (
            self._new_values if is_committed else {}
        )
        copies = self._copies | (self._pending_copies if is_committed else {})
        values = {
            v: self._assemble(v, local_values, copies, previous_group, survivors)
            for v in variables
        }
        for variable, value in values.items():
            change_placement(variable, self._placement_of(variable), value)
        self._copies, self._pending_copies, self._new_values = {}, {}, {}
        self.begin()

    def _assemble(
        self,
        variable: Any,
        local_values: dict[Any, Array],
        copies: dict[Any, Array],
        previous_group: Group,
        survivors: list[int],
    ) -> Array:
        """Return the value of a variable, from its shards and the copies of lost ones.

        Args:
            variable: the sharded variable.
            local_values: the values of this rank, by variable.
            copies: the copies of the previous rank's values.
            previous_group: the group that held the shards.
            survivors: its remaining ranks, in world order.
        """
        world, ranks = comm.world(), previous_group.size
        value = np.empty(variable.shape, local_values[variable].dtype)
        (axis, split), *_ = variable.placement.splits
        for rank in range(ranks):
            is_lost = rank not in survivors
            holder = (rank + 1) % ranks if is_lost else rank
            if holder not in survivors or ranks == 1:
                raise LaunchError(
                    f"variable {variable.path!r}: rank {rank} is lost, and also rank "
                    f"{holder} with the copy of its shard; restart the job from a "
                    "checkpoint"
                )
            rows = axis.rows(split.units(variable.spec), rank)
            shard = value[rows.start : rows.stop]
            if previous_group.rank == holder:
                shard[...] = (copies if is_lost else local_values)[variable]
            world.broadcast(shard, survivors.index(holder))
        return value

    def _send(self, arrays: dict[Any, Array]) -> None:
        """Send this rank's shards to the next rank, and receive the previous rank's."""
        world = comm.world()
        if not arrays or world.size == 1:
            return
        next_rank, previous_rank = (
            (world.rank + 1) % world.size,
            (world.rank - 1) % world.size,
        )
        for variable, array in arrays.items():
            (axis, split), *_ = variable.placement.splits
            rows = axis.rows(split.units(variable.spec), previous_rank)
            copy = np.empty((len(rows), *array.shape[1:]), array.dtype)
            sizes = [0] * world.size, [0] * world.size
            sizes[0][next_rank], sizes[1][previous_rank] = array.nbytes, copy.nbytes
            world.all_to_all(np.ascontiguousarray(array), sizes[0], copy, sizes[1])
            self._pending_copies[variable] = copy
