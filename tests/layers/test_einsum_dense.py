"""Test the initial kernels of EinsumDense and of layers that use it."""

import math

import numpy as np
import pytest

import toolkit
from toolkit import initializers, layers


@pytest.mark.parametrize(
    "equation, output_shape, input_shape, fans",
    [
        ("abc,cde->abde", (None, 8, 64), (2, 5, 128), (128, 512)),
        ("abcd,cde->abe", (None, 256), (2, 5, 8, 64), (512, 256)),
        ("ab,bc->ac", 300, (2, 200), (200, 300)),
        ("...x,xy->...y", 300, (2, 3, 200), (200, 300)),
        # An axis of all three operands counts as an axis of the outputs.
        ("abc,acd->abd", (None, 50), (30, 5, 40), (40, 30 * 50)),
    ],
)
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
def test_kernel_initializer_uses_the_fans_of_a_unit(
    equation, output_shape, input_shape, fans, mode
):
    start = initializers.VarianceScaling(2.0, mode, "untruncated_normal", seed=1)
    layer = layers.EinsumDense(equation, output_shape, kernel_initializer=start)
    layer.build(input_shape)
    count = {"fan_in": fans[0], "fan_out": fans[1], "fan_avg": sum(fans) / 2}[mode]
    deviation = float(np.std(layer.kernel))
    assert math.isclose(deviation, math.sqrt(2 / count), rel_tol=0.05)
    config = layer.get_config()["kernel_initializer"]["config"]
    assert config["input_axes"] is config["output_axes"] is None


def test_explicit_axes_are_kept():
    start = initializers.VarianceScaling(
        1.0, "fan_in", "untruncated_normal", 1, input_axes=[1, 2], output_axes=[0]
    )
    layer = layers.EinsumDense("abc,cde->abde", (None, 8, 64), kernel_initializer=start)
    layer.build((2, 5, 128))
    assert math.isclose(float(np.std(layer.kernel)), 1 / math.sqrt(512), rel_tol=0.05)


@pytest.mark.parametrize("heads", [1, 8])
def test_attention_is_initialized_like_dense_layers(heads):
    toolkit.utils.set_random_seed(0)
    attention = layers.MultiHeadAttention(heads, 64)
    x = np.zeros((1, 3, 256), "float32")
    attention(x, x)
    fans = 256 + 64 * heads
    for weight in attention.weights:
        if weight.name == "kernel":
            expected = math.sqrt(2 / fans)
            assert math.isclose(float(np.std(weight)), expected, rel_tol=0.05)
