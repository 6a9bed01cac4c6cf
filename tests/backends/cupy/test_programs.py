"""Programs on a device of host memory, against the NumPy backend."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.backends.cupy import joining
from toolkit.backends.cupy.steps import Dnn


def test_a_function_runs_on_the_device(gpu):
    @toolkit.function
    def f(x, w, b):
        y = ops.relu(ops.matmul(x, w) + b)
        return ops.sum(ops.exp(-y), axis=1), y

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("float32") for s in ((5, 4), (4, 3), (3,))]
    expected = f(*arrays)
    with toolkit.device("gpu:0"):
        actual = f(*arrays)
    assert gpu.memory.owns(actual[0]._array)
    assert actual[0].device == "gpu:0"
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-5)


def test_threads_without_a_row_use_no_slot(gpu):
    """They reduce no element, and their index must stay in range."""

    @toolkit.function
    def f(x, y):
        best = ops.argmax(x, axis=-1, keepdims=True)
        return ops.take_along_axis(y, best, axis=-1)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1, 20)).astype("float32")
    with toolkit.device("gpu:0"):
        actual = f(x, y)
    assert actual.numpy() == y[0, x.argmax()]


@pytest.mark.parametrize("follow", ["bias", "residual", "relu"])
def test_epilogue_of_a_transposed_convolution_with_uneven_padding(gpu, follow):
    @toolkit.function
    def f(x, w, b, r):
        y = ops.conv_transpose(x, w, 2, padding="same") + b
        y = y if follow == "bias" else y + r
        return ops.relu(y) if follow == "relu" else y

    rng = np.random.default_rng(0)
    shapes = (2, 4, 4, 6), (3, 3, 4, 6), (4,), (2, 8, 8, 4)
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    expected = f(*arrays).numpy()
    with toolkit.device("gpu:0"):
        np.testing.assert_allclose(f(*arrays).numpy(), expected, 1e-5, 1e-5)


def small_model():
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


def digits(count):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 8, 8, 3)).astype("float32")
    return x, rng.integers(0, 3, count)


OPTIONS = {"batch_size": 8, "verbose": 0, "shuffle": False}


def test_training_matches_the_cpu(gpu, unwatched_losses):
    """The same results, in captured steps that nothing waits for."""
    x, y = digits(64)
    model, twin = small_model(), small_model()
    expected = twin.fit(x, y, **OPTIONS).history
    with toolkit.device("gpu:0"):
        actual = model.fit(x, y, **OPTIONS).history
        result = model.predict(x[:8], verbose=0)
    assert all(gpu.memory.owns(v._tensor._array) for v in model.trainable_variables)
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-4)
    np.testing.assert_allclose(actual["accuracy"], expected["accuracy"])
    outputs = twin.predict(x[:8], verbose=0)
    np.testing.assert_allclose(result, outputs, rtol=1e-3, atol=1e-5)
    # Without the scope, the model continues on its device.
    second = model.predict(x[:8], verbose=0)
    np.testing.assert_allclose(second, result, rtol=1e-4, atol=1e-6)
    log = getattr(gpu.device, "log", None)
    if log:
        first = log.index("capture")
        steps = log[first : log.index("download", first)]
        # Results moved in the second step: both buffers of a batch were bound twice.
        assert steps.count("replay") == len(x) // OPTIONS["batch_size"] - 3
        assert steps.count("capture") == 2


def test_updates_of_all_weights_are_one_launch(gpu, monkeypatch):
    started = []
    real = joining.BoundLaunch.__call__
    monkeypatch.setattr(
        joining.BoundLaunch,
        "__call__",
        lambda s: started.append(s.kernel.name) or real(s),
    )
    model = small_model()
    with toolkit.device("gpu:0"):
        model.fit(*digits(8), **OPTIONS)
    assert any(name.startswith("many") for name in started)


@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
)
def test_mixed_precision_scales_its_loss_on_the_device(gpu, policy):
    x, y = digits(32)
    x = x.reshape(32, -1)

    def trained(device):
        toolkit.utils.set_random_seed(3)
        model = toolkit.Sequential(
            [layers.Dense(8, "relu", dtype=policy), layers.Dense(3, dtype="float32")]
        )
        model.build((None, x.shape[1]))
        loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(toolkit.optimizers.SGD(0.1), loss, auto_scale_loss=True)
        with toolkit.device(device):
            losses = model.fit(x, y, **OPTIONS, epochs=2).history["loss"]
        return losses, model

    expected, _ = trained("cpu:0")
    actual, model = trained("gpu:0")
    assert all(gpu.memory.owns(v._tensor._array) for v in model.variables)
    np.testing.assert_allclose(actual, expected, rtol=1e-2)


@pytest.mark.parametrize(
    "key_shape, options, graphs",
    [
        ((2, 6, 3, 8), {"is_causal": True}, ["sdpa", "sdpa_backward"]),
        # Heads that share keys, and more sources than targets.
        ((2, 9, 1, 8), {"is_causal": True}, ["sdpa", "sdpa_backward"]),
        ((2, 4, 3, 8), {"scale": 0.3}, ["sdpa", "sdpa_backward"]),
        # With a mask, a bias or another width it is composed.
        ((2, 6, 3, 8), {"mask": np.tri(6, dtype=bool)[::-1]}, []),
        pytest.param(
            *((2, 6, 3, 8), {"bias": np.eye(6, dtype="float16")}, []),
            marks=pytest.mark.slow,
        ),
        pytest.param((2, 6, 3, 6), {}, [], marks=pytest.mark.slow),
    ],
)
def test_attention_and_its_gradients_are_two_graphs_of_cudnn(
    gpu, key_shape, options, graphs
):
    rng = np.random.default_rng(0)
    query_shape = (2, 6, 3, key_shape[3])
    shapes = query_shape, key_shape, key_shape, query_shape
    arrays = [rng.normal(size=s).astype("float16") for s in shapes]

    @toolkit.function
    def step(q, k, v, g):
        with toolkit.GradientTape() as tape:
            tape.watch([q, k, v])
            out = ops.dot_product_attention(q, k, v, **options)
        return out, *tape.gradient(out, [q, k, v], g)

    expected = step(*arrays)
    with toolkit.device("gpu:0"):
        actual = step(*arrays)
        program = step.get_concrete_function(*arrays).program
    for y, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(y.numpy(), e.numpy(), rtol=1e-2, atol=1e-2)
    steps = [s for n in program.lowered if n for s in n.steps if isinstance(s, Dnn)]
    assert [s.signature.nodes[0].op for s in steps] == graphs
