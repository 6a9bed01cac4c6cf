"""Graphs that compute each row of a batch by itself, and graphs that do not."""

import pytest

import toolkit
from toolkit import layers, ops
from toolkit.compiler.sharding.rows import rows_are_independent
from toolkit.core.trace import Trace
from toolkit.ir import Spec

ROWS = 4


def is_independent(function, *shapes, batches=None):
    with Trace("rows") as trace:
        inputs = [trace.placeholder(Spec(shape, "float32")) for shape in shapes]
        outputs = toolkit.tree.flatten(function(*inputs))
    graph = trace.finish([trace.localize(y) for y in outputs]).pruned()
    input_numbers = range(len(shapes)) if batches is None else batches
    return rows_are_independent(graph, ROWS, input_numbers)


def inference_of(layer):
    return lambda x: layer(x, training=False)


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: x, (ROWS, 3)),
        (lambda x: ops.softmax(x * 2 + 1), (ROWS, 3)),
        (lambda x: x - ops.mean(x, axis=1, keepdims=True), (ROWS, 3)),
        (lambda x: ops.reshape(x, (ROWS, 6)), (ROWS, 2, 3)),
        (lambda x: ops.reshape(ops.reshape(x, (-1, 3)), (ROWS, 6)), (ROWS, 2, 3)),
        (lambda x: ops.einsum("bij,bkj->bik", x, x), (ROWS, 2, 3)),
        (lambda x: (x, ops.sum(x, axis=0))[0], (ROWS, 2)),
        (inference_of(layers.Conv2D(2, 3)), (ROWS, 6, 6, 1)),
        (inference_of(layers.LSTM(3)), (ROWS, 5, 2)),
        (inference_of(layers.BatchNormalization()), (ROWS, 5)),
    ],
)
def test_independent(function, shape):
    assert is_independent(function, shape)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - ops.mean(x, axis=0),
        lambda x: ops.softmax(x, axis=0),
        lambda x: ops.sum(x),
        lambda x: ops.flip(x, axis=0),
        lambda x: ops.cumsum(x, axis=0),
        lambda x: ops.matmul(x, ops.transpose(x)),
        lambda x: ops.concatenate([x[1:], x[:1]], axis=0),
        lambda x: ops.transpose(x),
        lambda x: ops.zeros((ROWS, 2)) + ops.max(x),
        lambda x: ops.zeros((ROWS, 2)),
        lambda x: ops.reshape(x, (2, 2 * 4)),
    ],
)
def test_dependent(function):
    assert not is_independent(function, (ROWS, 4))


def test_inputs_without_a_batch_are_independent():
    shapes = (ROWS, 3), (ROWS, 3)
    assert is_independent(
        lambda x, table: x + ops.mean(table, axis=0), *shapes, batches=[0]
    )
    assert not is_independent(lambda x, table: x + table, *shapes, batches=[0])
