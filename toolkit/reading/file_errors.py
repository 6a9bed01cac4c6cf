"""Conversion of errors caused by a file to errors of that file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolkit.errors import (
    LoadBudgetError,
    MissingFileError,
    ModelFileError,
    ToolkitError,
)


@contextmanager
def convert_errors(
    label: str, reason: str = "expected the config of an object; its creation failed"
) -> Iterator[None]:
    """Return a context that converts any foreign error to a ModelFileError.

    A config is data. A value of a wrong type or size can cause any Python error in the
    code of a layer.

    Args:
        label: the file, or a part of it.
        reason: the text before the error's class.
    """
    try:
        yield
    except ToolkitError:
        raise
    except RecursionError as error:
        raise ModelFileError(f"{label}: too many nested objects") from error
    except MemoryError as error:
        raise LoadBudgetError(
            f"{label}: it needs more memory than the machine has"
        ) from error
    except Exception as error:
        kind = type(error).__name__
        raise ModelFileError(f"{label}: {reason} ({kind}: {error})") from error


@contextmanager
def add_path_to_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Return a context that adds the file's name to errors, once."""
    try:
        yield
    except ModelFileError as error:
        label = repr(os.fspath(path))
        if label not in str(error):
            error.args = (f"{label}: {error}",)
        raise


_KINDS: dict[str, Callable[[int], bool]] = {
    "a folder": stat.S_ISDIR,
    "a FIFO": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_present(path: Path) -> None:
    """Raise an error unless the file exists and is not a Git LFS pointer."""
    check_regular_file(path, ModelFileError, MissingFileError)
    with open(path, "rb") as file, add_path_to_errors(path):
        refuse_lfs_pointer(file)


def refuse_lfs_pointer(file: IO[bytes]) -> None:
    """Raise an error if an open file is a Git LFS pointer; else rewind it."""
    if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
        raise ModelFileError(
            "it is a Git LFS pointer, not the file. Run `git lfs pull` in its "
            "repository, or download the file"
        )
    file.seek(0)


def check_regular_file(
    path: str | os.PathLike[str],
    error_class: type[ToolkitError] = ModelFileError,
    missing_class: type[ToolkitError] = MissingFileError,
) -> None:
    """Raise an error unless a path is a regular file, or a link to one.

    Opening a FIFO waits for a writer, and a device such as `/dev/zero` has no end.

    Args:
        path: the path of the file.
        error_class: the class to raise for a folder, FIFO, socket or device.
        missing_class: the class to raise for a missing file.
    """
    label = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing_class(f"File not found: there is no file {label}") from error
    except (OSError, ValueError) as error:  # a loop of links, a null character
        raise error_class(f"{label} cannot be read ({error})") from error
    if not stat.S_ISREG(mode):
        kinds = [kind for kind, is_kind in _KINDS.items() if is_kind(mode)]
        kind = kinds[0] if kinds else "something else"
        raise error_class(f"{label}: expected a file; received {kind}")
