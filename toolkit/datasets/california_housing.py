"""California housing: house prices of 20,640 districts in 1990."""

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
from toolkit.errors import unknown_choice

FILE = RemoteFile(
    f"{KERAS_FILES}/california_housing.npz",
    "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
)
_SIZES = {"small": 600, "large": None}


def load_data(
    version: str = "large",
    path: str = "california_housing.npz",
    test_split: float = 0.2,
    seed: int | None = 113,
) -> Split:
    """Load districts of California with 8 features each, and prices.

    The features: median income, median age of the houses, rooms per household, bedrooms
    per household, residents, residents per household, latitude, longitude.

    Args:
        version: "large" for all 20,640 districts, "small" for the first 600.
        path: The file name in the cache folder `datasets`.
        test_split: The fraction of samples for the test, from 0 to below 1.
        seed: Seed of the sample order.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: features (n, 8), median prices in
        dollars (n,).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import california_housing
        >>> train, test = california_housing.load_data()  # doctest: +SKIP

    Reference:
        R. Pace and R. Barry, Sparse spatial autoregressions, 1997,
        https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html
    """
    check_test_split("california_housing.load_data", test_split)
    if version not in _SIZES:
        raise unknown_choice("california_housing.load_data: version", version, _SIZES)
    size = _SIZES[version]
    with np.load(FILE.fetch(fname=path), allow_pickle=False) as arrays:
        x, y = shuffle(seed, arrays["x"][:size], arrays["y"][:size])
    return split(x, y, test_split)
