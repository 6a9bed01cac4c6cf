"""Collectives as steps of a GPU program.

Whether a collective is a step depends only on facts that are equal on all ranks: its
attributes and the dtypes. Otherwise some ranks would wait for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.backends.cupy.cuda.launch import Buffer, Scratch
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.tree import generate_combine
from toolkit.backends.cupy.device_sums import generate_combinations
from toolkit.backends.cupy.steps import (
    Address,
    Exchange,
    Lowered,
    NotLowered,
    StepBuilder,
)
from toolkit.comm.leaves import pieces_of_ranks
from toolkit.comm.sum_plans import (
    AllGather,
    Combine,
    Location,
    Move,
    ShardGather,
    Step,
    SumPlan,
    Term,
    Transfer,
    plan_all_reduce,
    plan_reduce_scatter,
)
from toolkit.dtypes import itemsize
from toolkit.ir import Graph, Spec
from toolkit.plans.collectives import describe_collective
from toolkit.plans.operands import Operand, contiguous

if TYPE_CHECKING:
    from toolkit.ir import Node


def lower_collective(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a collective to a step; return None if only the host can run it.

    Args:
        node: an all-reduce, a reduce-scatter or an all-gather, with a token as the last
            operand and the last result.
        inputs, outputs: the operands in the order of the node.
    """
    return _RULES[node.op.name](node.attrs, inputs, outputs)


def lower_combination(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower the combination of the terms of a rank's leaves to a kernel.

    Args:
        body: the graph of the single node.
        inputs, outputs: its operands.
        precision: has no effect: each combination is rounded to the dtype.
    """
    spec, attrs = outputs[0].spec, body.nodes[0].attrs
    if spec.size == 0:
        return Lowered()
    builder = StepBuilder()
    addresses = _copy_strided(builder, inputs)
    pieces = tuple(Location("piece", number, 0) for number, _ in enumerate(inputs))
    target = Location("out", 0, 0)
    arguments = spec.dtype, attrs["op"], spec.size, pieces, None, 0, attrs["tree"]
    launch = generate_combine(Combine(*arguments, target))
    builder.launch([launch], [*addresses, Buffer(len(inputs))])
    return builder.build()


def _copy_strided(builder: StepBuilder, operands: Sequence[Operand]) -> list[Address]:
    """Return the addresses of operands, after copies if they are not contiguous."""
    return [
        Buffer(index) if operand.is_contiguous else builder.copy(Buffer(index), operand)
        for index, operand in enumerate(operands)
    ]


def name_collective(lowered: Lowered, node: Node) -> Lowered:
    """Return the steps of a collective with the names of its layers, for messages."""
    name = describe_collective(node)
    steps = tuple(
        replace(step, name=name) if isinstance(step, Exchange) else step
        for step in lowered.steps
    )
    return replace(lowered, steps=steps, name=name)


def _all_reduce(
    attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    axis, specs = attrs["axis"], attrs["specs"]
    if any(spec.dtype not in STORED for spec in specs):
        return None
    # A sum with a condition is computed in each run: its result is then not read.
    terms = [
        Term(spec.size, spec.dtype, axis.present(term.units), term.op)
        for spec, term in zip(specs, attrs["terms"], strict=True)
    ]
    arguments = axis.group.rank, axis.group.size, terms
    plan = plan_all_reduce(*arguments, axis.reduction == "nccl")
    count = sum(_count_pieces(axis, term.units) for term in attrs["terms"])
    return _build(axis, plan, inputs, count, len(outputs) - 1)


def _reduce_scatter(
    attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    axis, spec, partial = attrs["axis"], attrs["full_spec"], attrs["term"]
    if spec.dtype not in STORED:
        return None
    ranks, units = axis.group.size, attrs["split"].units(spec)
    unit_size = spec.size // max(1, units)
    rows = (axis.rows(units, rank) for rank in range(ranks))
    bounds = [(r.start * unit_size, r.stop * unit_size) for r in rows]
    leaves = axis.present(partial.units)
    term = Term(spec.size, spec.dtype, leaves, partial.op)
    uses_library = axis.reduction == "nccl"
    plan = plan_reduce_scatter(axis.group.rank, ranks, term, bounds, uses_library)
    return _build(axis, plan, inputs, _count_pieces(axis, partial.units), 1)


def _all_gather(
    attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    splits, specs, axis = attrs["splits"], attrs["specs"], attrs["axis"]
    # The host checks gathered indices: see `collectives._all_gather`.
    if any(extent is not None for extent in attrs["extents"]):
        return None
    gathers: list[ShardGather] = []
    sends: list[Move] = []
    receives: list[Move] = []
    for number, (spec, split) in enumerate(zip(specs, splits, strict=True)):
        sizes = _shards_of(axis, spec, split).sizes
        offsets = [sum(sizes[:rank]) for rank in range(len(sizes))]
        shard = Location("piece", number, 0)
        if len(set(sizes)) == 1:
            gathers.append(ShardGather(shard, Location("out", number, 0), sizes[0]))
            continue
        # A rank also sends to itself, which copies its shard to the result.
        local = sizes[axis.group.rank]
        sends += [Move(rank, shard, local) for rank in range(len(sizes)) if local]
        receives += [
            Move(rank, Location("out", number, offset), nbytes)
            for rank, (offset, nbytes) in enumerate(zip(offsets, sizes, strict=True))
            if nbytes
        ]
    steps: list[Step] = [AllGather(tuple(gathers))] if gathers else []
    if sends or receives:
        steps.append(Transfer(tuple(sends), tuple(receives)))
    shards = [_shards_of(axis, *pair) for pair in zip(specs, splits, strict=True)]
    plan, count = SumPlan(tuple(steps), 0), len(specs)
    try:
        return _build(axis, plan, inputs, count, count, shards)
    except NotLowered:
        return None


class _Shards(NamedTuple):
    """Shards of all ranks, in rank order, that are gathered into a value.

    Attributes:
        spec: the spec of the value.
        sizes: the bytes of each shard.
        outer: the number of contiguous blocks of a shard in the value.
    """

    spec: Spec
    sizes: tuple[int, ...]
    outer: int


def _shards_of(axis: Any, spec: Spec, split: Any) -> _Shards:
    units = split.units(spec)
    unit_size = spec.nbytes // max(1, units)
    ranks = range(axis.group.size)
    sizes = tuple(len(axis.rows(units, rank)) * unit_size for rank in ranks)
    return _Shards(spec, sizes, prod(spec.shape[: split.axis]) * split.major)


def _interleave(
    builder: StepBuilder, shards: _Shards, target: Address
) -> Scratch | None:
    """Append the copy of received shards that are not contiguous in the whole value.

    Return the address of the shards in rank order, or None without such a copy.
    """
    spec, outer = shards.spec, shards.outer
    if outer == 1 or spec.size == 0:
        return None
    received = builder.allocate(sum(shards.sizes))
    row_size = outer * itemsize(spec.dtype)
    parts: list[Operand] = []
    addresses: list[Address] = []
    offset = received.offset
    for nbytes in filter(None, shards.sizes):
        parts.append(contiguous(spec.with_shape((outer, nbytes // row_size))))
        addresses.append(Scratch(offset, nbytes))
        offset += nbytes
    whole = spec.with_shape((outer, spec.size // outer))
    builder.generate("concatenate", parts, addresses, [target], [whole], axis=1)
    return received


def _count_pieces(axis: Any, units: int) -> int:
    group = axis.group
    return len(pieces_of_ranks(axis.present(units), group.size)[group.rank])


def _build(
    axis: Any,
    plan: SumPlan,
    inputs: Sequence[Operand],
    pieces: int,
    results: int,
    gathered: Sequence[_Shards] = (),
) -> Lowered:
    """Return the steps of a plan, after copies of operands that are not contiguous.

    Args:
        axis: the axis of the mesh.
        plan: the plan of this rank.
        inputs: the operands, of which the first are the local pieces.
        pieces, results: the number of local pieces, and of results.
        gathered: the shards of each result of a gather.
    """
    builder, copies = StepBuilder(), StepBuilder()
    addresses = _copy_strided(builder, inputs[:pieces])
    copies.work = builder.work
    outs: list[Address] = [Buffer(len(inputs) + index) for index in range(results)]
    for number, shards in enumerate(gathered):
        received = _interleave(copies, shards, outs[number])
        outs[number] = received or outs[number]
    scratch = copies.allocate(max(1, plan.scratch))
    launches = generate_combinations(plan)
    operands = (*addresses, *outs, scratch)
    step = Exchange(plan, launches, operands, pieces, axis.group, "")
    return Lowered((*builder.steps, step, *copies.steps), copies.work)


_RULES: dict[str, Callable[..., Lowered | None]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
}
