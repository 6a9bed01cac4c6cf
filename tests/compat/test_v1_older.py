"""Tests of names and results that differ between TensorFlow 1 and 2."""

import numpy as np
import pytest

import toolkit.compat.tensorflow.compat.v1 as tf1
from toolkit.errors import ShapeError, UnsupportedError

PICTURE = np.arange(12, dtype="float32").reshape(1, 3, 4, 1)
ROWS = np.arange(12, dtype="float32").reshape(3, 4)
KERNEL = np.ones((2, 2, 1, 1), "float32")


@pytest.fixture(autouse=True)
def graph():
    with tf1.Graph().as_default():
        yield


def run_graph(fetch):
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        return session.run(fetch)


RESIZED = [
    ("bilinear", False, [[0.0, 2.0], [6.0, 8.0]]),
    (
        "bilinear",
        False,
        [
            [0.0, 1.3333, 2.6667],
            [2.4, 3.7333, 5.0667],
            [4.8, 6.1333, 7.4667],
            [7.2, 8.5333, 9.8667],
            [8.0, 9.3333, 10.6667],
        ],
    ),
    ("bilinear", True, [[0.0, 3.0], [8.0, 11.0]]),
    (
        "bilinear",
        True,
        [
            [0.0, 1.5, 3.0],
            [2.0, 3.5, 5.0],
            [4.0, 5.5, 7.0],
            [6.0, 7.5, 9.0],
            [8.0, 9.5, 11.0],
        ],
    ),
    ("nearest", False, [[0.0, 2.0], [4.0, 6.0]]),
    (
        "nearest",
        False,
        [
            [0.0, 1.0, 2.0],
            [0.0, 1.0, 2.0],
            [4.0, 5.0, 6.0],
            [4.0, 5.0, 6.0],
            [8.0, 9.0, 10.0],
        ],
    ),
    ("nearest", True, [[0.0, 3.0], [8.0, 11.0]]),
    (
        "nearest",
        True,
        [
            [0.0, 2.0, 3.0],
            [4.0, 6.0, 7.0],
            [4.0, 6.0, 7.0],
            [8.0, 10.0, 11.0],
            [8.0, 10.0, 11.0],
        ],
    ),
    ("bicubic", False, [[0.0, 2.0], [6.375, 8.375]]),
    (
        "bicubic",
        False,
        [
            [0.0, 1.3701, 2.741],
            [2.0144, 3.3845, 4.7554],
            [5.089, 6.4591, 7.83],
            [7.3914, 8.7615, 10.1324],
            [8.4319, 9.802, 11.1729],
        ],
    ),
    ("bicubic", True, [[0.0, 3.0], [8.0, 11.0]]),
    (
        "bicubic",
        True,
        [
            [0.0, 1.5, 3.0],
            [1.625, 3.125, 4.625],
            [4.0, 5.5, 7.0],
            [6.375, 7.875, 9.375],
            [8.0, 9.5, 11.0],
        ],
    ),
    ("area", False, [[1.8333, 3.8333], [7.1667, 9.1667]]),
    (
        "area",
        False,
        [
            [0.25, 1.5, 2.75],
            [1.5833, 2.8333, 4.0833],
            [4.25, 5.5, 6.75],
            [6.9167, 8.1667, 9.4167],
            [8.25, 9.5, 10.75],
        ],
    ),
    ("area", True, [[3.0, 5.0], [9.0, 11.0]]),
    (
        "area",
        True,
        [
            [0.3333, 1.6667, 3.0],
            [0.3333, 1.6667, 3.0],
            [4.3333, 5.6667, 7.0],
            [4.3333, 5.6667, 7.0],
            [8.3333, 9.6667, 11.0],
        ],
    ),
]


@pytest.mark.parametrize(("method", "corners", "expected"), RESIZED)
def test_pictures_are_resized_by_their_corners(method, corners, expected):
    size = np.shape(expected)
    number = ["bilinear", "nearest", "bicubic", "area"].index(method)
    x = tf1.constant(PICTURE)
    by_word = tf1.image.resize(x, size, method, align_corners=corners)
    by_number = tf1.image.resize_images(x, size, number, corners)
    for resized in run_graph([by_word, by_number]):
        assert np.allclose(resized[0, :, :, 0], expected, atol=2e-4)


def test_pictures_are_resized_by_their_centers_if_asked():
    row = PICTURE[:, :1]
    resized = tf1.image.resize_bilinear(row, [1, 8], half_pixel_centers=True)
    expected = [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
    assert np.allclose(run_graph(resized)[0, 0, :, 0], expected)


def test_nearest_pixels_keep_their_dtype():
    x = tf1.constant(PICTURE.astype("uint8"))
    assert run_graph(tf1.image.resize_nearest_neighbor(x, [2, 2])).dtype == "uint8"
    assert run_graph(tf1.image.resize_bilinear(x, [2, 2])).dtype == "float32"


def test_vector_predicate_selects_rows():
    selected = run_graph(tf1.where(tf1.constant([True, False, True]), ROWS, -ROWS))
    assert selected.tolist() == (ROWS * [[1], [-1], [1]]).tolist()
    with pytest.raises(ShapeError, match="one element for each row"):
        tf1.where(tf1.constant([True, False, True, True]), ROWS, -ROWS)
    assert run_graph(tf1.where_v2(tf1.constant(ROWS) > 3, 1.0, 0.0)).sum() == 8
    assert run_graph(tf1.where(tf1.constant([False, True]))).tolist() == [[1]]


@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (2, 2, 3)])
def test_orthogonal_initializers_work_in_graphs(shape):
    v = tf1.get_variable("v", shape, initializer=tf1.orthogonal_initializer(gain=2.0))
    w = run_graph(v).reshape(-1, shape[-1])
    product = w @ w.T if len(w) < shape[-1] else w.T @ w
    assert np.allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_numbers_are_summaries():
    tf1.summary.scalar("a", 1.0)
    assert list(run_graph(tf1.summary.merge_all()).values()) == [1.0]


OLDER = {
    "convolution": (
        lambda: tf1.nn.convolution(PICTURE, KERNEL, "VALID", [2, 2]),
        lambda: tf1.nn.conv2d(PICTURE, KERNEL, 2, "VALID"),
    ),
    "convolution, dilated": (
        lambda: tf1.nn.convolution(PICTURE, KERNEL, "VALID", dilation_rate=[2, 2]),
        lambda: tf1.nn.conv2d(PICTURE, KERNEL, 1, "VALID", dilations=[2, 2]),
    ),
    "pool": (
        lambda: tf1.nn.pool(PICTURE, [2, 2], "MAX", "SAME", strides=[2, 2]),
        lambda: tf1.nn.max_pool(PICTURE, 2, 2, "SAME"),
    ),
    "conv1d": (
        lambda: tf1.nn.conv1d(ROWS[None], np.ones((2, 4, 1), "float32"), 1, "SAME"),
        lambda: tf1.nn.conv1d(
            value=ROWS[None], filters=np.ones((2, 4, 1), "float32"), padding="SAME"
        ),
    ),
    "conv2d_transpose": (
        lambda: tf1.nn.conv2d_transpose(
            value=PICTURE, filter=KERNEL, output_shape=[1, 6, 8, 1], strides=2
        ),
        lambda: tf1.image.resize_nearest_neighbor(PICTURE, [6, 8]),
    ),
    "depthwise_conv2d": (
        lambda: tf1.nn.depthwise_conv2d(PICTURE, KERNEL, 1, "VALID", rate=[2, 2]),
        lambda: tf1.nn.conv2d(PICTURE, KERNEL, 1, "VALID", dilations=[2, 2]),
    ),
    "l2_normalize": (
        lambda: tf1.nn.l2_normalize(ROWS, dim=1),
        lambda: tf1.nn.l2_normalize(ROWS, axis=1),
    ),
    "cond": (
        lambda: tf1.cond(
            tf1.constant(True),
            fn1=lambda: tf1.constant(1),
            fn2=lambda: tf1.constant(2),
        ),
        lambda: tf1.constant(1),
    ),
    "case": (
        lambda: tf1.case(
            [
                (tf1.constant(False), lambda: tf1.constant(1)),
                (tf1.constant(True), lambda: tf1.constant(2)),
            ],
            exclusive=True,
        ),
        lambda: tf1.constant(2),
    ),
    "while_loop": (
        lambda: tf1.while_loop(
            lambda i: i < 3, lambda i: i + 1, [tf1.constant(0)], back_prop=False
        ),
        lambda: tf1.constant(3),
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_arguments_are_aliases(name):
    older, newer = (run_graph(make()) for make in OLDER[name])
    assert older.shape == newer.shape and np.allclose(older, newer)


def test_placeholders_of_strings_are_refused():
    with pytest.raises(UnsupportedError, match="received string"):
        tf1.placeholder(tf1.string)
