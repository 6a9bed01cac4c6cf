"""Pictures under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.image_calls import CALLS
from tests.compat.shown import mistakes


def names():
    """What the calls may use."""
    numbers = np.arange(12.0).reshape(1, 2, 2, 3)

    def psnr(dtype, most, scale=1):
        x = numbers * scale
        return tf.image.psnr((x * 20).astype(dtype), (x * 10).astype(dtype), most)

    def padded(shape, *size):
        x = tf.image.resize_with_pad(tf.ones(shape), *size).numpy()[..., 0]
        ends = [(int(min(i)), int(max(i))) for i in x.nonzero()[-2:]]
        return tuple(x.shape), ends

    known = {"tf": tf, "np": np, "I": tf.image, "C": tf.constant}
    whole = tf.constant((numbers * 20).astype("uint8"))
    return known | {"W": whole, "psnr": psnr, "padded": padded}


@pytest.mark.parametrize("group", CALLS)
def test_results_are_tensorflows(group):
    assert not mistakes(CALLS[group], names())


@pytest.mark.parametrize("size", [(2, 3), (5, 7), (3, 7), (10, 8), (1, 1)])
def test_areas_are_means_of_what_they_cover(size):
    x = np.random.default_rng(0).random((2, 5, 7, 3)).astype("float32")
    found = tf.image.resize(x, size, method=tf.image.ResizeMethod.AREA)
    fine = x.repeat(size[0], axis=1).repeat(size[1], axis=2)
    blocks = fine.reshape(2, size[0], 5, size[1], 7, 3)
    np.testing.assert_allclose(found.numpy(), blocks.mean((2, 4)), rtol=1e-5)
    one = tf.image.resize(x[0], size, method="area")
    np.testing.assert_allclose(one.numpy(), found.numpy()[0], rtol=1e-6)
