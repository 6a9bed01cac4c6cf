"""What is compiled or planned, on disk, so that the next process need not do it again.

TOOLKIT_CACHE_DIR says where; "off": nowhere. Code is run as it is read, so nobody else
may be able to write it, and what is damaged is as if it were not there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from toolkit import config

# Files beyond this many bytes are dropped, those not used for longest first.
CACHE_BYTES = 256 * 2**20
_DIGEST = 32


def folder(name: str) -> Path | None:
    """The folder to keep files in; None if caching is off or not safe there.

    Args:
        name: of the folder in TOOLKIT_HOME, unless TOOLKIT_CACHE_DIR is set.
    """
    chosen = config.environment("CACHE_DIR")
    if chosen == "off":
        return None
    found = Path(chosen).expanduser() if chosen else config.home() / name
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return found if _is_private(found) else None


def _is_private(path: Path) -> bool:
    """Whether nobody else could have written it: machine code is trusted blindly."""
    if not hasattr(os, "getuid"):
        return True
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def load(path: Path) -> bytes | None:
    """The content of a file, None if it is missing, damaged or not ours."""
    try:
        if not _is_private(path):
            return None
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    digest, code = content[:_DIGEST], content[_DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def store(path: Path, content: bytes) -> None:
    """Write a file so that other processes see it whole or not at all."""
    with suppress(OSError):  # what cannot be kept is made again
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)


def trim(folder: Path) -> None:
    """Drop the files that are too many."""
    with suppress(OSError):
        files = [path for path in folder.rglob("*") if path.is_file()]
        rows = [((s := path.stat()).st_mtime, s.st_size, path) for path in files]
        total = sum(size for _, size, _ in rows)
        for _, size, path in sorted(rows):
            if total <= CACHE_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= size
