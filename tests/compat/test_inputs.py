"""Tests of `tf.data`, `tf.io`, `tf.summary` and `tf.keras`."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.data.records import read_records
from toolkit.errors import ArgumentError, UnsupportedError


def test_elements_and_functions_are_of_tensors():
    types = []

    def halve(x):
        types.append(type(x))
        return tf.cast(x, tf.float32) / 2

    dataset = tf.data.Dataset.range(6).map(halve).filter(lambda x: x > 1).batch(2)
    assert [b.numpy().tolist() for b in dataset] == [[1.5, 2.0], [2.5]]
    assert set(types) == {tf.Tensor}
    assert isinstance(dataset, tf.data.Dataset) and len(list(dataset.take(1))) == 1
    assert dataset.element_spec.dtype == tf.float32
    assert dataset.element_spec.shape.as_list() == [None]
    either = tf.data.Dataset.sample_from_datasets([dataset, dataset], seed=1)
    assert len(list(either)) == 4
    assert isinstance(next(dataset.as_numpy_iterator()), np.ndarray)


def test_sources_accept_tensors_lists_and_structures():
    dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": tf.ones((2, 3))})
    assert [(int(e["a"]), e["b"].shape.as_list()) for e in dataset] == [
        (1, [3]),
        (2, [3]),
    ]
    assert next(iter(dataset))["a"].dtype == tf.int32
    names = tf.data.Dataset.from_tensor_slices(["x", "y"])
    assert [name.numpy() for name in names] == [b"x", b"y"]
    zipped = tf.data.Dataset.zip((names, tf.data.Dataset.range(2)))
    assert [(x.numpy(), int(n)) for x, n in zipped] == [(b"x", 0), (b"y", 1)]


def test_functions_of_several_values_windows_and_sums():
    pairs = tf.data.Dataset.from_tensor_slices(([1.0, 2.0], [3.0, 4.0]))
    sums = pairs.map(lambda x, y: {"sum": x + y}, num_parallel_calls=tf.data.AUTOTUNE)
    assert [float(e["sum"]) for e in sums] == [4.0, 6.0]
    windows = tf.data.Dataset.range(4).window(2, shift=1, drop_remainder=True)
    flat = windows.flat_map(lambda window: window.batch(2))
    assert [w.numpy().tolist() for w in flat] == [[0, 1], [1, 2], [2, 3]]
    total = tf.data.Dataset.range(5).reduce(
        tf.constant(0, tf.int64), lambda s, x: s + x
    )
    assert total.numpy() == 10 and total.dtype == tf.int64
    assert tf.data.Dataset.range(5).cardinality().numpy() == 5
    assert tf.data.Dataset.range(1).get_single_element().numpy() == 0


def test_traced_functions_and_classes_map_elements():
    @tf.function
    def double(x):
        return x * 2

    class Twice(tf.data.Dataset):
        def __new__(cls, n):
            return tf.data.Dataset.from_tensors(n).repeat(2)

    dataset = tf.data.Dataset.range(3).map(double).flat_map(Twice)
    assert [int(x) for x in dataset] == [0, 0, 2, 2, 4, 4]


def test_options_are_set_by_attribute():
    options = tf.data.Options()
    options.experimental_deterministic = False
    options.threading.private_threadpool_size = 3
    copied = tf.data.Dataset.range(2).with_options(options).options()
    assert (copied.deterministic, copied.threads) == (False, 3)
    with pytest.raises(UnsupportedError, match="experimental_slack"):
        options.experimental_slack = True
    with pytest.raises(UnsupportedError, match="stages are always fused"):
        options.experimental_optimization.map_parallelization = True


def test_empty_constants_of_strings():
    empty = tf.constant([], dtype=tf.string)
    assert empty.shape == (0,) and empty.dtype == tf.string
    assert tf.constant([], tf.string, shape=(0, 2)).shape == (0, 2)


def test_string_constants_have_the_requested_shape():
    filled = tf.constant("a", shape=(2, 2))
    assert filled.numpy().tolist() == [[b"a", b"a"], [b"a", b"a"]]
    assert tf.constant(["a", "b"], shape=(2, 1)).numpy().tolist() == [[b"a"], [b"b"]]
    with pytest.raises(ValueError):
        tf.constant(["a", "b"], shape=(3,))


def test_models_train_on_datasets():
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).map(lambda a, b: (a, b))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation=tf.nn.relu)])
    model.compile(optimizer=tf.keras.optimizers.SGD(lr=0.05), loss="mse")
    history = model.fit(data.shuffle(32, seed=0).batch(8), epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert model.predict(data.batch(8), verbose=0).shape == (32, 1)


def test_records_are_written_and_parsed(tmp_path):
    path, train = str(tmp_path / "examples"), tf.train
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(3):
            features = {
                "i": train.Feature(int64_list=train.Int64List(value=[i])),
                "f": train.Feature(float_list=train.FloatList(value=[0.5, 1.5])),
                "s": train.Feature(bytes_list=train.BytesList(value=[b"a"])),
            }
            example = train.Example(features=train.Features(feature=features))
            writer.write(example.SerializeToString())
    feature_specs = {
        "i": tf.io.FixedLenFeature([], tf.int64),
        "f": tf.io.FixedLenFeature([2], tf.float32),
        "s": tf.io.FixedLenFeature([], tf.string),
        "v": tf.io.VarLenFeature(tf.int64),
    }
    raw = tf.data.TFRecordDataset([path])
    rows = list(raw.map(lambda e: tf.io.parse_single_example(e, feature_specs)))
    assert [int(row["i"]) for row in rows] == [0, 1, 2]
    assert rows[0]["f"].numpy().tolist() == [0.5, 1.5]
    assert rows[0]["s"].numpy() == b"a" and rows[0]["v"].shape == (0,)
    batch = next(
        iter(raw.batch(3).map(lambda e: tf.io.parse_example(e, feature_specs)))
    )
    assert batch["i"].numpy().tolist() == [0, 1, 2]
    example = train.Example()
    example.ParseFromString(next(iter(raw)).numpy())
    assert example.features.feature["f"].float_list.value == [0.5, 1.5]


def test_files_and_pictures(tmp_path):
    pytest.importorskip("PIL")
    path = str(tmp_path / "picture.png")
    pixels = np.arange(2 * 3 * 3, dtype="uint8").reshape(2, 3, 3)
    tf.io.write_file(path, tf.io.encode_png(pixels))
    image = tf.image.decode_png(tf.io.read_file(path), channels=3)
    assert np.array_equal(image, pixels) and image.dtype == tf.uint8
    assert tf.io.gfile.glob(str(tmp_path / "*.png")) == [path]
    with tf.io.gfile.GFile(path, "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_walks_of_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    inner = [(str(tmp_path / "a"), ["b"], ["file"]), (str(tmp_path / "a/b"), [], [])]
    down = [(str(tmp_path), ["a"], []), *inner]
    assert list(tf.io.gfile.walk(str(tmp_path))) == down
    assert list(tf.io.gfile.walk(tmp_path, topdown=True, onerror=None)) == down
    assert list(tf.io.gfile.walk(str(tmp_path), topdown=False)) == down[::-1]
    assert list(tf.compat.v1.gfile.Walk(str(tmp_path), in_order=False)) == down[::-1]
    absent, errors = str(tmp_path / "missing"), []
    assert list(tf.io.gfile.walk(absent)) == []
    assert list(tf.io.gfile.walk(absent, onerror=errors.append)) == []
    assert [type(error) for error in errors] == [FileNotFoundError]


def test_texts_are_utf8_and_keep_line_ends(tmp_path):
    path = str(tmp_path / "words.txt")
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("Größe\r\nMaß\r\n")
    with open(path, "rb") as file:
        assert file.read() == "Größe\r\nMaß\r\n".encode()
    with tf.io.gfile.GFile(path) as file:
        assert list(file) == ["Größe\r\n", "Maß\r\n"]


def test_events_are_written(tmp_path):
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=2):
        assert tf.summary.scalar("loss", tf.constant(0.5))
        assert tf.summary.histogram("weights", tf.ones(3), step=1)
        assert tf.summary.image("pictures", tf.ones((1, 4, 4, 3)))
        assert tf.summary.text("note", "words")
    assert not tf.summary.scalar("loss", 0.5, step=1)
    (events,) = tmp_path.iterdir()
    with events.open("rb") as file:
        records = list(read_records(file))
    assert len(records) == 5 and b"loss" in records[1]


def test_keras_modules_are_imported_by_their_names():
    from toolkit.compat.tensorflow import keras
    from toolkit.compat.tensorflow.keras.applications.resnet50 import preprocess_input
    from toolkit.compat.tensorflow.keras.layers import Dense
    from toolkit.compat.tensorflow.keras.optimizers.schedules import ExponentialDecay
    from toolkit.compat.tensorflow.keras.preprocessing.image import load_img

    assert Dense is toolkit.layers.Dense is keras.layers.Dense
    assert ExponentialDecay is toolkit.optimizers.schedules.ExponentialDecay
    from toolkit.compat.tensorflow.keras.utils.images import save_img

    assert callable(preprocess_input) and load_img is toolkit.utils.load_img
    assert save_img is toolkit.utils.save_img
    with pytest.raises(ModuleNotFoundError):
        __import__("toolkit.compat.tensorflow.keras.zebra")
    with pytest.raises(UnsupportedError, match="fit"):
        _ = tf.keras.estimator
    from toolkit.compat.tensorflow.keras.preprocessing.text import Tokenizer

    assert Tokenizer is tf.keras.preprocessing.text.Tokenizer
    sequence = tf.keras.preprocessing.sequence
    assert sequence.TimeseriesGenerator.__name__ == "TimeseriesGenerator"
    assert sequence.pad_sequences is toolkit.utils.pad_sequences
    with pytest.raises(AttributeError):
        _ = sequence.zebra


def test_data_sets_of_folders_and_series_are_of_tensors(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name, "utf-8")
    dataset = tf.keras.utils.text_dataset_from_directory(tmp_path, batch_size=2, seed=0)
    assert dataset.class_names == ["cats", "dogs"]
    texts, labels = next(iter(dataset))
    assert sorted(texts.numpy().tolist()) == [b"cats", b"dogs"]
    assert labels.dtype == tf.int32
    series = tf.keras.preprocessing.timeseries_dataset_from_array(
        np.arange(6), None, sequence_length=3
    )
    assert next(iter(series))[0].numpy().tolist() == [0, 1, 2]


def test_older_names_of_losses():
    from toolkit.compat.tensorflow.keras.metrics import mae

    assert tf.keras.losses.mse is toolkit.losses.mean_squared_error
    assert mae is toolkit.metrics.mean_absolute_error
    assert tf.losses.MSE([1.0], [3.0]).numpy() == 4.0
    assert tf.keras.losses.MeanSquaredError is toolkit.losses.MeanSquaredError


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Nadam", "Ftrl"])
def test_optimizers_accept_older_arguments(name):
    optimizer = getattr(tf.keras.optimizers, name)(lr=0.5, decay=0.25)
    assert type(optimizer) is getattr(toolkit.optimizers, name)
    assert isinstance(optimizer, getattr(tf.keras.optimizers, name))
    assert isinstance(optimizer, tf.keras.optimizers.Optimizer)
    v = tf.Variable(1.0)
    rates = []
    for _ in range(3):
        rates.append(float(optimizer.learning_rate))
        optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert np.allclose(rates, [0.5 / (1 + 0.25 * n) for n in range(3)])


def test_decay_keeps_its_older_meaning():
    optimizer = tf.keras.optimizers.SGD(lr=1.0, decay=1.0)
    v = tf.Variable(0.0)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert abs(v.numpy() + 1 + 1 / 2 + 1 / 3) < 1e-6
    with pytest.raises(ArgumentError, match="the same"):
        tf.keras.optimizers.SGD(0.1, lr=0.1)
    assert float(tf.keras.optimizers.legacy.Adam(lr=0.125).learning_rate) == 0.125
    assert tf.keras.optimizers.RMSprop(epsilon=None).epsilon == 1e-7


def test_subclassed_optimizers_accept_older_arguments():
    class CustomOptimizer(tf.keras.optimizers.SGD):
        pass

    optimizer = CustomOptimizer(lr=0.25)
    assert type(optimizer) is CustomOptimizer and float(optimizer.learning_rate) == 0.25


def test_the_backend_has_functions_of_tensors():
    from toolkit.compat.tensorflow.keras import backend as K

    assert K.mean(tf.constant([1.0, 3.0])).numpy() == 2.0
    assert K.sum(K.square(tf.ones((2, 3))), axis=-1).shape == (2,)
    assert K.int_shape(tf.keras.Input((3,))) == (None, 3)
    v = tf.Variable(1.0)
    K.set_value(v, 3.0)
    assert K.batch_dot(tf.ones((2, 3)), tf.ones((2, 3)), axes=1).shape == (2, 1)
    assert K.batch_dot(tf.ones((2, 3, 4)), tf.ones((2, 4, 5))).shape == (2, 3, 5)
    assert K.cast_to_floatx(np.arange(2)).dtype == "float32"
    assert K.get_value(v) == 3.0 and K.floatx() == "float32"


def test_strings():
    words = tf.constant(["Ab", "c"])
    assert words.dtype == tf.string and words.shape == (2,)
    assert (tf.strings.lower(words) == ["ab", "c"]).numpy().all()
    assert tf.strings.join([words, ["1", "2"]], "-").numpy().tolist() == [
        b"Ab-1",
        b"c-2",
    ]
    assert tf.strings.to_number(["1.5", "2"]).numpy().tolist() == [1.5, 2.0]
