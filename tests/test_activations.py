"""Tests of activations: functions that are not in ops, names and configs."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close, check_grads
from toolkit import activations, errors, ops
from toolkit.ops.symbolic import KerasTensor

X = np.array([-7.0, -2.0, -1.5, -0.25, 0.0, 0.75, 1.25, 3.0, 7.5])


def rectified(x, negative_slope=0.0, max_value=np.inf, threshold=0.0):
    above = np.minimum(x, max_value) if threshold >= 0 else x
    return np.where(x > threshold, above, negative_slope * (x - threshold))


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"negative_slope": 0.1},
        {"max_value": 2.0},
        {"max_value": 6},
        {"threshold": 1.0},
        {"threshold": -1.0},
        {"negative_slope": 0.5, "max_value": 2.0, "threshold": 1.0},
        {"negative_slope": 0.5, "threshold": -1.0},
    ],
)
def test_relu(attrs):
    assert_close(activations.relu(X, **attrs), rectified(X, **attrs))
    away_from_zero = X[np.abs(X) > 0]
    check_grads(lambda x: activations.relu(x, **attrs), [away_from_zero], order=2)
    assert np.isnan(activations.relu([np.nan], **attrs).numpy()).all()


def test_relu_limits_to_zero_from_below():
    """Like Keras, with a limit, values above a negative threshold are at least 0."""
    y = activations.relu([-0.5, 0.5, 3.0], max_value=2.0, threshold=-1.0)
    assert y.numpy().tolist() == [0, 0.5, 2]


def test_remaining_activations():
    assert_close(activations.mish(X), X * np.tanh(np.log1p(np.exp(X))))
    assert_close(activations.exponential(X), np.exp(X))
    assert activations.linear(X) is X
    assert_close(activations.gelu(X), ops.gelu(X, approximate=False))
    assert_close(activations.gelu(X, approximate=True), ops.gelu(X))
    check_grads(activations.mish, [X], order=2)


NAMES = (
    *("celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid"),
    *("hard_silu", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax"),
    *("mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax"),
    *("softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax"),
    *("squareplus", "tanh", "tanh_shrink", "threshold"),
)


def test_every_operation_of_the_module_has_a_name():
    content = vars(activations)
    operations = {name for name, x in content.items() if hasattr(x, "__wrapped__")}
    aliases = {"swish", "hard_swish", "legacy_hard_sigmoid"}
    assert operations | {"linear"} == aliases | set(NAMES)
    assert all(activations.get(name) is content[name] for name in operations)


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    function = activations.get(name)
    assert function is getattr(activations, name)
    assert activations.serialize(function) == name
    assert activations.deserialize(name) is function
    config = toolkit.serialization.serialize_keras_object(function)
    assert activations.get(config) is function or config["module"] == "keras.ops"
    if name not in ("glu", "threshold"):
        symbol = KerasTensor((None, 4))
        assert function(symbol).shape == (None, 4)


def test_get_accepts_names_functions_and_configs():
    assert activations.get(None) is activations.linear
    assert activations.get(np.tanh) is np.tanh
    assert activations.get("swish") is activations.get("silu") is ops.silu
    assert activations.get("hard_swish") is activations.hard_swish is ops.hard_silu


def twice(x):
    return 2 * x


def test_custom_functions():
    with toolkit.serialization.custom_object_scope({"twice": twice}):
        assert activations.get("twice") is twice
    config = activations.serialize(twice)
    assert activations.deserialize(config, {"twice": twice}) is twice

    def relu(x):
        return x

    assert activations.serialize(relu) != "relu"  # another function of the same name


def test_bad_input():
    with pytest.raises(errors.ArgumentError, match="'rel'; did you mean 'relu'"):
        activations.get("rel")
    with pytest.raises(errors.ArgumentError, match="received 3"):
        activations.get(3)
    with pytest.warns(UserWarning, match="contain no code"):
        activations.serialize(lambda x: x)
