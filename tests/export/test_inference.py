"""Test the traces of models for inference, at selected sizes."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.core.trace import inline
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.export.inference import signature_of, trace_inference
from toolkit.layers import InputSpec


class Sum(toolkit.Model):
    """A model of two arguments with a layer for each."""

    def __init__(self):
        super().__init__()
        self.left, self.right = layers.Dense(2), layers.Dense(2)

    def call(self, x, y, training=None):
        return {"sum": self.left(x) + self.right(y), "x": x}


class CustomModel(toolkit.Model):
    """A model of one argument."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)


def rows(*shape):
    return InputSpec(dtype="float32", shape=(None, *shape))


def sequential():
    return toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2)])


def two_inputs():
    a, b = toolkit.Input((3,), name="a"), toolkit.Input((None, 3), name="b")
    pooled = layers.GlobalAveragePooling1D()(b)
    return toolkit.Model({"a": a, "b": b}, [a + pooled, layers.Dense(2)(a)])


def own_subclass():
    model = CustomModel()
    model(np.ones((4, 3), "float32"))
    return model


def sum_of_two():
    model = Sum()
    model(np.ones((4, 3), "float32"), np.ones((4, 5), "float32"))
    return model


def inputs_at(signature, sizes):
    generator = np.random.default_rng(0)
    specs = [x.spec_for(sizes) for x in signature.inputs]
    return [generator.standard_normal(s.shape).astype(s.dtype) for s in specs]


@pytest.mark.parametrize(
    "make, inputs, free",
    [
        (sequential, None, ["batch"]),
        (two_inputs, None, ["batch", "dim_1_1"]),
        (two_inputs, {"a": rows(3), "b": rows(4, 3)}, ["batch"]),
        (own_subclass, None, ["batch"]),
        (sum_of_two, [rows(3), rows(5)], ["batch"]),
    ],
    ids=["sequential", "functional", "given", "subclass", "arguments"],
)
def test_graph_equals_the_model(make, inputs, free):
    model = make()
    signature = signature_of(model, inputs)
    assert signature.free_extents == free
    sizes = {name: 5 + i for i, name in enumerate(free)}
    traced = trace_inference(model, signature, sizes)
    arrays = inputs_at(signature, sizes)
    values = [*map(ops.convert_to_tensor, arrays)]
    values += [v.value for v in traced.variables]
    outputs = inline(traced.graph, values)
    packed = toolkit.tree.pack_sequence_as(signature.structure, arrays)
    expected = toolkit.tree.flatten(model(*packed))
    assert len(outputs) == len(expected) == len(traced.names)
    for y, expected_output in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(y, expected_output, atol=1e-6)


def test_names():
    signature = signature_of(two_inputs())
    assert [x.name for x in signature.inputs] == ["a", "b"]
    assert signature.inputs[1].shape == ("batch", "dim_1_1", 3)
    sizes = {"batch": 2, "dim_1_1": 3}
    assert len(trace_inference(two_inputs(), signature, sizes).names) == 2
    model = sum_of_two()
    by_key = trace_inference(
        model, signature_of(model, [rows(3), rows(5)]), {"batch": 2}
    )
    assert by_key.names == ["sum", "x"]


def test_state_is_an_output():
    inputs = toolkit.Input(batch_shape=(2, 3, 4))
    model = toolkit.Model(inputs, layers.LSTM(5, stateful=True)(inputs))
    traced = trace_inference(model, signature_of(model), {})
    assert len(traced.updated_variables) == 2
    assert len(traced.graph.outputs) == 1 + 2
    assert set(traced.updated_variables) <= set(traced.variables)


def test_input_signature_for_an_uncalled_model():
    model = CustomModel()
    for unknown in (model, sum_of_two()):
        with pytest.raises(NotBuiltError, match="input_signature"):
            signature_of(unknown)
    signature = signature_of(model, [InputSpec(dtype="float32", shape=(None, 7))])
    assert signature.inputs[0].shape == ("batch", 7)


@pytest.mark.parametrize("inputs", [[], ["x"], [InputSpec(ndim=2)]])
def test_incomplete_signatures_are_refused(inputs):
    with pytest.raises(ArgumentError, match="input_signature"):
        signature_of(own_subclass(), inputs)
