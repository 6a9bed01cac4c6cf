"""Tests of calls with edge-case arguments: the results or refusals of TensorFlow 2.21.

`C` is `tf.constant`; a result is its dtype and its values.
"""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ToolkitError

RETURNED = """
tf.strided_slice(C([[1,2,3],[4,5,6]]),[0,0],[2,3],[1,2]) => int32 [[1, 3], [4, 6]]
tf.strided_slice(C([[1,2,3],[4,5,6]]),[1,-1],[2,-3],[1,-1]) => int32 [[6, 5]]
tf.strided_slice(C([[1,2],[3,4]]),[0,0],[1,1],begin_mask=1,end_mask=2) => int32 [[1, 2]]
tf.strided_slice(C([[1,2],[3,4]]),[1,0],[0,0],shrink_axis_mask=3) => int32 3
tf.strided_slice(C([[1,2],[3,4]]),[0,1],[0,2],ellipsis_mask=1) => int32 [[2], [4]]
tf.strided_slice(C([1,2,3]),[0,1],[0,2],new_axis_mask=1) => int32 [[2]]
tf.math.cumulative_logsumexp(C([1.,2.,3.])) => float32 [1, 2.31326175, 3.40760612]
tf.math.cumulative_logsumexp(C([1.,2.]),exclusive=True) => float32 [-inf, 1]
tf.math.cumulative_logsumexp(C([1.,2.]),reverse=True) => float32 [2.31326169, 2]
tf.math.invert_permutation(C([2,0,1])) => int32 [1, 2, 0]
tf.math.bincount(C([1,1,3]),binary_output=True) => int32 [0, 1, 0, 1]
tf.math.bincount(C([[1,1],[3,0]]),axis=-1) => int32 [[0, 2, 0, 0], [1, 0, 0, 1]]
tf.math.bincount(C([[1,1],[3,0]]),axis=0) => int32 [1, 2, 0, 1]
tf.math.bincount(C([[1,1]]),weights=C([[1.,2.]]),axis=-1) => float32 [[0, 3]]
tf.broadcast_dynamic_shape([2,1],[3]) => int32 [2, 3]
tf.cast(tf.timestamp()>1e9,tf.int32) => int32 1
tf.math.segment_max(C([1.,2.,3.]),[0,0,2]) => float32 [2, 0, 3]
tf.math.segment_min(C([1.,2.,3.]),[0,0,2]) => float32 [1, 0, 3]
tf.math.segment_sum(C([1.,2.,3.]),[0,0,2]) => float32 [3, 0, 3]
tf.math.segment_prod(C([1.,2.,3.]),[0,0,2]) => float32 [2, 1, 3]
tf.math.segment_mean(C([1.,2.,3.]),[0,0,2]) => float32 [1.5, 0, 3]
tf.math.segment_mean(C([1,2,4]),[0,0,2]) => int32 [1, 0, 4]
tf.math.segment_max(C([1,2,3]),[0,0,2]) => int32 [2, 0, 3]
tf.math.segment_sum(C([[1.,2.],[3.,4.]]),[0,0]) => float32 [[4, 6]]
tf.math.unsorted_segment_prod(C([1.,2.,3.]),[0,0,2],4) => float32 [2, 1, 3, 1]
tf.math.unsorted_segment_sum(C([1.,2.,3.]),[2,0,2],4) => float32 [2, 0, 4, 0]
tf.math.unsorted_segment_sum(C([[1.,2.],[3.,4.]]),[[0,1],[1,0]],2) => float32 [5, 5]
tf.math.unsorted_segment_max(C([[1.,2.],[3.,4.]]),[[0,1],[1,0]],2) => float32 [4, 3]
tf.math.unsorted_segment_sum(C([1.,2.,3.]),[-1,0,0],2) => float32 [5, 0]
tf.math.unsorted_segment_max(C([1.,2.,3.]),[-1,0,0],2) => float32 [3, -3.40282347e+38]
tf.math.unsorted_segment_mean(C([1.,2.,3.]),[-1,0,0],2) => float32 [2.5, 0]
tf.math.unsorted_segment_mean(C([1,2,4]),[0,0,1],2) => float64 [1.5, 4]
tf.math.unsorted_segment_sqrt_n(C([1.,2.,3.]),[0,0,1],2) => float32 [2.12132049, 3]
tf.nn.moments(C([1,2,4]),[0]) => int32 2; int32 1
tf.nn.moments(C([1.,2.,4.]),[0]) => float32 2.33333325; float32 1.5555557
tf.nn.moments(C([[1,2],[4,5]]),0) => int32 [2, 3]; int32 [2, 2]
tf.nn.moments(C([1.,2.,4.],tf.float16),[0]) => float16 2.33398438; float16 1.55566406
tf.reduce_max(tf.zeros([0])) => float32 -inf
tf.reduce_min(tf.zeros([0])) => float32 inf
tf.reduce_max(tf.zeros([0],tf.int32)) => int32 -2147483648
tf.reduce_max(tf.zeros([2,0]),1) => float32 [-inf, -inf]
tf.reduce_min(tf.zeros([0],tf.int32)) => int32 2147483647
tf.reduce_sum(tf.zeros([0])) => float32 0
tf.reduce_mean(tf.zeros([0])) => float32 nan
tf.reduce_mean(tf.zeros([0],tf.int32)) => int32 0
tf.reduce_prod(tf.zeros([0])) => float32 1
tf.reduce_logsumexp(tf.zeros([0])) => float32 -inf
tf.stack([]) => float32 []
tf.stack([],axis=0) => float32 []
tf.gather(C([1.,2.,3.]),C([],tf.int32)) => float32 []
tf.gather(tf.zeros([0,2]),C([],tf.int32)) => float32 []
tf.gather(C([1.,2.,3.]),2) => float32 3
tf.gather_nd(C([[1.,2.],[3.,4.]]),[[0],[1]],batch_dims=1) => float32 [1, 4]
tf.dynamic_stitch([[0,1],[3]],[[1,2],[3]]) => int32 [1, 2, 0, 3]
tf.slice(C([1,2,3]),[3],[0]) => int32 []
tf.slice(C([1,2,3]),[1],[-1]) => int32 [2, 3]
tf.slice(C([1,2,3]),C([1]),C([2])) => int32 [2, 3]
tf.complex(C([1.,2.]),0.) => complex64 [(1+0j), (2+0j)]
tf.complex(C([1.,2.]),C([[1.],[2.]])) => complex64 [[(1+1j), (2+1j)], [(1+2j), (2+2j)]]
tf.complex(1.,2.) => complex64 (1+2j)
tf.constant_initializer([1,2,3,4])([2,2]) => int32 [[1, 2], [3, 4]]
tf.constant_initializer(3)([2]) => int32 [3, 3]
tf.constant_initializer(3)([2],tf.int32) => int32 [3, 3]
tf.constant_initializer(3.)([2],dtype=tf.float64) => float64 [3, 3]
tf.constant_initializer([1.,2.])([2]) => float32 [1, 2]
tf.math.reduce_variance(C([1.,3.])) => float32 1
tf.zeros([]) => float32 0
C(1+2j,dtype=tf.complex64) => complex64 (1+2j)
C(1.5,dtype=tf.complex64) => complex64 (1.5+0j)
tf.math.reduce_euclidean_norm(C([3,4])) => int32 5
tf.gather(C([1,2]),C([1],tf.int16)) => int32 [2]
tf.add_n(C([1.,2.])) => float32 3
tf.zeros([True]) => float32 [0]
tf.pad([[1,2,3]],[[0,0],[2,0]],mode="REFLECT") => int32 [[3, 2, 1, 2, 3]]
tf.pad([[1,2,3]],[[0,0],[3,0]],mode="SYMMETRIC") => int32 [[3, 2, 1, 1, 2, 3]]
tf.eye(0) => float32 []
tf.nn.dropout(C([1.,2.]),0) => float32 [1, 2]
tf.while_loop(lambda i:i,lambda i:[i-1],[C(3)]) => int32 0
tf.while_loop(lambda i,j:i<3,lambda i,j:(i+1,j*2),(C(0),C(1))) => int32 3; int32 8
tf.while_loop(lambda i,j:i<3,lambda i,j:(i+1,j*2),[C(0),C(1)]) => int32 3; int32 8
tf.stack([]) => float32 []
"""

REFUSED = """
tf.math.invert_permutation(C([2,0,0]))
tf.broadcast_static_shape([2],[3])
tf.math.segment_sum(C([1.,2.,3.]),[0,2,1])
tf.math.segment_max(C([1.,2.,3.]),[1,0,0])
tf.math.segment_mean(C([1.,2.,3.]),[1,0,0])
tf.math.segment_sum(C([1.,2.,3.]),[-1,0,0])
tf.math.segment_sum(C([1.,2.,3.]),[0,0])
tf.math.unsorted_segment_sum(C([1.,2.,3.]),[5,0,0],2)
tf.argmax(tf.zeros([0]))
tf.stack([C([1]),C([1,2])])
tf.gather(C([1.,2.,3.]),[3])
tf.gather(C([1.,2.,3.]),[-1])
tf.gather(C([[1.,2.,3.]]),[3],axis=1)
tf.gather(C([[1.,2.,3.],[4.,5.,6.]]),[[0],[3]],batch_dims=1)
tf.gather(C([[1.,2.,3.],[4.,5.,6.]]),[[0],[-1]],batch_dims=1)
tf.gather(C([1.,2.,3.]),C([True]))
tf.gather_nd(C([[1.,2.],[3.,4.]]),[[0,2]])
tf.gather_nd(C([[1.,2.],[3.,4.]]),[[0,-1]])
tf.gather_nd(C([[1.,2.],[3.,4.]]),[[2]])
tf.gather_nd(C([[1.,2.],[3.,4.]]),[[5],[1]],batch_dims=1)
tf.scatter_nd([[5]],[1.],[4])
tf.scatter_nd([[-1]],[1.],[4])
tf.scatter_nd([[0,4]],[1.],[4,4])
tf.tensor_scatter_nd_add(C([1.,2.]),[[2]],[1.])
tf.tensor_scatter_nd_add(C([1.,2.]),[[-1]],[1.])
tf.tensor_scatter_nd_update(C([1.,2.]),[[2]],[1.])
tf.tensor_scatter_nd_update(C([1.,2.]),[[-1]],[1.])
tf.tensor_scatter_nd_sub(C([1.,2.]),[[-1]],[1.])
tf.tensor_scatter_nd_max(C([1.,2.]),[[-1]],[1.])
tf.nn.embedding_lookup(C([[1.,2.],[3.,4.]]),[2])
tf.nn.embedding_lookup(C([[1.,2.],[3.,4.]]),[-1])
tf.dynamic_partition(C([1.,2.,3.]),[0,1,2],2)
tf.dynamic_partition(C([1.,2.,3.]),[0,-1,1],2)
tf.dynamic_partition(C([1.,2.,3.]),[0,1],2)
tf.dynamic_stitch([[0,-1]],[[1,2]])
tf.math.confusion_matrix([0,1,2],[0,1,2],num_classes=2)
tf.math.confusion_matrix([0,-1],[0,1],num_classes=2)
tf.math.confusion_matrix([0,1],[0,1,1])
tf.slice(C([1,2,3]),[1],[3])
tf.slice(C([1,2,3]),[-1],[1])
tf.slice(C([1,2,3]),[4],[0])
tf.slice(C([1,2,3]),[1],[-2])
tf.constant_initializer([1.,2.])([3])
tf.linalg.set_diag(tf.zeros([2,2]),[1.,2.,3.])
tf.reduce_sum(C([True]))
tf.reduce_mean(C([True]))
tf.reduce_any(C([1]))
tf.reduce_all(C([1.]))
tf.reduce_max(C([True]))
tf.reduce_prod(C([True]))
tf.reduce_logsumexp(C([1]))
tf.math.reduce_std(C([1,2]))
tf.math.reduce_variance(C([1,2]))
tf.reduce_sum([True,False])
tf.gather(C([1,2]),C([True]))
tf.gather(C([1,2]),C([1.]))
tf.gather(C([1,2]),[1.])
tf.add_n([C([1.,2.]),C([1.])])
tf.add_n([])
tf.zeros([2.5])
tf.zeros(2.5)
tf.zeros([2.])
tf.fill([2.5],1)
tf.zeros([-1])
tf.pad([[1,2,3]],[[0,0],[3,0]],mode="REFLECT")
tf.pad([[1,2,3]],[[0,0],[4,0]],mode="SYMMETRIC")
tf.pad([[1,2,3]],[[1,1]])
tf.pad([[1,2,3]],[[0,0],[-1,0]])
tf.pad([[1,2,3]],[[0,0],[1,0]],mode="EDGE")
tf.eye(-1)
tf.eye(2.5)
tf.nn.dropout(C([1.,2.]),1)
tf.nn.dropout(C([1.,2.]),1.)
tf.nn.dropout(C([1.,2.]),-.1)
tf.stack([[1],[1,2]])
tf.reduce_sum(C([1,2]),5)
tf.clip_by_value(C([1,2]),1.5,2.)
"""

NAMES = {"tf": tf, "np": np, "C": tf.constant, "inf": np.inf, "nan": np.nan}


def lines(table):
    return table.strip().split("\n")


def evaluated(text):
    return eval(text, dict(NAMES))


@pytest.mark.parametrize("line", lines(RETURNED))
def test_results_match_tensorflow(line):
    call, results = line.split(" => ")
    actual = evaluated(call)
    actual = actual if isinstance(actual, (list, tuple)) else [actual]
    for y, result in zip(actual, results.split("; "), strict=True):
        dtype, values = result.split(" ", 1)
        expected = np.asarray(evaluated(values), None if dtype != "float32" else dtype)
        values = np.asarray(y.numpy().tolist())  # as they were printed
        assert y.dtype.name == dtype and values.shape == expected.shape
        assert np.allclose(values, expected, 1e-3, 1e-6, equal_nan=True), y


@pytest.mark.parametrize("call", lines(REFUSED))
def test_refusals_match_tensorflow(call):
    with pytest.raises((ToolkitError, TypeError)):
        evaluated(call)


def test_indices_out_of_range_are_named():
    with pytest.raises(IndexError, match=r"gather: expected indices in \[0, 3\).* -1"):
        tf.gather(tf.zeros(3), [-1])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.nn.embedding_lookup(tf.zeros((2, 3)), [2])


def test_traced_indices_are_not_checked():
    take = tf.function(lambda x, i: tf.gather(x, i))
    assert take(tf.constant([1.0, 2.0]), tf.constant([1, 0])).numpy().tolist() == [2, 1]


def test_a_condition_is_one_boolean():
    for wrong in (lambda i: [True], lambda i: tf.constant([True])):
        with pytest.raises(ToolkitError, match="one boolean"):
            tf.while_loop(wrong, lambda i: [i + 1], [tf.constant(0)])


def test_extremes_of_segments_have_gradients():
    x = tf.constant([1.0, 3.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.math.segment_max(x, [0, 0, 2]))
    assert tape.gradient(y, x).numpy().tolist() == [0.0, 1.0, 1.0]


def test_constant_initializers_fill_weights():
    layer = tf.keras.layers.Dense(2, kernel_initializer=tf.constant_initializer([1, 2]))
    assert layer(tf.ones((1, 1))).numpy().tolist() == [[1.0, 2.0]]
    config = tf.keras.layers.Dense(2, bias_initializer=tf.constant_initializer(3.0))
    assert config.get_config()["bias_initializer"]["config"]["value"] == 3.0


def test_shapes_broadcast():
    assert tf.broadcast_static_shape([2, 1], tf.TensorShape([3])) == (2, 3)
    assert tf.broadcast_static_shape([None, 1], [1, 3]) == (None, 3)
