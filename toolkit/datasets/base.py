"""What the loaders share: the type that they return, and files with known hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import config
from toolkit.utils.files import get_file

Array = NDArray[Any]
Split = tuple[tuple[Array, Array], tuple[Array, Array]]
"""(x_train, y_train), (x_test, y_test)"""

KERAS_FILES = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network and the sha256 that it must have."""

    url: str
    sha256: str

    def fetch(self, **options: Any) -> str:
        """The path of the verified file, or of the folder with `extract=True`."""
        return get_file(origin=self.url, file_hash=self.sha256, **options)


def images_in_default_format(images: Array) -> Array:
    """(n, channels, height, width) in the layout of `config.image_data_format()`."""
    if config.image_data_format() == "channels_last":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)
