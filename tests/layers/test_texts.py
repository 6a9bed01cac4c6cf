"""Test strings in lookups, hashes and TextVectorization; Keras gives the values."""

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.errors import ArgumentError, ShapeError

DEEP = [[["a b"], ["c"], ["a a z"]], [["b"], ["b c"], ["a"]]]
LOOKED_UP = [
    ({}, [[[2, 3, 0], [4, 0, 0], [2, 2, 1]], [[3, 0, 0], [3, 4, 0], [2, 0, 0]]]),
    (
        {"output_sequence_length": 2},
        [[[2, 3], [4, 0], [2, 2]], [[3, 0], [3, 4], [2, 0]]],
    ),
    ({"output_sequence_length": 0}, [[[], [], []], [[], [], []]]),
    ({"split": None}, [[[1], [4], [1]], [[3], [1], [2]]]),
    (
        {"split": None, "output_sequence_length": 2},
        [[[1, 0], [4, 0], [1, 0]], [[3, 0], [1, 0], [2, 0]]],
    ),
    (
        {"ngrams": (2,)},
        [[[1, 0], [0, 0], [1, 1]], [[0, 0], [1, 0], [0, 0]]],
    ),
]


def abc(**arguments):
    return layers.TextVectorization(vocabulary=["a", "b", "c"], **arguments)


@pytest.mark.parametrize(("arguments", "expected"), LOOKED_UP)
def test_texts_of_several_axes(arguments, expected):
    layer = abc(**arguments)
    assert layer(DEEP).tolist() == expected
    shape = layer.compute_output_shape((None, 3, 1))
    known_shape = np.shape(expected)[1:]
    assert len(shape) == 3 and all(
        n in (None, m) for n, m in zip(shape[1:], known_shape, strict=True)
    )


def test_codes_of_several_axes():
    layer = abc(output_mode="count")
    codes = layer(DEEP)
    assert layer.compute_output_shape((2, 3, 1)) == codes.shape == (2, 3, 4)
    assert codes[0, 2].tolist() == [1, 2, 0, 0]


def test_unsplit_words():
    assert abc(split=None)("a").shape == ()
    assert abc(split=None, ngrams=2)([["a", "b"]]).tolist() == [[2, 3, 1]]
    assert abc(split=None)(["a", "z"]).tolist() == [2, 1]
    assert abc(split=None).compute_output_shape((4, 2)) == (4, 2)
    for arguments in ({"ngrams": 2}, {"output_sequence_length": 3}):
        with pytest.raises(ShapeError, match="at least one axis"):
            abc(split=None, **arguments)("a")


def test_lengths_of_sequences():
    assert abc(output_sequence_length=0)(["a b", "c"]).shape == (2, 0)
    with pytest.raises(ArgumentError, match="not negative; received -1"):
        abc(output_sequence_length=-1)


@pytest.mark.parametrize("cls", [layers.TextVectorization, layers.StringLookup])
def test_explicit_vocabulary_is_not_adapted(cls):
    layer = cls(vocabulary=["a"], name="words")
    with pytest.raises(ArgumentError, match=f"{cls.__name__} 'words': cannot adapt"):
        layer.adapt(["b"])
    assert layer.get_vocabulary()[-1] == "a"


def test_adapted_layer_may_be_adapted_again(tmp_path):
    layer = layers.TextVectorization()
    model = toolkit.Sequential([toolkit.Input((1,), dtype="string"), layer])
    for word in ("b", "c"):
        layer.adapt([word])
    model.save(tmp_path / "words.keras")
    restored = toolkit.saving.load_model(tmp_path / "words.keras").layers[-1]
    restored.adapt(["d"])
    assert restored.get_vocabulary() == ["", "[UNK]", "d"]


# --- values that are no strings -------------------------------------------------------

NO_STRINGS = {
    "None": ["a", None],
    "None first": [None, "a"],
    "NaN": np.array(["a", float("nan")], object),
    "NaN first": [float("nan"), "a"],
    "integer": ["a", 1],
    "integers": [1, 2],
    "booleans": np.array([True, False]),
}


@pytest.mark.parametrize("values", NO_STRINGS.values(), ids=NO_STRINGS)
@pytest.mark.parametrize("cls", [layers.TextVectorization, layers.StringLookup])
def test_values_that_are_no_strings_are_refused(cls, values):
    message = f"{cls.__name__} 'words': expected strings; received "
    uses = [
        lambda: cls(name="words").adapt(values),
        lambda: cls(name="words", vocabulary=values),
        lambda: cls(name="words", vocabulary=["a"])(values),
    ]
    for use in uses:
        with pytest.raises(TypeError, match=message) as raised:
            use()
        assert isinstance(raised.value, ArgumentError)


def test_integers_and_strings_do_not_mix():
    with pytest.raises(TypeError, match="Hashing 'h': expected strings or numbers"):
        layers.Hashing(7, name="h")(["a", None])
    lookup = layers.IntegerLookup(name="i", vocabulary=np.array([3, 4], object))
    assert lookup([4]).tolist() == [2]
    with pytest.raises(TypeError, match="IntegerLookup 'i': expected integers"):
        lookup(["4"])
    with pytest.raises(TypeError, match="expected integers; received 'x'"):
        layers.IntegerLookup(vocabulary=["x"])


# --- hashes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "bins"),
    [
        ({}, [3, 0]),
        ({"salt": 3}, [3, 2]),
        ({"salt": (3, 4)}, [4, 5]),
        ({"mask_value": True}, [0, 6]),
    ],
)
def test_bins_of_booleans(arguments, bins):
    assert layers.Hashing(7, **arguments)([True, False]).tolist() == bins


def test_masks_of_another_dtype():
    for mask, values in (("a", [True]), ("a", [1]), (1, ["a"])):
        with pytest.raises(TypeError, match="'h': expected inputs with the type of"):
            layers.Hashing(7, mask_value=mask, name="h")(values)


def test_booleans_are_not_crossed():
    with pytest.raises(TypeError, match="integer or string dtype"):
        layers.HashedCrossing(7)(([True, False], ["a", "b"]))


# --- bytes that are not UTF-8 ---------------------------------------------------------

LATIN = np.array([b"\xe9a", b"a"])


def test_invalid_bytes_are_preserved(tmp_path):
    assert layers.Hashing(7)(LATIN).tolist() == [4, 5]
    assert layers.Hashing(7, salt=2)(LATIN).tolist() == [5, 1]
    assert layers.HashedCrossing(7)((LATIN, np.array([1, 2]))).tolist() == [2, 6]
    assert layers.StringLookup(vocabulary=LATIN)(LATIN[::-1]).tolist() == [2, 1]
    lookup = layers.StringLookup(num_oov_indices=5, vocabulary=["a"])
    assert lookup(np.array([b"\xe9a", b"q"])).tolist() == [1, 3]
    texts = np.array([b"\xe9a A", b"a"])
    assert abc()(texts).tolist() == [[1, 2], [2, 0]]
    words = toolkit.ops.convert_to_tensor(LATIN)
    assert words.numpy().tolist() == LATIN.tolist()
    back = layers.StringLookup(vocabulary=LATIN, invert=True)([1, 2])
    assert np.asarray(toolkit.ops.convert_to_tensor(back)).tolist() == LATIN.tolist()


@pytest.mark.parametrize("vocabulary", [True, False], ids=["given", "adapted"])
def test_bytes_in_files_of_models(tmp_path, vocabulary):
    layer = layers.StringLookup(vocabulary=LATIN if vocabulary else None)
    if not vocabulary:
        layer.adapt(LATIN)
    expected = layer(LATIN).tolist()
    model = toolkit.Sequential([toolkit.Input((1,), dtype="string"), layer])
    model.save(tmp_path / "words.keras")
    restored = toolkit.saving.load_model(tmp_path / "words.keras").layers[-1]
    assert restored(LATIN).tolist() == expected and 0 not in expected


def test_another_encoding():
    layer = layers.StringLookup(vocabulary=LATIN, encoding="latin-1")
    assert layer.get_vocabulary() == ["[UNK]", "éa", "a"]
    assert layer(["a", "éa"]).tolist() == [2, 1] and layer(LATIN).tolist() == [1, 2]
    layer = layers.TextVectorization(encoding="latin-1")
    layer.adapt(np.array([b"\xe9a A", b"a"]))
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "éa"]


# --- vocabulary files -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "indices"),
    [
        ("a\nb\n", [1, 2, 0]),
        ("a\nb", [1, 2, 0]),
        ("[UNK]\na\nb\n", [2, 3, 1]),
        ("a\n[UNK]\nb\n", [1, 3, 2]),
    ],
)
def test_each_line_is_a_term(tmp_path, lines, indices):
    path = tmp_path / "words.txt"
    path.write_bytes(lines.encode())
    layer = layers.StringLookup(vocabulary=str(path))
    assert layer(["a", "b", "[UNK]"]).tolist() == indices
    assert layers.StringLookup(vocabulary=["[UNK]", "a"])(["a"]).tolist() == [1]


@pytest.mark.parametrize("lines", ["a\n\nb\n", "a\nb\n\n", "\n[UNK]\na\n"])
def test_empty_lines_are_refused(tmp_path, lines):
    path = tmp_path / "words.txt"
    path.write_bytes(lines.encode())
    number = lines.split("\n").index("") + 1
    for cls in (layers.StringLookup, layers.TextVectorization):
        with pytest.raises(ArgumentError, match=f"line {number} is empty"):
            cls(vocabulary=path)


# --- edges of lookups -----------------------------------------------------------------


def test_call_accepts_the_inputs_of_the_layer():
    lookup = layers.StringLookup(vocabulary=["a"])
    for values in (np.array(["a", "z"]), ["a", "z"], np.array([b"a", b"z"], object)):
        assert lookup.call(values).tolist() == [1, 0]
    values = np.array([b"a", b"z"])
    assert layers.Hashing(7).call(values).tolist() == layers.Hashing(7)(values).tolist()
    crossing = layers.HashedCrossing(7)
    pair = values, np.array([1, 2])
    assert crossing.call(pair).tolist() == crossing(pair).tolist()


def test_empty_data_cannot_be_adapted():
    for cls in (layers.StringLookup, layers.IntegerLookup):
        layer = cls()
        layer.adapt([])
        assert layer.get_vocabulary() == [layer.oov_token]
        assert layer([]).shape == (0,)


@pytest.mark.parametrize(
    ("cls", "arguments", "data"),
    [
        (layers.StringLookup, {"max_tokens": 2, "mask_token": ""}, ["a", "b"]),
        (layers.StringLookup, {"max_tokens": 2, "num_oov_indices": 3}, ["a", "b"]),
        (layers.IntegerLookup, {"max_tokens": 2, "num_oov_indices": 2}, [1, 2]),
        (layers.TextVectorization, {"max_tokens": 2}, ["a b"]),
    ],
)
def test_vocabulary_without_indices(cls, arguments, data):
    layer = cls(**arguments)
    with pytest.raises(ArgumentError, match="max_tokens=2 leaves no index"):
        layer.adapt(data)


@pytest.mark.parametrize("separator", ["\x1c", "\x1f", "\x85", "\xa0", "\u2003"])
def test_words_contain_other_whitespace_than_ascii(separator):
    layer = layers.TextVectorization(vocabulary=["a", f"a{separator}b"])
    assert layer([f"a a{separator}b\t\v\f\r\na"]).tolist() == [[2, 3, 2]]
