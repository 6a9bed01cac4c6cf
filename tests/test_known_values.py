"""Tests of values that are known in a trace, from extents and constants alone."""

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.core.variable import Variable
from toolkit.errors import TraceError
from toolkit.random import uniform

X = np.arange(12, dtype="float32").reshape(4, 3)


def extent(x):
    """Return the number of rows as a tensor, computed by arithmetic."""
    return ops.convert_to_tensor(x.shape[0]) * 1


def extents(x):
    return ops.concatenate([ops.expand_dims(extent(x), -1), [2, 1]], 0)


TAKES_A_VALUE = {
    "int": lambda x: x * int(extent(x)),
    "float": lambda x: x * float(extent(x) / 2),
    "bool": lambda x: x if extent(x) > 3 else -x,
    "index": lambda x: x * [1.0, 2.0, 3.0, 4.0, 5.0][extent(x)],
    "range": lambda x: sum([x[i] for i in range(extent(x))], ops.zeros(3)),
    "item": lambda x: x * extent(x).item(),
    "tolist": lambda x: ops.zeros(extents(x).tolist()),
    "asarray": lambda x: x * np.asarray(extents(x)).sum(),
    "arange": lambda x: ops.arange(extent(x)),
    "repeat": lambda x: ops.repeat(x, extent(x), axis=0),
    "tile": lambda x: ops.tile(x[None], extents(x)),
    "zeros": lambda x: ops.zeros(extents(x)),
    "full of pieces": lambda x: ops.full((extent(x), extent(x) - 2), 7.0),
    "ones of one number": lambda x: ops.ones(extent(x)),
    "reshape": lambda x: ops.reshape(x, (extent(x) // 2, -1)),
    "reshape to a tensor": lambda x: ops.reshape(x, extents(x)[:1] * [3]),
    "broadcast_to": lambda x: ops.broadcast_to(x[0, 0], extents(x)),
    "axis": lambda x: ops.sum(x, axis=extent(x) - 3),
    "axes": lambda x: ops.mean(x, axis=(extent(x) - 4, extent(x) - 3)),
    "concatenate": lambda x: ops.concatenate([x, x], axis=extent(x) - 3),
    "expand_dims": lambda x: ops.expand_dims(x, extent(x) - 2),
    "transpose": lambda x: ops.transpose(x, ops.arange(extent(x) // 2)[::-1]),
    "slices": lambda x: x[: extent(x) - 1, extent(x) - 3 :],
    "slice": lambda x: ops.slice(x, (extent(x) - 4, 1), (extent(x), 2)),
    "split": lambda x: ops.concatenate(ops.split(x, extent(x))[::-1]),
    "scatter": lambda x: ops.scatter([[0], [1]], x[:2, 0], extents(x)[:1]),
    "random shape": lambda x: uniform(extents(x), seed=3),
    "nonzero": lambda x: ops.nonzero(ops.arange(extent(x)) * 1)[0],
    "one of an earlier draw": lambda x: x * int(ops.sum(uniform((3,), seed=1)) * 9),
    "cond": lambda x: ops.cond(
        ops.sum(x) > 0, lambda: x * int(extent(x)), lambda: x * 0.0
    ),
}


@pytest.mark.parametrize("name", TAKES_A_VALUE)
def test_values_from_extents_and_constants_are_known(name):
    function = TAKES_A_VALUE[name]
    expected = np.asarray(function(ops.convert_to_tensor(X)))
    values = np.asarray(toolkit.function(function)(X))
    assert values.dtype == expected.dtype
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("shape", ["int", "range", "reshape", "zeros", "tile"])
def test_layers_over_symbols_compute_with_extents(shape):
    class Computing(toolkit.layers.Layer):
        def call(self, x):
            return TAKES_A_VALUE[shape](x)

    inputs = toolkit.Input(batch_shape=(4, 3))
    model = toolkit.Model(inputs, Computing()(inputs))
    assert model.output_shape == model(X).shape
    np.testing.assert_array_equal(model.predict(X, batch_size=4), model(X))


def test_open_extent_is_unknown():
    class Doubling(toolkit.layers.Layer):
        def call(self, x):
            rows = ops.convert_to_tensor(x.shape[0]) * 2
            return ops.zeros((rows, ops.convert_to_tensor(3) + 0))

    assert Doubling()(toolkit.Input((5,))).shape == (None, 3)


def test_inputs_and_variables_have_no_known_value():
    v = Variable(2.0)
    for function in (
        lambda x: float(ops.sum(x)),
        lambda x: float(v * 2.0),
        lambda x: int(extent(x) + ops.cast(v.value, "int32")),
        lambda x: float(ops.sum(uniform((3,)))),  # its seed is a Variable
    ):
        with pytest.raises(TraceError, match="no value inside"):
            toolkit.function(function)(X)


def test_known_value_is_computed_once():
    def steps(x):
        i, count = extent(x) * 0, 0
        while i < 100:
            i, count = i + 1, count + 1
        return x + count

    assert float(toolkit.function(steps)(X)[0, 0]) == 100.0


def test_known_value_expires_with_its_trace():
    traced_values = []

    @toolkit.function
    def keep(x):
        traced_values.append(extent(x))
        return x * int(traced_values[0])

    keep(X)
    with pytest.raises(TraceError, match="has no value"):
        int(traced_values[0])


def test_python_layers_use_known_values():
    lookup = toolkit.layers.IntegerLookup(vocabulary=[3, 4], num_oov_indices=0)
    values = toolkit.function(lambda x: x * lookup(ops.reshape(extent(x), (1,))))(X)
    np.testing.assert_array_equal(values, X * 1.0)
