"""Test that charts have no cut or overlapping elements, for any values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.pictures.geometry import check, contrast, texts_of
from toolkit.pictures.blocks import Block, draw_blocks
from toolkit.pictures.curves import Curve, Panel, draw_curves, spread_positions
from toolkit.pictures.scatter import draw_scatter
from toolkit.pictures.shapes import PALETTE, SERIES, Line, Rectangle
from toolkit.pictures.spans import Row, draw_spans

NUMBERS = st.floats(-1e6, 1e6)
VALUES = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, 0.0, 1e-9])
KINDS = {"a": "first", "b": "second"}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=12), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 200),
)
def test_curves_of_any_values(lists, logarithmic, first):
    panels = [
        Panel(
            "panel " * (1 + first % 17),
            [
                Curve("training", range(first, first + len(v)), v, "first"),
                Curve(
                    "validation", range(first, first + len(v)), v[::-1], "second", True
                ),
            ],
        )
        for v in lists
    ]
    check(draw_curves(panels, "curves", logarithmic=logarithmic))


def test_gaps_at_non_finite_values():
    values = [1.0, 2.0, math.nan, 4.0, 5.0]
    picture = draw_curves([Panel("p", [Curve("c", range(5), values, "first")])], "t")
    line = next(s for s in picture.shapes if isinstance(s, Line) and s.width == 2)
    assert [kind for kind, _ in line.commands] == ["M", "L", "M", "L"]
    hints = [s.hint for s in picture.shapes if isinstance(s, Rectangle)]
    assert hints == ["c, 0: 1", "c, 1: 2", "c, 3: 4", "c, 4: 5"]


@given(st.lists(st.floats(0, 100), max_size=8).map(sorted))
def test_labels_do_not_overlap(places):
    moved = spread_positions(places, 12.0)
    pairs = zip(moved, moved[1:], strict=False)
    assert all(b - a >= 12 - 1e-6 for a, b in pairs) and len(moved) == len(places)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.integers(1, 9),
            st.integers(0, 1 << 22),
            st.integers(1, 1 << 22),
            st.sampled_from("ab"),
        ),
        max_size=12,
    )
)
def test_blocks_stay_inside(rows):
    blocks = [
        Block(first, first + steps, low, low + size, kind, "", "hint")
        for first, steps, low, size, kind in rows
    ]
    picture = draw_blocks(blocks, "Arena" * 20, "a remark" * 30, "step", KINDS)
    check(picture)
    rectangles = [s for s in picture.shapes if isinstance(s, Rectangle) and s.hint]
    assert len(rectangles) == len(blocks)
    for shape in rectangles:
        assert 84 <= shape.x + 0.1 and shape.x + shape.width <= 776.1
        assert 74 <= shape.y and shape.y + shape.height <= 392.6


def test_positions_may_be_an_array():
    values = [1.0, 2.0, 3.0, 4.0]
    pictures = [
        draw_curves([Panel("p", [Curve("c", positions, values, "first")])], "t")
        for positions in (np.arange(-3, 1), range(-3, 1))
    ]
    assert pictures[0].svg() == pictures[1].svg()


def test_texts_are_escaped_in_pictures(tmp_path):
    evil = '</title><script>alert("1")</script>\x00'
    panel = Panel(
        evil, [Curve(evil, [1], [0.5], "first"), Curve(evil, [1], [1], "fifth")]
    )
    picture = draw_curves([panel], evil)
    picture.save(tmp_path / "evil.svg")
    text = (tmp_path / "evil.svg").read_text("utf-8")
    assert "<script" not in text and "&lt;script" in text and "\x00" not in text
    assert texts_of(picture)[0].startswith("</title>")
    with pytest.raises(ValueError, match="expected one of 'jpeg', 'jpg'"):
        picture.save(tmp_path / "evil.exe")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.floats(0, 100), st.floats(0, 9)), max_size=20), max_size=5
    ),
    st.sampled_from([1e-7, 1e-3, 1.0]),
)
def test_spans_of_any_times(lists, unit):
    rows = [
        Row("stage " * 3**i, [(a * unit, (a + b) * unit) for a, b in spans])
        for i, spans in enumerate(lists)
    ]
    check(draw_spans(rows, "Data" * 60, "words of a remark " * len(lists) ** 2))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_scatter_of_any_values(points):
    picture = draw_scatter(*zip(*points, strict=True), "true", "predicted", "both")
    check(picture)
    dots = [s for s in picture.shapes if isinstance(s, Rectangle)]
    assert len(dots) == len(points)


def test_indistinguishable_spans_are_merged():
    spans = [(i * 1e-6, i * 1e-6 + 1e-7) for i in range(5000)] + [(1.0, 2.0)]
    picture = draw_spans([Row("map", spans)], "Data")
    hints = [s.hint for s in picture.shapes if isinstance(s, Rectangle)]
    assert len(hints) < 10 and hints[-1] == "map: 1 s"
    assert sum(int(hint.split(" ")[1]) for hint in hints[:-1]) == 5000


def test_labels_of_blocks_are_on_opaque_colours():
    blocks = [Block(0, 9, 0, 9000, kind, f"block {kind}", "") for kind in KINDS]
    shapes = draw_blocks(blocks, "title", "remark", "step", KINDS).shapes
    labels = [i for i, s in enumerate(shapes) if getattr(s, "color", "") == "paper"]
    assert len(labels) == 2 and all(shapes[i - 1].opacity == 1 for i in labels)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_enough_contrast(dark):
    def color(role):
        return PALETTE[role][dark]

    for role in ("ink", "muted", *SERIES):
        assert contrast(color(role), color("paper")) >= 4.5, role
    for role in ("input", "weights", "plain", "model", "bad"):
        assert contrast(color("title"), color(role)) >= 4.5, role
