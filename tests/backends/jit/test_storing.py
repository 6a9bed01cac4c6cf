"""What is stored as bfloat16 between kernels, where products round it anyway."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.emulated_processor import processor_with_tiles
from toolkit import layers, ops
from toolkit.backends.numpy import storing
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.backends.target import rules


@pytest.fixture(scope="module", autouse=True)
def tiles():
    """AMX's, or emulated ones."""
    with processor_with_tiles():
        yield


@pytest.fixture
def small():
    """A processor whose cache holds hardly anything."""
    with rules.inside(processor=replace(Processor.host(), cache_bytes=1 << 13)):
        yield


@pytest.fixture
def watched(monkeypatch):
    """The graphs with narrow values that were compiled."""
    found = []
    stored = storing._Storing.stored

    def watching(self):
        found.append(stored(self))
        return found[-1]

    monkeypatch.setattr(storing._Storing, "stored", watching)
    return found


def narrow_values(graphs):
    """The names of the nodes that store bfloat16 inside graphs, with how many do."""
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
    """Convolutions, strided ones and those of one pixel, normalized and added."""
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

    value, found = (toolkit.function(step) if compiled else step)(*data())
    return float(value), [np.asarray(g, "float64") for g in found]


def distances(found, expected):
    return [
        np.linalg.norm(a - b) / np.linalg.norm(b)
        for a, b in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize("make", [blocks, dense])
def test_no_more_is_lost_than_if_all_were_rounded(make, small, watched):
    exact, expected = gradients(make("float32"))
    assert not narrow_values(watched)
    value, found = gradients(make("mixed_bfloat16"))
    assert narrow_values(watched)
    np.testing.assert_allclose(value, exact, rtol=0.01)
    _, rounded = gradients(make("mixed_bfloat16"), compiled=False)
    lost, most = distances(found, expected), distances(rounded, expected)
    assert max(lost) < 1.25 * max(most)


def test_convolutions_and_what_products_round(small, watched):
    gradients(blocks("mixed_bfloat16"))
    names = narrow_values(watched)
    assert names["conv"] == 4
    assert names["conv_input_grad"] == 3
    # What follows normalizations and their gradients.
    assert names["cast"] >= 6
    watched.clear()
    gradients(dense("mixed_bfloat16"))
    names = narrow_values(watched)
    # What two layers give to a third, and the gradients of two.
    assert names["matmul"] == 4
    assert names["reshape"] and names["transpose"]


def test_what_stays_in_float32(small, watched):
    """Small values, results, and operands of what rounds nothing."""
    layer = layers.Dense(64, use_bias=False, dtype="mixed_bfloat16")
    layer.build((None, 64))
    x = np.ones((256, 64), "float32")

    def of_layer(x):
        return layer(layer(ops.cast(x, "bfloat16")))

    # The first result is a factor of the second one, which is returned.
    toolkit.function(of_layer)(x)
    (graph,) = watched
    assert narrow_values(watched) == {"matmul": 1}
    toolkit.function(of_layer)(x[:16])
    assert not narrow_values(watched[1:])
    # A sort is no kernel that widens what it reads.
    toolkit.function(lambda x: ops.sort(layer(of_layer(x))))(x)
    assert narrow_values(watched[2:]) == {"matmul": 2}
    with rules.inside(processor=replace(Processor.host(), tiles=False)):
        toolkit.function(of_layer)(x)
    assert len(watched) == 3


def test_the_same_bits_with_any_number_of_threads(small):
    found = []
    threads = toolkit.config.num_threads()
    try:
        for count in (1, 2):
            toolkit.config.set_num_threads(count)
            found.append(gradients(blocks("mixed_bfloat16"))[1])
    finally:
        toolkit.config.set_num_threads(threads)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
