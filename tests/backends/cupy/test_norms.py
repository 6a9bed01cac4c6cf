"""Tests of batch normalization in training: the part in cuDNN, and its results."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.backends.cupy.steps import Dnn


def network(activation, channels):
    """Two convolutions with normalizations, the second with a residual."""
    toolkit.utils.set_random_seed(1)
    image = layers.Input((4, 4, channels))
    x = layers.Conv2D(channels, 1, use_bias=False)(image)
    first = layers.Activation(activation)(layers.BatchNormalization()(x))
    x = layers.Conv2D(channels, 1, use_bias=False)(first)
    x = layers.Add()([layers.BatchNormalization()(x), first])
    return toolkit.Model(image, layers.Activation(activation)(x))


def branches(activation, channels):
    """Return two normalizations with one sum, and one after a limit at 6."""
    toolkit.utils.set_random_seed(1)
    image = layers.Input((4, 4, channels))
    branches_of_input = [
        layers.BatchNormalization()(layers.Conv2D(channels, 1)(image)) for _ in range(2)
    ]
    x = layers.Activation(activation)(layers.Add()(branches_of_input))
    x = layers.BatchNormalization()(layers.Conv2D(channels, 1)(x))
    return toolkit.Model(image, layers.MaxPooling2D(1)(layers.ReLU(6.0)(x)))


def trained(model, x, g, device):
    """Return the result, gradients and moving averages, and the operations of cuDNN."""

    @toolkit.function
    def step(x, g):
        with toolkit.GradientTape() as tape:
            y = model(x, training=True)
        return y, *tape.gradient(y, model.trainable_variables, g)

    with toolkit.device(device):
        values = [y.numpy() for y in step(x, g)]
        values += [v.numpy() for v in model.non_trainable_variables]
        program = step.get_concrete_function(x, g).program
    steps = [s for n in program.lowered for s in getattr(n, "steps", ())]
    signatures = [s.signature for s in steps if isinstance(s, Dnn)]
    # cuDNN plans a tensor with two roles, and then refuses to run it.
    nodes = [node for signature in signatures for node in signature.nodes]
    assert all(len({*node.inputs}) == len(node.inputs) for node in nodes)
    chains = ["+".join(n.op for n in s.nodes) for s in signatures]
    return values, [c for c in chains if "batchnorm" in c]


FORWARD = ["batchnorm+relu", "batchnorm+add+relu"]


@pytest.mark.parametrize(
    "network, activation, channels, expected",
    [
        # One of them takes the other's result as its residual.
        (branches, "relu", 8, ["batchnorm", FORWARD[1], *["batchnorm_backward"] * 2]),
        # Two nodes read the gradient of the residual; a kernel fuses the second one.
        (network, "relu", 8, [*FORWARD, "batchnorm_backward"]),
        # Those are part of generated kernels, of which cuDNN has none.
        (network, "silu", 8, ["batchnorm_backward"]),
        # Not a multiple of 16 bytes.
        (network, "relu", 6, []),
    ],
)
def test_normalizations_are_graphs_of_cudnn(
    gpu, network, activation, channels, expected
):
    rng = np.random.default_rng(0)
    x, g = rng.normal(1, 2, (2, 6, 4, 4, channels)).astype("float32")
    values, _ = trained(network(activation, channels), x, g, "cpu:0")
    actual, chains = trained(network(activation, channels), x, g, "gpu:0")
    assert chains == expected
    for a, e in zip(actual, values, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 8), (6, 5, 8), (2, 3, 2, 4, 8)])
def test_axes_and_16_bit_floats(gpu, shape):
    """Any number of axes; halves with statistics in float32, far from 0 too."""
    rng = np.random.default_rng(0)
    x = rng.normal(200, 3, shape).astype("float16")
    chains_by_case = {}
    for device in ("cpu:0", "gpu:0"):
        layer = layers.BatchNormalization(dtype="mixed_float16", momentum=0.0)
        layer.build((None, *shape[1:]))
        with toolkit.device(device):
            call = toolkit.function(lambda x, f=layer: f(x, training=True))
            chains_by_case[device] = [call(x), layer.moving_mean, layer.moving_variance]
    assert chains_by_case["gpu:0"][0].dtype == "float16"
    for a, e in zip(chains_by_case["gpu:0"], chains_by_case["cpu:0"], strict=True):
        a, e = (ops.convert_to_numpy(v).astype("float32") for v in (a, e))
        np.testing.assert_allclose(a, e, rtol=2e-3, atol=2e-3)


def branches():
    """The sum of two normalized convolutions, and a maximum."""
    toolkit.utils.set_random_seed(1)
    image = layers.Input((4, 4, 8))
    outputs = [layers.Conv2D(8, 1, use_bias=False)(image) for _ in range(2)]
    total = layers.Add()([layers.BatchNormalization()(output) for output in outputs])
    return toolkit.Model(image, layers.ReLU()(total))


def test_sum_of_two_normalized_branches_is_fused_into_one(gpu):
    rng = np.random.default_rng(0)
    x, g = rng.normal(1, 2, (2, 6, 4, 4, 8)).astype("float32")
    values, _ = trained(branches(), x, g, "cpu:0")
    actual, chains = trained(branches(), x, g, "gpu:0")
    assert sorted(chains)[:2] == ["batchnorm", "batchnorm+add+relu"]
    for a, e in zip(actual, values, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
