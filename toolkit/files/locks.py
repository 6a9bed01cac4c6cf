"""Locks on open files, which the system releases when their owner dies."""

from __future__ import annotations

import errno
import os
import sys
import time

# Windows makes a locked range unreadable: lock a byte after all data.
_LOCK_OFFSET = 1 << 30
_RETRY_SECONDS = 0.02
_LOCKED_ERRORS = (errno.EACCES, errno.EDEADLK)


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

    offset = os.lseek(handle, 0, os.SEEK_CUR)
    os.lseek(handle, _LOCK_OFFSET, os.SEEK_SET)
    try:
        while True:
            try:
                return msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,no-any-return,unused-ignore]
            except OSError as error:
                if not wait or error.errno not in _LOCKED_ERRORS:
                    raise
            time.sleep(_RETRY_SECONDS)
    finally:
        os.lseek(handle, offset, os.SEEK_SET)
