"""Test which mask the outputs of a layer have."""

import warnings

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers, ops

X = np.array([[[1.0], [2.0], [0.0], [0.0]], [[3.0], [0.0], [0.0], [0.0]]], "float32")
MASK = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
NONE = -np.ones((2, 4))


class Seen(layers.Layer):
    """Return the mask as numbers, -1 without a mask."""

    supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.zeros(inputs.shape[:2]) - 1.0
        return ops.cast(mask, "float32")

    def compute_mask(self, inputs, previous_mask):
        return None


class Unchanged(layers.Layer):
    def call(self, inputs):
        return inputs


class Passes(Unchanged):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True


class Drops(Unchanged):
    def compute_mask(self, inputs, previous_mask):
        return None


class Inverts(Unchanged):
    def compute_mask(self, inputs, previous_mask):
        return None if previous_mask is None else ops.logical_not(previous_mask)


class Makes(Unchanged):
    def compute_mask(self, inputs, previous_mask):
        return ops.cast(inputs[..., 0], "bool")


class InvertsSymbols(Inverts):
    def compute_output_spec(self, inputs):
        return inputs


class Pair(layers.Layer):
    """Return the input and a second output, with a mask for each."""

    def call(self, inputs):
        return inputs, inputs * 2.0

    def compute_mask(self, inputs, previous_mask):
        return [None, previous_mask]


class Composite(layers.Layer):
    """Pass the input through a layer in `call`."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs)


def model_of_layers(*layers_of_model):
    inputs = Input((4, 1))
    x = layers.Masking()(inputs)
    for layer in layers_of_model:
        x = layer(x)
    return Model(inputs, Seen()(x))


CASES = {
    "nothing": ([], MASK),
    "passes": ([Passes], MASK),
    "dropout": ([lambda: layers.Dropout(0.5)], MASK),
    "identity": ([layers.Identity], MASK),
    "drops": ([Drops], NONE),
    "inverts": ([Inverts], ~MASK),
    "inverts symbols": ([InvertsSymbols], ~MASK),
    "inverts twice": ([Inverts, Inverts], MASK),
    "drops, then makes": ([Drops, Makes], MASK),
    "in a layer": ([lambda: Composite(Inverts())], ~MASK),
    "dropout in a layer": ([lambda: Composite(layers.Dropout(0.5))], MASK),
    "in a model": ([lambda: Sequential([Input((4, 1)), Inverts()])], ~MASK),
    "in a deferred model": ([lambda: Sequential([Inverts(), Passes()])], ~MASK),
}


@pytest.mark.filterwarnings("ignore:.*does not support masking")
@pytest.mark.parametrize("case", CASES)
def test_mask_after_layers_that_return_their_input(case):
    makers, expected = CASES[case]
    model = model_of_layers(*(make() for make in makers))
    np.testing.assert_array_equal(model(X), expected)
    np.testing.assert_array_equal(model.predict(X, verbose=0), expected)
    np.testing.assert_array_equal(model(X, training=True), expected)


def test_layer_without_support_drops_the_mask_and_warns():
    with pytest.warns(UserWarning, match="does not support masking"):
        model = model_of_layers(Unchanged())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(model(X), NONE)


def test_input_keeps_its_mask():
    x = layers.Masking()(X)
    assert x._keras_mask is not None
    dropped, inverted = Drops()(x), Inverts()(x)
    assert getattr(dropped, "_keras_mask", None) is None
    np.testing.assert_array_equal(inverted._keras_mask, ~MASK)
    np.testing.assert_array_equal(x._keras_mask, MASK)
    without_mask = ops.convert_to_tensor(X)
    np.testing.assert_array_equal(Makes()(without_mask)._keras_mask, MASK)
    assert getattr(without_mask, "_keras_mask", None) is None


def test_input_as_one_of_several_outputs():
    inputs = Input((4, 1))
    first_output, second_output = Pair()(layers.Masking()(inputs))
    model = Model(inputs, [Seen()(first_output), Seen()(second_output)])
    for actual, expected in zip(model(X), (NONE, MASK), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_mask_argument_of_a_model_does_not_change_the_tensor():
    inputs = Input((4, 1))
    model = Model(inputs, Seen()(inputs))
    x = ops.convert_to_tensor(X)
    np.testing.assert_array_equal(model(x, mask=ops.convert_to_tensor(~MASK)), ~MASK)
    np.testing.assert_array_equal(model(x), NONE)


def test_model_output_that_is_an_input_has_its_mask():
    inputs = Input((4, 1))
    inner = Model(inputs, [inputs, layers.Dense(1)(inputs)])
    outer_inputs = Input((4, 1))
    first, second = inner(layers.Masking()(outer_inputs))
    model = Model(outer_inputs, [Seen()(first), Seen()(second)])
    for actual in model(X):
        np.testing.assert_array_equal(actual, MASK)
