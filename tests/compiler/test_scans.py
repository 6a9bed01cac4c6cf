"""Tests that scans stack each value once, and only values that something reads."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import compiled, target
from toolkit import ops
from toolkit.compiler.passes.scans import hoist, tidy_scans
from toolkit.core.trace import Trace
from toolkit.functions.decorator import function
from toolkit.ir import Kind, Spec


def wasteful(x):
    def body(carry, x_t):
        following = carry + x_t
        return following, (following, following, x_t, following * 2.0)

    final, (first, repeated, read, _) = toolkit.ops.scan(body, ops.zeros(3), x)
    return final, first, repeated, read


def test_duplicate_and_unread_outputs_are_not_stacked():
    with Trace("test") as trace:
        x = trace.placeholder(Spec((4, 3), "float32"))
        outputs = wasteful(x)
    graph = trace.finish(list(outputs))
    result = tidy_scans(graph, target())
    result.verify()
    (scan,) = (node for node in result.nodes if node.op.name == "scan")
    assert len(scan.outputs) == 2
    array = np.arange(12, dtype="float32").reshape(4, 3)
    sums = np.cumsum(array, axis=0)
    actual = toolkit.function(wasteful)(array)
    for a, b in zip(actual, (sums[-1], sums, sums, array), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


def test_recurrent_layer_stacks_no_value_twice():
    model = toolkit.Sequential([toolkit.Input((5, 3)), toolkit.layers.LSTM(4)])
    model.compile("sgd", "mse")
    x, y = np.zeros((8, 5, 3), "float32"), np.zeros((8, 4), "float32")
    graph = model.inspect(x, y).graph if model.fit(x, y, verbose=0) else None
    scans = [node for node in graph.nodes if node.op.name == "scan"]
    assert len(scans) == 2
    for node in scans:
        stacked = node.attrs["body"].outputs[node.attrs["carry"] :]
        assert len(set(stacked)) == len(stacked)


def hoisted(function, *specs):
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in specs]
        outputs = [function(*inputs)]
    graph = hoist(trace.finish(outputs), target())
    graph.verify()
    before = [node.op.name for node in graph.nodes]
    (scan,) = (node for node in graph.nodes if node.op.name == "scan")
    return before, [node.op.name for node in scan.attrs["body"].nodes]


def test_loop_invariants_are_hoisted():
    def function(xs, w):
        def body(carry, x):
            scale = ops.exp(w) * 2.0
            return carry * scale + x, None

        return ops.scan(body, ops.zeros(3), xs)[0]

    before, inner = hoisted(function, Spec((4, 3), "float32"), Spec((3,), "float32"))
    assert before[-3:] == ["exp", "multiply", "scan"]
    assert inner == ["multiply", "add"]
    xs, w = np.ones((4, 3), "float32"), np.full(3, -1.0, "float32")
    expected = np.zeros(3)
    for x in xs:
        expected = expected * np.exp(w) * 2 + x
    actual = toolkit.function(function)(xs, w)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)


def test_transposed_factor_is_hoisted_and_other_views_stay():
    def function(xs, w, v):
        def body(carry, x):
            return ops.matmul(carry, ops.transpose(w)) + x + ops.reshape(v, (3,)), None

        return ops.scan(body, ops.zeros((2, 3)), xs)[0]

    specs = (Spec(shape, "float32") for shape in ((4, 2, 3), (3, 3), (3, 1)))
    before, inner = hoisted(function, *specs)
    assert before[-3:] == ["transpose", "stop_gradient", "scan"]
    assert "transpose" not in inner
    assert "reshape" in inner


def test_scan_of_length_zero_hoists_no_failing_node():
    def function(xs, w):
        def body(carry, x):
            return carry * ops.exp(w) + x, None

        return ops.scan(body, ops.zeros(3), xs)[0]

    before, _ = hoisted(function, Spec((0, 3), "float32"), Spec((3,), "float32"))
    assert "exp" not in before


def test_an_output_that_is_a_state_too_is_carried_once():
    def function(xs):
        def body(carry, x):
            state, _ = carry
            state = ops.tanh(state + x)
            return (state, state), None

        return ops.scan(body, (ops.zeros(3), ops.ones(3)), xs)[0]

    with Trace("test") as trace:
        x = trace.placeholder(Spec((4, 3), "float32"))
        outputs = function(x)
    graph = trace.finish(list(outputs))
    (scan,) = (node for node in graph.nodes if node.op.name == "scan")
    assert scan.attrs["carry"] == 1
    assert outputs[0] is outputs[1]
    empty = toolkit.function(function)(np.zeros((0, 3), "float32"))
    assert [y.numpy().tolist() for y in empty] == [[0, 0, 0], [1, 1, 1]]


def test_initial_carried_value_may_be_a_view():
    def sums(x, start):
        def step(carry, row):
            following = carry * 2.0 + row
            return following, following

        return ops.scan(step, start[:, 1:3], x)

    random = np.random.default_rng(0)
    x, start = random.normal(size=(3, 4, 2)), random.normal(size=(4, 5))
    inputs = [ops.convert_to_tensor(a.astype("float32")) for a in (x, start)]
    for actual, expected in zip(function(sums)(*inputs), sums(*inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def traced(function, *specs):
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in specs]
        outputs = function(*inputs)
    return trace.finish(list(outputs))


def scan_of(graph):
    (scan,) = (node for node in graph.nodes if node.op.name == "scan")
    return scan


def check_equal_results(function, graph, *arrays):
    """Check that a changed graph has the results of the function."""
    expected = [y.numpy() for y in function(*map(ops.convert_to_tensor, arrays))]
    actual = compiled(graph, generate=False)(list(arrays))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


XS, ROW = Spec((4, 3), "float32"), Spec((3,), "float32")
ARRAY = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
VECTOR = np.array([0.5, -1.0, 2.0], "float32")


# --- tidy_scans -----------------------------------------------------------------------


def test_readers_of_duplicate_stacks_share_one():
    def function(xs):
        def body(carry, x):
            following = carry + x
            return following, (following, x, following)

        final, (first, read, repeated) = ops.scan(body, ops.zeros(3), xs)
        return final, first * 2.0 + repeated, read * 3.0

    graph = tidy_scans(traced(function, XS), target())
    graph.verify()
    assert len(scan_of(graph).outputs) == 2  # the last state, and a stacked one
    check_equal_results(function, graph, ARRAY)


def test_unread_carried_value_stays():
    def function(xs):
        def body(carry, x):
            a, b = carry
            return (a + x, b * 2.0), (a, x * b)

        _, (states, products) = ops.scan(body, (ops.zeros(3), ops.ones(3)), xs)
        return states, products

    graph = traced(function, XS)
    result = tidy_scans(graph, target())
    result.verify()
    assert len(scan_of(result).outputs) == 4
    check_equal_results(function, result, ARRAY)


def test_minimal_scan_is_unchanged():
    def function(xs):
        return ops.scan(lambda c, x: (c + x, c * x), ops.zeros(3), xs)

    graph = traced(function, XS)
    result = tidy_scans(graph, target())
    assert scan_of(result).attrs["body"] is scan_of(graph).attrs["body"]
    plain = traced(lambda x: [ops.exp(x)], ROW)
    assert tidy_scans(plain, target()) is plain


def test_an_output_of_the_graph_counts_as_read():
    def function(xs):
        final, states = ops.scan(lambda c, x: (c + x, c), ops.zeros(3), xs)
        return final, states

    assert len(scan_of(tidy_scans(traced(function, XS), target())).outputs) == 2


def test_scan_may_read_a_duplicate_stack():
    def function(xs):
        def first(carry, x):
            following = carry + x
            return following, (following, following)

        _, (a, b) = ops.scan(first, ops.zeros(3), xs)
        _, stacked = ops.scan(lambda c, x: (c * x[0] + x[1], c), ops.ones(3), (a, b))
        return (stacked,)

    graph = tidy_scans(traced(function, XS), target())
    graph.verify()
    first, second = (n for n in graph.nodes if n.op.name == "scan")
    assert len(first.outputs) == 2
    assert second.inputs[1] is second.inputs[2]
    check_equal_results(function, graph, ARRAY)


# --- hoist ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_view", [False, True])
def test_a_carried_value_that_is_a_view_is_copied_before(is_view):
    def function(xs, start):
        start = ops.reshape(start, (3,)) if is_view else start * 2.0
        return ops.scan(lambda c, x: (c * 2.0 + x, c), start, xs)

    start = Spec((1, 3) if is_view else (3,), "float32")
    graph = hoist(traced(function, XS, start), target())
    graph.verify()
    names = [node.op.name for node in graph.nodes]
    assert ("stop_gradient" in names) == is_view
    check_equal_results(function, graph, ARRAY, VECTOR.reshape(start.shape))


def test_iteration_dependent_values_are_not_hoisted():
    def function(xs, w):
        return ops.scan(lambda c, x: (ops.tanh(c * x), None), w, xs)[:1]

    graph = traced(function, XS, ROW)
    hoisted_graph = hoist(graph, target())
    assert scan_of(hoisted_graph).attrs["body"] is scan_of(graph).attrs["body"]
    assert [n.op.name for n in hoisted_graph.nodes] == [n.op.name for n in graph.nodes]


def test_hoisted_values_without_inner_readers_are_removed():
    def function(xs, w):
        def body(carry, x):
            scale = ops.exp(w)
            shift = scale * 2.0  # only this is read inside
            return carry + shift * x, None

        return ops.scan(body, ops.zeros(3), xs)[:1]

    hoisted_graph = hoist(traced(function, XS, ROW), target())
    hoisted_graph.verify()
    scan = scan_of(hoisted_graph)
    names = [n.op.name for n in hoisted_graph.nodes]
    assert names[-3:] == ["exp", "multiply", "scan"]
    assert len(scan.attrs["body"].inputs) == len(scan.inputs)
    assert len(scan.inputs) - len(scan_of(traced(function, XS, ROW)).inputs) == 1
    check_equal_results(function, hoisted_graph, ARRAY, VECTOR)


def test_plain_constants_are_not_hoisted():
    def function(xs, start):
        def body(carry, x):
            two_vector = ops.sqrt(ops.convert_to_tensor([4.0, 4.0, 4.0]))
            return carry + x * two_vector, None

        return ops.scan(body, start, xs)[0]

    before, inner = hoisted(function, XS, ROW)
    assert before == ["scan"] and "sqrt" in inner


def test_views_of_invariants_are_duplicated():
    def function(xs, w):
        def body(carry, x):
            view = ops.reshape(w, (3,))
            return carry * ops.exp(view) + view * x, None

        return ops.scan(body, ops.zeros(3), xs)[:1]

    hoisted_graph = hoist(traced(function, XS, Spec((3, 1), "float32")), target())
    hoisted_graph.verify()
    inner = [n.op.name for n in scan_of(hoisted_graph).attrs["body"].nodes]
    assert "reshape" in inner and "exp" not in inner
    names = [n.op.name for n in hoisted_graph.nodes]
    assert names.count("reshape") == 1 and names.count("exp") == 1
    check_equal_results(function, hoisted_graph, ARRAY, VECTOR.reshape(3, 1))


def test_transposes_that_are_not_factors_are_not_copied():
    def function(xs, w, start):
        def body(carry, x):
            return carry + ops.transpose(w) * x[0], None

        return ops.scan(body, start, xs)[0]

    specs = Spec((2, 3), "float32"), Spec((3, 2), "float32")
    before, inner = hoisted(function, XS, *specs)
    assert before == ["scan"] and "transpose" in inner


def test_branch_inside_a_scan_is_not_hoisted():
    def function(xs, w):
        def body(carry, x):
            scale = ops.cond(ops.sum(w) > 0.0, lambda: w * 2.0, lambda: w * 3.0)
            return carry * scale + x, None

        return ops.scan(body, ops.zeros(3), xs)[:1]

    hoisted_graph = hoist(traced(function, XS, ROW), target())
    hoisted_graph.verify()
    kinds = [n.op.kind for n in scan_of(hoisted_graph).attrs["body"].nodes]
    assert Kind.CONTROL in kinds
    check_equal_results(function, hoisted_graph, ARRAY, VECTOR)
