"""Files in the same folder that another file refers to by name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from toolkit.errors import MissingFileError, ModelFileError

_MAX_NAME = 255  # bytes of a file name, the maximum of file systems
_SPECIAL = frozenset('/\\:*?"<>|')
_FLAGS = ("O_NOFOLLOW", "O_BINARY", "O_CLOEXEC", "O_NONBLOCK")


def is_plain_name(name: str) -> bool:
    """Return whether the name is a plain file name on every system."""
    if not name.isprintable() or not _SPECIAL.isdisjoint(name):  # or lone surrogates
        return False
    return name.strip(". ") != "" and len(name.encode()) <= _MAX_NAME


def open_sibling(folder: Path, location: str) -> int:
    """Open a regular file in a folder by a name from another file.

    Only a plain name is allowed. A link, a device or a path to another folder is
    refused. A file with a second hard link is refused, because another user can own it.
    """
    if not is_plain_name(location):
        raise ModelFileError(
            "expected data in a file of the same folder, as a plain name; received "
            f"{location!r}"
        )
    path = folder / location
    flags = os.O_RDONLY
    for flag in _FLAGS:  # the flags that the system supports
        flags |= getattr(os, flag, 0)
    if path.is_symlink():
        raise ModelFileError(f"{location!r} is a link")
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise MissingFileError(f"its data file {location!r} is missing") from (error)
    except OSError as error:
        raise ModelFileError(f"{location!r} cannot be read ({error})") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise ModelFileError(f"{location!r} is not a regular file with a single name")
    return descriptor


def sibling_path(index_path: Path, name: str) -> Path:
    """Return the path of a file that an index in the same folder names.

    Hugging Face's cache has links to files with other names. The index is then also a
    link, and the files are in the folder of its target. A link to any other folder is
    refused.

    Raises:
        ModelFileError: a link leads to another folder.
    """
    folders = {Path(os.path.realpath(path)) for path in (index_path.parent, index_path)}
    folders = {path if path.is_dir() else path.parent for path in folders}
    target = Path(os.path.realpath(index_path.with_name(name)))
    if target.parent not in folders:
        raise ModelFileError(f"{name!r} is a link to a path outside of its folder")
    return target
