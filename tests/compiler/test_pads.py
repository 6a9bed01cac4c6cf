"""Tests that sums of padded operands become concatenations, and convolutions pad."""

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


def concatenated(function, *specs):
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in specs]
        outputs = [function(*inputs)]
    graph = prune(join_pads(trace.finish(outputs), target()), target())
    graph.verify()
    return [node.op.name for node in graph.nodes]


def padded(x, low, high):
    return ops.pad(x, ((0, 0), (low, high)))


TERM = Spec((2, 3), "float32")


def test_terms_that_fill_the_sum_are_concatenated():
    def function(a, b, c):
        return padded(a, 6, 0) + padded(b, 0, 6) + padded(c, 3, 3)

    assert concatenated(function, TERM, TERM, TERM) == ["concatenate"]
    arrays = [np.full((2, 3), n, "float32") for n in range(1, 4)]
    actual = toolkit.function(function)(*arrays)
    expected = np.concatenate([arrays[1], arrays[2], arrays[0]], axis=1)
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_terms_at_one_offset_are_added_first():
    def function(a, b, c, d):
        ends = padded(a, 6, 0) + padded(b, 0, 6)
        return ends + (padded(c, 6, 0) + padded(d, 2, 4))

    names = concatenated(function, TERM, TERM, TERM, TERM)
    # b, and a + c after a gap; d overlaps.
    assert names == ["add", "pad", "concatenate", "pad", "add"]
    arrays = [np.full((2, 3), 10.0**n, "float32") for n in range(4)]
    actual = toolkit.function(function)(*arrays)
    expected = [[10, 10, 1010, 1000, 1000, 0, 101, 101, 101]] * 2
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_gradients_of_columns_are_concatenated():
    def function(x, y):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            result = ops.sum(ops.cross(x, y) ** 2)
        return tape.gradient(result, x)

    names = concatenated(function, Spec((5, 3), "float32"), Spec((5, 3), "float32"))
    assert names.count("concatenate") == 2 and "pad" not in names
    x, y = np.random.default_rng(0).standard_normal((2, 5, 3))
    actual = toolkit.function(function)(x, y)
    np.testing.assert_allclose(actual, 2 * np.cross(y, np.cross(x, y)), 1e-12)


def test_pads_with_other_readers_stay():
    def function(a, b, c):
        total = padded(a, 6, 0) + padded(b, 3, 3)
        return ops.exp(total) + (total + padded(c, 0, 6))

    assert concatenated(function, TERM, TERM, TERM).count("concatenate") == 1
    arrays = [np.full((2, 3), n, "float32") for n in range(3)]
    actual = toolkit.function(function)(*arrays)
    expected = [[3, 3, 3, 1 + np.e, 1 + np.e, 1 + np.e, 1, 1, 1]] * 2
    np.testing.assert_allclose(actual.numpy()[:, 3:], np.array(expected)[:, 3:], 1e-6)


def test_repeated_terms_are_added():
    def function(a, b):
        return padded(a, 3, 0) + ops.pad(b, [(0, 0)] * (b.ndim - 1) + [(0, 3)])

    a = np.ones((2, 3), "float32")
    for b in (a[:1], a[0], np.stack([a, 2 * a])):
        actual = toolkit.function(function)(a, b)
        np.testing.assert_array_equal(actual, function(ops.array(a), ops.array(b)))


def test_overlaps_and_other_axes_are_added():
    def overlap(a, b):
        return padded(a, 2, 0) + padded(b, 0, 2)

    def crossed(a, b):
        return padded(a, 3, 0) + ops.pad(b, ((0, 0), (0, 3)), constant_values=1)

    for function in (overlap, crossed):
        assert "concatenate" not in concatenated(function, TERM, TERM)


def test_repeated_doubling_is_not_exponential():
    def function(a):
        total = padded(a, 6, 0)
        for _ in range(100):  # its terms would be 2**100
            total = total + total
        return total

    assert concatenated(function, TERM).count("add") == 100


def test_empty_terms_are_concatenated():
    def function(a, b, c):
        return (padded(a, 3, 0) + padded(c, 0, 6)) + padded(b, 0, 3)

    empty = Spec((2, 0), "float32")
    assert concatenated(function, TERM, TERM, empty) == ["concatenate"]


def test_gradients_of_a_split_are_concatenated():
    def function(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            a, b, c = ops.split(x, 3, axis=-1)
            result = ops.sum(a * b + ops.exp(c))
        return tape.gradient(result, x)

    names = concatenated(function, Spec((2, 6), "float32"))
    assert "concatenate" in names
    assert "pad" not in names


def convolved(x, w, widths, padding="valid", value=0.0):
    return ops.conv(ops.pad(x, widths, constant_values=value), w, 2, padding)


IMAGES, WEIGHTS = Spec((2, 6, 7, 3), "float32"), Spec((3, 3, 3, 4), "float32")
PADDING = ((0, 0), (1, 2), (0, 1), (0, 0))


@pytest.mark.parametrize(
    ("widths", "value", "absorbed"),
    [
        (PADDING, 0, True),
        (PADDING, 1, False),
        (((1, 0), *PADDING[1:]), 0, False),
        ((*PADDING[:3], (0, 1)), 0, False),
    ],
)
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_convolutions_absorb_padding(widths, value, absorbed, padding):
    depth = IMAGES.shape[-1] + sum(widths[-1])
    weights = Spec((3, 3, depth, 4), "float32")
    with Trace("test") as trace:
        inputs = [trace.placeholder(spec) for spec in (IMAGES, weights)]
        outputs = [convolved(*inputs, widths, padding, value)]
    graph = prune(absorb_pads(trace.finish(outputs), target()), target())
    graph.verify()
    assert ("pad" not in [node.op.name for node in graph.nodes]) == absorbed


def test_gradients_of_convolutions_with_absorbed_padding():
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal(spec.shape).astype("float32") for spec in (IMAGES, WEIGHTS)
    )

    def function(x, w):
        with toolkit.GradientTape() as tape:
            tape.watch([x, w])
            y = ops.sum(ops.square(convolved(x, w, PADDING, "same")))
        return tape.gradient(y, [x, w])

    arguments = [ops.convert_to_tensor(a) for a in (x, w)]
    for actual, expected in zip(
        toolkit.function(function)(*arguments), function(*arguments), strict=True
    ):
        np.testing.assert_allclose(
            actual.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4
        )
