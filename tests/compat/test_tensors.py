"""Tests of attributes and methods of tensors and Variables under TensorFlow's names."""

import subprocess
import sys

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.errors import ToolkitError, TraceError, UnsupportedError


def test_toolkit_does_not_import_the_shim():
    code = "import toolkit, sys; toolkit.layers; print('toolkit.compat' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert process.stdout == "False\n", process.stderr


def test_variables_have_tensorflow_names():
    layer = tf.keras.layers.Dense(2, name="dense")
    layer(tf.ones((1, 3)))
    assert [v.name for v in layer.variables] == ["dense/kernel:0", "dense/bias:0"]
    assert isinstance(layer.kernel, tf.Variable)
    assert tf.Variable(1.0).name == "Variable:0"
    assert tf.Variable(1.0, name="a/b").name == "a/b:0"


def test_shapes_and_dtypes_match_tensorflow():
    layer = tf.keras.layers.Dense(2)
    y = layer(tf.ones((4, 3)))
    assert y.shape.as_list() == y.get_shape().as_list() == [4, 2]
    assert y.dtype == tf.float32 and y.dtype.name == "float32"
    assert layer.kernel.dtype.as_numpy_dtype is toolkit.ops.ones(()).numpy().dtype.type
    assert str(y.shape) == "(4, 2)" and repr(y.shape) == "TensorShape([4, 2])"


def test_tensor_references_are_keys():
    x, y = tf.zeros((2, 3)), tf.zeros((2, 3))
    assert {x.ref(): 1}.get(y.ref()) is None and x.ref() == x.ref()
    assert x.ref().deref() is x
    x.set_shape([None, 3])
    with pytest.raises(ToolkitError, match="incompatible"):
        x.set_shape([None, 4])


V = tf.Variable([1.0, 2.0], name="v")
X = toolkit.ops.convert_to_tensor([3.0, 4.0])
RESULTS = {
    "of numbers": lambda: tf.ones((2,)),
    "of the core's tensors": lambda: tf.add(X, X),
    "one of the core's, as it is": lambda: tf.convert_to_tensor(X),
    "of several": lambda: tf.unstack(tf.stack([X, X]))[0],
    "of an operator": lambda: 2.0 * tf.constant(1.0) + X,
    "of the core's on the left": lambda: X + tf.constant(1.0),
    "of a core function": lambda: toolkit.ops.exp(tf.constant(1.0)),
    "of a Variable": lambda: V * 2.0,
    "its value": lambda: V.read_value(),
    "its next value": lambda: V.assign_add([0.0, 0.0]).value(),
    "of a row": lambda: tf.ones((2, 2))[0],
    "of a loop": lambda: next(iter(tf.ones((2, 2)))),
    "of random numbers": lambda: tf.random.Generator.from_seed(1).normal((2,)),
    "of a layer": lambda: tf.keras.layers.Dense(1)(tf.ones((2, 2))),
    "of a model": lambda: tf.keras.Sequential([tf.keras.layers.ReLU()])(tf.ones(2)),
    "of several inputs": lambda: tf.keras.layers.Add()([X, tf.ones(2)]),
    "of a traced function": lambda: tf.function(lambda x: x + X)(X),
    "of a data set": lambda: next(iter(tf.data.Dataset.range(2))),
    "of ragged rows": lambda: tf.ragged.constant([[1], [2, 3]]).to_tensor(),
    "of an array of tensors": lambda: tf.TensorArray("float32", 1).write(0, X).stack(),
    "of a sparse tensor": lambda: tf.sparse.to_dense(
        tf.SparseTensor([[0]], [1.0], [2])
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_tensorflow_attributes(name):
    y = RESULTS[name]()
    assert issubclass(type(y), tf.Tensor) and isinstance(
        y, toolkit.ops.ones(()).__class__
    )
    assert y.shape.as_list() == list(y.numpy().shape) and y.dtype.name == str(y.dtype)


def test_gradients_and_symbols_have_tensorflow_attributes():
    types = []

    class Custom(tf.keras.layers.Layer):
        def call(self, x):
            types.append(x)
            return x * V

    layer = Custom()

    @tf.function
    def step(x):
        types.append(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        types.append(tape.gradient(loss, V))
        return loss

    types.append(step(tf.ones((1, 2))))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf.reduce_sum(tf.identity(X) * tf.convert_to_tensor(X) * toolkit.ops.exp(X))
    types.append(tape.gradient(y, X))
    assert len(types) == 5 and all(type(x) is tf.Tensor for x in types)
    x = X.numpy()
    assert abs(types[-1].numpy() / (np.exp(x) * (x * x + 2 * x)) - 1).max() < 1e-5


def test_layers_that_cast_their_input_return_tensorflow_tensors():
    layer = toolkit.layers.Identity(dtype="float32")
    for x in (tf.ones((2,), "float64"), tf.Variable(np.ones(2))):
        assert type(layer(x)) is tf.Tensor


def test_user_layers_receive_tensorflow_tensors_in_fit(tmp_path):
    types = []

    class Custom(tf.keras.layers.Layer):
        def call(self, x):
            types.append(x)
            return tf.reshape(x, [-1, x.shape.as_list()[1]])

    class Network(tf.keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.custom, self.dense = Custom(), tf.keras.layers.Dense(1)

        def call(self, x):
            types.append(x)
            return self.dense(self.custom(x))

    class Functional(tf.keras.Model):
        def __init__(self):
            inputs = tf.keras.Input((2,))
            super().__init__(inputs, Custom()(inputs))

    x = np.ones((4, 2), "float32")
    plain = tf.keras.Sequential([Custom(), toolkit.layers.Dense(1)])
    for model in (Network(), plain):
        model.compile(optimizer="sgd", loss="mse")
        model.fit(x, x[:, :1], verbose=0)
        model.predict(x, verbose=0)
    assert Functional()(x).shape.as_list() == [4, 2] and Network()(x).shape == (4, 1)
    assert len(types) > 6 and all(type(x) is tf.Tensor for x in types)
    plain.save_weights(tmp_path / "w.weights.h5")
    assert isinstance(plain, tf.keras.Model) and type(plain) is toolkit.Sequential
    assert isinstance(plain.layers[1], tf.keras.layers.Layer)
    assert issubclass(toolkit.layers.Dense, tf.keras.layers.Layer)
    assert not issubclass(toolkit.layers.Dense, Custom)
    assert type(tf.keras.Model(*[tf.keras.Input((1,))] * 2)).__name__ == "Functional"
    assert Network.from_config({"name": "a"}).name == "a"


def test_core_results_are_unchanged():
    v = toolkit.Variable(1.0, name="v")
    assert v.name == "v" and type(v.shape) is tuple and not hasattr(v, "get_shape")
    layer = toolkit.layers.Dense(1)
    for y in (layer(X[None]), X + 1.0, v * X, toolkit.function(lambda x: x)(X)):
        assert type(y) is type(X) is not tf.Tensor and isinstance(y, tf.Tensor)
        assert type(y.shape) is tuple and type(y.dtype) is str
    assert isinstance(layer.kernel, tf.Variable) and layer.kernel.name == "kernel"


def test_tensors_print_like_tensorflow():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    assert str(x) == "tf.Tensor(\n[[1. 2.]\n [3. 4.]], shape=(2, 2), dtype=float32)"
    assert repr(tf.constant(1)) == "<tf.Tensor: shape=(), dtype=int32, numpy=1>"
    assert repr(tf.constant([1.0])).endswith("numpy=array([1.], dtype=float32)>")
    v = tf.Variable(1.0, name="v")
    assert repr(v) == "<tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>"
    assert f"{tf.constant(1.5):.2f} {tf.constant(0.25).numpy():.3f}" == "1.50 0.250"


def test_scalars_are_indices():
    assert [1, 2, 3][tf.constant(1)] == 2 and list(range(tf.constant(2))) == [0, 1]
    with pytest.raises(TypeError):
        _ = [1, 2, 3][tf.constant(1.0)]


def test_printing_writes_values(capsys, tmp_path):
    path = tmp_path / "log"
    tf.print(tf.constant([1.0, 2.5]), [1, tf.constant(2)], "a", tf.constant(1 / 3))
    tf.print(tf.constant(True), tf.constant("s"), sep="|", end="!")
    tf.print(tf.range(9), summarize=-1, output_stream=f"file://{path}")
    assert capsys.readouterr().err == '[1 2.5] [1, 2] a 0.333333343\n1|"s"!'
    assert path.read_text("utf-8") == "[0 1 2 3 4 5 6 7 8]\n"


@pytest.mark.parametrize("condition", ["if x > 0: pass", "while x > 0: pass", "not x"])
def test_control_flow_error_names_a_remedy(condition):
    namespace = {}
    exec(f"def f(x):\n    {condition}\n    return x", namespace)
    with pytest.raises(TraceError, match=r"tf\.cond, tf\.while_loop"):
        tf.function(namespace["f"])(tf.constant(1.0))


def test_missing_names_suggest_a_replacement():
    with pytest.raises(UnsupportedError, match="Model.export"):
        tf.lite.TFLiteConverter.from_keras_model(None)
    with pytest.raises(AttributeError, match="no attribute 'zebra'"):
        _ = tf.zebra


def test_every_name_exists():
    for name in dir(tf):
        getattr(tf, name)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("tf.exp([1], 'name', 3)", "at most 1"),
        ("tf.exp(y=1.0)", "among x and name; received 'y'"),
        ("tf.Variable(1.0, validate_shape=False)", "validate_shape=False"),
        ("tf.function(lambda: 1, experimental_implements='f')", "implements=None"),
        ("tf.TensorShape(None)", "unknown rank"),
        ("tf.split(tf.zeros(4), [1, 2])", "add up to 4"),
        ("tf.ensure_shape(tf.zeros(4), [3])", "expected"),
        ("tf.image.central_crop(tf.zeros((2, 2, 1)), 2.0)", r"in \(0, 1\]"),
        ("tf.nn.conv2d(tf.zeros((1,3,3,1)), tf.zeros((1,1,1,1)), [2,1,1,1], 'SAME')",
         "2 spatial axes"),
        ("tf.random.uniform([2], dtype=tf.int32)", "expected maxval"),
        ("tf.config.optimizer.set_jit('maybe')", "autoclustering"),
    ],
)  # fmt: skip
def test_unsupported_operations_are_refused(code, words):
    with pytest.raises((ToolkitError, TypeError), match=words):
        eval(code, {"tf": tf})


def test_lists_of_tensors_keep_their_gradient_and_may_be_traced():
    w = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean([w * w, w * 3.0, 1.0])
    assert float(tape.gradient(loss, w)) == pytest.approx(7 / 3)
    traced = tf.function(lambda x: tf.reduce_sum([[x, x * 2], [1.0, x]]))
    assert float(traced(tf.constant(2.0))) == 9
    assert tf.convert_to_tensor([tf.constant(1.0), 2.0]).dtype == tf.float32
