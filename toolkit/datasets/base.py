"""What the loaders share: the type that they return, and files with known hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import settings
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError
from toolkit.utils.files import get_file

Array = NDArray[Any]
Split = tuple[tuple[Array, Array], tuple[Array, Array]]
"""(x_train, y_train), (x_test, y_test)"""

KERAS_FILES = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"


@record
class RemoteFile:
    """A file on the network and the hash that it must have."""

    url: str
    digest: str
    """The sha256; an md5 where no other is published."""

    def fetch(self, **options: Any) -> str:
        """The path of the verified file, or of the folder with `extract=True`."""
        return get_file(origin=self.url, file_hash=self.digest, **options)


def images_in_default_format(images: Array) -> Array:
    """(n, channels, height, width) in the layout of `settings.image_data_format()`."""
    if settings.image_data_format() == "channels_last":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def shuffled(
    seed: int | np.random.RandomState | None, *arrays: Array
) -> tuple[Array, ...]:
    """The arrays, all in the same order, which `seed` chooses as Keras does.

    A RandomState goes on from where it is, for what is shuffled after something else.
    """
    # RandomState and not Generator: its stream is frozen for all time.
    if not isinstance(seed, np.random.RandomState):
        seed = np.random.RandomState(seed)
    order = seed.permutation(len(arrays[0]))
    return tuple(array[order] for array in arrays)


def split(x: Array, y: Array, test_split: float) -> Split:
    """All but the last share of the samples, and that share."""
    n_train = int(len(x) * (1 - test_split))
    return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])


def check_share(function: str, test_split: float, all_of_them: bool = False) -> None:
    """Refuse what is no share of the samples for the test; 1 may be one."""
    if not (0 <= test_split < 1 or (all_of_them and test_split == 1)):
        bound = "to 1" if all_of_them else "to below 1"
        raise ArgumentError(
            f"{function}: test_split must be from 0 {bound}; received {test_split!r}"
        )
