"""Pictures under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf


@pytest.mark.parametrize("size", [(2, 3), (5, 7), (3, 7), (10, 8), (1, 1)])
def test_areas_are_means_of_what_they_cover(size):
    x = np.random.default_rng(0).random((2, 5, 7, 3)).astype("float32")
    found = tf.image.resize(x, size, method=tf.image.ResizeMethod.AREA)
    fine = x.repeat(size[0], axis=1).repeat(size[1], axis=2)
    blocks = fine.reshape(2, size[0], 5, size[1], 7, 3)
    np.testing.assert_allclose(found.numpy(), blocks.mean((2, 4)), rtol=1e-5)
    one = tf.image.resize(x[0], size, method="area")
    np.testing.assert_allclose(one.numpy(), found.numpy()[0], rtol=1e-6)
