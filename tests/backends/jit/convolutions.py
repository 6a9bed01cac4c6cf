"""Convolutions of random numbers, generated and by the reference backend."""

from __future__ import annotations

from unittest import mock

import numpy as np
from ml_dtypes import bfloat16

from tests.backends.jit.running import graph_of, operand_of, run_lowered
from tests.helpers import assert_close
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.core.tensor import bind
from toolkit.ir import PRIMITIVES, Value

KINDS = ("conv", "conv_input_grad", "conv_kernel_grad")


def windows(n, k, stride=1, pads=(0, 0), dilation=1):
    return (n + sum(pads) - (k - 1) * dilation - 1) // stride + 1


class Problem:
    """A convolution of random numbers, for any of the three primitives."""

    def __init__(self, batch, spatial, size, channels, **attrs):
        self.batch, self.spatial, self.size = batch, spatial, size
        ndim, (depth, filters) = len(spatial), channels
        defaults = {
            "strides": (1,) * ndim,
            "padding": ((0, 0),) * ndim,
            "dilation": (1,) * ndim,
            "groups": 1,
        }
        self.attrs = defaults | attrs
        axes = (
            spatial,
            size,
            *(self.attrs[k] for k in ("strides", "padding", "dilation")),
        )
        self.out = tuple(windows(*axis) for axis in zip(*axes, strict=True))
        groups = self.attrs["groups"]
        self.shapes = {
            "x": (batch, *spatial, depth * groups),
            "w": (*size, depth, filters * groups),
            "g": (batch, *self.out, filters * groups),
        }

    def __repr__(self):
        return f"{self.shapes} {self.attrs}"

    def of(self, kind, dtype):
        """The arrays and attributes of a primitive."""
        names, options = {
            "conv": ("xw", {}),
            "conv_input_grad": ("gw", {"spatial": self.spatial}),
            "conv_kernel_grad": ("xg", {"kernel": self.size}),
        }[kind]
        rng = np.random.default_rng(0)
        arrays = [
            rng.standard_normal(self.shapes[name]).astype(dtype) for name in names
        ]
        return arrays, self.attrs | options


def lowered(kind, arrays, attrs):
    """The calls of a primitive, and an array for its result.

    Factors that are stored as bfloat16 have a result in float32, as in programs.
    """
    wide = [a.astype("float32") if a.dtype == bfloat16 else a for a in arrays]
    graph = graph_of(lambda *xs: bind(PRIMITIVES[kind], *xs, **attrs), *wide)
    operands = [operand_of(a) for a in arrays]
    (node,) = graph.nodes
    node = node.with_inputs([Value(x.spec) for x in operands])
    out = np.full(node.outputs[0].spec.shape, np.nan, wide[0].dtype)
    lowered_node = lower(node, operands, [operand_of(out)])
    assert lowered_node is not None
    return lowered_node, out


def computed(kind, arrays, attrs, chunk=0):
    """Return the results of the generated functions."""
    lowered_node, out = lowered(kind, arrays, attrs)
    run_lowered(lowered_node, arrays, [out], chunk)
    return out


def expected(kind, arrays, attrs):
    """Return the results of the reference backend, in float64."""
    wide = [a.astype(np.float64) for a in arrays]
    options = {name: value for name, value in attrs.items() if name != "factors"}
    return get_backend("reference").kernels[kind](*wide, **options)


def check(kind, arrays, attrs, chunk=0):
    """Compare, relative to the largest result."""
    actual = computed(kind, arrays, attrs, chunk)
    reference = expected(kind, arrays, attrs)
    scale = max(1.0, float(np.abs(reference).max(initial=0)))
    assert_close(actual / scale, reference / scale)


def check_layer(kind, problem, options=None):
    """A bias, an activation, a residual and a mask in one kernel with the anchor.

    options: attributes that the reference does not have.
    """
    (x, w), attrs = problem.of(kind, "float32")
    shape = expected(kind, (x, w), attrs).shape
    rng = np.random.default_rng(1)
    bias = rng.standard_normal(shape[-1]).astype(np.float32)
    residual = rng.standard_normal(shape).astype(np.float32)

    def layer(x, w, bias, residual):
        y = bind(PRIMITIVES[kind], x, w, **attrs, **(options or {})) + bias
        return ops.maximum(y, 0.0) * 0.5 + residual, y > 0

    arrays = (x, w, bias, residual)
    graph = graph_of(layer, *arrays)
    node = mock.Mock(attrs={"body": graph})
    node.op.name = "fused"
    outs = [np.empty(y.spec.shape, y.spec.dtype) for y in graph.outputs]
    lowered_layer = lower(
        node, [operand_of(a) for a in arrays], [operand_of(y) for y in outs]
    )
    run_lowered(lowered_layer, arrays, outs, 1)
    y = expected(kind, (x, w), attrs) + bias
    scale = float(np.abs(y).max())
    assert_close(outs[0] / scale, (np.maximum(y, 0) * 0.5 + residual) / scale)
    clear = np.abs(y) > 1e-3
    assert np.array_equal(outs[1][clear], y[clear] > 0)
