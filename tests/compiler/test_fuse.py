"""Tests of fusion: which nodes fuse, which must not, and results of random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.backends.cuda.bodies import draw_body
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
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.fused import is_fusable
from toolkit.compiler.fusion import (
    fuse as fusion,
    groups as grouping,
    recompute as recomputation,
)
from toolkit.compiler.fusion.fuse import join_nodes
from toolkit.compiler.passes.rewriting import prune
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.ir import fused_p

pytest.importorskip("llvmlite")


ANCHORS = ("matmul", "conv")


def fuse_graph(function, *shapes, anchors=()):
    graph = optimize(trace_of(function, *shapes), target())
    return join_nodes(graph, backend().generator.can_fuse, anchors)


def members(graph):
    """Return the operations of each fused node, and of each single node."""
    return [
        [inner.op.name for inner in node.attrs["body"].nodes]
        if node.op is fused_p
        else node.op.name
        for node in graph.nodes
    ]


@pytest.mark.parametrize("anchors", [(), ANCHORS])
@given(graph=graphs())
@settings(max_examples=100, deadline=None)
def test_a_fused_graph_is_in_order_and_computes_the_same(anchors, graph):
    graph = prune(graph, target())
    result = join_nodes(graph, backend().generator.can_fuse, anchors)
    result.verify()
    for node in result.nodes:
        if node.op is fused_p:
            node.attrs["body"].verify()
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(inline_members(result), arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def inline_members(graph):
    """Return the graph with its fused nodes expanded to their members."""
    nodes = []
    for node in graph.nodes:
        is_fused = node.op is fused_p
        nodes += node.attrs["body"].nodes if is_fused else [node]
    return graph.replace(nodes)


@pytest.mark.parametrize("seed", [0, 1])
@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_a_program_of_fused_kernels_computes_the_same(seed, graph):
    arrays = arrays_for(graph, seed)
    results = compiled(graph)(arrays)
    for expected, actual in zip(evaluate(graph, arrays), results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_chain_becomes_one_node():
    graph = fuse_graph(lambda x, y: ops.maximum(x * y + 1.0, 0.0) / y, (3, 4), (4,))
    assert op_names(graph) == ["fused"]
    assert len(graph.nodes[0].inputs) == 2  # numbers are constants of the kernel


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (0, 2)])
def test_groups_fuse_if_the_node_search_is_short(monkeypatch, limit, count):
    monkeypatch.setattr(grouping, "MAX_VISITED_GROUPS", limit)
    assert len(fuse_graph(lambda x: ops.tanh(ops.exp(x)), (3,)).nodes) == count


def test_reads_inside_a_group_are_not_searched(monkeypatch):
    monkeypatch.setattr(grouping, "MAX_VISITED_GROUPS", 1)
    graph = fuse_graph(lambda x: ops.sin(ops.tanh(ops.exp(x))), (3,))
    assert members(graph) == [["exp", "tanh", "sin"]]


def test_groups_before_the_fused_groups_are_not_searched(monkeypatch):
    def function(x, w):
        ancestor = ops.exp(x)
        for _ in range(6):
            ancestor = ancestor @ w
        return ancestor, ops.tanh(x)

    monkeypatch.setattr(grouping, "MAX_VISITED_GROUPS", 3)
    assert members(fuse_graph(function, (3, 3), (3, 3)))[0] == ["exp", "tanh"]


def test_intermediate_group_is_searched_once(monkeypatch):
    def function(x, w):
        a, b = ops.exp(x), ops.tanh(x)
        low = a @ w
        for _ in range(3):  # eight paths lead to it
            low = low @ w + low @ x
        return low, b @ w @ w @ w @ w @ w @ w @ w @ w

    visited = []
    real = grouping.Groups._readers_of

    def count_search(self, group):
        for reader in real(self, group):
            visited.append(reader)
            yield reader

    monkeypatch.setattr(grouping.Groups, "_readers_of", count_search)
    groups = grouping.Groups(trace_of(function, (3, 3), (3, 3)))
    for node in groups.graph.nodes:
        groups.add(node)
    first, last = groups.graph.nodes[0], groups.graph.nodes[-1]
    assert groups.can_join(groups.of(first), groups.of(last))
    assert len(visited) == 1 + 3 * 4


def test_group_size_is_limited(monkeypatch):
    def function(x):
        for _ in range(7):
            x = ops.tanh(x)
        return x

    monkeypatch.setattr(fusion, "MAX_NODES", 3)
    assert [len(names) for names in members(fuse_graph(function, (3,)))] == [3, 3, 1]


@pytest.mark.parametrize(("limit", "count"), [(7, 1), (6, 2)])
def test_fusion_that_moves_many_groups_is_refused(monkeypatch, limit, count):
    def function(x, w):
        a, b = ops.exp(x), ops.tanh(x)
        return a @ w, *(b @ w for _ in range(6))

    monkeypatch.setattr(grouping, "MAX_VISITED_GROUPS", limit)
    graph = join_nodes(trace_of(function, (3, 3), (3, 3)), backend().generator.can_fuse)
    assert op_names(graph).count("matmul") == 7
    assert len(graph.nodes) == 7 + count


def test_values_with_outside_readers_are_outputs():
    def function(x):
        y = x * 2.0
        return ops.transpose(y) @ y, y + 1.0

    graph = fuse_graph(function, (8, 3))
    assert members(graph) == [["multiply", "add"], "transpose", "matmul"]
    assert len(graph.nodes[0].outputs) == 2


def test_softmax_is_one_node():
    graph = fuse_graph(lambda x: ops.softmax(x), (4, 8))
    assert members(graph) == [["max", "subtract", "exp", "sum", "divide"]]


def test_layer_normalization_and_sums_over_its_rows_are_one_node():
    def function(x, scale):
        deviations = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(deviations * deviations, axis=-1, keepdims=True)
        y = deviations * ops.rsqrt(variance + 1e-3)
        return ops.sum(y * scale, axis=0), ops.sum(y), y

    assert op_names(fuse_graph(function, (64, 300), (300,))) == ["fused"]


def test_sums_over_rows_are_read_by_other_nodes():
    graph = fuse_graph(lambda x: x - ops.sum(x, axis=0), (4, 8))
    assert members(graph) == [["sum"], ["subtract"]]


def test_small_sums_of_everything_are_read_by_the_same_node():
    graph = fuse_graph(lambda x: ops.sum(x * x) / 8.0 + 1.0, (8,))
    assert op_names(graph) == ["fused"]


def test_large_sums_of_everything_are_read_by_other_nodes():
    graph = fuse_graph(lambda x: ops.sum(x * x) / 8.0 + 1.0, (200_000,))
    assert members(graph) == [["multiply", "sum"], ["divide", "add"]]


def test_path_through_another_node_prevents_fusion():
    def function(x):
        y = ops.exp(x)
        return y * ops.transpose(y @ y)

    graph = fuse_graph(function, (8, 8))
    assert members(graph) == [["exp"], "matmul", "transpose", ["multiply"]]


def test_different_shapes_are_not_fused():
    graph = fuse_graph(lambda x, y: (x + 1.0) * 2.0 + (y + 1.0) * 2.0, (4, 3), (3,))
    assert op_names(graph) == ["fused", "fused"]
    assert graph.nodes[0].outputs[0].spec.shape == (3,)


def test_reshapes_do_not_prevent_fusion():
    def function(x):
        y = ops.reshape(ops.sum(ops.exp(x), axis=1), (4, 1)) * x
        return ops.reshape(ops.reshape(y, (2, 2, 6)) + 1.0, (24,))

    graph = fuse_graph(function, (4, 6))
    assert op_names(graph) == ["fused", "reshape"]
    assert members(graph)[0][-1] == "add"  # only read elsewhere


def test_reshapes_read_inside_and_outside_are_duplicated():
    def function(x):
        y = ops.reshape(ops.exp(x), (24,))
        return y, y * 2.0

    kernel, view = fuse_graph(function, (4, 6)).nodes
    body = kernel.attrs["body"]
    assert op_names(body) == ["exp", "reshape", "multiply"]
    assert body.nodes[1].outputs[0] is not view.outputs[0]


def test_nested_reshapes_with_outside_readers_stay_ordered():
    def function(x):
        y = ops.reshape(ops.exp(x), (24,))
        z = ops.reshape(y, (2, 12))
        return y, z, ops.reshape(z, (3, 8)), z * 2.0

    graph = join_nodes(trace_of(function, (4, 6)), backend().generator.can_fuse)
    graph.verify()
    assert op_names(graph) == ["fused", "reshape", "reshape", "reshape"]


def test_groups_with_reshapes_share_a_read():
    def function(x):
        y = ops.reshape(ops.tanh(ops.reshape(ops.exp(x), (24,))), (4, 6))
        return y + 1.0, ops.sum(x, axis=1)

    assert [n.op.name for n in fuse_graph(function, (4, 6)).nodes] == ["fused"]


def test_non_row_broadcasts_are_not_fused():
    def function(x):  # square: the sums of the rows, broadcast along the columns
        return ops.exp(x) + ops.sum(x, axis=1)

    assert len(fuse_graph(function, (4, 4)).nodes) == 2


def test_readers_of_one_array_are_fused():
    def function(x):
        return ops.sum(x, axis=0), ops.max(x, axis=1), ops.exp(x)

    assert op_names(fuse_graph(function, (4, 6))) == ["fused"]


def test_unfusable_readers_do_not_prevent_fusion():
    def function(x, w):
        return x @ w, ops.exp(x), ops.sum(x, axis=1)

    assert members(fuse_graph(function, (3, 3), (3, 3))) == ["matmul", ["exp", "sum"]]


@pytest.mark.parametrize(("axis", "remaining"), [(0, [["sum"]]), (1, ["sum"])])
def test_non_row_sums_are_not_fused(axis, remaining):
    graph = trace_of(lambda x: ops.sum(x, axis=axis), (3, 4, 5))
    assert members(join_nodes(graph, lambda node: True)) == remaining


def test_scalar_arithmetic_is_one_node():
    def function(a, b):
        return a * 2.0, b * 3.0

    assert op_names(fuse_graph(function, (), ())) == ["fused"]


@pytest.mark.parametrize(("limit", "expected"), [(2, "first"), (1, "second")])
def test_failed_fusion_is_not_retried(monkeypatch, limit, expected):
    def function(a, b):
        first = a * 2.0
        second = first @ first + 1.0  # a product separates the groups
        return first, second, b - 3.0

    monkeypatch.setattr(fusion, "MAX_FAILURES", limit)
    fused_members = members(fuse_graph(function, (1, 1), (1, 1)))
    allowed = {"first": ["multiply", "subtract"], "second": ["add", "subtract"]}
    assert allowed[expected] in fused_members


def test_elementwise_readers_become_a_product_epilogue():
    def function(x, w, b):
        y = ops.relu(x @ w + b)
        return y, ops.sum(y, axis=0)

    graph = fuse_graph(function, (4, 6), (6, 5), (5,), anchors=ANCHORS)
    assert members(graph) == [["matmul", "add", "maximum"], ["sum"]]


def test_epilogue_crosses_reshapes():
    def function(x, w, b):
        return ops.reshape(x @ w, (2, 3, 2, 4)) + b

    graph = fuse_graph(function, (6, 5), (5, 8), (2, 4), anchors=ANCHORS)
    assert members(graph) == [["matmul", "reshape", "add"]]


@pytest.mark.parametrize("shape", [(4, 1), (4, 4), (2, 4, 5)])
def test_mismatched_nodes_do_not_join_an_epilogue(shape):
    def function(x, w, b):
        return x @ w + (ops.transpose(b) if shape == (4, 4) else b)

    graph = fuse_graph(
        function, (4, 6), (6, 4 if shape[-1] != 5 else 5), shape, anchors=ANCHORS
    )
    assert members(graph)[-1] == ["add"]


def test_epilogue_excludes_operands_of_reductions():
    def function(x, w):
        y = x @ w
        return y * 2.0, ops.sum(y, axis=1)

    graph = fuse_graph(function, (4, 6), (6, 5), anchors=ANCHORS)
    assert members(graph) == ["matmul", ["multiply", "sum"]]


class AnyCall:
    """A library that can apply any epilogue to a product."""

    def can_take_epilogue(self, nodes):
        return True

    def can_lower(self, node, inputs, outputs, is_aligned):
        return False


def test_epilogue_values_are_not_read_before_the_call_ends():
    def first_order(x, w):
        return ops.exp(x @ w) * 2.0

    def second_order(x, w):
        y = x @ w
        return y * 2.0, ops.exp(y)

    def returned(x, w):
        y = x @ w
        return y, ops.exp(y)

    members_by_function = []
    for function in first_order, second_order, returned:
        graph = optimize(trace_of(function, (4, 6), (6, 5)), target())
        members_by_function.append(
            members(join_nodes(graph, backend().generator.can_fuse, ANCHORS, AnyCall()))
        )
    assert members_by_function == [
        [["matmul", "exp", "multiply"]],
        ["matmul", ["multiply", "exp"]],
        ["matmul", ["exp"]],
    ]


def test_nodes_without_generated_code_are_not_fused():
    graph = trace_of(lambda x: ops.abs(ops.cast(x * 0.5, "complex64")) + 1.0, (8,))
    graph = join_nodes(graph, backend().generator.can_fuse)
    assert members(graph) == [["multiply"], "cast", "abs", ["add"]]


def test_empty_values_are_not_fused():
    assert op_names(fuse_graph(lambda x: ops.sum(x, axis=1) * 2.0, (0, 3))) == [
        "sum",
        "multiply",
    ]


def test_a_fused_node_prints_its_members():
    text = str(fuse_graph(lambda x: x * 2.0 + 1.0, (4,)))
    assert text.splitlines()[1:] == [
        "  one loop:",
        "    %0: float32[4] = multiply(%in0, 2.0)",
        "    %1: float32[4] = add(%0, 1.0)",
        "  return %1",
    ]


# --- recomputation --------------------------------------------------------------------

LARGE = 512


def test_cheap_values_are_recomputed_at_their_readers():
    def function(x, w):
        y = ops.exp(x * 0.5)
        z = x * 2.0  # cheaper than keeping it alive during the product
        return (y @ w) * z, y

    graph = fuse_graph(function, (LARGE, LARGE), (LARGE, LARGE))
    assert members(graph) == [["multiply", "exp"], "matmul", ["multiply", "multiply"]]


def test_nodes_without_generated_code_are_not_recomputed():
    graph = trace_of(lambda x: ops.exp(-x), (LARGE, LARGE))
    graph = join_nodes(graph, lambda node: node.op.name != "negative")
    assert members(graph) == ["negative", ["exp"]]


def test_recomputation_counts_longer_lifetimes_except_of_inputs():
    def with_inputs(a, b, w):
        y = a + b
        return (ops.exp(y) @ w) * y

    def of_products(a, b, w):
        return with_inputs(a @ w, b @ w, w)

    shapes = [(LARGE, LARGE)] * 3
    last_members = [
        members(fuse_graph(function, *shapes))[-1]
        for function in (with_inputs, of_products)
    ]
    assert last_members == [["add", "multiply"], ["multiply"]]


def test_recomputation_that_stores_operands_is_refused():
    def function(x, w):
        y = (x @ w) * 2.0
        return (ops.exp(y) @ w) * y

    graph = fuse_graph(function, *[(LARGE, LARGE)] * 2, anchors=ANCHORS)
    assert members(graph) == [["matmul", "multiply", "exp"], ["matmul", "multiply"]]


def test_expensive_or_small_values_are_stored():
    def expensive(x, w):
        y = x
        for _ in range(6):
            y = ops.tanh(y)
        return (ops.exp(y) @ w) * y

    graph = fuse_graph(expensive, (LARGE, LARGE), (LARGE, LARGE))
    assert members(graph)[-1] == ["multiply"]

    def small(x, w):
        y = x * 2.0
        return (ops.exp(y) @ w) * y

    graph = fuse_graph(small, (8, 8), (8, 8))
    assert members(graph)[-1] == ["multiply"]


def test_sources_of_recomputed_values_are_recomputed():
    def function(x, w):
        start = x + 1.0
        first = start * 2.0
        second = first - 3.0
        y = ops.exp(second) @ w * (start / second)
        return y @ w * first

    graph = fuse_graph(function, (LARGE, LARGE), (LARGE, LARGE))
    assert members(graph) == [
        ["add", "multiply", "subtract", "exp"],
        *("matmul", ["add", "multiply", "subtract", "divide", "multiply"]),
        *("matmul", ["add", "multiply", "multiply"]),
    ]


def test_every_reader_may_refuse_recomputation():
    def function(x, w):
        first = second = x
        for _ in range(6):
            first, second = ops.tanh(first), ops.sin(second)
        y = (first + second) @ w * first
        return y @ w * second

    graph = fuse_graph(function, (LARGE, LARGE), (LARGE, LARGE))
    assert members(graph)[1:] == ["matmul", ["multiply"], "matmul", ["multiply"]]


def test_boolean_masks_are_stored():
    # Reading the four-byte operand of a mask costs more than its one byte.
    def function(x, w):
        y = ops.exp(x)
        return ops.where(y < 1.0, y @ w, 0.0), y

    graph = fuse_graph(function, (LARGE, LARGE), (LARGE, LARGE))
    assert members(graph) == [["exp", "less"], "matmul", ["where"]]


def test_values_for_one_reader_move_to_it():
    def function(x, w, b):
        y = x @ w + b
        gelu = 0.5 * y * (ops.erf(y * 0.7) + 1.0)
        slope = ops.exp(y * y * -0.5)
        return gelu @ w * slope + y

    graph = fuse_graph(function, *[(LARGE, LARGE)] * 2, (LARGE,), anchors=ANCHORS)
    first, second = members(graph)
    assert "exp" not in first and "exp" in second
    assert len(graph.nodes[0].outputs) == 2


@pytest.mark.parametrize("anchors", [(), ANCHORS])
@given(graph=graphs())
@settings(max_examples=100, deadline=None)
def test_recomputing_graphs_compute_the_same(anchors, graph):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputation, "MIN_NBYTES", 0)
        result = join_nodes(
            prune(graph, target()), backend().generator.can_fuse, anchors
        )
    result.verify()
    arrays = arrays_for(graph)
    for expected, actual in zip(
        evaluate(graph, arrays), evaluate(inline_members(result), arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_unused_nodes_are_removed_after_recomputation():
    graph = optimize(draw_body(435), target(get_backend("reference")))
    graph = join_nodes(graph, is_fusable)
    assert all(members(graph))
