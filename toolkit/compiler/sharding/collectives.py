"""Collectives as nodes of a graph, and their kernels on the host.

Each collective passes a token to the next one, so that no pass changes their order: all
ranks must call them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toolkit import comm
from toolkit.comm import ordered, shared
from toolkit.comm.leaves import Subtree, pieces_of_ranks
from toolkit.comm.overlap import background_of
from toolkit.compiler.control import COLLECTIVE_KERNELS
from toolkit.compiler.sharding.layouts import MeshAxis, Partial, Split
from toolkit.errors import OutOfRangeError
from toolkit.ir import Kind, Node, Primitive, Spec

Array = Any
Run = Callable[[], None]
TOKEN = Spec((), "uint8")


def _reduced_spec(
    *inputs: Spec,
    axis: MeshAxis,
    terms: Sequence[Partial],
    specs: Sequence[Spec],
    ready: int = 0,
    conditional: bool = False,
) -> Any:
    return (*specs, TOKEN)


def _gathered_spec(
    *inputs: Spec,
    axis: MeshAxis,
    splits: Sequence[Split],
    specs: Sequence[Spec],
    extents: Sequence[int | None],
    ready: int = 0,
) -> Any:
    return (*specs, TOKEN)


# Not in the registry: only the compiler adds them to a graph.
all_reduce_p: Primitive = Primitive("all_reduce", Kind.COLLECTIVE, _reduced_spec)
all_gather_p: Primitive = Primitive("all_gather", Kind.COLLECTIVE, _gathered_spec)


def _scattered_spec(
    *inputs: Spec,
    axis: MeshAxis,
    term: Partial,
    split: Split,
    full_spec: Spec,
    ready: int = 0,
) -> Any:
    return split.local(full_spec, len(axis.rows(split.units(full_spec)))), TOKEN


reduce_scatter_p: Primitive = Primitive(
    "reduce_scatter", Kind.COLLECTIVE, _scattered_spec
)


def pieces_of(axis: MeshAxis, units: int) -> Sequence[Subtree]:
    """Return the subtrees that this rank contributes."""
    return pieces_of_ranks(axis.present(units), axis.group.size)[axis.group.rank]


def _all_reduce(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    terms: Sequence[Partial],
    specs: Sequence[Spec],
    ready: int = 0,
    conditional: bool = False,
) -> Run:
    """Combine terms of all ranks; terms of the same kind are combined in one message.

    The pieces of each sum are the first inputs. `ready` is the index, in the order of
    the whole graph, of the operation that computes the last piece. If it is
    `conditional`, the input before the token says whether the sums are needed. It is
    equal on all ranks. If they are not needed, the results are undefined.
    """
    remaining = iter(inputs)
    pieces = [[next(remaining) for _ in pieces_of(axis, t.units)] for t in terms]
    kinds = {
        kind: [i for i, term in enumerate(terms) if term == kind]
        for kind in dict.fromkeys(terms)
    }

    def prepared() -> list[Run]:
        return [
            run
            for kind, same in kinds.items()
            for run in ordered.prepare_all_reduce(
                axis.group,
                [[np.asarray(x, order="C") for x in pieces[i]] for i in same],
                axis.present(kind.units),
                [out[i] for i in same],
                kind.op,
            )
        ]

    are_fixed = all(x.flags.c_contiguous for tensor in pieces for x in tensor)
    runs = prepared() if are_fixed else None

    def run() -> None:
        if not conditional or inputs[-2]:
            _run_all(prepared() if runs is None else runs)  # copies of new content

    return run


def _run_all(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def _reduce_scatter(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    term: Partial,
    split: Split,
    full_spec: Spec,
    ready: int = 0,
) -> Run:
    """Combine terms of all ranks, and keep this rank's rows of the result."""
    count = len(pieces_of(axis, term.units))
    leaves, units = axis.present(term.units), split.units(full_spec)

    def run() -> None:
        pieces = [np.asarray(x, order="C") for x in inputs[:count]]
        if units % axis.group.size == 0 and axis.leaves % axis.group.size == 0:
            ordered.reduce_scatter(axis.group, pieces, leaves, out[0], term.op)
            return
        result = np.empty(full_spec.shape, out[0].dtype)
        ordered.all_reduce(axis.group, [pieces], leaves, [result], term.op)
        out[0][...] = result[axis.local_slices(split, full_spec)]

    return run


def _all_gather(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    splits: Sequence[Split],
    specs: Sequence[Spec],
    extents: Sequence[int | None],
    ready: int = 0,
) -> Run:
    """Concatenate the local shards of all ranks; several values are one message.

    `extents` are the extents of the tables that a value indexes, if it is one of
    indices. All ranks then raise the same error for an index out of range.
    """
    *shards, _ = inputs
    gather_all = (
        partial(gather, shards[0], out[0], axis, splits[0])
        if len(shards) == 1
        else PackedGather(shards, out[:-1], axis, splits)
    )
    indices = [(x, n) for x, n in zip(out, extents, strict=False) if n is not None]

    def run() -> None:
        gather_all()
        for array, extent in indices:
            check_indices(array, extent)

    return run


def check_indices(indices: Array, extent: int) -> None:
    """Raise an error for an index that is not in a table with `extent` rows."""
    if not indices.size:
        return
    lowest, highest = int(indices.min()), int(indices.max())
    if lowest < -extent or highest >= extent:
        wrong = highest if highest >= extent else lowest
        raise OutOfRangeError(
            f"take: index {wrong} is out of range for axis 0 with {extent} elements"
        )


class PackedGather:
    """Reusable gather of the local shards of several values in one message.

    Args:
        shards: this rank's shards, which each call reads.
        outs: contiguous arrays for the whole values.
        axis: axis of the mesh.
        splits: the shardings of the values.
    """

    def __init__(
        self,
        shards: Sequence[Array],
        outs: Sequence[Array],
        axis: MeshAxis,
        splits: Sequence[Split],
    ) -> None:
        self._shards, self._group = shards, axis.group
        self._sizes = [0] * axis.group.size
        # Destinations, and the bytes of a rank's message that they receive.
        self._copies: list[tuple[Array, int, slice]] = []
        for out, split in zip(outs, splits, strict=True):
            whole = _ShardedArray.of(out, split)
            for rank in range(axis.group.size):
                shard, start = whole.shard_of(axis, rank), self._sizes[rank]
                self._sizes[rank] += shard.nbytes
                self._copies.append((shard, rank, slice(start, self._sizes[rank])))

    def __call__(self) -> None:
        message = [
            np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in self._shards
        ]
        received = shared.gather_messages(self._group, message, self._sizes)
        for target, rank, span in self._copies:
            if target.size:
                values = received[rank][span].view(target.dtype)
                target[...] = values.reshape(target.shape)


class _ShardedArray(NamedTuple):
    """View of a whole array by its units: (outer, units, inner)."""

    array: Array

    @classmethod
    def of(cls, out: Array, split: Split) -> _ShardedArray:
        """Return the view of an array with a sharding."""
        outer = prod(out.shape[: split.axis]) * split.major
        inner = split.minor * prod(out.shape[split.axis + 1 :])
        return cls(out.reshape(outer, split.units(out), inner))

    def shard_of(self, axis: MeshAxis, rank: int) -> Array:
        """Return the view of the units of a rank."""
        rows = axis.rows(self.array.shape[1], rank)
        return self.array[:, rows.start : rows.stop]


def gather(x: Array, out: Array, axis: MeshAxis, split: Split) -> None:
    """Gather the local shards of all ranks into an array of the whole value."""
    result = _ShardedArray.of(out, split)
    if len(result.array) != 1:
        PackedGather([x], [out], axis, [split])()
        return
    # Contiguous shards are received directly into the destination.
    sizes = [result.shard_of(axis, rank).nbytes for rank in range(axis.group.size)]
    axis.group.all_gather_varying(np.asarray(x, order="C"), result.array, sizes)


class CollectiveKernel:
    """Kernel of a collective on the host.

    Args:
        prepare: returns a function that runs the collective on given arrays and
            attributes.
        node: the node of the collective.
        label: description for progress output.

    Attributes:
        background: runs it in parallel with other steps, unless it runs as a normal
            step.
    """

    def __init__(self, prepare: Callable[..., Run], node: Node, label: str) -> None:
        self._prepare = prepare
        self.background = background_of(node.attrs["axis"].group)
        self._label = label

    def __call__(self, *arrays: Array, **options: Any) -> None:
        self.on(*arrays, **options)()

    def on(self, *arrays: Array, **options: Any) -> Run:
        """Return the function for persistent arrays; the first call prepares it."""
        runs: list[Run] = []

        def run() -> None:
            with comm.named(self._label):
                if not runs:
                    runs.append(self._prepare(*arrays, **options))
                runs[0]()

        return run


COLLECTIVE_KERNELS.update(
    all_reduce=partial(CollectiveKernel, _all_reduce),
    reduce_scatter=partial(CollectiveKernel, _reduce_scatter),
    all_gather=partial(CollectiveKernel, _all_gather),
)
