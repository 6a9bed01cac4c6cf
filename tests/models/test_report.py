"""Test that `model.report()` is a complete, correct and readable page."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import toolkit
from tests.pictures.browser import look_at, needs_chromium
from tests.pictures.geometry import contrast, mix
from toolkit import layers, ops
from toolkit.data import Dataset
from toolkit.errors import ArgumentError
from toolkit.models.report.classes import confusion, confusion_section
from toolkit.models.report.costs import layer_costs
from toolkit.pictures.page import tag
from toolkit.pictures.shapes import PALETTE

RNG = np.random.default_rng(0)
X = RNG.random((90, 6), "float32")
Y = (X[:, 0] * 3).astype("int64")
NAMES = ["low", "middle", "high <b>"]


def classifier(name="tells_classes"):
    toolkit.utils.set_random_seed(3)
    inputs = toolkit.Input((6,))
    x = layers.Dense(8, activation="relu", name="hidden")(inputs)
    x = layers.Dropout(0.1, name="dropout")(x)
    x = layers.Concatenate(name="both")([x, layers.Dense(4, name="beside")(inputs)])
    outputs = layers.Dense(3, activation="softmax", name="scores")(x)
    model = toolkit.Model(inputs, outputs, name=name)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def report_page(tmp_path_factory):
    """Return a trained classifier and the text of its report."""
    model = classifier()
    model.fit(X, Y, epochs=8, validation_split=0.2, verbose=0)
    path = tmp_path_factory.mktemp("report") / "report.html"
    model.report(path, (X, Y), NAMES)
    return model, path.read_text("utf-8")


class Outline(HTMLParser):
    """The elements of a page; raises if they are not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name != "meta":
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_page_is_complete_and_self_contained(report_page):
    _, text = report_page
    page = Outline(text)
    names = [name for name, _ in page.elements]
    assert (
        names.count("h1")
        == names.count("main")
        == names.count("title") - names.count("svg") - text.count("</title></rect>")
    )
    assert "script" not in names and "link" not in names and "img" not in names
    addresses = set(re.findall(r"\w+://[^\s\"<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|src=", text)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    links = [a["href"] for name, a in page.elements if name == "a"]
    assert len(ids) == len(set(ids)) and links == [f"#{i}" for i in ids]
    assert next(a for name, a in page.elements if name == "html")["lang"] == "en"
    for name, attributes in page.elements:
        if name == "th":
            assert attributes["scope"] in ("row", "col")
        if name == "table":
            assert attributes["aria-label"]
        if name == "svg":
            assert attributes["role"] == "img"


def test_numbers_equal_the_model(report_page):
    model, text = report_page
    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", text))
    accuracy = (model.predict(X, verbose=0).argmax(1) == Y).mean()
    assert facts["Accuracy"] == f"{accuracy:.1%}"
    assert facts["Parameters"] == f"{model.count_params():,}" and facts["Epochs"] == "8"
    loss = model.evaluate(X, Y, batch_size=32, verbose=0)[0]
    assert float(facts["Loss"]) == pytest.approx(loss, rel=1e-3)
    for layer in model.layers:
        assert layer.name in text
    assert "high &lt;b&gt;" in text and "<b>" not in text
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (Y, model.predict(X, verbose=0).argmax(1)), 1)
    cells = re.findall(r'<td class="(?:right|wrong|none)[^>]*>([\d,]+)</td>', text)
    assert list(map(int, cells)) == counts.ravel().tolist()


@needs_chromium
def test_page_is_readable_at_every_width(report_page):
    measurements, console = look_at(report_page[1], (360, 768, 1280))
    assert console == []
    for width, page in measurements.items():
        assert page["width"] <= int(width), width
        assert page["cut"] == [] and page["loaded"] == []
        assert len(page["pictures"]) == 4
        assert all(w >= 200 and h >= 150 for w, h in page["pictures"])
        assert page["paper"] == "rgb(255, 255, 255)"
        assert page["headings"][:2] == ["tells_classes", "Architecture"]


@needs_chromium
def test_page_is_readable_in_dark_mode(report_page):
    measurements, console = look_at(report_page[1], (390,), dark=True)
    assert console == []
    paper, ink = (
        [int(channel) for channel in re.findall(r"\d+", measurements["390"][color])]
        for color in ("paper", "ink")
    )
    assert max(paper) < 40 and min(ink) > 220


# --- costs ----------------------------------------------------------------------------


class Twice(toolkit.Model):
    """A subclassed model with a layer that is called twice."""

    def __init__(self):
        super().__init__(name="twice")
        self.first = layers.Dense(6, name="first")
        self.norm = layers.BatchNormalization(name="norm")
        self.last = layers.Dense(1, name="last")

    def call(self, x, training=False):
        x = self.norm(self.first(ops.tanh(self.first(x))), training=training)
        return self.last(x)


def test_costs_of_each_layer():
    model = Twice()
    costs = {cost.name: cost for cost in layer_costs(model, ops.ones((5, 6)))}
    assert list(costs) == ["first", "norm", "last"]
    assert [cost.calls for cost in costs.values()] == [2, 1, 1]
    assert costs["first"].weights == 4 * (6 * 6 + 6) and costs["first"].outputs == 120
    assert all(cost.seconds > 0 for cost in costs.values())
    assert costs["first"].total == 2 * costs["first"].seconds
    assert "call" not in vars(model.first)


def test_measurement_changes_no_state():
    model = classifier()
    before = [w.numpy() for w in model.weights]
    layer_costs(model, ops.convert_to_tensor(X[:8]))
    assert all(
        (w.numpy() == b).all() for w, b in zip(model.weights, before, strict=True)
    )


# --- kinds of models and data ---------------------------------------------------------


def report(model, tmp_path, *arguments, **options):
    model.report(tmp_path / "report.html", *arguments, **options)
    text = (tmp_path / "report.html").read_text("utf-8")
    Outline(text)
    return text


def test_inputs_and_outputs_with_names(tmp_path):
    inputs = {"a": toolkit.Input((6,), name="a"), "b": toolkit.Input((2,), name="b")}
    merged = layers.Concatenate(name="both")([inputs["a"], inputs["b"]])
    outputs = {
        "p": layers.Dense(3, activation="softmax", name="p")(merged),
        "q": layers.Dense(1, name="q")(merged * 2.0),
    }
    model = toolkit.Model(inputs, outputs)
    model.compile("adam", {"p": "sparse_categorical_crossentropy", "q": "mse"})
    x = {"a": X, "b": X[:, :2]}
    text = report(model, tmp_path, (x, {"p": Y, "q": X[:, :1]}))
    assert 'id="evaluation"' in text and 'id="classes"' not in text
    assert "Multiply" in text and text.count(">both<") >= 2
    assert 'id="costs"' in report(model, tmp_path)


def test_report_without_data(tmp_path):
    text = report(classifier(), tmp_path)
    assert 'id="costs"' in text and 'id="classes"' not in text
    assert 'id="training"' not in text
    kernels = text[text.index('id="compiler"') :]
    assert re.search(r"\d: hidden", kernels) and "matmul" in kernels
    shares = re.findall(r">(\d+)%<", kernels)
    assert all(int(share) <= 100 for share in shares)
    assert 'id="costs"' not in report(classifier(), tmp_path, measure=False)


def test_data_set_is_read_once(tmp_path):
    produced = []

    def batches():
        for start in range(0, 90, 30):
            produced.append(start)
            yield X[start : start + 30], Y[start : start + 30]

    text = report(classifier(), tmp_path, batches(), measure=False)
    assert produced == [0, 30, 60] and "of 90 samples" in text
    pairs = Dataset.from_tensor_slices((X, Y)).batch(16)
    assert "of 90 samples" in report(classifier(), tmp_path, pairs, measure=False)
    with pytest.raises(ArgumentError, match="expected finite data"):
        report(classifier(), tmp_path, pairs.repeat())


def test_subclassed_regression(tmp_path):
    model = Twice()
    model.compile("adam", "mse")
    model.fit(X, X[:, :1], epochs=2, verbose=0)
    text = report(model, tmp_path, (X, X[:, :1]))
    assert 'id="classes"' not in text and 'id="evaluation"' in text
    assert "first" in text and 'id="compiler"' in text
    assert 'id="training"' in text and "validation lines" not in text
    errors = model.predict(X, verbose=0) - X[:, :1]
    match = re.search(r"Mean absolute error</th><td[^>]*>([^<]*)<", text)
    assert float(match[1]) == pytest.approx(np.abs(errors).mean(), rel=1e-3)


@pytest.mark.slow
@needs_chromium
def test_large_model_is_readable(tmp_path):
    hidden = [layers.Dense(4, name=f"layer_{i}") for i in range(45)]
    model = toolkit.Sequential([toolkit.Input((6,)), *hidden, layers.Dense(50)])
    model.compile("sgd", toolkit.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = [f"a rather long name of class {i}" for i in range(50)]
    text = report(model, tmp_path, (X, Y), names)
    assert "Layers: all 46 rows" in text and "The 12 slowest of 46 layers" in text
    assert 'class="matrix"' not in text and "Each class: all 50 rows" in text
    measurements, console = look_at(text, (360, 1280))
    assert console == [] and all(page["cut"] == [] for page in measurements.values())
    assert all(page["width"] <= int(width) for width, page in measurements.items())


def test_model_that_runs_eagerly(tmp_path):
    model = classifier()
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
    text = report(model, tmp_path, (X, Y))
    assert 'id="classes"' in text and 'id="compiler"' not in text


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"filepath": "report.pdf"}, "a path ending in .html"),
        ({"class_names": ["a", "b"], "data": (X, Y)}, "expected 3 class_names"),
        ({"class_names": NAMES}, "class_names needs data"),
    ],
)
def test_refusals(arguments, message, tmp_path):
    path = tmp_path / arguments.pop("filepath", "report.html")
    with pytest.raises(ArgumentError, match=message):
        classifier().report(path, **arguments)
    assert not path.exists()


def test_model_without_weights_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="has no weights yet"):
        toolkit.Sequential([layers.Dense(1)]).report(tmp_path / "report.html")


# --- classes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y_true, y_pred, expected",
    [
        ([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [[1, 0], [1, 1]]),
        ([[0], [1], [1]], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [[1, 0], [1, 1]]),
        ([[1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]]),
        ([0, 1, 1], [[0.1], [0.8], [0.4]], [[1, 0], [1, 1]]),
        ([0, 1, 1], [[-3.0], [0.4], [-0.1]], [[1, 0], [1, 1]]),
        ([0.5, 1, 1], [[0.1], [0.8], [0.4]], None),
        ([0, 5], [[0.9, 0.1], [0.2, 0.8]], None),
        ([[0.5, 0.5], [0, 1]], [[0.9, 0.1], [0.2, 0.8]], None),
        ([0, 1], [[[0.1]], [[0.8]]], None),
    ],
)
def test_confusion(y_true, y_pred, expected):
    counts = confusion(np.array(y_true), np.array(y_pred, "float32"), None)
    assert (None if counts is None else counts.counts.tolist()) == expected


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_of_a_confusion_matrix_are_readable(dark):
    """Each share of a class has enough contrast, as its number and its colour."""
    y_true = np.repeat(np.arange(20), 40)
    y_pred = np.where(np.arange(800) % 40 < 2 * y_true, y_true, (y_true + 1) % 20)
    section = confusion_section(confusion(y_true, np.eye(20)[y_pred], None))
    cell = re.compile(r'class="(right|wrong)( strong)?" style="--fill:([\d.]+)"')
    cells = cell.findall(section)
    assert len(cells) == 39 and len({fill for _, _, fill in cells}) == 20
    paper, ink = PALETTE["paper"][dark], PALETTE["ink"][dark]
    for kind, strong, fill in cells:
        hue = PALETTE["first" if kind == "right" else "second"][dark]
        color = mix(hue, paper, float(fill))
        assert contrast(paper if strong else ink, color) >= 4.5, (kind, fill)


def test_texts_are_escaped():
    evil = '"><script>alert(1)</script>'
    written = tag("p", evil, tag("b", evil), title=evil, data_x=None)
    assert "<script" not in written and written.startswith("<p title=")
    assert written.count("<b>") == 1
