"""Tests that nodes after a convolution become one factor and one term per channel."""

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers

EPSILON = 1e-3


def random_array(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def normalized(model):
    """Return the model with non-trivial moments, offsets and scales."""
    for i, variable in enumerate(model.variables):
        if "kernel" not in variable.path:
            variable.assign(random_array(*variable.shape, seed=i))
    return model


def operations(model, *inputs):
    """Return the names of the kernels that run, and the result."""
    function = tk.function(lambda *x: model(list(x) if len(x) > 1 else x[0]))
    report = function.inspect(*inputs)
    return [kernel.name for kernel in report.measure()], np.asarray(function(*inputs))


def expected(x, kernel, strides, groups, variables, epsilon=EPSILON):
    """Compute a convolution of 'same' images by 1 x 1 or 3 x 3 in NumPy's float64."""
    values = {v.path.split("/")[-1]: np.float64(v.numpy()) for v in variables}
    size, channels = kernel.shape[0], kernel.shape[-1]
    padding = ((0, 0), (size // 2,) * 2, (size // 2,) * 2, (0, 0))
    padded = np.pad(np.float64(x), padding)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
    windows = windows[:, ::strides, ::strides]
    per_group, out = x.shape[-1] // groups, channels // groups
    sums = np.concatenate(
        [
            np.einsum(
                "bhwcij,ijco->bhwo",
                windows[:, :, :, g * per_group : (g + 1) * per_group],
                np.float64(kernel)[..., g * out : (g + 1) * out],
            )
            for g in range(groups)
        ],
        -1,
    )
    sums = sums + values.get("bias", 0) - values["moving_mean"]
    factor = values.get("gamma", 1) / np.sqrt(values["moving_variance"] + epsilon)
    return sums * factor + values.get("beta", 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("filters", [32, 256])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("size, strides, groups", [(3, 1, 1), (1, 2, 1), (3, 1, 4)])
def test_normalization_after_a_convolution(
    dtype, filters, use_bias, size, strides, groups
):
    inputs = tk.Input((6, 6, filters), dtype=dtype)
    y = layers.Conv2D(
        filters,
        size,
        strides,
        padding="same" if strides == 1 else "valid",
        groups=groups,
        use_bias=use_bias,
        dtype=dtype,
    )(inputs)
    y = layers.BatchNormalization(dtype=dtype)(y)
    model = normalized(tk.Model(inputs, y))
    x = random_array(2, 6, 6, filters).astype(dtype)
    names, actual = operations(model, x)
    kernel = model.layers[1].kernel.numpy()
    # A scaled copy of more weights is not cached.
    is_few = kernel.nbytes <= 1 << 16
    assert names == ["conv, add" if is_few else "conv, multiply, add"]
    reference = expected(x, kernel, strides, groups, model.variables)
    scale = np.abs(reference).max()
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(actual, reference, rtol=0, atol=tolerance * scale)


def test_normalization_after_a_transposed_convolution():
    inputs = tk.Input((5, 5, 8))
    conv = layers.Conv2DTranspose(16, 3, strides=2)(inputs)
    model = normalized(tk.Model(inputs, layers.BatchNormalization()(conv)))
    x = random_array(2, 5, 5, 8).astype("float32")
    names, actual = operations(model, x)
    assert names == ["conv_input_grad, multiply, add"]
    np.testing.assert_allclose(actual, np.asarray(model(x)), 1e-4, 1e-4)


def block(reader=lambda normalized, conv: normalized, axis=-1):
    """Return a normalized convolution, and a function of both."""
    inputs = tk.Input((6, 6, 8))
    conv = layers.Conv2D(8, 3, padding="same")(inputs)
    y = layers.BatchNormalization(axis=axis)(conv)
    return normalized(tk.Model(inputs, reader(y, conv)))


X = random_array(2, 6, 6, 8).astype("float32")


def check(model, *names):
    op_names, actual = operations(model, X)
    assert op_names == list(names)
    np.testing.assert_allclose(actual, np.asarray(model(X)), 1e-4, 1e-4)


def test_following_nodes_are_merged():
    check(block(lambda y, conv: layers.ReLU()(y)), "conv, add, maximum")
    check(block(lambda y, conv: tk.ops.tanh(y)), "conv, add, tanh")


def test_literal_factors_stay():
    # This rounds.
    model = block(lambda y, conv: (y + 12582912.0) - 12582912.0)
    (name,), actual = operations(model, X)
    assert name == "conv, 2 add, subtract"
    np.testing.assert_array_equal(actual, np.rint(actual))


def test_divisors_stay():
    zero = tk.Variable(0.0)
    x, w = X - 1, tk.Variable(random_array(3, 3, 8, 4).astype("float32") - 1)
    step = tk.function(lambda x: (tk.ops.conv(x, w) + 1) / zero)
    assert np.isinf(step(x)).all()


def test_scales_of_constants_are_computed_when_compiled():
    w = tk.ops.convert_to_tensor(random_array(3, 3, 8, 4).astype("float32"))
    a, b = random_array(2, 4).astype("float32")
    step = tk.function(lambda x: (tk.ops.conv(x, w) + a) * b + a)
    assert [k.name for k in step.inspect(X).measure()] == ["conv, 2 add, multiply"]
    frozen = tk.Variable(a)
    step = tk.function(lambda x: ((tk.ops.conv(x, w) + a) * b + a) * frozen)
    assert [k.name for k in step.inspect(X).measure()] == ["conv, add"]
    expected = ((np.asarray(tk.ops.conv(X, w)) + a) * b + a) * a
    np.testing.assert_allclose(step(X), expected, 1e-5)


def test_sums_with_other_readers_stay():
    check(block(lambda y, conv: y * conv), "conv, 2 add, subtract, 2 multiply")


def test_non_channel_factors_stay():
    check(block(axis=1), "conv, 2 add, subtract, multiply")


def test_new_variable_value_is_used():
    model = block()
    for i, variable in enumerate(model.variables):
        before = model.predict(X, verbose=0)
        variable.assign(variable * 1.5 + i)
        actual = model.predict(X, verbose=0)
        assert not np.array_equal(before, actual), variable.path
        np.testing.assert_allclose(actual, np.asarray(model(X)), 1e-4, 1e-4)


def test_gradients_match_the_separate_operations():
    model = block()
    variables = model.trainable_variables

    def gradients(x):
        with tk.GradientTape() as tape:
            loss = tk.ops.mean(model(x, training=False) ** 2)
        return tape.gradient(loss, variables)

    for eager, compiled in zip(gradients(X), tk.function(gradients)(X), strict=True):
        np.testing.assert_allclose(compiled, eager, 1e-3, 1e-4)
