"""Test the nodes by depth, which libraries for Keras read and replay."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops


def branches():
    """Return a model with two inputs, a shared layer, an operation and keywords."""
    a, b = toolkit.Input((3,), name="a"), toolkit.Input((3,), name="b")
    shared = layers.Dense(2, name="shared")
    x, y = shared(a), shared(b)
    z = ops.concatenate([x, layers.Activation("relu", name="relu")(y)], axis=-1)
    return toolkit.Model([a, b], [z, x * 2.0])


def replay(model, inputs):
    """Run a graph like Keras does in `Function._run_through_graph`."""
    values = {id(s): x for s, x in zip(model.inputs, inputs, strict=True)}
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if not node.operation or node.is_input:
                continue
            args, kwargs = node.arguments.fill_in(values)
            results = toolkit.tree.flatten(node.operation(*args, **kwargs))
            values.update(
                (id(s), r) for s, r in zip(node.outputs, results, strict=True)
            )
    return [values[id(symbol)] for symbol in model.outputs]


def test_graph_is_replayed_from_its_nodes():
    model, x = branches(), np.ones((2, 3), "float32")
    for result, expected in zip(replay(model, [x, -x]), model([x, -x]), strict=True):
        np.testing.assert_array_equal(result, expected)
    symbol = toolkit.KerasTensor((2,))
    function = toolkit.Function(symbol, ops.exp(symbol) + 1.0)
    names = [n[0].operation.name for n in function._nodes_by_depth.values()]
    assert len(names) == 2 and names[1].startswith("exp")


def test_nodes_have_parents():
    x = toolkit.Input((3,), name="x")
    first = layers.Dense(2, name="first")(x)
    model = toolkit.Model(x, first + layers.Dense(2, name="second")(first))
    nodes = model._nodes_by_depth
    names = {d: [n.operation.name for n in at] for d, at in nodes.items()}
    assert sorted(names) == [0, 1, 2, 3] and len(names[0]) == 1
    assert (names[1], names[2], names[3]) == (["second"], ["first"], ["x"])
    (output,) = nodes[0]
    assert set(output.parent_nodes) == {*nodes[1], *nodes[2]}
    assert nodes[3][0].is_input and not nodes[3][0].parent_nodes
    assert output.output_tensors == output.outputs == model.outputs
    assert nodes[2][0].input_tensors == model.inputs
    assert not hasattr(toolkit.Sequential([x]), "_nodes_by_depth")


@pytest.mark.parametrize("copy", [toolkit.models.clone_model])
def test_copies_have_separate_nodes(copy):
    model = branches()
    duplicate = copy(model)
    assert not {*model._nodes_by_depth[0]} & {*duplicate._nodes_by_depth[0]}
