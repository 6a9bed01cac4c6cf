"""Collectives as nodes of a graph, and their kernels on the host.

Each collective passes a token to the next one, so that no pass changes their order: all
ranks must call them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toolkit import comm
from toolkit.comm import ordered, shared
from toolkit.comm.group import offsets_of
from toolkit.comm.leaves import Subtree, pieces_of_ranks
from toolkit.comm.overlap import background_of
from toolkit.comm.shared import SLOT_SIZE, Gather, JointExchange, SlotExchange
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


class JointMember(NamedTuple):
    """A collective of `joint_collectives`; `num_inputs` does not count the token."""

    name: str
    attrs: Mapping[str, Any]
    num_inputs: int


def _joint_spec(
    *inputs: Spec,
    axis: MeshAxis,
    members: Sequence[JointMember],
    specs: Sequence[Spec],
    extents: Sequence[int | None],
    ready: int = 0,
) -> tuple[Spec, ...]:
    return (*specs, TOKEN)


joint_collectives_p: Primitive = Primitive(
    "joint_collectives", Kind.COLLECTIVE, _joint_spec
)


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


class PreparedCollective(NamedTuple):
    """A collective on persistent arrays.

    Attributes:
        run: runs it, after `copy_operands`.
        exchanges: the exchanges that `run` runs, if each needs only one barrier.
        copy_operands: copies operands that are not contiguous.
        check: checks the results.
    """

    run: Run
    exchanges: Sequence[SlotExchange] | None = None
    copy_operands: Run | None = None
    check: Run | None = None


class ContiguousOperands:
    """Contiguous arrays for operands; a call copies operands that need one."""

    def __init__(self, operands: Sequence[Array]) -> None:
        self.arrays = [np.array(x, order="C", copy=None) for x in operands]
        pairs = zip(self.arrays, operands, strict=True)
        self._copies = [(copy, x) for copy, x in pairs if copy is not x]

    def __call__(self) -> None:
        for copy, operand in self._copies:
            np.copyto(copy, operand)


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
) -> PreparedCollective:
    """Combine terms of all ranks; terms of the same kind are combined in one message.

    The pieces of each sum are the first inputs. `ready` is the index, in the order of
    the whole graph, of the operation that computes the last piece. If it is
    `conditional`, the input before the token says whether the sums are needed. It is
    equal on all ranks. If they are not needed, the results are undefined.
    """
    counts = [len(pieces_of(axis, term.units)) for term in terms]
    operands = ContiguousOperands(inputs[: sum(counts)])
    remaining = iter(operands.arrays)
    pieces = [[next(remaining) for _ in range(count)] for count in counts]
    runs = [
        run
        for kind in dict.fromkeys(terms)
        for run in ordered.prepare_all_reduce(
            axis.group,
            [x for x, term in zip(pieces, terms, strict=True) if term == kind],
            axis.present(kind.units),
            [x for x, term in zip(out, terms, strict=False) if term == kind],
            kind.op,
        )
    ]

    def run() -> None:
        if not conditional or inputs[-2]:
            for run in runs:
                run()

    exchanges = None if conditional else ordered.as_slot_exchanges(runs)
    return PreparedCollective(run, exchanges, operands)


def _reduce_scatter(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    term: Partial,
    split: Split,
    full_spec: Spec,
    ready: int = 0,
) -> PreparedCollective:
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

    return PreparedCollective(run)


def _all_gather(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    splits: Sequence[Split],
    specs: Sequence[Spec],
    extents: Sequence[int | None],
    ready: int = 0,
) -> PreparedCollective:
    """Concatenate the local shards of all ranks; several values are one message.

    `extents` are the extents of the tables that a value indexes, if it is one of
    indices. All ranks then raise the same error for an index out of range.
    """
    *shards, _ = inputs
    indices = [(x, n) for x, n in zip(out, extents, strict=False) if n is not None]

    def check() -> None:
        for array, extent in indices:
            check_indices(array, extent)

    operands = ContiguousOperands(shards)
    packed = PackedGather(operands.arrays, out[:-1], axis, splits)
    exchange = packed.slot_exchange()
    if exchange is not None:
        return PreparedCollective(
            JointExchange([exchange]), [exchange], operands, check
        )
    gather_all = (
        partial(gather, operands.arrays[0], out[0], axis, splits[0])
        if len(shards) == 1
        else packed
    )
    return PreparedCollective(gather_all, None, operands, check)


def _joint(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    members: Sequence[JointMember],
    specs: Sequence[Spec],
    extents: Sequence[int | None],
    ready: int = 0,
) -> PreparedCollective:
    """Run several collectives, with one barrier if their data fits in shared memory."""
    prepared, first, start = [], 0, 0
    for member in members:
        end, stop = first + member.num_inputs, start + len(member.attrs["specs"])
        prepared.append(
            _PREPARE[member.name](
                *inputs[first:end],
                inputs[-1],
                out=(*out[start:stop], out[-1]),
                **member.attrs,
            )
        )
        first, start = end, stop
    return PreparedCollective(_run_all(prepared))


def check_indices(indices: Array, extent: int) -> None:
    """Raise an error for an index that is not in a table with `extent` rows."""
    if not indices.size:
        return
    # As a number without a sign, a negative index is larger than any extent.
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))
    if np.maximum.reduce(unsigned, axis=None) < extent:
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
        shards: this rank's shards, contiguous arrays that each call reads.
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

    def slot_exchange(self) -> Gather | None:
        """Return the gather in shared memory; None: a message is too large for it."""
        nbytes = max(self._sizes)
        memory = shared.memory_of(self._group) if nbytes <= SLOT_SIZE else None
        if memory is None:
            return None
        return Gather(self._group, memory, self._shards, nbytes, self._copies)

    def __call__(self) -> None:
        message = [x.reshape(-1).view(np.uint8) for x in self._shards]
        received = np.empty(sum(self._sizes), np.uint8)
        self._group.all_gather_varying(np.concatenate(message), received, self._sizes)
        starts = offsets_of(self._sizes)
        for target, rank, span in self._copies:
            if target.size:
                values = received[starts[rank] :][span].view(target.dtype)
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
        PackedGather([np.asarray(x, order="C")], [out], axis, [split])()
        return
    # Contiguous shards are received directly into the destination.
    sizes = [result.shard_of(axis, rank).nbytes for rank in range(axis.group.size)]
    axis.group.all_gather_varying(np.asarray(x, order="C"), result.array, sizes)


def _run_all(collectives: Sequence[PreparedCollective]) -> Run:
    """Return a function that runs collectives, with one barrier if that is possible.

    Whether it is depends on facts that are equal on all ranks.
    """
    exchanges = [x for collective in collectives for x in collective.exchanges or ()]
    has_one_barrier = (
        len(exchanges) > 0
        and all(collective.exchanges is not None for collective in collectives)
        and JointExchange.fits(exchanges)
    )
    steps: list[Run | None] = [collective.copy_operands for collective in collectives]
    if has_one_barrier:
        steps.append(JointExchange(exchanges))
    else:
        steps += [collective.run for collective in collectives]
    steps += [collective.check for collective in collectives]
    runs = [step for step in steps if step is not None]

    def run() -> None:
        for step in runs:
            step()

    return run if len(runs) > 1 else runs[0]


class CollectiveKernel:
    """Kernel of a collective on the host.

    Args:
        prepare: returns a collective on given arrays and attributes.
        node: the node of the collective.
        label: description for progress output.

    Attributes:
        background: runs it in parallel with other steps, unless it runs as a normal
            step.
    """

    def __init__(
        self, prepare: Callable[..., PreparedCollective], node: Node, label: str
    ) -> None:
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
                    runs.append(_run_all([self._prepare(*arrays, **options)]))
                runs[0]()

        return run


_PREPARE: dict[str, Callable[..., PreparedCollective]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "joint_collectives": _joint,
}
COLLECTIVE_KERNELS.update(
    (name, partial(CollectiveKernel, prepare)) for name, prepare in _PREPARE.items()
)
