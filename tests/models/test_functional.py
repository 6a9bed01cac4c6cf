"""Test functional models: topologies, inputs, masks, configs, errors."""

import json
import re
import warnings
from collections import OrderedDict

import numpy as np
import pytest

import toolkit
from toolkit import Input, KerasTensor, Model, layers, ops
from toolkit.errors import ArgumentError, NotBuiltError, ShapeError


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def dense(x, layer):
    kernel, bias = layer.get_weights()
    return x @ kernel + bias


def test_chain_of_layers():
    inputs = Input((4,))
    first, second = layers.Dense(3), layers.Dense(2)
    model = Model(inputs, second(first(inputs)))
    (x,) = arrays((5, 4))
    expected = dense(dense(x, first), second)
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    assert model.input_shape == (None, 4)
    assert model.output_shape == (None, 2)
    assert [layer.name for layer in model.layers][1:] == [first.name, second.name]
    assert model.count_params() == 4 * 3 + 3 + 3 * 2 + 2
    assert [v.path for v in model.weights] == [v.path for v in model.variables]


def test_several_inputs_and_outputs_in_lists():
    a, b = Input((3,)), Input((3,))
    total = layers.Add()([a, b])
    product = layers.Multiply()([a, b])
    model = Model([a, b], [total, product])
    x, y = arrays((2, 3), (2, 3))
    outputs = model([x, y])
    assert isinstance(outputs, list)
    np.testing.assert_allclose(outputs[0], x + y, rtol=1e-6)
    np.testing.assert_allclose(outputs[1], x * y, rtol=1e-6)
    assert model.output_shape == [(None, 3), (None, 3)]


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize("names", [("left", "right"), ("second", "first")])
def test_dict_inputs_are_matched_by_name(container, names):
    a, b = (Input((3,), name=name) for name in names)
    model = Model(container([a, b]), layers.Subtract()([a, b]))
    x, y = arrays((2, 3), (2, 3))
    for argument in ([x, y], (x, y), {names[1]: y, names[0]: x, "more": x}):
        np.testing.assert_allclose(model(argument), x - y, rtol=1e-6)


def test_dict_structures():
    inputs = {"b": Input((3,), name="b"), "a": Input((3,), name="a")}
    outputs = {"sum": inputs["a"] + inputs["b"], "first": inputs["a"] * 2.0}
    model = Model(inputs, outputs)
    x, y = arrays((2, 3), (2, 3))
    results = model({"a": x, "b": y})
    assert list(results) == ["sum", "first"]
    np.testing.assert_allclose(results["sum"], x + y, rtol=1e-6)
    np.testing.assert_allclose(results["first"], 2 * x, rtol=1e-6)
    with pytest.raises(ArgumentError, match="structure"):
        model([x, y])  # the order of a and b is undefined


def test_nested_structures():
    a, b, c = Input((2,)), Input((2,)), Input((2,), name="rest")
    model = Model({"pair": [a, b], "rest": c}, (a + b, [b + c]))
    x, y, z = arrays((2, 2), (2, 2), (2, 2))
    outputs = model({"pair": [x, y], "rest": z})
    np.testing.assert_allclose(outputs[0], x + y, rtol=1e-6)
    np.testing.assert_allclose(outputs[1][0], y + z, rtol=1e-6)


def test_shared_layers_share_weights():
    shared = layers.Dense(3)
    a, b = Input((3,)), Input((3,))
    model = Model([a, b], shared(shared(a)) + shared(b))
    assert len(model.weights) == 2
    x, y = arrays((2, 3), (2, 3))
    expected = dense(dense(x, shared), shared) + dense(y, shared)
    np.testing.assert_allclose(model([x, y]), expected, rtol=1e-5)


def test_models_inside_models():
    inner_input = Input((4,))
    inner = Model(inner_input, layers.Dense(3)(inner_input), name="inner")
    outer_input = Input((4,))
    model = Model(outer_input, layers.Dense(2)(inner(outer_input)))
    (x,) = arrays((5, 4))
    expected = dense(dense(x, inner.layers[1]), model.layers[-1])
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    assert model.get_layer("inner") is inner
    assert model.get_layer(index=1) is inner


def test_model_of_intermediate_symbols():
    inputs = Input((4,))
    first, second, third = layers.Dense(3), layers.Dense(5), layers.Dense(2)
    hidden = first(inputs)
    deeper = second(hidden)
    full_model = Model(inputs, third(deeper))
    features = Model(inputs, deeper)
    head = Model(hidden, third.output)
    x, h = arrays((2, 4), (2, 3))
    np.testing.assert_allclose(features(x), dense(dense(x, first), second), rtol=1e-5)
    np.testing.assert_allclose(head(h), dense(dense(h, second), third), rtol=1e-5)
    assert [type(layer).__name__ for layer in head.layers] == [
        "InputLayer",
        "Dense",
        "Dense",
    ]
    np.testing.assert_allclose(full_model(x), head(first(x)), rtol=1e-5)


def test_layer_keeps_its_first_output_after_other_calls():
    model = toolkit.Sequential()
    model.add(Input((4,)))
    for _ in range(3):  # each time, all layers are called on symbols again
        model.add(layers.Dense(3))
    second = Model(model.input, model.layers[1].output)
    (x,) = arrays((2, 4))
    expected = dense(dense(x, model.layers[0]), model.layers[1])
    np.testing.assert_allclose(second(x), expected, rtol=1e-5)
    with pytest.raises(NotBuiltError, match="call the operation with symbols first"):
        layers.Dense(3).output  # noqa: B018


def test_ops_and_constants_become_part_of_the_model():
    inputs = Input((3,))
    offset = np.array([1.0, 2.0, 3.0], "float32")
    outputs = ops.mean(ops.maximum(inputs - offset, 0.0), axis=-1, keepdims=True)
    model = Model(inputs, ops.concatenate([outputs, inputs], axis=-1))
    (x,) = arrays((4, 3))
    expected = np.maximum(x - offset, 0).mean(-1, keepdims=True)
    np.testing.assert_allclose(model(x)[:, :1], expected, rtol=1e-6)
    assert model.output_shape == (None, 4)


def test_order_of_layers_is_by_depth():
    a = Input((4,), name="in")
    long = layers.Dense(4, name="l2")(layers.Dense(4, name="l1")(a))
    short = layers.Dense(4, name="s1")(a)
    model = Model(a, layers.Add(name="end")([short, long]))
    assert [layer.name for layer in model.layers] == ["in", "l1", "s1", "l2", "end"]


def test_deep_model_needs_no_recursion():
    inputs = x = Input((2,))
    for _ in range(1500):
        x = ops.negative(x)
    model = Model(inputs, x)
    np.testing.assert_array_equal(model(np.ones((1, 2), "float32")), np.ones((1, 2)))


def test_training_is_forwarded_to_inner_layers():
    inputs = Input((1000,))
    model = Model(inputs, layers.Dropout(0.5, seed=1)(inputs))
    x = np.ones((1, 1000), "float32")
    assert (model(x, training=True).numpy() == 0).any()
    np.testing.assert_array_equal(model(x, training=False), x)
    np.testing.assert_array_equal(model(x), x)


def test_masks_propagate_through_the_graph():
    inputs = Input((4,), dtype="int32")
    x = layers.Embedding(5, 3, mask_zero=True)(inputs)
    model = Model(inputs, x)
    outputs = model(np.array([[1, 2, 0, 0]]))
    assert outputs._keras_mask.numpy().tolist() == [[True, True, False, False]]


def test_inputs_are_cast_and_their_rank_adjusted():
    inputs = Input((1,))
    model = Model(inputs, inputs * 2.0)
    outputs = model(np.array([1, 2, 3]))
    assert outputs.shape == (3, 1)
    assert outputs.dtype == "float32"
    flat = Input(())
    model = Model(flat, flat + 1.0)
    assert model(np.zeros((3, 1), "float32")).shape == (3,)


def test_optional_inputs():
    a, b = Input((2,)), Input((2,), optional=True)

    class Sum(layers.Layer):
        def call(self, x, y=None):
            return x if y is None else x + y

    model = Model([a, b], Sum()(a, b))
    (x,) = arrays((3, 2))
    np.testing.assert_array_equal(model([x, None]), x)
    np.testing.assert_allclose(model([x, x]), 2 * x)
    with pytest.raises(ArgumentError, match="not optional"):
        model([None, x])


def test_subclass_with_a_custom_step_becomes_functional():
    class Custom(Model):
        def train_step(self, data):
            return {"seen": ops.convert_to_tensor(1.0)}

    inputs = Input((3,))
    model = Custom(inputs, layers.Dense(2)(inputs))
    assert type(model) is Custom
    assert model.output_shape == (None, 2)
    model.compile("sgd", "mse")
    history = model.fit(np.zeros((4, 3)), np.zeros((4, 2)), verbose=0)
    assert history.history == {"seen": [1.0]}


def test_symbolic_call_with_another_shape():
    inputs = Input((None, 3))
    model = Model(inputs, layers.Dense(2)(inputs))
    assert model(KerasTensor((8, 5, 3))).shape == (8, 5, 2)
    assert model.compute_output_shape((7, 4, 3)) == (7, 4, 2)


# --- configuration --------------------------------------------------------------------


def branching():
    a, b = Input((4,), name="a"), Input((4,), name="b")
    shared = layers.Dense(4, name="shared")
    x = layers.Concatenate(name="join")([shared(a), shared(b)])
    outputs = {
        "one": layers.Dense(2, name="d1")(x),
        "two": layers.Dense(1, name="d2")(x),
    }
    return Model({"a": a, "b": b}, outputs, name="branching")


def test_config_round_trip():
    model = branching()
    restored = Model.from_config(model.get_config())
    restored.set_weights(model.get_weights())
    assert restored.name == "branching"
    assert [x.name for x in restored.layers] == [x.name for x in model.layers]
    x, y = arrays((3, 4), (3, 4))
    actual, expected = restored({"a": x, "b": y}), model({"a": x, "b": y})
    for key in expected:
        np.testing.assert_array_equal(actual[key], expected[key])
    assert restored.get_config() == model.get_config()


def test_config_format():
    config = branching().get_config()
    assert config["input_layers"] == {"a": ["a", 0, 0], "b": ["b", 0, 0]}
    assert config["output_layers"] == {"one": ["d1", 0, 0], "two": ["d2", 0, 0]}
    by_name = {layer["name"]: layer for layer in config["layers"]}
    calls = by_name["shared"]["inbound_nodes"]
    assert [c["args"][0]["config"]["keras_history"] for c in calls] == [
        ["a", 0, 0],
        ["b", 0, 0],
    ]
    (call,) = by_name["join"]["inbound_nodes"]
    assert [tensor["class_name"] for tensor in call["args"][0]] == [
        "__keras_tensor__"
    ] * 2
    assert by_name["join"]["class_name"] == "Concatenate"


def test_config_of_a_model_in_a_model_with_a_shared_layer():
    shared = layers.Dense(3, name="shared")
    first = Input((3,), name="first")
    Model(first, shared(first))  # a call that is not in the inner model
    inner_in = Input((3,), name="inner_in")
    inner = Model(inner_in, shared(inner_in), name="inner")
    outer = Input((3,), name="outer")
    model = Model(outer, inner(inner(outer)), name="model")
    restored = Model.from_config(model.get_config())
    restored.set_weights(model.get_weights())
    (x,) = arrays((2, 3))
    np.testing.assert_array_equal(restored(x), model(x))


def test_from_config_keeps_frozen_layers():
    inputs = Input((3,))
    frozen, free = layers.Dense(3, name="frozen"), layers.Dense(1, name="free")
    model = Model(inputs, free(frozen(inputs)))
    frozen.trainable = False
    restored = Model.from_config(model.get_config())
    assert not restored.get_layer("frozen").trainable
    assert [v.path for v in restored.trainable_weights] == ["free/kernel", "free/bias"]
    model.trainable = False
    assert Model.from_config(model.get_config()).trainable_weights == []


def test_config_of_ops_and_constants():
    inputs = Input((3,), name="in")
    x = ops.relu(inputs) + 1.0
    x = ops.concatenate([x[:, [2, 0, 1]], inputs[:, None, -1]], axis=-1)
    model = Model(inputs, ops.mean(x * np.arange(4.0), axis=-1, keepdims=True))
    config = json.loads(json.dumps(model.get_config()))
    names = [layer["class_name"] for layer in config["layers"]]
    assert sorted(names) == sorted(
        ["InputLayer", "Relu", "Add", "Concatenate", "Multiply", "Mean"]
        + ["GetItem"] * 2
    )
    restored = Model.from_config(config)
    (z,) = arrays((2, 3))
    np.testing.assert_array_equal(restored(z), model(z))
    for name in ("NoSuchOp", "_Private", "Tensor"):
        config["layers"][1]["class_name"] = name
        with pytest.raises(ArgumentError, match="unknown op"):
            Model.from_config(config)


# --- errors ---------------------------------------------------------------------------


def test_disconnected_outputs_are_named():
    a, b = Input((2,), name="a"), Input((2,), name="b")
    both = layers.Add(name="both")([a, b])
    with pytest.raises(ArgumentError, match="Output .* is not .*'both' needs .*name=b"):
        Model(a, both)
    with pytest.raises(ArgumentError, match="does not depend on the inputs"):
        Model(a, b)
    with pytest.raises(ArgumentError, match="path `sum` is not connected"):
        Model(a, {"copy": a * 1.0, "sum": both})


def test_model_needs_symbols():
    a = Input((2,))
    with pytest.raises(ArgumentError, match="All `inputs` values must be KerasTensors"):
        Model(np.zeros(2), a)
    with pytest.raises(
        ArgumentError, match="All `outputs` values must be KerasTensors"
    ):
        Model(a, "output")
    with pytest.raises(ArgumentError, match="at least one"):
        Model([], a)


def test_layers_with_the_same_name():
    a = Input((2,))
    x = layers.Dense(2, name="twin")(layers.Dense(2, name="twin")(a))
    with pytest.raises(ArgumentError, match="'twin'"):
        Model(a, x)


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 3), (3,)])
def test_wrong_shape_names_the_input(shape):
    a = Input((3,), name="pixels")
    model = Model(a, layers.Dense(2)(a), name="net")
    with pytest.raises(ShapeError, match=r"'pixels'.*\(None, 3\), found"):
        model(np.zeros(shape, "float32"))


def test_wrong_number_of_inputs_and_missing_keys():
    a, b = Input((3,), name="a"), Input((3,), name="b")
    model = Model([a, b], a + b)
    with pytest.raises(ArgumentError, match=r"\['a', 'b'\]"):
        model([np.zeros((1, 3))])
    with pytest.raises(ArgumentError, match=r"\['a', 'b'\]"):
        model({"a": np.zeros((1, 3))})


def test_unknown_layer():
    model = toolkit.Sequential([Input((2,)), layers.Dense(1, name="only")])
    with pytest.raises(ArgumentError, match="'only'.*received 'other'"):
        model.get_layer("other")
    with pytest.raises(ArgumentError, match="index"):
        model.get_layer(index=3)
    with pytest.raises(AttributeError, match="layers"):
        model.layers = []


def test_key_that_is_not_the_name_of_its_input_warns():
    a = Input((2,), name="a")
    with pytest.warns(UserWarning, match="'key'.*'a'"):
        Model({"key": a}, a * 1.0)


def test_inputs_in_another_structure_warn():
    a, b = Input((2,), name="a"), Input((2,), name="b")
    x = np.ones((1, 2), "float32")
    model = Model({"a": a, "b": b}, a + b)
    words = "structure of `inputs` doesn't match"
    for argument in ([x, x], {"a": x, "b": x, "more": x}):
        with pytest.warns(UserWarning, match=words):
            np.testing.assert_array_equal(model(argument), x + x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model({"a": x, "b": x})
        Model([a, b], a + b)((x, x))
        Model([a, b], a + b)({"a": x, "b": x})


def test_required_input_of_none():
    x = Input((3,), name="x")
    model = Model(x, layers.Dense(1)(x))
    model.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="'x' is not optional"):
        model.fit([None], np.ones((4, 1)), verbose=0)


def test_json_identifies_shared_objects_by_numbers():
    def text():
        policy = toolkit.DTypePolicy("mixed_bfloat16")
        x = Input((3,), name="x")
        y = layers.Dense(4, dtype=policy, name="a")(x)
        return Model(x, layers.Dense(5, dtype=policy, name="b")(y), name="m").to_json()

    assert text() == text()
    assert re.findall(r'"shared_object_id": (\d+)', text()) == ["1", "1"]


def test_json_round_trip():
    x = Input((3,), batch_size=2)
    model = Model([[x]], layers.Dense(4)(layers.Dense(5)(x)))
    text = model.to_json()
    assert toolkit.models.model_from_json(text).to_json() == text


def test_layers_share_a_policy_after_loading():
    policy = toolkit.DTypePolicy("float32")
    x = Input((3,), batch_size=2)
    model = Model(x, layers.Dense(4, dtype=policy)(layers.Dense(5, dtype=policy)(x)))
    text = model.to_json()
    loaded = toolkit.models.model_from_json(text)
    assert loaded.layers[1].dtype_policy is loaded.layers[2].dtype_policy
    assert loaded.to_json() == text


def test_input_specs_describe_the_inputs():
    a, b = Input((2,), name="a"), Input((3,), name="b", optional=True)
    model = Model({"b": b, "a": a}, layers.Concatenate()([a, b]))
    assert [spec.name for spec in model.input_spec] == ["a", "b"]
    assert [spec.shape for spec in model.input_spec] == [(None, 2), (None, 3)]
    assert [spec.optional for spec in model.input_spec] == [False, True]
    model.input_spec = layers.InputSpec(ndim=2)
    assert model.input_spec.ndim == 2


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda model: model.export("folder"), NotImplementedError),
        (lambda model: model.quantize("int8"), NotImplementedError),
        (lambda model: model.quantize("int7"), ValueError),
    ],
)
def test_unsupported_attributes(call, error):
    a = Input((2,))
    with pytest.raises(error):
        call(Model(a, a * 2.0))


def test_appends_after_a_call_have_no_effect():
    x = Input((4,))
    values = [x, layers.Dense(4)(x)]
    for _ in range(3):
        values.append(layers.Add()(values))
    model = Model(x, values[-1])
    assert [len(layer.input) for layer in model.layers[2:]] == [2, 3, 4]


def test_ordered_dict_of_inputs_and_outputs():
    x = OrderedDict(b=Input((2,), name="b"), a=Input((3,), name="a"))
    dense = {"b": layers.Dense(2), "a": layers.Dense(3)}
    model = Model(x, OrderedDict((key, dense[key](x[key])) for key in x))
    shapes = {"a": (4, 3), "b": (4, 2)}
    assert dict(model.compute_output_shape(shapes)) == shapes
    data = {key: np.ones(shape, "float32") for key, shape in shapes.items()}
    targets = {key: np.zeros_like(value) for key, value in data.items()}
    model.compile("sgd", "mse", metrics={"a": ["mae"], "b": ["mse"]})
    logs = model.evaluate(data, targets, verbose=0, return_dict=True)
    predictions = model.predict(data, verbose=0)
    assert {key: value.shape for key, value in predictions.items()} == shapes
    for key, name in (("a", "mae"), ("b", "mse")):
        names = [log for log in logs if log.startswith(key) and log.endswith(name)]
        power = 1 if name == "mae" else 2
        expected = np.mean(np.abs(predictions[key]) ** power)
        np.testing.assert_allclose(logs[names[0]], expected, rtol=1e-5)


def changing(change):
    """Return a model of two outputs, and apply `change` to its returned lists."""
    x = toolkit.Input((3,), name="x")

    class Pair(layers.Layer):
        def call(self, x):
            return [x + 1.0, x * 2.0]

    pair = Pair()
    results = pair(x)
    expected = list(results)
    outputs = [layers.Dense(2)(expected[0]), *expected]
    inputs = [x]
    inner = Model(inputs, outputs)
    lists = [results, outputs, inputs, inner.inputs, inner.outputs, inner.output]
    for value in [*lists, inner.input, pair.output]:
        change(value)
    other_outputs = inner([toolkit.Input((3,))])
    change(other_outputs)
    return inner, Model(x, expected)


@pytest.mark.parametrize(
    "change",
    [
        list.clear,
        list.pop,
        lambda given: given.append(None),
        lambda given: given.__setitem__(-1, layers.Dense(4)(given[-1])),
    ],
    ids=["clear", "pop", "append", "replace"],
)
def test_returned_lists_of_a_model_are_copies(change):
    inner, model = changing(change)
    X = np.ones((2, 3), "float32")
    assert [y.tolist() for y in model(X)] == [(X + 1).tolist(), (X * 2).tolist()]
    assert [y.shape for y in inner(X)] == [(2, 2), (2, 3), (2, 3)]
    assert inner.output_shape == [(None, 2), (None, 3), (None, 3)]
    copy = toolkit.models.clone_model(inner)
    assert [y.shape for y in copy(X)] == [(2, 2), (2, 3), (2, 3)]


def test_symbols_with_less_known_shapes_than_the_inputs():
    x = toolkit.Input((5, 4))
    model = toolkit.Model(x, toolkit.layers.Dense(2)(x))
    open_, narrow = toolkit.Input((None, None)), toolkit.Input((None, 3))
    outer = toolkit.Model(open_, model(open_))
    assert outer.output_shape == (None, 5, 2)
    assert outer(np.ones((1, 5, 4))).shape == (1, 5, 2)
    four = toolkit.Input(batch_shape=(4, 3))
    fixed = toolkit.Model(four, toolkit.layers.Dense(2)(four))
    assert fixed(toolkit.Input((3,))).shape == (None, 2)
    for call in (lambda: model(narrow), lambda: outer(np.ones((1, 4, 4)))):
        with pytest.raises(ShapeError, match=r"expected shape=\(None, 5, 4\)"):
            call()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Model(x),
        lambda x: Model(inputs=x),
        lambda x: Model(outputs=x),
    ],
)
def test_model_without_inputs_or_outputs_is_refused(make):
    with pytest.raises(ArgumentError, match=r"Model\(inputs, outputs\)"):
        make(Input((2,)))
