"""Tests of strings under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.parts_calls import CALLS as PARTS
from tests.compat.shown import mistakes
from tests.compat.string_calls import CALLS as OPERATIONS
from tests.compat.text_calls import CALLS
from toolkit.errors import UnsupportedError

ALL = CALLS | OPERATIONS | PARTS


@pytest.mark.parametrize("group", ALL)
def test_results_match_tensorflow(group):
    namespace = {
        "tf": tf,
        "np": np,
        "C": tf.constant,
        "R": tf.ragged.constant,
        "S": tf.strings,
        "W": tf.data.Dataset.from_tensor_slices(["b", "a", "b"]),
        "m": tf.constant([["a", ""], ["c", "d"]]),
        "s": tf.constant(["b", "a", "b"]),
    }
    assert not mistakes(ALL[group], namespace)


def test_substrings_of_string_matrices_are_refused():
    with pytest.raises(UnsupportedError, match="split: expected a string or a vector"):
        tf.strings.split([["a b"], ["c"]])
    with pytest.raises(
        UnsupportedError, match="reduce_join: only axis=-1 is supported for ragged rows"
    ):
        tf.strings.reduce_join(tf.ragged.constant([["a"], ["b", "c"]]), 0)
