"""Test Sequential: building, adding, popping, configs, errors."""

import warnings

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, layers
from toolkit.errors import ArgumentError, NotBuiltError, ShapeError
from toolkit.models import clone_model


def test_model_with_an_input_is_built_incrementally():
    model = Sequential()
    model.add(Input((4,)))
    model.add(layers.Dense(3))
    assert model.built
    assert len(model.weights) == 2
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    assert len(model.weights) == 4
    assert model(np.zeros((5, 4), "float32")).shape == (5, 2)


def test_model_without_an_input_is_built_on_the_first_call():
    model = Sequential([layers.Dense(3), layers.Dense(2)])
    assert not model.built
    assert model.weights == []
    with pytest.raises(NotBuiltError, match="no output_shape yet"):
        model.output_shape  # noqa: B018
    assert not hasattr(model, "output")
    assert model(np.zeros((5, 4), "float32")).shape == (5, 2)
    assert model.built
    assert [v.shape for v in model.weights] == [(4, 3), (3,), (3, 2), (2,)]
    assert model(np.zeros((7, 4), "float32")).shape == (7, 2)


def test_explicit_build():
    model = Sequential([layers.Dense(3)])
    model.build((None, 4))
    assert model.input_shape == (None, 4)
    assert model.output_shape == (None, 3)


def test_paths_and_order_of_weights():
    model = Sequential([Input((4,)), layers.Dense(3, name="a")], name="net")
    assert [v.path for v in model.weights] == ["net/a/kernel", "net/a/bias"]


def test_layers_exclude_the_input():
    first = layers.Dense(3)
    model = Sequential([Input((4,)), first])
    assert model.layers == [first]
    with pytest.raises(AttributeError):
        model.layers = []


def test_pop():
    first, second = layers.Dense(3), layers.Dense(2)
    model = Sequential([Input((4,)), first, second])
    assert model.pop() is second
    assert model.output_shape == (None, 3)
    assert model.pop() is first
    assert model.layers == []
    with pytest.raises(ArgumentError, match="no layer to pop"):
        model.pop()


def test_inside_another_model():
    inner = Sequential([layers.Dense(3)])
    model = Sequential([Input((4,)), inner, layers.Dense(2)])
    assert len(model.weights) == 4
    inputs = Input((4,))
    outer = Model(inputs, model(inputs))
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(outer(x), model(x))


def test_first_layer_may_be_a_model():
    inputs = Input((4,))
    base = Model(inputs, layers.Dense(3)(inputs))
    model = Sequential([base, layers.Dense(2)])
    assert model.built
    assert model.input_shape == (None, 4)


def test_first_layer_may_have_several_inputs():
    model = Sequential([layers.Add(), layers.Dense(2)])
    x = np.ones((3, 4), "float32")
    assert model([x, x]).shape == (3, 2)
    assert len(model.weights) == 2


def test_training_and_masks_are_forwarded_to_layers():
    model = Sequential([Input((1000,)), layers.Dropout(0.5, seed=1)])
    x = np.ones((1, 1000), "float32")
    assert (model(x, training=True).numpy() == 0).any()
    np.testing.assert_array_equal(model(x), x)
    inputs = Input((None,), dtype="int32")
    model = Sequential([inputs, layers.Embedding(5, 3, mask_zero=True), layers.LSTM(2)])
    tokens = np.array([[1, 2, 0, 0]])
    masked = model(tokens)
    np.testing.assert_allclose(masked, model(tokens[:, :2]), rtol=1e-5)


def test_config_round_trip():
    model = Sequential(
        [Input((4,), name="in"), layers.Dense(3, activation="relu"), layers.Dense(2)],
        name="net",
    )
    config = model.get_config()
    assert config["name"] == "net"
    assert config["build_input_shape"] == (None, 4)
    assert [c["class_name"] for c in config["layers"]] == [
        "InputLayer",
        "Dense",
        "Dense",
    ]
    restored = Sequential.from_config(config)
    restored.set_weights(model.get_weights())
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(restored(x), model(x))


def test_config_of_an_unbuilt_model():
    restored = Sequential.from_config(Sequential([layers.Dense(3)]).get_config())
    assert not restored.built
    assert restored(np.zeros((2, 4), "float32")).shape == (2, 3)


def test_errors():
    model = Sequential([Input((4,)), layers.Dense(2, name="twin")])
    with pytest.raises(ArgumentError, match="expected a layer; received 3"):
        model.add(3)
    with pytest.raises(ArgumentError, match="another layer named 'twin'"):
        model.add(layers.Dense(2, name="twin"))
    with pytest.raises(ArgumentError, match="must be the first layer"):
        model.add(Input((4,)))
    with pytest.raises(ShapeError, match=r"\(None, 4\).*received \(None, 5\)"):
        model.build((None, 5))
    with pytest.raises(ArgumentError, match="no layers to build"):
        Sequential().build((None, 3))
    with pytest.raises(ShapeError, match=r"\(None, 4\)"):
        model(np.zeros((2, 5), "float32"))


def test_messages_call_it_sequential():
    model = Sequential([Input((3,)), layers.Dense(2)], name="net")
    with pytest.raises(ShapeError, match=r"^Sequential 'net': .*\(None, 3\)"):
        model(np.zeros((1, 4), "float32"))


# --- details of Keras -----------------------------------------------------------------


def test_images_of_another_size():
    model = Sequential([layers.Conv2D(2, 3), layers.GlobalAveragePooling2D()])
    small, large = (np.ones((1, n, n + 1, 3), "float32") for n in (6, 9))
    model.predict(small, verbose=0)
    np.testing.assert_allclose(
        model.predict(large, verbose=0), model.predict(small, verbose=0), rtol=1e-5
    )
    with pytest.raises(ShapeError, match="'conv2d"):
        model(np.ones((1, 6, 6, 4), "float32"))


def test_dict_of_inputs():
    class Sum(layers.Layer):
        def call(self, inputs):
            return inputs["a"] + inputs["b"]

    model = Sequential([Sum(), layers.Dense(3)])
    assert model({"a": np.ones((2, 4)), "b": np.ones((2, 4))}).shape == (2, 3)


def test_layers_of_several_arguments_are_refused():
    class Both(layers.Layer):
        def call(self, a, b):
            return a + b

    class Nothing(layers.Layer):
        def call(self):
            return 1

    for layer, message in ((Both(), "Both has a, b"), (Nothing(), "no positional")):
        with pytest.raises(ArgumentError, match=message):
            Sequential([Input((3,)), layer])


@pytest.mark.parametrize("input_shape", [{"input_shape": (4,)}, {"input_dim": 4}])
def test_layer_with_an_input_shape_warns_once_per_class(input_shape):
    class Dense(layers.Dense):  # a new class in each test
        pass

    class Other(Dense):
        pass

    with pytest.warns(UserWarning, match="^Dense: Do not pass an `input_shape`/`inp"):
        first = Dense(3, **input_shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Sequential([first, Dense(2, **input_shape)])
        clone_model(model)
        layers.Embedding(4, 2)
        layers.Embedding(input_dim=4, output_dim=2)
        layers.Dense(2, input_shape=None)
        Dense.from_config(first.get_config())
    assert model.input_shape == (None, 4)
    assert not {"input_shape", "input_dim"} & first.get_config().keys()
    with pytest.warns(UserWarning, match="^Other: Do not pass"):
        Other(2, **input_shape)


def rows_of(count):
    """Return an Embedding whose rows contain their index."""
    numbers = np.arange(count, dtype="float32")[:, None]
    return layers.Embedding(count, 1, weights=[numbers], dtype="float32")


@pytest.fixture
def policy(request):
    toolkit.config.set_dtype_policy(request.param)
    yield
    toolkit.config.set_dtype_policy(None)


NUMBERED = {
    "embedding": lambda: rows_of(2000),
    "encoding": lambda: layers.CategoryEncoding(2000, output_mode="one_hot"),
    "bins": lambda: layers.Discretization([256.5, 258.0, 998.5, 1000.0]),
    "lookup": lambda: layers.IntegerLookup(vocabulary=[257, 999, 1001]),
    "inside": lambda: Sequential([rows_of(2000)]),
}


@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "mixed_float16", "bfloat16"], indirect=True
)
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize("name", NUMBERED)
def test_row_numbers_are_exact(name, dtype, policy):
    """In any dtype of the first layer, eagerly and compiled."""
    x = np.array([[257], [999], [1001]])
    layer = NUMBERED[name]()
    expected = np.asarray(layer(x.astype(dtype)), "float64")
    model = Sequential([layer])
    for outputs in (model(x.astype(dtype)), model.predict(x.astype(dtype), verbose=0)):
        np.testing.assert_array_equal(np.asarray(outputs, "float64"), expected)
    if name == "embedding":
        np.testing.assert_array_equal(expected[..., 0], x)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"], indirect=True)
def test_large_row_numbers_are_exact(policy):
    x = np.array([[2**24 + 1], [2**24 + 3]])
    dtypes = []

    class Rows(layers.Embedding):
        def call(self, inputs):
            dtypes.append(inputs)
            return super().call(inputs * 0)

    model = Sequential([Rows(4, 2)])
    model.build((None, 1))
    dtypes.clear()
    model(x)
    np.testing.assert_array_equal(np.asarray(dtypes[0]), x)


@pytest.mark.parametrize("policy", ["mixed_bfloat16"], indirect=True)
def test_uncast_inputs_keep_their_precision(policy):
    """Normalization subtracts a mean; 16 bits leave few digits of the difference."""
    x = np.float32([[1000.1, 1000.2, 1000.4]])
    layer = layers.LayerNormalization()
    expected = np.asarray(layer(x), "float32")
    for model in (
        Sequential([layer]),
        Sequential([Sequential([layer])]),
    ):
        np.testing.assert_array_equal(np.asarray(model(x), "float32"), expected)


@pytest.mark.parametrize("deferred", [False, True])
def test_layer_may_be_added_twice(deferred, tmp_path):
    dense, activation = layers.Dense(3), layers.ReLU()
    model = Sequential([dense, activation, dense, activation])
    if not deferred:
        model = Sequential([Input((3,)), dense, activation, dense, activation])
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    y = activation(dense(activation(dense(x))))
    np.testing.assert_allclose(model(x), y, rtol=1e-6)
    assert len(model.layers) == 4 and len(model.weights) == 2
    assert model.get_layer(index=2) is dense
    model.compile("sgd", "mse")
    model.fit(x, x, verbose=0)
    y = model.predict(x, verbose=0)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        loaded = toolkit.models.load_model(tmp_path / name)
        assert loaded.layers[0] is loaded.layers[2]
        np.testing.assert_allclose(loaded.predict(x, verbose=0), y, rtol=1e-6)
    restored = Sequential.from_config(model.get_config())
    assert restored.layers[1] is restored.layers[3]
    model.pop()
    assert len(model.layers) == 3


def test_two_layers_of_one_name_are_refused():
    with pytest.raises(ArgumentError, match="another layer named 'a'"):
        Sequential([layers.Dense(3, name="a"), layers.Dense(3, name="a")])


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "train_on_batch"])
def test_built_batch_size_stays_open(method):
    model = Sequential([layers.Dense(2), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    data = toolkit.data.Dataset.from_tensor_slices((x, y)).batch(4)
    if method == "train_on_batch":
        model.train_on_batch(x, y)
    else:
        getattr(model, method)(data, verbose=0)
    assert (model.input_shape, model.output_shape) == ((None, 3), (None, 1))
    assert model.layers[0].output.shape == (None, 2)


def test_layer_that_needs_the_batch_size_receives_it():
    model = Sequential([layers.LSTM(2, stateful=True), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 5, 3), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, batch_size=4, verbose=0)
    assert model.input_shape == (4, 5, 3)
