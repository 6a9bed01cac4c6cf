"""Test details of layers in Keras 3.15 that classes of users rely on."""

import numpy as np
import pytest

from toolkit import Sequential, errors, layers, ops

X = np.arange(24, dtype="float32").reshape(2, 4, 3) / 10


class Adding(layers.Layer):
    """A cell without `get_initial_state`: the state is the sum of the inputs."""

    def __init__(self, units=3, as_list=False, **kwargs):
        super().__init__(**kwargs)
        self.state_size = [units] if as_list else units

    def call(self, inputs, states):
        y = inputs + states[0]
        return y, [y]


class Switched(Adding):
    def call(self, inputs, states, training=False):
        y = inputs * (2.0 if training else 1.0) + states[0]
        return y, [y]


class Plain:
    """A cell that is no layer."""

    state_size = output_size = 3
    compute_dtype = "float32"

    def call(self, inputs, states):
        return inputs + states[0], inputs + states[0]


SUM = X.sum(axis=1)
TWICE = np.cumsum(X, axis=1).sum(axis=1)
# (cells, training) -> the last output
CELLS = [
    (Adding, False, SUM),
    (lambda: Adding(as_list=True), False, SUM),
    (Plain, False, SUM),
    (lambda: [Adding(), Adding()], False, TWICE),
    (lambda: [Adding(as_list=True), Adding()], False, TWICE),
    (lambda: [Plain(), Adding()], False, TWICE),
    (lambda: [Switched(), Adding()], True, 2 * TWICE),
]


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize(("cells", "training", "expected"), CELLS)
def test_cells_of_users(cells, training, expected, unroll):
    layer = layers.RNN(cells(), unroll=unroll)
    y = layer(ops.convert_to_tensor(X), training=training)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


def test_initial_states_of_stacked_cells_have_their_structure():
    cells = layers.StackedRNNCells([Adding(), Adding(as_list=True)])
    first_state, second_state = cells.get_initial_state(batch_size=2)
    assert first_state.shape == (2, 3)
    assert [state.shape for state in second_state] == [(2, 3)]


# (equation, output_shape, input shape) -> the output's shape
EQUATIONS = [
    ("ab...,bc->ac...", 3, (2, 4, 5), (2, 3, 5)),
    ("ab...,bc->ac...", 3, (2, 4, 5, 6), (2, 3, 5, 6)),
    ("ab...,bc->ac...", (3, 5), (2, 4, 5), (2, 3, 5)),
    ("ab...,bde->ade...", (3, 7), (2, 4, 5), (2, 3, 7, 5)),
    ("...x,xy->...y", 3, (2, 5, 4), (2, 5, 3)),
    ("...x,xy->...y", (5, 3), (2, 5, 4), (2, 5, 3)),
]


@pytest.mark.parametrize(("equation", "output_shape", "shape", "expected"), EQUATIONS)
def test_output_shape_may_omit_an_ellipsis(equation, output_shape, shape, expected):
    layer = layers.EinsumDense(equation, output_shape)
    assert layer(ops.ones(shape)).shape == expected


def test_weights_of_lora_have_the_path_of_the_kernel():
    model = Sequential([layers.Input((3,)), layers.Dense(4, name="dense")], name="m")
    model.layers[0].enable_lora(2, 3.0)
    paths = [weight.path for weight in model.layers[0].weights]
    assert sorted(paths) == [
        *("m/dense/bias", "m/dense/kernel"),
        *("m/dense/lora_kernel_a", "m/dense/lora_kernel_b"),
    ]
    assert model.layers[0].lora_alpha == 3.0


# Shapes of query, value and key -> the shape of the output
ATTENTION = [
    ([(2, None, 3), (None, 5, 3), (None, None, 3)], (2, None, 3)),
    ([(None, 4, 3), (2, None, 3), (2, 6, 3)], (2, 4, 3)),
]


@pytest.mark.parametrize("name", ["Attention", "AdditiveAttention"])
@pytest.mark.parametrize(("shapes", "expected"), ATTENTION)
def test_attention_of_symbols_with_open_extents(name, shapes, expected):
    symbols = [layers.Input(batch_shape=shape) for shape in shapes]
    assert getattr(layers, name)()(symbols).shape == expected


def test_scale_and_translate_accepts_none_for_unchanged_axes():
    images = layers.Input((8, 8, 3))
    y = ops.image.scale_and_translate(
        images, (None, 6, 7, 3), np.ones(2), np.zeros(2), (1, 2), "linear"
    )
    assert y.shape == (None, 6, 7, 3)


def test_muon_subclasses_can_change_the_step():
    from toolkit import Variable, optimizers

    class Halved(optimizers.Muon):
        def lr_adjust(self, x):
            return super().lr_adjust(x) / 2

    start, g = np.eye(3, dtype="float32"), ops.convert_to_tensor(X[0, :3] + 1)
    steps = []
    for kind in (optimizers.Muon, Halved):
        variable = Variable(start)
        kind(0.1, weight_decay=None).apply([g], [variable])
        steps.append(variable.numpy() - start)
    np.testing.assert_allclose(steps[0], 2 * steps[1], atol=1e-6)


def test_adamw_without_weight_decay_is_refused():
    from toolkit import optimizers

    with pytest.raises((errors.ArgumentError, ValueError), match="weight_decay"):
        optimizers.AdamW(weight_decay=None)


@pytest.mark.parametrize(("mode", "better"), [("min", 1.0), ("max", 3.0)])
def test_monitor_op_exists_for_subclasses(mode, better):
    from toolkit import Model, callbacks

    callback = callbacks.EarlyStopping("loss", mode=mode, min_delta=0.5)
    assert callback.monitor_op is None
    callback.set_model(Model())
    callback.on_train_begin()
    for epoch, (loss, best) in enumerate(((2.0, 2.0), (2.2, 2.0), (better, better))):
        callback.on_epoch_end(epoch, {"loss": loss})
        assert callback.best == best
    assert callback.monitor_op(better, 2.0)


class Named(Sequential):
    """A user's model with a minimal constructor."""

    def __init__(self, layers=None, name=None):
        super().__init__(layers, name=name)


def test_sequential_subclass_with_a_minimal_constructor_is_restored():
    model = Named([layers.Input((3,)), layers.Dense(2)])
    restored = Named.from_config(model.get_config())
    assert type(restored) is Named
    assert restored(X[0]).shape == (4, 2)


@pytest.mark.parametrize("size", [2.5, "2", [2, 2.5]])
@pytest.mark.parametrize("name", ["UpSampling1D", "UpSampling2D", "MaxPooling2D"])
def test_non_integer_extents_raise_type_errors(name, size):
    argument = "size" if name.startswith("Up") else "pool_size"
    with pytest.raises(TypeError, match=argument):
        getattr(layers, name)(**{argument: size})
