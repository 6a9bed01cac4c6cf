"""Tests of repeated eager calls of layers with several tensors."""

import gc
import weakref

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions
from toolkit import layers, ops
from toolkit.core.masks import mask_of

RNG = np.random.default_rng(0)


def value(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


def two_inputs():
    x, y = tk.Input((4,), name="x"), tk.Input((3,), name="y")
    return tk.Model({"x": x, "y": y}, layers.Dense(2)(x) * layers.Dense(2)(y))


X, Y, STATE, SEQUENCE = value(3, 4), value(3, 4), value(3, 5), value(2, 6, 4)
CALLS = {
    "add": (lambda: layers.Add(), ([X, Y],), {}),
    "concatenate": (lambda: layers.Concatenate(), ((X, STATE),), {}),
    "cell": (lambda: layers.GRUCell(5), (X, [STATE]), {}),
    "lstm": (lambda: layers.LSTM(4), (SEQUENCE,), {"initial_state": [X[:2], Y[:2]]}),
    "attention": (
        lambda: layers.MultiHeadAttention(2, 3),
        (SEQUENCE, SEQUENCE),
        {"use_causal_mask": True},
    ),
    "dict": (two_inputs, ({"x": X, "y": Y[:, 1:]},), {}),
    "keyword": (lambda: layers.Dot(1), (), {"inputs": [X, Y]}),
}


def leaves(y):
    return [np.asarray(leaf) for leaf in tk.tree.flatten(y)]


def assert_same_bits(a, b):
    assert tk.tree.structure_of(a) == tk.tree.structure_of(b)
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())


@pytest.mark.parametrize("name", CALLS)
def test_replays_have_the_bits_of_the_first_call(name):
    make, args, kwargs = CALLS[name]
    layer = make()
    layer(*args, **kwargs)  # builds it
    first = layer(*args, **kwargs)
    before = count_functions(lambda: layer(*args, **kwargs))
    for _ in range(4):
        assert_same_bits(layer(*args, **kwargs), first)
    assert count_functions(lambda: layer(*args, **kwargs)) < min(before, 80)
    other = tk.tree.map_structure(lambda x: 2 * x, args)
    with tk.StatelessScope():  # runs the code
        expected = layer(*other, **kwargs)
    assert_same_bits(layer(*other, **kwargs), expected)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_replayed_calls(name):
    make, args, kwargs = CALLS[name]
    layer = make()
    layer(*args, **kwargs)
    weights, inputs = layer.trainable_variables, tk.tree.flatten((args, kwargs))
    inputs = [x for x in inputs if isinstance(x, tk.Tensor)]
    gradients = []
    for _ in range(5):
        with tk.GradientTape() as tape:
            tape.watch(inputs)
            y = tk.tree.flatten(layer(*args, **kwargs))[0]
        gradients.append(tape.gradient(y, [*weights, *inputs]))
    for y in gradients[1:]:
        for a, b in zip(y, gradients[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_arguments_of_other_kinds_are_separate():
    layer = layers.Concatenate(axis=0)
    for _ in range(4):
        assert layer([X, Y]).shape == (6, 4)
        assert layer([X, Y, X]).shape == (9, 4)
        assert layer([X[:2], Y]).shape == (5, 4)
        assert layer([X, ops.cast(Y, "int32")]).shape == (6, 4)
    model, names = two_inputs(), ("x", "y")
    for _ in range(4):
        pair = X, Y[:, 1:]
        a = model(dict(zip(names, pair, strict=True)))
        b = model(dict(zip(names[::-1], pair[::-1], strict=True)))
        np.testing.assert_allclose(a, b, rtol=1e-6)
    attention = layers.MultiHeadAttention(1, 2)
    attention(SEQUENCE, SEQUENCE)
    for _ in range(4):
        a, b = (
            np.asarray(attention(SEQUENCE, SEQUENCE, use_causal_mask=flag))
            for flag in (True, False)
        )
        assert not np.array_equal(a, b)
        scores = attention(SEQUENCE, SEQUENCE, return_attention_scores=True)
        assert len(scores) == 2


def test_one_tensor_as_two_arguments():
    layer = layers.Subtract()
    for _ in range(4):
        np.testing.assert_array_equal(layer([X, X]), np.zeros((3, 4)))
    np.testing.assert_array_equal(layer([X, Y]), np.asarray(X) - np.asarray(Y))


def test_masks_have_an_effect():
    embedding, add = layers.Embedding(5, 4, mask_zero=True), layers.Add()
    masked, plain = embedding(ops.array([[1, 0]])), value(1, 2, 4)
    for _ in range(4):
        assert mask_of(add([plain, plain])) is None
        np.testing.assert_array_equal(mask_of(add([masked, masked])), [[1, 0]])


def test_layers_of_the_user_run_in_each_call():
    called = []

    class Sum(layers.Add):
        def call(self, inputs):
            called.append(1)
            return super().call(inputs)

    layer = Sum()
    for _ in range(6):
        layer([X, Y])
    assert len(called) == 6


def test_arguments_are_freed():
    layer, references = layers.Add(), []
    gc.disable()
    try:
        for _ in range(4):
            x, y = value(3, 4), value(3, 4)
            references += [weakref.ref(x.numpy()), weakref.ref(y.numpy())]
            layer([x, y])
        del x, y
        assert not any(reference() is not None for reference in references)
    finally:
        gc.enable()


def test_wrong_arguments_raise():
    layer = layers.Add()
    for _ in range(4):
        layer([X, Y])
        with pytest.raises(tk.errors.ToolkitError):
            layer([X, STATE])
        with pytest.raises(TypeError):
            layer([X, Y], other=Y)
