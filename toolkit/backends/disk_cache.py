"""Disk cache of compiled code and plans, shared by later processes.

TOOLKIT_CACHE_DIR sets the folder; "off" disables the cache. Cached code is executed, so
no other user may have write access to it or to its parent folders. A corrupt file
counts as missing. The folder can contain other files: the cache deletes only files with
its own names and marker, in its own folders. It follows no links.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolkit import settings
from toolkit.files.private import can_be_replaced, is_private

# Limit of the total size in bytes; above it, the least recently used files are deleted.
CACHE_BYTES = 256 * 2**20
# Seconds: a scan of ten thousand files takes longer than the compilation of a kernel.
SECONDS_BETWEEN_TRIMS = 600
_MARK = b"toolkit cache 1\n"
_DIGEST = 32
_NAMES = re.compile(r"\w{16,128}(-\d+)?(\.(algorithm|cubin|plan|tuned))?")
_NEW = re.compile(r"\.new-\w{8}")  # during a write
_ABANDONED = 3600  # seconds after which a temporary file is abandoned
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def folder(name: str) -> Path | None:
    """Return the cache folder; None if caching is off or the folder is unsafe.

    Args:
        name: of the folder in TOOLKIT_HOME; in TOOLKIT_CACHE_DIR, if set, its name is
            "toolkit-" and this.
    """
    override = settings.environment("CACHE_DIR")
    if override == "off":
        return None
    parent = Path(override).expanduser() if override else settings.home()
    path = parent / (f"toolkit-{name}" if override else name)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        directories = (parent, path) if override else (path,)
        is_safe = all(is_private(directory.stat()) for directory in directories)
        is_safe = is_safe and not can_be_replaced(Path(os.path.abspath(path)))
        return path if is_safe else None
    except OSError:
        return None


def load(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing, corrupt or foreign."""
    with suppress(OSError), open(path, "rb", opener=_open) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            return None
        if not is_private(path.parent.stat()):  # a subfolder of the cache folder
            return None
        content = file.read()
        os.utime(file.fileno() if os.utime in os.supports_fd else path)
        start = len(_MARK) + _DIGEST
        head, code = content[:start], content[start:]
        return code if head == _header(code) else None
    return None


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK)


def _header(code: bytes) -> bytes:
    return _MARK + hashlib.sha256(code).digest()


def store(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    # without the file, the next process computes the content again
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_header(content) + content)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def trim_periodically(folder: Path) -> None:
    """Call `trim` if no process has done so for some minutes."""
    marker = folder / ".trimmed"
    with suppress(OSError):
        if 0 <= time.time() - marker.lstat().st_mtime < SECONDS_BETWEEN_TRIMS:
            return
    with suppress(OSError):
        if not os.path.lexists(marker) or _is_marked(marker):
            store(marker, b"")
    trim(folder)


def trim(folder: Path) -> None:
    """Delete files above the size limit, and temporary files of dead processes."""
    with suppress(OSError):
        files = list(_files(folder))
        rows = sorted(row for row in files if _NAMES.fullmatch(row[2].name))
        for written, _, path in files:
            if _NEW.fullmatch(path.name) and written < time.time() - _ABANDONED:
                path.unlink(missing_ok=True)
        total = sum(size for _, size, _ in rows)
        for _, size, path in rows:
            if total <= CACHE_BYTES:
                break
            if _is_marked(path):
                path.unlink(missing_ok=True)
            total -= size


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield (time of last use, bytes, path) of each regular file in a folder."""
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, status.st_size, path


def _is_marked(path: Path) -> bool:
    """Return whether `store` has written a file."""
    with open(path, "rb", opener=_open) as file:
        return file.read(len(_MARK)) == _MARK
