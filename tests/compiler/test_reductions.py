"""Tests of reductions over separate axes: their lowering, and their results."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import op_names, target, trace_of
from toolkit import ops
from toolkit.backends.numpy.reductions import separate_reductions

SHAPE = (3, 2, 5, 1, 4, 3)
KINDS = ("sum", "prod", "max", "min", "mean", "any", "all")


def axes_of(function, *shapes):
    graph = separate_reductions(trace_of(function, *shapes), target())
    graph.verify()
    return [node.attrs["axis"] for node in graph.nodes]


@pytest.mark.parametrize(
    ("shape", "axis", "order"),
    [
        # The outer axes first, for long vectors.
        ((2, 7, 6, 4, 8), (1, 2, 4), [(1, 2), (4,)]),
        ((4, 6, 3), (0, 2), [(0,), (2,)]),
        # Long rows first, in one loop with their producer.
        ((4, 6, 300), (0, 2), [(2,), (0,)]),
        # The last axis is not reduced: the last reduced axes are first.
        ((4, 3, 5, 7, 2), (1, 3), [(3,), (1,)]),
        ((4, 3, 5, 7), (1, 2), [(1, 2)]),
        ((4, 3, 5), (0, 1, 2), [(0, 1, 2)]),
    ],
)
def test_which_axes_are_reduced_first(shape, axis, order):
    def function(x):
        return ops.sum(x, axis=axis, keepdims=True)

    assert axes_of(function, shape) == order


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("view", [False, True], ids=["whole", "view"])
def test_all_axes_against_numpy(name, view):
    """Compare every set of axes with NumPy, in programs of generated code only."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, SHAPE)
    x = x > 0.7 if name in ("any", "all") else x
    axis_sets = [
        c for n in range(1, len(SHAPE)) for c in combinations(range(len(SHAPE)), n)
    ]

    def reduce(x):
        operand = ops.flip(x[:, :, 1:4], 2) if view else x
        return [
            getattr(ops, name)(operand, axis=axes, keepdims=len(axes) % 2 == 0)
            for axes in axis_sets
        ]

    function = toolkit.function(reduce)
    operand = np.flip(x[:, :, 1:4], 2) if view else x
    for actual, axes in zip(function(x), axis_sets, strict=True):
        expected = getattr(np, name)(operand, axis=axes, keepdims=len(axes) % 2 == 0)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)
    assert function.inspect(x).program.code is not None


def test_array_kernels_keep_their_reductions():
    def function(x):
        return ops.sum(x, axis=(1, 3))

    program = toolkit.function(function, jit_compile=False).inspect(
        np.ones((2, 3, 4, 5))
    )
    assert op_names(program.graph) == ["sum"]
