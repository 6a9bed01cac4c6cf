"""Tests that mistakes raise errors that a TensorFlow or Keras program catches."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf

# The class of TensorFlow's or Keras's error -> calls.
MISTAKES = {
    "InvalidArgumentError": r"""
tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
tf.ones([2, 3]) @ tf.ones([2, 3])
tf.ones([2, 3]) + tf.ones([2, 4])
tf.add(tf.ones([2, 3]), tf.ones([2, 4]))
tf.reshape(tf.ones([2, 3]), [4])
tf.concat([tf.ones([2, 3]), tf.ones([2, 4])], 0)
tf.stack([tf.ones([2, 3]), tf.ones([2, 4])])
tf.gather([1, 2], [5])
tf.gather([1, 2], [-1])
tf.constant([1, 2])[5]
tf.constant([1, 2])[0, 0]
tf.constant("a") + 1
tf.strings.to_number("a")
tf.debugging.assert_equal(1, 2)
tf.debugging.check_numerics(tf.constant([float('nan')]), "x")
tf.debugging.assert_positive([-1])
tf.Assert(False, ["x"])
tf.ensure_shape(tf.ones([2]), [3])
tf.io.decode_jpeg(b"abc")
tf.io.decode_image(b"abc")
tf.io.decode_png(b"abc")
tf.io.decode_raw(b"abc", tf.float32)
tf.io.decode_csv(["1,2"], [[0.]])
tf.io.decode_csv(["a"], [[0.]])
tf.io.parse_tensor(b"abc", tf.float32)
tf.io.parse_single_example(b"abc", {"a": tf.io.FixedLenFeature([], tf.float32)})
tf.io.parse_single_example(b"", {"a": tf.io.FixedLenFeature([], tf.float32)})
list(tf.data.Dataset.from_tensor_slices([[1], [2]]).batch(0))
tf.one_hot([1], -1)
tf.range(0, 3, 0)
tf.zeros([-1])
tf.fill([-1], 1)
tf.eye(-1)
tf.transpose(tf.ones([2, 3]), [0])
tf.squeeze(tf.ones([2, 3]), 0)
tf.expand_dims(tf.ones([2]), 5)
tf.split(tf.ones([5]), 2)
tf.split(tf.ones([5]), [2, 2])
tf.unstack(tf.ones([2]), num=3)
tf.slice(tf.ones([2]), [1], [3])
tf.argmax(tf.ones([2]), 3)
tf.reduce_sum(tf.ones([2]), 3)
tf.reduce_sum("a")
tf.reduce_mean(["a"])
tf.sqrt("a")
tf.exp(tf.constant("a"))
tf.einsum("ij,jk->ik", tf.ones([2, 3]), tf.ones([2, 3]))
tf.tensordot(tf.ones([2, 3]), tf.ones([2, 3]), 1)
tf.linalg.inv(tf.zeros([2, 2]))
tf.linalg.inv(tf.zeros([2, 3]))
tf.linalg.solve(tf.zeros([2, 2]), tf.ones([2, 1]))
tf.constant([1]) // 0
tf.math.floordiv(1, 0)
tf.nn.conv2d(tf.ones([1, 3, 3, 1]), tf.ones([2, 2, 2, 1]), 1, "SAME")
tf.nn.conv2d(tf.ones([1, 3, 3, 1]), tf.ones([2, 2, 1, 1]), 1, "FOO")
tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[5], logits=[[1., 2.]])
tf.nn.embedding_lookup(tf.ones([2, 2]), [3])
tf.image.random_crop(tf.ones([2, 2, 1]), [3, 3, 1])
L.Embedding(3, 2)(tf.constant([[5]]))
K.losses.mse(tf.ones([2, 3]), tf.ones([2, 4]))
K.losses.SparseCategoricalCrossentropy()(tf.constant([5]), tf.constant([[.1, .9]]))
L.IntegerLookup(vocabulary=[1], num_oov_indices=0)(2)
L.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"])
tf.random.normal("a")
tf.random.categorical([1.], 2)
tf.RaggedTensor.from_row_splits([1, 2], [0, 1])
tf.RaggedTensor.from_row_splits([1, 2], [0, 3, 2])
tf.RaggedTensor.from_row_lengths([1, 2], [1])
tf.sparse.to_dense(tf.sparse.SparseTensor([[5, 0]], [1], [2, 2]))
tf.sparse.to_dense(tf.sparse.SparseTensor([[1, 0], [0, 0]], [1, 2], [2, 2]))
tf.strings.substr("abc", 5, 1)
tf.strings.regex_replace("a", "(", "b")
tf.strings.unicode_decode("a", "foo")
tf.audio.decode_wav(b"abc")
tf.clip_by_norm("a", 1.)
K.ops.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
K.ops.add(tf.ones([2, 3]), tf.ones([2, 4]))
K.ops.reshape(tf.ones([2, 3]), (4,))
K.ops.concatenate([tf.ones([2, 3]), tf.ones([2, 4])], 0)
K.ops.take(tf.ones([2]), 5)
K.ops.transpose(tf.ones([2, 3]), [0])
K.ops.stack([tf.ones([2]), tf.ones([3])])
K.ops.split(tf.ones([5]), 2)
K.ops.softmax(tf.ones([5]), 3)
""",
    "NotFoundError": r"""
tf.io.read_file("/nowhere")
list(tf.data.TextLineDataset("/nowhere"))
list(tf.data.TFRecordDataset("/nowhere"))
tf.train.Checkpoint(v=tf.Variable(1.)).restore("/nowhere/ckpt")
tf.train.Checkpoint(v=tf.Variable(1.)).read("/nowhere/ckpt")
""",
    "FailedPreconditionError": r"""
L.StringLookup()(["a"])
L.TextVectorization()(["a"])
""",
    "OutOfRangeError": r"""
iter(tf.data.Dataset.range(0)).get_next()
""",
    "TypeError": r"""
tf.constant(1.5, dtype=tf.int32)
tf.debugging.assert_type(1, tf.float32)
tf.Variable([1., 2.]).assign("a")
L.Dense()
K.utils.deserialize_keras_object({"class_name": "Foo", "config": {}})
L.deserialize({"class_name": "Foo", "config": {}})
tf.function(lambda x: x, input_signature=[tf.TensorSpec([2])])(tf.ones([3]))
tf.function(lambda x: x, input_signature=[tf.TensorSpec([2])])(tf.ones([2], tf.int32))
tf.function(lambda x: x, input_signature=[tf.TensorSpec([2])])("a")
tf.function(lambda x: x, input_signature=[tf.TensorSpec([2])])()
tf.function(lambda x: x)()
tf.function(lambda x: x)(1, 2)
tf.function(lambda x: x)(y=1)
tf.function(lambda x: x).get_concrete_function(tf.TensorSpec([2]))()
tf.random.uniform([2], 0, 1, dtype=tf.int32, foo=1)
tf.as_dtype("foo")
tf.TensorShape("a")
len(tf.constant(1))
list(tf.constant(1))
int(tf.constant([1, 2]))
tf.constant([1.])[0.5]
tf.constant([1.])["a"]
tf.clip_by_value([1.], 2., "a")
K.callbacks.EarlyStopping(foo=1)
L.Dropout("a")
L.Lambda("a")
L.Bidirectional(L.Dense(2))
""",
    "IndexError": r"""
K.Sequential().pop()
K.utils.to_categorical([5], 2)
L.BatchNormalization(axis=5)(tf.ones([2, 3]))
""",
    "AttributeError": r"""
tf.Variable([1., 2.]).foo
tf.foo
K.foo
tf.nn.foo
L.Dense(2).kernel
L.Dense(2).output
L.Dense(2).input
tf.constant([1, 2]).foo
K.backend.foo
K.ops.foo
""",
    "ValueError": r"""
tf.constant([[1, 2], [3]])
tf.constant([1, "a"])
tf.debugging.assert_shapes([(tf.ones([2]), (3,))])
tf.debugging.assert_rank(tf.ones([2]), 3)
list(tf.data.Dataset.from_tensor_slices(([1, 2], [1])))
list(tf.data.Dataset.range(3).map(lambda x: tf.reshape(tf.ones([2]), [3])))
tf.boolean_mask(tf.ones([2]), [True])
tf.where(True, 1)
tf.einsum("ij->k", tf.ones([2, 3]))
tf.image.resize(tf.ones([2]), [1, 1])
tf.image.crop_to_bounding_box(tf.ones([2, 2, 1]), 1, 1, 3, 3)
tf.image.resize(tf.ones([2, 2, 1]), [1, 1], method="foo")
tf.Variable([1., 2.]).assign([1., 2., 3.])
tf.Variable()
L.Dense(2)(tf.ones([2]))
L.Dense("a")
L.Dense(2, activation="foo")
L.Dense(2, kernel_initializer="foo")
L.Dense(2, foo=1)
L.Conv2D(2, 3, padding="foo")
L.Conv2D(2, 3)(tf.ones([2, 3]))
L.Conv2D(2, 5)(tf.ones([1, 3, 3, 1]))
L.Concatenate()([tf.ones([2, 3]), tf.ones([3, 3])])
L.Add()([tf.ones([2, 3]), tf.ones([2, 4])])
L.Reshape((4,))(tf.ones([2, 3]))
L.LSTM(3)(tf.ones([2, 3]))
L.Dense(2).set_weights([1])
K.Sequential([L.Dense(2)]).fit(np.ones((2, 2)), np.ones((2, 2)))
K.Sequential([1])
K.Sequential([L.Dense(2)]).get_layer("foo")
K.Sequential([L.Dense(2)]).get_layer(index=5)
K.models.load_model("/nowhere.keras")
K.models.load_model("/nowhere")
K.Sequential([K.Input((2,)), L.Dense(2)])(tf.ones([2, 3]))
K.Model(1, 2)
K.Model(K.Input((2,)), K.Input((2,)))
K.optimizers.get("foo")
K.losses.get("foo")
K.metrics.get("foo")
K.activations.get("foo")
K.initializers.get("foo")
K.optimizers.Adam(foo=1)
K.optimizers.Adam("a")
K.losses.MeanSquaredError(reduction="foo")
K.losses.CategoricalCrossentropy()(tf.ones([2, 3]), tf.ones([2, 4]))
L.StringLookup(output_mode="foo")
L.StringLookup(vocabulary=["a", "a"])
L.Discretization()(1.)
L.Discretization(bin_boundaries=[1.], num_bins=2)
L.Hashing(0)
L.Normalization(mean=1.)
L.TextVectorization(output_mode="foo")
L.TextVectorization(vocabulary="/nowhere")
tf.while_loop(lambda i: i < 3, lambda i: (i, i), [0])
tf.map_fn(lambda x: x, 1)
tf.random.uniform([2], dtype=tf.int32)
tf.TensorShape([2]).assert_is_compatible_with([3])
tf.TensorShape([2]).merge_with([3])
bool(tf.constant([1, 2]))
tf.ragged.constant([1, [2]])
tf.sparse.SparseTensor([[0, 0]], [1], [2])
tf.strings.format("{} {}", ("a",))
tf.config.set_visible_devices("foo")
K.callbacks.ModelCheckpoint("a.foo")
K.callbacks.ModelCheckpoint("a.h5", save_weights_only=True)
K.regularizers.get("foo")
K.regularizers.L2("a")
K.constraints.get("foo")
K.ops.one_hot([1], 2, dtype="foo")
K.ops.squeeze(tf.ones([2, 3]), 0)
K.ops.cholesky(-tf.eye(2))
L.Dropout(2.)
L.Flatten()("a")
L.TimeDistributed(L.Dense(2))(tf.ones([2]))
L.RNN(1)
K.Input()
K.Input("a")
K.preprocessing.sequence.pad_sequences([1, 2])
K.config.set_floatx("foo")
K.mixed_precision.set_global_policy("foo")
K.models.model_from_json("a")
""",
    "OSError": r"""
K.Sequential([K.Input((2,)), L.Dense(2)]).load_weights("/nowhere.weights.h5")
K.utils.image_dataset_from_directory("/nowhere")
K.utils.text_dataset_from_directory("/nowhere")
K.utils.load_img("/nowhere")
tf.saved_model.load("/nowhere")
""",
}
NAMES = {"tf": tf, "np": np, "K": tf.keras, "L": tf.keras.layers}


def class_named(name):
    """Return the class of an error of TensorFlow or of Python."""
    return getattr(tf.errors, name, None) or __builtins__[name]


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_have_the_class_of_tensorflow(name):
    wrong = []
    for call in MISTAKES[name].split("\n")[1:-1]:
        try:
            wrong.append(f"{call}: received {eval(call, NAMES)!r:.80}")
        except class_named(name):
            pass
        except Exception as error:
            wrong.append(f"{call}: received {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_errors_of_a_signature():
    add = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec([2])])
    for arguments in [(), (tf.ones(3),), (tf.ones(2), tf.ones(2)), (tf.ones((1, 2)),)]:
        with pytest.raises(TypeError, match="expected arguments"):
            add(*arguments)
    with pytest.raises(TypeError, match="expected a tensor"):
        add.get_concrete_function()(tf.ones(3))
    with pytest.raises(TypeError):
        add(tf.ones(2), other=1)


def test_conditions_of_tensors_without_value():
    choose = tf.function(lambda x: 1 if x > 0 else 2, autograph=False)
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        choose(tf.constant(1))
    with pytest.raises(TypeError):
        choose(tf.constant(1))


def test_programs_raise_errors_of_tensorflow():
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        raise tf.errors.InvalidArgumentError(None, None, "a bad value")
    assert caught.value.message == str(caught.value) == "a bad value"
    for name in ("AbortedError", "CancelledError", "InternalError", "UnknownError"):
        assert issubclass(getattr(tf.errors, name), tf.errors.OpError)


def test_corrupt_records_and_missing_files(tmp_path):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"abc")
    path.write_bytes(path.read_bytes()[:-6] + b"xxxxxx")
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset(str(path)))
    for kind in (tf.data.TFRecordDataset, tf.data.TextLineDataset):
        with pytest.raises(tf.errors.NotFoundError):
            list(kind(str(tmp_path / "no file")))
