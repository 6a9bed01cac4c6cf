"""CIFAR-100: 32x32 colour images of 100 classes."""

from __future__ import annotations

import os

from toolkit.datasets.base import RemoteFile, Split, to_default_format
from toolkit.datasets.cifar import load_batch
from toolkit.errors import unknown_choice

FILE = RemoteFile(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)


def load_data(label_mode: str = "fine") -> Split:
    """Load 50,000 training and 10,000 test images of 100 classes.

    The first call downloads the archive (169 MB) and verifies it.

    Args:
        label_mode: "fine" for the 100 classes, "coarse" for their 20 groups.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 from 0 to 255:
        (n, 32, 32, 3), or (n, 3, 32, 32) where `image_data_format` is
        "channels_first"; labels uint8 from 0 to 99 or 19: (n, 1).

    Raises:
        DatasetError: the download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import cifar100
        >>> train, test = cifar100.load_data()  # doctest: +SKIP

    Reference:
        A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009,
        https://www.cs.toronto.edu/~kriz/cifar.html
    """
    if label_mode not in ("fine", "coarse"):
        raise unknown_choice(
            "cifar100.load_data: label_mode", label_mode, ("fine", "coarse")
        )
    folder = FILE.fetch(fname="cifar-100-python-target", extract=True)
    folder = os.path.join(folder, "cifar-100-python")
    x_train, y_train = load_batch(os.path.join(folder, "train"), f"{label_mode}_labels")
    x_test, y_test = load_batch(os.path.join(folder, "test"), f"{label_mode}_labels")
    return (to_default_format(x_train), y_train), (to_default_format(x_test), y_test)
