"""Test pictures of models: their content, and that no elements overlap."""

import random
import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.errors import ArgumentError
from toolkit.models.plotting.graph import Show, read_model
from toolkit.pictures.boxes import Box, Cell, Cluster
from toolkit.pictures.diagram import draw
from toolkit.pictures.routes import SPLINES
from toolkit.pictures.shapes import Line, Rectangle
from toolkit.utils import model_to_dot, plot_model

DIRECTIONS = ["BT", "LR", "RL", "TB"]
EVERYTHING = {
    "show_shapes": True,
    "show_dtype": True,
    "show_layer_names": True,
    "show_layer_activations": True,
    "show_trainable": True,
}


def chain():
    return toolkit.Sequential(
        [
            toolkit.Input((4,), name="x"),
            layers.Dense(3, activation="relu", name="first", trainable=False),
            layers.Dense(2, name="second"),
        ],
        name="chain",
    )


def siamese():
    """Return a model with a shared inner model that has an inner model."""
    inner = toolkit.Input((2,), name="inner_input")
    skip = layers.Add(name="skip")([inner, layers.Dense(2, name="dense")(inner)])
    outputs = layers.Dense(1, name="deep")(skip)
    block = toolkit.Model(inner, [outputs, skip], name="block")
    encoder = toolkit.Sequential([chain(), layers.ReLU(name="relu")], name="encoder")
    a, b = toolkit.Input((4,), name="a"), toolkit.Input((4,), name="b")
    difference = layers.Subtract(name="difference")([encoder(a), encoder(b)])
    first, second = block(difference)
    merged = layers.Concatenate(name="both")([first, second])
    return toolkit.Model([a, b], merged * 2.0, name="siamese")


def random_cluster(rng, depth=0):
    """Return nested clusters with edges between any boxes, also cycles."""
    cluster = Cluster(f"cluster{depth}")
    for i in range(rng.randint(1, 7)):
        if depth < 2 and rng.random() < 0.3:
            cluster.children.append(random_cluster(rng, depth + 1))
        else:
            cells = [Cell("Output shape", "x" * rng.randint(1, 40))]
            rows = [cells] * rng.randint(0, 2)
            cluster.children.append(Box(f"box{i}", "Dense", "plain", rows))
    return cluster


def boxes_in(cluster):
    for child in cluster.children:
        yield from [child] if isinstance(child, Box) else boxes_in(child)


def polyline(line):
    """Return the points of a line; evaluate its curves."""
    (_, [at]), *remaining = line.commands
    yield at
    for _, points in remaining:
        for t in np.linspace(0, 1, 9)[1:]:
            control = np.array([at, *points])
            while len(control) > 1:  # De Casteljau's algorithm
                control = control[:-1] * (1 - t) + control[1:] * t
            yield tuple(control[0])
        at = points[-1]


def overlap(a, b):
    return (
        min(a.x + a.width, b.x + b.width) - max(a.x, b.x) > 0.1
        and min(a.y + a.height, b.y + b.height) - max(a.y, b.y) > 0.1
    )


def contains(box, point):
    x, y = point
    return (
        box.x + 0.6 < x < box.x + box.width - 0.6
        and box.y + 0.6 < y < box.y + box.height - 0.6
    )


@pytest.mark.parametrize("splines", SPLINES)
@pytest.mark.parametrize("rankdir", DIRECTIONS)
def test_no_elements_overlap(splines, rankdir):
    for seed in range(6):
        rng = random.Random(seed)
        cluster = random_cluster(rng)
        boxes = list(boxes_in(cluster))
        for _ in range(rng.randint(0, 2 * len(boxes))):
            cluster.edges[rng.choice(boxes), rng.choice(boxes)] = None
        picture = draw(cluster, rankdir, splines)
        rectangles = [s for s in picture.shapes if isinstance(s, Rectangle)]
        outer = [s for s in rectangles if s.radius == 4]
        frames = [s for s in rectangles if s.dashed]
        assert len(outer) == len(boxes)
        assert not [pair for pair in combinations(outer, 2) if overlap(*pair)]
        for box in rectangles:
            assert 0 <= box.x and box.x + box.width <= picture.width
            assert 0 <= box.y and box.y + box.height <= picture.height
        for a, b in combinations(frames, 2):  # disjoint, or nested
            assert not overlap(a, b) or inside(a, b) or inside(b, a)
        lines = [s for s in picture.shapes if isinstance(s, Line)]
        assert sum(line.arrow for line in lines) >= len({b for _, b in cluster.edges})
        for line in lines:
            points = list(polyline(line))
            assert not any(contains(box, p) for box in outer for p in points)
            assert all(-0.1 <= x <= picture.width + 0.1 for x, _ in points)


def inside(a, b):
    return (
        a.x >= b.x
        and a.y >= b.y
        and a.x + a.width <= b.x + b.width
        and a.y + a.height <= b.y + b.height
    )


def texts(path):
    root = ElementTree.parse(path).getroot()
    return [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]


def test_content_of_a_box(tmp_path):
    model = chain()
    plot_model(model, tmp_path / "plain.svg")
    assert texts(tmp_path / "plain.svg") == ["Dense", "Dense"]
    plot_model(model, tmp_path / "all.svg", **EVERYTHING)
    first = ["first", "(Dense)", "Activation:", "relu", "Input shape:", "(None, 4)"]
    first += ["Output shape:", "(None, 3)", "Output dtype:", "float32", "Non-trainable"]
    labels = texts(tmp_path / "all.svg")
    assert labels[: len(first)] == first and labels[-1] == "Trainable"


def test_many_inputs_make_no_huge_box(tmp_path):
    inputs = [toolkit.Input((3,)) for _ in range(30)]
    model = toolkit.Model(inputs, layers.Concatenate(name="all")(inputs))
    plot_model(model, tmp_path / "many.svg", show_shapes=True)
    longest = max(texts(tmp_path / "many.svg"), key=len)
    assert len(longest) == 101 and longest.endswith("\N{HORIZONTAL ELLIPSIS}")


def test_nested_models(tmp_path):
    model = siamese()
    plot_model(model, tmp_path / "closed.svg", show_layer_names=True)
    closed = texts(tmp_path / "closed.svg")
    assert "encoder" in closed and "(Sequential)" in closed and "deep" not in closed
    plot_model(model, tmp_path / "open.svg", show_layer_names=True, expand_nested=True)
    expanded_texts = texts(tmp_path / "open.svg")
    for name in ("encoder", "chain", "block", "first", "relu", "deep", "difference"):
        assert expanded_texts.count(name) == 1, name
    assert "(Sequential)" not in expanded_texts and "(Multiply)" in expanded_texts


def test_range_of_layers(tmp_path):
    plot_model(
        siamese(),
        tmp_path / "part.svg",
        show_layer_names=True,
        layer_range=["difference", "bo.*"],
    )
    labels = texts(tmp_path / "part.svg")
    assert labels == ["difference", "(Subtract)", "block", "(Functional)", "both"] + [
        "(Concatenate)"
    ]


def test_names_are_escaped(tmp_path):
    name = '"<script>alert(1)</script>&]]>\x00'
    model = toolkit.Sequential([layers.Dense(1, name="x")], name="net")
    model.build((None, 2))
    model.layers[0].name = name
    model.name = name
    plot_model(model, tmp_path / "model.svg", show_layer_names=True)
    text = (tmp_path / "model.svg").read_text("utf-8")
    assert "<script" not in text and texts(tmp_path / "model.svg")[0] == (
        '"<script>alert(1)</script>&]]>\N{REPLACEMENT CHARACTER}'
    )
    dot = model_to_dot(model).to_string()
    assert dot.startswith(r'digraph "\"<script>')
    assert "<b>&quot;&lt;script&gt;alert" in dot and "<b>&quot;<script" not in dot


def test_size_depends_on_dpi():
    picture = draw(Cluster("net", [Box("a", "Dense", "plain", [])]), "TB", "ortho")
    width, double = (
        float(re.search(r'width="([\d.]+)"', picture.svg(dpi))[1]) for dpi in (200, 400)
    )
    assert double == pytest.approx(2 * width, abs=0.2)


def test_dot():
    text = model_to_dot(siamese(), expand_nested=True, show_shapes=True).to_string()
    assert text.startswith('digraph "siamese" {') and text.endswith("}\n")
    assert text.count("{") == text.count("}") == 4
    names = dict(re.findall(r"(box\d+) \[label=.*?<b>(\w+)</b>", text))
    edges = {tuple(names[n] for n in e) for e in re.findall(r"(\w+) -> (\w+)", text)}
    assert {("a", "first"), ("b", "first"), ("relu", "difference")} <= edges
    assert {("difference", "inner_input"), ("skip", "both"), ("deep", "both")} <= edges
    subgraph = model_to_dot(chain(), subgraph=True).to_string()
    assert subgraph.startswith("subgraph cluster") and "box0 -> box1" in subgraph
    assert str(model_to_dot(chain(), splines="curved")).count('splines="curved"') == 1


class Own(toolkit.Model):
    def call(self, x):
        return x


def test_subclassed_model_is_one_box(tmp_path):
    model = Own(name="own")
    with pytest.raises(ArgumentError, match="has not yet been built"):
        plot_model(model, tmp_path / "own.svg")
    model(np.ones((1, 2)))
    plot_model(model, tmp_path / "own.dot", show_shapes=True)
    assert "?" in (tmp_path / "own.dot").read_text()
    plot_model(model, tmp_path / "own.svg", expand_nested=True)
    assert texts(tmp_path / "own.svg") == ["Own"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"rankdir": "DOWN"}, "rankdir: expected one of 'BT', 'LR', 'RL', 'TB'"),
        ({"splines": "wavy"}, "splines: expected one of"),
        ({"dpi": 0}, "dpi > 0"),
        ({"layer_range": ["a", "b"]}, "plot_model: expected layer_range to be two"),
        ({"to_file": "model.bmp"}, "expected one of"),
        ({"colour": "red"}, "Unrecognized keyword arguments"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    path = tmp_path / arguments.pop("to_file", "model.svg")
    with pytest.raises(ArgumentError, match=message):
        plot_model(chain(), path, **arguments)
    assert not list(tmp_path.iterdir())


def test_formats_of_matplotlib(tmp_path):
    try:
        plot_model(siamese(), tmp_path / "model.png", expand_nested=True, dpi=72)
    except ImportError as error:
        assert "needs Matplotlib" in str(error) and "model.svg" in str(error)
    else:
        start = (tmp_path / "model.png").read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n"


# --- repeated blocks ------------------------------------------------------------------


def residual(x, units=8, name=None):
    y = layers.Dense(units)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    return layers.Add()([x, layers.Dense(units)(y)])


def residual_network(blocks, make=residual):
    x = inputs = toolkit.Input((8,))
    for _ in range(blocks):
        x = make(x)
    return toolkit.Model(inputs, layers.Dense(1)(x))


def folded(model, **options):
    """Return the frames, and the kinds of boxes, of a picture with folded blocks."""
    dot = model_to_dot(model, show_layer_names=False, expand_blocks=False, **options)
    text = dot.to_string()
    kinds = re.findall(r'color="white"><b>(\w+)</b>', text)
    return re.findall(r'label="(\d+ times)"', text), kinds, text


def test_repeated_blocks_are_drawn_once():
    frames, kinds, text = folded(residual_network(9))
    assert frames == ["9 times"]
    assert kinds == ["InputLayer", "Dense", "Dense", "Add", "Dense"]
    assert "<b>BatchNormalization</b>" in text and "<b>ReLU</b>" in text
    edges = re.findall(r"box(\d) -> box(\d)", text)
    pairs = {(0, 1), (0, 3), (1, 2), (2, 3), (3, 4)}
    assert {tuple(map(int, edge)) for edge in edges} == pairs


def test_rows_of_joined_boxes_do_not_repeat_shapes():
    *_, text = folded(residual_network(9), show_shapes=True)
    block = text[text.index("9 times") :]
    assert block.count("Output shape") == 4  # of Dense, Dense, Add, and the last Dense
    x = toolkit.Input((4,))
    y = layers.Dense(3)(x)
    reader = toolkit.Model(x, layers.ReLU(dtype="float16")(y))
    *_, text = folded(reader, show_dtype=True, show_shapes=True)
    assert text.count("Output dtype") == 3 and text.count("Output shape") == 2


def test_large_models_are_folded_by_default():
    for blocks, is_folded in ((4, False), (20, True)):
        text = model_to_dot(residual_network(blocks)).to_string()
        assert ("times" in text) == is_folded
    text = model_to_dot(residual_network(20), expand_blocks=True).to_string()
    assert "times" not in text and text.count("(Add)") == 20


def widths():
    sizes = iter((8, 8, 8, 4, 4, 4, 4))
    return lambda x: layers.Dense(next(sizes), activation="relu")(x)


def dilations():
    rates = iter((1, 2, 4, 1, 2, 4))
    return lambda x: layers.Conv1D(8, 2, dilation_rate=next(rates), padding="causal")(x)


def test_blocks_with_other_arguments_are_not_equal():
    frames, *_ = folded(residual_network(7, widths()))
    assert frames == ["3 times", "3 times"]
    x = y = toolkit.Input((16, 8))
    make = dilations()
    for _ in range(6):
        y = make(y)
    frames, kinds, _ = folded(toolkit.Model(x, y))
    assert frames == ["2 times"] and kinds.count("Conv1D") == 3


def test_blocks_whose_inner_results_are_used_later_are_not_folded():
    x = inputs = toolkit.Input((8,))
    skips = []
    for _ in range(3):
        x = layers.Dense(8)(x)
        skips.append(x)
        x = layers.Rescaling(0.5)(x)
    for skip in reversed(skips):
        x = layers.Add()([x, skip])
    frames, kinds, _ = folded(toolkit.Model(inputs, x))
    assert kinds.count("Dense") == 3 and kinds.count("Rescaling") == 3


def test_nested_models_are_folded_inside():
    inner = residual_network(4)
    x = toolkit.Input((8,))
    model = toolkit.Model(x, layers.ReLU()(inner(x)))
    frames, kinds, text = folded(model, expand_nested=True)
    assert frames == ["4 times"] and kinds[-1] == "ReLU"


def test_picture_of_a_residual_network_is_short():
    model = toolkit.applications.ResNet50(weights=None, input_shape=(64, 64, 3))
    content = read_model(model, Show(), False)
    picture = draw(content, "TB", "ortho")
    full = draw(read_model(model, Show(), False, expand_blocks=True), "TB", "ortho")
    assert picture.height < 0.4 * full.height
