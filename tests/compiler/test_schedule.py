"""Tests of the order of nodes: early frees, late updates, casts first."""

import numpy as np
import pytest

import toolkit as tk
from tests.compiler.graphs import evaluate, op_names, target, trace_of
from toolkit import ops
from toolkit.backends.cupy.passes.casts import hoist_casts
from toolkit.compiler.passes.schedule import (
    copy_unsafe_updates,
    first_late_index,
    schedule,
    sink_updates,
)
from toolkit.core.trace import Trace
from toolkit.ir import Spec


def scheduled_names(function, *shapes):
    graph = schedule(trace_of(function, *shapes), target())
    graph.verify()
    return op_names(graph)


# --- schedule -------------------------------------------------------------------------


def test_node_that_frees_its_size_runs_first():
    def function(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(b), ops.cos(a)  # the last read of b and a

    assert scheduled_names(function, (8,)) == ["exp", "cos", "sin", "tanh"]


def test_node_that_frees_nothing_is_not_moved():
    def function(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(a), b, a  # a is an output: it stays alive

    assert scheduled_names(function, (8,)) == ["exp", "sin", "tanh"]


def test_value_with_other_readers_is_not_freed():
    def function(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.cos(a), ops.tanh(b) * a

    assert scheduled_names(function, (8,)) == ["exp", "sin", "tanh", "multiply", "cos"]


def test_nodes_that_were_ready_keep_their_order():
    def function(x):
        a = ops.exp(x)
        c, b = ops.sum(a), ops.sin(x)
        return ops.tanh(b), c, ops.cos(a)

    assert scheduled_names(function, (8,)) == ["exp", "sum", "sin", "tanh", "cos"]


def test_inputs_of_the_graph_are_not_freed():
    def function(x, y):
        a = ops.exp(x)
        return a, ops.sin(a) + ops.cos(y)

    assert scheduled_names(function, (8,), (8,)) == ["exp", "sin", "cos", "add"]


def test_node_that_grows_is_not_moved():
    def function(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(b), ops.concatenate([a, a], axis=0)

    assert scheduled_names(function, (8,)) == ["exp", "sin", "tanh", "concatenate"]


def test_one_input_that_is_read_twice_frees_its_bytes_once():
    def function(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(b), a * a

    assert scheduled_names(function, (8,)) == ["exp", "multiply", "sin", "tanh"]


def test_views_and_control_flow_are_not_moved():
    def views(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(b), ops.reshape(a, (2, 4)) + 1.0

    assert scheduled_names(views, (8,)) == ["exp", "sin", "tanh", "reshape", "add"]

    def loops(x):
        a, b = ops.exp(x), ops.sin(x)
        return ops.tanh(b), ops.scan(lambda c, _: (c * 2.0, None), a, length=3)[0]

    assert scheduled_names(loops, (8,)) == ["exp", "sin", "tanh", "scan"]


def test_empty_nodes_are_not_moved_and_one_byte_counts():
    def empty(x):
        none = ops.exp(x)[:0]
        return ops.cos(x), ops.tanh(none)

    assert scheduled_names(empty, (8,)) == ["exp", "slice", "cos", "tanh"]

    def flag(x):
        total, sine = ops.max(x), ops.sin(x)
        return sine, ops.isnan(total)

    assert scheduled_names(flag, (8,)) == ["max", "isnan", "sin"]


def test_only_computed_values_are_freed():
    def function(x, y):
        small, sine = ops.max(x), ops.sin(x)
        return sine, small * y

    assert scheduled_names(function, (8,), (8,)) == ["max", "sin", "multiply"]


def test_value_after_its_other_reads_is_freed():
    def function(x):
        a = ops.exp(x)
        total, small = ops.prod(a), ops.max(x)
        return total, ops.sin(x), a * small

    assert scheduled_names(function, (8,)) == ["exp", "prod", "max", "multiply", "sin"]


def test_freeing_nodes_keep_their_order():
    def function(x):
        a = ops.concatenate([x, x, x, x], axis=0)
        sine = ops.sin(x)
        return ops.sum(a), ops.max(a), ops.cos(a), ops.tanh(sine)

    graph = trace_of(function, (8,))
    assert op_names(schedule(graph, target()))[:2] == ["concatenate", "sin"]

    def chain(x):
        a = ops.exp(x)
        sine = ops.sin(x)
        b = ops.cos(a)
        return ops.tanh(b), sine

    assert scheduled_names(chain, (8,)) == ["exp", "cos", "tanh", "sin"]


# --- updates --------------------------------------------------------------------------


def updates_last(graph, *outputs):
    """Return the graph with some outputs as updates, and the first node that moved."""
    updates = [(output, None) for output in outputs]
    moved = sink_updates(graph, target(updates=updates))
    return moved, first_late_index(moved, updates)


def test_updates_and_their_dependents_run_last():
    def function(v, x):
        new = v * 2.0
        dependent = ops.exp(new)
        return dependent, ops.tanh(x), new

    graph = trace_of(function, (3,), (3,))
    moved, first = updates_last(graph, 2)
    moved.verify()
    assert (op_names(moved), first) == (["tanh", "multiply", "exp"], 1)
    moved, first = updates_last(graph)
    assert (op_names(moved), first) == (op_names(graph), 3)
    moved, first = updates_last(graph, 0)
    assert (op_names(moved), first) == (["multiply", "tanh", "exp"], 2)


def test_dependents_of_an_update_follow_it():
    def function(v, x):
        new = v * 2.0
        dependent = ops.tanh(ops.exp(new))
        return dependent, ops.sin(x), new

    graph = trace_of(function, (3,), (3,))
    moved, first = updates_last(graph, 2)
    moved.verify()
    assert (op_names(moved), first) == (["sin", "multiply", "exp", "tanh"], 1)


# function of (variable, x) -> (results, the new value); whether that is copied
UPDATES = {
    "elementwise": (lambda v, x: (x + 1.0, v * 2.0 + x), False),
    "a sum": (lambda v, x: (x, v - ops.sum(v)), False),
    "a running sum": (lambda v, x: (x, ops.cumsum(v, 0)), True),
    "read before, by steps": (lambda v, x: (ops.tanh(ops.exp(v)) * v, v * x), False),
    "turned": (lambda v, x: (x, ops.flip(v, 0) * 1.5), True),
    "read before": (lambda v, x: (ops.exp(v), v * x), False),
}


@pytest.mark.parametrize("case", UPDATES)
def test_new_value_that_cannot_overwrite_is_copied(case):
    function, copied = UPDATES[case]
    graph = trace_of(function, (4,), (4,))
    graph, _ = updates_last(graph, 1)
    copied_graph = copy_unsafe_updates(graph, target(updates=[(1, 0)]))
    copied_graph.verify()
    assert len(copied_graph.nodes) - len(graph.nodes) == copied
    assert (copied_graph.outputs[1] is graph.outputs[1]) != copied
    assert copied_graph.outputs[0] is graph.outputs[0]
    arrays = [np.arange(4, dtype="float32"), np.ones(4, "float32")]
    for a, b in zip(
        evaluate(graph, arrays), evaluate(copied_graph, arrays), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_independent_new_value_is_not_copied():
    graph = trace_of(lambda v, x: (x, ops.flip(x, 0) * 1.5), (4,), (4,))
    assert copy_unsafe_updates(graph, target(updates=[(1, None)])).nodes == graph.nodes


def test_late_reads_of_updated_variables_are_valid():
    def after_update(v, x):
        new = v * 2.0
        return ops.exp(new) * v, new

    def before_update(v, x):
        new = v * 2.0
        return new - ops.reshape(v, (4, 1))[:, 0], new

    def other_variable(v, x):
        return v * 3.0, x * v

    for function in (after_update, before_update):
        graph = trace_of(function, (4,), (4,))
        result = copy_unsafe_updates(graph, target(updates=[(1, 0)]))
        assert len(result.nodes) == len(graph.nodes) + 1
    graph = trace_of(other_variable, (4,), (4,))
    assert len(copy_unsafe_updates(graph, target(updates=[(1, 0)])).nodes) == len(
        graph.nodes
    )
    # The second reads the destination of the first.
    copied_graph = copy_unsafe_updates(graph, target(updates=[(0, 0), (1, 1)]))
    assert len(copied_graph.nodes) == len(graph.nodes) + 1
    assert copied_graph.outputs[0] is not graph.outputs[0]
    assert copied_graph.outputs[1] is graph.outputs[1]


# --- casts ----------------------------------------------------------------------------


def casts_first(function, *shapes):
    graph = hoist_casts(trace_of(function, *shapes), target())
    graph.verify()
    return op_names(graph)


def test_elementwise_nodes_of_inputs_run_first():
    def function(x, w):
        a = ops.sum(x)
        return a, ops.cast(w, "float16"), w * 2.0

    assert casts_first(function, (8,), (4,)) == ["cast", "multiply", "sum"]


@pytest.mark.parametrize(
    "later",
    [
        lambda x, w: ops.exp(ops.sum(x)),  # depends on a computed value
        lambda x, w: ops.cast(w, "float64"),  # larger than its operand
        lambda x, w: ops.flip(w, 0),  # not elementwise
        lambda x, w: ops.max(w),
    ],
)
def test_other_nodes_are_not_moved(later):
    names = casts_first(lambda x, w: (ops.sum(x), later(x, w)), (8,), (4,))
    assert names[0] == "sum"


def test_constants_do_not_prevent_the_move():
    with Trace("test") as trace:
        x = trace.placeholder(Spec((8,), "float32"))
        a = ops.sum(x)
        b = x * ops.convert_to_tensor(np.arange(8, dtype="float32"))
    assert op_names(hoist_casts(trace.finish([a, b]), target())) == ["multiply", "sum"]


FAILURES = {
    "solve": lambda v, w: ops.solve(v * 0, ops.ones((3, 1))),
    "solve of an updated value": lambda v, w: ops.solve(w * 0, ops.ones((3, 1))),
    "gather": lambda v, w: ops.take(ops.ones((3, 1)), ops.cast(v[0] + 7, "int32"), 0),
    "gather by an updated value": lambda v, w: ops.take(
        ops.ones((3, 1)), ops.cast(w[0] + 7, "int32"), 0
    ),
}


@pytest.mark.parametrize("compute", FAILURES.values(), ids=FAILURES)
def test_an_error_changes_no_variable(compute):
    variables = [tk.Variable(np.eye(3, dtype="float32")) for _ in range(2)]
    out = tk.Variable(np.zeros((3, 1), "float32"))
    before = [np.array(v) for v in (*variables, out)]

    @tk.function
    def step():
        v, w = variables
        w.assign_add(ops.ones((3, 3)))
        out.assign(compute(ops.convert_to_tensor(v), ops.convert_to_tensor(w)))
        v.assign_add(ops.ones((3, 3)))

    for _ in range(2):
        with pytest.raises(ValueError):
            step()
        for variable, old in zip((*variables, out), before, strict=True):
            np.testing.assert_array_equal(variable, old)
