"""Test Keras on toolkit: models train, predict, save and load."""

import keras_toolkit  # noqa: F401  # isort: skip

import keras
import numpy as np
import pytest
from keras import layers, ops

import toolkit


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


def data(samples=64, features=8, classes=3):
    random = np.random.default_rng(0)
    x = random.normal(size=(samples, features)).astype("float32")
    y = np.argmax(x @ random.normal(size=(features, classes)), axis=-1)
    return x, y.astype("int32")


def mlp(**options):
    model = keras.Sequential(
        [layers.Dense(16, activation="relu"), layers.Dropout(0.1), layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], **options)
    return model


def _fit(library, shuffle):
    """Return the first weights, the losses and random numbers of one library."""
    x, y = data()
    library.utils.set_random_seed(0)
    model = library.Sequential(
        [
            library.Input((8,)),
            library.layers.Reshape((2, 2, 2)),
            library.layers.Conv2D(4, 2, activation="relu"),
            library.layers.Flatten(),
            library.layers.Dropout(0.5),
            library.layers.Dense(3, activation="softmax"),
        ]
    )
    first = [np.asarray(w.value) for w in model.weights]
    model.compile("adam", "sparse_categorical_crossentropy")
    fit = model.fit(x, y, batch_size=8, epochs=3, shuffle=shuffle, verbose=0)
    numbers = np.asarray(library.random.normal((5,), seed=3))
    return first, fit.history["loss"], numbers


def test_equal_seeds_of_the_two_libraries():  # as docs/migrating/keras.md says
    (ours, our_losses, our_numbers), (theirs, their_losses, their_numbers) = (
        _fit(library, shuffle=False) for library in (toolkit, keras)
    )
    for our_weight, their_weight in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our_weight, their_weight)
    np.testing.assert_allclose(our_losses, their_losses, rtol=1e-5)
    np.testing.assert_array_equal(our_numbers, their_numbers)


def test_fit_learns_and_traces_the_step_once():
    x, y = data()
    model = mlp()
    traces = []

    class Counting(keras.Sequential):
        def train_step(self, batch):
            traces.append(1)
            return super().train_step(batch)

    model = Counting(model.layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=16, epochs=30, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert len(traces) == 1


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "AdamW", "Lion"])
def test_compiled_training_equals_eager_training(name):
    x, y = data()
    weights = []
    for run_eagerly in (False, True):
        keras.utils.set_random_seed(0)
        model = mlp(run_eagerly=run_eagerly)
        model.optimizer = keras.optimizers.get(name)
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for compiled, eager in zip(*weights, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-4, atol=1e-5)


def test_steps_per_execution_change_no_result():
    x, y = data()
    results = []
    for steps in (1, 4):
        keras.utils.set_random_seed(0)
        model = mlp(steps_per_execution=steps)
        model.fit(x, y, batch_size=16, epochs=2, verbose=0)
        results.append(model.predict(x, batch_size=16, verbose=0))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


def test_gradient_accumulation_equals_a_large_batch():
    x, y = data()
    weights = []
    for batch_size, steps in ((32, None), (16, 2)):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([layers.Dense(3)])
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss)
        model.fit(x, y, batch_size=batch_size, verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for large, accumulated in zip(*weights, strict=True):
        np.testing.assert_allclose(large, accumulated, rtol=1e-5, atol=1e-6)


def test_evaluate_and_on_batch_methods():
    x, y = data()
    model = mlp()
    logs = model.train_on_batch(x, y, return_dict=True)
    assert set(logs) == {"loss", "accuracy"}
    loss, accuracy = model.evaluate(x, y, verbose=0)
    assert model.test_on_batch(x, y)[0] == pytest.approx(loss, rel=1e-5)
    assert 0 <= accuracy <= 1
    predictions = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        model.predict_on_batch(x), predictions, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(np.asarray(model(x)), predictions, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", [layers.SimpleRNN, layers.GRU, layers.LSTM])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("go_backwards", [False, True])
def test_recurrent_layers_equal_their_cells(cell, masked, go_backwards):
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    mask = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]], bool) if masked else None
    layer = cell(4, return_sequences=True, go_backwards=go_backwards)
    outputs = np.asarray(layer(x, mask=mask))
    states = layer.get_initial_state(2)
    expected, last = [], np.zeros((2, 4), "float32")
    for step in reversed(range(5)) if go_backwards else range(5):
        output, new_states = layer.cell(x[:, step], states)
        is_kept = np.ones((2, 1), bool) if mask is None else mask[:, step, None]
        last = np.where(is_kept, output, last)
        states = [
            np.where(is_kept, a, b) for a, b in zip(new_states, states, strict=True)
        ]
        expected.append(last)
    np.testing.assert_allclose(outputs, np.stack(expected, 1), rtol=1e-5, atol=1e-6)


def test_batch_norm_updates_its_averages_in_the_program():
    x, y = data()
    model = keras.Sequential([layers.BatchNormalization(momentum=0.5), layers.Dense(3)])
    model.compile("sgd", "mse")
    model.fit(x, np.eye(3, dtype="float32")[y], batch_size=64, verbose=0)
    mean = np.asarray(model.layers[0].moving_mean)
    np.testing.assert_allclose(mean, 0.5 * x.mean(0), rtol=1e-4, atol=1e-6)


def test_gradient_tape_takes_variables_of_keras():
    layer = layers.Dense(2, use_bias=False)
    x = np.ones((3, 4), "float32")
    layer.build(x.shape)
    with toolkit.GradientTape() as tape:
        loss = ops.sum(layer(x))
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    np.testing.assert_allclose(gradient, np.full((4, 2), 3.0))


def test_frozen_layers_do_not_change():
    x, y = data()
    model = mlp()
    model.build(x.shape)
    model.layers[0].trainable = False
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.layers[0].get_weights()
    model.fit(x, y, verbose=0)
    for old, new in zip(before, model.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_settings_of_keras_equal_those_of_toolkit():
    keras.config.set_image_data_format("channels_first")
    try:
        assert toolkit.config.image_data_format() == "channels_first"
        images = np.ones((2, 3, 4, 4), "float32")
        assert keras.ops.image.resize(images, (2, 2)).shape == (2, 3, 2, 2)
    finally:
        keras.config.set_image_data_format("channels_last")
    assert toolkit.config.image_data_format() == "channels_last"


def test_files_are_read_by_toolkit(tmp_path):
    x, _ = data()
    model = mlp()
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    read = toolkit.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(read.predict(x, verbose=0), expected, rtol=1e-5)
    read.save(tmp_path / "again.keras")
    if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 15):
        return  # older versions refuse the configuration of initializers
    restored = keras.saving.load_model(tmp_path / "again.keras")
    np.testing.assert_allclose(restored.predict(x, verbose=0), expected, rtol=1e-5)


def test_same_seed_gives_the_same_bits():
    x, y = data()
    weights = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        model = mlp()
        model.fit(x, y, batch_size=16, epochs=2, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_mixed_precision_keeps_variables_in_float32():
    x, y = data()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = mlp()
        model.fit(x, y, verbose=0)
        assert {v.dtype for v in model.trainable_variables} == {"float32"}
        assert model(x).dtype == "bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_onnx_file_computes_the_same(tmp_path):
    onnx = pytest.importorskip("onnx.reference")
    x, _ = data()
    model = mlp()
    expected = model.predict(x, verbose=0)
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = onnx.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    (outputs,) = session.run(None, {session.input_names[0]: x})
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_saved_model_is_refused(tmp_path):
    model = mlp()
    model.build((None, 8))
    with pytest.raises(NotImplementedError, match="only currently supports"):
        model.export(tmp_path / "saved")


def test_step_that_reads_values_runs_eagerly_after_a_warning():
    class Branching(keras.layers.Layer):
        def call(self, x):
            return x * 2.0 if float(ops.sum(x)) > 0 else x

    model = keras.Sequential([Branching(), layers.Dense(3)])
    model.compile("sgd", "mse")
    x = np.ones((8, 2), "float32")
    with pytest.warns(UserWarning, match="operation by operation"):
        model.fit(x, np.zeros((8, 3), "float32"), verbose=0)
    model.fit(x, np.zeros((8, 3), "float32"), verbose=0)
    with pytest.warns(UserWarning, match="operation by operation"):
        predicted = model.predict(x, verbose=0)
    np.testing.assert_allclose(predicted, np.asarray(model(x)), rtol=1e-5)


def test_specs_of_code_that_reads_values():
    def function(x):
        return x[: int(ops.sum(x)) + 1]

    spec = keras.src.backend.compute_output_spec(
        function, keras.KerasTensor((None, 3), "float32")
    )
    assert spec.shape == (1, 3)


def test_a_dataset_of_toolkit_trains_like_its_arrays():
    x, y = data()
    dataset = toolkit.data.Dataset.from_tensor_slices((x, y)).batch(16).prefetch(2)
    results = []
    for kwargs in ({"x": x, "y": y, "batch_size": 16}, {"x": dataset}):
        keras.utils.set_random_seed(0)
        model = mlp()
        history = model.fit(
            **kwargs,
            epochs=3,
            shuffle=False,
            verbose=0,
            class_weight={0: 1.0, 1: 2.0, 2: 0.5},
            validation_data=kwargs["x"] if kwargs["x"] is dataset else (x, y),
        )
        score = model.evaluate(**kwargs, verbose=0)
        results.append([history.history["loss"], score, *model.get_weights()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert model.predict(dataset, verbose=0).shape == (64, 3)


def test_datasets_without_a_known_end():
    x, y = data()
    dataset = toolkit.data.Dataset.from_tensor_slices((x, y)).batch(16)
    model = mlp()
    history = model.fit(dataset.repeat(), epochs=2, steps_per_epoch=3, verbose=0)
    assert len(history.history["loss"]) == 2
    generated = toolkit.data.Dataset.from_generator(
        lambda: iter([(x[:8], y[:8])] * 3), output_signature=None
    )
    with pytest.warns(UserWarning, match="ran out of data"):  # as for tf.data
        history = model.fit(generated, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_a_dataset_takes_no_separate_labels():
    x, y = data()
    dataset = toolkit.data.Dataset.from_tensor_slices((x, y)).batch(16)
    with pytest.raises(ValueError, match="`y` must be None.*toolkit.data.Dataset"):
        mlp().fit(dataset, y)
