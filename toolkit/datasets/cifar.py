"""Reader of the batch files of CIFAR-10 and CIFAR-100, which are pickles."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.datasets.pickles import load_data
from toolkit.errors import DatasetError
from toolkit.type_aliases import Array


def load_batch(path: str, label_key: str = "labels") -> tuple[Array, Array]:
    """Read one batch file: images uint8 (n, 3, 32, 32) and labels uint8 (n, 1)."""
    try:
        with open(path, "rb") as file:
            content = load_data(file)
        entries = {_text(key): value for key, value in content.items()}
        images = _byte_array(entries["data"]).reshape(-1, 3, 32, 32)
        labels = np.array(entries[label_key], np.uint8).reshape(len(images), 1)
    except FileNotFoundError as error:
        raise DatasetError(
            f"cifar: the archive does not contain the file {path}"
        ) from error
    except Exception as error:  # a corrupt pickle can raise any exception
        raise DatasetError(
            f"cifar: {path} is not a batch file: {type(error).__name__}: {error}"
        ) from error
    return images, labels


def _text(key: Any) -> str:
    """Decode a key: files written by Python 2 have keys of bytes."""
    return key.decode() if isinstance(key, bytes) else str(key)


def _byte_array(record: Any) -> Array:
    """Return the uint8 array of n rows of 3,072 bytes in `record`."""
    _, shape, dtype, is_fortran, content = record.state
    if dtype.arguments[0] not in ("u1", b"u1") or is_fortran:
        raise ValueError("expected rows of uint8")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()
