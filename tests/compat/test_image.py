"""Tests of images under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.boxes_calls import CALLS as BOXES
from tests.compat.image_calls import CALLS
from tests.compat.shown import mistakes


def names():
    """Return the names that the calls may use."""
    numbers = np.arange(12.0).reshape(1, 2, 2, 3)

    def psnr(dtype, maximum, scale=1):
        x = numbers * scale
        return tf.image.psnr((x * 20).astype(dtype), (x * 10).astype(dtype), maximum)

    def padded(shape, *size):
        x = tf.image.resize_with_pad(tf.ones(shape), *size).numpy()[..., 0]
        ends = [(int(min(i)), int(max(i))) for i in x.nonzero()[-2:]]
        return tuple(x.shape), ends

    names_of_calls = {"tf": tf, "np": np, "I": tf.image, "C": tf.constant}
    image = tf.constant((numbers * 20).astype("uint8"))
    return names_of_calls | {"W": image, "psnr": psnr, "padded": padded}


def names_of_boxes():
    """Return the names that the calls with boxes may use."""
    pictures = tf.reshape(tf.range(40.0), [2, 4, 5, 1])

    def cropped(*args, **kwargs):
        return tf.image.crop_and_resize(pictures, *args, **kwargs)[..., 0]

    def boxed(shape, boxes, colors):
        boxes = tf.constant([boxes], tf.float32)
        return tf.image.draw_bounding_boxes(tf.zeros(shape), boxes, colors)[0]

    def draw(box, colors):
        return tf.cast(2 * boxed([1, 4, 5, 1], [box], colors)[..., 0], tf.int32)

    def colors(boxes, colors):
        return tf.reduce_max(boxed([1, 2, 2, 4], boxes, colors)[0], 0)

    boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.9, 1.0], [2.0, 2.0, 3.0, 3.0]]
    weights = tf.constant([0.9, 0.8, 0.7])
    namespace = {"tf": tf, "I": tf.image, "C": tf.constant, "P": pictures}
    namespace |= {"B": tf.constant(boxes), "W": weights}
    return namespace | {"cropped": cropped, "drawn": draw, "colors": colors}


@pytest.mark.parametrize("group", CALLS)
def test_results_match_tensorflow(group):
    assert not mistakes(CALLS[group], names())


@pytest.mark.parametrize("group", BOXES)
def test_results_with_boxes_match_tensorflow(group):
    assert not mistakes(BOXES[group], names_of_boxes())


def test_crops_have_gradients_and_are_traced():
    x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])

    @tf.function
    def total(x, boxes):
        return tf.reduce_sum(tf.image.crop_and_resize(x, boxes, [0], [2, 2]))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = total(x, tf.constant([[0.0, 0.0, 1.0, 0.5]]))
    gradient = tape.gradient(y, x).numpy()[0, ..., 0]
    assert gradient[[0, 3]].tolist() == [[1, 0.5, 0.5, 0], [1, 0.5, 0.5, 0]]
    assert not gradient[[1, 2]].any()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *(("brightness", [0.2]), ("contrast", [0.2, 0.9]), ("saturation", [0.2, 0.9])),
        *(("hue", [0.2]), ("flip_left_right", []), ("flip_up_down", [])),
    ],
)
def test_random_changes_follow_their_seeds(name, args):
    x = np.random.default_rng(0).random((4, 3, 3, 3)).astype("float32")
    change = getattr(tf.image, f"stateless_random_{name}")
    samples = [change(x, *args, seed=[1, seed]).numpy() for seed in range(8)]
    np.testing.assert_array_equal(samples[3], change(x, *args, seed=(1, 3)).numpy())
    assert any((one != samples[0]).any() for one in samples)
    assert getattr(tf.image, f"random_{name}")(x, *args).shape == x.shape
    assert f"random_{name}" in dir(tf.image)


@pytest.mark.parametrize("size", [(2, 3), (5, 7), (3, 7), (10, 8), (1, 1)])
def test_area_resize_averages_pixels(size):
    x = np.random.default_rng(0).random((2, 5, 7, 3)).astype("float32")
    resized = tf.image.resize(x, size, method=tf.image.ResizeMethod.AREA)
    fine = x.repeat(size[0], axis=1).repeat(size[1], axis=2)
    blocks = fine.reshape(2, size[0], 5, size[1], 7, 3)
    np.testing.assert_allclose(resized.numpy(), blocks.mean((2, 4)), rtol=1e-5)
    one = tf.image.resize(x[0], size, method="area")
    np.testing.assert_allclose(one.numpy(), resized.numpy()[0], rtol=1e-6)
