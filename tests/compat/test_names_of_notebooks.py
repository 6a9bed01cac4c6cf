"""Tests of names that notebooks for TensorFlow use."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, UnsupportedError


def test_py_function_decorators():
    @tf.py_function(Tout=tf.float32)
    def double(x):
        return x * 2

    @tf.py_function(Tout=[tf.float32, tf.int32])
    def double_and_one(x):
        return x * 2, 1

    @tf.numpy_function(Tout=tf.float64)
    def sine(x):
        return np.sin(x)

    assert float(double(tf.constant(3.0))) == 6
    assert [x.dtype for x in double_and_one(tf.constant(3.0))] == [tf.float32, tf.int32]
    assert sine(tf.constant([0.0])).numpy().tolist() == [0.0]
    numbers = tf.data.Dataset.range(3).map(lambda x: double(tf.cast(x, tf.float32)))
    assert [float(x) for x in numbers] == [0.0, 2.0, 4.0]


IMAGES = np.random.default_rng(0).random((2, 4, 4, 6)).astype("float32")
DEPTH = (1, 1, 1, 3)


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_pooling_of_channels(padding):
    groups = IMAGES.reshape(2, 4, 4, 2, 3)
    pooled = tf.nn.max_pool(IMAGES, DEPTH, DEPTH, padding)
    assert pooled.numpy().tolist() == groups.max(-1).tolist()
    pooled = tf.nn.avg_pool(IMAGES, DEPTH, DEPTH, padding)
    np.testing.assert_allclose(pooled, groups.mean(-1), rtol=1e-6)
    layer = tf.keras.layers.Lambda(lambda x: tf.nn.max_pool(x, DEPTH, DEPTH, padding))
    assert layer(IMAGES).shape == (2, 4, 4, 2)


def test_pooling_over_pixels_and_channels_is_refused():
    with pytest.raises(UnsupportedError, match="several channels"):
        tf.nn.max_pool(IMAGES, (1, 2, 2, 3), (1, 2, 2, 3), "VALID")


@pytest.mark.parametrize("name", ["UTF8", "UTF-8"])
def test_names_of_encodings(name):
    decoded = tf.strings.unicode_decode(["é", "ab"], name)
    assert decoded.to_list() == [[233], [97, 98]]


def test_strategies_of_the_experimental_namespace():
    experimental = tf.distribute.experimental
    strategy = experimental.CentralStorageStrategy()
    with strategy.scope():
        v = tf.Variable(1.0)
    assert strategy.num_replicas_in_sync == 1 and float(v) == 1
    options = experimental.CommunicationOptions(timeout_seconds=3)
    strategy = experimental.MultiWorkerMirroredStrategy(communication_options=options)
    assert options.timeout_seconds == 3 and strategy.num_replicas_in_sync == 1


def test_random_crops():
    image, boxes = tf.zeros((40, 50, 3)), [[[0.1, 0.2, 0.5, 0.9]]]
    for seed in range(1, 20):
        begin, size, box = tf.image.sample_distorted_bounding_box(
            tf.shape(image), boxes, seed, 0.9, (0.8, 1.2), (0.3, 1.0)
        )
        crop = tf.slice(image, begin, size)
        height, width = crop.shape[:2]
        area = height * width / 2000
        if (height, width) != (40, 50):  # after this number of attempts
            assert 0.3 <= area <= 1 and 0.75 <= width / height <= 1.25
        low, high = box.numpy()[0, 0, :2], box.numpy()[0, 0, 2:]
        shared = np.minimum(high, [0.5, 0.9]) - np.maximum(low, [0.1, 0.2])
        assert np.prod(shared) >= 0.9 * 0.4 * 0.7 - 1e-6
    stateless = tf.image.stateless_sample_distorted_bounding_box
    first, repeated = (stateless(tf.shape(image), boxes, (1, 2)) for _ in range(2))
    assert first.begin.numpy().tolist() == repeated.begin.numpy().tolist()
    with pytest.raises(ArgumentError, match="use_image_if_no_bounding_boxes"):
        stateless(tf.shape(image), np.zeros((1, 0, 4)), (1, 2))


def test_mismatched_csv_rows_are_refused(tmp_path):
    path = str(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a,b,c\n1,2.5,x\n3,bad,y\n5,6.5,z\n")
    options = {"batch_size": 2, "num_epochs": 1, "shuffle": False}
    with pytest.warns(UserWarning, match="1 invalid rows are skipped"):
        rows = list(
            tf.data.experimental.make_csv_dataset(
                path,
                label_name="a",
                ignore_errors=True,
                column_defaults=[tf.int32, tf.float32, tf.string],
                **options,
            )
        )
    assert [label.numpy().tolist() for _, label in rows] == [[1, 5]]


def test_csv_files_are_read_in_sequence(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    for path, text in zip(paths, ("a\n1\n3\n", "a\n2\n4\n"), strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    rows = tf.data.experimental.make_csv_dataset(
        paths, 4, num_epochs=1, shuffle=False, num_parallel_reads=2
    )
    assert next(iter(rows))["a"].numpy().tolist() == [1, 2, 3, 4]


def test_messages_have_their_bytes_and_text():
    train = tf.train
    feature = train.Feature(int64_list=train.Int64List(value=[1]))
    assert feature.SerializeToString() == b"\x1a\x03\n\x01\x01"
    assert str(feature) == "int64_list {\n  value: 1\n}\n"
    parsed = train.Feature.FromString(feature.SerializeToString())
    assert parsed == feature and parsed.int64_list.value == [1]
    features = train.Features(feature={"a": feature})
    assert features.SerializeToString() == b"\n\n\n\x01a\x12\x05\x1a\x03\n\x01\x01"
    assert train.Features.FromString(features.SerializeToString()) == features
    assert train.BytesList(value=[b"a"]).SerializeToString() == b"\n\x01a"
    assert train.FloatList(value=[1.0]).SerializeToString() == b"\n\x04\x00\x00\x80?"
    assert train.Feature().SerializeToString() == b"" == str(train.Feature()).encode()
    example = train.Example(features=features)
    assert train.Example.FromString(example.SerializeToString()) == example


def test_features_of_any_length_are_sparse():
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 5]))
    example = tf.train.Example(features=tf.train.Features(feature={"i": feature}))
    features = {"i": tf.io.VarLenFeature(tf.int64), "z": tf.io.VarLenFeature(tf.string)}
    message = example.SerializeToString()
    parsed = tf.io.parse_single_example(message, features)
    assert parsed["i"].values.numpy().tolist() == [1, 5]
    assert parsed["z"].values.shape == (0,) and parsed["z"].dtype == tf.string
    batch = tf.io.parse_example([message, message], features)["i"]
    assert tf.sparse.to_dense(batch).numpy().tolist() == [[1, 5], [1, 5]]
