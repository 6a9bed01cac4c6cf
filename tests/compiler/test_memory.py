"""Tests of the schedule and the memory plan: order, lifetimes, arena size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compiler.graphs import (
    arrays_for,
    compiled,
    evaluate,
    graphs,
    op_names,
    target,
    trace_of,
)
from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.backends.cupy.passes.casts import hoist_casts
from toolkit.compiler.evaluate import evaluate as computed
from toolkit.compiler.memory import plan_memory
from toolkit.compiler.passes.schedule import schedule
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.functions.decorator import function
from toolkit.plans.layout import Layouts
from toolkit.plans.operands import StepSpan


def plan_sequentially(graph):
    """Return the plan of nodes that need no scratch and run in sequence."""
    count = len(graph.nodes)
    moments = [StepSpan(i, i, i) for i in range(count)]
    return plan_memory(graph, Layouts(graph).views, [0] * count, moments)


@given(graph=graphs())
@settings(max_examples=100, deadline=None)
def test_no_two_live_buffers_overlap(graph):
    graph = schedule(graph, target())
    plan = plan_sequentially(graph)
    for a, b in itertools.combinations(plan.distinct, 2):
        together = a.first <= b.last and b.first <= a.last
        overlap = a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
        assert not (together and overlap and a.nbytes and b.nbytes)


@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_a_schedule_is_a_valid_order_of_the_same_nodes(graph):
    ordered = schedule(graph, target())
    ordered.verify()
    assert set(ordered.nodes) == set(graph.nodes)


@given(graph=graphs())
@settings(max_examples=100, deadline=None)
def test_program_matches_its_graph(graph):
    program = compiled(graph)
    for seed in range(2):  # the second run starts with the arena of the first
        arrays = arrays_for(graph, seed)
        before = [array.copy() for array in arrays]
        results = program(arrays)
        for expected, actual in zip(evaluate(graph, arrays), results, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_nodes_that_free_memory_run_early():
    def function(x, y):
        a, b = ops.exp(x), ops.exp(y)
        return ops.sum(a), ops.sum(b)

    names = op_names(schedule(trace_of(function, (1000,), (1000,)), target()))
    assert names == ["exp", "sum", "exp", "sum"]


def test_a_chain_of_elementwise_nodes_needs_one_buffer():
    graph = trace_of(lambda x: ops.sum(ops.tanh(ops.exp(x * 2.0)) + 1.0), (1024,))
    scheduled = compiled(graph, generate=False).program.graph
    assert plan_sequentially(scheduled).nbytes == 4096


def test_input_casts_run_first_unless_they_grow():
    def function(x, w):
        y = ops.exp(ops.sum(x, axis=0))
        wide = w[:, None] + ops.zeros((1, 500))
        return y, ops.cast(w, "float16"), wide

    graph = hoist_casts(trace_of(function, (8, 4), (1000,)), target())
    graph.verify()
    names = op_names(graph)
    assert names.index("cast") < names.index("sum")
    assert names.index("add") > names.index("exp")


def test_nodes_without_inputs_are_not_moved():
    graph = trace_of(lambda x: (ops.sum(x), ops.zeros((0,))), (3,))
    assert op_names(hoist_casts(graph, target())) == ["sum", "broadcast_to"]


def test_a_graph_without_nodes_needs_no_memory():
    assert plan_sequentially(trace_of(lambda x: x, (3,))).nbytes == 0


def test_variable_is_overwritten_through_a_reshape():
    pytest.importorskip("llvmlite")
    variable = Variable(np.arange(12, dtype="float32"))

    @function
    def step(x):
        change = ops.reshape(ops.exp(x), (12,))
        variable.assign(variable.value * 2.0 + change)

    x = np.linspace(1, 2, 12, dtype="float32").reshape(4, 3)
    expected = variable.numpy() * 2.0 + np.exp(x).ravel()
    step(x)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)
    program = step.get_concrete_function(x).program
    assert program.in_place
    assert op_names(program.graph) == ["fused"]


def test_variable_with_a_late_view_is_copied_at_the_end():
    pytest.importorskip("llvmlite")
    variable = Variable(np.arange(12, dtype="float32"))

    @function
    def step(x):
        transposed = ops.transpose(ops.reshape(variable.value, (4, 3))) * x
        variable.assign(ops.reshape(transposed, (12,)))

    before, x = variable.numpy(), np.linspace(1, 2, 4, dtype="float32")
    for _ in range(2):
        step(x)
        before = (before.reshape(4, 3).T * x).ravel()
        np.testing.assert_allclose(variable.numpy(), before, rtol=1e-6)
    assert step.get_concrete_function(x).program.in_place


def test_read_in_another_layout_prevents_overwriting():
    def function(x):
        y = x * 2.0
        return ops.sum((y + ops.transpose(y)) * 1.5)

    graph = trace_of(function, (8, 8))
    array = np.arange(64, dtype="float32").reshape(8, 8)
    expected = ((2 * array + 2 * array.T) * 1.5).sum()
    assert compiled(graph)([array])[0] == expected


@pytest.mark.parametrize("batch, width", [(1, 1), (3, 3), (3, 5), (4, 4), (5, 3)])
def test_view_that_is_read_later_prevents_overwriting(batch, width):
    """Check that relu's gradient does not overwrite values whose view is read later."""
    rng = np.random.default_rng(0)
    shapes = (batch, 4), (batch, width), (4, 5), (5, width)
    x, y, a, b = (rng.normal(size=shape).astype("float32") for shape in shapes)
    first, second = Variable(a), Variable(b)

    @function
    def gradients(x, y):
        with GradientTape() as tape:
            outputs = ops.matmul(ops.relu(ops.matmul(x, first)), second)
            loss = ops.sum(ops.square(outputs - y))
        return tape.gradient(loss, [first, second])

    hidden = np.maximum(x @ a, 0)
    g = 2 * (hidden @ b - y)
    expected = x.T @ ((g @ b.T) * (hidden > 0)), hidden.T @ g
    for actual, expected_gradient in zip(gradients(x, y), expected, strict=True):
        np.testing.assert_allclose(actual, expected_gradient, rtol=1e-4, atol=1e-4)


def test_two_outputs_of_a_node_do_not_overwrite_the_same_input():
    def two_outputs(x):
        # No generated code: the views below precede the sums.
        y = ops.abs(ops.cast(x, "complex64"))
        return ops.stack([y + 1, y + 2], -1)

    x = ops.convert_to_tensor(np.array([0.25, 1.5, 2.75], "float32"))
    np.testing.assert_array_equal(function(two_outputs)(x), two_outputs(x))


def test_any_value_may_be_fetched_and_fed():
    graph = trace_of(lambda x, w: ops.exp(ops.tanh(x) * w), (2,), (2,))
    x, _ = graph.inputs
    tanh, product, _ = (node.outputs[0] for node in graph.nodes)
    (fetched,) = computed(graph, [tanh], {x: np.zeros(2)})
    assert fetched.tolist() == [0.0, 0.0]
    (fed_result,) = computed(graph, graph.outputs, {product: ops.zeros((2,))})
    assert fed_result.tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match=r"also need inputs float32\[2\]"):
        computed(graph, graph.outputs, {x: np.zeros(2)})
    with pytest.raises(ShapeError, match=r"expected float32\[2\].*received.*\(3,\)"):
        computed(graph, [tanh], {x: np.zeros(3)})


def test_outputs_have_separate_memory():
    program = compiled(trace_of(lambda x: (x + 1.0, x), (3,)))
    x = np.zeros(3, "float32")
    first, passed_input = program([x])
    program([x + 5])
    assert first.tolist() == [1.0, 1.0, 1.0]
    assert not np.shares_memory(passed_input, x)


def test_output_lifetime_starts_at_its_write():
    """Check that a convolution's gradient packs weights before it has a buffer."""
    graph = trace_of(lambda x: ops.sum(ops.exp(ops.tanh(x) @ x)), (64, 64))
    graph = schedule(graph, target())
    count = len(graph.nodes)
    late_moments = [StepSpan(0, i, i) for i in range(count)]
    plan = plan_memory(graph, Layouts(graph).views, [0] * count, late_moments)
    assert plan.nbytes == plan_sequentially(graph).nbytes
    assert [b.first for b in plan.distinct][0] == 0


def test_values_written_in_several_steps_overwrite_nothing():
    graph = trace_of(lambda x: ops.sum(ops.exp(ops.tanh(x))), (1024,))
    graph = schedule(graph, target())
    count = len(graph.nodes)
    slow_moments = [StepSpan(i, i, i + 1) for i in range(count)]
    plan = plan_memory(graph, Layouts(graph).views, [0] * count, slow_moments)
    assert len(set(plan.buffers.values())) == 2
    assert plan.nbytes == 8192
    assert plan_sequentially(graph).nbytes == 4096


def test_value_with_a_pending_reader_is_not_overwritten():
    """Check that tanh does not overwrite the input of a sum that still reads it."""
    graph = trace_of(lambda x: (ops.sum(y := ops.exp(x)), ops.sum(ops.tanh(y))), (64,))
    exp, total, tanh, _ = graph.nodes
    assert (total.op.name, tanh.op.name) == ("sum", "tanh")

    def shares_buffer(total_runs):
        moments = [StepSpan(0, 0, 0), total_runs, StepSpan(3, 3, 3), StepSpan(4, 4, 4)]
        plan = plan_memory(graph, set(), [0] * 4, moments)
        return plan.buffers[exp.outputs[0]] is plan.buffers[tanh.outputs[0]]

    assert shares_buffer(StepSpan(1, 1, 2))
    assert not shares_buffer(StepSpan(1, 3, 3))
    assert not shares_buffer(StepSpan(1, 1, 3))
    assert not shares_buffer(StepSpan(1, 1, 5))


def test_scratch_memory_is_kept_for_all_of_a_nodes_steps():
    graph = trace_of(lambda x: ops.sum(ops.exp(ops.tanh(x))), (64,))
    moments = [StepSpan(0, 0, 0), StepSpan(1, 3, 3), StepSpan(4, 4, 4)]
    plan = plan_memory(graph, set(), [0, 4096, 0], moments)
    assert (plan.work[1].first, plan.work[1].last) == (1, 3)
    tanh = plan.buffers[graph.nodes[0].outputs[0]]
    assert plan.work[1].offset >= tanh.offset + tanh.nbytes or (
        tanh.offset >= plan.work[1].offset + plan.work[1].nbytes
    )
