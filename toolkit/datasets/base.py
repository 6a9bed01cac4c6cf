"""Shared helpers of the loaders: the return type, and files with a known hash."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import settings
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError
from toolkit.type_aliases import Array
from toolkit.utils.files import get_file

Split = tuple[tuple[Array, Array], tuple[Array, Array]]
"""(x_train, y_train), (x_test, y_test)"""

KERAS_FILES = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"


@record
class RemoteFile:
    """A file on the network and its required hash."""

    url: str
    digest: str
    """The sha256; an md5 where no other is published."""

    def fetch(self, **options: Any) -> str:
        """Return the path of the verified file, or of the folder with
        `extract=True`."""
        return get_file(origin=self.url, file_hash=self.digest, **options)


def to_default_format(images: Array) -> Array:
    """Convert (n, channels, height, width) to the layout of `image_data_format()`."""
    if settings.image_data_format() == "channels_last":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def shuffle(
    seed: int | np.random.RandomState | None, *arrays: Array
) -> tuple[Array, ...]:
    """Shuffle all arrays in the same order; `seed` selects the order as in Keras.

    A RandomState continues its stream, for arrays that are shuffled after another call.
    """
    # RandomState and not Generator: NumPy froze its stream.
    if not isinstance(seed, np.random.RandomState):
        seed = np.random.RandomState(seed)
    order = seed.permutation(len(arrays[0]))
    return tuple(array[order] for array in arrays)


def split(x: Array, y: Array, test_split: float) -> Split:
    """Split the samples; the test set is the last fraction of them."""
    n_train = int(len(x) * (1 - test_split))
    return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])


def check_test_split(
    function: str, test_split: float, all_of_them: bool = False
) -> None:
    """Raise for an invalid test fraction; `all_of_them` also allows 1."""
    if not (0 <= test_split < 1 or (all_of_them and test_split == 1)):
        bound = "to 1" if all_of_them else "to below 1"
        raise ArgumentError(
            f"{function}: test_split must be from 0 {bound}; received {test_split!r}"
        )
