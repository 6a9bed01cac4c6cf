"""Data sets under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.data_calls import CALLS
from tests.compat.shown import mistakes


def names():
    """What the calls may use."""
    dataset = tf.data.Dataset

    def generated(generator, args, dtype):
        spec = tf.TensorSpec([], dtype)
        return dataset.from_generator(generator, output_signature=spec, args=args)

    return {
        "tf": tf,
        "np": np,
        "C": tf.constant,
        "D": dataset,
        "E": tf.data.experimental,
        "doubles": dataset.from_tensor_slices(np.array([1.5, 2.5])),
        "generated": generated,
        "one": dataset.range(1),
        "rows": dataset.range(1, 4).map(lambda x: tf.fill([x], x)),
        "three": dataset.range(3),
        "words": dataset.from_tensor_slices(["a", "b"]),
    }


@pytest.mark.parametrize("group", CALLS)
def test_results_are_tensorflows(group):
    assert not mistakes(CALLS[group], names())
