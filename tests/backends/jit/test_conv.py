"""Generated convolutions and their gradients against the reference backend."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.running import graph_of, operand_of, run_lowered
from tests.helpers import assert_close
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.backends.numpy.jit import engine
from toolkit.backends.numpy.jit.conv import lower_grad
from toolkit.backends.numpy.jit.lowering import lower
from toolkit.ir import PRIMITIVES
from toolkit.tensor import bind

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
        names, more = {
            "conv": ("xw", {}),
            "conv_input_grad": ("gw", {"spatial": self.spatial}),
            "conv_kernel_grad": ("xg", {"kernel": self.size}),
        }[kind]
        rng = np.random.default_rng(0)
        arrays = [
            rng.standard_normal(self.shapes[name]).astype(dtype) for name in names
        ]
        return arrays, self.attrs | more


def computed(kind, arrays, attrs, chunk=0):
    """What the generated functions say."""
    graph = graph_of(lambda *xs: bind(PRIMITIVES[kind], *xs, **attrs), *arrays)
    (node,) = graph.nodes
    out = np.full(node.outputs[0].spec.shape, np.nan, arrays[0].dtype)
    lowered = lower(node, [operand_of(a) for a in arrays], [operand_of(out)])
    assert lowered is not None
    run_lowered(lowered, arrays, [out], chunk)
    return out


def expected(kind, arrays, attrs):
    wide = [a.astype(np.float64) for a in arrays]
    return get_backend("reference").kernels[kind](*wide, **attrs)


def check(kind, arrays, attrs, chunk=0):
    actual, reference = (
        computed(kind, arrays, attrs, chunk),
        expected(kind, arrays, attrs),
    )
    scale = max(1.0, float(np.abs(reference).max(initial=0)))
    assert_close(actual / scale, reference / scale)


@st.composite
def problems(draw):
    ndim = draw(st.integers(1, 3))
    small = st.integers(0, 4 if ndim == 3 else 20)

    def each(*values: Any) -> tuple[Any, ...]:
        return tuple(draw(st.sampled_from(values)) for _ in range(ndim))

    size = each(1, 2, 3) if ndim == 3 else each(1, 2, 3, 5, 10)
    attrs = {
        "strides": each(1, 1, 2, 3),
        "dilation": each(1, 1, 2, 3),
        "padding": tuple(zip(each(0, 1, 2, 4), each(0, 1, 5), strict=True)),
        "groups": draw(st.sampled_from([1, 1, 2, 3, 16])),
    }
    axes = zip(size, attrs["dilation"], attrs["padding"], strict=True)
    least = [max(1, (k - 1) * d + 1 - sum(pads)) for k, d, pads in axes]
    spatial = tuple(n + draw(small) for n in least)
    few = st.sampled_from([1, 2, 4])
    many = st.sampled_from([1, 3, 4, 8, 17, 24, 40])
    depth, filters = (draw(few if attrs["groups"] == 16 else many) for _ in "io")
    return Problem(draw(st.integers(0, 3)), spatial, size, (depth, filters), **attrs)


@given(
    problem=problems(),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float32", "float64"]),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_any_configuration(problem, kind, dtype, lanes, chunk):
    with mock.patch.object(engine.host(), "lanes", lanes):
        check(kind, *problem.of(kind, dtype), chunk)


SAME = ((1, 1), (1, 1))
NAMED = {
    "edges and a loop of tiles": Problem(2, (6, 60), (3, 3), (4, 32), padding=SAME),
    "pixels become one axis": Problem(2, (5, 7), (1, 1), (16, 48)),
    "strided pixels": Problem(2, (7, 8), (1, 1), (8, 16), strides=(2, 2)),
    "panels outside": Problem(3, (4, 4), (3, 3), (96, 320), padding=SAME),
    "a whole and a part of a panel": Problem(1, (6, 6), (3, 3), (5, 88)),
    "many kinds of edges": Problem(2, (19,), (13,), (3, 8), padding=((12, 0),)),
    "only padding is seen": Problem(1, (2, 2), (1, 2), (3, 4), padding=((3, 3),) * 2),
    "stride and dilation": Problem(
        2, (9, 23), (3, 3), (3, 17), strides=(2, 4), dilation=(2, 6)
    ),
    "depthwise": Problem(2, (9, 9), (3, 3), (1, 1), padding=SAME, groups=40),
    "depthwise with a multiplier": Problem(2, (6, 6), (3, 3), (1, 2), groups=24),
    "small groups": Problem(2, (6, 6), (3, 3), (4, 4), padding=SAME, groups=12),
    "groups that share no vector": Problem(1, (5, 5), (2, 2), (3, 3), groups=5),
    "volumes": Problem(2, (3, 4, 9), (2, 3, 3), (3, 20), padding=((1, 0), *SAME)),
    "no images": Problem(0, (5, 5), (3, 3), (4, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMED)
def test_configurations_that_take_ways_of_their_own(name, kind):
    check(kind, *NAMED[name].of(kind, "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_chunks(kind):
    arrays, attrs = Problem(40, (9, 9), (3, 3), (8, 24), padding=SAME).of(
        kind, "float32"
    )
    whole = computed(kind, arrays, attrs)
    for chunk in (1, 2):
        assert np.array_equal(computed(kind, arrays, attrs, chunk), whole)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
def test_one_image_is_several_rows(kind):
    arrays, attrs = Problem(1, (40, 40), (3, 3), (32, 64), padding=SAME).of(
        kind, "float32"
    )
    graph = graph_of(lambda *xs: bind(PRIMITIVES[kind], *xs, **attrs), *arrays)
    shape = graph.outputs[0].spec.shape
    lowered = lower(graph.nodes[0], [operand_of(a) for a in arrays], [None])
    assert shape[0] == 1
    assert lowered.calls[-1].rows == 16
    check(kind, arrays, attrs)


@pytest.mark.parametrize("name", NAMED)
def test_large_kernels_are_divided_by_their_weights(name, monkeypatch):
    monkeypatch.setattr(lower_grad, "_PARTIAL_BYTES", 0)
    check("conv_kernel_grad", *NAMED[name].of("conv_kernel_grad", "float32"))


VIEWS = {
    "channels first": lambda a: np.moveaxis(np.moveaxis(a, -1, 1).copy(), 1, -1),
    "channels outside": lambda a: np.moveaxis(np.moveaxis(a, -1, 0).copy(), 0, -1),
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "every other channel": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["edges and a loop of tiles", "small groups"])
def test_strided_operands(name, view, kind):
    arrays, attrs = NAMED[name].of(kind, "float32")
    views = [VIEWS[view](a) for a in arrays]
    assert not any(v.flags.c_contiguous for v in views)
    check(kind, views, attrs)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("filters", [8, 32, 40])
def test_what_follows_is_computed_on_the_way(kind, filters):
    problem = Problem(3, (7, 18), (3, 3), (filters, filters), padding=SAME)
    (x, w), attrs = problem.of(kind, "float32")
    bias = np.linspace(-1, 1, filters, dtype=np.float32)
    residual = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)

    def layer(x, w, bias, residual):
        y = bind(PRIMITIVES[kind], x, w, **attrs) + bias
        return ops.maximum(y, 0.0) * 0.5 + residual, y > 0

    arrays = (x, w, bias, residual)
    graph = graph_of(layer, *arrays)
    node = mock.Mock(attrs={"body": graph})
    node.op.name = "fused"
    outs = [np.empty(y.spec.shape, y.spec.dtype) for y in graph.outputs]
    lowered = lower(
        node, [operand_of(a) for a in arrays], [operand_of(y) for y in outs]
    )
    run_lowered(lowered, arrays, outs, 1)
    y = expected(kind, (x, w), attrs) + bias
    assert_close(outs[0] / 10, (np.maximum(y, 0) * 0.5 + residual) / 10)
    clear = np.abs(y) > 1e-3
    assert np.array_equal(outs[1][clear], y[clear] > 0)
