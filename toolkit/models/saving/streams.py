"""Whole models in binary file objects, such as `io.BytesIO`."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError, ModelFileError

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_stream(filepath: Any) -> bool:
    """Return whether an argument is a file object, not a path."""
    is_path = isinstance(filepath, (str, bytes, os.PathLike))
    return not is_path and (hasattr(filepath, "read") or hasattr(filepath, "write"))


@contextmanager
def file_for_stream(stream: Any, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file, then copy its bytes to a file object.

    After an error the file object is unchanged.
    """
    _check(stream, "save_model", "writable", "write")
    with tempfile.TemporaryDirectory(prefix="keras-") as folder:
        path = Path(folder, name)
        yield path
        with open(path, "rb") as file:
            shutil.copyfileobj(file, stream)


@contextmanager
def file_of_stream(stream: Any) -> Iterator[Path]:
    """Yield the path of a temporary file with all bytes of a file object.

    A file object that can seek is read from its start.

    Raises:
        ModelFileError: errors of the block, with the file object in the message.
    """
    _check(stream, "load_model", "readable", "read")
    if hasattr(stream, "seek") and getattr(stream, "seekable", lambda: True)():
        stream.seek(0)
    start = stream.read(len(_HDF5_SIGNATURE))
    ending = ".h5" if start == _HDF5_SIGNATURE else ".keras"
    with tempfile.TemporaryDirectory(prefix="keras-") as folder:
        path = Path(folder, f"model{ending}")
        with open(path, "wb") as file:
            file.write(start)
            shutil.copyfileobj(stream, file)
        try:
            yield path
        except ModelFileError as error:
            label = f"the file object {stream!r}"
            error.args = (str(error).replace(repr(str(path)), label),)
            raise


def _check(stream: Any, method: str, can: str, operation: str) -> None:
    """Raise unless a file object is binary and readable or writable."""
    is_text = isinstance(stream, io.TextIOBase)
    if is_text or not getattr(stream, can, lambda: hasattr(stream, operation))():
        mode = "wb" if operation == "write" else "rb"
        raise ArgumentError(
            f"{method}: expected a path or a binary file object that is {can}; "
            f"received {stream!r}; open the file with mode {mode!r}"
        )
