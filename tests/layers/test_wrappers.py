"""Test TimeDistributed and Bidirectional: builds, arguments, results and refusals."""

from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 3)).astype("float32")
MASK = np.array([[True, True, False, True, True], [True, False, True, True, False]])


class RecordingLayer(layers.Layer):
    """A layer that records the arguments of its call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = []
        self.supports_masking = True

    def call(self, inputs, training=None, mask=None):
        self.calls.append((training, None if mask is None else np.asarray(mask)))
        return inputs


class Plain(layers.Layer):
    """A layer whose call takes neither training nor a mask."""

    def call(self, inputs):
        return inputs * 2.0


# --- Wrapper --------------------------------------------------------------------------


def test_wrapper_needs_a_layer():
    with pytest.raises(ArgumentError, match=r"Wrapper: expected a layer; received 3"):
        layers.Wrapper(3)


def test_wrapper_builds_its_unbuilt_layer():
    wrapper = layers.Wrapper(layers.Dense(2))
    wrapper.build((None, 3))
    assert wrapper.layer.kernel.shape == (3, 2)
    built = layers.Dense(2)
    built.build((None, 3))
    kernel = built.kernel
    layers.Wrapper(built).build((None, 3))
    assert built.kernel is kernel


# --- TimeDistributed ------------------------------------------------------------------


def test_time_distributed_builds_its_layer_for_one_step():
    class Built(Plain):
        def build(self, input_shape):
            self.shape = input_shape

    layer = layers.TimeDistributed(Built())
    layer.build((2, 5, 7, 3))
    assert layer.layer.shape == (2, 7, 3)


def test_time_distributed_keeps_a_built_layer():
    inner = layers.Dense(4)
    inner.build((None, 3))
    kernel = inner.kernel
    layer = layers.TimeDistributed(inner)
    layer.build((2, 5, 3))
    assert inner.kernel is kernel
    assert_close(layer(X), X @ kernel.numpy(), factor=10)


@pytest.mark.parametrize("shape", [(2,), (2, 5)])
def test_time_distributed_needs_steps_and_features(shape):
    with pytest.raises(ShapeError, match=r"\(batch, steps, \.\.\.\); received shape"):
        layers.TimeDistributed(layers.Dense(4)).build(shape)


@pytest.mark.parametrize("training", [None, False, True])
def test_time_distributed_forwards_training_and_mask_if_supported(training):
    layer = layers.TimeDistributed(RecordingLayer())
    layer(X, training=training, mask=ops.convert_to_tensor(MASK))
    passed_training, mask = layer.layer.calls[-1]
    assert passed_training is training
    assert np.array_equal(mask, MASK.ravel())
    layer(X, training=training)
    assert layer.layer.calls[-1] == (training, None)
    wrapper = layers.TimeDistributed(Plain())
    assert_close(wrapper(X, training=training, mask=ops.convert_to_tensor(MASK)), 2 * X)


@pytest.mark.parametrize("shape", [(2, 4), (3, 5)])
def test_time_distributed_refuses_a_mask_of_another_length(shape):
    layer = layers.TimeDistributed(RecordingLayer())
    with pytest.raises(ShapeError, match=r"mask for \(2, 5\) steps; received shape"):
        layer(X, mask=ops.ones(shape, "bool"))


def test_time_distributed_updates_statistics_step_by_step():
    x = (X * np.arange(1, 6).reshape(1, 5, 1)).astype("float32")
    layer = layers.TimeDistributed(layers.BatchNormalization(momentum=0.5, epsilon=0.0))
    twin = layers.BatchNormalization(momentum=0.5, epsilon=0.0)
    expected = np.stack([twin(x[:, i], training=True) for i in range(5)], axis=1)
    assert_close(layer(x, training=True), expected, factor=10)
    assert_close(layer.layer.moving_mean, twin.moving_mean.numpy())
    moving_mean = layer.layer.moving_mean.numpy()
    layer(x, training=False)
    assert_close(layer.layer.moving_mean, moving_mean)


def test_time_distributed_masks_each_step_of_a_stateful_layer():
    x = X.reshape(1, 2, 5, 3)  # two steps of five rows
    mask = MASK.reshape(1, 2, 5)
    layer = layers.TimeDistributed(layers.BatchNormalization(momentum=0.5))
    twin = layers.BatchNormalization(momentum=0.5)
    expected = [twin(x[:, i], training=True, mask=mask[:, i]) for i in range(2)]
    outputs = layer(x, training=True, mask=ops.convert_to_tensor(mask))
    assert_close(outputs, np.stack(expected, axis=1), factor=10)
    assert_close(layer.layer.moving_mean, twin.moving_mean.numpy())


class Counting(Plain):
    """A layer with state that a call in training may change."""

    def __init__(self, calls, **kwargs):
        super().__init__(**kwargs)
        self.note = calls.append  # the layer would track a list
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.note(inputs.shape)
        return inputs * 2.0


@pytest.mark.parametrize(
    "make, training, count",
    [
        (lambda calls: Counting(calls), True, 5),
        (lambda calls: Counting(calls), False, 1),
        (lambda calls: Counting(calls), None, 1),
        (lambda calls: Counting(calls, trainable=False), True, 1),
        (
            lambda calls: toolkit.Sequential([layers.Identity(), Counting(calls)]),
            True,
            5,
        ),
    ],
)
def test_layer_with_changing_state_is_called_step_by_step(make, training, count):
    calls = []
    layer = layers.TimeDistributed(make(calls))
    layer.build(X.shape)
    calls.clear()
    assert_close(layer(X, training=training), X * 2)
    assert len(calls) == count


def test_layer_without_state_is_called_once():
    layer = layers.TimeDistributed(RecordingLayer())
    layer(X, training=True)
    assert len(layer.layer.calls) == 1


def test_symbolic_inputs_of_a_stateful_layer_are_called_once():
    calls = []
    layer = layers.TimeDistributed(Counting(calls))
    assert layer(toolkit.Input((None, 3)), training=True).shape == (None, None, 3)
    assert len(calls) <= 2  # for any number of steps
    assert layer(toolkit.Input((9, 3), batch_size=4), training=True).shape == (4, 9, 3)
    assert len(calls) <= 4


# --- Bidirectional --------------------------------------------------------------------


def make_bidirectional(**options):
    names = ("return_sequences", "return_state", "stateful", "go_backwards")
    arguments = {name: options.pop(name) for name in names if name in options}
    return layers.Bidirectional(layers.LSTM(4, **arguments), **options)


@pytest.mark.parametrize("argument", ["layer", "backward_layer"])
@pytest.mark.parametrize("value", [layers.Dense(2), SimpleNamespace(go_backwards=1)])
def test_bidirectional_wraps_only_recurrent_layers(argument, value):
    arguments = {"layer": layers.LSTM(4), argument: value}
    with pytest.raises(ArgumentError, match="expected a recurrent layer; received"):
        layers.Bidirectional(**arguments)


@pytest.mark.parametrize(
    "backward, message",
    [
        ({"go_backwards": False}, "both have go_backwards=False"),
        ({"return_sequences": True}, "the same return_sequences; received False and T"),
        ({"return_state": True}, "the same return_state; received False and True"),
        ({"stateful": True}, "the same stateful; received False and True"),
    ],
)
def test_directions_must_match(backward, message):
    backward_layer = layers.LSTM(4, **{"go_backwards": True, **backward})
    with pytest.raises(ArgumentError, match=message):
        layers.Bidirectional(layers.LSTM(4), backward_layer=backward_layer)


def test_bidirectional_names_its_parts_and_copies_the_layer():
    layer_argument = layers.LSTM(4, name="mine")
    layer_argument.build((None, 5, 3))
    layer = layers.Bidirectional(layer_argument)
    names = layer.forward_layer.name, layer.backward_layer.name
    assert names == ("forward_mine", "backward_mine")
    assert layer.forward_layer is not layer_argument and not layer.forward_layer.built
    assert not layer.forward_layer.go_backwards and layer.backward_layer.go_backwards
    restored = layers.Bidirectional.from_config(layer.get_config())
    assert restored.forward_layer.name == "forward_mine"
    custom_backward = layers.LSTM(4, go_backwards=True)
    assert (
        layers.Bidirectional(
            layer_argument, backward_layer=custom_backward
        ).backward_layer
        is custom_backward
    )


@pytest.mark.parametrize("sequences", [False, True])
def test_masked_steps_of_sequences_are_zeros(sequences):
    layer = make_bidirectional(return_sequences=sequences)
    for direction in (layer.forward_layer, layer.backward_layer):
        assert direction.zero_output_for_mask is sequences


@toolkit.saving.register_keras_serializable("test_wrappers")
class RecordingRecurrent(layers.Layer):
    """A recurrent layer that is no RNN and returns its inputs in reading order."""

    go_backwards = stateful = return_state = False
    return_sequences = True

    def __init__(self, go_backwards=False, **kwargs):
        super().__init__(**kwargs)
        self.go_backwards, self.built_for, self.records = go_backwards, [], []
        self.supports_masking = True

    def build(self, shape):
        self.built_for.append(shape)

    def call(self, sequences, initial_state=None, mask=None, training=None):
        self.records.append((initial_state, mask, training))
        return ops.flip(sequences, 1) if self.go_backwards else sequences


def test_custom_recurrent_layer_runs_in_both_directions():
    layer = layers.Bidirectional(
        RecordingRecurrent(),
        backward_layer=RecordingRecurrent(go_backwards=True),
        merge_mode="sum",
    )
    layer.backward_layer.build((2, 5, 3))
    layer.backward_layer.built = True
    assert_close(layer(X), 2 * X)
    layer.build(X.shape)
    for direction in (layer.forward_layer, layer.backward_layer):
        assert direction.built_for == [(2, 5, 3)]
        assert not hasattr(direction, "zero_output_for_mask")


def test_subclass_may_use_positional_arguments():
    class PositionalBidirectional(layers.Bidirectional):
        def __init__(self, *args):
            super().__init__(*args)

    assert PositionalBidirectional(layers.LSTM(4), "sum")(X).shape == (2, 4)


def test_direct_call_forwards_all_arguments():
    directions = RecordingRecurrent(), RecordingRecurrent(go_backwards=True)
    layer = layers.Bidirectional(directions[0], backward_layer=directions[1])
    layer.build(X.shape)
    mask = ops.convert_to_tensor(MASK)
    layer.call(ops.convert_to_tensor(X), [1.0, 2.0], mask, True)
    received = layer.forward_layer.records[-1], layer.backward_layer.records[-1]
    assert received == (([1.0], mask, True), ([2.0], mask, True))


@pytest.mark.parametrize("option", ["stateful", "return_sequences", "return_state"])
def test_bidirectional_has_the_settings_of_its_layer(option):
    assert getattr(make_bidirectional(**{option: True}), option) is True
    assert getattr(make_bidirectional(), option) is False


def test_bidirectional_builds_each_direction_once_and_takes_initial_weights():
    backward = layers.LSTM(4, go_backwards=True)
    backward.build((None, 5, 3))
    kernel = backward.cell.kernel
    layer = make_bidirectional(backward_layer=backward)
    layer.build(X.shape)
    assert layer.backward_layer.cell.kernel is kernel
    assert layer.forward_layer.cell.kernel.shape == (3, 16)
    weights = [RNG.normal(size=v.shape).astype("float32") for v in layer.weights]
    twin = make_bidirectional(weights=weights)
    twin.build(X.shape)
    for actual, expected in zip(twin.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert twin.get_config()["weights"] is None


def test_bidirectional_passes_each_direction_its_states():
    states = [ops.convert_to_tensor(RNG.normal(size=(2, 4)), "float32") for _ in "abcd"]
    layer = make_bidirectional(return_sequences=True)
    outputs = layer(X, initial_state=states).numpy()
    forward = layer.forward_layer(X, initial_state=states[:2])
    backward = layer.backward_layer(X, initial_state=states[2:])
    expected = np.concatenate([forward, np.flip(backward, 1)], -1)
    assert_close(outputs, expected)


def test_bidirectional_forwards_training_and_mask():
    layer = layers.Bidirectional(layers.LSTM(4, dropout=0.5, return_sequences=True))
    assert not np.array_equal(layer(X, training=True), layer(X, training=False))
    mask = ops.convert_to_tensor(MASK)
    forward = layer.forward_layer(X, mask=mask)
    backward = np.flip(layer.backward_layer(X, mask=mask), 1)
    assert_close(layer(X, mask=mask), np.concatenate([forward, backward], -1))


def test_first_output_and_all_states_of_each_direction_are_returned():
    layer = make_bidirectional(return_state=True, merge_mode=None)
    outputs = layer(X)
    forward, backward = layer.forward_layer(X), layer.backward_layer(X)
    expected = [forward[0], backward[0], *forward[1:], *backward[1:]]
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b.numpy())


def test_single_output_of_both_directions_is_not_reversed():
    layer = make_bidirectional(merge_mode="sum")
    expected = layer.forward_layer(X) + layer.backward_layer(X)
    assert_close(layer(X), expected.numpy())
    assert layer(X).shape == (2, 4)


def test_bidirectional_returns_its_compute_dtype():
    layer = layers.Bidirectional(
        layers.LSTM(4, dtype="float32", return_state=True), dtype="float16"
    )
    output, *states = layer(X)
    assert output.dtype == "float16"
    assert {end.dtype for end in states} == {"float32"}


@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU])
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("mode", ["concat", "sum", None])
def test_shapes_and_masks_of_bidirectional_match_its_outputs(
    cls, sequences, states, mode
):
    recurrent = cls(4, return_sequences=sequences, return_state=states)
    layer = layers.Bidirectional(recurrent, merge_mode=mode)
    results = layer(X)
    has_several = mode is None or states
    shape = layer.compute_output_shape(X.shape)
    outputs = list(results) if has_several else [results]
    assert (list(shape) if has_several else [shape]) == [y.shape for y in outputs]
    mask = layer.compute_mask(X, MASK)
    masks = list(mask) if has_several else [mask]
    merged = 2 if mode is None else 1
    assert len(masks) == len(outputs)
    assert all((m is MASK) == sequences for m in masks[:merged])
    assert all(m is None for m in masks[merged:])
    masks_with_states = layer.compute_mask([X], [MASK])  # with states among the inputs
    assert masks_with_states == mask if has_several else masks_with_states is mask


def test_states_of_both_directions_are_kept_and_reset():
    layer = make_bidirectional(stateful=True)
    layer.build((2, 5, 3))
    first_outputs = layer(X).numpy()
    assert len(layer.states) == 4 and all(np.any(s.numpy()) for s in layer.states)
    assert not np.allclose(layer(X), first_outputs)
    layer.reset_state()
    assert not any(np.any(s.numpy()) for s in layer.states)
    assert_close(layer(X), first_outputs)
    assert make_bidirectional().states is None


class Penalized(layers.Layer):
    """A layer that adds the mean square of its inputs to the losses."""

    def call(self, inputs):
        self.add_loss(ops.mean(inputs**2))
        return inputs * 2.0


def penalized():
    return layers.Dense(3, activity_regularizer="l2", kernel_initializer="identity")


@pytest.mark.parametrize("make", [Penalized, penalized, lambda: stacked(penalized())])
def test_losses_of_all_steps_are_added(make):
    layer = layers.TimeDistributed(make())
    y = layer(X)
    single = make()
    single(X[:, 0])
    expected = 0.0
    for i in range(X.shape[1]):
        assert_close(y[:, i], single(X[:, i]))
        expected += sum(float(loss) for loss in single.losses)
    assert sum(float(loss) for loss in layer.losses) == pytest.approx(expected)
    layer(X)
    assert len(layer.losses) == X.shape[1]  # losses of the last call


def stacked(layer):
    return toolkit.Sequential([layer])
