"""Tests of values that are stored as bfloat16 between kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.emulated_processor import WAYS, without_rounding
from toolkit import layers, ops
from toolkit.backends.numpy import narrow_storage
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.backends.target import Target
from toolkit.compiler.passes.simplify import share
from toolkit.core.tensor import backend
from toolkit.ir import PRIMITIVES, Graph, Narrow, Node, Spec, Value, fused_p
from toolkit.plans.loops.iteration_space import can_share_loop
from toolkit.plans.rules import rules


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def way(request):
    """By AMX's tiles, or by dot products."""
    with request.param():
        yield


@pytest.fixture
def small():
    """A processor whose cache holds hardly anything."""
    with rules.override(processor=replace(Processor.host(), cache_bytes=1 << 13)):
        yield


@pytest.fixture
def watched(monkeypatch):
    """The graphs with narrow values that were compiled."""
    graphs = []
    stored = narrow_storage._NarrowStorage.rewrite_graph

    def watching(self):
        graphs.append(stored(self))
        return graphs[-1]

    monkeypatch.setattr(narrow_storage._NarrowStorage, "rewrite_graph", watching)
    return graphs


def narrow_values(graphs):
    """Count the nodes that store bfloat16 inside graphs, by name."""
    names = Counter()
    for graph in graphs:
        returned = set(graph.outputs)
        for node in graph.nodes:
            for y in node.outputs:
                if y.spec.dtype == "bfloat16" and y not in returned:
                    body = node.attrs.get("body")
                    names[body.nodes[0].op.name if body else node.op.name] += 1
    return names


def blocks(policy):
    """Return a model of strided, 3 x 3 and 1 x 1 convolutions, normalized and added."""
    toolkit.utils.set_random_seed(0)

    def conv(filters, size, strides=1):
        return layers.Conv2D(
            filters, size, strides, padding="same", use_bias=False, dtype=policy
        )

    def normal():
        return layers.BatchNormalization(dtype=policy)

    inputs = toolkit.Input((16, 16, 32))
    x = layers.ReLU(dtype=policy)(normal()(conv(32, 3)(inputs)))
    y = normal()(conv(64, 3, 2)(x))
    x = layers.Add(dtype=policy)([normal()(conv(64, 1, 2)(x)), y])
    x = layers.ReLU(dtype=policy)(x)
    x = layers.ReLU(dtype=policy)(normal()(conv(64, 1)(x)))
    x = layers.GlobalAveragePooling2D(dtype=policy)(x)
    return toolkit.Model(inputs, layers.Dense(5, dtype="float32")(x))


def dense(policy):
    """Dense layers with activations between them."""
    toolkit.utils.set_random_seed(0)
    inputs = x = toolkit.Input((16, 16, 32))
    for _ in range(3):
        x = layers.Dense(64, activation="gelu", dtype=policy)(x)
    x = layers.GlobalAveragePooling2D(dtype=policy)(x)
    return toolkit.Model(inputs, layers.Dense(5, dtype="float32")(x))


def data():
    """Images and their classes."""
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 16, 16, 32)).astype("float32")
    return ops.convert_to_tensor(x), ops.convert_to_tensor(random.integers(0, 5, 8))


def gradients(model, compiled=True):
    """The loss, and the gradients of a network's weights."""
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with toolkit.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        return value, tape.gradient(value, model.trainable_variables)

    value, weight_gradients = (toolkit.function(step) if compiled else step)(*data())
    return float(value), [np.asarray(g, "float64") for g in weight_gradients]


def distances(actual, expected):
    return [
        np.linalg.norm(a - b) / np.linalg.norm(b)
        for a, b in zip(actual, expected, strict=True)
    ]


@pytest.mark.parametrize("make", [blocks, dense])
@pytest.mark.one_in(2)
def test_error_is_at_most_that_of_rounding_all_values(make, small, watched):
    exact, expected = gradients(make("float32"))
    assert not narrow_values(watched)
    value, actual = gradients(make("mixed_bfloat16"))
    assert narrow_values(watched)
    np.testing.assert_allclose(value, exact, rtol=0.01)
    _, rounded = gradients(make("mixed_bfloat16"), compiled=False)
    distance, limit = distances(actual, expected), distances(rounded, expected)
    assert max(distance) < 1.25 * max(limit)


def test_values_stored_in_bfloat16(small, watched):
    gradients(blocks("mixed_bfloat16"))
    names = narrow_values(watched)
    assert names["conv"] == 4
    assert names["conv_input_grad"] == 3
    # Casts of normalizations, which are float32, and of their consumers.
    assert names["cast"] >= 6
    watched.clear()
    gradients(dense("mixed_bfloat16"))
    names = narrow_values(watched)
    # Three layers' results, before and after the activation, and gradients of two.
    assert names["matmul"] >= 5
    assert names["reshape"] and names["transpose"]


def kernel(shape=(64, 64), seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def product(x, w):
    return ops.matmul(ops.cast(x, "bfloat16"), ops.cast(w, "bfloat16"))


def compiled(function, *arrays):
    return np.asarray(toolkit.function(function)(*arrays), "float64")


def test_values_stored_in_float32(small, watched):
    """Small values, results, and operands that kernels read directly from memory."""
    x, w = kernel((256, 64)), kernel()

    def twice(x, w):
        return product(ops.relu(product(x, w)), w)

    compiled(twice, x, w)
    assert narrow_values(watched) == {"matmul": 1}
    for function, rows in (
        (twice, 7),
        (product, 256),
        (lambda x, w: ops.sort(product(x, w)), 256),
        (lambda x, w: ops.concatenate([product(x, w)] * 2), 256),
    ):
        watched.clear()
        compiled(function, x[:rows], w)
        assert not narrow_values(watched)
    watched.clear()
    with rules.override(processor=without_rounding()):
        compiled(twice, x, w)
    assert not watched


def test_gradients_of_weights_are_float32(small, watched):
    """They are sums over a batch, and go to an optimizer that computes in float32."""
    x, w = kernel((256, 64)), kernel()

    def step(x, w):
        with toolkit.GradientTape() as tape:
            tape.watch(w)
            loss = ops.sum(ops.square(ops.cast(product(x, w), "float32")))
        return w - 1e-3 * tape.gradient(loss, w) * w

    actual = compiled(step, ops.convert_to_tensor(x), ops.convert_to_tensor(w))
    (graph,) = watched
    for node in graph.nodes:
        for y in node.outputs:
            assert y.spec.dtype == "float32" or y.spec.shape != (64, 64)
    rounded = [a.astype(ml_dtypes.bfloat16).astype("float64") for a in (x, w)]
    y = (rounded[0] @ rounded[1]).astype(ml_dtypes.bfloat16).astype("float64")
    expected = w - 1e-3 * (rounded[0].T @ (2 * y)) * w
    error = np.abs(actual - expected).max() / np.abs(expected).max()
    assert error < 4e-3


def test_float32_values_are_not_rounded(small, watched):
    """Float32 values of the program keep their digits although products round them."""
    x, w, step = kernel((256, 64)), kernel(), kernel(seed=1) * 1e-5

    def updates(x, w, step):
        """A weight that is used and changed, and used again."""
        new = w + step
        y = ops.sum(ops.cast(product(x, new), "float32"))
        return ops.sum(ops.square((new + step) - w)) + 0.0 * y

    np.testing.assert_allclose(
        compiled(updates, x, w, step),
        4 * np.sum(np.square(step, dtype="float64")),
        1e-2,
    )

    def behind_a_convolution(x, w):
        images, kernels = ops.reshape(x, (4, 8, 8, 64)), ops.reshape(w, (1, 1, 64, 64))
        y = ops.conv(ops.cast(images, "bfloat16"), ops.cast(kernels, "bfloat16"))
        y = ops.cast(y, "float32") * 0.001 + 300.0
        return ops.mean(ops.square(y - ops.mean(y, axis=(0, 1, 2))), axis=(0, 1, 2))

    y = x.astype("bfloat16").astype("float64") @ w.astype("bfloat16").astype("float64")
    actual = compiled(behind_a_convolution, x, w)
    np.testing.assert_allclose(actual, (y * 0.001).var(0), rtol=0.02)

    def beside_the_same_in_bfloat16(x, w):
        y = product(x, w)
        wide, narrow = ops.cast(y, "float32") * 1.001, y * ops.cast(1.001, "bfloat16")
        more = ops.sum(ops.cast(product(narrow, w), "float32"))
        return ops.sum(ops.square(wide / ops.cast(y, "float32") - 1.001)) + 0.0 * more

    assert compiled(beside_the_same_in_bfloat16, x, w) < 256 * 64 * 1e-12


def test_equal_rounded_values_are_shared():
    """A float32 value differs from a value that is rounded in storage."""
    x = Value(Spec((4,), "float32"))
    for kinds, count in (((Narrow, Narrow), 1), ((Narrow, Value), 2)):
        outputs = tuple(kind(x.spec) for kind in kinds)
        nodes = [Node(PRIMITIVES["tanh"], (x,), {}, (y,)) for y in outputs]
        graph = share(Graph((x,), tuple(nodes), outputs), Target(backend()))
        assert len(graph.nodes) == count


def test_readers_in_the_same_kernel_read_rounded_values(small, watched):
    """Or no element would be its maximum, and the gradient of that NaN."""
    x, w = kernel((256, 64)), kernel()

    def shared(x, w):
        """Return values that products also read, and a sum of their source."""
        first = product(x, w)
        y = ops.sin(first * ops.cast(1.7, "bfloat16")) * first
        return y, (product(y, w), ops.sum(ops.cast(first, "float32"), axis=0))

    def hits(x, w):
        y, results = shared(x, w)
        is_most = ops.equal(y, ops.max(y, axis=0, keepdims=True))
        return ops.sum(ops.cast(is_most, "int32"), axis=0), results

    def gradient(x, w):
        with toolkit.GradientTape() as tape:
            y, results = shared(x, w)
            tape.watch(y)
            loss = ops.sum(ops.cast(ops.max(y, axis=0), "float32"))
        return ops.sum(ops.cast(tape.gradient(loss, y), "float32"), axis=0), results

    arrays = ops.convert_to_tensor(x), ops.convert_to_tensor(w)
    actual, _ = toolkit.function(hits)(*arrays)
    assert (np.asarray(actual) >= 1).all()
    actual, _ = toolkit.function(gradient)(*arrays)
    np.testing.assert_allclose(actual, 1, atol=0.02)
    assert all(narrow_values([graph]) for graph in watched)


def test_loops_over_more_elements_read_float32(small, watched):
    """A row that many rows read is no element of their loop."""
    x, w = kernel((256, 64)), kernel()

    def pairs(x, w):
        y = product(x, w)
        distance_sums = ops.sum(ops.abs(y[:, None] - y[None, :8]), axis=-1)
        return ops.cast(distance_sums, "float32") + ops.sum(product(y, w)[:, :8])

    compiled(pairs, x, w)
    for graph in watched:
        assert all(
            can_share_loop(node.attrs["body"].nodes)
            for node in graph.nodes
            if node.op is fused_p and node.attrs["body"].nodes[0].op.name != "matmul"
        )


def test_denormal_numbers_are_preserved():
    bits = np.arange(1, 1 << 16, dtype="uint16")
    x = bits.view("bfloat16")[None]
    actual = np.asarray(toolkit.function(lambda x: ops.concatenate([x, x]))(x))
    is_number = ~np.isnan(x[0].astype("float32"))
    for row in actual.view("uint16"):
        np.testing.assert_array_equal(row[is_number], bits[is_number])


def test_bits_do_not_depend_on_the_number_of_threads(small):
    gradients_by_threads = []
    threads = toolkit.config.num_threads()
    try:
        for count in (1, 2):
            toolkit.config.set_num_threads(count)
            gradients_by_threads.append(gradients(blocks("mixed_bfloat16"))[1])
    finally:
        toolkit.config.set_num_threads(threads)
    for one, two in zip(*gradients_by_threads, strict=True):
        np.testing.assert_array_equal(one, two)
