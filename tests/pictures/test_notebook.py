"""Test the HTML of tensors, models and data sets in notebooks."""

from html.parser import HTMLParser

import numpy as np
import pytest

import toolkit
from tests.pictures.browser import look_at, needs_chromium
from toolkit import layers, ops
from toolkit.data import Dataset
from toolkit.pictures.curves import Curve, Panel, draw_curves
from toolkit.pictures.page import Markup, page


class Texts(HTMLParser):
    """The elements of a piece of HTML, and its text."""

    def __init__(self, text):
        super().__init__()
        self.names, self.open, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def shown(thing):
    texts = Texts(thing._repr_html_())
    assert "script" not in texts.names
    return texts.text


def model(name="net"):
    inputs = toolkit.Input((4,), name="x")
    outputs = layers.Dense(2, name="dense<script>")(inputs)
    return toolkit.Model(inputs, outputs, name=name)


@pytest.mark.parametrize(
    "array, words",
    [
        (np.float32(3.5), ["shape (), float32, 4 B", "3.5"]),
        (
            np.arange(6.0).reshape(2, 3),
            ["(2, 3)", "min 0, mean 2.5, max 5", "[3. 4. 5.]"],
        ),
        (np.array([1.0, np.nan, np.inf]), ["min 1, mean 1, max 1, 2 not finite"]),
        (np.array([True, False]), ["1 of 2 are true"]),
        (np.full((2, 2), np.nan), ["4 not finite"]),
        (np.ones((300, 300), "int8"), ["87.9 KB", "..."]),
        (np.zeros((0, 2)), ["shape (0, 2)", "[]"]),
        (np.array([1 + 2j, 3]), ["complex", "1.+2.j"]),
    ],
)
def test_tensors(array, words):
    text = shown(ops.convert_to_tensor(array))
    assert text.startswith("Tensor") and [w for w in words if w not in text] == []
    assert len(text) < 1500


def test_half_precision_and_variables():
    assert "mean 0.5" in shown(ops.full((4,), 0.5, "bfloat16"))
    variable = toolkit.Variable(np.ones((2,)), trainable=False, name="<i>")
    text = shown(variable)
    assert "Variable <i>" in text and "not trainable" in text


def test_traced_tensors_have_no_values():
    shown_texts = []
    toolkit.function(lambda x: shown_texts.append(shown(x)) or x)(ops.ones((2,)))
    assert shown_texts == ["Tensor float32[2], traced"]


def test_models():
    text = shown(model())
    for word in (
        "net",
        "Functional, total params: 10",
        "(None, 2)",
        "x",
        "dense<script>",
    ):
        assert word in text
    assert "not built yet" in shown(toolkit.Sequential([layers.Dense(1)]))
    deep = toolkit.Sequential(
        [toolkit.Input((1,)), *(layers.ReLU() for _ in range(50))]
    )
    assert '<details open=""' in model()._repr_html_()
    assert "<details>" in deep._repr_html_()


def test_data_sets():
    dataset = Dataset.range(6).map(lambda x: x * 2).batch(4)
    before = shown(dataset)
    assert "range \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} map" in before
    assert "2 elements" in before
    list(dataset)
    assert "stage" in shown(dataset) and "of the time" in shown(dataset)
    assert "without end" in shown(dataset.repeat())


def test_display_of_a_data_set_runs_no_stage():
    def elements():
        raise AssertionError("it was run")
        yield

    assert "of unknown length" in shown(Dataset.from_generator(elements))


@needs_chromium
def test_browser_shows_all_objects():
    history = toolkit.callbacks.History()
    history.set_model(toolkit.Model())
    history.on_epoch_end(0, {"loss": 1.0})
    dataset = Dataset.range(4).batch(2)
    list(dataset)
    things = [
        model(),
        history,
        dataset,
        dataset.plot(),
        ops.ones((3, 50)),
        model().weights[0],
        model().inspect(np.ones((3, 4))).plot(),
        model().inspect(np.ones((3, 4))).plot("graph"),
    ]
    pieces = "".join(thing._repr_html_() for thing in things)
    results, console = look_at(page("notebook", Markup(pieces)), (500,))
    assert console == [] and results["500"]["width"] <= 500
    assert len(results["500"]["pictures"]) == 4


@needs_chromium
@pytest.mark.parametrize("system_is_dark", [False, True])
def test_pictures_have_the_theme_of_the_notebook(system_is_dark):
    """The theme of JupyterLab and VS Code is independent of the system."""
    panel = Panel("loss", [Curve("training", [1, 2], [3.0, 2.0], "first")])
    picture = draw_curves([panel], "loss")._repr_html_()
    light, dark = "rgb(255, 255, 255)", "rgb(21, 25, 31)"
    themes = {
        "data-jp-theme-light=true": light,
        "data-jp-theme-light=false": dark,
        "class=vscode-light": light,
        "class=vscode-dark": dark,
        "": dark if system_is_dark else light,
    }
    fills = {}
    for theme in themes:
        text = f"<!DOCTYPE html><body {theme}>{picture}</body>"
        results, _ = look_at(text, (500,), system_is_dark)
        fills[theme] = results["500"]["fills"][0]
    assert fills == themes


@needs_chromium
def test_names_are_left_aligned_in_jupyterlab():
    rule = ":not(.a).jp-RenderedHTMLCommon :is(td,th,tr){text-align:right}"
    table = model()._repr_html_()
    text = f'<!DOCTYPE html><style>{rule}</style><div class="jp-RenderedHTMLCommon">'
    results, _ = look_at(f"{text}{table}</div>", (500,))
    assert results["500"]["aligned"] == ["left", "left", "right"]
