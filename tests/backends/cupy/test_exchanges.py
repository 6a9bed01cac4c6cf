"""Test collectives as steps of a GPU program, as plain data."""

from types import SimpleNamespace

import pytest

from toolkit.backends.cupy.cuda.launch import Launch, Scratch
from toolkit.backends.cupy.exchange_stream import find_joins
from toolkit.backends.cupy.exchanges import lower_collective
from toolkit.backends.cupy.steps import Exchange, Lowered
from toolkit.comm.sum_plans import AllGather, Combine, SumPlan, Transfer
from toolkit.compiler.sharding.collectives import (
    TOKEN,
    all_gather_p,
    all_reduce_p,
    reduce_scatter_p,
)
from toolkit.compiler.sharding.layouts import MeshAxis, Partial, Split
from toolkit.ir import Node, Spec, Value
from toolkit.plans.locations import NodeOperands, Shares
from toolkit.plans.operands import OperandMemory, contiguous


def axis_of(rank=0, size=2, leaves=4):
    group = SimpleNamespace(rank=rank, size=size)
    return MeshAxis("batch", group, leaves, even=False)


def lower(op, local_specs, /, **attrs):
    """Lower a collective whose operands have these specs, with a token."""
    values = [Value(spec) for spec in (*local_specs, TOKEN)]
    node = Node(
        op, values, attrs, [Value(y) for y in op.spec(*local_specs, TOKEN, **attrs)]
    )
    operands = ([contiguous(v.spec) for v in vs] for vs in (node.inputs, node.outputs))
    return lower_collective(node, *operands)


def gather(axis, spec, split, extents=(None,)):
    rows = len(axis.rows(split.units(spec)))
    attrs = {"splits": (split,), "specs": (spec,), "extents": extents}
    return lower(all_gather_p, [split.local(spec, rows)], axis=axis, **attrs)


def plan_of(lowered):
    (step,) = lowered.steps
    assert isinstance(step, Exchange)
    return step.plan.steps


def test_sums_are_transferred_and_combined():
    spec = Spec((3, 5), "float32")
    attrs = {"axis": axis_of(), "terms": (Partial("sum", 8),), "specs": (spec,)}
    steps = plan_of(lower(all_reduce_p, [spec], **attrs))
    assert [type(step) for step in steps] == [Transfer, Combine]


def test_equal_shards_are_gathered_and_other_shards_are_sent():
    (step,) = plan_of(gather(axis_of(), Spec((8, 3), "float32"), Split(0)))
    assert isinstance(step, AllGather)
    for rank, nbytes in ((0, 24), (1, 36)):  # of 2 and of 3 rows
        spec = Spec((5, 3), "float32")
        (step,) = plan_of(gather(axis_of(rank), spec, Split(0)))
        assert [(move.peer, move.nbytes) for move in step.sends] == [
            (0, nbytes),
            (1, nbytes),
        ]
        assert [(move.peer, move.nbytes) for move in step.receives] == [
            (0, 24),
            (1, 36),
        ]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_host_runs_other_collectives_on_all_ranks(rank):
    axis, spec = axis_of(rank), Spec((8, 4), "float32")
    assert gather(axis, spec, Split(0), extents=(100,)) is None  # it checks indices
    # No kernel copies shards of complex numbers that are not contiguous, or adds them.
    assert gather(axis, Spec((8, 4), "complex64"), Split(1)) is None
    assert scatter(axis, Spec((8, 4), "complex64")) is None


def scatter(axis, full):
    attrs = {"term": Partial("sum", 8), "split": Split(0), "full_spec": full}
    return lower(reduce_scatter_p, [full], axis=axis, **attrs)


def test_shards_along_a_later_axis_are_gathered_and_copied():
    exchange, copy = gather(axis_of(), Spec((8, 5), "float32"), Split(1)).steps
    assert isinstance(exchange, Exchange)
    assert isinstance(copy, Launch)
    # The shards of two and three columns are received into scratch memory.
    assert [m.nbytes for m in exchange.plan.steps[0].receives] == [64, 96]
    assert all(isinstance(x, Scratch) for x in exchange.operands[1:])


@pytest.mark.parametrize("rows, sizes", [(8, [4, 4]), (7, [3, 4])])
def test_ranks_keep_shards_of_sums(rows, sizes):
    spec = Spec((rows, 4), "float32")
    for rank, size in enumerate(sizes):
        transfer, combine = plan_of(scatter(axis_of(rank), spec))
        assert combine.size == 4 * size
        assert transfer.sends[0].nbytes == 16 * sizes[1 - rank]


def joins_of(*nodes):
    """Return where steps wait, for nodes (is a collective, inputs, outputs, bytes)."""
    exchange = Exchange(SumPlan((), 0), (), (), 0, None, "")
    lowered = [Lowered((exchange,) if is_exchange else ()) for is_exchange, *_ in nodes]
    operands = []
    for _, inputs, outputs, nbytes in nodes:
        ins = [OperandMemory(name, nbytes, True) for name in inputs]
        outs = [OperandMemory(name, 8, True) for name in outputs]
        operands.append(NodeOperands(ins, outs, OperandMemory("work", 0, False)))
    return find_joins(lowered, Shares(operands))


def test_steps_wait_where_they_read_a_result_of_a_collective():
    first, second = (True, "a", "b", 8), (True, "c", "d", 8)
    assert joins_of(first, (False, "c", "e", 8), (False, "b", "f", 8)) == {0: 2}
    # The stream runs them in order, so a wait for the second one includes the first.
    nodes = [first, second, (False, "d", "e", 8), (False, "b", "f", 8)]
    assert joins_of(*nodes) == {0: 2, 1: 2}
    # Collectives do not wait for each other, and all end with the program.
    assert joins_of(first, (True, "b", "d", 8), (False, "e", "f", 8)) == {0: 3, 1: 3}


def test_steps_wait_before_they_write_to_memory_of_a_collective():
    exchange = (True, "a", "b", 8)
    for written in "ab":
        assert joins_of(exchange, (False, "c", written, 8)) == {0: 1}


def test_collective_with_larger_operands_ends_before_the_next_one():
    scatter, last = (True, "a", "b", 32), (False, "b", "e", 8)
    gather = (True, "c", "d", 4)
    nodes = [scatter, gather, (True, "f", "g", 32), last]
    assert joins_of(*nodes) == {0: 2, 1: 4, 2: 4}
