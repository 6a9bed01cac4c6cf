"""Test the base class: weights, tracking, calls, losses, masks, configs, errors."""

import copy
import json
import pickle
import threading

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    NotBuiltError,
    ShapeError,
    ToolkitError,
)
from toolkit.layers.call import context
from toolkit.layers.tracking import no_tracking


class Scale(layers.Layer):
    """A layer that computes inputs * factor."""

    def __init__(self, start="ones", **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, input_shape):
        self.factor = self.add_weight(
            shape=(input_shape[-1],), initializer=self.start, name="factor"
        )

    def call(self, inputs):
        return inputs * self.factor


class Block(layers.Layer):
    """A layer with two layers in attributes, one in a list, one in a dict."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(4, name="first")
        self.more = [layers.Dense(4, name="second")]
        self.named = {"a": (layers.Dense(3, name="third"),)}
        self.drop = layers.Dropout(0.5, seed=1)

    def call(self, inputs, training=None):
        x = self.drop(self.first(inputs))
        return self.named["a"][0](self.more[0](x))


def ones(*shape, dtype="float32"):
    return ops.ones(shape, dtype=dtype)


# --- weights and tracking -------------------------------------------------------------


def test_first_call_builds_weights_under_the_layers_path():
    layer = Scale(name="scale")
    assert not layer.built and layer.weights == [] and layer.path is None
    layer(ones(2, 3))
    assert layer.built and layer.path == "scale"
    assert [v.path for v in layer.weights] == ["scale/factor"]
    assert layer.get_build_config() == {"input_shape": (2, 3)}


def test_build_from_config_makes_the_same_weights():
    layer = Scale()
    layer.build_from_config({"input_shape": [None, 3]})
    assert layer.factor.shape == (3,)


def test_state_is_found_in_attributes_lists_dicts_and_tuples():
    block = Block(name="block")
    block(ones(2, 3))
    assert [v.path for v in block.weights] == [
        "block/first/kernel",
        "block/first/bias",
        "block/second/kernel",
        "block/second/bias",
        "block/third/kernel",
        "block/third/bias",
    ]
    assert len(block.variables) == 7  # and the seed
    assert block.count_params() == 3 * 4 + 4 + 4 * 4 + 4 + 4 * 3 + 3


def test_appended_layers_are_tracked():
    block = Block()
    block.more.append(layers.Dense(2))
    block.named["b"] = layers.Dense(2)
    assert len(block._flatten_layers(include_self=False)) == 6


def test_changes_of_lists_and_dicts_are_tracked():
    block = Block()
    tracked = block._flatten_layers(), block.variables
    assert (block._flatten_layers(), block.variables) == tracked
    assert block._flatten_layers() is not tracked[0]  # lists that callers may change
    block.more[0], block.named["b"] = layers.Dense(2), block.more[0]
    assert len(block._flatten_layers()) == len(tracked[0]) + 1
    inner = block.named["b"]
    inner.extra = layers.Dense(3)
    assert inner.extra in block._flatten_layers()
    block.named.clear()
    assert inner.extra not in block._flatten_layers()


def test_copies_track_their_layers():
    block = Block()
    block.build((None, 3))
    variables = block.variables
    for twin in (copy.copy(block), copy.deepcopy(block)):
        assert twin._flatten_layers()[0] is twin
    assert not any(v is w for v in variables for w in copy.deepcopy(block).variables)


def test_replaced_or_deleted_attribute_is_untracked():
    block = Block()
    block.first = layers.Dense(5, name="other")
    del block.drop
    names = [layer.name for layer in block._flatten_layers(include_self=False)]
    assert names == ["second", "third", "other"]


def test_no_tracking():
    block = Block()
    with no_tracking():
        block.hidden = layers.Dense(2)
    assert block.hidden not in block._flatten_layers()


def test_variables_created_trainable_stay_first_when_frozen():
    class MixedLayer(layers.Layer):
        def build(self, input_shape):
            self.a = self.add_weight(shape=(), trainable=False, name="a")
            self.b = self.add_weight(shape=(), name="b")
            self.c = toolkit.Variable(0.0, name="c")

    layer = MixedLayer()
    layer.build((1, 1))
    names = ["b", "c", "a"]
    assert [v.name for v in layer.weights] == names
    assert [v.name for v in layer.trainable_weights] == ["b", "c"]
    layer.trainable = False
    assert [v.name for v in layer.weights] == names
    assert layer.trainable_weights == []
    assert [v.name for v in layer.non_trainable_weights] == names
    layer.trainable = True
    assert [v.name for v in layer.trainable_weights] == ["b", "c"]


def test_trainable_applies_to_all_sublayers():
    block = Block()
    block(ones(2, 3))
    block.trainable = False
    assert block.trainable_variables == []
    assert not block.more[0].trainable and not block.named["a"][0].kernel.trainable


def test_layer_may_be_frozen_before_its_build():
    layer = Scale(trainable=False)
    layer(ones(2, 3))
    assert layer.trainable_weights == [] and not layer.factor.trainable


def test_get_and_set_weights_copy():
    layer = Scale()
    layer(ones(2, 3))
    (value,) = layer.get_weights()
    value[:] = 7.0
    assert layer.factor.numpy().tolist() == [1.0, 1.0, 1.0]
    layer.set_weights([value])
    value[:] = 8.0
    assert layer.factor.numpy().tolist() == [7.0, 7.0, 7.0]


def test_set_weights_lists_every_mismatch_and_changes_nothing():
    block = Block(name="block")
    block(ones(2, 3))
    before = block.get_weights()
    with pytest.raises(ArgumentError, match="expected 6 arrays .*received 1"):
        block.set_weights([1.0])
    wrong_weights = [np.zeros((9, 9)), *before[1:5], np.zeros(9)]
    with pytest.raises(ShapeError, match=r"first/kernel.*\(9, 9\).*third/bias.*\(9,\)"):
        block.set_weights(wrong_weights)
    for old, new in zip(before, block.get_weights(), strict=True):
        assert np.array_equal(old, new)


def test_save_own_variables_keeps_the_order():
    layer, restored, store = Scale(), Scale("zeros"), {}
    layer(ones(1, 2)), restored(ones(1, 2))
    layer.save_own_variables(store)
    assert list(store) == ["0"]
    restored.load_own_variables({"0": store["0"].numpy()})
    assert restored.factor.numpy().tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="expected 1 variables.*received 2"):
        restored.load_own_variables({"0": 1, "1": 2})


def test_state_cannot_be_added_to_a_built_layer():
    layer = Scale(name="scale")
    layer(ones(2, 3))
    with pytest.raises(ArgumentError, match="'scale'.*already built"):
        layer.other = layers.Dense(2)
    with pytest.raises(ArgumentError, match="already built"):
        layer.add_weight(shape=(1,))


def test_failing_build_leaves_no_weights():
    class FailingLayer(layers.Layer):
        def build(self, input_shape):
            self.a = self.add_weight(shape=(1,))
            if input_shape[-1] == 3:
                raise ValueError("no")

        def call(self, inputs):
            return inputs

    layer = FailingLayer()
    with pytest.raises(ValueError, match="no"):
        layer(ones(2, 3))
    assert not layer.built and layer.weights == []
    layer(ones(2, 4))
    assert len(layer.weights) == 1


def test_super_init_must_be_called_first():
    class UninitializedLayer(layers.Layer):
        def __init__(self):
            self.x = 1

        def call(self, inputs):
            return inputs

    with pytest.raises(ArgumentError, match=r"UninitializedLayer.*super\(\).__init__"):
        UninitializedLayer()(ones(1))


def test_layers_can_be_copied():
    block = Block()
    x = ones(2, 3)
    y = block(x)
    twin = copy.deepcopy(block)
    twin.first.kernel.assign(ops.zeros((3, 4)))
    assert np.array_equal(block(x).numpy(), y.numpy())
    assert len(twin.weights) == 6


def test_layers_can_be_pickled():
    layer = layers.Dense(2, activation="relu", kernel_regularizer="l2")
    x = ones(2, 3)
    y = layer(x)
    twin = pickle.loads(pickle.dumps(layer))
    assert np.array_equal(twin(x).numpy(), y.numpy())
    assert twin.kernel is not layer.kernel


@pytest.mark.parametrize("base_is_first", [True, False])
def test_build_may_call_the_base_build_first_or_last(base_is_first):
    class BuildingLayer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.hidden, self.outer = layers.Dense(3), layers.Dense(2)

        def build(self, shape):
            if base_is_first:
                super().build(shape)
            self.hidden.build(shape)
            self.outer.build((*shape[:-1], 3))
            if not base_is_first:
                super().build(shape)

        def call(self, x):
            return self.outer(self.hidden(x))

    layer = BuildingLayer()
    layer.build((None, 4))
    assert layer.built and len(layer.weights) == 4
    assert BuildingLayer()(ones(2, 4)).shape == (2, 2)


class LayerWithShape(layers.Layer):
    def __init__(self, needs_values=False):
        super().__init__()
        self.inner, self.needs_values = layers.Dense(2), needs_values

    def call(self, x):
        if self.needs_values:
            np.asarray(x)  # no symbol has values
        return self.inner(x)

    def compute_output_shape(self, shape):
        return (*shape[:-1], 2)


def test_sublayers_are_built_although_the_output_shape_is_known():
    layer = LayerWithShape()
    model = toolkit.Model(x := layers.Input((3,)), layer(x))
    assert [w.path for w in model.weights] == [
        f"{layer.name}/{layer.inner.name}/{name}" for name in ("kernel", "bias")
    ]
    counting = LayerWithShape(needs_values=True)
    with pytest.warns(UserWarning, match="the sublayers have no weights yet"):
        assert counting(x).shape == (None, 2)
    assert not counting.weights


def test_rebuilt_embedding_keeps_its_weights():
    for layer in (layers.Embedding(3, 2), layers.ReversibleEmbedding(3, 2, False)):
        layer.build()
        weights = list(layer.weights)
        layer.build((None, 4))
        assert [a is b for a, b in zip(weights, layer.weights, strict=True)]


# --- calls ----------------------------------------------------------------------------


def test_arrays_are_converted_and_cast_to_the_compute_dtype():
    layer = layers.Dense(2)
    y = layer(np.ones((2, 3)))
    assert y.dtype == "float32"
    assert layer(ones(2, 3, dtype="float64")).dtype == "float32"
    assert layers.Identity()(np.ones(2, "int64")).dtype == "int64"
    assert layers.Identity(autocast=False)(np.ones(2)).dtype == "float64"


class WeightLayer(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight((2,))

    def call(self, x):
        return self.w * 1


class Enclosing(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize("autocast", [True, False])
def test_autocast_of_weights_depends_on_the_calling_layer(autocast):
    def make_layer():
        return WeightLayer(autocast=autocast, dtype="mixed_float16")

    x = np.ones(2, "float32")
    assert make_layer()(x).dtype == "float16"
    assert Enclosing(make_layer(), dtype="float32")(x).dtype == "float16"
    output = Enclosing(make_layer(), dtype="mixed_float16")(x)
    assert output.dtype == ("float16" if autocast else "float32")


def test_layer_may_receive_unconverted_arguments():
    class InputTypes(layers.Layer):
        def __init__(self):
            super().__init__(dtype="float16")
            self._convert_input_args = False  # names of Keras, which libraries set
            self._allow_non_tensor_positional_args = True

        def call(self, x, y=None):
            return [type(x).__name__, type(y).__name__, str(getattr(x, "dtype", None))]

    read = InputTypes()
    assert read(np.ones(2), y=["a"]) == ["ndarray", "list", "float64"]
    assert read("text") == ["str", "NoneType", "None"]
    assert read(ones(2)) == ["Tensor", "NoneType", "float32"]


def test_positional_arguments_must_be_tensors():
    layer = layers.Dense(2, name="d")
    with pytest.raises(ArgumentError, match="layer 'd'.*Only input tensors.*'abc'"):
        layer("abc")
    with pytest.raises(ArgumentError, match="received 1.0 of type float"):
        layer([[1.0]])
    with pytest.raises(TypeError, match="layer 'd'.*unexpected keyword"):
        layer(ones(2, 3), what=1)


class TrainingLayer(layers.Layer):
    """A layer that returns its argument `training` as a number."""

    def __init__(self, inner=None, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, inputs, training=None):
        if self.inner is not None:
            return self.inner(inputs)
        return inputs * {None: 0.0, True: 1.0, False: -1.0}[training]


class CallingLayer(layers.Layer):
    """A layer that calls a sublayer without the argument `training`."""

    def __init__(self, inner, **options):
        super().__init__()
        self.inner, self.options = inner, options

    def call(self, inputs):
        return self.inner(inputs, **self.options)


def test_training_is_explicit_or_from_the_outer_call_or_default():
    class DefaultTrue(TrainingLayer):
        def call(self, inputs, training=True):
            return super().call(inputs, training=training)

    x = ones(1)
    assert float(TrainingLayer()(x)[0]) == 0.0
    assert float(DefaultTrue()(x)[0]) == 1.0
    assert float(DefaultTrue()(x, training=False)[0]) == -1.0
    assert float(TrainingLayer(TrainingLayer())(x, training=True)[0]) == 1.0
    assert float(CallingLayer(TrainingLayer())(x, training=True)[0]) == 1.0
    assert (
        float(CallingLayer(TrainingLayer(), training=False)(x, training=True)[0])
        == -1.0
    )
    assert float(DefaultTrue(TrainingLayer())(x)[0]) == 1.0
    assert context.training is None and context.layer is None


def test_call_context_is_local_to_a_thread():
    results = []

    class ThreadedLayer(layers.Layer):
        def call(self, inputs, training=None):
            thread = threading.Thread(target=lambda: results.append(context.training))
            thread.start()
            thread.join()
            return inputs

    ThreadedLayer()(ones(1), training=True)
    assert results == [None]


def test_call_context_is_restored_after_an_error():
    layer = CallingLayer(layers.Dense(2))
    with pytest.raises(ShapeError):
        layer(ones(3), training=True)
    assert context.layer is None and context.training is None


def test_symbolic_calls_are_recorded():
    x = toolkit.Input((3,), name="x")
    layer = Scale()
    y = layer(x)
    assert y.shape == (None, 3) and layer.factor.shape == (3,)
    assert layer.input is x and layer.output is y
    assert not hasattr(Scale(), "output")
    assert y._keras_history.operation is layer


def test_symbolic_call_builds_sublayers_and_changes_no_state():
    block = Block()
    seed = block.drop.seed_generator.state.numpy().tolist()
    y = block(toolkit.Input((3,)), training=True)
    assert y.shape == (None, 3)
    assert block.first.built and block.first.get_build_config() == {
        "input_shape": (None, 3)
    }
    assert block.drop.seed_generator.state.numpy().tolist() == seed
    norm = layers.BatchNormalization()
    norm(toolkit.Input((3,)), training=True)
    assert norm.moving_mean.numpy().tolist() == [0.0, 0.0, 0.0]


def test_build_receives_several_shapes():
    class PairLayer(layers.Layer):
        def build(self, a_shape, b_shape):
            self.shapes = (a_shape, b_shape)

        def call(self, a, b=None, flag=False):
            return a

    layer = PairLayer()
    layer(ones(2, 3), ones(4, 5), flag=True)
    assert layer.shapes == ((2, 3), (4, 5))
    assert layer.get_build_config() == {
        "shapes_dict": {"a_shape": (2, 3), "b_shape": (4, 5)}
    }


def test_misnamed_shape_arguments_are_explained():
    class MismatchedBuild(layers.Layer):
        def build(self, a_shape, other):
            pass

        def call(self, a, b):
            return a

    with pytest.raises(
        ArgumentError, match="MismatchedBuild.build.*`other`, which does not end"
    ):
        MismatchedBuild()(ones(1), ones(1))


def test_compute_output_shape_does_not_build():
    layer = layers.Dense(4)
    assert layer.compute_output_shape((None, 3)) == (None, 4)
    assert not layer.built
    block = Block()
    before = layers.Dense(1).name
    assert block.compute_output_shape((None, 3)) == (None, 3)
    assert not block.first.built
    # The temporary layers of the inference used up no names.
    numbers = [int(name.rpartition("_")[2]) for name in (before, layers.Dense(1).name)]
    assert numbers[1] == numbers[0] + 1


def test_overridden_compute_output_shape_is_used():
    class LayerWithShape(layers.Layer):
        def call(self, inputs):
            return np.asarray(inputs)  # no symbol is supported

        def compute_output_shape(self, input_shape):
            return (*input_shape[:-1], 9)

    assert LayerWithShape()(toolkit.Input((3,))).shape == (None, 9)


def test_stateless_call_changes_nothing():
    layer = layers.BatchNormalization()
    x = ops.convert_to_tensor(np.arange(6.0).reshape(3, 2), "float32")
    layer.build((None, 2))
    trainable = [v.numpy() + 1.0 for v in layer.trainable_variables]
    statistics = [v.numpy() for v in layer.non_trainable_variables]
    y, updated = layer.stateless_call(trainable, statistics, x, training=True)
    assert float(updated[0][0]) == pytest.approx(0.02)
    assert layer.moving_mean.numpy().tolist() == [0.0, 0.0]
    assert layer.gamma.numpy().tolist() == [1.0, 1.0]
    assert float(ops.mean(y)) == pytest.approx(1.0)  # beta was 1
    with pytest.raises(ArgumentError, match="expected 2 trainable_variables"):
        layer.stateless_call([], statistics, x)
    with pytest.raises(NotBuiltError):
        layers.Dense(1).stateless_call([], [], x)


# --- losses ---------------------------------------------------------------------------


class SumLoss(layers.Layer):
    def call(self, inputs):
        self.add_loss(ops.sum(inputs))
        return inputs


def test_losses_belong_to_the_last_call():
    layer = SumLoss()
    layer(ones(2))
    layer(ones(3))
    assert [float(x) for x in layer.losses] == [3.0]
    outer = CallingLayer(layer)
    outer(ones(4))
    assert [float(x) for x in outer.losses] == [4.0]


def test_losses_of_symbolic_calls_are_dropped():
    layer = SumLoss()
    layer(toolkit.Input((3,)))
    assert layer.losses == []


def test_losses_of_a_trace_are_not_visible_outside():
    layer = SumLoss()

    @toolkit.function
    def traced(x):
        y = layer(x)
        return y, sum(layer.losses)

    assert float(traced(ones(5))[1]) == 5.0
    assert layer.losses == []
    *_, losses = layer.stateless_call([], [], ones(2), return_losses=True)
    assert [float(x) for x in losses] == [2.0]
    assert layer.losses == []


def test_regularizers_of_weights_and_activity():
    layer = layers.Dense(
        2,
        use_bias=False,
        kernel_initializer="ones",
        kernel_regularizer="l2",
        activity_regularizer="l1",
    )
    layer(ones(4, 3))
    activity, weight = (float(x) for x in layer.losses)
    assert activity == pytest.approx(0.01 * 3 * 2)
    assert weight == pytest.approx(0.01 * 6)


def test_add_loss_takes_tensors():
    with pytest.raises(ArgumentError, match="expected tensors"):
        layers.Identity().add_loss(1.0)


# --- masks ----------------------------------------------------------------------------


def test_masks_propagate_through_supporting_layers():
    ids = ops.convert_to_tensor([[1, 2, 0], [3, 0, 0]])
    expected = [[True, True, False], [True, False, False]]
    x = layers.Embedding(5, 4, mask_zero=True)(ids)
    assert x._keras_mask.tolist() == expected
    assert layers.Dropout(0.5)(x)._keras_mask.tolist() == expected
    assert layers.Dense(3)(x)._keras_mask.tolist() == expected
    assert layers.LSTM(3, return_sequences=True)(x)._keras_mask.tolist() == expected
    assert getattr(layers.LSTM(3)(x), "_keras_mask", None) is None
    joined = layers.Concatenate(axis=1)([x, ops.ones((2, 1, 4))])
    assert joined._keras_mask.tolist() == [row + [True] for row in expected]


def test_dropped_mask_is_reported_once():
    x = layers.Embedding(5, 4, mask_zero=True)(ops.convert_to_tensor([[1, 0]]))
    layer = Scale(name="scale")
    with pytest.warns(UserWarning, match="'scale'.*does not support masking"):
        y = layer(x)
    layer(x)
    assert getattr(y, "_keras_mask", None) is None


def test_symbolic_masks():
    ids = toolkit.Input((None,), dtype="int32")
    x = layers.Embedding(5, 4, mask_zero=True)(ids)
    assert (x._keras_mask.shape, x._keras_mask.dtype) == ((None, None), "bool")
    assert layers.LSTM(3, return_sequences=True)(x)._keras_mask is not None


def test_explicit_mask_has_priority():
    class MaskLayer(layers.Layer):
        def call(self, inputs, mask=None):
            return inputs if mask is None else ops.cast(mask, "float32")

        def compute_mask(self, inputs, previous_mask):
            return None

    x = layers.Masking()(ops.convert_to_tensor([[[1.0], [0.0]]]))
    layer = MaskLayer()
    assert layer(x).tolist() == [[1.0, 0.0]]
    assert layer(x, mask=ops.convert_to_tensor([[False, True]])).tolist() == [
        [0.0, 1.0]
    ]


# --- dtypes ---------------------------------------------------------------------------


def test_mixed_precision_casts_inputs_and_reads_of_variables():
    layer = Scale(dtype="mixed_bfloat16")
    y = layer(ones(2, 3))
    assert (y.dtype, layer.dtype, layer.compute_dtype) == (
        "bfloat16",
        "float32",
        "bfloat16",
    )
    assert layer.factor.value.dtype == "float32"
    assert layer.get_weights()[0].dtype == np.float32


def test_inner_layer_keeps_its_policy():
    outer = CallingLayer(layers.Dense(2, dtype="float32"))
    outer.dtype_policy = "mixed_float16"
    assert outer(ones(2, 3)).dtype == "float32"


# --- configs --------------------------------------------------------------------------


def test_config_contains_the_constructor_arguments():
    layer = Scale(start="zeros", name="s", trainable=False, dtype="mixed_float16")
    config = json.loads(json.dumps(layer.get_config()))
    assert config["start"] == "zeros" and config["trainable"] is False
    twin = Scale.from_config(config)
    assert (twin.start, twin.name, twin.trainable) == ("zeros", "s", False)
    assert twin.dtype_policy == layer.dtype_policy


def test_config_contains_sublayers():
    layer = layers.TimeDistributed(layers.Dense(3, activation="relu"))
    twin = layers.TimeDistributed.from_config(
        json.loads(json.dumps(layer.get_config()))
    )
    assert twin.layer.units == 3 and twin.layer is not layer.layer


@pytest.mark.parametrize("penalty", [None, "l2"])
def test_config_of_attention_contains_its_penalty(penalty):
    layer = layers.MultiHeadAttention(2, 3, activity_regularizer=penalty)
    assert ("activity_regularizer" in layer.get_config()) == (penalty is not None)
    copy = layers.MultiHeadAttention.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


class KeysWithoutBias(layers.MultiHeadAttention):
    """A subclass that replaces the projections, like libraries for Keras."""

    def build(self, query_shape, value_shape, key_shape=None):
        heads = (None, self._num_heads, self._key_dim)
        make = {
            "query": ("abc,cde->abde", "de" if self._use_bias else None, heads),
            "key": ("abc,cde->abde", None, heads),
            "value": ("abc,cde->abde", "de", (None, self._num_heads, self._value_dim)),
            "output": ("abcd,cde->abe", "e", (None, query_shape[-1])),
        }
        for name, (equation, bias, shape) in make.items():
            options = self._get_common_kwargs_for_sublayer()
            dense = layers.EinsumDense(equation, shape, bias_axes=bias, **options)
            setattr(self, f"_{name}_dense", dense)
        for dense in (self._query_dense, self._key_dense, self._value_dense):
            dense.build(query_shape)
        self._build_attention(len(query_shape) + 1)
        self._output_dense.build((*query_shape[:-1], self._num_heads, self._value_dim))

    def scores(self, query, key):
        scores = ops.einsum(self._dot_product_equation, key, query)
        return self._masked_softmax(scores, ops.ones((1, 3, 3), "bool"))


class CustomAttention(layers.MultiHeadAttention):
    """A subclass that stores and builds the same attributes as the class of Keras."""

    def __init__(self, num_heads, key_dim, **kwargs):
        super().__init__(1, key_dim, **kwargs)
        self._num_heads = num_heads

    def _build_attention(self, rank):
        if self._attention_axes is None:
            self._attention_axes = tuple(range(1, rank - 2))
        self._dot_product_equation = "aecd,abcd->acbe"
        self._combine_equation = "acbe,aecd->abcd"
        self._softmax = layers.Softmax(-1)
        self._dropout_layer = layers.Dropout(self._dropout)


def test_attention_that_builds_like_keras():
    layer, reference = CustomAttention(2, 4), layers.MultiHeadAttention(2, 4)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    reference(x, x)
    layer._source_heads = 2
    for name in ("kernel_regularizer", "bias_constraint", "activity_regularizer"):
        assert getattr(layer, f"_{name}") is None
    layer.build(x.shape, x.shape)
    layer.set_weights(reference.get_weights())
    assert layer.num_heads == 2
    outputs = layer(x, x, return_attention_scores=True)
    expected = reference(x, x, return_attention_scores=True)
    assert_close(outputs[0], expected[0])
    assert_close(outputs[1], expected[1])


def test_attention_can_be_changed_by_the_names_of_keras():
    layer, reference = KeysWithoutBias(2, 4), layers.MultiHeadAttention(2, 4)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    assert layer(x, x).shape == (2, 3, 5)
    assert len(layer.weights) == 7
    reference(x, x)
    weights = reference.get_weights()
    layer.set_weights([*weights[:3], *weights[4:]])  # the bias of the keys is 0
    assert_close(layer(x, x), reference(x, x))
    query, key = layer._query_dense(x), layer._key_dense(x)
    scores = layer.scores(query / 2.0, key)
    assert_close(scores, reference(x, x, return_attention_scores=True)[1])
    assert ops.einsum(layer._combine_equation, scores, key).shape == (2, 3, 2, 4)


def test_attention_without_dropout_may_use_flash_attention():
    assert layers.MultiHeadAttention(2, 3, flash_attention=True).flash_attention
    with pytest.raises(ArgumentError, match="Dropout is not supported when flash"):
        layers.MultiHeadAttention(2, 3, dropout=0.1, flash_attention=True)


def test_keys_and_values_of_attention_have_equal_lengths():
    query, value = ops.ones((2, 4, 3)), ops.ones((2, 5, 3))
    layer = layers.MultiHeadAttention(2, 3)
    with pytest.raises(ShapeError, match="all but the last extents of key and value"):
        layer(query, value, ops.ones((2, 6, 3)))
    layer = layers.MultiHeadAttention(2, 3)
    assert layer(query, value, ops.ones((2, 5, 7))).shape == (2, 4, 3)
    assert layer.key_dense.kernel.shape[0] == 7


def test_custom_get_config():
    class Table(layers.Layer):
        def __init__(self, make, **kwargs):
            super().__init__(**kwargs)
            self.rows = make()

        def get_config(self):
            return {**super().get_config(), "rows": self.rows}

    config = Table(lambda: [1, 2], name="t").get_config()
    assert config["rows"] == [1, 2] and config["name"] == "t" and "make" not in config


def test_unserializable_argument_is_named():
    class FunctionLayer(layers.Layer):
        def __init__(self, function):
            super().__init__()

    with pytest.raises(ArgumentError, match="FunctionLayer.get_config.*'function'"):
        FunctionLayer(lambda x: x).get_config()


def test_invalid_config_is_refused():
    with pytest.raises(ArgumentError, match=r"Dense 'd': missing argument 'units'"):
        layers.Dense.from_config({"name": "d"})


# --- errors ---------------------------------------------------------------------------


def test_wrong_rank_or_extent_names_layer_path_expected_and_received():
    layer = layers.Dense(2, name="head")
    with pytest.raises(ShapeError, match=r"'head'.*at least 2 axes.*\(3,\)"):
        layer(ones(3))
    layer(ones(2, 3))
    message = r"layer 'head' \(Dense, path 'head'\).*extent 3 along axis -1.*\(2, 4\)"
    with pytest.raises(ShapeError, match=message):
        layer(ones(2, 4))
    with pytest.raises(ShapeError, match="4 axes"):
        layers.Conv2D(2, 3)(ones(2, 3))


def test_wrong_dtype_by_input_spec():
    layer = layers.Identity()
    layer.input_spec = layers.InputSpec(dtype="int32")
    with pytest.raises(DTypeError, match=r"dtype int32.*dtype=float32"):
        layer(ones(2))


def test_input_specs_by_name():
    layer = layers.Identity(name="id")
    layer.input_spec = [
        layers.InputSpec(ndim=1, name="a"),
        layers.InputSpec(shape=(None, 3), name="b", optional=True),
    ]
    layer({"b": ones(2, 3), "a": ones(1)})
    layer({"b": None, "a": ones(1)})
    with pytest.raises(ArgumentError, match=r"'id'.*\['a', 'b'\].*\['b'\]"):
        layer({"b": ones(2, 3)})
    with pytest.raises(ShapeError, match=r"input 1: .*shape=\(None, 3\).*\(2, 4\)"):
        layer({"b": ones(2, 4), "a": ones(1)})


def test_errors_inside_call_name_the_innermost_layer_once():
    class FailingLayer(layers.Layer):
        def call(self, inputs):
            return ops.matmul(inputs, ones(7, 7))

    for x in (ones(2, 3), toolkit.Input((3,))):
        outer = CallingLayer(FailingLayer(name="inner"))
        with pytest.raises(ShapeError) as caught:
            outer(x)
        message = str(caught.value)
        assert message.count("called with") == 1
        assert "layer 'inner' (FailingLayer, path" in message and "float32" in message
        assert "20160" not in message


def test_an_error_shows_arrays_by_their_shapes():
    symbol = toolkit.Input((4,), name="x")
    model = toolkit.Model({"x": symbol}, symbol + 1)
    with pytest.raises(ShapeError, match=r"called with \[?float64\(1, 5\)") as caught:
        model({"x": np.ones((1, 5))})
    assert "array(" not in str(caught.value)


def test_objects_without_a_call_of_super_name_the_fault():
    class Forgetful(toolkit.Model):
        def __init__(self):
            self.units = 3

        def call(self, inputs):
            return inputs

    assert repr(Forgetful()) == "<Forgetful without super().__init__()>"
    uses = (lambda model: model(ones(1)), lambda model: model.compile("sgd", "mse"))
    for use in uses:
        with pytest.raises(ArgumentError, match=r"Forgetful: call super\(\).__init__"):
            use(Forgetful())


def test_layer_without_call_is_refused():
    with pytest.raises(NotImplementedError, match="does not have a `call`"):
        layers.Layer()(ones(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: layers.Dense(0),
            "Dense: the argument `units` must be a positive integer; received 0",
        ),
        (lambda: layers.Dense(2, spam=1), "unknown argument 'spam'"),
        (
            lambda: layers.Dense(2, name="a/b"),
            "name must be a string and cannot contain",
        ),
        (lambda: layers.Dense(2, trainable="no"), "`trainable` to be a boolean"),
        (lambda: layers.Dense(2, activation="nope"), "nope"),
        (
            lambda: layers.Conv2D(4, 3, padding="nope"),
            "'same', 'valid'; received 'nope'",
        ),
        (lambda: layers.Conv2D(4, (3, 3, 3)), "kernel_size should be"),
        (lambda: layers.Conv2D(5, 3, groups=2), "multiple of groups"),
        (lambda: layers.Dropout(1.5), "between 0 and 1; received 1.5"),
        (lambda: layers.LSTM(4, use_cudnn=True), "use_cudnn"),
        (lambda: layers.RNN(layers.Dense(2)), "a cell needs"),
        (lambda: layers.Lambda(3), "expected a function"),
        (lambda: layers.Wrapper(3), "expected a layer"),
        (lambda: layers.EinsumDense("ab->b", 3), "expected an equation"),
        (lambda: layers.Permute((1, 3)), "permutation"),
        (lambda: layers.Input(), "pass a `shape`"),
        (lambda: layers.InputSpec(ndim=2, axes={5: 1}), "axis 5"),
        (lambda: layers.Bidirectional(layers.Dense(2)), "expected a recurrent layer"),
        (lambda: layers.UpSampling2D(interpolation="cubic"), "'bicubic'"),
    ],
)
def test_invalid_arguments_are_refused(make, message):
    def build():
        layer = make()
        if hasattr(layer, "build"):
            layer.build((None, 4))

    with pytest.raises(ToolkitError, match=message):
        build()


def test_weights_need_known_extents():
    with pytest.raises(
        ArgumentError, match=r"Dense 'd'.*axis -1 .* defined dimension.*None"
    ):
        layers.Dense(2, name="d")(toolkit.Input((None,)))


def test_merging_layers_need_lists_of_one_batch_size():
    with pytest.raises(ArgumentError, match="Add: expected a list"):
        layers.Add()(ones(2, 3))
    with pytest.raises(ShapeError, match=r"batch size.*\(2, 3\), \(4, 3\)"):
        layers.Add()([ones(2, 3), ones(4, 3)])


class ShiftLayer(layers.Layer):
    """A layer that adds 1 if an enclosing call, or its own call, requests it."""

    def __init__(self):
        super().__init__()
        self._register_call_context_args("shift")

    def call(self, x, shift=None):
        return x + (1.0 if shift else 0.0)


def test_call_context_arguments_are_forwarded():
    inner = ShiftLayer()
    x = toolkit.Input((1,))
    models = [
        CallingLayer(CallingLayer(inner)),
        toolkit.Sequential([layers.Identity(), CallingLayer(inner)]),
        toolkit.Model(x, CallingLayer(inner)(x)),
    ]
    for model in models:
        model._register_call_context_args("shift")
        assert model(ones(2, 1), shift=True).tolist() == [[2.0], [2.0]]
        assert model(ones(2, 1)).tolist() == [[1.0], [1.0]]
    outer = CallingLayer(CallingLayer(inner, shift=False))
    outer._register_call_context_args("shift")
    assert outer(ones(2), shift=True).tolist() == [1.0, 1.0]
    assert inner(ones(2), shift=True).tolist() == [2.0, 2.0]
    assert inner(ones(2)).tolist() == [1.0, 1.0]


UNKNOWN = (None, None, None, 4)


@pytest.mark.parametrize(
    ("make", "input_shape", "expected"),
    [
        (lambda: layers.PReLU(), UNKNOWN, UNKNOWN),
        (lambda: layers.BatchNormalization(1), UNKNOWN, UNKNOWN),
        (lambda: layers.GroupNormalization(2), UNKNOWN, UNKNOWN),
        (lambda: layers.RMSNormalization(1), UNKNOWN, UNKNOWN),
        (lambda: layers.AveragePooling2D(2), UNKNOWN, UNKNOWN),
        (lambda: layers.Reshape((3, 5)), (2, None), (2, 3, 5)),
        (lambda: layers.ConvLSTM1D(2, 3), UNKNOWN, (None, None, 2)),
        (lambda: layers.LSTM(2, stateful=True), (None, None, 4), (None, 2)),
        (
            lambda: layers.Bidirectional(layers.GRU(2, return_state=True)),
            (None, None, 4),
            ((None, 4), (None, 2), (None, 2)),
        ),
        (
            lambda: layers.MaxPooling2D(2, (3, 1), "same"),
            (None, 7, 8, 4),
            (None, 3, 8, 4),
        ),
    ],
)
def test_output_shapes_with_unknown_extents(make, input_shape, expected):
    assert make().compute_output_shape(input_shape) == expected


def test_float16_group_normalization_does_not_overflow():
    layer = layers.GroupNormalization(2, dtype="mixed_float16")
    y = layer(ops.full((2, 4, 8), 70000.0))
    assert y.dtype == "float16" and np.isfinite(y.numpy()).all()


def test_arguments_of_input_that_contradict_its_tensor():
    tensor = toolkit.KerasTensor((2, 3))
    for arguments in (
        {"shape": (4,)},
        {"batch_shape": (2, 4)},
        {"batch_size": 5},
        {"dtype": "float16"},
        {"sparse": True},
    ):
        with pytest.raises(ArgumentError, match="incompatible"):
            layers.InputLayer(**arguments, input_tensor=tensor)
    assert layers.InputLayer((3,), 2, "float32", False, input_tensor=tensor).built


def test_configs_have_defaults_filled_in():
    assert layers.MaxPooling1D(2).get_config()["strides"] == (2,)
    assert layers.Dense(2).get_config()["activation"] == "linear"
    assert layers.ZeroPadding3D((1, 2, 3)).get_config()["padding"] == (
        *((1, 1), (2, 2)),
        (3, 3),
    )
    assert layers.Cropping1D(1).get_config()["cropping"] == (1, 1)


def test_policy_map_of_one_path():
    layer = layers.Dense(2, dtype=toolkit.dtype_policies.DTypePolicyMap())
    layer.build((None, 1))
    for policy in ("mixed_bfloat16", "float16"):
        layer.dtype_policy = policy
        assert layer.compute_dtype == policy.removeprefix("mixed_")
        assert layer.dtype_policy[layer.path].name == policy


def test_attention_subclass_without_causal_mask():
    class Plain(layers.MultiHeadAttention):
        def _compute_attention(
            self, query, key, value, attention_mask=None, *remaining
        ):
            assert attention_mask is not None
            return super()._compute_attention(
                query, key, value, attention_mask, *remaining
            )

    x = ops.cast(np.random.default_rng(0).normal(size=(2, 5, 8)), "float32")
    layer, subclassed = layers.MultiHeadAttention(2, 4), Plain(2, 4)
    expected = layer(x, x, use_causal_mask=True)
    subclassed.build(x.shape, x.shape)
    subclassed.set_weights(layer.get_weights())
    y = subclassed(x, x, use_causal_mask=True)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_products_and_extremes_ignore_masked_values():
    mask = ops.convert_to_tensor([[True, False, False]])
    other_mask = ops.convert_to_tensor([[True, True, False]])
    x = ops.convert_to_tensor([[[2.0], [3.0], [4.0]]])
    y = ops.convert_to_tensor([[[5.0], [1.0], [7.0]]])
    x._keras_mask, y._keras_mask = mask, other_mask
    assert layers.Multiply()([x, y])[0, :, 0].tolist() == [10.0, 1.0, 0.0]
    assert layers.Maximum()([x, y])[0, :, 0].tolist() == [5.0, 1.0, 4.0]
    assert layers.Minimum()([x, y])[0, :, 0].tolist() == [2.0, 1.0, 4.0]
    assert layers.Add()([x, y])[0, :, 0].tolist() == [7.0, 4.0, 11.0]


def test_float32_inputs_of_a_float16_layer_normalization():
    layer = layers.LayerNormalization(dtype="mixed_float16")
    y = layer(ops.convert_to_tensor([[1e5, -1e5]]))
    assert y.dtype == "float16" and np.isfinite(y.numpy()).all()


def test_lambda_is_restored_from_its_config():
    layer = layers.Lambda(lambda x: x**2, name="squared")
    with pytest.warns(UserWarning, match="lambda"):
        config = layer.get_config()
    twin = layers.Lambda.from_config(config, {"squared": layer.function})
    assert twin(3.0 * ones(1)).tolist() == [9.0]
    for safe_mode in (None, True, False):
        with pytest.raises(ArgumentError, match="lambda"):
            layers.Lambda.from_config(config, safe_mode=safe_mode)


def test_extents_are_integers():
    for size in (2.5, (2.0, 1), "12"):
        with pytest.raises(ArgumentError, match="size should be a positive integer"):
            layers.UpSampling2D(size)
    with pytest.raises(ArgumentError, match="argument `value_dim`"):
        layers.MultiHeadAttention(2, 4, value_dim=0)
    assert layers.Rescaling(2.0)([1, 2]).tolist() == [2.0, 4.0]


def test_old_argument_names_are_accepted_with_a_warning():
    with pytest.warns(DeprecationWarning, match="LeakyReLU: `alpha`.*`negative_slope`"):
        layer = layers.LeakyReLU(alpha=0.2)
    assert layer.negative_slope == 0.2
    assert layer.get_config() == layers.LeakyReLU(0.2, name=layer.name).get_config()
    with pytest.warns(
        DeprecationWarning, match="Embedding: `input_length`.*leave it out"
    ):
        layer = layers.Embedding(3, 2, input_length=4)
    assert "input_length" not in layer.get_config()
    assert type(layer).from_config(layer.get_config()).input_dim == 3


def test_inconsistent_input_shapes_are_refused():
    with pytest.raises(ArgumentError, match="Dense: .*`input_dim` or `input_shape`"):
        layers.Dense(2, input_dim=3, input_shape=(5,))


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: layers.Dense(2, "relu"), (4, 3)),
        (lambda: layers.EinsumDense("ab,bc->ac", 2, activation="relu"), (4, 3)),
        (lambda: layers.Conv1D(2, 2, activation="relu"), (4, 5, 3)),
        (lambda: layers.Conv2DTranspose(2, 2, activation="relu"), (4, 5, 5, 3)),
        (lambda: layers.DepthwiseConv2D(2, activation="relu"), (4, 5, 5, 3)),
        (lambda: layers.SeparableConv1D(2, 2, activation="relu"), (4, 5, 3)),
        (lambda: layers.Activation("relu"), (4, 3)),
        (lambda: layers.SimpleRNN(2, activation="relu"), (4, 5, 3)),
    ],
)
def test_activation_none_is_linear(make, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    layer = make()
    before = layer(x)
    (layer.cell if hasattr(layer, "cell") else layer).activation = None
    without = np.asarray(layer(x))
    assert without.min() < 0 <= np.asarray(before).min()
    linear = make()
    linear(x)
    linear.set_weights(layer.get_weights())
    inner = linear.cell if hasattr(linear, "cell") else linear
    inner.activation = toolkit.activations.linear
    assert_close(without, linear(x))


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda cls: cls(2, 3, padding="causal", dilation_rate=2), (2, 9, 3)),
        (lambda cls: cls(2, 3, strides=2, padding="same"), (2, 9, 9, 4)),
        (lambda cls: cls(2, 2, data_format="channels_first"), (2, 4, 5, 5, 5)),
    ],
)
def test_convolution_with_a_custom_kernel(make, shape):
    base = (layers.Conv1D, layers.Conv2D, layers.Conv3D)[len(shape) - 3]

    class Doubled(base):
        def convolution_op(self, inputs, kernel):
            return super().convolution_op(inputs, 2 * kernel)

    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    layer, doubled = make(base), make(Doubled)
    y = layer(x)
    doubled(x)
    doubled.set_weights(layer.get_weights())
    assert_close(doubled(x), 2 * y)
    assert_close(layer.convolution_op(x, layer.kernel), y)
