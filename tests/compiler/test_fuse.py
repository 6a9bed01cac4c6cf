"""Fusion: what joins, what must not, and equal results on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.compiler.graphs import arrays_for, evaluate, graphs, op_names, trace_of
from toolkit import ops
from toolkit.compiler import fuse as fusion
from toolkit.compiler.execute import Program
from toolkit.compiler.fuse import fuse
from toolkit.compiler.passes import prune
from toolkit.tensor import backend

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(fusion, "LEAST_ELEMENTS", 0)


def fused(function, *shapes):
    return fuse(trace_of(function, *shapes), lambda node: True)


@given(graph=graphs())
@settings(max_examples=150, deadline=None)
def test_a_fused_graph_is_in_order_and_has_every_node_once(graph):
    graph = prune(graph, backend())
    result = fuse(graph, lambda node: True)
    result.verify()
    members = [
        inner
        for node in result.nodes
        for inner in (node.attrs["body"].nodes if node.op is fusion.fused_p else [node])
    ]
    assert sorted(map(id, members)) == sorted(map(id, graph.nodes))


@pytest.mark.parametrize("seed", [0, 1])
@given(graph=graphs())
@settings(max_examples=40, deadline=None)
def test_a_program_of_fused_kernels_computes_the_same(seed, graph):
    arrays = arrays_for(graph, seed)
    results = Program(graph, backend())(arrays)
    for expected, actual in zip(evaluate(graph, arrays), results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_chain_becomes_one_node():
    graph = fused(lambda x, y: ops.maximum(x * y + 1.0, 0.0) / y, (3, 4), (4,))
    assert op_names(graph) == ["fused"]
    assert len(graph.nodes[0].inputs) == 2  # numbers are part of the kernel


def test_values_that_others_read_are_outputs():
    def function(x):
        y = x * 2.0
        return ops.sum(y) + ops.sum(y + 1.0)

    graph = fused(function, (8,))
    assert op_names(graph) == ["fused", "sum", "sum", "add"]
    assert len(graph.nodes[0].outputs) == 2


def test_a_way_through_another_node_forbids_joining():
    def function(x):
        y = ops.exp(x)
        return y / ops.sum(y)

    assert op_names(fused(function, (8,))) == ["exp", "sum", "divide"]


def test_other_shapes_stay_apart():
    graph = fused(lambda x, y: (x + 1.0) * 2.0 + (y + 1.0) * 2.0, (4, 3), (3,))
    assert op_names(graph) == ["fused", "fused"]
    assert graph.nodes[0].outputs[0].spec.shape == (3,)


def test_small_work_is_left_to_numpy(monkeypatch):
    monkeypatch.setattr(fusion, "LEAST_ELEMENTS", 100)
    assert op_names(fused(lambda x: x * 2.0 + 1.0, (99,))) == ["multiply", "add"]
    assert op_names(fused(lambda x: x * 2.0 + 1.0, (100,))) == ["fused"]


def test_what_the_backend_cannot_generate_stays():
    graph = trace_of(lambda x: ops.arcsin(x * 0.5) + 1.0, (8,))
    assert op_names(fuse(graph, backend().fuses)) == ["multiply", "arcsin", "add"]


def test_a_fused_node_prints_its_members():
    text = str(fused(lambda x: x * 2.0 + 1.0, (4,)))
    assert text.splitlines()[1:] == [
        "  one kernel:",
        "    %0: float32[4] = multiply(%in0, 2.0)",
        "    %1: float32[4] = add(%0, 1.0)",
        "  return %1",
    ]
