"""Padded parts are concatenated where they were added, and convolutions pad."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import target
from toolkit import ops
from toolkit.compiler.passes.pads import absorb_pads, join_pads
from toolkit.compiler.passes.rewriting import prune
from toolkit.core.trace import Trace
from toolkit.ir import Spec


def joined(function, *specs):
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in specs]
        outputs = [function(*inputs)]
    graph = prune(join_pads(trace.finish(outputs), target()), target())
    graph.verify()
    return [node.op.name for node in graph.nodes]


def padded(x, low, high):
    return ops.pad(x, ((0, 0), (low, high)))


PART = Spec((2, 3), "float32")


def test_parts_that_fill_the_sum_are_concatenated():
    def function(a, b, c):
        return padded(a, 6, 0) + padded(b, 0, 6) + padded(c, 3, 3)

    assert joined(function, PART, PART, PART) == ["concatenate"]
    arrays = [np.full((2, 3), n, "float32") for n in range(1, 4)]
    found = toolkit.function(function)(*arrays)
    expected = np.concatenate([arrays[1], arrays[2], arrays[0]], axis=1)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_gaps_overlaps_and_other_axes_are_added():
    def gap(a, b):
        return padded(a, 6, 0) + padded(b, 0, 6)

    def overlap(a, b):
        return padded(a, 2, 0) + padded(b, 0, 2)

    def crossed(a, b):
        return padded(a, 3, 0) + ops.pad(b, ((0, 0), (0, 3)), constant_values=1)

    for function in (gap, overlap, crossed):
        assert "concatenate" not in joined(function, PART, PART)


def test_sums_that_are_added_to_themselves_cost_no_more_than_others():
    def function(a):
        total = padded(a, 6, 0)
        for _ in range(100):  # its parts would be 2**100
            total = total + total
        return total

    assert joined(function, PART).count("add") == 100


def test_parts_beside_empty_ones_are_concatenated():
    def function(a, b, c):
        return (padded(a, 3, 0) + padded(c, 0, 6)) + padded(b, 0, 3)

    empty = Spec((2, 0), "float32")
    assert joined(function, PART, PART, empty) == ["concatenate"]


def test_the_gradients_of_a_split_are_concatenated():
    def function(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            a, b, c = ops.split(x, 3, axis=-1)
            result = ops.sum(a * b + ops.exp(c))
        return tape.gradient(result, x)

    names = joined(function, Spec((2, 6), "float32"))
    assert "concatenate" in names
    assert "pad" not in names


def convolved(x, w, widths, padding="valid", value=0.0):
    return ops.conv(ops.pad(x, widths, constant_values=value), w, 2, padding)


IMAGES, WEIGHTS = Spec((2, 6, 7, 3), "float32"), Spec((3, 3, 3, 4), "float32")
AROUND = ((0, 0), (1, 2), (0, 1), (0, 0))


@pytest.mark.parametrize(
    ("widths", "value", "absorbed"),
    [
        (AROUND, 0, True),
        (AROUND, 1, False),
        (((1, 0), *AROUND[1:]), 0, False),
        ((*AROUND[:3], (0, 1)), 0, False),
    ],
)
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_convolutions_absorb_zeros_around_images(widths, value, absorbed, padding):
    depth = IMAGES.shape[-1] + sum(widths[-1])
    weights = Spec((3, 3, depth, 4), "float32")
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in (IMAGES, weights)]
        outputs = [convolved(*inputs, widths, padding, value)]
    graph = prune(absorb_pads(trace.finish(outputs), target()), target())
    graph.verify()
    assert ("pad" not in [node.op.name for node in graph.nodes]) == absorbed


def test_gradients_of_what_absorbs_zeros():
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal(spec.shape).astype("float32") for spec in (IMAGES, WEIGHTS)
    )

    def function(x, w):
        with toolkit.GradientTape() as tape:
            tape.watch([x, w])
            y = ops.sum(ops.square(convolved(x, w, AROUND, "same")))
        return tape.gradient(y, [x, w])

    arguments = [ops.convert_to_tensor(a) for a in (x, w)]
    for found, expected in zip(
        toolkit.function(function)(*arguments), function(*arguments), strict=True
    ):
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4
        )
