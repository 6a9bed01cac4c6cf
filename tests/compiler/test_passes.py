"""Tests of each pass: a graph before and after, and results of random graphs."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings

import toolkit
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
from toolkit.compiler import pipeline
from toolkit.compiler.passes import rewriting, simplify
from toolkit.compiler.passes.schedule import schedule
from toolkit.compiler.pipeline import optimize
from toolkit.core.convert import extent
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import PRIMITIVES, Graph, Spec
from toolkit.plans.loops.iteration_space import uniform_value

PASSES = {*pipeline.simplifying_passes(target()), schedule}
PASSES |= {rewriting.copy_aliased_outputs, rewriting.copy_carried_views}


@pytest.mark.parametrize("step", sorted(PASSES, key=lambda f: f.__name__))
@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_a_pass_keeps_the_meaning(step, graph):
    result = step(graph, target())
    result.verify()
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(result, arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_all_passes_keep_the_meaning_and_never_add_nodes(graph):
    result = optimize(graph, target())
    result.verify()
    assert len(result.nodes) <= len(rewriting.decompose(graph, target()).nodes)
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(result, arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def run_pass(step, function, *shapes) -> Graph:
    return step(trace_of(function, *shapes), target())


def test_prune_removes_dead_code():
    def function(x):
        ops.exp(x)
        return ops.tanh(x)

    assert op_names(run_pass(rewriting.prune, function, (3,))) == ["tanh"]


def test_fold_computes_constants():
    graph = run_pass(simplify.fold, lambda x: x + ops.sqrt(ops.full((3,), 4.0)), (3,))
    assert op_names(graph) == ["add"]
    assert graph.nodes[0].inputs[1].constant.tolist() == [2.0, 2.0, 2.0]


def test_fold_computes_all_results_of_an_operation():
    def function(x):
        q, r = ops.linalg.qr(ops.convert_to_tensor(np.eye(2, dtype="float32")))
        return x @ q, x @ r

    assert op_names(run_pass(simplify.fold, function, (2, 2))) == ["matmul", "matmul"]


def test_fold_runs_no_loops():
    def function(x):
        return x + ops.scan(lambda c, t: (c * t, None), ops.ones(()), ops.ones((4,)))[0]

    assert op_names(run_pass(simplify.fold, function, (3,)))[0] == "scan"


def test_fold_creates_views_of_any_size():
    def function(x):
        return x + ops.broadcast_to(2.0, (300, 300))

    graph = run_pass(simplify.fold, function, (300,))
    assert op_names(graph) == ["add"]
    assert graph.nodes[0].inputs[1].constant.strides == (0, 0)


def test_fold_skips_large_results():
    ones = ops.ones((300,))
    graph = run_pass(
        simplify.fold, lambda x: x + ops.sqrt(ops.ones((300, 1)) * ones), (300,)
    )
    assert op_names(graph) == ["multiply", "sqrt", "add"]


def test_share_computes_equal_expressions_once():
    graph = run_pass(simplify.share, lambda x: ops.exp(x) * ops.exp(x), (3,))
    assert op_names(graph) == ["exp", "multiply"]


def test_share_distinguishes_dtypes_and_signs_of_constants():
    def function(x):
        zero, minus = ops.convert_to_tensor(0.0), ops.convert_to_tensor(-0.0)
        return ops.arctan2(zero, x), ops.arctan2(minus, x)

    graph = run_pass(simplify.share, function, (3,))
    assert op_names(graph) == ["arctan2", "arctan2"]


@pytest.mark.parametrize(("extra", "count"), [(0, 1), (1, 2)])
def test_share_compares_constants_up_to_a_size(extra, count):
    values = np.ones(simplify.SHARE_BYTES // 4 + extra, "float32")

    def function(x):
        first, second = (ops.convert_to_tensor(values.copy()) for _ in range(2))
        return x * first, x * second

    graph = run_pass(simplify.share, function, values.shape)
    assert len(graph.nodes) == count


@pytest.mark.parametrize(
    ("function", "remaining"),
    [
        (lambda x: x * 1.0, []),
        (lambda x: 1.0 * x, []),
        (lambda x: x / 1.0, []),
        (lambda x: x - 0.0, []),
        (lambda x: x * ops.array([[[1.0]]]), ["multiply"]),  # the result has three axes
        (lambda x: x / ops.array([[[1.0]]]), ["divide"]),
        (lambda x: x - (-0.0), ["subtract"]),  # -0.0 - -0.0 is 0.0
        (lambda x: x + 0.0, ["add"]),  # -0.0 + 0.0 is 0.0
        (lambda x: ops.negative(ops.negative(x)), ["negative"]),
        (ops.stop_gradient, []),
        (lambda x: ops.reshape(x, x.shape), []),
        (lambda x: ops.reshape(ops.reshape(x, (6,)), (3, 2)), ["reshape", "reshape"]),
        (lambda x: ops.transpose(ops.transpose(x)), ["transpose"]),
        (lambda x: ops.where(True, x, x * 2.0), ["multiply"]),
        (lambda x: ops.where(False, x * 2.0, x), ["multiply"]),
        (lambda x: ops.where(ops.array([[[True]]]), x, x * 2.0), ["multiply", "where"]),
        (lambda x: ops.split(x, 1)[0], []),
        (lambda x: ops.pad(x, 0), []),
        (lambda x: x + ops.broadcast_to(ops.ones((1, 1)), (2, 3)), None),
    ],
)
def test_simplify(function, remaining):
    graph = run_pass(simplify.simplify, function, (2, 3))
    if remaining is None:  # the add reads through the broadcast
        assert graph.nodes[-1].inputs[1].spec.shape in ((1, 1), ())
    else:
        assert op_names(graph) == remaining


def test_pools_of_one_pixel_are_slices():
    def function(x):
        return ops.average_pool(x, 1, 2), ops.average_pool(x, 2, 2)

    graph = run_pass(optimize, function, (2, 5, 6, 3))
    assert op_names(graph)[:2] == ["slice", "sum_pool"]
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype("float32")
    actual, _ = compiled(graph)([x])
    np.testing.assert_array_equal(actual, x[:, ::2, ::2])


def test_consecutive_reshapes_are_merged():
    graph = run_pass(
        optimize, lambda x: ops.reshape(ops.reshape(x, (6,)), (3, 2)), (2, 3)
    )
    assert op_names(graph) == ["reshape"]


@pytest.mark.parametrize(
    ("function", "copies"),
    [
        (lambda x: ops.tile(x, (2, 1)), 0),
        (lambda x: ops.reshape(x, (4, 3)), 1),
        (lambda x: ops.reshape(ops.exp(x), (4, 3)), 1),
    ],
)
def test_only_view_results_are_copied(function, copies):
    graph = run_pass(rewriting.copy_aliased_outputs, function, (3, 4))
    assert [node.op.name for node in graph.nodes].count("stop_gradient") == copies


def test_replaced_values_stay_alive():
    substitution = rewriting.Substitution()
    old, new = (Tensor(None, Spec((2,), "float32")) for _ in range(2))
    alive = weakref.ref(old)
    substitution.replace(old, new)
    del old
    assert alive() is not None


def test_decompose_expands_missing_primitives():
    doubled = decomposable("test_doubled", lambda x: ops.tanh(x) + ops.tanh(x))
    del PRIMITIVES["test_doubled"]  # other code must not use it
    graph = trace_of(lambda x: bind(doubled, x) * 2.0, (3,))
    assert op_names(graph) == ["test_doubled", "multiply"]
    expanded = rewriting.decompose(graph, target())
    assert op_names(expanded) == ["tanh", "tanh", "add", "multiply"]
    expanded.verify()


def test_decompose_keeps_supported_primitives():
    graph = trace_of(lambda x: ops.softmax(x), (2, 3))
    assert op_names(graph) == ["softmax"]
    assert rewriting.expand(graph, lambda node: False) is graph
    assert op_names(rewriting.expand(graph, lambda node: True))[0] == "max"


def test_rewritten_nodes_keep_their_device():
    def function(x):
        transposed = ops.transpose(ops.transpose(x, (1, 0, 2)), (0, 2, 1))
        return transposed, ops.scan(lambda c, y: (c + y, c), x[0], x)[0]

    graph = trace_of(function, (2, 3, 4))
    for node in graph.nodes:
        node.device = "cpu:0"
    devices = {n.op.name: n.device for n in optimize(graph, target()).nodes}
    assert devices["transpose"] == devices["scan"] == "cpu:0"


def test_bodies_of_loops_are_optimized_too():
    def function(x):
        return ops.scan(lambda c, y: (c * 1.0 + y, c), ops.zeros(()), x)[0]

    (loop,) = optimize(trace_of(function, (3,)), target()).nodes
    assert op_names(loop.attrs["body"]) == ["add"]


def test_share_distinguishes_loop_bodies():
    def function(x):
        def summed(f):
            return ops.scan(lambda c, y: (f(c, y), c), ops.zeros(()), x)[0]

        return summed(ops.add), summed(ops.maximum), summed(ops.add)

    graph = run_pass(simplify.share, function, (3,))
    assert op_names(graph) == ["scan"] * 3
    results = compiled(graph)([np.ones(3, "float32")])
    assert [float(x) for x in results] == [3.0, 1.0, 3.0]


def open_constants(graph):
    return [x for node in graph.nodes for x in node.inputs if x.is_open]


def test_values_of_the_leading_extent_are_kernel_arguments():
    graph = trace_of(lambda x: ops.mean(x) * ops.mean(x, axis=1), (6, 4))
    optimized = optimize(graph, target())
    (count,) = open_constants(optimized)
    assert float(count.constant) == 24.0
    assert uniform_value(count) is None
    program = compiled(graph)
    x = np.arange(24, dtype="float32").reshape(6, 4)
    (actual,) = program([x])
    np.testing.assert_allclose(actual, x.mean() * x.mean(axis=1), rtol=1e-6)


def test_functions_of_open_constants_are_open():
    def function(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            loss = ops.mean(ops.exp(x))
        return tape.gradient(loss, x)

    optimized = optimize(trace_of(function, (6, 4)), target())
    assert op_names(optimized) == ["exp", "multiply"]
    (factor,) = open_constants(optimized)
    assert factor.spec.size == 1  # not an array of equal numbers
    np.testing.assert_allclose(factor.constant, 1 / 24)


def test_fold_separates_open_and_closed_constants():
    def function(x):
        open_result = extent(4, "float32") + ops.convert_to_tensor(1.0)
        return x * open_result, x * ops.sqrt(ops.convert_to_tensor(4.0))

    graph = run_pass(simplify.fold, function, (3,))
    assert op_names(graph) == ["multiply", "multiply"]
    assert [node.inputs[1].is_open for node in graph.nodes] == [True, False]


def test_an_open_constant_may_have_no_elements():
    graph = trace_of(lambda x: x * (extent(4, "float32") * ops.ones((0,))), (3, 0))
    assert evaluate(optimize(graph, target()), [np.ones((3, 0))])[0].shape == (3, 0)


def test_open_constants_are_not_shared_with_equal_numbers():
    graph = trace_of(lambda x: ops.mean(x, axis=0) + ops.sum(x, axis=0) / 6.0, (6, 4))
    divisors = [
        n.inputs[1] for n in optimize(graph, target()).nodes if n.op.name == "divide"
    ]
    assert [x.is_open for x in divisors] == [True, False]


def test_extents_are_plain_numbers_outside_of_traces():
    assert extent(6, "float32") == 6
