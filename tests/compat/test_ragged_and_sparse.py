"""Tests that ragged and sparse tensors have the results of TensorFlow."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.shown import mistakes

# Calls, and the results of TensorFlow on the lines below.
RAGGED = r"""
r
    ragged float32 [[1.0, 2.0], [], [3.0]]
ri
    ragged int32 [[1, 2], [], [3]]
r3
    ragged int32 [[[1], [2, 3]], [], [[4, 5, 6]]]
r + 1
    ragged float32 [[2.0, 3.0], [], [4.0]]
1 + r
    ragged float32 [[2.0, 3.0], [], [4.0]]
r * 2.5
    ragged float32 [[2.5, 5.0], [], [7.5]]
r + r2
    ragged float32 [[6.0, 8.0], [], [10.0]]
r - r2
    ragged float32 [[-4.0, -4.0], [], [-4.0]]
r / r2
    ragged float32 [[0.20000000298023224, 0.3333333432674408], [], [0.4285714328289032]]
r ** 2
    ragged float32 [[1.0, 4.0], [], [9.0]]
r // 2
    ragged float32 [[0.0, 1.0], [], [1.0]]
r % 2
    ragged float32 [[1.0, 0.0], [], [1.0]]
-r
    ragged float32 [[-1.0, -2.0], [], [-3.0]]
abs(-r)
    ragged float32 [[1.0, 2.0], [], [3.0]]
r > 1
    ragged bool [[False, True], [], [True]]
r == r2
    ragged bool [[False, False], [], [False]]
r != r2
    ragged bool [[True, True], [], [True]]
r3 * 2
    ragged int32 [[[2], [4, 6]], [], [[8, 10, 12]]]
r * tf.constant(2.)
    ragged float32 [[2.0, 4.0], [], [6.0]]
r * tf.constant([[2.], [3.], [4.]])
    ragged float32 [[2.0, 4.0], [], [12.0]]
tf.constant(2.) * r
    ragged float32 [[2.0, 4.0], [], [6.0]]
np.float32(2.) * r
    ragged float32 [[2.0, 4.0], [], [6.0]]
tf.add(r, r2)
    ragged float32 [[6.0, 8.0], [], [10.0]]
tf.add(r, 1.)
    ragged float32 [[2.0, 3.0], [], [4.0]]
tf.multiply(r, 2.)
    ragged float32 [[2.0, 4.0], [], [6.0]]
tf.square(r)
    ragged float32 [[1.0, 4.0], [], [9.0]]
tf.sqrt(r)
    ragged float32 [[1.0, 1.4142135381698608], [], [1.7320507764816284]]
tf.cast(ri, tf.float32)
    ragged float32 [[1.0, 2.0], [], [3.0]]
tf.maximum(r, 2.)
    ragged float32 [[2.0, 2.0], [], [3.0]]
tf.nn.relu(r)
    ragged float32 [[1.0, 2.0], [], [3.0]]
tf.clip_by_value(r, 1.5, 2.5)
    ragged float32 [[1.5, 2.0], [], [2.5]]
tf.math.is_nan(r)
    ragged bool [[False, False], [], [False]]
tf.reduce_sum(r)
    float32 6.0
tf.reduce_sum(r, axis=0)
    float32 [4.0, 2.0]
tf.reduce_sum(r, axis=1)
    float32 [3.0, 0.0, 3.0]
tf.reduce_sum(r, axis=-1)
    float32 [3.0, 0.0, 3.0]
tf.reduce_sum(r3, axis=1)
    ragged int32 [[3, 3], [], [4, 5, 6]]
tf.reduce_sum(r3, axis=2)
    ragged int32 [[1, 5], [], [15]]
tf.reduce_sum(r3, axis=0)
    ragged int32 [[5, 5, 6], [2, 3]]
tf.reduce_mean(r)
    float32 2.0
tf.reduce_mean(r, axis=1)
    float32 [1.5, nan, 3.0]
tf.reduce_mean(r, axis=0)
    float32 [2.0, 2.0]
tf.reduce_max(r, axis=1)
    float32 [2.0, -3.4028e+38, 3.0]
tf.reduce_min(r, axis=1)
    float32 [1.0, 3.4028e+38, 3.0]
tf.reduce_prod(r, axis=1)
    float32 [2.0, 1.0, 3.0]
tf.reduce_any(r > 1, axis=1)
    bool [True, False, True]
tf.reduce_all(r > 1, axis=1)
    bool [False, True, True]
tf.reduce_sum(r, axis=[0, 1])
    float32 6.0
tf.reduce_sum(r, axis=1, keepdims=True)
    float32 [[3.0], [0.0], [3.0]]
tf.concat([r, r2], axis=0)
    ragged float32 [[1.0, 2.0], [], [3.0], [5.0, 6.0], [], [7.0]]
tf.concat([r, r2], axis=1)
    ragged float32 [[1.0, 2.0, 5.0, 6.0], [], [3.0, 7.0]]
tf.concat([r3, r3], axis=2)
    ragged int32 [[[1, 1], [2, 3, 2, 3]], [], [[4, 5, 6, 4, 5, 6]]]
tf.concat([r, tf.constant([[1.], [2.], [3.]])], axis=1)
    ragged float32 [[1.0, 2.0, 1.0], [2.0], [3.0, 3.0]]
tf.concat([r, tf.ones([3, 2])], axis=0)
    ragged float32 [[1.0, 2.0], [], [3.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
tf.stack([r, r2])
    ragged float32 [[[1.0, 2.0], [], [3.0]], [[5.0, 6.0], [], [7.0]]]
tf.stack([r, r2], axis=1)
    ragged float32 [[[1.0, 2.0], [5.0, 6.0]], [[], []], [[3.0], [7.0]]]
tf.stack([r, r2], axis=2)
    ragged float32 [[[1.0, 5.0], [2.0, 6.0]], [], [[3.0, 7.0]]]
r[0]
    float32 [1.0, 2.0]
r[1]
    float32 []
r[-1]
    float32 [3.0]
r[1:]
    ragged float32 [[], [3.0]]
r[:2]
    ragged float32 [[1.0, 2.0], []]
r[:, :1]
    ragged float32 [[1.0], [], [3.0]]
r[:, 1:]
    ragged float32 [[2.0], [], []]
r[:, -1:]
    ragged float32 [[2.0], [], [3.0]]
r[0, 1]
    float32 2.0
r3[0]
    ragged int32 [[1], [2, 3]]
r3[0, 1]
    int32 [2, 3]
r3[:, :1]
    ragged int32 [[[1]], [], [[4, 5, 6]]]
r3[:, :, :1]
    ragged int32 [[[1], [2]], [], [[4]]]
r3[0][1]
    int32 [2, 3]
r[..., :1]
    ragged float32 [[1.0], [], [3.0]]
r[:, tf.newaxis]
    ragged float32 [[[1.0, 2.0]], [[]], [[3.0]]]
r[tf.newaxis]
    ragged float32 [[[1.0, 2.0], [], [3.0]]]
r[::2]
    ragged float32 [[1.0, 2.0], [3.0]]
r[::-1]
    ragged float32 [[3.0], [], [1.0, 2.0]]
r.shape
    TensorShape([3, None])
r3.shape
    TensorShape([3, None, None])
r.dtype
    tf.float32
r.ragged_rank, r3.ragged_rank
    (1, 2)
r.values
    float32 [1.0, 2.0, 3.0]
r3.values
    ragged int32 [[1], [2, 3], [4, 5, 6]]
r3.flat_values
    int32 [1, 2, 3, 4, 5, 6]
r.row_splits
    int64 [0, 2, 2, 3]
r3.row_splits
    int64 [0, 2, 2, 3]
r3.nested_row_splits
    (int64 [0, 2, 2, 3], int64 [0, 1, 3, 6])
r3.nested_row_lengths()
    (int64 [2, 0, 1], int64 [1, 2, 3])
r.row_lengths()
    int64 [2, 0, 1]
r3.row_lengths(axis=2)
    ragged int64 [[1, 2], [], [3]]
r.row_starts()
    int64 [0, 2, 2]
r.row_limits()
    int64 [2, 2, 3]
r.value_rowids()
    int64 [0, 0, 2]
r.nrows()
    int64 3
r.bounding_shape()
    int64 [3, 2]
r3.bounding_shape()
    int64 [3, 2, 3]
r.to_tensor()
    float32 [[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]
r.to_tensor(-1.)
    float32 [[1.0, 2.0], [-1.0, -1.0], [3.0, -1.0]]
r3.to_tensor()
    int32 [[[1, 0, 0], [2, 3, 0]], [[0, 0, 0], [0, 0, 0]], [[4, 5, 6], [0, 0, 0]]]
r.to_tensor(shape=[None, 4])
    float32 [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]]
r.to_tensor(shape=[None, 1])
    float32 [[1.0], [0.0], [3.0]]
r3.to_tensor(shape=[3, 2, 2])
    int32 [[[1, 0], [2, 3]], [[0, 0], [0, 0]], [[4, 5], [0, 0]]]
r.to_list()
    list(list(1.0, 2.0), list(), list(3.0))
r3.to_list()
    list(list(list(1), list(2, 3)), list(), list(list(4, 5, 6)))
r.numpy().tolist()[0].tolist()
    list(1.0, 2.0)
r.to_sparse()
    sparse float32 (3, 2) [[0, 0], [0, 1], [2, 0]] [1.0, 2.0, 3.0]
tf.RaggedTensor.from_sparse(r.to_sparse())
    ragged float32 [[1.0, 2.0], [], [3.0]]
tf.RaggedTensor.from_row_splits([1, 2, 3], [0, 2, 2, 3])
    ragged int32 [[1, 2], [], [3]]
tf.RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1])
    ragged int32 [[1, 2], [], [3]]
tf.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2])
    ragged int32 [[1, 2], [], [3]]
tf.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2], nrows=5)
    ragged int32 [[1, 2], [], [3], [], []]
tf.RaggedTensor.from_row_starts([1, 2, 3], [0, 2, 2])
    ragged int32 [[1, 2], [], [3]]
tf.RaggedTensor.from_row_limits([1, 2, 3], [2, 2, 3])
    ragged int32 [[1, 2], [], [3]]
tf.RaggedTensor.from_uniform_row_length([1, 2, 3, 4], 2)
    ragged int32 [[1, 2], [3, 4]]
tf.RaggedTensor.from_nested_row_splits([1, 2, 3], [[0, 1, 2], [0, 2, 3]])
    ragged int32 [[[1, 2]], [[3]]]
tf.RaggedTensor.from_nested_row_lengths([1, 2, 3], [[1, 1], [2, 1]])
    ragged int32 [[[1, 2]], [[3]]]
tf.RaggedTensor.from_tensor([[1, 2, 0], [3, 0, 0]])
    ragged int32 [[1, 2, 0], [3, 0, 0]]
tf.RaggedTensor.from_tensor([[1, 2, 0], [3, 0, 0]], padding=0)
    ragged int32 [[1, 2], [3]]
tf.RaggedTensor.from_tensor([[1, 2, 0], [3, 0, 0]], lengths=[2, 1])
    ragged int32 [[1, 2], [3]]
tf.RaggedTensor.from_tensor(tf.ones([2, 2, 2]), ragged_rank=2)
    ragged float32 [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]
r.with_values(tf.constant([7, 8, 9]))
    ragged int32 [[7, 8], [], [9]]
r3.with_flat_values(tf.range(6))
    ragged int32 [[[0], [1, 2]], [], [[3, 4, 5]]]
tf.ragged.map_flat_values(tf.square, r)
    ragged float32 [[1.0, 4.0], [], [9.0]]
tf.ragged.map_flat_values(lambda x, y: x * 2 + y, r, r2)
    ragged float32 [[7.0, 10.0], [], [13.0]]
tf.ragged.range([3, 0, 2])
    ragged int32 [[0, 1, 2], [], [0, 1]]
tf.ragged.range([1, 2], [4, 6])
    ragged int32 [[1, 2, 3], [2, 3, 4, 5]]
tf.ragged.stack([[1, 2], [3]])
    ragged int32 [[1, 2], [3]]
tf.ragged.stack([r, r2])
    ragged float32 [[[1.0, 2.0], [], [3.0]], [[5.0, 6.0], [], [7.0]]]
tf.ragged.constant([["a", "b"], ["c"]])
    ragged string [[b'a', b'b'], [b'c']]
tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)
    ragged int64 [[1, 2], [3]]
tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)
    ragged int32 [[[1, 2]], [[3, 4], [5, 6]]]
tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], inner_shape=(2,))
    ragged int32 [[[1, 2]], [[3, 4], [5, 6]]]
tf.ragged.constant([], ragged_rank=1)
    ragged float32 []
tf.ragged.constant([[], []])
    ragged float32 [[], []]
tf.ragged.constant([1, 2])
    int32 [1, 2]
tf.ragged.boolean_mask(r, r > 1)
    ragged float32 [[2.0], [], [3.0]]
tf.gather(r, [2, 0])
    ragged float32 [[3.0], [1.0, 2.0]]
tf.gather(tf.constant([10, 20, 30, 40]), ri)
    ragged int32 [[20, 30], [], [40]]
tf.gather(r, tf.ragged.constant([[0], [2, 0]]))
    ragged float32 [[[1.0, 2.0]], [[3.0], [1.0, 2.0]]]
tf.gather_nd(r, [[0, 1], [2, 0]])
    float32 [2.0, 3.0]
tf.expand_dims(r, 0)
    ragged float32 [[[1.0, 2.0], [], [3.0]]]
tf.expand_dims(r, 1)
    ragged float32 [[[1.0, 2.0]], [[]], [[3.0]]]
tf.expand_dims(r, -1)
    ragged float32 [[[1.0], [2.0]], [], [[3.0]]]
tf.squeeze(tf.ragged.constant([[[1], [2]], [[3]]], ragged_rank=1), -1)
    ragged int32 [[1, 2], [3]]
tf.size(r)
    int32 3
tf.rank(r), tf.rank(r3)
    (int32 2, int32 3)
tf.ones_like(r)
    ragged float32 [[1.0, 1.0], [], [1.0]]
tf.zeros_like(ri)
    ragged int32 [[0, 0], [], [0]]
tf.tile(r, [1, 2])
    ragged float32 [[1.0, 2.0, 1.0, 2.0], [], [3.0, 3.0]]
tf.tile(r, [2, 1])
    ragged float32 [[1.0, 2.0], [], [3.0], [1.0, 2.0], [], [3.0]]
tf.reverse(r, [1])
    ragged float32 [[2.0, 1.0], [], [3.0]]
tf.reverse(r, [0])
    ragged float32 [[3.0], [], [1.0, 2.0]]
tf.where(r > 1, r, tf.zeros_like(r))
    ragged float32 [[0.0, 2.0], [], [3.0]]
tf.where(r > 1)
    int64 [[0, 1], [2, 0]]
tf.split(r, 3)
    list(ragged float32 [[1.0, 2.0]], ragged float32 [[]], ragged float32 [[3.0]])
tf.identity(r)
    ragged float32 [[1.0, 2.0], [], [3.0]]
tf.add_n([r, r2])
    ragged float32 [[6.0, 8.0], [], [10.0]]
tf.strings.length(tf.ragged.constant([["ab", "c"], ["def"]]))
    ragged int32 [[2, 1], [3]]
tf.strings.join([tf.ragged.constant([["ab", "c"], ["def"]]), "x"])
    ragged string [[b'abx', b'cx'], [b'defx']]
tf.strings.upper(tf.ragged.constant([["ab", "c"], ["def"]]))
    ragged string [[b'AB', b'C'], [b'DEF']]
tf.strings.reduce_join(tf.ragged.constant([["ab", "c"], ["def"]]), axis=1)
    string [b'abc', b'def']
tf.strings.split(["a b", "c"]).to_tensor()
    string [[b'a', b'b'], [b'c', b'']]
tf.strings.split(["a b", "c"])[:, :1]
    ragged string [[b'a'], [b'c']]
tf.strings.split(["a b", "c"]).merge_dims(0, 1)
    string [b'a', b'b', b'c']
r3.merge_dims(0, 1)
    ragged int32 [[1], [2, 3], [4, 5, 6]]
r3.merge_dims(1, 2)
    ragged int32 [[1, 2, 3], [], [4, 5, 6]]
r3.merge_dims(0, 2)
    int32 [1, 2, 3, 4, 5, 6]
tf.strings.to_number(tf.ragged.constant([["1", "2"], ["3"]]))
    ragged float32 [[1.0, 2.0], [3.0]]
tf.strings.ngrams(tf.ragged.constant([["a", "b", "c"], ["d"]]), 2)
    ragged string [[b'a b', b'b c'], []]
tf.nn.dropout(r, 0.)
    ragged float32 [[1.0, 2.0], [], [3.0]]
len(r.to_list())
    3
[x for x in r]
    list(float32 [1.0, 2.0], float32 [], float32 [3.0])
tf.map_fn(lambda x: x * 2, r)
    ragged float32 [[2.0, 4.0], [], [6.0]]
tf.data.Dataset.from_tensor_slices(r)
    data(float32 [1.0, 2.0], float32 [], float32 [3.0])
tf.data.Dataset.from_tensor_slices(r).batch(2)
    data(ragged float32 [[1.0, 2.0], []], ragged float32 [[3.0]])
tf.data.Dataset.from_tensor_slices(r).map(lambda x: x * 2)
    data(float32 [2.0, 4.0], float32 [], float32 [6.0])
tf.data.Dataset.range(3).map(lambda i: tf.range(i)).ragged_batch(2)
    data(ragged int64 [[], [0]], ragged int64 [[0, 1]])
tf.data.Dataset.from_tensors(r)
    data(ragged float32 [[1.0, 2.0], [], [3.0]])
tf.RaggedTensorSpec([None, None], tf.int32)
    RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)
tf.RaggedTensorSpec.from_value(r)
    RaggedTensorSpec(TensorShape([3, None]), tf.float32, 1, tf.int64)
tf.is_tensor(r)
    True
isinstance(r, tf.RaggedTensor)
    True
tf.math.segment_sum(r.values, r.value_rowids())
    float32 [3.0, 0.0, 3.0]
tf.ragged.row_splits_to_segment_ids([0, 2, 2, 3])
    int64 [0, 0, 2]
tf.ragged.segment_ids_to_row_splits([0, 0, 2])
    int64 [0, 2, 2, 3]
tf.ragged.stack_dynamic_partitions([1, 2, 3], [0, 1, 0], 2)
    ragged int32 [[1, 3], [2]]
tf.RaggedTensor.from_tensor([["a", "b"], ["c", ""]], padding="")
    ragged string [[b'a', b'b'], [b'c']]
r[r.nrows() - 1]
    float32 [3.0]
r.get_shape()
    TensorShape([3, None])
tf.equal(words, "a")
    ragged bool [[False, False], [True]]
words == "a"
    ragged bool [[False, False], [True]]
tf.unique(words.flat_values).y
    string [b'hello', b'world', b'a']
tf.bitcast if False else tf.math.bincount(ri)
    int32 [0, 1, 1, 1]
tf.math.reduce_logsumexp(r.to_tensor(), axis=1)
    float32 [2.3133, 0.69315, 3.0486]
tf.math.cumsum(r, axis=1)
    ragged float32 [[1.0, 3.0], [], [3.0]]
tf.reshape(r, [-1])
    float32 [1.0, 2.0, 3.0]
"""
SPARSE = r"""
s
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0]
s * 42.0
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [42.0, 84.0, 126.0]
s / 2.
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [0.5, 1.0, 1.5]
s * tf.constant([[1., 2., 3., 4.]])
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [2.0, 2.0, 12.0]
tf.sparse.to_dense(s)
    float32 [[0.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]]
tf.sparse.to_dense(s, default_value=-1.)
    float32 [[-1.0, 1.0, -1.0, -1.0], [2.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, 3.0]]
tf.sparse.sparse_dense_matmul(s, d)
    float32 [[30.0, 40.0], [20.0, 40.0], [210.0, 240.0]]
tf.sparse.sparse_dense_matmul(s, tf.ones([3, 2]), adjoint_a=True)
    float32 [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0], [3.0, 3.0]]
tf.sparse.sparse_dense_matmul(s, tf.ones([2, 4]), adjoint_b=True)
    float32 [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
tf.sparse.sparse_dense_matmul(tf.ones([2, 3]), s)
    float32 [[2.0, 1.0, 0.0, 3.0], [2.0, 1.0, 0.0, 3.0]]
tf.sparse.add(s, s2)
    sparse float32 (3, 4) [[0, 1], [1, 0], [1, 2], [2, 3]] [11.0, 2.0, 20.0, 3.0]
tf.sparse.add(s, tf.ones([3, 4]))
    float32 [[1.0, 2.0, 1.0, 1.0], [3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 4.0]]
tf.sparse.reduce_sum(s)
    float32 6.0
tf.sparse.reduce_sum(s, axis=0)
    float32 [2.0, 1.0, 0.0, 3.0]
tf.sparse.reduce_sum(s, axis=1, keepdims=True)
    float32 [[1.0], [2.0], [3.0]]
tf.sparse.reduce_max(s, axis=1)
    float32 [1.0, 2.0, 3.0]
tf.sparse.reduce_sum(s, axis=1, output_is_sparse=True)
    sparse float32 (3,) [[0], [1], [2]] [1.0, 2.0, 3.0]
tf.sparse.slice(s, [0, 0], [2, 2])
    sparse float32 (2, 2) [[0, 1], [1, 0]] [1.0, 2.0]
tf.sparse.transpose(s)
    sparse float32 (4, 3) [[0, 1], [1, 0], [3, 2]] [2.0, 1.0, 3.0]
tf.sparse.transpose(s, perm=[1, 0])
    sparse float32 (4, 3) [[0, 1], [1, 0], [3, 2]] [2.0, 1.0, 3.0]
tf.sparse.reshape(s, [4, 3])
    sparse float32 (4, 3) [[0, 1], [1, 1], [3, 2]] [1.0, 2.0, 3.0]
tf.sparse.reshape(s, [-1])
    sparse float32 (12,) [[1], [4], [11]] [1.0, 2.0, 3.0]
tf.sparse.eye(2, 3)
    sparse float32 (2, 3) [[0, 0], [1, 1]] [1.0, 1.0]
tf.sparse.from_dense([[0, 1], [2, 0]])
    sparse int32 (2, 2) [[0, 1], [1, 0]] [1, 2]
tf.sparse.from_dense(tf.constant([["", "a"], ["b", ""]]))
    sparse string (2, 2) [[0, 1], [1, 0]] [b'a', b'b']
tf.sparse.reorder(tf.SparseTensor([[1, 0], [0, 1]], [1, 2], [2, 2]))
    sparse int32 (2, 2) [[0, 1], [1, 0]] [2, 1]
tf.sparse.retain(s, [True, False, True])
    sparse float32 (3, 4) [[0, 1], [2, 3]] [1.0, 3.0]
tf.sparse.maximum(s, s2)
    sparse float32 (3, 4) [[0, 1], [1, 0], [1, 2], [2, 3]] [10.0, 2.0, 20.0, 3.0]
tf.sparse.minimum(s, s2)
    sparse float32 (3, 4) [[0, 1], [1, 0], [1, 2], [2, 3]] [1.0, 0.0, 0.0, 0.0]
tf.sparse.softmax(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 1.0, 1.0]
tf.sparse.map_values(tf.square, s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 4.0, 9.0]
tf.sparse.map_values(tf.add, s, 5.)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [6.0, 7.0, 8.0]
tf.sparse.fill_empty_rows(tf.SparseTensor([[0, 1]], [1.], [2, 2]), 0.)
    (sparse float32 (2, 2) [[0, 1], [1, 0]] [1.0, 0.0], bool [False, True])
tf.sparse.to_indicator(tf.SparseTensor([[0, 0], [1, 0]], [1, 2], [2, 1]), 4)
    bool [[False, True, False, False], [False, False, True, False]]
tf.sparse.bincount(tf.constant([[1, 1], [2, 0]]), axis=-1)
    sparse int32 (2, 3) [[0, 1], [1, 0], [1, 2]] [2, 1, 1]
tf.sparse.reset_shape(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0]
tf.sparse.reset_shape(s, [5, 5])
    sparse float32 (5, 5) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0]
tf.sparse.segment_sum(d, [0, 1, 3], [0, 0, 1])
    float32 [[40.0, 60.0], [70.0, 80.0]]
tf.sparse.segment_mean(d, [0, 1, 3], [0, 0, 1])
    float32 [[20.0, 30.0], [70.0, 80.0]]
tf.abs(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0]
tf.square(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 4.0, 9.0]
tf.sign(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 1.0, 1.0]
tf.cast(s, tf.int32)
    sparse int32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1, 2, 3]
tf.shape(s)
    int32 [3, 4]
tf.rank(s)
    int32 2
tf.size(s)
    int32 12
tf.identity(s)
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0]
tf.is_tensor(s)
    True
s.with_values([7., 8., 9.])
    sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [7.0, 8.0, 9.0]
s.values.numpy()
    array [1.0, 2.0, 3.0]
tf.SparseTensorSpec([None, 4], tf.float32)
    SparseTensorSpec(TensorShape([None, 4]), tf.float32)
tf.data.Dataset.from_tensors(s)
    data(sparse float32 (3, 4) [[0, 1], [1, 0], [2, 3]] [1.0, 2.0, 3.0])
tf.sparse.SparseTensor is tf.SparseTensor
    True
"""


def names():
    """Return the names that the calls may use."""
    return {
        "tf": tf,
        "np": np,
        "r": tf.ragged.constant([[1.0, 2.0], [], [3.0]]),
        "r2": tf.ragged.constant([[5.0, 6.0], [], [7.0]]),
        "ri": tf.ragged.constant([[1, 2], [], [3]]),
        "r3": tf.ragged.constant([[[1], [2, 3]], [], [[4, 5, 6]]]),
        "s": tf.SparseTensor([[0, 1], [1, 0], [2, 3]], [1.0, 2.0, 3.0], [3, 4]),
        "s2": tf.SparseTensor([[0, 1], [1, 2]], [10.0, 20.0], [3, 4]),
        "d": tf.constant([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0], [70.0, 80.0]]),
        "words": tf.strings.split(["hello world", "a"]),
    }


def test_ragged_tensors():
    assert not mistakes(RAGGED, names())


def test_sparse_tensors():
    assert not mistakes(SPARSE, names())


def test_gradients_reach_the_values():
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        rows = tf.RaggedTensor.from_row_lengths(x, [2, 1])
        of_rows = tf.reduce_sum(rows**2, axis=1)
        matrix = tf.SparseTensor([[0, 1], [1, 0], [2, 3]], x, [3, 4])
        dense = tf.reduce_sum(tf.sparse.to_dense(matrix) ** 2)
        product = tf.sparse.sparse_dense_matmul(matrix, tf.ones((4, 2)))
    assert tape.gradient(of_rows, x).numpy().tolist() == [2.0, 4.0, 6.0]
    assert tape.gradient(dense, x).numpy().tolist() == [2.0, 4.0, 6.0]
    assert tape.gradient(product, x).numpy().tolist() == [2.0, 2.0, 2.0]
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        looked_up = tf.nn.embedding_lookup(v, tf.ragged.constant([[0, 1], [1]]))
        total = tf.reduce_sum(tf.reduce_mean(looked_up, axis=1))
    gradient = tf.convert_to_tensor(tape.gradient(total, v))
    assert gradient.numpy().tolist() == [[0.5, 0.5], [1.5, 1.5]]


def test_functions_of_ragged_and_sparse_tensors():
    rows = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    matrix = tf.SparseTensor([[0, 1]], [2.0], [1, 2])
    double = tf.function(lambda x: x * 2.0)
    with pytest.warns(UserWarning, match="a ragged or a sparse argument") as log:
        assert double(rows).to_list() == [[2.0, 4.0], [], [6.0]]
        assert double(matrix).values.numpy().tolist() == [4.0]
    assert len(log) == 1
    padded = tf.function(
        lambda x: tf.RaggedTensor.from_row_lengths(x, [2, 1]).to_tensor()
    )
    assert padded(tf.range(3)).numpy().tolist() == [[0, 1], [2, 0]]


def test_rows_of_other_lengths_are_refused():
    rows = tf.ragged.constant([[1, 2], [3]])
    for call in (
        lambda: rows + tf.ragged.constant([[1], [2, 3]]),
        lambda: tf.concat([rows, rows[:1]], axis=1),
        lambda: rows + tf.constant([[1, 2, 3], [4, 5, 6], [7, 8, 9]])[:1, :1] @ [[1]],
    ):
        try:
            result = call()
        except ValueError as error:
            assert "rows" in str(error)
        else:
            assert result.to_list() == [[2, 3], [4]]
