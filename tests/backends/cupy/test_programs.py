"""Programs on a device of host memory, against the NumPy backend."""

import numpy as np

import toolkit
from toolkit import ops


def test_a_function_runs_on_the_device(gpu):
    @toolkit.function
    def f(x, w, b):
        y = ops.relu(ops.matmul(x, w) + b)
        return ops.sum(ops.exp(-y), axis=1), y

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("float32") for s in ((5, 4), (4, 3), (3,))]
    expected = f(*arrays)
    with toolkit.device("gpu:0"):
        found = f(*arrays)
    assert gpu.owns(found[0]._array)
    assert found[0].device == "gpu:0"
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-5)


def small_model():
    from toolkit import layers

    toolkit.utils.set_random_seed(3)
    model = toolkit.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(6, activation="relu"),
            layers.Dropout(0.2, seed=1),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def fitted(epochs=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 8, 8, 3)).astype("float32")
    y = rng.integers(0, 3, 32)
    model = small_model()
    history = model.fit(x, y, epochs=epochs, batch_size=8, verbose=0, shuffle=False)
    return model, history.history, model.predict(x[:8], verbose=0)


def test_training_gives_the_same_on_both(gpu):
    _, expected, outputs = fitted()
    with toolkit.device("gpu:0"):
        model, found, result = fitted()
    assert all(gpu.owns(v._tensor._array) for v in model.trainable_variables)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], expected["accuracy"])
    np.testing.assert_allclose(result, outputs, rtol=1e-3, atol=1e-5)


def test_steps_are_captured_and_nothing_waits(on_host):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8, 8, 3)).astype("float32")
    y = rng.integers(0, 3, 64)
    log = on_host.device.log
    with toolkit.device("gpu:0"):
        model = small_model()
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    assert log.count("capture") == 1
    first = log.index("capture")
    last = len(log) - log[::-1].index("replay")
    assert log[first:last].count("replay") >= 3
    assert not {"download", "synchronize"} & set(log[first:last])
