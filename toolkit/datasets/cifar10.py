"""CIFAR-10: 32x32 colour images of ten classes."""

from __future__ import annotations

import os

import numpy as np

from toolkit.datasets.base import RemoteFile, Split, to_default_format
from toolkit.datasets.cifar import load_batch

FILE = RemoteFile(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)


def load_data() -> Split:
    """Load 50,000 training and 10,000 test images of ten classes.

    The labels are: 0 airplane, 1 automobile, 2 bird, 3 cat, 4 deer, 5 dog, 6 frog, 7
    horse, 8 ship, 9 truck. The first call downloads the archive (170 MB) and verifies
    it.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 from 0 to 255:
        (n, 32, 32, 3), or (n, 3, 32, 32) where `image_data_format` is
        "channels_first"; labels uint8 from 0 to 9: (n, 1).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import cifar10
        >>> train, test = cifar10.load_data()  # doctest: +SKIP

    Reference:
        A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009,
        https://www.cs.toronto.edu/~kriz/cifar.html
    """
    folder = FILE.fetch(fname="cifar-10-batches-py-target", extract=True)
    folder = os.path.join(folder, "cifar-10-batches-py")
    batches = [
        load_batch(os.path.join(folder, f"data_batch_{number}"))
        for number in range(1, 6)
    ]
    x_train = np.concatenate([images for images, _ in batches])
    y_train = np.concatenate([labels for _, labels in batches])
    x_test, y_test = load_batch(os.path.join(folder, "test_batch"))
    return (to_default_format(x_train), y_train), (to_default_format(x_test), y_test)
