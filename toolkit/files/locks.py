"""Locks on open files, which the system releases when their owner dies."""

from __future__ import annotations

import errno
import os
import sys
import time

# Windows makes a locked range unreadable: lock a byte after all data.
_BYTE = 1 << 30
_PAUSE = 0.02  # seconds
_TAKEN = (errno.EACCES, errno.EDEADLK)


def lock(handle: int, wait: bool = True) -> bool:
    """Lock an open file until it is closed.

    Returns:
        Whether it is locked; False also if the file system or Python has no locks.
    """
    try:
        if sys.platform == "win32":
            _lock_byte(handle, wait)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (OSError, ImportError):
        return False
    return True


def _lock_byte(handle: int, wait: bool) -> None:
    """Lock a byte on Windows, where a blocking lock fails after ten seconds."""
    import msvcrt

    place = os.lseek(handle, 0, os.SEEK_CUR)
    os.lseek(handle, _BYTE, os.SEEK_SET)
    try:
        while True:
            try:
                return msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,no-any-return,unused-ignore]
            except OSError as error:
                if not wait or error.errno not in _TAKEN:
                    raise
            time.sleep(_PAUSE)
    finally:
        os.lseek(handle, place, os.SEEK_SET)
