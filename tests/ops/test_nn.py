"""Test neural-network ops beyond the table: kinks, extreme values, masks, errors."""

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit import Variable, errors, function, ops
from toolkit.autodiff.tape import GradientTape
from toolkit.ops.normalization import normalize_batch
from toolkit.ops.symbolic import KerasTensor


def gradient(f, *inputs):
    """Return the gradients of the sum of f."""
    variables = [Variable(np.asarray(x, np.float32)) for x in inputs]
    with GradientTape() as tape:
        y = f(*variables)
    gradients = tape.gradient(y, variables)
    return (
        [g.numpy() for g in gradients] if len(gradients) > 1 else gradients[0].numpy()
    )


# --- activations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, kinks, expected",
    [
        ("relu", [0.0], [0.0]),
        ("relu6", [0.0, 6.0], [0.0, 0.0]),
        ("leaky_relu", [0.0], [0.2]),
        ("elu", [0.0], [1.0]),
        ("hard_sigmoid", [-3.0, 3.0], [0.0, 0.0]),
        ("hard_tanh", [-1.0, 1.0], [0.0, 0.0]),
        ("hard_shrink", [-0.5, 0.5], [0.0, 0.0]),
        ("soft_shrink", [-0.5, 0.5], [0.0, 0.0]),
        ("softplus", [0.0], [0.5]),
        ("log_sigmoid", [0.0], [0.5]),
        ("squareplus", [0.0], [0.5]),
        ("softsign", [0.0], [1.0]),
    ],
)
def test_gradients_at_kinks(name, kinks, expected):
    assert_close(gradient(getattr(ops, name), kinks), expected)


SMOOTH = (
    *("elu", "selu", "celu", "softplus", "log_sigmoid", "softsign", "silu", "gelu"),
    *("tanh_shrink", "squareplus", "hard_silu", "sigmoid"),
)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
def test_large_arguments_have_finite_gradients(name, dtype):
    x = Variable(np.array([-2e4, -200, 200, 2e4], dtype))
    with GradientTape() as tape:
        y = getattr(ops, name)(x)
    assert y.dtype == dtype
    assert np.isfinite(y.numpy()).all() or name == "squareplus"
    if name != "squareplus" or dtype == "float32":
        assert np.isfinite(tape.gradient(y, x).numpy()).all()


@pytest.mark.parametrize(
    "name",
    [
        *SMOOTH,
        *("relu", "relu6", "leaky_relu", "hard_sigmoid", "hard_tanh", "hard_shrink"),
        *("soft_shrink", "sparse_plus", "sparse_sigmoid"),
    ],
)
def test_nan_propagates(name):
    assert np.isnan(getattr(ops, name)([np.nan, 1.0]).numpy()[0])


def test_softplus_has_a_second_derivative_at_zero():
    x = Variable(0.0)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = ops.softplus(x)
        g = inner.gradient(y, x)
    assert float(outer.gradient(g, x)) == 0.25


def test_squareplus_avoids_cancellation():
    assert_close(ops.squareplus(-1000.0), 1e-3, factor=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_16_bit_floats_avoids_cancellation(dtype, approximate):
    x = ops.convert_to_tensor([-3.0, -2.5, -2.0, 3.0], dtype)
    exact = ops.gelu(ops.cast(x, "float64"), approximate)
    assert ops.gelu(x, approximate).tolist() == ops.cast(exact, dtype).tolist()


def test_sign_of_a_boolean_is_unchanged():
    for sign in (ops.sign, function(ops.sign)):
        y = sign(np.array([True, False]))
        assert y.dtype == "bool" and y.tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_become_floats(dtype):
    x = np.array([0, 1], dtype)
    for name in ("softplus", "silu", "softmax", "elu", "gelu"):
        assert getattr(ops, name)(x).dtype == "float32"


def test_invalid_activation_arguments():
    with pytest.raises(errors.ArgumentError, match="celu: expected alpha != 0"):
        ops.celu([1.0], alpha=0)
    with pytest.raises(errors.ShapeError, match=r"glu: .* shape \(2, 3\)"):
        ops.glu(np.ones((2, 3)))


# --- softmax --------------------------------------------------------------------------


def test_softmax_of_extreme_logits():
    x = np.array([[1e4, 0, -1e4], [-3e38, -3e38, 3e38], [-np.inf, 0, 0]], np.float32)
    expected = [[1, 0, 0], [0, 0, 1], [0, 0.5, 0.5]]
    assert_close(ops.softmax(x), expected)
    assert_close(ops.log_softmax(x[0]), [0, -1e4, -2e4])
    assert not np.isnan(gradient(lambda x: ops.softmax(x)[:, 0], x)).any()
    assert not np.isnan(gradient(lambda x: ops.log_softmax(x)[:, 1], x)).any()


def test_softmax_over_one_element_warns():
    with pytest.warns(UserWarning, match="axis -1 has extent 1"):
        ops.softmax(np.ones((3, 1)))
    ops.softmax(KerasTensor((None, 3)), axis=0)  # unknown is not 1


def test_sparsemax_gradient_is_zero_outside_the_support():
    x = [[3.0, 2.5, -1.0]]
    assert_close(ops.sparsemax(x), [[0.75, 0.25, 0.0]])
    assert_close(gradient(lambda x: ops.sparsemax(x)[:, 0], x), [[0.5, -0.5, 0.0]])


# --- normalizations -------------------------------------------------------------------


def test_zero_vectors_normalize_to_zero():
    zeros = np.zeros((2, 3), np.float32)
    for order in (1, 2, 3):
        assert not ops.normalize(zeros, order=order).numpy().any()
        slope = gradient(lambda x, p=order: ops.normalize(x, order=p), zeros)
        assert np.isfinite(slope).all()
    for name in ("layer_normalization", "rms_normalization"):
        assert np.isfinite(gradient(getattr(ops, name), zeros)).all()


def test_variance_of_data_far_from_zero():
    x = np.float32(1e4) + np.arange(4, dtype=np.float32)
    mean, variance = ops.moments(x, 0)
    assert (float(mean), float(variance)) == (10001.5, 1.25)
    assert_close(
        ops.layer_normalization(x), (np.arange(4) - 1.5) / np.sqrt(1.25), factor=10
    )


def test_half_precision_statistics_do_not_overflow():
    x = np.array([300.0, -300, 300, -300], np.float16)
    mean, variance = ops.moments(x, 0)
    assert (mean.dtype, float(mean)) == ("float16", 0)
    assert (variance.dtype, float(variance)) == ("float16", 65504)
    assert_close(ops.layer_normalization(x), np.sign(x))
    assert_close(ops.rms_normalization(x), np.sign(x))
    assert_close(ops.normalize(x), np.sign(x) / 2)


def test_invalid_normalization_arguments():
    with pytest.raises(errors.ShapeError, match=r"mean of shape \(4,\) .* \(3,\)"):
        ops.batch_normalization(np.ones((2, 4)), np.ones(3), np.ones(4), -1)
    with pytest.raises(errors.ArgumentError, match="order, an integer >= 1"):
        ops.normalize(np.ones(3), order=0)
    with pytest.raises(errors.ShapeError, match="psnr: expected equal shapes"):
        ops.psnr(np.ones(3), np.ones(4), 1.0)


# --- losses ---------------------------------------------------------------------------


def test_losses_of_extreme_logits():
    x = np.array([[1e4, -1e4], [-1e38, 1e38]], np.float32)
    t = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)

    def binary(x):
        return ops.binary_crossentropy(t, x, from_logits=True)

    def categorical(x):
        return ops.categorical_crossentropy(t, x, from_logits=True)

    def sparse(x):
        return ops.sparse_categorical_crossentropy([0, 1], x, from_logits=True)

    for loss in (binary, categorical, sparse):
        assert_close(loss(x), np.zeros(loss(x).shape))
        assert_close(gradient(loss, x), np.zeros((2, 2)))
    assert_close(binary(-x), abs(x))
    assert_close(categorical(-x), [2e4, 2e38])
    assert_close(sparse(-x), [2e4, 2e38])
    assert_close(gradient(binary, -x), [[-1, 1], [1, -1]])
    assert_close(gradient(categorical, -x), [[-1, 1], [1, -1]])
    assert_close(gradient(sparse, -x), [[-1, 1], [1, -1]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_losses_of_certain_probabilities_are_finite(dtype):
    p = ops.cast([[1.0, 0.0]], dtype)
    losses = (
        ops.binary_crossentropy(1 - p, p),
        ops.categorical_crossentropy(1 - p, p),
        ops.sparse_categorical_crossentropy([1], p),
    )
    for loss in losses:
        assert loss.dtype == dtype
        # -log(1e-7), with the resolution of 1 - 1e-7 in float32.
        assert (abs(loss.numpy().astype(np.float64) - 16.0) < 0.2).all()


@pytest.mark.parametrize("label", [-1, -4, 3, 7])
@pytest.mark.parametrize("from_logits", [False, True])
def test_labels_out_of_range(label, from_logits):
    p = np.full((2, 3), 1 / 3, np.float32)

    def loss(labels, p):
        return ops.sparse_categorical_crossentropy(labels, p, from_logits)

    message = rf"expected labels in \[0, 3\); received {label}$"
    with pytest.raises(IndexError, match=message):
        loss(np.array([0, label]), p)
    with pytest.raises(IndexError):
        function(loss)(np.array([0, label]), p)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint32", "float32"])
def test_labels_of_any_dtype(dtype):
    p = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    loss = ops.sparse_categorical_crossentropy(np.array([1, 0], dtype), p)
    assert_close(loss, -np.log([0.75, 0.5]))


def test_losses_of_wrong_shapes():
    with pytest.raises(errors.ShapeError, match=r"same shape.*\(2,\) and \(3,\)"):
        ops.binary_crossentropy(np.ones(2), np.ones(3))
    with pytest.raises(errors.ShapeError, match=r"target of shape \(2,\).*\(3,\)"):
        ops.sparse_categorical_crossentropy(np.zeros(3, int), np.ones((2, 4)))
    with pytest.raises(errors.ShapeError, match="axis of classes"):
        ops.categorical_crossentropy(1.0, 1.0)


# --- attention ------------------------------------------------------------------------


def test_fully_masked_rows():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 1, 4)).astype(np.float32)
    mask = np.array([[False, False], [True, False]])

    def attend(q, k, v):
        return ops.dot_product_attention(q, k, v, mask=mask)

    y = attend(q, k, v).numpy()[0, :, 0]
    assert_close(y, [v[0, :, 0].mean(0), v[0, 0, 0]])
    gq, gk, gv = gradient(attend, q, k, v)
    assert np.isfinite(gv).all()
    assert not np.isnan(gq).any()
    assert_close(gk, np.zeros(k.shape))  # no weight depends on a key


def test_attention_in_half_precision():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 3, 2, 4))
    exact = ops.dot_product_attention(q, k, v, is_causal=True)
    result = ops.dot_product_attention(
        *(x.astype(np.float16) for x in (q, k, v)), is_causal=True
    )
    assert result.dtype == "float16"
    assert_close(result, exact.numpy())


def test_invalid_attention_arguments():
    x = np.ones((1, 2, 3, 4))
    with pytest.raises(errors.ArgumentError, match="flash_attention=True"):
        ops.dot_product_attention(x, x, x, flash_attention=True)
    with pytest.raises(errors.ShapeError, match=r"\(1, 2, 3, 4\), \(1, 2, 2, 4\)"):
        ops.dot_product_attention(x, x[:, :, :2], x[:, :, :2])


# --- convolutions and pools -----------------------------------------------------------


@pytest.mark.parametrize(
    "x, w, message",
    [
        ((2, 5), (3, 3, 1), "expected inputs with a batch, 1 to 3 spatial"),
        ((2, 5, 1), (3, 3, 1, 1), "expected a kernel of 3 axes"),
        ((2, 5, 3), (3, 2, 4), "inputs have 3 channels"),
        ((2, 5, 4), (3, 2, 3), "has 3 filters"),
        ((2, 5, 1), (6, 1, 1), "does not fit into spatial shape"),
    ],
)
def test_convolutions_of_invalid_shapes(x, w, message):
    with pytest.raises(errors.ShapeError, match=message):
        ops.conv(np.ones(x), np.ones(w))
    with pytest.raises(errors.ShapeError, match=message):
        ops.conv(KerasTensor(x), KerasTensor(w))


def test_invalid_convolution_arguments():
    x, w = np.ones((1, 5, 5, 2)), np.ones((3, 3, 2, 2))
    with pytest.raises(errors.ArgumentError, match="padding: expected one of 'same'"):
        ops.conv(x, w, padding="full")
    with pytest.raises(errors.ArgumentError, match="strides must be a positive"):
        ops.conv(x, w, strides=0)
    with pytest.raises(errors.ArgumentError, match="dilation_rate must be .* 2 of"):
        ops.conv(x, w, dilation_rate=(1, 1, 1))
    with pytest.raises(errors.ArgumentError, match="data_format"):
        ops.conv(x, w, data_format="channels_middle")
    with pytest.raises(errors.ArgumentError, match="output_padding must be"):
        ops.conv_transpose(x, w, output_padding=-1)
    with pytest.raises(errors.ShapeError, match="the kernel .* is for 3"):
        ops.depthwise_conv(x, np.ones((3, 3, 3, 1)))
    with pytest.raises(errors.ShapeError, match="the kernel .* is for 4"):
        ops.conv_transpose(x, np.ones((3, 3, 2, 4)))


def test_symbolic_convolutions_infer_their_shapes():
    x = KerasTensor((None, 32, None, 3))
    y = ops.conv(x, np.ones((3, 3, 3, 8), np.float32), strides=2, padding="same")
    assert (y.shape, y.dtype) == ((None, 16, None, 8), "float32")
    assert ops.max_pool(y, 2).shape == (None, 8, None, 8)
    z = ops.conv_transpose(y, np.ones((3, 3, 4, 8), np.float32), 2, "same")
    assert z.shape == (None, 32, None, 4)


def test_integer_convolution_and_pool():
    x = np.arange(8, dtype=np.int32).reshape(1, 4, 2)
    y = ops.conv(x, np.ones((2, 2, 1), np.int32))
    assert (y.dtype, y.numpy()[0, :, 0].tolist()) == ("int32", [6, 14, 22])
    y = ops.max_pool(-x, 3, 2, "same")
    assert (y.dtype, y.numpy()[0, :, 0].tolist()) == ("int32", [0, -4])


def test_first_maximum_of_a_pool_receives_the_gradient():
    x = np.array([1.0, 1, 0, 0, 0, 2], np.float32).reshape(1, 6, 1)
    g = gradient(lambda x: ops.max_pool(x, 3), x)
    assert g[0, :, 0].tolist() == [1, 0, 0, 0, 0, 1]


def test_nan_is_the_maximum_of_a_pool():
    x = np.array([1.0, np.nan, 0, 3], np.float32).reshape(1, 4, 1)
    y = ops.max_pool(x, 2).numpy()[0, :, 0]
    assert np.isnan(y[0]) and y[1] == 3


def test_invalid_pool_arguments():
    x = np.ones((1, 5, 5, 2))
    with pytest.raises(errors.ShapeError, match="max_pool: a window .* does not fit"):
        ops.max_pool(x, 6)
    with pytest.raises(errors.ArgumentError, match="pool_size must be"):
        ops.average_pool(x, (2, 2, 2))
    with pytest.raises(errors.ShapeError, match="adaptive_max_pool: expected inputs"):
        ops.adaptive_max_pool(np.ones((2, 2)), 1)


@pytest.mark.parametrize("wrap", [lambda f: f, function])
def test_batch_normalization_equals_its_formula(wrap):
    """Compare values and both gradients, which depend on the statistics."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(3, 2, (2, 5, 3, 4)), rng.normal(size=(5, 3, 4))
    arrays = [x[0], *rng.normal(size=(2, 4))]

    def fused(x, scale, offset):
        return normalize_batch(x, scale, offset, 1e-3)

    def composed(x, scale, offset):
        mean, variance = ops.moments(x, (0, 1))
        y = ops.batch_normalization(x, mean, variance, -1, offset, scale)
        return y, mean, variance

    def derived(f):
        tensors = [ops.convert_to_tensor(a) for a in arrays]
        with GradientTape() as outer:
            outer.watch(tensors)
            with GradientTape() as tape:
                tape.watch(tensors)
                outputs = f(*tensors)
                loss = ops.sum(w * ops.tanh(outputs[0]))
            gradients = tape.gradient(loss, tensors)
            total = sum(ops.sum(ops.sin(g)) for g in gradients)
        return (*outputs, *gradients, *outer.gradient(total, tensors))

    for a, e in zip(derived(wrap(fused)), derived(wrap(composed)), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-12)
