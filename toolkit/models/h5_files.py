"""HDF5 files: written in one step, and read only after their structure is checked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.errors import (
    UnwritableFileError,
)

# Data that unpacks to more than this many times its size in the file is refused.
_MAX_RATIO = 1000
_SMALL = 1 << 20  # bytes that are always fine
_MAX_OBJECTS = 1_000_000


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a new file beside `path`, then move it there, flushed to disk.

    If anything fails, an older file stays as it was.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        _flush(temporary)
        os.replace(temporary, target)
        if os.name == "posix":
            _flush(target.parent)
    except OSError as error:
        raise UnwritableFileError(f"cannot write {str(path)!r}: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_groups(path: Path, groups: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Write group path -> (name attribute, arrays by key) as a new file."""
    import h5py

    with h5py.File(path, "x") as file:
        for group_path, (name, arrays) in groups.items():
            group = file.create_group(group_path)
            group.attrs["name"] = name
            for key, array in arrays.items():
                dataset = group.create_dataset(key, data=array)
                if array.dtype.name == "bfloat16":  # HDF5 has no such type
                    dataset.attrs["dtype"] = "bfloat16"
