"""Test layouts of weights in files against functions of NumPy, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit.errors import ArgumentError
from toolkit.models.saving.layouts import Layout
from toolkit.models.saving.name_maps import Source, source_of

# layout, part, shape in the file, the weight as a function of the file's array
GOOD = [
    ("i o -> i o", None, (2, 3), lambda x: x),
    ("o i -> i o", None, (2, 3), lambda x: x.T),
    ("out in -> in out", None, (2, 3), lambda x: x.T),
    ("o i h w -> h w i o", None, (5, 4, 3, 2), lambda x: x.transpose(2, 3, 1, 0)),
    ("o i w->w i o", None, (5, 4, 3), lambda x: x.transpose(2, 1, 0)),
    ("c 1 h w -> h w c 1", None, (5, 1, 3, 2), lambda x: x.transpose(2, 3, 0, 1)),
    (
        *("(c m=2) 1 h w -> h w c m", None, (6, 1, 3, 2)),
        lambda x: x.reshape(3, 2, 3, 2).transpose(2, 3, 0, 1),
    ),
    *(
        (
            *("i (3 h=2 d) -> i h d", part, (4, 30)),
            lambda x, part=part: x[:, 10 * part : 10 * part + 10].reshape(4, 2, 5),
        )
        for part in range(3)
    ),
    (
        *("(h=2 3 d) i -> i h d", 1, (30, 4)),
        lambda x: x.reshape(2, 3, 5, 4)[:, 1].transpose(2, 0, 1),
    ),
    ("(h=2 d) -> h d", None, (6,), lambda x: x.reshape(2, 3)),
    ("2 n -> n", 1, (2, 3), lambda x: x[1]),
    ("1 n -> n", None, (1, 3), lambda x: x[0]),
    ("n -> 1 n 1", None, (3,), lambda x: x[None, :, None]),
    (
        *("o (c h=2 w=3) -> (h w c) o", None, (5, 24)),
        lambda x: x.reshape(5, 4, 2, 3).transpose(2, 3, 1, 0).reshape(24, 5),
    ),
    ("-> ", None, (), lambda x: x),
    ("n -> n", None, (0,), lambda x: x),
]


@pytest.mark.parametrize(("text", "index", "shape", "expected"), GOOD)
def test_layout_round_trip(text, index, shape, expected):
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    weight = expected(array)
    layout = Layout(text, index)
    assert layout.file_shape(weight.shape) == shape
    np.testing.assert_array_equal(layout.from_file(array, weight.shape), weight)
    filled = np.zeros_like(array)
    for number in range(layout.num_parts):
        other_layout = Layout(text, None if index is None else number)
        other_layout.write_to(filled, other_layout.from_file(array, weight.shape))
    np.testing.assert_array_equal(filled, array)


BAD = [
    ("i o", None, "axes in the file -> axes of the weight"),
    ("i -> o -> i", None, "axes in the file -> axes of the weight"),
    ("i o -> i", None, "each axis once"),
    ("i -> i o", None, "each axis once"),
    ("i i -> i i", None, "each axis once"),
    ("i -> i 2", None, "only the number 1 on the right"),
    ("2 3 i -> i", 0, "at most one number"),
    ("3 i -> i", None, "a part in the range 0 to 2"),
    ("3 i -> i", 3, "a part in the range 0 to 2"),
    ("3 i -> i", -1, "a part in the range 0 to 2"),
    ("3 i -> i", True, "a part in the range 0 to 2"),
    ("0 i -> i", 0, "a part in the range"),
    ("i -> i", 0, "expected no part"),
    ("1 i -> i", 0, "expected no part"),
    ("(i -> i", None, "closed brackets"),
    ("i) -> i", None, "closed brackets"),
    ("((i)) -> i", None, "closed brackets"),
    ("i + o -> i o", None, "names, numbers and brackets"),
    ("i ... -> ... i", None, "names, numbers and brackets"),
    ("h=2 h -> h=3 h", None, "a single length of 'h'"),
]


@pytest.mark.parametrize(("text", "index", "message"), BAD)
def test_invalid_layouts(text, index, message):
    with pytest.raises(ArgumentError, match=message):
        Layout(text, index)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("o i -> i o", (2,), r"the weight has the shape \(2,\)"),
        ("h=2 d -> h d", (3, 4), r"the weight has the shape \(3, 4\)"),
        ("o (c h) -> (h c) o", (6, 2), "expected lengths, as in h=7"),
        ("o (c h=4) -> (h c) o", (6, 2), r"the weight has the shape \(6, 2\)"),
        ("n -> n 1", (2, 2), r"the weight has the shape \(2, 2\)"),
    ],
)
def test_weight_with_other_axes(text, shape, message):
    with pytest.raises(ArgumentError, match=message):
        Layout(text).file_shape(shape)


# --- mappings -------------------------------------------------------------------------


def named(value):
    return lambda name: value


MAPPINGS = [
    (None, "a/kernel", ("a/kernel",)),
    ({"a/kernel": "x"}, "a/kernel", ("x",)),
    ({"*/kernel": "x", "a/kernel": "y"}, "a/kernel", ("y",)),
    ({"b/*": "x", "*/kernel": "*.w", "*/*": "z"}, "a/kernel", ("a.w",)),
    ({"h_*/ln_*/gamma": "h.*.ln.*"}, "h_3/ln_12/gamma", ("h.3.ln.12",)),
    ({"h_*/kernel": "w"}, "h_3/kernel", ("w",)),
    ({"*": "x"}, "a/kernel", ()),
    ({}, "a/kernel", ()),
    ({"a.b*/kernel": "x"}, "a-b/kernel", ()),
    ({"a/kernel": ("x.*", "i o -> o i")}, "a/kernel", ("x.*",)),
    ({"*/kernel": (("*.b", "c*"), sum)}, "a/kernel", ("a.b", "ca")),
    ({"*/kernel": (["*.b"], sum)}, "a/kernel", ("a.b",)),
    (named("x"), "a/kernel", ("x",)),
    (lambda name: name.replace("/", "."), "a/kernel", ("a.kernel",)),
    (named(("x", "3 n -> n", 2)), "a/kernel", ("x",)),
]


@pytest.mark.parametrize(("mapping", "name", "expected"), MAPPINGS)
def test_names(mapping, name, expected):
    source = source_of(name, mapping)
    assert isinstance(source, Source) and source.names == expected


def test_missing_weight_is_refused():
    assert source_of("a", {"a": None}) is None and source_of("a", named(None)) is None


@pytest.mark.parametrize(
    "mapping",
    [
        *(3, "x", ["x"], {"a": 3}, {"a": ("x",)}, {"a": ("x", 3)}, {"a": ((), sum)}),
        *({"a": ((1,), sum)}, {"a": ("x", "n -> n", "0")}, {1: "x"}, named(3)),
        {"*": "*.*"},
    ],
)
def test_invalid_mappings(mapping):
    with pytest.raises(ArgumentError, match="mapping: .*received"):
        source_of("a", mapping)
