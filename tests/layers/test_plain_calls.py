"""Tests of calls of the user's layers with tensors that need no changes."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions
from toolkit import layers, ops
from toolkit.core import operation_replays
from toolkit.core.masks import mask_of, set_mask

RNG = np.random.default_rng(0)


def value(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


@pytest.fixture(autouse=True)
def no_replays():
    """Remove the replays of other tests, which can delay a trace."""
    operation_replays.clear()


received = []


class Pair(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x, y, training=None, mask=None):
        received[:] = x, y, training, mask
        return x + y


class Mean(layers.Layer):
    def call(self, inputs):
        received[:] = [inputs]
        return (inputs[0] + inputs[1]) / 2.0


X, Y = value(3, 4), value(3, 4)
# Functions of a call whose arguments need no changes.
NUM_FUNCTIONS = 40


def test_several_tensors_are_received_as_they_are():
    layer = Pair()
    for _ in range(3):
        np.testing.assert_array_equal(layer(X, Y), np.asarray(X) + np.asarray(Y))
        pairs = zip(received, (X, Y, None, None), strict=True)
        assert all(a is b for a, b in pairs)
    assert count_functions(lambda: layer(X, Y)) < NUM_FUNCTIONS


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_of_tensors_are_received_as_they_are(kind):
    layer, pair = Mean(), kind([X, Y])
    for _ in range(3):
        layer(pair)
        assert received[0] is pair
    assert count_functions(lambda: layer(pair)) < NUM_FUNCTIONS


def test_training_is_passed():
    layer = Pair()
    layer(X, Y)
    for training in (True, False, None):
        layer(X, Y, training=training)
        assert received[2] is training
    with pytest.raises(ValueError, match="positional"):
        layer(X, Y, True)


def test_floats_are_cast():
    layer = Mean()
    layer([X, Y])
    assert layer([X, ops.cast(Y, "float64")]).dtype == "float32"
    assert layer([X, ops.cast(Y, "int32")]).dtype == "float32"
    assert received[0][1].dtype == "int32"
    assert Mean(dtype="bfloat16")([X, Y]).dtype == "bfloat16"


def test_masks_are_passed():
    layer, masked = Pair(), value(3, 4)
    mask = ops.ones((3, 4), "bool")
    set_mask(masked, mask)
    for _ in range(2):
        layer(X, Y)
        assert received[3] is None
        layer(masked, Y)
        assert received[3] is mask
    layer = Mean()
    layer.supports_masking = True
    layer([X, Y])
    assert mask_of(layer([X, Y])) is None


def test_specs_are_checked():
    layer = Mean()
    layer([X, Y])
    layer.input_spec = [layers.InputSpec(ndim=2), layers.InputSpec(ndim=3)]
    with pytest.raises(tk.errors.ShapeError):
        layer([X, Y])


def test_wrong_arguments_raise():
    layer = Pair()
    layer(X, Y)
    for args in ((X,), (X, Y, X, X, X)):
        with pytest.raises(TypeError):
            layer(*args)
    with pytest.raises(ValueError, match="positional"):
        layer(X, "text")


def test_symbols_are_recorded():
    layer, x, y = Pair(), tk.Input((4,)), tk.Input((4,))
    layer(X, Y)
    model = tk.Model([x, y], layer(x, y))
    np.testing.assert_array_equal(model([X, Y]), np.asarray(X) + np.asarray(Y))


def test_losses_of_the_last_call_are_dropped():
    class Lossy(layers.Layer):
        def call(self, inputs):
            self.add_loss(ops.sum(inputs[0]))
            return inputs[0]

    layer = Lossy()
    for _ in range(3):
        layer([X, Y])
        assert len(layer.losses) == 1
