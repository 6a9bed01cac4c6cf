"""Reductions over ranks in a fixed order: bitwise equal for any number of ranks.

The batch axis is split into leaves, and a binary tree combines the terms of the leaves.
A rank owns an interval of leaves and supplies the sums of the largest subtrees in it.
The rank that combines the remaining levels does not affect the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from toolkit.comm import shared, shared_reduction
from toolkit.comm.group import (
    Group,
    offsets_of,
    split_range,
)
from toolkit.comm.leaves import Leaves, Step, combination_steps, pieces_of_ranks
from toolkit.errors import ArgumentError, DTypeError, ShapeError, unknown_choice
from toolkit.type_aliases import Array

OPERATIONS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}
# Identity elements of the operations; "max" and "min" have none.
IDENTITY_ELEMENTS = {"sum": 0, "prod": 1, "any": False, "all": True}
# Up to this number of bytes from all other ranks, every rank gets all pieces and
# combines them itself. This needs one exchange instead of two. Between two ranks it
# sends no more bytes.
_MAX_DIRECT_SIZE = 512 << 10
_MAX_PAIR_SIZE = 32 << 20
# Bytes of a rank in one round: the received and combined data stays in the cache.
ROUND_SIZE = 512 << 10
# Parts start at multiples of this number of bytes, so that ranks share no cache line.
_ALIGNMENT = 64


def all_reduce(
    group: Group,
    pieces: Sequence[Sequence[Array]],
    leaves: Leaves,
    outs: Sequence[Array],
    op: str = "sum",
) -> None:
    """All-reduce several tensors along the tree.

    The tensors share one exchange per dtype, so that many small ones cost as little as
    one. Ranks of one machine read pieces from shared memory. Between machines, a single
    tensor is sent without a copy.

    Args:
        group: the group; all its ranks call this with tensors of the same shapes.
        pieces: for each tensor this rank's pieces, in the order of `leaves.pieces`.
        leaves: the leaves of the pieces.
        outs: for each tensor a contiguous array for the result, which can be one of the
            pieces.
        op: "sum", "prod", "max", "min", "any" or "all".
    """
    for run in prepare_all_reduce(group, pieces, leaves, outs, op):
        run()


def prepare_all_reduce(
    group: Group,
    pieces: Sequence[Sequence[Array]],
    leaves: Leaves,
    outs: Sequence[Array],
    op: str = "sum",
) -> list[Callable[[], None]]:
    """Return a reusable function that runs `all_reduce` on fixed arrays.

    All ranks prepare, and call, the same.
    """
    tree = _Tree(group, leaves, op)
    for tensor, out in zip(pieces, outs, strict=True):
        tree.check(tensor, out)
    memory = shared.memory_of(group)
    runs: list[Callable[[], None]] = []
    for indices in _group_by_dtype(outs):
        flats = [[piece.reshape(-1) for piece in pieces[i]] for i in indices]
        results = [outs[i].reshape(-1) for i in indices]
        if memory is None:
            runs.append(partial(tree.all_reduce_packed, flats, results))
            continue
        tensors = memory, flats, leaves, results
        identity = IDENTITY_ELEMENTS.get(op)
        runs.append(
            shared_reduction.AllReduce(group, *tensors, OPERATIONS[op], identity)
        )
    return runs


def as_slot_exchanges(
    runs: Sequence[Callable[[], None]],
) -> list[shared.SlotExchange] | None:
    """Return prepared all-reduces as exchanges with one barrier, if all need only one.

    Args:
        runs: the results of `prepare_all_reduce`.
    """
    exchanges: list[shared.SlotExchange] = [
        run
        for run in runs
        if isinstance(run, shared_reduction.AllReduce) and run.has_one_barrier
    ]
    return exchanges if len(exchanges) == len(runs) else None


def reduce_scatter(
    group: Group, pieces: Sequence[Array], leaves: Leaves, out: Array, op: str = "sum"
) -> None:
    """Combine the pieces of all ranks along the tree, and keep this rank's part.

    Args:
        group: the group; all its ranks call this.
        pieces: this rank's pieces, in the order of `leaves.pieces`: (ranks * n, ...).
        leaves: the leaves of the pieces.
        out: the result for rows rank * n to (rank + 1) * n: (n, ...).
        op: "sum", "prod", "max", "min", "any" or "all".
    """
    tree = _Tree(group, leaves, op)
    if out.ndim == 0:
        raise ShapeError("reduce_scatter: expected out with at least one axis")
    full_shape = (group.size * out.shape[0], *out.shape[1:])
    tree.check(pieces, out, full_shape)
    flats = [piece.reshape(-1) for piece in pieces]
    flat_out = out.reshape(-1)
    memory = shared.memory_of(group)
    if memory is not None:
        shared_reduction.reduce_scatter(
            group, memory, flats, leaves, flat_out, tree.combine
        )
        return
    starts = [rank * flat_out.size for rank in range(group.size)]
    for low, high in _rounds(flat_out.size, flat_out.itemsize):
        bounds = tuple((start + low, start + high) for start in starts)
        tree.reduce(flats, bounds, flat_out[low:high])


class _Tree:
    """Tree reduction of the pieces of all ranks.

    Args:
        group: the group of the ranks.
        leaves: the leaves of the pieces.
        op: the name of the operation.
    """

    def __init__(self, group: Group, leaves: Leaves, op: str) -> None:
        if op not in OPERATIONS:
            raise unknown_choice("all_reduce: op", op, OPERATIONS)
        self.group = group
        self.leaves = leaves
        self.op = op
        self._combine_pair = OPERATIONS[op]
        self.pieces = pieces_of_ranks(leaves, group.size)
        self.local_pieces = self.pieces[group.rank]
        self._scratch_buffer: Array = np.empty(0)

    def check(
        self, pieces: Sequence[Array], out: Array, shape: tuple[int, ...] | None = None
    ) -> None:
        """Raise an error for pieces with a wrong number, shape, dtype or layout."""
        shape = out.shape if shape is None else shape
        if len(pieces) != len(self.local_pieces):
            raise ArgumentError(
                f"all_reduce: expected {len(self.local_pieces)} pieces "
                f"{self.local_pieces} of rank {self.group.rank}; received {len(pieces)}"
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
        if not self.leaves.present and self.op not in IDENTITY_ELEMENTS:
            raise ArgumentError(f"all_reduce: no rank has rows for the {self.op} of")

    def all_reduce_packed(
        self, flats: Sequence[Sequence[Array]], outs: Sequence[Array]
    ) -> None:
        """Combine flat pieces of several tensors of one dtype."""
        if len(outs) == 1 or self.group.size == 1:
            for pieces, out in zip(flats, outs, strict=True):
                self.all_reduce(pieces, out)
            return
        packed_pieces = [np.concatenate(pieces) for pieces in zip(*flats, strict=True)]
        total = sum(out.size for out in outs)
        packed_result = (
            packed_pieces[0] if packed_pieces else np.empty(total, outs[0].dtype)
        )
        self.all_reduce(packed_pieces, packed_result)
        start = 0
        for out in outs:
            out[:] = packed_result[start : start + out.size]
            start += out.size

    def all_reduce(self, flats: Sequence[Array], out: Array) -> None:
        """Combine flat pieces into `out`, which has the result on all ranks."""
        group, size, itemsize = self.group, out.size, out.itemsize
        if group.size == 1:
            self.combine(list(flats), _single_rank_steps(self.leaves), out)
            return
        # Between two ranks this sends no more bytes, and has the network latency once.
        is_single_exchange = (
            group.size == 2 and group.is_remote and out.nbytes <= _MAX_PAIR_SIZE
        )
        if is_single_exchange or out.nbytes * (group.size - 1) <= _MAX_DIRECT_SIZE:
            self.reduce(flats, ((0, size),) * group.size, out)
            return
        for low, high in _rounds(size, itemsize, group.size):
            bounds = split_range(low, high, group.size, _ALIGNMENT // itemsize or 1)
            shard = out[slice(*bounds[group.rank])]
            self.reduce(flats, bounds, shard)
            counts = [(stop - start) * itemsize for start, stop in bounds]
            group.all_gather_varying(shard, out[low:high], counts)

    def reduce(
        self, flats: Sequence[Array], bounds: tuple[tuple[int, int], ...], out: Array
    ) -> None:
        """Send each rank its part of the pieces, and combine this rank's into `out`.

        Args:
            flats: this rank's pieces.
            bounds: the part of each rank, as (start, stop) of elements.
            out: the result for this rank's part, which can be part of a piece.
        """
        rank = self.group.rank
        plan = _make_plan(self.leaves, rank, bounds, out.itemsize)
        received_data = self._scratch(plan.received_size, out.dtype)
        if len(flats) == 1:
            send, starts = flats[0], plan.starts
        else:
            segments = [
                flat[start:stop] for start, stop in plan.segments for flat in flats
            ]
            send, starts = np.concatenate([out[:0], *segments]), plan.packed_starts
        self.group.all_to_all(
            send, plan.send_counts, received_data, plan.receive_counts, starts
        )
        start, stop = bounds[rank]
        operands = [flat[start:stop] for flat in flats]
        operands.extend(received_data.reshape(plan.received_pieces, out.size))
        self.combine(operands, plan.steps, out)

    def _scratch(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Return a receive buffer, reused in later rounds."""
        if self._scratch_buffer.dtype != dtype or self._scratch_buffer.size < size:
            self._scratch_buffer = np.empty(size, dtype)
        return self._scratch_buffer[:size]

    def combine(self, operands: list[Array], steps: Sequence[Step], out: Array) -> None:
        """Combine subtrees up the tree into `out`.

        Only the last combination writes to `out`, because `out` can be an operand.
        """
        if not steps:
            out[...] = operands[0] if operands else IDENTITY_ELEMENTS[self.op]
            return
        # Overflow and NaN appear in the result, as for other operations.
        with np.errstate(all="ignore"):
            for lhs, rhs, target in steps[:-1]:
                destination = operands[target] if target >= 0 else None
                operands.append(
                    self._combine_pair(operands[lhs], operands[rhs], out=destination)
                )
            lhs, rhs, _ = steps[-1]
            self._combine_pair(operands[lhs], operands[rhs], out=out)


class _Plan(NamedTuple):
    """Exchange and combination plan of one rank.

    Attributes:
        send_counts, starts: the number of bytes for each rank, and their offsets in a
            single piece.
        segments, packed_starts: for several pieces, the segments to pack contiguously,
            and the offsets for each rank.
        receive_counts: the number of bytes from each rank.
        received_pieces, received_size: the number of pieces and elements from other
            ranks.
        steps: the combinations.
    """

    send_counts: list[int]
    starts: list[int]
    segments: list[tuple[int, int]]
    packed_starts: list[int]
    receive_counts: list[int]
    received_pieces: int
    received_size: int
    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def _make_plan(
    leaves: Leaves, rank: int, bounds: tuple[tuple[int, int], ...], itemsize: int
) -> _Plan:
    pieces = pieces_of_ranks(leaves, len(bounds))
    local_keys, size = pieces[rank], bounds[rank][1] - bounds[rank][0]
    send_counts = [
        (stop - start) * len(local_keys) * itemsize for start, stop in bounds
    ]
    # Ranks with equal parts receive the same packed bytes.
    lengths = {segment: send_counts[r] for r, segment in enumerate(bounds) if r != rank}
    packed_offsets = dict(zip(lengths, offsets_of(list(lengths.values())), strict=True))
    send_counts[rank] = 0
    piece_counts = [len(keys) * (r != rank) for r, keys in enumerate(pieces)]
    peer_keys = [key for r, keys in enumerate(pieces) if r != rank for key in keys]
    return _Plan(
        send_counts,
        [start * itemsize for start, _ in bounds],
        list(packed_offsets),
        [packed_offsets.get(segment, 0) for segment in bounds],
        [count * size * itemsize for count in piece_counts],
        len(peer_keys),
        len(peer_keys) * size,
        combination_steps(leaves, [*local_keys, *peer_keys], len(local_keys)),
    )


@lru_cache(maxsize=256)
def _single_rank_steps(leaves: Leaves) -> tuple[Step, ...]:
    """Return the combinations for one rank, without overwriting its pieces."""
    (keys,) = pieces_of_ranks(leaves, 1)
    return combination_steps(leaves, keys, len(keys))


def _group_by_dtype(arrays: Sequence[Array]) -> list[list[int]]:
    """Return the indices of arrays grouped by dtype, in order of first occurrence."""
    groups: dict[np.dtype[Any], list[int]] = {}
    for index, array in enumerate(arrays):
        groups.setdefault(array.dtype, []).append(index)
    return list(groups.values())


@lru_cache(maxsize=256)
def _rounds(size: int, itemsize: int, ranks: int = 1) -> tuple[tuple[int, int], ...]:
    """Split elements into rounds of about `ROUND_SIZE` bytes for each rank."""
    count = max(1, -(-size * itemsize // (ranks * ROUND_SIZE)))
    return split_range(0, size, count, _ALIGNMENT // itemsize or 1)
