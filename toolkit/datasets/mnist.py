"""MNIST: 28x28 grey images of handwritten digits."""

from __future__ import annotations

import numpy as np

from toolkit.datasets.base import KERAS_FILES, RemoteFile, Split

FILE = RemoteFile(
    f"{KERAS_FILES}/mnist.npz",
    "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
)


def load_data(path: str = "mnist.npz") -> Split:
    """Load 60,000 training and 10,000 test images of the ten digits.

    The first call downloads the file (11 MB) and verifies it.

    Args:
        path: The file name in the cache folder `datasets`.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 from 0 to 255:
        (n, 28, 28), labels uint8 from 0 to 9: (n,).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import mnist
        >>> train, test = mnist.load_data()  # doctest: +SKIP

    Reference:
        Y. LeCun and C. Cortes, http://yann.lecun.com/exdb/mnist/, CC BY-SA 3.0.
    """
    with np.load(FILE.fetch(fname=path), allow_pickle=False) as arrays:
        return (
            (arrays["x_train"], arrays["y_train"]),
            (arrays["x_test"], arrays["y_test"]),
        )
