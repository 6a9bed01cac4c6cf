"""Errors of whatever a file makes happen, told as errors of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def check_present(path: Path) -> None:
    """Raise unless there is a file."""
    if not path.is_file():
        raise MissingFileError(f"File not found: there is no file {str(path)!r}")
