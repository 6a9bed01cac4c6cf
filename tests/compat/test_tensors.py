"""What tensors and Variables answer under TensorFlow's names."""

import subprocess
import sys

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.compat.tensorflow import installing


def test_the_toolkit_alone_imports_none_of_it():
    code = "import toolkit, sys; toolkit.layers; print('toolkit.compat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_variables_have_tensorflow_names():
    layer = toolkit.layers.Dense(2, name="dense")
    layer.build((None, 3))
    assert [v.name for v in layer.variables] == ["dense/kernel:0", "dense/bias:0"]
    assert isinstance(layer.kernel, tf.Variable)
    assert tf.Variable(1.0).name == "Variable:0"
    assert tf.Variable(1.0, name="a/b").name == "a/b:0"


def test_shapes_and_dtypes_answer_as_there():
    layer = toolkit.layers.Dense(2)
    y = layer(toolkit.ops.ones((4, 3)))
    assert y.shape.as_list() == y.get_shape().as_list() == [4, 2]
    assert y.dtype == tf.float32 and y.dtype.name == "float32"
    assert layer.kernel.dtype.as_numpy_dtype is toolkit.ops.ones(()).numpy().dtype.type
    assert str(y.shape) == "(4, 2)" and repr(y.shape) == "TensorShape([4, 2])"


def test_uninstall_leaves_nothing_behind():
    installing.uninstall()
    v = toolkit.Variable(1.0, name="v")
    assert v.name == "v" and type(v.shape) is tuple and not hasattr(v, "get_shape")
    installing.install()
    assert v.name == "v:0"
