"""Each pass: one graph before and after, and equal results on random graphs."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compiler.graphs import arrays_for, evaluate, graphs, op_names, trace_of
from toolkit import ops
from toolkit.compiler import passes
from toolkit.ir import PRIMITIVES, Graph, Spec
from toolkit.tensor import Tensor, backend, bind
from toolkit.trace import decomposable


@pytest.mark.parametrize("step", sorted(set(passes.PASSES), key=lambda f: f.__name__))
@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_a_pass_keeps_the_meaning(step, graph):
    result = step(graph, backend())
    result.verify()
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(result, arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_all_passes_keep_the_meaning_and_never_add_nodes(graph):
    result = passes.optimize(graph, backend())
    result.verify()
    assert len(result.nodes) <= len(passes.decompose(graph, backend()).nodes)
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(result, arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def after(step, function, *shapes) -> Graph:
    return step(trace_of(function, *shapes), backend())


def test_prune_drops_what_no_output_needs():
    def function(x):
        ops.exp(x)
        return ops.tanh(x)

    assert op_names(after(passes.prune, function, (3,))) == ["tanh"]


def test_fold_computes_constants():
    graph = after(passes.fold, lambda x: x + ops.sqrt(ops.full((3,), 4.0)), (3,))
    assert op_names(graph) == ["add"]
    assert graph.nodes[0].inputs[1].constant.tolist() == [2.0, 2.0, 2.0]


def test_fold_leaves_large_results_alone():
    ones = ops.ones((300,))
    graph = after(
        passes.fold, lambda x: x + ops.sqrt(ops.ones((300, 1)) * ones), (300,)
    )
    assert op_names(graph) == ["multiply", "sqrt", "add"]


def test_share_computes_equal_expressions_once():
    graph = after(passes.share, lambda x: ops.exp(x) * ops.exp(x), (3,))
    assert op_names(graph) == ["exp", "multiply"]


def test_share_tells_constants_of_other_types_and_signs_apart():
    def function(x):
        zero, minus = ops.convert_to_tensor(0.0), ops.convert_to_tensor(-0.0)
        return ops.arctan2(zero, x), ops.arctan2(minus, x)

    graph = after(passes.share, function, (3,))
    assert op_names(graph) == ["arctan2", "arctan2"]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x * 1.0, []),
        (lambda x: 1.0 * x, []),
        (lambda x: x / 1.0, []),
        (lambda x: x - 0.0, []),
        (lambda x: x - (-0.0), ["subtract"]),  # -0.0 - -0.0 is 0.0
        (lambda x: x + 0.0, ["add"]),  # -0.0 + 0.0 is 0.0
        (lambda x: ops.negative(ops.negative(x)), ["negative"]),
        (ops.stop_gradient, []),
        (lambda x: ops.reshape(x, x.shape), []),
        (lambda x: ops.reshape(ops.reshape(x, (6,)), (3, 2)), ["reshape", "reshape"]),
        (lambda x: ops.transpose(ops.transpose(x)), ["transpose"]),
        (lambda x: ops.where(True, x, x * 2.0), ["multiply"]),
        (lambda x: ops.split(x, 1)[0], []),
        (lambda x: x + ops.broadcast_to(ops.ones((1, 1)), (2, 3)), None),
    ],
)
def test_simplify(function, left):
    graph = after(passes.simplify, function, (2, 3))
    if left is None:  # the add reads through the broadcast
        assert graph.nodes[-1].inputs[1].spec.shape in ((1, 1), ())
    else:
        assert op_names(graph) == left


def test_what_is_replaced_stays_alive_while_its_id_stands_for_it():
    substitute = passes._Substitution()
    old, new = (Tensor(None, Spec((2,), "float32")) for _ in range(2))
    alive = weakref.ref(old)
    substitute.replace(old, new)
    del old
    assert alive() is not None


def test_decompose_expands_what_the_backend_lacks():
    doubled = decomposable("test_doubled", lambda x: ops.tanh(x) + ops.tanh(x))
    del PRIMITIVES["test_doubled"]  # it is nobody else's business
    graph = trace_of(lambda x: bind(doubled, x) * 2.0, (3,))
    assert op_names(graph) == ["test_doubled", "multiply"]
    expanded = passes.decompose(graph, backend())
    assert op_names(expanded) == ["tanh", "tanh", "add", "multiply"]
    expanded.verify()
