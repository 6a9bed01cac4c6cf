"""Boston housing: house prices of 506 census tracts of the 1970s."""

from __future__ import annotations

import numpy as np

from toolkit.datasets.base import (
    KERAS_FILES,
    RemoteFile,
    Split,
    check_test_split,
    shuffle,
    split,
)

FILE = RemoteFile(
    f"{KERAS_FILES}/boston_housing.npz",
    "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
)


def load_data(
    path: str = "boston_housing.npz", test_split: float = 0.2, seed: int | None = 113
) -> Split:
    """Load 506 census tracts near Boston with 13 features each, and prices.

    One feature uses the share of Black residents as a cause of prices. Use
    `california_housing`, unless this mistake is the subject.

    Args:
        path: The file name in the cache folder `datasets`.
        test_split: The fraction of samples for the test, from 0 to below 1.
        seed: Seed of the sample order.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: features float64 (n, 13), median prices
        in thousands of dollars float64 (n,).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import boston_housing
        >>> train, test = boston_housing.load_data()  # doctest: +SKIP

    Reference:
        D. Harrison and D. Rubinfeld, Hedonic prices and the demand for clean air, 1978,
        http://lib.stat.cmu.edu/datasets/boston
    """
    check_test_split("boston_housing.load_data", test_split)
    with np.load(FILE.fetch(fname=path), allow_pickle=False) as arrays:
        x, y = shuffle(seed, arrays["x"], arrays["y"])
    return split(x, y, test_split)
