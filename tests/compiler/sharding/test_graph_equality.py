"""Graphs that compute a row alike for any number of rows, and graphs that do not."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.compiler.sharding.graph_equality import graphs_equal_up_to_batch
from toolkit.core.trace import Trace
from toolkit.ir import Spec

WEIGHTS = [toolkit.Variable(np.full((1, 3), n, "float32"), name="w") for n in range(2)]
OTHER_WEIGHT = toolkit.Variable(np.ones((1, 3), "float32"), name="other")


def traced(function, rows, shape):
    with Trace("rows") as trace:
        x = trace.placeholder(Spec((rows, *shape), "float32"))
        outputs = toolkit.tree.flatten(function(x))
    return trace.finish([trace.localize(y) for y in outputs]).pruned()


def is_equal_up_to_batch(function, shape=(3,), numbers=(1, 2, 3, 8)):
    return graphs_equal_up_to_batch({n: traced(function, n, shape) for n in numbers})


def batch_size_of(x):
    return ops.shape(x)[0]


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: ops.softmax(2 * x + 1), (3,)),
        (lambda x: ops.reshape(x, (batch_size_of(x), 6)), (2, 3)),
        (lambda x: ops.reshape(ops.reshape(x, (-1, 3)), (-1, 6)), (2, 3)),
        (lambda x: x[: batch_size_of(x), 1:], (3,)),
        (lambda x: x + ops.zeros((batch_size_of(x), 3)), (3,)),
        (lambda x: x + np.full((batch_size_of(x), 3), np.nan, "float32"), (3,)),
        (lambda x: x + ops.broadcast_to(WEIGHTS[0], (batch_size_of(x), 3)), (3,)),
        (lambda x: ops.scan(lambda c, e: (c + e, c), x[:, 0], x.T)[1], (3,)),
        (layers.LSTM(3), (5, 2)),
        (layers.MultiHeadAttention(2, 4).__call__, None),
    ],
)
def test_equal_up_to_batch(function, shape):
    if shape is None:
        attention, shape = function, (5, 4)
        function = lambda x: attention(x, x, use_causal_mask=True)  # noqa: E731
    function(np.zeros((2, *shape), "float32"))  # layers are built
    assert is_equal_up_to_batch(function, shape)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / ops.cast(batch_size_of(x), x.dtype),
        lambda x: x * float(batch_size_of(x)),
        lambda x: x + np.arange(batch_size_of(x), dtype="float32")[:, None],
        lambda x: x + ops.ones((batch_size_of(x), 3)) * batch_size_of(x),
        lambda x: ops.fori_loop(0, batch_size_of(x), lambda i, y: y + 1, x),
        lambda x: ops.roll(x, batch_size_of(x), axis=1),
        lambda x: x * 2 if batch_size_of(x) == 1 else x * 3,
        lambda x: ops.sin(x) if batch_size_of(x) == 1 else ops.cos(x),
        lambda x: x if batch_size_of(x) == 1 else (x, x),
        lambda x: x + (WEIGHTS[0] if batch_size_of(x) == 1 else OTHER_WEIGHT),
        lambda x: (x, x * 2)[batch_size_of(x) > 2],
        lambda x: ops.cond(
            ops.sum(x) > 0, lambda: x * float(batch_size_of(x)), lambda: x + 1.0
        ),
        lambda x: ops.cast(
            ops.cast(x, "int32" if batch_size_of(x) > 2 else "int8"), "int32"
        ),
    ],
)
def test_different_for_another_batch(function):
    assert not is_equal_up_to_batch(function)
