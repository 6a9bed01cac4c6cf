"""What TensorFlow 2.21 returned for these calls, and what it refuses.

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

VALUES = {
    # A step of floats that is rounded up adds no element at the end.
    "tf.range(0., .3, .1)": [0.0, 0.1, 0.2],
    "len(tf.range(0., 1.1, .1))": 11,
    "tf.range(0, .5, .1, dtype=tf.float16).shape": (5,),
    "tf.range(0., 1., .3)": [0.0, 0.3, 0.6, 0.9],
    "tf.range(1., 0., -.3)": [1.0, 0.7, 0.4, 0.1],
    "tf.range(np.float64(3)).dtype": "float64",
    "tf.range(5, 5)": [],
    # Where two are equal the first has the gradient.
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
    "tf.range(5, 0)": "lead from start to limit",
    "tf.range(1, 5, 0)": "lead from start to limit",
    "tf.range(np.uint8(3))": "uint8",
}


def plain(found):
    """Nests of numbers."""
    if isinstance(found, (list, tuple)):
        return [plain(x) for x in found]
    if isinstance(found, str):
        return str(found)
    return found.numpy().tolist() if hasattr(found, "numpy") else found


def same(found, wanted):
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, (str, bool, bytes)) or wanted is None:
        return found == wanted and type(found) is type(wanted)
    return np.allclose(found, wanted, 1e-5, 1e-6, equal_nan=True)


@pytest.mark.parametrize("call", VALUES)
def test_it_is_as_there(call):
    found = plain(eval(call, dict(NAMES)))
    assert same(found, VALUES[call]), found


@pytest.mark.parametrize("call", REFUSED)
def test_it_is_refused_as_there(call):
    with pytest.raises(ToolkitError, match=REFUSED[call]):
        eval(call, dict(NAMES))
