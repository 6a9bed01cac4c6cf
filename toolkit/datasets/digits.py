"""Handwritten digits of 8x8 pixels: a real data set in the package.

The 1,797 images of the test part of "Optical Recognition of Handwritten Digits" by E.
Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998,
https://doi.org/10.24432/C50P49, licensed under CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). Only the file format is different:
`digits.npz` stores the same pixels and labels as arrays.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from toolkit.datasets.base import Split, check_test_split, shuffle


def load_data(test_split: float = 0.2, seed: int | None = 0) -> Split:
    """Load 1,797 images of handwritten digits, split for training and test.

    Downloads nothing. The same arguments give the same split on every machine and with
    every version of NumPy.

    Args:
        test_split: The fraction of images for the test, from 0 to below 1; the default
            gives 359 of 1,797.
        seed: Seed of the selection; None takes the last images of the file.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 from 0 to 16: (n, 8, 8),
        labels uint8 from 0 to 9: (n,).

    Example:
        >>> from toolkit.datasets import digits
        >>> (x_train, y_train), (x_test, y_test) = digits.load_data()
        >>> x_train.shape, y_train.shape, x_test.shape
        ((1438, 8, 8), (1438,), (359, 8, 8))

    Reference:
        E. Alpaydin and C. Kaynak, Cascading Classifiers, Kybernetika 34(4), 1998;
        https://doi.org/10.24432/C50P49 (CC BY 4.0).
    """
    check_test_split("digits.load_data", test_split)
    file = files("toolkit.datasets") / "digits.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    if seed is not None:
        images, labels = shuffle(seed, images, labels)
    n_train = len(images) - int(len(images) * test_split)
    return (images[:n_train], labels[:n_train]), (images[n_train:], labels[n_train:])
