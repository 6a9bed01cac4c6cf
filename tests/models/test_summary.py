"""Test the table of layers."""

import numpy as np
import pytest

from toolkit import Input, Model, Sequential, layers, ops
from toolkit.errors import ArgumentError


def summary(model, **arguments):
    lines = []
    model.summary(print_fn=lines.append, **arguments)
    (text,) = lines
    return text


def sequential():
    return Sequential(
        [Input((4,)), layers.Dense(3, name="a"), layers.BatchNormalization(name="b")],
        name="net",
    )


def test_sequential_model():
    text = summary(sequential(), line_length=60)
    assert text == (
        'Model: "net"\n'
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓\n"
        "┃ Layer (type)             ┃ Output Shape      ┃   Param # ┃\n"
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━┩\n"
        "│ a (Dense)                │ (None, 3)         │        15 │\n"
        "├──────────────────────────┼───────────────────┼───────────┤\n"
        "│ b (BatchNormalization)   │ (None, 3)         │        12 │\n"
        "└──────────────────────────┴───────────────────┴───────────┘\n"
        " Total params: 27 (108.00 B)\n"
        " Trainable params: 21 (84.00 B)\n"
        " Non-trainable params: 6 (24.00 B)"
    )


def test_summary_prints_by_default(capsys):
    sequential().summary()
    assert "Total params: 27" in capsys.readouterr().out


def test_optimizer_params_are_counted():
    model = sequential()
    model.compile("adam", "mse")
    model.fit(np.zeros((2, 4)), np.zeros((2, 3)), verbose=0)
    text = summary(model)
    assert " Optimizer params: 44 (176.00 B)" in text
    assert " Total params: 71 (284.00 B)" in text


def branching():
    a = Input((4,), name="in")
    inner = Sequential([Input((4,)), layers.Dense(3, name="deep")], name="inner")
    x = layers.Add(name="add")([inner(a), layers.Dense(3, name="wide")(a)])
    return Model(a, x, name="branching")


def test_connections_of_a_graph():
    text = summary(branching())
    assert "Connected to" in text
    assert "inner[0][0]," in text
    assert "in[0][0]" in text
    assert "deep" not in text


def test_expand_nested_and_show_trainable():
    model = branching()
    model.get_layer("wide").trainable = False
    text = summary(model, expand_nested=True, show_trainable=True, line_length=120)
    rows = {line.split()[1]: line for line in text.splitlines() if " (" in line[:30]}
    assert "   └ deep (Dense)" in text
    assert rows["wide"].split("│")[-2].strip() == "N"
    assert rows["in"].split("│")[-2].strip() == "-"
    assert rows["inner"].split("│")[-2].strip() == "Y"


def test_layer_range():
    model = Sequential(
        [Input((4,)), *(layers.Dense(2, name=f"d{i}") for i in range(5))]
    )
    text = summary(model, layer_range=["d1", "d3"])
    assert [f"d{i} " in text for i in range(5)] == [False, True, True, True, False]
    with pytest.raises(ArgumentError, match="layer_range"):
        summary(model, layer_range=["x", "d1"])


def test_width_and_positions():
    model = sequential()
    for line in summary(model, line_length=70).splitlines()[1:-3]:
        assert len(line) == 70
    text = summary(model, positions=[30, 60, 90])
    assert len(text.splitlines()[1]) == 90
    with pytest.raises(ArgumentError, match="too short"):
        summary(model, line_length=20)
    with pytest.raises(ArgumentError, match="3 positions"):
        summary(model, positions=[0.5, 1.0])


def test_long_names_are_wrapped():
    name = "a_layer_with_a_name_that_is_much_too_long_for_one_line"
    model = Sequential([Input((4,)), layers.Dense(2, name=name)])
    assert "too_long" not in summary(model, line_length=200).replace(name, "")
    assert name not in summary(model, line_length=60)


def test_unbuilt_models_and_models_without_a_graph():
    assert "0 (unbuilt)" in summary(Sequential([layers.Dense(2)]))

    class Net(Model):
        def __init__(self):
            super().__init__(name="net")
            self.head = layers.Dense(2, name="head")

        def call(self, x):
            return self.head(x)

    model = Net()
    model(np.zeros((1, 3), "float32"))
    text = summary(model)
    assert "head (Dense)" in text
    assert " Total params: 8 (32.00 B)" in text


class Parts(Model):
    def __init__(self):
        super().__init__(name="parts")
        self.first = layers.Dense(4, name="first")
        self.attention = layers.MultiHeadAttention(2, 2, output_shape=(5,), name="many")
        self.unused = layers.Dense(1, name="unused")

    def call(self, x):
        x = self.first(x)
        return self.attention(x, x)


def test_shapes_of_layers_without_symbols():
    model = Parts()
    model(np.ones((2, 3, 2), "float32"))
    rows = {
        line.split()[1]: line for line in summary(model).splitlines() if "│" in line
    }
    assert "(2, 3, 4)" in rows["first"] and "(2, 3, 5)" in rows["many"]
    assert "?" in rows["unused"]


def test_ops_have_rows():
    x = Input((4,), name="in")
    text = summary(Model(x, ops.expand_dims(layers.Dense(3)(x), 1)))
    assert "(ExpandDims)" in text and "(None, 1, 3)" in text
