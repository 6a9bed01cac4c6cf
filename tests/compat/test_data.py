"""Tests of data sets under TensorFlow's names."""

import json

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from tests.compat.data_calls import CALLS
from tests.compat.shown import mistakes


def names():
    """Return the names that the calls may use."""
    dataset = tf.data.Dataset

    def generated(generator, args, dtype):
        spec = tf.TensorSpec([], dtype)
        return dataset.from_generator(generator, output_signature=spec, args=args)

    return {
        "tf": tf,
        "np": np,
        "C": tf.constant,
        "D": dataset,
        "E": tf.data.experimental,
        "doubles": dataset.from_tensor_slices(np.array([1.5, 2.5])),
        "generated": generated,
        "one": dataset.range(1),
        "rows": dataset.range(1, 4).map(lambda x: tf.fill([x], x)),
        "three": dataset.range(3),
        "words": dataset.from_tensor_slices(["a", "b"]),
    }


@pytest.mark.parametrize("group", CALLS)
def test_results_match_tensorflow(group):
    assert not mistakes(CALLS[group], names())


def test_saved_strings_and_readers(tmp_path):
    path = tf.constant(str(tmp_path / "saved"))
    tf.data.Dataset.from_tensor_slices({"a": ["x", "y"], "b": [1.0, 2.0]}).save(path)
    loaded = tf.data.Dataset.load(path)
    assert [(e["a"].numpy(), float(e["b"])) for e in loaded] == [(b"x", 1), (b"y", 2)]
    assert loaded.element_spec["a"] == tf.TensorSpec([], tf.string)
    assert loaded.element_spec["a"].dtype == tf.string

    def reader(datasets):
        return datasets.flat_map(lambda dataset: dataset).map(lambda e: e["a"])

    assert list(tf.data.Dataset.load(path, reader_func=reader).as_numpy_iterator()) == [
        b"x",
        b"y",
    ]


def test_names_of_files_are_tensors(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n", encoding="utf-8")
    for pattern in (tmp_path / "*", [tmp_path / "a", tmp_path / "b"]):
        pattern = tf.constant(
            list(map(str, pattern)) if type(pattern) is list else str(pattern)
        )
        files = tf.data.Dataset.list_files(pattern, shuffle=False)
        assert [x.numpy() for x in files] == [
            str(tmp_path / name).encode() for name in "ab"
        ]
    lines = files.interleave(tf.data.TextLineDataset, cycle_length=2)
    assert list(lines.as_numpy_iterator()) == [b"a1", b"b1", b"a2", b"b2"]
    assert lines.element_spec == tf.TensorSpec([], tf.string)


def test_none_is_in_the_element_spec():
    dataset = tf.data.Dataset.range(2).map(lambda x: (x, None))
    number, none_spec = dataset.element_spec
    assert (
        number == tf.TensorSpec([], tf.int64) and repr(none_spec) == "NoneTensorSpec()"
    )
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    inputs = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), "float32"))
    pairs = inputs.map(lambda x: (x, None)).batch(2)
    assert model.predict(pairs, verbose=0).shape == (4, 1)


def test_sparse_tensors_are_elements():
    x = tf.SparseTensor([[0, 1], [1, 0], [2, 3]], [1.0, 2.0, 3.0], [3, 4])
    dataset = tf.data.Dataset.from_tensor_slices((x, [1, 2, 3]))
    assert dataset.element_spec[0] == tf.SparseTensorSpec([4], tf.float32)
    first, label = next(iter(dataset.batch(2)))
    assert isinstance(first, tf.SparseTensor) and label.numpy().tolist() == [1, 2]
    assert tf.sparse.to_dense(first).numpy().tolist() == [[0, 1, 0, 0], [2, 0, 0, 0]]
    dense = dataset.map(lambda row, _: tf.sparse.to_dense(row))
    assert [row.numpy().tolist() for row in dense][2] == [0, 0, 0, 3]
    sparse_dataset = tf.data.Dataset.range(2).map(
        lambda i: tf.SparseTensor([[0]], [i], [3])
    )
    (batch,) = sparse_dataset.batch(2)
    assert batch.indices.numpy().tolist() == [[0, 0], [1, 0]]


def test_lines_of_any_encoding(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe\nok\n")
    lines = tf.data.TextLineDataset(str(tmp_path / "a"))
    assert list(lines.as_numpy_iterator()) == [b"\xff\xfe", b"ok"]
    assert [line.numpy() for line in lines] == [b"\xff\xfe", b"ok"]


def test_strings_keep_their_type_when_padded():
    words = tf.data.Dataset.from_tensor_slices(["a", "bb", "c"]).padded_batch(2)
    batches = [batch.tolist() for batch in words.as_numpy_iterator()]
    assert batches == [[b"a", b"bb"], [b"c"]]
    assert [batch.numpy().tolist() for batch in words] == batches


def stateful(dataset):
    state = dataset.get_state()
    return json.loads(json.dumps(state)) == state


def test_methods_without_elements_match_the_core():
    plain = {
        name: member
        for name, member in vars(toolkit.data.Dataset).items()
        if name[0] != "_" and getattr(member, "__module__", "").endswith("dataset")
    }
    replaced = {name for name in plain if name in vars(tf.data.Dataset)}
    assert replaced == {"as_numpy_iterator", "cardinality"}  # which return tensors
    assert stateful(tf.data.Dataset.range(4)) and stateful(
        iter(tf.data.Dataset.range(4))
    )


# Each public method of the core's data set -> a call of the wrapper.
METHODS = {
    "apply": "D.range(3).apply(lambda d: d.batch(2))",
    "assert_cardinality": "three.assert_cardinality(3)",
    "batch": "three.batch(2)",
    "bucket_by_sequence_length": "rows.bucket_by_sequence_length("
    "lambda x: tf.shape(x)[0], [2], [1, 2])",
    "cache": "three.cache()",
    "choose_from_datasets": "D.choose_from_datasets([three, three], one)",
    "concatenate": "three.concatenate(one)",
    "counter": "D.counter().take(2)",
    "enumerate": "words.enumerate()",
    "filter": "three.filter(lambda x: x > 0)",
    "flat_map": "three.flat_map(lambda x: D.range(x))",
    "from_generator": "generated(lambda: iter([1]), (), tf.int32)",
    "from_items": "D.from_items([1, 2])",
    "from_tensor_slices": "doubles",
    "from_tensors": "D.from_tensors([1, 2])",
    "group_by_window": "three.group_by_window("
    "lambda x: x % 2, lambda key, d: d.batch(2), window_size=2)",
    "ignore_errors": "three.ignore_errors()",
    "interleave": "three.interleave(lambda x: D.range(x))",
    "map": "three.map(lambda x: x + 1)",
    "padded_batch": "rows.padded_batch(2)",
    "prefetch": "three.prefetch(1)",
    "ragged_batch": "rows.ragged_batch(2)",
    "random": "D.random(1).take(2)",
    "range": "D.range(2)",
    "rebatch": "three.batch(2).rebatch(3)",
    "rejection_resample": "D.range(40).map(lambda x: x % 2)"
    ".rejection_resample(lambda x: tf.cast(x, tf.int32), [0.5, 0.5], seed=1)",
    "repeat": "three.repeat(2)",
    "sample_from_datasets": "D.sample_from_datasets([three, three])",
    "scan": "three.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s))",
    "shard": "three.shard(2, 0)",
    "shuffle": "three.shuffle(3, seed=1)",
    "skip": "three.skip(1)",
    "take": "three.take(1)",
    "take_while": "three.take_while(lambda x: x < 2)",
    "unbatch": "three.batch(2).unbatch()",
    "unique": "three.unique()",
    "window": "three.window(2).flat_map(lambda d: d.batch(2))",
    "with_options": "three.with_options(tf.data.Options())",
    "zip": "D.zip((three, words))",
}
# These read or write files, or return no data set: other tests call them.
OTHER_METHODS = {
    *("as_numpy_iterator", "cardinality", "fingerprint", "from_hdf5", "from_npy"),
    *("from_image_folder", "from_npz", "get_single_element", "get_state", "list_files"),
    *("load", "options", "plot", "prefetched", "reduce", "save", "set_state"),
    *("snapshot", "stats", "timeline"),
}


def test_every_public_method_is_in_one_of_the_tables():
    public = {
        name
        for name, member in vars(toolkit.data.Dataset).items()
        if name[0] != "_" and (callable(member) or isinstance(member, staticmethod))
    }
    assert public == {*METHODS, *OTHER_METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_methods_return_data_sets_of_tensors_with_state(method):
    dataset = eval(METHODS[method], names())
    assert isinstance(dataset, tf.data.Dataset)
    iterator = iter(dataset)
    leaves = tf.nest.flatten(next(iterator))
    assert all(hasattr(leaf, "numpy") for leaf in leaves)
    assert stateful(dataset)
    dataset.set_state(dataset.get_state())
    state = iterator.get_state()
    remaining = [str(tf.nest.flatten(element)) for element in iterator]
    iterator.set_state(json.loads(json.dumps(state)))
    assert [str(tf.nest.flatten(element)) for element in iterator] == remaining


@pytest.mark.parametrize("of_unknown_length", [False, True])
def test_training_resumes_from_a_backup(tmp_path, of_unknown_length):
    x = np.arange(12, dtype="float32").reshape(12, 1)
    spec = (tf.TensorSpec((1,), tf.float32),) * 2
    tensors = tf.data.Dataset.from_tensor_slices((x, x))
    if of_unknown_length:
        tensors = tf.data.Dataset.from_generator(
            lambda: zip(x, x, strict=True), output_signature=spec
        )

    class Interrupt(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def fit(*callbacks):
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
        data = tensors.shuffle(12, seed=3).batch(4)
        history = model.fit(data, epochs=4, callbacks=[*callbacks], verbose=0)
        return history.epoch, model.get_weights()

    _, expected = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(tf.keras.callbacks.BackupAndRestore(tmp_path), Interrupt())
    epochs, weights = fit(tf.keras.callbacks.BackupAndRestore(tmp_path))
    assert epochs == [2, 3]
    for actual, expected_weight in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(actual, expected_weight)


@pytest.mark.parametrize("size", [None, 2])
def test_core_data_sets_accept_tensorflow_specs(size):
    signature = (tf.TensorSpec((), tf.int32), tf.TensorSpec((None,), tf.float32))
    dataset = toolkit.data.Dataset.from_generator(
        lambda: iter([(1, [1.0, 2.0]), (2, [3.0, 4.0])]), output_signature=signature
    )
    assert dataset.element_spec[1] == toolkit.data.TensorSpec((None,), "float32")
    (number, values), *_ = dataset if size is None else dataset.batch(size)
    assert number.dtype == "int32" and values.dtype == "float32"
    words = toolkit.data.Dataset.from_generator(
        lambda: iter(["a", "b"]), output_signature=tf.TensorSpec((), tf.string)
    )
    assert len(list(words)) == 2
