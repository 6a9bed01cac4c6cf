"""Errors of whatever a file makes happen, told as errors of the file."""

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
def clear_errors(
    what: str, trouble: str = "expected the config of an object; making it failed"
) -> Iterator[None]:
    """Raise a ModelFileError for any error that is not ours.

    A config is data: a value of a wrong type or size may fail anywhere in the code of
    a layer, as whatever Python makes of it.

    Args:
        what: the file, or the part of it that is read.
        trouble: what to say before the kind of the error.
    """
    try:
        yield
    except ToolkitError:
        raise
    except RecursionError as error:
        raise ModelFileError(f"{what}: objects in objects without an end") from error
    except MemoryError as error:
        raise LoadBudgetError(
            f"{what}: it asks for more memory than there is"
        ) from error
    except Exception as error:
        kind = type(error).__name__
        raise ModelFileError(f"{what}: {trouble} ({kind}: {error})") from error


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors of a file name it, once."""
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


_POINTER = b"version https://git-lfs.github.com/spec/"


def check_present(path: Path) -> None:
    """Raise unless there is a file, and not a pointer to one elsewhere."""
    check_plain(path, ModelFileError, MissingFileError)
    with open(path, "rb") as file, naming(path):
        refuse_pointer(file)


def refuse_pointer(file: IO[bytes]) -> None:
    """Raise if an open file is a pointer of Git LFS; else go back to its start."""
    if file.read(len(_POINTER)) == _POINTER:
        raise ModelFileError(
            "it is a pointer of Git LFS, not the file itself: run `git lfs pull` in "
            "its repository, or download the file"
        )
    file.seek(0)


def check_plain(
    path: str | os.PathLike[str],
    error: type[ToolkitError] = ModelFileError,
    missing: type[ToolkitError] = MissingFileError,
) -> None:
    """Raise unless a path names a plain file, or a link to one.

    To open a FIFO waits for a writer, and a device such as `/dev/zero` has no end.

    Args:
        path: of the file.
        error: the class to raise for a folder, FIFO, socket or device.
        missing: the class to raise where there is nothing.
    """
    label = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as found:
        raise missing(f"File not found: there is no file {label}") from found
    except (OSError, ValueError) as found:  # a loop of links, a null character
        raise error(f"{label} cannot be read ({found})") from found
    if not stat.S_ISREG(mode):
        kinds = [kind for kind, is_kind in _KINDS.items() if is_kind(mode)]
        kind = kinds[0] if kinds else "something else"
        raise error(f"{label}: expected a file; found {kind}")
