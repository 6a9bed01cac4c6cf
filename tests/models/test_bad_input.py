"""Test errors of users: each has a separate message with the expected value."""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, layers
from toolkit.errors import ArgumentError, DTypeError, NotCompiledError, ShapeError

X = np.zeros((8, 4), "float32")
Y = np.zeros((8, 2), "float32")


def make_model(loss="mse"):
    model = Sequential([Input((4,)), layers.Dense(2, name="head")], name="net")
    model.compile("sgd", loss)
    return model


@pytest.mark.parametrize(
    "method", ["fit", "evaluate", "train_on_batch", "test_on_batch"]
)
def test_before_compile(method):
    model = Sequential([Input((4,)), layers.Dense(2)])
    with pytest.raises(NotCompiledError, match=f"{method}: .* `compile"):
        getattr(model, method)(X, Y)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"y": Y[:5]}, ShapeError, "fit: .*same number of samples.* x: 8; y: 5"),
        ({"sample_weight": np.ones(3)}, ShapeError, "sample_weight: 3"),
        ({"x": X[:0], "y": Y[:0]}, ArgumentError, "fit: .*at least one sample"),
        ({"x": None}, ArgumentError, "fit: expected data `x`; received None"),
        ({"x": []}, ArgumentError, "received no arrays"),
        ({"x": [1.0, 2.0]}, ArgumentError, "received a list of 2 numbers"),
        ({"x": np.array(["a"] * 8)}, DTypeError, "x: expected numbers"),
        ({"x": np.array([None] * 8)}, DTypeError, "x: expected numbers.*object"),
        ({"y": np.array(["a"] * 8)}, DTypeError, "y: expected numbers"),
        ({"x": "data.csv"}, ArgumentError, "received 'data.csv'"),
        ({"x": 3.0}, ArgumentError, "received 3.0 of type float"),
        ({"x": np.float32(3)}, ShapeError, "received a scalar"),
        ({"batch_size": 0}, ArgumentError, "batch_size >= 1; received 0"),
        ({"epochs": "3"}, ArgumentError, "`epochs` to be an integer; received .3."),
        ({"epochs": 2.0}, ArgumentError, "`epochs` to be an integer; received 2.0"),
        ({"initial_epoch": -1}, ArgumentError, "initial_epoch >= 0; received -1"),
        ({"callbacks": ["EarlyStopping"]}, ArgumentError, "received 'EarlyStopping'"),
        ({"steps_per_epoch": 0}, ArgumentError, "steps >= 1; received 0"),
        ({"verbose": 3}, ArgumentError, "verbose: expected one of .*received 3"),
        ({"validation_split": 1.5}, ArgumentError, "validation_split < 1"),
        ({"validation_split": 0.95}, ArgumentError, "8 samples cannot be split"),
        ({"validation_freq": "2"}, ArgumentError, "validation_freq"),
        ({"validation_freq": 0}, ArgumentError, ">= 1 or a list of epochs; received 0"),
        ({"shuffle": "all"}, ArgumentError, "shuffle: expected one of .*'all'"),
        ({"validation_data": (X, Y, Y, Y)}, ArgumentError, "4 components"),
        ({"validation_data": (X, Y[:3])}, ShapeError, "x: 8; y: 3"),
        (
            {"sample_weight": np.ones(8), "class_weight": {0: 1.0}},
            ArgumentError,
            "or sample_weight; received both",
        ),
        ({"y": None}, ArgumentError, "expected targets `y`; received None"),
        ({"y": None, "class_weight": {0: 1.0}}, ArgumentError, "class_weight.*None"),
    ],
)
def test_arguments_of_fit(arguments, error, message):
    with pytest.raises(error, match=message):
        make_model().fit(**{"x": X, "y": Y, "verbose": 0, **arguments})


@pytest.mark.parametrize(
    "data, arguments, message",
    [
        (iter([(X, Y)]), {"y": Y}, "`y` in the batches"),
        (iter([(X, Y)]), {"validation_split": 0.5}, "supports only arrays"),
        (iter([]), {}, "at least one batch"),
        (iter([(X, Y, Y, Y)]), {}, "4 components"),
    ],
)
def test_arguments_of_fit_with_a_generator(data, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        make_model().fit(data, verbose=0, **arguments)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("shape", [(8, 5), (8, 4, 4), (8,)])
def test_wrong_shape_of_x(shape, run_eagerly):
    model = make_model()
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    with pytest.raises(ShapeError, match=r"input with name .*\(None, 4\)"):
        model.fit(np.zeros(shape), Y, verbose=0)
    with pytest.raises(ShapeError, match=r"\(None, 4\)"):
        model.predict(np.zeros(shape), verbose=0)


def test_layer_inside_a_subclassed_model_is_named():
    class Net(Model):
        def __init__(self):
            super().__init__(name="outer")
            self.inner = layers.Dense(2, name="inner")

        def call(self, x):
            return self.inner(x)

    model = Net()
    model(X)
    with pytest.raises(ShapeError, match="'inner' .*outer/inner"):
        model(np.zeros((8, 5), "float32"))


def test_wrong_rank_of_labels():
    with pytest.raises(ShapeError, match=r"\(8, 3\)"):
        make_model().fit(X, np.zeros((8, 3)), verbose=0)
    sparse = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    with pytest.raises(ShapeError):
        make_model(sparse).fit(X, np.zeros((8, 3, 2), "int32"), verbose=0)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("invalid", [7, -1])
def test_labels_out_of_range_change_nothing(jit_compile, invalid):
    model = make_model()
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=jit_compile)
    before = model.get_weights()
    model.evaluate(X, np.zeros(8), verbose=0)  # its first batch is valid
    labels = np.array([0, 1, 0, 1, 0, 1, 0, invalid])
    low, high = labels.min(), labels.max()
    message = f"train_step: .* a label.* y has values from {low} to {high}"
    with pytest.raises(IndexError, match=message):
        model.fit(X, labels, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(model.optimizer.iterations) == 0


def test_model_without_call():
    class Net(Model):
        pass

    with pytest.raises(NotImplementedError, match="Net does not define `call`"):
        Net()(X)


def test_inspect_without_a_step():
    with pytest.raises(ArgumentError, match="no step has been compiled"):
        make_model().inspect()


def make_named(**dtypes):
    inputs = {name: Input((1,), dtype=d, name=name) for name, d in dtypes.items()}
    numbers = [
        layers.StringLookup(vocabulary=["a"], output_mode="one_hot")(x)
        if x.dtype == "string"
        else x
        for x in inputs.values()
    ]
    joined = layers.Concatenate()(numbers) if len(numbers) > 1 else numbers[0]
    return Model(inputs, layers.Dense(1)(joined))


ONE = np.ones((1, 1), "float32")


@pytest.mark.parametrize(
    "data, message",
    [
        ({"n": np.array([["x"]]), "w": np.array([["a"]])}, "input n: expected numbers"),
        ({"n": ONE, "w": ONE}, "input w: expected strings; received .* float32"),
        ({"n": ONE, "w": np.array([["a"], [None]])[1:]}, "by a text, if the model"),
        ({"n": [20.0], "w": ["a"]}, r"received x\['n'\], a list of 1 numbers; conv"),
        ({"n": ONE, "w": ["a", "b"]}, r"x\['w'\], a list of 2 texts; .*np.array\(x\["),
        ({"n": 20.0, "w": "a"}, r"x\['n'\], 20.0 of type float; use np.array"),
    ],
)
def test_column_of_wrong_data_is_named(data, message):
    with pytest.raises((ArgumentError, DTypeError), match=message):
        make_named(n="float32", w="string").predict(data, verbose=0)


def test_list_of_texts_is_named():
    inputs = Input((), dtype="string")
    model = Model(inputs, layers.StringLookup(vocabulary=["a"])(inputs))
    with pytest.raises(ArgumentError, match="a list of 2 texts; convert it by np.arr"):
        model.predict(["a", "b"], verbose=0)


def test_inputs_of_a_call():
    model = make_named(a="float32", b="float32")
    with pytest.raises(ShapeError, match="name 'a'.*found shape=.*a batch axis"):
        model({"a": 1.0, "b": 2.0})
    with pytest.raises(ArgumentError, match=r"with keys \['a', 'b'\]; received .*'b'"):
        model({"a": ONE})
    model({"a": [1.0], "b": [2.0]})  # no warning: lists of numbers are arrays


def test_warning_has_the_line_of_the_script():
    model = Sequential([Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[lambda y, p: abs(y - p)])
    with pytest.warns(UserWarning, match="are broadcast to") as caught:
        model.fit(X, Y[:, 0], verbose=0)
    assert {warning.filename for warning in caught} == {__file__}
