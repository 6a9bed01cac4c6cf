"""Collectives as steps of a GPU program.

Whether a collective is a step depends only on facts that are equal on all ranks: its
attributes and the dtypes. Otherwise some ranks would wait for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.cupy.cuda.launch import Buffer
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.tree import generate_combine
from toolkit.backends.cupy.device_sums import generate_combinations
from toolkit.backends.cupy.steps import Address, Exchange, Lowered, StepBuilder
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
from toolkit.ir import Graph, Spec
from toolkit.plans.operands import Operand

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
    layers = dict.fromkeys("/".join(y.origin) for y in node.outputs[:-1])
    layers_text = ", ".join(filter(None, layers))
    name = f"{node.op.name}{' of ' + layers_text if layers_text else ''}"
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
    plan = plan_all_reduce(axis.group.rank, axis.group.size, terms)
    count = sum(_count_pieces(axis, term.units) for term in attrs["terms"])
    return _build(axis, plan, inputs, count, len(outputs) - 1)


def _reduce_scatter(
    attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    axis, spec, partial = attrs["axis"], attrs["full_spec"], attrs["term"]
    ranks = axis.group.size
    is_even = attrs["split"].units(spec) % ranks == 0 and axis.leaves % ranks == 0
    if not is_even or spec.dtype not in STORED:
        return None
    leaves = axis.present(partial.units)
    term = Term(spec.size, spec.dtype, leaves, partial.op)
    plan = plan_reduce_scatter(axis.group.rank, ranks, term)
    return _build(axis, plan, inputs, _count_pieces(axis, partial.units), 1)


def _all_gather(
    attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    splits, specs, axis = attrs["splits"], attrs["specs"], attrs["axis"]
    # The host checks gathered indices: see `collectives._all_gather`.
    if any(extent is not None for extent in attrs["extents"]):
        return None
    pairs = list(zip(specs, splits, strict=True))
    if any(prod(s.shape[: split.axis]) * split.major != 1 for s, split in pairs):
        return None
    gathers: list[ShardGather] = []
    sends: list[Move] = []
    receives: list[Move] = []
    for number, (spec, split) in enumerate(zip(specs, splits, strict=True)):
        sizes = _shard_bytes(axis, spec, split)
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
    return _build(axis, SumPlan(tuple(steps), 0), inputs, len(specs), len(specs))


def _shard_bytes(axis: Any, spec: Spec, split: Any) -> list[int]:
    """Return the bytes of the shard of each rank."""
    units, itemsize = split.units(spec), dtypes.itemsize(spec.dtype)
    unit_size = split.minor * prod(spec.shape[split.axis + 1 :]) * itemsize
    ranks = range(axis.group.size)
    return [len(axis.rows(units, rank)) * unit_size for rank in ranks]


def _count_pieces(axis: Any, units: int) -> int:
    group = axis.group
    return len(pieces_of_ranks(axis.present(units), group.size)[group.rank])


def _build(
    axis: Any, plan: SumPlan, inputs: Sequence[Operand], pieces: int, outs: int
) -> Lowered:
    """Return the steps of a plan, after copies of operands that are not contiguous."""
    builder = StepBuilder()
    addresses = _copy_strided(builder, inputs[:pieces])
    addresses += [Buffer(len(inputs) + index) for index in range(outs)]
    addresses.append(builder.allocate(max(1, plan.scratch)))
    launches = generate_combinations(plan)
    step = Exchange(plan, launches, tuple(addresses), pieces, axis.group, "")
    builder.steps.append(step)
    return builder.build()


_RULES: dict[str, Callable[..., Lowered | None]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
}
