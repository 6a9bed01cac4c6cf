"""Emulate restrictions of other systems, to test saves as on those systems."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

from toolkit.files import sets, staging

_OPEN = Path("/proc/self/fd")


def open_below(path):
    """Return the open files of this process at a path, or in the folder."""
    open_paths = []
    for entry in os.listdir(_OPEN):
        try:
            target = os.readlink(_OPEN / entry)
        except OSError:  # the descriptor that lists the folder
            continue
        if target == path or target.startswith(f"{path}/"):
            open_paths.append(target)
    return open_paths


def take_for_junction(monkeypatch, folder):
    """Let a folder appear as a junction of Windows, a link to another folder."""

    def lstat(path, real=Path.lstat):
        status = real(path)
        if path != folder:
            return status
        fields = {x: getattr(status, x) for x in dir(status) if x.startswith("st_")}
        return SimpleNamespace(**fields, st_reparse_tag=0xA0000003)

    monkeypatch.setattr(Path, "lstat", lstat)


def as_where_names_are_alike(monkeypatch):
    """List one of several names that differ only in case or Unicode composition."""

    def listdir(path, real=os.listdir):
        names = {plain(name): name for name in sorted(real(path), reverse=True)}
        return list(names.values())

    def plain(name):
        return unicodedata.normalize("NFC", name).casefold()

    monkeypatch.setattr(os, "listdir", listdir)


def as_on_nfs(monkeypatch):
    """Keep a removed open file in its folder, under another name, until its close."""
    hidden = []

    def unlink(path, *, dir_fd=None, real=os.unlink):
        full_path = os.path.realpath(path)
        if dir_fd is not None or not open_below(full_path):
            return real(path, dir_fd=dir_fd)
        hidden.append(os.path.join(os.path.dirname(full_path), f".nfs{len(hidden)}"))
        os.rename(full_path, hidden[-1])

    def close(descriptor, real=os.close, remove=os.unlink):
        real(descriptor)
        for path in [path for path in hidden if not open_below(path)]:
            hidden.remove(path)
            remove(path)

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "close", close)


def as_on_windows(monkeypatch):
    """Forbid the restricted operations of Windows.

    These are moves and removals of open files, a flush without write access, and reads
    of files that another process has locked.
    """

    def unless_open(function, path_count=1):
        def checked(*paths, **options):
            full_paths = () if "dir_fd" in options else paths[:path_count]
            for path in map(os.path.realpath, full_paths):
                if open_path := open_below(path):
                    raise PermissionError(errno.EACCES, "it is open", open_path[0])
            return function(*paths, **options)

        return checked

    def fsync(descriptor, real=os.fsync):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "it cannot be written")
        real(descriptor)

    def locking(descriptor, mode, count):
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert offset > os.fstat(descriptor).st_size, "what is locked cannot be read"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "it is locked") from None

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(
        sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2)
    )
    for name, paths_to_check in [
        ("rename", 2),
        ("replace", 2),
        ("unlink", 1),
        ("rmdir", 1),
    ]:
        monkeypatch.setattr(os, name, unless_open(getattr(os, name), paths_to_check))
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.delattr(os, "getuid")
    for module in (sets, staging):
        monkeypatch.setattr(module, "CAN_MOVE_OPEN_FILES", False)
