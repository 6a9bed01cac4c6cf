"""Test cells of users: without `build`, with nested inputs and nested states."""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, layers, ops

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6, 3)).astype("float32")
A = RNG.normal(size=(4, 6, 2)).astype("float32")


@toolkit.utils.register_keras_serializable("custom_cells")
class Unbuilt(layers.Layer):
    """A cell of layers, without `build`."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units
        self.inner, self.outer = layers.Dense(units), layers.Dense(units)

    def call(self, inputs, states):
        y = ops.tanh(self.inner(inputs) + self.outer(states[0]))
        return y, [y]


class Nested(layers.Layer):
    """A cell of two inputs and nested states, which sums the inputs."""

    state_size = [2, [3, 3]]
    output_size = 2

    def call(self, inputs, states):
        s, (u, v) = states
        s = s + inputs["a"]
        u, v = u + inputs["b"], v - inputs["b"]
        return s, (s, (u, v))

    def get_initial_state(self, batch_size=None):
        return [
            ops.zeros((batch_size, 2)),
            [ops.zeros((batch_size, 3)), ops.zeros((batch_size, 3))],
        ]


def expected(cell, x):
    state = np.zeros((len(x), cell.units), "float32")
    for step in x.swapaxes(0, 1):
        inner, outer = cell.inner.get_weights(), cell.outer.get_weights()
        state = np.tanh(step @ inner[0] + inner[1] + state @ outer[0] + outer[1])
    return state


@pytest.mark.parametrize("first_layer", ["eager", "symbols", "fit", "build"])
def test_cell_without_build(first_layer, tmp_path):
    cell = Unbuilt(5)
    layer = layers.RNN(cell)
    model = toolkit.Sequential([layer])
    if first_layer == "symbols":
        model = toolkit.Sequential([Input((None, 3)), layer])
    if first_layer == "build":
        model.build((None, None, 3))
    model.compile("sgd", "mse")
    if first_layer == "fit":
        model.fit(X, np.zeros((4, 5)), verbose=0)
    y = model(X)
    assert [v.shape for v in model.weights] == [(3, 5), (5,), (5, 5), (5,)]
    np.testing.assert_allclose(y, expected(cell, X), rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = toolkit.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), y, rtol=1e-5, atol=1e-6)


def test_cells_without_build_are_stacked():
    cells = [Unbuilt(5), layers.GRUCell(2), Unbuilt(4)]
    layer = layers.RNN(cells)
    assert layer(X).shape == (4, 4)
    assert cells[2].inner.kernel.shape == (2, 4)
    bidirectional = layers.Bidirectional(layers.RNN(Unbuilt(5)))
    assert bidirectional(X).shape == (4, 10)
    assert len(bidirectional.weights) == 8


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("cells", [lambda: Nested(), lambda: [Nested()]])
def test_nested_inputs_and_states(unroll, cells):
    layer = layers.RNN(cells(), return_state=True, unroll=unroll)
    inputs = {"a": Input((6, 2), name="a"), "b": Input((6, 3), name="b")}
    model = Model(inputs, layer(inputs))
    for outputs in (
        layer({"a": A, "b": X}),
        model.predict({"a": A, "b": X}, verbose=0),
    ):
        output, s, u, v = toolkit.tree.flatten(outputs)
        for values in (output, s):
            np.testing.assert_allclose(values, A.sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(u, X.sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(v, -X.sum(1), rtol=1e-5, atol=1e-5)


def test_nested_inputs_with_masks_and_states():
    layer = layers.RNN(Nested(), return_sequences=True, go_backwards=True)
    mask = np.array([[1, 1, 1, 0, 0, 0]] * 4, bool)
    y = layer({"a": A, "b": X}, mask=ops.convert_to_tensor(mask))
    np.testing.assert_allclose(y[:, -1], A[:, :3].sum(1), rtol=1e-5, atol=1e-5)
    start = [np.ones((4, 2), "float32"), [np.zeros((4, 3), "float32")] * 2]
    last = layers.RNN(Nested())({"a": A, "b": X}, initial_state=start)
    np.testing.assert_allclose(last, A.sum(1) + 1, rtol=1e-5, atol=1e-5)


def test_stateful_layer_of_nested_inputs():
    inputs = {
        name: Input((3, n), batch_size=4, name=name) for name, n in (("a", 2), ("b", 3))
    }
    layer = layers.RNN(Nested(), stateful=True)
    model = Model(inputs, layer(inputs))
    for rows in (slice(0, 3), slice(3, 6)):
        y = model.predict({"a": A[:, rows], "b": X[:, rows]}, batch_size=4, verbose=0)
    np.testing.assert_allclose(y, A.sum(1), rtol=1e-5, atol=1e-5)


def test_sequences_of_a_custom_cell_have_steps():
    with pytest.raises(toolkit.errors.ShapeError, match="at least 3 axes"):
        layers.RNN(Unbuilt(2))(np.ones((2, 3), "float32"))


@toolkit.utils.register_keras_serializable("custom_cells")
class TwoInputs(layers.Layer):
    """A layer of two inputs with sublayers, without `build`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = layers.Dense(2), layers.Dense(2)

    def call(self, a, b):
        return self.first(a) + self.second(b)


def test_layer_of_two_inputs_without_build_is_restored(tmp_path):
    a, b = Input((2,)), Input((3,))
    model = Model([a, b], TwoInputs()(a, b))
    model.save(tmp_path / "model.keras")
    loaded = toolkit.models.load_model(tmp_path / "model.keras")
    data = [A[:, 0], X[:, 0]]
    np.testing.assert_array_equal(loaded(data), model(data))
