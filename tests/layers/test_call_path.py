"""Tests of the path of a layer's call: its steps, and the changes that replace it."""

import copy
import pickle

import pytest

import toolkit
from tests.helpers import threads_running
from toolkit import layers, ops, regularizers
from toolkit.layers import call_path


class Double(layers.Layer):
    def call(self, x):
        return x * 2.0


class Masked(Double):
    def call(self, x, mask=None):
        return x if mask is None else x * ops.cast(mask, x.dtype)


@pytest.fixture
def x():
    return ops.ones((2, 3))


def steps_of(layer):
    """Return the names of the steps of any call, the outermost first."""
    step, names = call_path.compose(layer).general, []
    while step.__closure__:
        names.append(step.__qualname__.split(".")[0])
        (step,) = (cell.cell_contents for cell in step.__closure__)
    return names


def called(layer, x):
    layer(x)
    return layer


def test_layers_have_only_the_steps_that_they_need(x):
    plain = steps_of(called(Double(), x))
    assert plain == [
        *("_enter_dialect", "_record_symbols", "_convert_inputs", "_bind_arguments"),
        *("_attach_masks", "_infer_symbols", "_clear_losses", "_enter_scope"),
        *("_set_training", "_cast_reads"),
    ]
    assert set(steps_of(called(Masked(), x))) - set(plain) == {"_receive_masks"}
    regularized = called(layers.Dense(2, activity_regularizer="l2"), x)
    extra = {"_check_spec", "_regularize_activity"}
    assert set(steps_of(regularized)) - set(plain) == extra
    with toolkit.RematScope("full"):
        assert "_rematerialize" in steps_of(called(Double(), x))
    assert {"_build", "_set_path"} <= set(steps_of(layers.Dense(2)))
    assert "_attach_masks" not in steps_of(toolkit.Sequential([Double()]))


def test_layers_with_the_same_needs_share_a_path(x):
    first, second = called(Double(), x), called(Double(), x)
    assert call_path.compose(first) is call_path.compose(second)


def test_changed_attributes_replace_the_path(x):
    layer = called(Double(), x)
    layer(x)
    layer.activity_regularizer = regularizers.L2(0.5)
    layer(x)
    assert float(layer.losses[0]) == 6.0
    del layer.activity_regularizer
    layer(x)
    assert layer.losses == []
    layer.input_spec = layers.InputSpec(ndim=3)
    with pytest.raises(toolkit.errors.ShapeError, match="expected 3 axes"):
        layer(x)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))],
    ids=["copy", "pickle"],
)
def test_copies_compose_their_path(duplicate, x):
    layer = called(layers.Dense(2), x)
    y = layer(x)
    assert duplicate(layer)(x).numpy().tolist() == y.numpy().tolist()


def test_threads_compose_the_path_of_one_layer(x):
    layer = called(Double(), x)

    def call():
        for _ in range(200):
            layer(x)

    with threads_running(call):
        for i in range(100):
            layer.input_spec = layers.InputSpec(ndim=2, min_ndim=i % 2)
    layer.input_spec = layers.InputSpec(ndim=3)
    with pytest.raises(toolkit.errors.ShapeError, match="expected 3 axes"):
        layer(x)
