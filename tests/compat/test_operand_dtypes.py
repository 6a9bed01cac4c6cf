"""Tests that operations have TensorFlow's dtypes for arrays and numbers."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit import ops

# The dtype of the result in TensorFlow -> calls.
DTYPES = {
    "bool": r"""
C([1, 2]) == A([1., 2.])
C([1., 2]) == A([1, 2.])
C([1., 2]) == A([1, 2])
C([1, 2]) < A([1., 2])
C([1., 2]) < A([1., 2])
C([1., 2]) < np.float64(1)
A([1., 2]) < C([1., 2])
A([1., 2]) == C([1., 2])
C([1., 2]) == np.float64(1)
tf.equal(C([1., 2.]), A([1., 3.]))
tf.equal(A([1., 3.]), C([1., 2.]))
tf.greater(C([1., 2.]), A([1., 3.]))
C(['a', 'b']) == A(['a', 'c'])
C([1., 2.]) > 1
C(3) > np.int64(2)
C([True, False]) == A([1., 0])
C([1, 2]) == 1
C([1., 2]) == 1
tf.Variable([1., 2]) > A([2., 2.])
tf.Variable([1., 2]) == A([1., 2.])
tf.logical_and(C([True]), A([True]))
tf.logical_and(A([1]), [True])
tf.greater(A([1.]), C([0.]))
tf.not_equal(A([1.]), C([0.]))
tf.less_equal(A([1.]), C([0.]))
""",
    "complex64": r"""
C([1, 2], tf.complex64) * 2
C([1, 2], tf.complex64) * 2.5
C([1, 2], tf.complex64) * A([1., 2])
C([1, 2], tf.complex64) * 1j
""",
    "float16": r"""
C([1., 2], tf.float16) + A([2, 3], np.float32)
""",
    "float32": r"""
C([1., 2.]) - A([1., 2.])
A([1., 2.]) - C([1., 2.])
C([1., 2.]) * A([1, 2])
A([1, 2]) * C([1., 2.])
C([1., 2]) + np.int64(2)
C([1., 2]) + np.float64(2)
np.float64(2) + C([1., 2])
np.float64(2) * C([1., 2])
np.float64(2) ** C([1., 2])
np.int64(2) * C([1., 2])
np.int32(2) - C([1., 2])
C([1., 2]) ** 2
C([1., 2]) ** A([2, 3])
C([[1., 2]]) @ A([[1., 3], [2, 3]])
A([[1., 3], [2, 3]]) @ C([[1., 2], [3, 4]])
tf.matmul(C([[1., 2], [3, 4]]), A([[1., 3], [2, 3]]))
C([1, 2], tf.uint8) / 255
C([1, 2], tf.uint8) / A([255, 1])
C([1, 2], tf.int16) / 2
tf.add(C([1., 2.]), A([1., 2.]))
tf.add(1., A([1., 2.]))
tf.add([1., 2.], A([1., 2.]))
tf.add(1., 2)
tf.add(np.float32(1), np.float64(2))
tf.add(A([1], 'float32'), A([2.]))
tf.multiply(C([1., 2.]), A([1., 2.]))
tf.multiply(A([1., 2.]), C([1., 2.]))
tf.subtract(A([1., 2.]), C([1., 2.]))
tf.divide(A([1., 2.]), C([1., 2.]))
tf.divide(C([1., 2.]), A([1., 2.]))
tf.divide(1., 2)
tf.maximum(C([1., 2.]), A([1., 3.]))
tf.maximum(A([1., 3.]), C([1., 2.]))
tf.maximum(C([1., 2.]), 0)
tf.maximum(0, C([1., 2]))
tf.minimum(1, C([1., 2]))
tf.pow(C([1., 2.]), A([1., 3.]))
tf.pow(C([1., 2.]), 2)
tf.pow(2, C([1., 2.]))
tf.pow(A([2.]), C([1., 2.]))
tf.math.floordiv(C([1., 2.]), A([1., 3.]))
tf.math.floormod(C([1., 2.]), A([1., 3.]))
tf.math.squared_difference(C([1., 2.]), A([1., 3.]))
tf.math.squared_difference(A([1., 3.]), C([1., 2.]))
tf.math.xlogy(C([1., 2.]), A([1., 3.]))
tf.atan2(C([1., 2.]), A([1., 3.]))
tf.concat([C([1., 2.]), A([1., 3.])], 0)
tf.concat([A([1., 3.]), C([1., 2.])], 0)
tf.concat([A([1, 3]), C([1., 2.])], 0)
tf.stack([C([1., 2.]), A([1., 3.])])
tf.stack([A([1., 3.]), C([1., 2.])])
tf.stack([1, 2.])
tf.stack([C(1.), 2])
tf.stack([1., np.float64(2)])
tf.where([True, False], C([1., 2.]), A([1., 3.]))
tf.where([True, False], A([1., 3.]), C([1., 2.]))
tf.where([True, False], 1., 2)
tf.where([True, False], C([1., 2.]), 0)
tf.where([True, False], 0, C([1., 2.]))
tf.where(A([True, False]), 0., A([1., 2.]))
tf.clip_by_value(C([1., 2.]), 0, 1)
tf.clip_by_value(C([1., 2.]), np.float64(0), A([1., 3.]))
tf.einsum('i,i->', C([1., 2.]), A([1., 2.]))
tf.einsum('i,i->', A([1., 2.]), C([1., 2.]))
tf.Variable([1., 2.]) + A([1., 2.])
tf.Variable([1., 2.]) * np.float64(2)
np.float64(2) * tf.Variable([1., 2.])
A([1., 2.]) * tf.Variable([1., 2.])
tf.Variable([1., 2.]).assign_add(A([1., 2.]))
tf.image.resize(np.ones((2, 2, 1), 'uint8'), [1, 1])
tf.nn.bias_add(C([[1., 2.]]), A([1., 2.]))
C([1., 2.]) + [1, 2]
[1, 2] + C([1., 2])
[1, 2] * C([1., 2])
C([1., 2.]) + True
C([1., 2.]) + A([True, False])
C([1., 2.]) + A([1j, 2])
C([1., 2.]) * True
C([1., 2.]) + [True, False]
tf.concat([A([1.], 'float32'), A([2.])], 0)
np.int64(2) / C([1., 2.])
tf.Variable([1., 2]) / A([2., 2.])
A([[2., 2.]]) @ tf.Variable([[1., 2], [3, 4]])
tf.Variable([[1., 2], [3, 4]]) @ A([[2.], [2.]])
tf.matmul(tf.Variable([[1., 2], [3, 4]]), A([[2.], [2.]]))
tf.math.add(C([1.]), A([1.]))
tf.math.pow(2., A([1.]))
tf.where([True], A([1.], 'float32'), A([2.]))
tf.where(C([1., 2.]) > 1, A([1., 2.]), C(0.))
tf.clip_by_norm(C([3., 4.]), np.float64(1.))
tf.linalg.matmul(C([[1.]]), A([[1.]]))
tf.linalg.solve(C([[1.]]), A([[1.]]))
tf.linalg.solve(A([[1.]]), C([[1.]]))
tf.linalg.cross(C([1., 0, 0]), A([0., 1, 0]))
tf.nn.conv2d(tf.ones((1, 3, 3, 1)), np.ones((2, 2, 1, 1)), 1, 'SAME')
tf.nn.bias_add(np.ones((1, 2)), C([1., 2]))
tf.Variable([1., 2.])[0] * np.float64(2)
""",
    "float64": r"""
C([1, 2]) / 2
C([1., 2], tf.float64) ** A([2, 3])
C([1., 2], tf.float64) + A([2, 3])
C([1., 2], tf.float64) + A([2, 3], np.float32)
C([1, 2], tf.int64) / 2
tf.add(A([1., 2.]), 1)
tf.add(np.float64(1), 2)
tf.add(A([1.]), A([2], 'float32'))
tf.divide(C([1, 2]), A([1., 2.]))
tf.divide(1, 2)
tf.divide([1, 2], 2)
tf.concat([A([1., 3.]), A([1., 3.], 'float32')], 0)
tf.stack([np.float64(2), 1.])
tf.where(A([True, False]), A([1., 2.]), 0.)
tf.clip_by_value(A([1., 3.]), 0, 1)
tf.nn.conv2d(np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), 1, 'SAME')
tf.stack([A([1., 3.]), A([1., 3.], 'float32')])
np.int64(2) / C([1, 2])
A([2, 3]) / C([1, 2])
A([2., 3]) / C([1, 2])
C([1, 2]) / A([2, 3])
C([1, 2]) / A([2., 3])
tf.Variable([1, 2]) / 2
tf.Variable([1, 2]) / A([2., 2.])
tf.matmul(A([[1., 2], [3, 4]]), A([[2.], [2.]]))
tf.math.pow(A([1.]), 2)
tf.math.pow(A([1.]), 2.5)
tf.clip_by_norm(A([3., 4.]), 1.)
tf.keras.ops.add(C([1.]), A([1.]))
tf.keras.ops.multiply(A([1.]), 2)
tf.keras.ops.matmul(C([[1.]]), A([[1.]]))
tf.keras.ops.add(A([1]), A([1.]))
tf.Variable(np.float64(3)).assign_add(1.)
""",
    "int32": r"""
C([1, 2]) * A([1, 2])
C([1, 2]) * A([1., 2.])
C([1, 2]) * A([1.5, 2.])
C([1, 2]) + np.float64(2)
C([1, 2]) + np.float64(2.5)
C([1, 2]) + np.int64(2)
C([1, 2]) + np.float32(2.5)
C([1, 2]) ** 2
tf.add(1, A([1., 2.]))
C([1, 2]) + True
C([1, 2]) + A([True, False])
C([1, 2]) + A([1j, 2])
C([1, 2]) * True
C([1, 2]) * np.True_
C([1, 2], tf.int32) + A([2**40, 1])
np.float64(2.5) * C([1, 2])
tf.math.mod(C([5]), A([3.]))
tf.bitwise.bitwise_and(C([1]), A([3]))
""",
    "int64": r"""
tf.concat([A([1]), A([2.])], 0)
tf.matmul(A([[1, 2], [3, 4]]), A([[2.], [2.]]))
""",
    "uint8": r"""
C([1, 2], tf.uint8) * 2
C([1, 2], tf.uint8) + A([300, 1])
C([1, 2], tf.uint8) + A([-1, 1])
C([1, 2], tf.uint8) - 5
""",
}
# Calls that TensorFlow refuses with an InvalidArgumentError.
REFUSED = r"""
C([1, 2]) + 2.5
C([1, 2]) + [1.5, 2]
C([1.0, 2.0]) + C([1, 2])
C([1.0, 2.0]) + C([1.0, 2.0], tf.float64)
C([1, 2]) == C([1.0, 2.0])
C([1.0]) + 1j
C([True]) + 1
tf.Variable([1.0]) + tf.Variable([1])
tf.add(A([1.0]), C([1.0]))
tf.matmul(A([[1.0]]), C([[1.0]]))
tf.matmul([[1]], [[1.0]])
tf.concat([C([1.0]), C([1])], 0)
tf.stack([C(1.0), C(2)])
tf.where([True], C([1.0]), C([1]))
tf.tensordot(C([[1.0]]), A([[1.0]]), axes=1)
tf.linalg.matvec(C([[1.0]]), A([1.0]))
tf.nn.conv1d(tf.ones((1, 3, 1)), np.ones((2, 1, 1)), 1, "SAME")
tf.nn.sigmoid_cross_entropy_with_logits(labels=A([1.0]), logits=C([2.0]))
"""
NAMES = {"tf": tf, "np": np, "C": tf.constant, "A": np.array}


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_results(dtype):
    wrong = [
        f"{call}: received {result.dtype}"
        for call in DTYPES[dtype].split("\n")[1:-1]
        if (result := eval(call, NAMES)).dtype != dtype
    ]
    assert not wrong, "\n".join(wrong)


def test_quotients_of_integers_are_tensors_of_tensorflow():
    x = tf.constant([1, 2])
    pair = tf.Variable([1, 2])
    for quotient in (x / 2, 2 / x, x / x, np.int64(2) / x, pair / 2, 2 / pair):
        assert quotient.dtype is tf.float64


@pytest.mark.parametrize("call", REFUSED.split("\n")[1:-1])
def test_mixed_dtypes_that_tensorflow_refuses(call):
    with pytest.raises(tf.errors.InvalidArgumentError):
        eval(call, NAMES)


def test_functions_of_keras_and_layers_promote():
    x = tf.constant([[1, 2]])
    assert ops.add(x, 1.5).dtype == "float32"
    assert tf.keras.ops.add(tf.constant([1.0]), np.array([1.0])).dtype == "float64"
    assert tf.keras.layers.Rescaling(0.5)(x).dtype == "float32"
    assert (
        float(tf.keras.losses.MeanSquaredError()(x, tf.constant([[1.0, 3.0]]))) == 0.5
    )


def test_traced_functions_have_the_same_dtypes():
    factor = np.array([1.0, 2.0])
    scale = tf.function(lambda x: factor * x - np.float64(1))
    assert scale(tf.constant([1.0, 2.0])).numpy().tolist() == [0.0, 3.0]
    assert scale(tf.constant([1.0, 2.0])).dtype == "float32"
