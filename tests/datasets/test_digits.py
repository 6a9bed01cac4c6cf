"""Test the data set of digits in the package."""

import hashlib

import numpy as np
import pytest

from toolkit.datasets import digits
from toolkit.errors import ArgumentError


def test_default_split_is_constant():
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    assert x_train.shape == (1438, 8, 8) and y_train.shape == (1438,)
    assert x_test.shape == (359, 8, 8) and y_test.shape == (359,)
    assert x_train.dtype == x_test.dtype == y_train.dtype == y_test.dtype == np.uint8
    digest = hashlib.sha256(x_test.tobytes() + y_test.tobytes()).hexdigest()
    assert digest[:16] == "756617cefd3239cb"


@pytest.mark.parametrize("seed", [0, 1, None])
@pytest.mark.parametrize("test_split, n_test", [(0, 0), (0.25, 449), (0.5, 898)])
def test_split_contains_every_image_once(seed, test_split, n_test):
    (x_train, y_train), (x_test, y_test) = digits.load_data(test_split, seed)
    assert len(x_test) == len(y_test) == n_test
    labels = np.concatenate([y_train, y_test])
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # the counts of UCI
    assert np.bincount(labels).tolist() == counts
    images = np.concatenate([x_train, x_test])
    assert images.min() == 0 and images.max() == 16
    assert len(np.unique(images, axis=0)) == 1797


def test_seed_determines_the_split():
    first, repeated, other = (digits.load_data(seed=seed)[1][0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, repeated)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("test_split", [-0.1, 1, 1.5])
def test_impossible_split_is_refused(test_split):
    with pytest.raises(ArgumentError, match="test_split"):
        digits.load_data(test_split)
