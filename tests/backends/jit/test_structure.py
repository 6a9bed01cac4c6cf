"""Tests that bodies are lowered once if they have one structure."""

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import target, trace_of
from toolkit import ops
from toolkit.backends.numpy.jit.fused import elementwise
from toolkit.compiler.fusion.fuse import join_nodes
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import backend
from toolkit.plans.loops.structure import structure_of
from toolkit.plans.operands import contiguous
from toolkit.plans.rules import rules


def body_of(compute, *shapes):
    """The body of the only node that a function becomes."""
    graph = optimize(trace_of(compute, *shapes), target())
    (node,) = join_nodes(graph, backend().generator.can_fuse).nodes
    return node.attrs["body"]


def scaled(factor):
    return lambda x, y: ops.exp(x * factor) - y


SHAPES = ((4, 6), (4, 6))


def test_equal_bodies_have_one_structure():
    first, second = (structure_of(body_of(scaled(2.0), *SHAPES)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    "other, shapes",
    [
        (scaled(2.5), SHAPES),
        (scaled(2.0), ((6, 4), (6, 4))),
        (scaled(2.0), ((4, 6), (6,))),
        (lambda x, y: ops.exp(x * 2.0) + y, SHAPES),
        (lambda x, y: y - ops.exp(x * 2.0), SHAPES),
        (lambda x, y: ops.exp(x * 2.0) - x, SHAPES),
        (lambda x, y: (ops.exp(x * 2.0) - y, ops.exp(x * 2.0)), SHAPES),
        (lambda x, y: ops.sum(ops.exp(x * 2.0) - y, axis=0), SHAPES),
    ],
)
def test_differences_of_structure(other, shapes):
    plain = structure_of(body_of(scaled(2.0), *SHAPES))
    assert structure_of(body_of(other, *shapes)) != plain


def test_sign_of_zero_and_axis_of_a_sum_differ():
    zeros = [structure_of(body_of(lambda x, z=z: x / z, (3,))) for z in (0.0, -0.0)]
    assert zeros[0] != zeros[1]
    sums = [
        structure_of(body_of(lambda x, a=a: ops.sum(ops.exp(x), axis=a), (4, 4)))
        for a in (0, 1)
    ]
    assert sums[0] != sums[1]


def test_layers_of_one_shape_are_lowered_once():
    @toolkit.function
    def f(x, *weights):
        for w in weights:  # a product between them keeps the bodies apart
            x = ops.sum(ops.tanh(x) * w, axis=-1, keepdims=True) + ops.matmul(x, w)
        return x

    arrays = [np.full((16, 16), n, "float32") for n in range(6)]
    with mock.patch.object(elementwise, "_lowered_bodies", {}) as cache:
        f(*arrays)
    assert len(cache) < len(arrays) - 1


def test_structure_includes_rules_and_the_processor():
    body = body_of(lambda x: ops.sum(ops.exp(x), axis=-1), (8, 8))
    operands = [[contiguous(v.spec) for v in vs] for vs in (body.inputs, body.outputs)]
    with mock.patch.object(elementwise, "_lowered_bodies", {}) as cache:
        elementwise.lower_fused(body, *operands)
        with rules.override(rows_independent=True):
            elementwise.lower_fused(body, *operands)
        elementwise.lower_fused(body, *operands)
        assert len(cache) == 2
        with mock.patch.object(elementwise, "_MAX_LOWERED_BODIES", 2):
            elementwise.lower_fused(
                body_of(lambda x: ops.exp(x) + 1, (8, 8)), *operands
            )
        assert len(cache) == 1
