"""Files that are trusted: whether somebody else could have written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_private(status: os.stat_result) -> bool:
    """Whether nobody else could have written it: machine code is trusted blindly."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & _OTHERS


def writable_by_others(path: Path) -> Path | None:
    """What of a path somebody else could replace: it, or a folder on the way to it.

    Args:
        path: absolute, without links.

    Returns:
        The file or folder; None if there is none. The administrator is nobody else. In
        a folder such as /tmp, where all may write, but nobody may replace what is
        another's, there may be folders, and no such file.
    """
    if not hasattr(os, "getuid"):
        return None
    for place in (path, *path.parents):
        status = place.lstat()
        is_shared = status.st_mode & stat.S_ISVTX and place not in (path, path.parent)
        if status.st_mode & _OTHERS and not is_shared:
            return place
        if status.st_uid not in (0, os.getuid()):
            return place
    return None
