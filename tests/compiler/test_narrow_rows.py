"""Tests of elementwise nodes on short rows, which merge until they fill vectors."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.compiler.graphs import target, trace_of
from toolkit import ops
from toolkit.backends.numpy.narrow_rows import join_narrow_rows

IMAGES = (2, 32, 32, 3)
MEAN, SCALE = np.float32([0.4, 0.5, 0.6]), np.float32([0.2, 0.3, 0.25])


def normalized(x):
    return (x / 255.0 - MEAN) / SCALE


# A function, the shapes of its inputs, and the shapes of its nodes.
CASES = {
    "channels": (normalized, [IMAGES], [IMAGES, (128, 48), (128, 48)]),
    "an input is a row": (lambda x, y: x * y, [IMAGES, (3,)], [(128, 48)]),
    "with axes in front": (lambda x, y: x * y, [IMAGES, (1, 1, 3)], [(128, 48)]),
    "two wide ones": (
        lambda x, y: ops.exp(x - MEAN) * y,
        [IMAGES, IMAGES],
        [(128, 48)] * 3,
    ),
    "five columns": (lambda x: x - np.float32(range(5)), [(1600, 5)], [(100, 80)]),
    "four columns": (lambda x: x - np.float32(range(4)), [(1600, 4)], [(400, 16)]),
    "two results": (
        lambda x: ((y := x - MEAN), ops.abs(y)),
        [IMAGES],
        [(128, 48), (128, 48)],
    ),
    "rows that are no multiple": (
        lambda x: x - MEAN,
        [(1601, 3)],
        [(1601, 3)],
    ),
    "few": (lambda x: x - MEAN, [(2, 32, 3)], [(2, 32, 3)]),
    "wide": (lambda x: x - np.float32(range(16)), [(400, 16)], [(400, 16)]),
    "along another axis": (
        lambda x: x - np.ones((32, 1), "float32"),
        [IMAGES],
        [IMAGES],
    ),
    "of a product": (
        lambda x, w: x @ w - MEAN,
        [(1600, 8), (8, 3)],
        [(1600, 3)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_nodes(name):
    function, shapes, expected = CASES[name]
    graph = join_narrow_rows(trace_of(function, *shapes), target())
    graph.verify()
    kinds = ("view", "contract", "move")
    actual = [
        node.outputs[0].spec.shape
        for node in graph.nodes
        if node.op.kind.value not in kinds and node.op.name != "stop_gradient"
    ]
    assert sorted(actual) == sorted(expected)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    function, shapes, _ = CASES[name]
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype("float32") for s in shapes]
    actual, expected = toolkit.function(function)(*arrays), function(*arrays)
    if not isinstance(actual, tuple):
        actual, expected = (actual,), (expected,)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-6, atol=1e-6)


def chain(seed, inputs):
    """Return values that depend on the inputs, a third of them on separate rows."""
    random = np.random.default_rng(seed)
    values = list(inputs)
    for _ in range(random.integers(3, 10)):
        x, y = (values[i] for i in random.integers(len(values), size=2))
        rule = random.integers(7)
        if rule == 0:
            z = ops.where(x > y, x, y)
        elif rule == 1:
            z = ops.tanh(x)
        elif rule == 2 and len(x.shape) > 2:
            z = ops.sum(x, axis=int(random.integers(len(x.shape))), keepdims=True)
        elif rule == 3 and len(x.shape) > 2:
            z = ops.reshape(ops.flip(x, 1), x.shape)
        else:
            z = (x + y, x - y, x * y)[rule % 3]
        values.append(z)
    output_numbers = random.integers(len(inputs), len(values), size=2)
    return [values[i] for i in output_numbers] + values[-1:]


@pytest.mark.parametrize("seed", range(25))
def test_random_chains(seed, monkeypatch):
    monkeypatch.setattr("toolkit.backends.numpy.narrow_rows._MIN_ELEMENTS", 2)
    random = np.random.default_rng(seed)
    columns = int(random.integers(2, 12))
    shapes = [(2, 8, columns), (2, 8, columns), (columns,), (1, 1, columns), (8, 1), ()]
    arrays = [random.integers(-3, 4, s).astype("float32") for s in shapes]
    inputs = [ops.convert_to_tensor(x) for x in arrays]
    actual = toolkit.function(lambda *xs: chain(seed, xs))(*inputs)
    for a, b in zip(actual, chain(seed, inputs), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-5, atol=1e-6)
