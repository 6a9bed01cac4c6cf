"""Test Function: a subgraph of symbols that is called like a function."""

import numpy as np
import pytest

import toolkit
from toolkit import Function, KerasTensor, ops
from toolkit.errors import ArgumentError, ShapeError


def test_call():
    x, y = KerasTensor((2, 3)), KerasTensor((2, 3))
    f = Function([x, y], {"sum": x + y, "product": x * y}, name="both")
    ones, twos = np.ones((2, 3)), np.full((2, 3), 2.0)
    result = f([ones, twos])
    np.testing.assert_array_equal(result["sum"], ones + twos)
    np.testing.assert_array_equal(result["product"], twos)
    assert (f.name, len(f.operations)) == ("both", 2)
    outer = Function([x, y], f([x, y])["sum"] * 2.0)
    np.testing.assert_array_equal(outer([ones, twos]), 2 * (ones + twos))


def test_shapes():
    x = KerasTensor((None, 3))
    f = Function(x, ops.sum(x, axis=-1))
    assert f(KerasTensor((4, 3))).shape == (4,)
    assert f.compute_output_shape((None, 3)) == (None,)
    inner = x * 2.0
    shifted = Function(inner, inner + 1.0)
    assert [op.name.split("_")[0] for op in shifted.operations] == ["add"]
    np.testing.assert_array_equal(shifted(np.ones((1, 3))), np.full((1, 3), 2.0))


def test_inputs_that_do_not_match():
    x = KerasTensor((2, 3))
    f = Function([x], x + 1.0)
    with pytest.raises(ArgumentError, match="invalid input structure"):
        f(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="incompatible inputs"):
        f([np.ones((4, 3))])
    with pytest.raises(ArgumentError, match="`outputs` argument cannot be empty"):
        Function(x, [])
    with pytest.raises(ArgumentError, match="is not connected to `inputs`"):
        Function(x, KerasTensor((2,)) + 1.0)


class Scaled(toolkit.Operation):
    def __init__(self, factor, shift=0.0, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.shift = factor, shift

    def call(self, x):
        return self.factor * x + self.shift


class Anonymous(Scaled):
    def __init__(self, factor):
        super().__init__(factor)


class Extended(Scaled):
    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def test_config_of_an_operation():
    operation = Scaled(2.0, name="scaled")
    config = operation.get_config()
    assert config == {"name": "scaled", "factor": 2.0, "shift": 0.0}
    assert Scaled.from_config(config)(3.0) == 6.0
    assert Anonymous(2.0).get_config() == {"factor": 2.0}
    extended = Extended(3.0, shift=1.0, name="e")
    assert extended.get_config() == {"name": "e", "factor": 3.0}
    with pytest.raises(NotImplementedError, match="'factor' cannot be serialized"):
        Scaled(object()).get_config()
