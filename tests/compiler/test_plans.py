"""Tests of the memory plan on small graphs: shared buffers, lifetimes and offsets."""

import pytest

from tests.compiler.graphs import trace_of
from toolkit import ops
from toolkit.compiler import memory
from toolkit.compiler.memory import Buffer, Plan, plan_memory
from toolkit.ir import Node, fused_p
from toolkit.plans.layout import Layouts
from toolkit.plans.loops.iteration_space import is_elementwise
from toolkit.plans.operands import StepSpan


def plan_function(function, *shapes, scratch=None, moments=None):
    """Return a plan, and the buffer of each node's first output (None without one)."""
    graph = trace_of(function, *shapes)
    count = len(graph.nodes)
    moments = moments or [StepSpan(i, i, i) for i in range(count)]
    plan = plan_memory(graph, Layouts(graph).views, scratch or [0] * count, moments)
    return plan, [plan.buffers.get(node.outputs[0]) for node in graph.nodes]


# --- elementwise operands -------------------------------------------------------------

X, ROW, FLAT = (4, 3), (1, 3), (12,)

# function of (x, y), their shapes -> the operands in which it is elementwise
FUSED = {
    "a sum": (lambda x, y: x + y, X, X, "xy"),
    "a chain": (lambda x, y: ops.exp(x * 2.0) - y, X, X, "xy"),
    "a row": (lambda x, y: x * y, X, ROW, "x"),
    "two rows": (lambda x, y: ops.exp(x) + y, ROW, ROW, "xy"),
    "a row that grows": (lambda x, y: ops.exp(x) * y, ROW, X, "xy"),
    "a product": (lambda x, y: ops.matmul(x, y), (3, 3), (3, 3), ""),
    "a product and more": (lambda x, y: ops.matmul(x, x) + y, (3, 3), (3, 3), "y"),
    "a factor again": (lambda x, y: ops.matmul(x, x) * x + y, (3, 3), (3, 3), "y"),
    "a product, turned": (
        lambda x, y: ops.transpose(ops.matmul(x, x)) + y,
        (3, 3),
        (3, 3),
        "",
    ),
    "a reshape": (lambda x, y: ops.reshape(x, FLAT) + y, X, FLAT, "xy"),
    "a reshape within": (lambda x, y: ops.reshape(ops.exp(x), FLAT) * y, X, FLAT, "xy"),
    "a reshape that grows": (lambda x, y: ops.reshape(x, (1, 12)) * y, X, (2, 12), ""),
    "turned": (lambda x, y: ops.transpose(x) + y, X, (3, 4), ""),
    "turned within": (lambda x, y: ops.transpose(ops.exp(x)) + y, X, (3, 4), ""),
    "summed": (lambda x, y: ops.sum(x, axis=0) + y, X, (3,), ""),
    "summed of one": (lambda x, y: ops.sum(x, axis=0) + y, ROW, (3,), "xy"),
    "a product and a reshape": (
        lambda x, y: ops.reshape(ops.matmul(x, x), (9,)) + y,
        (3, 3),
        (9,),
        "y",
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_elementwise_inputs_of_fused_nodes(case):
    function, first, second, expected = FUSED[case]
    body = trace_of(function, first, second)
    node = Node(fused_p, body.inputs, {"body": body}, body.outputs)
    pairs = zip("xy", body.inputs, strict=True)
    assert "".join(name for name, x in pairs if is_elementwise(node, x)) == expected


@pytest.mark.parametrize(
    "function, expected",
    [
        (ops.exp, True),
        (lambda x: x * x, True),
        (lambda x: ops.reshape(x, FLAT), True),
        (ops.transpose, False),
        (lambda x: ops.flip(x, 0), False),
        (lambda x: ops.sum(x, axis=0), False),
        (lambda x: ops.broadcast_to(x, (2, 4, 3)), False),
        (lambda x: ops.concatenate([x, x], axis=0), False),
    ],
)
def test_elementwise_inputs_of_single_nodes(function, expected):
    graph = trace_of(function, X)
    assert is_elementwise(graph.nodes[-1], graph.nodes[-1].inputs[0]) == expected


# --- shared buffers -------------------------------------------------------------------


def test_outputs_and_inputs_have_no_buffer():
    plan, (first, last) = plan_function(lambda x: ops.tanh(ops.exp(x)), (64,))
    assert last is None and (first.nbytes, first.first, first.last) == (256, 0, 1)
    assert plan.nbytes == 256 and not plan.work
    assert (first.label, plan.distinct) == ("exp float32[64]", [first])


def test_output_with_a_reader_has_no_buffer():
    _, buffers = plan_function(lambda x: ((y := ops.exp(x)), ops.tanh(y)), (64,))
    assert buffers == [None, None]


def test_dead_input_is_overwritten():
    _, (a, b, c) = plan_function(lambda x: ops.sum(ops.tanh(ops.exp(x))), (64,))
    assert a is b and c is None
    assert (a.first, a.last) == (0, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.sum(ops.cumsum(ops.exp(x), 0)),  # not elementwise
        lambda x: (ops.sum(ops.tanh(y := ops.exp(x))), ops.sum(y)),  # it stays alive
        lambda x: ops.sum(ops.cast(ops.exp(x), "float16")),  # of another size
        lambda x: ops.sum(ops.exp(x)[None] * ops.ones((2, 1))),
        lambda x: ops.sum(ops.tanh(y := ops.exp(x)) + ops.reshape(y, (64,))),
    ],
)
def test_inputs_that_are_not_overwritten(function):
    plan, _ = plan_function(function, (64,))
    assert len(plan.distinct) >= 2


def test_view_shares_its_buffer_and_extends_the_lifetime():
    def function(x):
        source = ops.exp(x)
        view = ops.reshape(source, (8, 8))
        other = ops.cumsum(x, 0)
        return ops.sum(view), ops.sum(other)

    plan, (source, view, other, *_) = plan_function(function, (64,))
    assert view is None and len(plan.views) == 1
    assert (source.first, source.last, other.first) == (0, 3, 2)
    assert source.offset != other.offset


def test_a_view_of_a_view_shares_the_same_buffer():
    def function(x):
        y = ops.exp(x)
        view = ops.reshape(ops.reshape(y, (8, 8)), (4, 16))
        z = ops.sin(x)
        return ops.sum(view), ops.sum(z)

    plan, buffers = plan_function(function, (64,))
    y, z = [b for b in buffers if b is not None]
    assert y is not z and y.last == 4
    together = y.first <= z.last and z.first <= y.last
    assert together and (
        y.offset + y.nbytes <= z.offset or z.offset + z.nbytes <= y.offset
    )


def test_a_view_that_is_an_output_keeps_its_source_to_the_end():
    plan, buffers = plan_function(
        lambda x: (ops.reshape(ops.exp(x), (8, 8)), ops.sum(ops.sin(x))), (64,)
    )
    assert buffers[0].last == 3


@pytest.mark.parametrize("other, is_shared", [(ops.sum, False), (ops.transpose, True)])
def test_only_reads_in_the_same_step_prevent_overwriting(other, is_shared):
    def function(x):
        y = ops.exp(x)
        other(y)  # a view alone reads nothing
        return ops.sum(ops.tanh(y), axis=(0, 1))

    steps = [StepSpan(0, 0, 0), StepSpan(1, 1, 1), StepSpan(1, 1, 1), StepSpan(2, 2, 2)]
    graph = trace_of(function, (8, 8))
    steps += [StepSpan(3, 3, 3)] * (len(graph.nodes) - 4)
    _, buffers = plan_function(function, (8, 8), moments=steps)
    assert (buffers[0] is buffers[2]) == is_shared


def test_unread_value_lives_for_its_own_steps():
    def function(x):
        ops.exp(x)
        return ops.sum(ops.tanh(x))

    moments = [StepSpan(0, 0, 0), StepSpan(1, 2, 3), StepSpan(4, 4, 4)]
    _, (unread, read, _) = plan_function(function, (64,), moments=moments)
    assert (unread.first, unread.last) == (0, 0)
    assert (read.first, read.last) == (2, 4)  # from the step that writes it


def test_scratch_memory_does_not_overlap_live_buffers():
    plan, buffers = plan_function(
        lambda x: ops.sum(ops.cumsum(ops.exp(x), 0)), (64,), scratch=[0, 512, 0]
    )
    (scratch,) = plan.work.values()
    assert list(plan.work) == [1] and scratch.label == "cumsum workspace"
    assert (scratch.first, scratch.last, scratch.nbytes) == (1, 1, 512)
    assert plan.nbytes == 256 * 2 + 512
    assert len(plan.distinct) == 3


# --- offsets --------------------------------------------------------------------------

# (64 bytes, first, last) of buffers; the best size. For each order, one case where only
# it is best.
LAYOUTS = [
    ([(4, 4, 8), (4, 2, 5), (6, 5, 7), (3, 0, 4), (4, 0, 4), (3, 5, 6)], 17),
    ([(4, 1, 3), (4, 3, 7), (4, 2, 5), (6, 0, 1), (1, 1, 5)], 13),
    ([(4, 4, 5), (1, 3, 7), (6, 1, 4), (3, 4, 5), (6, 3, 6), (6, 0, 3)], 20),
    ([(1, 0, 4), (6, 0, 0), (6, 5, 5), (2, 4, 5)], 8),
]


def place_buffers(rows):
    buffers = [Buffer(64 * size, first, last) for size, first, last in rows]
    plan = Plan(trace_of(lambda x: x, (1,)), buffers=dict(enumerate(buffers)))
    memory._assign_offsets(plan)
    return plan, buffers


@pytest.mark.parametrize("rows, size", LAYOUTS)
@pytest.mark.parametrize("limit", [0, 3, 2048])
def test_buffers_do_not_overlap_and_have_the_best_order(rows, size, limit, monkeypatch):
    monkeypatch.setattr(memory, "MAX_COMPARED", limit)
    plan, buffers = place_buffers(rows)
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            is_disjoint = a.last < b.first or b.last < a.first
            is_separate = (
                a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            )
            assert is_disjoint or is_separate
    assert max(b.offset + b.nbytes for b in buffers) == plan.nbytes
    assert plan.live_peak <= plan.nbytes
    if limit > len(rows):
        assert plan.nbytes == 64 * size
    else:
        assert plan.nbytes > 64 * size  # a quick search is not as good


def test_orders_are_compared_up_to_a_limit(monkeypatch):
    rows, size = LAYOUTS[3]
    monkeypatch.setattr(memory, "MAX_COMPARED", len(rows))
    assert place_buffers(rows)[0].nbytes == 64 * size


def test_peak_of_live_bytes():
    plan, _ = place_buffers([(1, 0, 1), (2, 1, 2), (4, 3, 3), (1, 2, 2)])
    assert plan.live_peak == 64 * 4
    plan, _ = place_buffers([(1, 0, 1), (2, 2, 2)])
    assert plan.live_peak == 64 * 2  # the first has ended
    assert place_buffers([])[0].live_peak == 0


def test_offsets_are_aligned():
    buffers = [Buffer(5, 0, 1), Buffer(70, 0, 1), Buffer(1, 0, 1)]
    plan = Plan(trace_of(lambda x: x, (1,)), buffers=dict(enumerate(buffers)))
    memory._assign_offsets(plan)
    assert sorted(b.offset for b in buffers) == [0, 128, 192]
    assert plan.nbytes == 256
    assert plan.live_peak == 76  # without the gaps
