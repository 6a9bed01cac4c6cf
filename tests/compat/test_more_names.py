"""Tests of `tf.audio`, ragged and sparse tensors, strategies, saved models, CSV."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
import toolkit.compat.tensorflow.experimental.numpy as tnp
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DatasetError,
    MissingFileError,
    ShapeError,
    UnsupportedError,
)


def test_audio_round_trips_through_bytes():
    sound = np.sin(np.arange(200) / 7, dtype="float32").reshape(100, 2)
    data = tf.audio.encode_wav(sound, 16000)
    decoded = tf.audio.decode_wav(data)
    assert decoded.audio.shape == (100, 2) and int(decoded.sample_rate) == 16000
    assert np.abs(decoded.audio.numpy() - sound).max() < 1e-4
    audio, _ = tf.audio.decode_wav(data, desired_channels=1, desired_samples=150)
    assert audio.shape == (150, 1) and not audio.numpy()[100:].any()
    assert tf.audio.decode_wav(data, 3, 10).audio.shape == (10, 3)
    with pytest.raises(DatasetError, match="decode_wav: contents: expected a WAV"):
        tf.audio.decode_wav(b"no sound")
    with pytest.raises(ArgumentError, match=r"\(samples, channels\)"):
        tf.audio.encode_wav([0.5], 8000)


def test_ragged_rows():
    rows = tf.ragged.constant([[1, 2], [], [3, 4, 5]], dtype=tf.int64)
    assert rows.shape.as_list() == [3, None] and rows.dtype == tf.int64
    assert rows.row_lengths().numpy().tolist() == [2, 0, 3] and rows.nrows() == 3
    assert rows.bounding_shape().numpy().tolist() == [3, 3]
    assert rows.to_tensor(-1).numpy().tolist() == [[1, 2, -1], [-1] * 3, [3, 4, 5]]
    assert rows.to_tensor(shape=[None, 1]).numpy().tolist() == [[1], [0], [3]]
    assert rows[2].numpy().tolist() == [3, 4, 5] and rows[1:].to_list() == [
        [],
        [3, 4, 5],
    ]
    assert rows.flat_values.numpy().tolist() == [1, 2, 3, 4, 5]
    words = tf.ragged.constant([["a"], ["b", "c"]])
    assert words.to_tensor().numpy().tolist() == [[b"a", b""], [b"b", b"c"]]
    with pytest.raises(ShapeError, match="from_row_splits"):
        tf.RaggedTensor.from_row_splits([1, 2], [0, 3])
    with pytest.raises(AttributeError, match=r"tf\.ragged\.no_name"):
        tf.ragged.no_name(rows)


def test_ragged_of_tensors():
    padded = [[1, 2, 0], [0, 3, 0], [0, 0, 0]]
    assert tf.RaggedTensor.from_tensor(padded, padding=0).to_list() == [
        [1, 2],
        [0, 3],
        [],
    ]
    assert tf.RaggedTensor.from_tensor(padded, [1, 0, 3]).to_list() == [
        [1],
        [],
        [0] * 3,
    ]
    assert tf.RaggedTensor.from_tensor(padded).to_list() == padded
    lengths = tf.RaggedTensor.from_row_lengths([[1, 1], [2, 2]], [0, 2])
    assert lengths.to_list() == [[], [[1, 1], [2, 2]]]
    assert tf.ragged.stack([[1], [2, 3]]).to_list() == [[1], [2, 3]]


def test_ragged_batches_of_data_sets_are_ragged_tensors():
    rows = tf.data.Dataset.range(1, 4).map(lambda n: tf.fill([n], n)).ragged_batch(3)
    padded = rows.map(lambda batch: batch.to_tensor())
    (batch,) = rows
    assert isinstance(batch, tf.RaggedTensor) and batch.to_list() == [
        [1],
        [2] * 2,
        [3] * 3,
    ]
    assert next(iter(padded)).numpy().tolist() == [[1, 0, 0], [2, 2, 0], [3, 3, 3]]
    sliced = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))
    assert [row.numpy().tolist() for row in sliced] == [[1], [2, 3]]


def test_sparse_tensors_become_dense():
    x = tf.SparseTensor([[0, 1], [2, 0]], [5.0, 6.0], [3, 2])
    dense = [[0, 5], [0, 0], [6, 0]]
    assert tf.sparse.to_dense(x).numpy().tolist() == dense
    assert tf.sparse.to_dense(x, -1.0).numpy()[1].tolist() == [-1, -1]
    back = tf.sparse.from_dense(dense)
    assert back.indices.numpy().tolist() == [[0, 1], [2, 0]] and back.shape == (3, 2)
    mixed = tf.SparseTensor([[2, 0], [0, 1]], [6, 5], [3, 2])
    with pytest.raises(ShapeError, match=r"tf\.sparse\.reorder"):
        tf.sparse.to_dense(mixed)
    assert tf.sparse.to_dense(tf.sparse.reorder(mixed)).numpy().tolist() == dense
    with pytest.raises(ShapeError, match="a row for each value"):
        tf.SparseTensor([[0, 1]], [1, 2], [2, 2])
    with pytest.raises(AttributeError, match=r"tf\.sparse\.no_name .*to_dense"):
        tf.sparse.no_name(x)


def test_features_of_any_length_become_dense():
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"box": feature}))
    features = {"box": tf.io.VarLenFeature(tf.float32)}
    text = example.SerializeToString()
    dense = tf.sparse.to_dense(tf.io.parse_single_example(text, features)["box"])
    assert dense.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "make",
    [
        tf.distribute.MirroredStrategy,
        tf.distribute.MultiWorkerMirroredStrategy,
        lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
        tf.distribute.get_strategy,
    ],
)
def test_strategies_have_one_replica(make):
    strategy = make()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        assert tf.distribute.get_strategy() is strategy
    assert strategy.num_replicas_in_sync == 1 and not tf.distribute.has_strategy()
    data = tf.data.Dataset.from_tensor_slices((tf.ones((4, 2)), tf.ones((4, 1))))
    data = strategy.experimental_distribute_dataset(data.batch(2))
    model.fit(data, verbose=0)
    step = tf.function(lambda x: tf.reduce_sum(model(x)))
    total = strategy.run(step, args=(tf.ones((1, 2)),))
    assert strategy.reduce(tf.distribute.ReduceOp.SUM, total, axis=None) == total
    rows = strategy.reduce("MEAN", tf.constant([1.0, 3.0]), axis=0)
    assert float(rows) == 2.0


def test_several_devices_are_refused():
    with pytest.raises(UnsupportedError, match=r"toolkit\.distribution"):
        tf.distribute.MirroredStrategy(["gpu:0", "gpu:1"])
    with pytest.raises(AttributeError, match=r"tf\.distribute\.TPUStrategy"):
        tf.distribute.TPUStrategy(None)


def test_models_are_saved_in_folders(tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    tf.saved_model.save(model, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    assert np.array_equal(loaded(np.ones((1, 2))), model(np.ones((1, 2))))
    with pytest.raises(ArgumentTypeError, match=r"tf\.train\.Checkpoint"):
        tf.saved_model.save(tf.Module(), tmp_path / "module")


def test_numpys_names():
    tnp.experimental_enable_numpy_behavior()
    x = tnp.array([[1.0, 2.0], [3.0, 4.0]], dtype=tnp.float32)
    assert isinstance(x, tnp.ndarray) and tnp.shape(x) == (2, 2) and tnp.ndim(x) == 2
    assert float(tnp.mean(tnp.square(x))) == 7.5 and float(tnp.amax(x)) == 4
    assert tnp.concatenate([x, x], axis=0).shape == (4, 2) and tnp.pi > 3
    assert tnp.random.randn(3, 2).shape == (3, 2) and tnp.random.rand(2).shape == (2,)
    assert tnp.random.randint(3, size=(4,)).dtype == tf.int32
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tnp.sum(tnp.maximum(x, 2.0) ** 2)
    assert tape.gradient(y, x).numpy()[1].tolist() == [6.0, 8.0]
    with pytest.raises(AttributeError, match=r"tf\.experimental\.numpy\.save"):
        tnp.save("x", x)


def test_csv_files_with_names(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('age,name,weight,sick\n3,"a, b",1.5,0\n4,c,,1\n5,d,2,0\n')
    make = tf.data.experimental.make_csv_dataset
    data = make(str(path), 2, label_name="sick", num_epochs=1, shuffle=False)
    (first, labels), (last, _) = data
    assert list(first) == ["age", "name", "weight"] and labels.numpy().tolist() == [
        0,
        1,
    ]
    assert first["age"].dtype == tf.int32 and first["weight"].dtype == tf.float32
    assert first["weight"].numpy().tolist() == [1.5, 0.0]
    assert first["name"].numpy().tolist() == [b"a, b", b"c"]
    assert last["age"].numpy().tolist() == [5]
    dataset = make(str(path), 3, select_columns=["weight", 0], num_epochs=2)
    assert sum(1 for _ in dataset) == 2
    assert list(next(iter(dataset))) == ["age", "weight"]
    with pytest.raises(ArgumentError, match="'sik'"):
        make(str(path), 2, label_name="sik")
    with pytest.raises(MissingFileError, match="no file matches"):
        make(str(tmp_path / "no.csv"), 2)
