"""Memory of batches that is used again, only when nobody has them any more."""

import numpy as np
import pytest

from toolkit.data import Dataset, TensorSpec
from toolkit.data.spares import Spares

SHAPE = (128, 1024)
ROWS = TensorSpec(SHAPE[1:], "float32")


def rows():
    for i in range(8 * SHAPE[0]):
        yield np.full(SHAPE[1:], i, "float32")


def address(array):
    return array.__array_interface__["data"][0]


# What a consumer may keep of an array.
KEPT = {
    "itself": lambda array: array,
    "a view": lambda array: array[1:2].T,
    "a view of another dtype": lambda array: array.view("uint8"),
    "a buffer": memoryview,
}


@pytest.mark.parametrize("name", KEPT)
def test_memory_is_used_again_when_nothing_is_left_of_an_array(name):
    spares = Spares()
    array = spares.empty(SHAPE, "float32")
    kept, first = KEPT[name](array), address(array)
    del array
    assert address(spares.empty(SHAPE, "float32")) != first
    del kept
    assert first in {address(spares.empty(SHAPE, "float32")) for _ in range(2)}


def test_arrays_are_aligned_and_others_fit_into_their_memory():
    spares = Spares()
    first = address(spares.empty(SHAPE, "float32"))
    assert first % 64 == 0
    other = spares.empty((SHAPE[1], SHAPE[0], 2), "int16")
    assert (address(other), other.flags.c_contiguous) == (first, True)
    assert address(spares.empty((3 * SHAPE[0], 1024), "float32")) != first


def test_objects_and_small_arrays_are_new():
    spares = Spares()
    for shape, dtype in (((4,), "float32"), (SHAPE, object)):
        assert spares.empty(shape, dtype).flags.owndata


@pytest.mark.parametrize("signature", [ROWS, None])
@pytest.mark.parametrize("stage", [lambda d: d, lambda d: d.map(np.negative)])
def test_batches_that_are_kept_stay_as_they_are(signature, stage):
    dataset = stage(Dataset.from_generator(rows, output_signature=signature))
    expected = [np.stack(list(dataset.skip(at).take(128))) for at in (0, 128, 256)]
    batches = list(dataset.batch(SHAPE[0]))
    for batch, known in zip(batches, expected, strict=False):
        np.testing.assert_array_equal(batch, known)
    assert len({*map(address, batches)}) == 8


def test_a_pass_takes_memory_for_two_batches():
    dataset = Dataset.from_generator(rows, output_signature=ROWS)
    found = {address(batch) for batch in dataset.batch(SHAPE[0])}
    assert len(found) == 2
