"""Test the order of layers and weights with masks, as in Keras.

Weights are exchanged with Keras by their position. Each order here comes from Keras 3,
where the operations that compute a mask are nodes of the graph.
"""

import numpy as np
import pytest

from toolkit import Function, Input, Model, Sequential, layers, models, ops


def two_inputs():
    """Return indices with a mask after an Embedding, and a sequence without a mask."""
    indices, second_input = (
        Input((4,), dtype="int32", name="indices"),
        Input((4, 3), name="b"),
    )
    x = layers.Embedding(5, 3, mask_zero=True, name="embedding")(indices)
    return indices, second_input, x


def two_sequences():
    return Input((4, 3), name="a"), Input((4, 3), name="b")


def dense(x, *names):
    for name in names:
        x = layers.Dense(3, name=name)(x)
    return x


def lstm(name="lstm", **arguments):
    return layers.LSTM(3, name=name, **arguments)


class Marked(layers.Layer):
    """A layer whose mask takes longer to compute than its output."""

    def call(self, inputs):
        return inputs * 1.0

    def compute_mask(self, inputs, mask=None):
        return ops.any(ops.not_equal(ops.abs(ops.square(inputs)), 0.0), axis=-1)


def mask_of_an_embedding():
    indices, second_input, x = two_inputs()
    return Model([second_input, indices], [dense(second_input, "d", "d2"), lstm()(x)])


def mask_of_masking():
    a, b = two_sequences()
    x = lstm()(layers.Masking(name="masking")(a))
    return Model([b, a], [dense(b, "d", "d2", "d3"), x])


def masks_joined():
    indices, second_input, x = two_inputs()
    a = Input((4, 3), name="a")
    x = layers.Add(name="add")([x, Marked(name="marked")(second_input)])
    return Model([indices, second_input, a], [dense(a, *"cdefg"), lstm()(x)])


def masks_concatenated():
    indices, second_input, x = two_inputs()
    x = layers.Concatenate(axis=1, name="joined")([x, second_input])
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return Model([second_input, indices], [dense(second_input, *"cdefg"), x])


def mask_of_a_query():
    a, b = two_sequences()
    x = layers.MultiHeadAttention(1, 2, name="attention")(Marked(name="marked")(a), b)
    return Model([b, a], [dense(b, *"cdefg"), lstm()(x)])


def mask_after_attention():
    indices, second_input, x = two_inputs()
    x = layers.MultiHeadAttention(1, 2, name="attention")(x, second_input)
    x = layers.GlobalAveragePooling1D(name="pool")(layers.Masking(name="masking")(x))
    return Model(
        [indices, second_input],
        [dense(x, "top"), dense(second_input, "c", "d", "e", "f")],
    )


def mask_through_layers():
    a, b = two_sequences()
    x = Marked(name="marked")(a)
    x = layers.Identity(name="same")(layers.Dropout(0.5, name="dropout")(x))
    x = layers.TimeDistributed(layers.Dense(3), name="each")(x)
    return Model([a, b], [dense(b, *"cdefg"), lstm()(x)])


def arguments_by_name_leave_the_mask_out():
    a, b = two_sequences()
    x = layers.Masking(name="masking")(a)
    return Model([b, a], [dense(b, "d", "d2", "d3"), lstm()(x, training=False)])


def another_dtype_leaves_the_mask_out():
    a, b = two_sequences()
    x = lstm(dtype="float64")(layers.Masking(name="masking")(a))
    return Model([b, a], [dense(b, "d", "d2", "d3"), x])


def a_cast_before_the_mask():
    a, b = two_sequences()
    x = lstm(dtype="float64")(layers.Masking(name="masking", dtype="float64")(a))
    return Model([b, a], [dense(b, "d", "d2", "d3", "d4"), x])


def mask_that_a_user_passes():
    indices, second_input, x = two_inputs()
    mask = ops.not_equal(indices, 0)
    return Model(
        [second_input, indices],
        [dense(x, "e"), lstm()(dense(second_input, "d"), mask=mask)],
    )


def no_mask_past_a_model():
    a, b = two_sequences()
    x = Marked(name="marked")(a)
    x = Sequential([Input((4, 3)), layers.Dense(3)], name="inner")(x)
    return Model([b, a], [dense(b, *"cdefg"), lstm()(x)])


def a_model_takes_the_mask():
    a, b = two_sequences()
    inner = Input((4, 3))
    inner = Model(inner, layers.Dense(3)(inner), name="inner")
    x = inner(layers.Masking(name="masking")(a))
    return Model([b, a], [dense(b, "d", "d2"), x])


def no_mask_past_an_op():
    a, b = two_sequences()
    x = ops.reshape(Marked(name="marked")(a), (-1, 4, 3))
    return Model([b, a], [dense(b, *"cdefg"), lstm()(x)])


def subgraph():
    a, b = two_sequences()
    hidden = layers.Dense(3, name="hidden")(a)
    x = lstm()(layers.Masking(name="masking")(hidden))
    return Model([hidden, b], [dense(b, "d", "d2"), x])


def clone():
    return models.clone_model(mask_of_masking())


def function():
    a, b = two_sequences()
    x = lstm()(layers.Masking(name="masking")(a))
    return Function([b, a], [dense(b, "d", "d2", "d3"), x])


class MaskOfTheSecond(layers.Layer):
    def call(self, inputs):
        return inputs[0] * 1.0

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs[1], 0)


def mask_of_a_users_layer():
    indices, second_input, _ = two_inputs()
    x = MaskOfTheSecond(name="second")([dense(second_input, "d"), indices])
    return Model([second_input, indices], lstm()(x))


class Around(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.inner = layers.Dense(3)

    def call(self, inputs):
        return self.inner(inputs)


def mask_through_a_users_layer():
    a, b = two_sequences()
    x = lstm()(Around(name="around")(Marked(name="marked")(a)))
    return Model([b, a], [dense(b, "d", "d2", "d3", "d4"), x])


ORDERS = {
    mask_of_an_embedding: "b indices d embedding d2 lstm",
    mask_of_masking: "b a d d2 masking d3 lstm",
    masks_joined: "b a c d indices e embedding marked f add g lstm",
    masks_concatenated: "indices b embedding c d e f joined g pool",
    mask_of_a_query: "b a c d e marked f attention g lstm",
    mask_after_attention: "indices embedding b attention c masking d pool e top f",
    mask_through_layers: "a b c marked d dropout e same f each g lstm",
    arguments_by_name_leave_the_mask_out: "b d a d2 masking d3 lstm",
    another_dtype_leaves_the_mask_out: "b d a d2 masking d3 lstm",
    a_cast_before_the_mask: "b a d d2 d3 masking d4 lstm",
    mask_that_a_user_passes: "indices b embedding d e lstm",
    no_mask_past_a_model: "a b c d e marked f inner g lstm",
    a_model_takes_the_mask: "a b d masking d2 inner",
    no_mask_past_an_op: "b c d a e marked f g lstm",
    subgraph: "keras_tensor b d masking d2 lstm",
    clone: "b a d d2 masking d3 lstm",
    function: "b a d d2 masking d3 lstm",
    mask_of_a_users_layer: "b d indices second lstm",
    mask_through_a_users_layer: "a b d d2 marked d3 around d4 lstm",
}


@pytest.mark.parametrize("make", ORDERS, ids=lambda make: make.__name__)
def test_order_where_masks_are_passed(make):
    model = make()
    names = [x.name for x in model.operations if isinstance(x, layers.Layer)]
    # The name of an input inside a graph has a number: keras_tensor_7CLONE.
    names = ["keras_tensor" if "CLONE" in name else name for name in names]
    assert names == ORDERS[make].split()


def test_mask_computations_are_omitted():
    model = masks_concatenated()
    assert model.operations == model.layers
    written = model.get_config()["layers"]
    assert [x["config"]["name"] for x in written] == [x.name for x in model.layers]
    names = [layer.name for layer in Model.from_config(model.get_config()).layers]
    assert names == ORDERS[masks_concatenated].split()


def test_weights_follow_the_order_of_layers():
    model = masks_concatenated()
    shapes = [w.shape for layer in model.layers for w in layer.get_weights()]
    assert [w.shape for w in model.get_weights()] == shapes
    assert shapes[0] == (5, 3)  # the Embedding is the first layer with weights


def test_subgraph_takes_its_own_masks():
    model = subgraph()
    x = np.ones((1, 4, 3), "float32")
    x[:, 2:] = 0.0
    short = model.get_layer("lstm")(x[:, :2])
    np.testing.assert_allclose(model([x, x])[1], short, rtol=1e-6)
