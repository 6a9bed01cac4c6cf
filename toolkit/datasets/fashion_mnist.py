"""Fashion-MNIST: 28x28 grey images of ten classes of clothing."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from toolkit.datasets.base import (
    KERAS_FILES,
    RemoteFile,
    Split,
)
from toolkit.errors import DatasetError
from toolkit.reading.decompression import (
    CORRUPT_STREAM_ERRORS,
    DecompressedFile,
    decompression_limit,
)
from toolkit.type_aliases import Array

FILES = {
    "x_train": RemoteFile(
        f"{KERAS_FILES}/train-images-idx3-ubyte.gz",
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    "y_train": RemoteFile(
        f"{KERAS_FILES}/train-labels-idx1-ubyte.gz",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    "x_test": RemoteFile(
        f"{KERAS_FILES}/t10k-images-idx3-ubyte.gz",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    "y_test": RemoteFile(
        f"{KERAS_FILES}/t10k-labels-idx1-ubyte.gz",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
_FOLDER = os.path.join("datasets", "fashion-mnist")
_UNSIGNED_BYTES = bytes((0, 0, 8))  # magic number of an idx file of bytes


def load_data() -> Split:
    """Load 60,000 training and 10,000 test images of clothing.

    The labels are: 0 T-shirt/top, 1 trouser, 2 pullover, 3 dress, 4 coat, 5 sandal, 6
    shirt, 7 sneaker, 8 bag, 9 ankle boot. The first call downloads the files (30 MB)
    and verifies them.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images uint8 from 0 to 255:
        (n, 28, 28), labels uint8 from 0 to 9: (n,).

    Raises:
        DatasetError: a download fails; the message has the path for a manual copy.

    Example:
        >>> from toolkit.datasets import fashion_mnist
        >>> train, test = fashion_mnist.load_data()  # doctest: +SKIP

    Reference:
        Zalando SE, https://github.com/zalandoresearch/fashion-mnist, MIT licence.
    """
    arrays = {
        name: read_idx(file.fetch(cache_subdir=_FOLDER)) for name, file in FILES.items()
    }
    return (
        (arrays["x_train"], arrays["y_train"]),
        (arrays["x_test"], arrays["y_test"]),
    )


def read_idx(path: str) -> Array:
    """Read a gzipped idx file of bytes: a magic number, the shape, the data.

    Args:
        path: the path of the file.

    Returns:
        An array of uint8.

    Example:
        >>> import gzip
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.datasets.fashion_mnist import read_idx
        >>> file = Path(tempfile.mkdtemp()) / "bytes.gz"
        >>> header = bytes([0, 0, 8, 1, 0, 0, 0, 2])
        >>> size = file.write_bytes(gzip.compress(header + b"ab"))
        >>> read_idx(str(file)).tolist()
        [97, 98]
    """
    try:
        with DecompressedFile(Path(path), decompression_limit(path)) as file:
            content = file.read()
    except CORRUPT_STREAM_ERRORS as error:
        raise DatasetError(f"fashion_mnist: {path} is corrupt: {error}") from error
    magic = content[:4]
    ndim = magic[3] if len(magic) == 4 and magic[:3] == _UNSIGNED_BYTES else 0
    start = 4 + 4 * ndim
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if ndim else ()
    if not ndim or len(content) != start + math.prod(shape):
        raise DatasetError(f"fashion_mnist: {path} is not a complete idx file of bytes")
    # A copy: NumPy arrays from a bytes object are read-only.
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
