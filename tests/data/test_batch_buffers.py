"""Tests of batch buffers that are reused only after their last reference ends."""

import numpy as np
import pytest

from toolkit.data import Dataset, TensorSpec

SHAPE = (128, 1024)
ROWS = TensorSpec(SHAPE[1:], "float32")


def rows():
    for i in range(8 * SHAPE[0]):
        yield np.full(SHAPE[1:], i, "float32")


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("signature", [ROWS, None])
@pytest.mark.parametrize("stage", [lambda d: d, lambda d: d.map(np.negative)])
def test_stored_batches_do_not_change(signature, stage):
    dataset = stage(Dataset.from_generator(rows, output_signature=signature))
    expected = [np.stack(list(dataset.skip(at).take(128))) for at in (0, 128, 256)]
    batches = list(dataset.batch(SHAPE[0]))
    for batch, expected_batch in zip(batches, expected, strict=False):
        np.testing.assert_array_equal(batch, expected_batch)
    assert len({*map(address, batches)}) == 8


def test_pass_allocates_two_batches():
    dataset = Dataset.from_generator(rows, output_signature=ROWS)
    addresses = {address(batch) for batch in dataset.batch(SHAPE[0])}
    assert len(addresses) == 2
