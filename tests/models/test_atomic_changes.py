"""Test that a refused change leaves models and optimizers unchanged."""

import numpy as np
import pytest

from toolkit import Sequential, Variable, layers, optimizers

X, Y = np.ones((8, 3), "float32"), np.zeros((8, 2), "float32")


def trained(optimizer="adam"):
    model = Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, name="first"),
            layers.Dense(2, name="last"),
        ],
        name="model",
    )
    model.compile(optimizer, "mse")
    model.fit(X, Y, verbose=0)
    return model


def state_of(model):
    variables = [*model.variables, *model.optimizer.variables]
    return {v.path: np.array(v) for v in variables}


def numbered(values):
    return {str(i): value for i, value in enumerate(values)}


def changed(values, last):
    """Return other values of the same shapes, with `last` for the last one."""
    return [*(np.asarray(value) + 1 for value in values[:-1]), last]


def set_weights(model, last):
    model.set_weights(changed(model.get_weights(), last))


def set_weights_of_optimizer(model, last):
    model.optimizer.set_weights(changed(model.optimizer.variables, last))


def load_optimizer(model, last):
    values = changed(model.optimizer.variables, last)
    model.optimizer.load_own_variables(numbered(values))


def load_layer(model, last):
    layer = model.layers[-1]
    layer.load_own_variables(numbered(changed([layer.kernel, layer.bias], last)))


def set_state_tree(model, last):
    tree = model.get_state_tree("numpy_array")
    weights = tree["trainable_variables"]["model"]
    weights["first"]["kernel"] += 1
    weights["last"]["bias"] = last
    model.set_state_tree(tree)


def apply(model, last):
    variables = model.trainable_variables
    model.optimizer.apply(changed(variables, last), variables)


CHANGES = [
    set_weights,
    set_weights_of_optimizer,
    load_optimizer,
    load_layer,
    set_state_tree,
    apply,
]


@pytest.mark.parametrize("last", [np.ones(9), np.array(["a", "b"])], ids=["9", "str"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_single_invalid_value_changes_nothing(change, last):
    model = trained()
    before = state_of(model)
    with pytest.raises((ValueError, TypeError)):
        change(model, last)
    after = state_of(model)
    assert before.keys() == after.keys()
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value, err_msg=path)


def test_lora_layer_is_loaded_completely_or_not_at_all():
    layer = layers.Dense(2)
    layer.build((None, 3))
    layer.enable_lora(2)
    before = layer.get_weights()
    with pytest.raises(ValueError, match="bias.*expected a value of shape"):
        layer.load_own_variables({"0": np.ones((3, 2)), "1": np.ones(9)})
    for a, b in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradient_error_names_the_variable():
    model = trained()
    variables = model.trainable_variables
    gradients = [np.zeros(v.shape, "float32") for v in variables]
    gradients[-1] = np.zeros((3, 2), "float32")
    with pytest.raises(ValueError, match=r"shape \(2,\) for .*last/bias.*\(3, 2\)"):
        model.optimizer.apply(gradients, variables)


def test_gradients_may_be_broadcast():
    model = trained(optimizers.SGD(1.0))
    variables = model.trainable_variables
    before = model.layers[-1].get_weights()
    gradients = [None, None, np.ones((4, 1), "float32"), 2.0]
    with pytest.warns(UserWarning, match="no gradient"):
        model.optimizer.apply(gradients, variables)
    after = model.layers[-1].get_weights()
    for value, old, step in zip(after, before, (1, 2), strict=True):
        np.testing.assert_allclose(value, old - step, rtol=1e-6)


def test_broadcast_gradients_are_clipped_at_full_size():
    optimizer, variable = optimizers.SGD(1.0, clipnorm=1.0), Variable(np.zeros((2, 2)))
    optimizer.apply([3.0], [variable])
    np.testing.assert_allclose(variable, np.full((2, 2), -0.5), rtol=1e-6)


def test_refused_gradients_do_not_build_the_optimizer():
    optimizer, variable = optimizers.SGD(1.0), Variable(np.zeros(2))
    with pytest.raises(ValueError, match="expected a gradient of shape"):
        optimizer.apply([np.ones(3)], [Variable(np.zeros(2))])
    assert not optimizer.built
    optimizer.apply([np.ones(2)], [variable])
    np.testing.assert_array_equal(variable, [-1.0, -1.0])


def test_partial_gradients_change_no_variable():
    updated, unused = Variable(np.zeros(2)), Variable(np.zeros(2))
    updated.overwrite_with_gradient = True
    with pytest.raises(ValueError, match="No gradients provided"):
        optimizers.SGD(1.0).apply([np.ones(2), None], [updated, unused])
    np.testing.assert_array_equal(updated, [0.0, 0.0])


@pytest.mark.parametrize(
    "arguments", [{"loss": "nothing"}, {"loss": "mse", "metrics": ["nothing"]}]
)
def test_failed_compile_keeps_the_model_compiled(arguments):
    model = trained()
    optimizer, step = model.optimizer, model.train_function
    with pytest.raises(ValueError, match="nothing"):
        model.compile("sgd", **arguments)
    assert model.optimizer is optimizer and model.loss == "mse"
    assert model.train_function is step
    assert model.get_compile_config()["optimizer"]["class_name"] == "Adam"
    model.fit(X, Y, verbose=0)


def test_incompatible_layer_is_not_added():
    model = trained()
    before = model.predict(X, verbose=0)
    with pytest.raises(ValueError, match="expected 4 axes"):
        model.add(layers.Conv2D(2, 3))
    assert [layer.name for layer in model.layers][-1] == "last" and model.built
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)
    model.add(layers.Dense(5))
    assert model.output_shape == (None, 5)


def test_model_can_be_built_after_a_failed_build():
    model = Sequential([layers.Dense(3), layers.Conv2D(2, 3)])
    with pytest.raises(ValueError, match="expected 4 axes"):
        model(np.ones((1, 4), "float32"))
    assert not model.layers[0].built
    assert model(np.ones((1, 5, 5, 7), "float32")).shape == (1, 3, 3, 2)


@pytest.mark.filterwarnings("ignore:.*Do not pass an `input_shape`")
def test_input_of_a_refused_layer_is_removed():
    model = Sequential()
    with pytest.raises(ValueError, match="expected 4 axes"):
        model.add(layers.Conv2D(2, 3, input_shape=(4,)))
    model.add(layers.Dense(2, input_shape=(5,)))
    assert model.input_shape == (None, 5)


def test_layers_are_added_to_the_list_of_layers():
    class Larger(Sequential):
        def __init__(self):
            super().__init__()
            self.extra = layers.Dense(5, name="extra")
            self.extra.build((None, 3))
            self.add(layers.Input((3,)))
            self.add(layers.Dense(4, name="own"))

    assert [v.path.split("/")[-2] for v in Larger().weights][0] == "own"


def test_refused_loss_keeps_the_optimizer_unchanged():
    model = Sequential([layers.Input((3,)), layers.Dense(2, dtype="mixed_float16")])
    model.dtype_policy = "mixed_float16"
    optimizer = optimizers.SGD(1.0, loss_scale_factor=8.0)
    with pytest.raises(ValueError, match="nothing"):
        model.compile(optimizer, "nothing")
    assert optimizer.loss_scale_factor == 8.0
