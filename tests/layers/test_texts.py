"""Strings in lookups, hashes and TextVectorization; the values are those of Keras."""

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
    known = np.shape(expected)[1:]
    assert len(shape) == 3 and all(
        n in (None, m) for n, m in zip(shape[1:], known, strict=True)
    )


def test_codes_of_several_axes():
    layer = abc(output_mode="count")
    codes = layer(DEEP)
    assert layer.compute_output_shape((2, 3, 1)) == codes.shape == (2, 3, 4)
    assert codes[0, 2].tolist() == [1, 2, 0, 0]


def test_words_that_are_not_split():
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
def test_a_given_vocabulary_is_not_adapted(cls):
    layer = cls(vocabulary=["a"], name="words")
    with pytest.raises(ArgumentError, match=f"{cls.__name__} 'words': cannot adapt"):
        layer.adapt(["b"])
    assert layer.get_vocabulary()[-1] == "a"


def test_what_was_adapted_may_be_adapted_again(tmp_path):
    layer = layers.TextVectorization()
    model = toolkit.Sequential([toolkit.Input((1,), dtype="string"), layer])
    for word in ("b", "c"):
        layer.adapt([word])
    model.save(tmp_path / "words.keras")
    found = toolkit.saving.load_model(tmp_path / "words.keras").layers[-1]
    found.adapt(["d"])
    assert found.get_vocabulary() == ["", "[UNK]", "d"]
