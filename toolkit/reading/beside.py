"""Names in a file of other files, which must lie beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from toolkit.errors import MissingFileError, ModelFileError

_MAX_NAME = 255  # bytes of a file's name, the most that file systems take
_SPECIAL = frozenset('/\\:*?"<>|')
_FLAGS = ("O_NOFOLLOW", "O_BINARY", "O_CLOEXEC", "O_NONBLOCK")


def is_bare(name: str) -> bool:
    """Whether it names a file of the same folder, on every system."""
    if not name.isprintable() or not _SPECIAL.isdisjoint(name):  # or half a character
        return False
    return name.strip(". ") != "" and len(name.encode()) <= _MAX_NAME


def open_beside(folder: Path, location: str) -> int:
    """A descriptor of a plain file in a folder, which a file names.

    Nothing but a name is followed: no link, no device, no other folder; and a file that
    has another name elsewhere is refused, for it may be someone else's.
    """
    if not is_bare(location):
        raise ModelFileError(
            f"expected data in a file beside it, by a bare name; found {location!r}: "
            "refused"
        )
    path = folder / location
    flags = os.O_RDONLY
    for flag in _FLAGS:  # those that the system has
        flags |= getattr(os, flag, 0)
    if path.is_symlink():
        raise ModelFileError(f"{location!r} is a link: refused")
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise MissingFileError(f"its data should be in {location!r}: not there") from (
            error
        )
    except OSError as error:
        raise ModelFileError(f"{location!r} cannot be read ({error})") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise ModelFileError(f"{location!r} is no plain file with one name: refused")
    return descriptor


def path_beside(listing: Path, name: str) -> Path:
    """The path of a file beside a list that names it.

    Hugging Face's cache has links to files with other names. There the list is such a
    link itself, and the files lie where it lies; no link may lead elsewhere.

    Raises:
        ModelFileError: it does.
    """
    folders = {Path(os.path.realpath(each)) for each in (listing.parent, listing)}
    folders = {each if each.is_dir() else each.parent for each in folders}
    found = Path(os.path.realpath(listing.with_name(name)))
    if found.parent not in folders:
        raise ModelFileError(
            f"{name!r} is a link that leads out of its folder: refused"
        )
    return found
