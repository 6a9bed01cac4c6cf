"""Files that are written directly, with errors that name the folder and the fix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit.errors import UnwritableFileError
from toolkit.files.staging import describe_write_error


@contextmanager
def named_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Return a context that raises UnwritableFileError for each error of the system.

    Args:
        path: the path of the user, which the error contains.
    """
    try:
        yield
    except UnwritableFileError:
        raise
    except OSError as error:
        name, folder = os.fspath(path), Path(path).parent
        reason = describe_write_error(error, folder)
        raise UnwritableFileError(f"cannot write {name!r}: {reason}") from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8.

    Args:
        path: the path of the file; its folder exists.
        text: the content.

    Raises:
        UnwritableFileError: the file cannot be written.
    """
    with named_write_errors(path):
        Path(path).write_text(text, "utf-8")


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise an error if the folder of a file does not exist, before long work.

    Args:
        path: the path of a file that is written later.

    Raises:
        UnwritableFileError: the folder does not exist.
    """
    with named_write_errors(path):
        os.stat(Path(path).parent)
