"""Test clones of models."""

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers
from toolkit.errors import ArgumentError
from toolkit.models import clone_model

X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


def sequential():
    return Sequential([Input((4,)), layers.Dense(3), layers.Dense(2)])


def functional():
    x = Input((4,), name="x")
    shared = layers.Dense(4)
    return Model(x, layers.Dense(2)(sequential()(shared(shared(x))) + 1.0))


def late():
    return Sequential([layers.Dense(3), layers.Dense(2)])


@pytest.mark.parametrize("make", [sequential, functional, late])
@pytest.mark.parametrize("recursive", [False, True])
def test_clones_with_equal_weights_are_equal(make, recursive):
    model = make()
    twin = clone_model(model, recursive=recursive)
    expected = model.predict(X, verbose=0)
    assert twin.predict(X, verbose=0).shape == expected.shape
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(twin.predict(X, verbose=0), expected)
    assert not {id(v) for v in model.weights} & {id(v) for v in twin.weights}


def test_calls_and_layers_may_be_replaced():
    def call(layer, *args, **kwargs):
        outputs = layer(*args, **kwargs)
        return layers.Dropout(0.5)(outputs) if type(layer) is layers.Dense else outputs

    x = Input((4,))
    model = Model(x, layers.Dense(2)(x))
    twin = clone_model(model, clone_function=lambda layer: layer, call_function=call)
    assert [type(layer).__name__ for layer in twin.layers] == [
        *("InputLayer", "Dense", "Dropout")
    ]
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))


def test_other_inputs():
    x = Input((4,), name="mine")
    for make in (sequential, functional):
        assert clone_model(make(), input_tensors=[x]).inputs[0].shape == (None, 4)
    with pytest.raises(ArgumentError, match="same structure"):
        clone_model(functional(), input_tensors=[x, x])
    with pytest.raises(ArgumentError, match="KerasTensor"):
        clone_model(functional(), input_tensors=[X])


def test_clone_of_a_compiled_model_is_compiled():
    model = sequential()
    model.compile("adam", "mse")
    assert clone_model(model).compiled


def test_arguments():
    with pytest.raises(ArgumentError, match="call_function"):
        clone_model(sequential(), call_function=lambda layer, x: x)
    with pytest.raises(ArgumentError, match="unknown"):
        clone_model(sequential(), wrong=1)


class Handed(layers.Dense):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Scaled(layers.Dense):
    def __init__(self, factor, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor = factor


class Same(layers.Conv1D):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **(kwargs | {"padding": "same"}))


class OfScaled(Scaled):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Nameless(layers.Layer):
    def __init__(self, *sizes, **kwargs):
        super().__init__(**kwargs)
        self.sizes = sizes


class NoNames(layers.Dense):
    def __init__(self, *sizes):
        super().__init__(sum(sizes))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Handed(3, "relu"), {"units": 3, "activation": "relu"}),
        (Handed(units=3, activation="relu"), {"units": 3, "activation": "relu"}),
        (Handed(3, activation="relu"), {"units": 3, "activation": "relu"}),
        (Scaled(2.0, 3, "relu"), {"factor": 2.0, "units": 3, "activation": "relu"}),
        (OfScaled(2.0, 3), {"factor": 2.0, "units": 3}),
        (Same(3, 2), {"filters": 3, "kernel_size": 2}),
    ],
)
def test_layers_that_forward_their_arguments_to_the_base(layer, expected):
    config = layer.get_config()
    assert {name: config.get(name) for name in expected} == expected
    inputs = Input((4, 5))
    model = Model(inputs, layer(inputs))
    twin = clone_model(model)
    assert type(twin.layers[1]) is type(layer)
    assert twin.output_shape == model.output_shape
    assert twin.layers[1].get_config() == config


@pytest.mark.parametrize("layer", [Nameless(1, 2), NoNames(1, 2)])
def test_positional_arguments_without_names_have_no_config(layer):
    with pytest.raises(ArgumentError, match="no names; define `get_config`"):
        layer.get_config()


class Own(layers.Dense):
    def __init__(self, units, own=None, **kwargs):
        super().__init__(units, **kwargs)
        self.own = own


def test_custom_arguments_of_a_subclass_are_cloned_or_refused():
    """Test any base; the arguments of subclasses of Dense were once omitted."""
    assert Own.from_config(Own(3, own=7).get_config()).own == 7
    with pytest.raises(ArgumentError, match="'own' cannot be serialized"):
        Own(3, own=object()).get_config()
    with pytest.raises(ArgumentError, match="'activation' cannot be serialized"):
        layers.Dense(3, activation=lambda x: x).get_config()
