"""Test that inference of each layer is only generated code, or has an exception.

A program of generated code calls no kernel of NumPy and needs no Python while it runs.
Only such a program can be written to a file of machine code.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import toolkit
from tests.layers.check import _map, _sample
from tests.layers.test_all_layers import CASES, SEQUENCE
from toolkit import GradientTape, dtypes, layers, ops, tree
from toolkit.backends import get_backend

pytestmark = pytest.mark.skipif(
    not get_backend("numpy").generator.can_generate,
    reason="needs generated code (llvmlite)",
)


def quantized():
    layer = layers.Dense(4)
    layer.build((4, 3))
    layer.quantize("int8")
    return layer


def cells():
    cell_layers = (layers.LSTMCell(4), layers.GRUCell(3), layers.SimpleRNNCell(2))
    return layers.RNN(list(cell_layers), return_sequences=True)


def bidirectional(merge_mode):
    layer = layers.GRU(4, return_sequences=True)
    return layers.Bidirectional(layer, merge_mode=merge_mode)


GPTQ = "gptq/4/2_from_float32"
TOKENS = np.arange(24, dtype="int32").reshape(4, 6) % 5
WORDS = np.array([["a", "b"], ["b", "c"]])
# Layers that the table of all layers omits: a constructor, and the input shape.
ELSEWHERE = {
    "Embedding": (lambda: layers.Embedding(5, 3, mask_zero=True), TOKENS),
    "ReversibleEmbedding": (lambda: layers.ReversibleEmbedding(5, 3), TOKENS),
    "Bidirectional": (lambda: bidirectional("concat"), SEQUENCE),
    "Bidirectional sum": (lambda: bidirectional("sum"), SEQUENCE),
    "Bidirectional last": (lambda: layers.Bidirectional(layers.LSTM(4)), SEQUENCE),
    "TimeDistributed": (lambda: layers.TimeDistributed(layers.Dense(4)), SEQUENCE),
    "RNN of cells": (cells, SEQUENCE),
    "SpectralNormalization": (
        lambda: layers.SpectralNormalization(layers.Dense(4)),
        SEQUENCE,
    ),
    "Dense of 8 bits": (quantized, (4, 3)),
    "Dense by GPTQ": (lambda: layers.Dense(4, dtype=GPTQ), (4, 3)),
    "Lambda": (lambda: layers.Lambda(lambda x: 2 * x), SEQUENCE),
    "AugMix": (layers.AugMix, (2, 4, 4, 3)),
    "RandAugment": (layers.RandAugment, (2, 4, 4, 3)),
    "CategoryEncoding": (lambda: layers.CategoryEncoding(5), TOKENS),
    "Discretization": (lambda: layers.Discretization([-1.0, 0.0, 1.0]), SEQUENCE),
    "IntegerLookup": (lambda: layers.IntegerLookup(vocabulary=[3, 1, 4]), TOKENS),
    "Hashing": (lambda: layers.Hashing(10), TOKENS),
    "HashedCrossing": (
        lambda: layers.HashedCrossing(10),
        [TOKENS[:, 0], TOKENS[:, 1]],
    ),
    "StringLookup": (lambda: layers.StringLookup(vocabulary=["a", "b"]), WORDS),
    "TextVectorization": (
        lambda: layers.TextVectorization(vocabulary=["a", "b"]),
        WORDS[:, 0],
    ),
}
ROWS = {
    **{
        f"{i}-{name}": (lambda n=name, a=arguments: getattr(layers, n)(**a), *shapes)
        for i, (name, arguments, shapes) in enumerate(CASES)
    },
    **ELSEWHERE,
}
# Permanent exceptions: strings, and values that are hashed as strings, need Python.
IN_PYTHON = ("Hashing", "HashedCrossing", "StringLookup", "TextVectorization")

# Layers with integer results, or without trainable weights.
NO_GRADIENT = {*IN_PYTHON, "CategoryEncoding", "Discretization", "IntegerLookup"}


def sample(shape):
    """Return random numbers, or the argument if it is an array."""
    if isinstance(shape, np.ndarray):
        return shape
    return _sample(np.random.default_rng(0), shape, "float32")


def called(make, shapes, training):
    """Return a layer with weights, inputs, and a function that calls it."""
    inputs = [_map(sample, shape) for shape in shapes]
    layer = make()
    layer(*inputs)
    parameters = inspect.signature(layer.call).parameters
    options = {"training": training} if "training" in parameters else {}
    return layer, inputs, lambda *xs: layer(*xs, **options)


def compiled(make, *shapes):
    """Return the program of a layer's inference."""
    _, inputs, call = called(make, shapes, training=False)
    return toolkit.function(call).inspect(*inputs).program


def compiled_gradients(make, *shapes):
    """Return the program of the gradients of a layer's weights and inputs."""
    layer, inputs, call = called(make, shapes, training=True)

    def gradients(*xs):
        floats = [x for x in tree.flatten(xs) if dtypes.is_float(x.dtype)]
        sources = [*layer.trainable_weights, *floats]
        with GradientTape() as tape:
            tape.watch(floats)
            outputs = tree.flatten(call(*xs))
            loss = sum(ops.sum(ops.square(y)) for y in outputs)
        return tape.gradient(loss, sources, unconnected_gradients="zero")

    return toolkit.function(gradients).inspect(*inputs).program


def not_generated(program):
    """Return the nodes that kernels of NumPy compute, as text."""
    names = [
        f"{node.op.name}: {[str(x.spec) for x in node.inputs]}"
        for i, node in enumerate(program.graph.nodes)
        if program.lowered[i] is None and not program.is_view(i)
    ]
    assert names or program.code is not None
    return names


@pytest.mark.parametrize("row", [row for row in ROWS if row not in IN_PYTHON])
def test_layer_is_only_generated_code(row):
    assert not_generated(compiled(*ROWS[row])) == []


@pytest.mark.parametrize("row", [row for row in ROWS if row not in NO_GRADIENT])
@pytest.mark.one_in(3)
def test_gradients_are_only_generated_code(row):
    assert not_generated(compiled_gradients(*ROWS[row])) == []


@pytest.mark.parametrize("row", IN_PYTHON)
def test_program_after_a_layer_of_strings_is_generated_code(row):
    assert not_generated(compiled(*ROWS[row])) == []
