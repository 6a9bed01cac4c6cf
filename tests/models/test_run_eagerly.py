"""`compile(run_eagerly=True)`: nothing is traced, so that layers can use values."""

from functools import partial

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers, ops
from toolkit.errors import ArgumentError, NotBuiltError, TraceError

x = np.random.default_rng(0).random((48, 4), "float32")
y = x[:, :1]


@tk.saving.register_keras_serializable(package="run_eagerly")
class Values(layers.Layer):
    """A layer that needs the values of its inputs."""

    def call(self, inputs):
        if float(ops.sum(inputs)) > 0:
            return ops.convert_to_tensor(np.tanh(inputs))
        return inputs


class Untraced(Values):
    """The same layer, which accepts no traced tensors at all."""

    def call(self, inputs):
        assert "traced" not in repr(inputs)
        return super().call(inputs)


class WithShape(Untraced):
    """The same layer with a known output shape."""

    def compute_output_shape(self, input_shape):
        return input_shape


@tk.saving.register_keras_serializable(package="run_eagerly")
class Subclass(tk.Model):
    """A subclassed model."""

    def __init__(self, layer=Values, **kwargs):
        super().__init__(**kwargs)
        self.values, self.flatten = layer(), layers.Flatten()
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.flatten(self.values(inputs)))


def sequential():
    function = layers.Lambda(lambda x: ops.convert_to_tensor(np.tanh(x)))
    return tk.Sequential([function, Untraced(), layers.Dense(1)])


def sequential_with_input():
    return tk.Sequential([tk.Input((4,)), WithShape(), layers.Dense(1)])


def functional():
    inputs = tk.Input((4,))
    return tk.Model(inputs, layers.Dense(1)(WithShape()(inputs)))


class Nested(tk.Model):
    """A subclass that contains an unbuilt Sequential."""

    def __init__(self):
        super().__init__()
        self.inner = sequential()

    def call(self, inputs):
        return self.inner(inputs)


MODELS = (
    partial(Subclass, Untraced),
    sequential,
    sequential_with_input,
    functional,
    Nested,
)


def compiled(make, **options):
    model = make()
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=True, **options)
    return model


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "method", ["fit", "evaluate", "train_on_batch", "test_on_batch"]
)
def test_training_without_a_trace(make, method):
    options = {} if "batch" in method else {"verbose": 0}
    getattr(compiled(make), method)(x, y, **options)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("method", ["predict", "predict_on_batch"])
def test_prediction_without_a_trace(make, method):
    assert getattr(compiled(make), method)(x).shape == (48, 1)


@pytest.mark.parametrize("make", MODELS)
def test_inspect_says_that_there_is_no_program(make):
    with pytest.raises(ArgumentError, match="run_eagerly=True disables"):
        compiled(make).inspect(x, y)


def test_the_build_changes_no_state():
    class Noise(layers.Layer):
        """A layer that draws numbers in each call."""

        def __init__(self):
            super().__init__()
            self.seed_generator = tk.random.SeedGenerator(1)

        def call(self, inputs):
            noise = tk.random.normal(ops.shape(inputs), seed=self.seed_generator)
            return inputs + noise

    results = []
    for run_eagerly in (False, True):
        tk.utils.set_random_seed(0)
        model = tk.Sequential([Noise(), layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=run_eagerly)
        results.append(model.train_on_batch(x, y))
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_custom_cells_losses_and_metrics_use_values():
    class Cell(layers.Layer):
        """A cell that needs values."""

        state_size = 4

        def call(self, inputs, states):
            np.tanh(inputs)
            output = inputs + states[0]
            return output, [output]

    def loss(y_true, y_pred):
        float(ops.sum(y_true))
        return ops.mean(ops.square(y_true - y_pred))

    def metric(y_true, y_pred):
        return np.mean(np.abs(np.asarray(y_true) - np.asarray(y_pred)))

    model = tk.Sequential([layers.RNN(Cell()), layers.Dense(1)])
    model.compile("sgd", loss, metrics=[metric], run_eagerly=True)
    assert "metric" in model.fit(x[:, None], y, verbose=0).history


def test_summary_has_the_shapes_of_the_first_call():
    model = Subclass()
    model.compile("adam", "mse", run_eagerly=True)
    texts = []
    model.summary(print_fn=texts.append)
    model.fit(x, y, verbose=0)
    model.summary(print_fn=texts.append)
    assert texts[0].count("?") == 3
    assert "(32, 4)" in texts[1] and "?" not in texts[1]


def test_summary_of_layers_that_cannot_run_with_symbols():
    layer = Values()
    layer.built = True
    model = Subclass()
    model.values = layer
    model.values._build_shapes = {"input_shape": (2, 4)}
    texts = []
    model.summary(print_fn=texts.append)
    assert "?" in texts[0]


def test_a_sequential_model_has_symbols_on_request():
    model = tk.Sequential([layers.Dense(3), layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    model.fit(x, y, verbose=0)
    assert model.output_shape == (None, 1)
    assert model.inputs[0].shape == (None, 4)
    model = compiled(lambda: tk.Sequential([Values(), layers.Dense(1)]))
    model.predict(x)
    with pytest.raises(NotBuiltError, match="has no graph: a tensor of shape"):
        _ = model.inputs


def test_a_call_without_compile_can_use_values():
    assert tk.Sequential([Values(), layers.Dense(1)])(x).shape == (48, 1)


def test_files_of_models_that_need_values(tmp_path):
    model = compiled(lambda: tk.Sequential([Values(), layers.Dense(1)]))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tk.saving.load_model(tmp_path / "model.keras")
    assert np.array_equal(loaded.predict(x), model.predict(x))


def test_copies_of_models_without_symbols():
    model = compiled(lambda: tk.Sequential([layers.Dense(3), layers.Dense(1)]))
    model.fit(x, y, verbose=0)
    clone = tk.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert np.array_equal(clone.predict(x), model.predict(x))
    model = compiled(lambda: tk.Sequential([Values(), layers.Dense(1)]))
    model.fit(x, y, verbose=0)
    clone = tk.models.clone_model(model)
    assert not clone.built and clone(x).shape == (48, 1)


def test_the_advice_fits_the_trace():
    with pytest.raises(TraceError, match="compile the model with run_eagerly=True"):
        model = Subclass()
        model.compile("adam", "mse")
        model.fit(x, y, verbose=0)
    with pytest.raises(TraceError, match="compute_output_shape") as error:
        layers.Lambda(lambda x: np.tanh(x))(tk.Input((4,)))
    assert "output_shape" in str(error.value)
    with pytest.raises(TraceError, match="call it outside of `toolkit.function`"):
        tk.function(lambda x: np.tanh(x))(x)
