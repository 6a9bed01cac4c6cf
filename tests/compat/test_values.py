"""Tests of calls with the results of TensorFlow 2.21, and of refused calls.

`C` is `tf.constant`, `gradients` the derivatives of a function at some vectors.
"""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ToolkitError


def gradients(function, *values):
    xs = [tf.constant(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = function(*xs)
    return tape.gradient(y, xs)


NAMES = {"tf": tf, "np": np, "C": tf.constant, "gradients": gradients}
T = [0.0, 1.0, 1.0, 0.0, 3.0]
NAMES["T"] = T

ROWS = tf.IndexedSlices([10.0, 20.0], [0, 2])
NAMES["ROWS"] = ROWS
NAMES["V"] = lambda: tf.Variable([1.0, 2.0, 3.0])


def typed(x, dtype):
    spec = tf.TensorSpec([None], dtype)
    return tf.function(lambda x: x, input_signature=[spec])(x)


def after_update(variable, change):
    change(variable)
    return variable


NAMES |= {"typed": typed, "after": after_update}

VALUES = {
    # Variables.
    "V().value()": [1, 2, 3],
    "V().value() + V().value": [2, 4, 6],
    "tf.Variable(V().value())": [1, 2, 3],
    "gradients(lambda x: tf.Variable(x).value() * x, [2.])": [[2]],
    "V().assign([2., 2., 2.]).assign_add([1., 1., 1.]).assign_sub([0., 0., 1.])": [
        *(3, 3, 2)
    ],
    "V().assign([2., 2., 2.], read_value=False)": None,
    "after(V(), lambda v: v[0].assign(9.))": [9, 2, 3],
    "V()[1:].assign([9., 8.])": [1, 9, 8],
    "V()[1:].assign(5.)[0].assign(4.)": [4, 5, 5],
    "tf.Variable([[1., 2.], [3., 4.]])[:, 1].assign([9., 8.])": [[1, 9], [3, 8]],
    "tf.Variable([[1., 2.], [3., 4.]])[..., ::-1].assign([[9., 8.], [1., 2.]])": [
        [8, 9],
        [2, 1],
    ],
    "tf.Variable([[1., 2.], [3., 4.]])[C(1)].assign([[9., 8.]])": [[1, 2], [9, 8]],
    "after(V(), lambda v: tf.function(lambda: v[0].assign(7.))())": [7, 2, 3],
    "hasattr(C([1.])[0], 'assign')": False,
    "V().scatter_add(ROWS)": [11, 2, 23],
    "V().scatter_sub(tf.IndexedSlices([10., 20.], [0, 0]))": [-29, 2, 3],
    "V().scatter_update(ROWS)": [10, 2, 20],
    "V().scatter_max(tf.IndexedSlices([0., 20.], [0, 2]))": [1, 2, 20],
    "V().scatter_min(tf.IndexedSlices([0., 20.], [0, 2]))": [0, 2, 3],
    "tf.Variable([[1., 2.], [3., 4.]]).scatter_add(tf.IndexedSlices(1., [1]))": [
        [1, 2],
        [4, 5],
    ],
    "V().scatter_nd_add([[0], [0]], [1., 1.])": [3, 2, 3],
    "V().sparse_read([0, 2])": [1, 3],
    "V().gather_nd([[0], [2]])": [1, 3],
    "tf.Variable(1).assign(np.float64(1.5))": 1,
    "tf.Variable([1]).assign(np.array([1.5]))": [1],
    # Arguments and results of functions.
    "tf.function(lambda x: x)(3).dtype": "int32",
    "tf.function(lambda x: (x, None, [1.5]))(True)": [True, None, [1.5]],
    "tf.function(lambda: np.float64(3))().dtype": "float64",
    "tf.function(lambda: 'a')()": b"a",
    "typed([1, 2, 3], tf.float32).dtype": "float32",
    "typed(np.array([1., 2.]), tf.float32)": [1, 2],
    "typed(tf.Variable([1., 2.]), tf.float32)": [1, 2],
    "tf.function(lambda x: x + 1).get_concrete_function("
    "tf.TensorSpec([2], tf.float32))([1., 2.])": [2, 3],
    # Dtypes outside of NumPy.
    "C([1.]).dtype == np.float32": True,
    "tf.int32 == np.dtype('int32')": True,
    "tf.int32 == np.int64 or tf.int32 == int or tf.int32 == 5": False,
    "tf.bool == np.bool_ and np.bool_ == tf.bool": True,
    "tf.int32 != np.int64 and not tf.int32 != np.int32": True,
    "tf.float32 in (np.float32, np.float64)": True,
    "{tf.float32: 1}[tf.float32]": 1,
    "tf.bitcast(C([1, 2], tf.uint16), tf.uint8)": [[1, 0], [2, 0]],
    "tf.bitcast(C([[1, 2]], tf.uint8), tf.uint16)": [513],
    "tf.bitcast(C([1., -2.]), tf.int32)": [1065353216, -1073741824],
    # Operators.
    "C([[1, 2], [3, 4]])[[0, 1]]": 2,
    "tf.Variable([[1, 2], [3, 4]])[[0, 1]]": 2,
    "C([[1, 2], [3, 4]])[[slice(0, 1), 0]]": [1],
    "C([1, 2]) == C([1, 2, 3])": False,
    "C([1, 2]) != [1, 2, 3]": True,
    "tf.Variable([1, 2]) == tf.Variable([1, 2, 3])": False,
    "tf.function(lambda x, y: x == y)(C([1, 2]), C([1, 2, 3]))": False,
    "C([1, 2]) == C([1])": [True, False],
    "C(5.) // 0.": np.inf,
    # Values of constants.
    "C(np.array([1.5]), dtype=tf.int32)": [1],
    "C(True, dtype=tf.int32)": 1,
    "tf.convert_to_tensor(1.5, dtype_hint=tf.int32)": 1.5,
    # A float step that is rounded up adds no element at the end.
    "tf.range(0., .3, .1)": [0.0, 0.1, 0.2],
    "len(tf.range(0., 1.1, .1))": 11,
    "tf.range(0, .5, .1, dtype=tf.float16).shape": (5,),
    "tf.range(0., 1., .3)": [0.0, 0.3, 0.6, 0.9],
    "tf.range(1., 0., -.3)": [1.0, 0.7, 0.4, 0.1],
    "tf.range(np.float64(3)).dtype": "float64",
    "tf.range(5, 5)": [],
    # If two values are equal, the first has the gradient.
    "gradients(lambda x: tf.maximum(x, 0.), T)": [[1, 1, 1, 1, 1]],
    "gradients(lambda x: tf.maximum(0., x), T)": [[0, 1, 1, 0, 1]],
    "gradients(lambda x: tf.minimum(x, 1.), T)": [[1, 1, 1, 1, 0]],
    "gradients(lambda x: tf.minimum(1., x), T)": [[1, 0, 0, 1, 0]],
    "gradients(tf.function(lambda x: tf.maximum(x, 0.)), T)": [[1, 1, 1, 1, 1]],
    "gradients(lambda x: tf.clip_by_value(x, 1., 3.), T)": [[0, 1, 1, 0, 1]],
    "gradients(lambda x: tf.clip_by_value(x, 1., 1.), T)": [[0, 1, 1, 0, 0]],
    "gradients(tf.clip_by_value, [1., 2., 3., 0., 5.], 1., 3.)": [
        [1, 1, 1, 0, 0],
        1,
        1,
    ],
    "gradients(tf.maximum, [1., 2., 3.], [[1.], [3.]])": [[1, 1, 2], [[0], [2]]],
    "gradients(lambda x: tf.reduce_max(x), [1., 2., 2.])": [[0, 0.5, 0.5]],
    "gradients(lambda x: tf.clip_by_norm(x * 0, 5.), T)": [[0, 0, 0, 0, 0]],
    "tf.maximum([1., np.nan], [np.nan, 1.])": [np.nan, np.nan],
    "tf.clip_by_value(1., 3., 2.)": 3.0,
    "tf.clip_by_value(C([1, 5, 9]), 2, 6)": [2, 5, 6],
}

REFUSED = {
    **{
        f"{x} {sign} {y}": "division by zero"
        for sign in ("//", "%")
        for x, y in (("C(5)", 0), (5, "C(0)"), ("C([5, 6])", "C([1, 0])"))
    },
    "tf.Variable(5) // 0": "division by zero",
    "tf.math.floordiv(C(5), 0)": "division by zero",
    "tf.math.floormod(5, C(0))": "division by zero",
    "C([1, 2]) < C([1, 2, 3])": "broadcast",
    "tf.bitcast(C([1, 2, 3], tf.uint8), tf.uint16)": "last axis of 2 elements",
    "tf.bitcast(C([True]), tf.uint8)": "other than bool",
    "C(1.5, dtype=tf.int32)": "expected int32; received 1.5",
    "C([1, 2.5], dtype=tf.int32)": "expected int32; received 2.5",
    "C('a', dtype=tf.int32)": "expected numbers of int32; received strings",
    "C(1, dtype=tf.bool)": "expected bool; received 1",
    "C([C(1.5)], dtype=tf.int32)": "expected int32",
    "tf.range(2.5, dtype=tf.int32)": "range: expected int32; received 2.5",
    "tf.Variable([1.5], dtype=tf.int32)": "expected int32; received 1.5",
    "tf.Variable(C([1.5]), dtype=tf.int32)": "expected int32; received",
    "tf.Variable(lambda: 1.5, dtype=tf.int32)": "expected int32; received 1.5",
    "tf.Variable(1).assign(1.5)": "expected int32; received 1.5",
    "tf.Variable(1).assign(C(1.5))": "expected int32; received",
    "tf.Variable(1).assign_add(.5)": "expected int32; received 0.5",
    "tf.Variable([1., 2.]).assign_add([1.])": "expected a value of shape",
    "tf.Variable([1., 2.]).assign_sub(1.)": "expected a value of shape",
    "tf.Variable([1., 2.], shape=[None])": "without None",
    "tf.Variable([1.]).scatter_add(2.)": "expected IndexedSlices",
    "typed([1.5], tf.int32)": "expected int32; received 1.5",
    "typed(C([1]), tf.float32)": "expected arguments",
    "typed([[1.]], tf.float32)": "expected arguments",
    "tf.range(5, 0)": "lead from start to limit",
    "tf.range(1, 5, 0)": "lead from start to limit",
    "tf.range(np.uint8(3))": "uint8",
}


def plain(value):
    """Convert structures to plain numbers."""
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    if isinstance(value, str):
        return str(value)
    value = value.numpy() if hasattr(value, "numpy") else value
    return value.tolist() if hasattr(value, "tolist") else value


def is_close(actual, expected):
    if isinstance(expected, (list, tuple)):
        return len(actual) == len(expected) and all(map(is_close, actual, expected))
    if isinstance(expected, (str, bool, bytes)) or expected is None:
        return actual == expected and type(actual) is type(expected)
    return np.allclose(actual, expected, 1e-5, 1e-6, equal_nan=True)


def test_unrolled_loop_has_a_tensor_counter():
    @tf.function
    def count():
        total = 0
        for _ in tf.range(3):
            total += 1
        return total

    assert tf.is_tensor(count()) and int(count()) == 3


def test_signatures_match_structures_and_keywords():
    vector, number = tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)
    total = tf.function(lambda x: x["a"][0] + x["a"][1],
                        input_signature=[{"a": [vector, number]}])  # fmt: skip
    assert total({"a": [[1, 2], 3]}).numpy().tolist() == [4.0, 5.0]
    minus = tf.function(lambda x, y: x - y, input_signature=[number, number])
    assert float(minus(y=3, x=2)) == -1.0


def test_eager_function_has_the_same_interface():
    spec = tf.TensorSpec([None], tf.float32)

    @tf.function(input_signature=[spec])
    def counted(x):
        tf.debugging.assert_positive(x)
        return x, 3

    with pytest.warns(UserWarning, match="runs eagerly"):
        x, three = counted([1, 2])
    assert x.dtype == "float32" and three.dtype == "int32"


def test_assignments_return_the_variable():
    v = tf.Variable(1)
    first, second = v.assign_add(1), v.assign_add(1)
    assert first is second is v and int(v) == 3


def test_tape_lists_watched_variables_after_a_gradient():
    v = tf.Variable(2.0, trainable=False)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
        y = v * v
    assert float(tape.gradient(y, v)) == 4.0
    assert tape.watched_variables() == (v,)


@pytest.mark.parametrize("call", VALUES)
def test_results_match_tensorflow(call):
    actual = plain(eval(call, dict(NAMES)))
    assert is_close(actual, VALUES[call]), actual


@pytest.mark.parametrize("call", REFUSED)
def test_refusals_match_tensorflow(call):
    with pytest.raises(ToolkitError, match=REFUSED[call]):
        eval(call, dict(NAMES))


def test_restore_status_reports_a_missing_checkpoint(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    empty_status = checkpoint.restore(None)
    assert empty_status.expect_partial() is empty_status
    with pytest.raises(ToolkitError, match="received None"):
        empty_status.assert_existing_objects_matched()
    path = checkpoint.save(tmp_path / "new" / "file")
    checkpoint.restore(path).assert_consumed().assert_existing_objects_matched()


def test_tensor_arrays_are_split_and_scattered():
    rows = tf.constant([1.0, 2.0, 3.0])
    split = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(rows, [1, 2])
    assert split.read(1).numpy().tolist() == [2.0, 3.0]
    scattered = tf.TensorArray(tf.float32, size=tf.constant(3)).scatter([2, 0, 1], rows)
    assert scattered.stack().numpy().tolist() == [2.0, 3.0, 1.0]


def test_tensor_arrays_need_a_size_in_dynamic_loops():
    @tf.function
    def squares(n):
        array = tf.TensorArray(tf.int32, size=4)
        for i in tf.range(n):
            array.write(i, i * i)
        return array.stack()

    with pytest.raises(ToolkitError, match="tensor_scatter_nd_update"):
        squares(tf.constant(4))
    with pytest.raises(ToolkitError, match="known size"):
        tf.function(lambda n: tf.TensorArray(tf.int32, size=n).size())(tf.constant(4))


def test_shapes_merge_and_indices_unravel():
    assert tf.TensorShape([2, None]).merge_with([None, 3]) == (2, 3)
    indices = tf.unravel_index([5, 0], [2, 3])
    assert indices.numpy().tolist() == [[1, 0], [2, 0]]


def test_numbers_where_a_message_has_bytes_are_refused():
    message = bytes([8, 7, 64, 0x80, 0x80, 0x80, 0x80, 4])  # field 8 as a number
    with pytest.raises(ToolkitError, match="a field of bytes contains a number"):
        tf.io.parse_tensor(message, tf.string)
