"""Tests of gradients of kernels of one pixel, as products of matrices."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import target, trace_of
from toolkit import ops
from toolkit.backends.numpy.pointwise import pointwise_gradients_as_products
from toolkit.ir import Node

WIDE = (136, 128)


def gradient(size, strides=1, padding="valid"):
    """Return the gradient of a kernel whose results are multiplied by `weights`."""

    def kernel_gradient(x, kernel, weights):
        with toolkit.GradientTape() as tape:
            tape.watch(kernel)
            y = ops.conv(x, kernel, strides, padding)
            loss = ops.sum(y * weights)
        return tape.gradient(loss, kernel)

    return kernel_gradient


def shapes_of(spatial, counts, channels, size):
    """Return the shapes of images, kernels and results."""
    inputs, filters = channels
    kernel = (*size, inputs, filters)
    return [(2, *spatial, inputs), kernel, (2, *counts, filters)]


# Strides, the shapes, and whether it is a product.
CASES = {
    "pixels": (1, shapes_of((5, 7), (5, 7), WIDE, (1, 1)), True),
    "strides": (2, shapes_of((5, 8), (3, 4), WIDE, (1, 1)), True),
    "unequal strides": ((3, 1), shapes_of((5, 8), (2, 8), WIDE, (1, 1)), True),
    "one axis": (2, shapes_of((9,), (5,), WIDE, (1,)), True),
    "three axes": (1, shapes_of((2, 3, 4), (2, 3, 4), WIDE, (1, 1, 1)), True),
    "few weights": (1, shapes_of((5, 7), (5, 7), (128, 128), (1, 1)), False),
    "taps": (1, shapes_of((5, 7), (5, 6), WIDE, (1, 2)), False),
    "groups": (1, shapes_of((5, 7), (5, 7), WIDE, (1, 1)), False),
}


def arguments(name):
    strides, shapes, is_product = CASES[name]
    if name == "groups":
        images, *weight_shapes = shapes
        shapes = [(*images[:-1], 2 * images[-1]), *weight_shapes]
    return gradient(shapes[1][:-2], strides), shapes, is_product


@pytest.mark.parametrize("name", CASES)
def test_which_gradients_become_products(name):
    function, shapes, is_product = arguments(name)
    graph = pointwise_gradients_as_products(trace_of(function, *shapes), target())
    graph.verify()
    names = [node.op.name for node in graph.nodes]
    assert ("matmul" in names, "conv_kernel_grad" in names) == (
        is_product,
        not is_product,
    )


def test_products_round_like_the_convolution():
    function, shapes, _ = arguments("strides")
    graph = trace_of(function, *shapes)
    nodes = []
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if node.op.name == "conv_kernel_grad":
            attrs["factors"] = "bfloat16"
        nodes.append(Node(node.op, node.inputs, attrs, node.outputs))
    rewritten = pointwise_gradients_as_products(graph.replace(nodes), target())
    (product,) = [node for node in rewritten.nodes if node.op.name == "matmul"]
    assert product.attrs["factors"] == "bfloat16"


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    function, shapes, _ = arguments(name)
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype("float32") for s in shapes]
    actual = toolkit.function(function)(*map(ops.convert_to_tensor, arrays))
    expected = function(*(ops.convert_to_tensor(a.astype("float64")) for a in arrays))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
