"""Atomic file writes: files are written to a stage, synced and renamed.

A stage is a private folder next to the destination. Its owner holds a lock while it is
alive. One rename moves a file to its destination. A stage without a lock belongs to a
killed process; the next save of the same name removes it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.errors import UnwritableFileError
from toolkit.files.locks import lock

OWNER, FILES = "owner", "files"  # in a stage: the lock file, the folder of files
_LOCK_TEXT = b"toolkit: files that are being written\n"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# An open of a pipe does not wait for the other end.
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)  # no conversion of line endings
# Whether open files, and their folders, can be renamed and removed.
CAN_MOVE_OPEN_FILES: bool = sys.platform != "win32"
_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT: os.walk of Python 3.11 enters it
_RETRY_TIMEOUT, _RETRY_INTERVAL = 5.0, 0.02  # seconds


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Write a new file with `write`, sync it to disk and move it to `path`.

    On an error, an older file does not change. A link is followed.

    Raises:
        UnwritableFileError: the path is not writable, or is not a regular file.
    """
    target = Path(os.path.realpath(path))
    replace_files([target], lambda folder: write(folder / target.name), os.fspath(path))


def replace_files(
    targets: Sequence[Path], write: Callable[[Path], Any], display_name: str = ""
) -> None:
    """Write files into a folder, sync them to disk and move them to `targets`.

    If `write` fails, older files do not change.

    Args:
        targets: paths in one folder; links are not followed. The last one is moved
            last, so it must be the index file that readers open first.
        write: a function of a folder, which writes a file with each target's name.
        display_name: the user's name for the last target, for messages.

    Raises:
        UnwritableFileError: a target is not writable, or is not a regular file.
    """
    index_file = targets[-1]
    try:
        for target in targets:
            check_replaceable(target)
        remove_stale_stages(index_file.parent, index_file.name)
        with Stage(index_file.parent, index_file.name) as stage:
            write(stage.files)
            for target in targets:
                stage.move_file(stage.files / target.name, target)
    except OSError as error:
        label = display_name or str(index_file)
        reason = describe_write_error(error, index_file.parent)
        raise UnwritableFileError(f"cannot write {label!r}: {reason}") from error


def describe_write_error(error: OSError, folder: Path) -> str:
    """Return the reason of a failed write into a folder, without temporary names."""
    if error.errno is None or isinstance(error, UnwritableFileError):
        return str(error)
    name, reason = repr(str(folder)), error.strerror or os.strerror(error.errno)
    if not folder.exists():
        return f"the folder {name} does not exist; create it with os.makedirs({name})"
    if not folder.is_dir():
        return f"{name} is not a folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the file system of the folder {name} is full ({reason}); free space"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return f"the folder {name} is not writable ({reason}); choose another folder"
    return f"{reason} (in the folder {name})"


def check_replaceable(target: Path) -> None:
    """Raise an error if a file would replace a folder, a device or a similar object."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.lstat().st_mode):
            raise UnwritableFileError(
                f"{str(target)!r} exists and is not a regular file"
            )


class Stage:
    """Private folder for files before they are moved to their destination.

    Args:
        parent: the parent folder.
        name: the name of the data; it is the prefix of the stage's name.

    Attributes:
        folder: the stage.
        files: its subfolder for the files.
    """

    def __init__(self, parent: Path, name: str) -> None:
        self._parent, self._name = parent, name
        self._handle, self._is_published = -1, False
        try:
            while self._handle < 0:
                self.folder: Path = _unused_path(parent, name)
                # Until it is locked, another process can remove it as a stale stage.
                with suppress(FileExistsError):
                    self.folder.mkdir()
                    self._handle = _create_lock_file(self.folder / OWNER)
            self.files: Path = self.folder / FILES
            self.files.mkdir()
        except BaseException:
            self.close()
            raise

    def move_file(self, file: Path, target: Path) -> None:
        """Move a file of the stage to its destination and replace an older file."""
        with suppress(FileNotFoundError):
            file.chmod(stat.S_IMODE(target.stat().st_mode))
        flush(file)
        move_with_retries(os.replace, file, target)
        flush(target.parent)

    def publish(self, folder: Path) -> None:
        """Rename the stage, so that `close` does not remove it."""
        if not CAN_MOVE_OPEN_FILES:
            self._release_lock()
        self._is_published = True
        try:
            move_with_retries(os.rename, self.folder, folder)
        except OSError:
            self._is_published = False
            raise
        self.folder, self.files = folder, folder / FILES

    def unpublish(self) -> None:
        """Rename it back to the name of a stage, and ignore errors."""
        self.folder = rename_to_stage(self.folder, self._parent, self._name)
        self._is_published = False

    def close(self) -> None:
        """Remove the remaining files."""
        self._release_lock()
        if not self._is_published:
            remove_stage(self.folder)

    def _release_lock(self) -> None:
        # Two threads can close it at once; a closed descriptor can be reused.
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unused_path(parent: Path, name: str) -> Path:
    return parent / f".{name}.{os.urandom(4).hex()}.tmp"


def rename_to_stage(folder: Path, parent: Path, name: str) -> Path:
    """Rename a folder to a stage in one step, so that readers do not use it."""
    stage_folder = _unused_path(parent, name)
    move_with_retries(os.rename, folder, stage_folder)
    return stage_folder


def move_with_retries(
    move: Callable[[Path, Path], Any], source: Path, target: Path
) -> None:
    """Rename a file; on Windows, retry while a reader has it open."""
    deadline = time.monotonic() + _RETRY_TIMEOUT
    while True:
        try:
            move(source, target)
            return
        except PermissionError:
            if CAN_MOVE_OPEN_FILES or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_INTERVAL)


def _create_lock_file(path: Path) -> int:
    """Create a locked file; return -1 if it was removed in the meantime."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY
    try:
        handle = os.open(path, flags, 0o666)
    except FileNotFoundError:
        return -1
    try:
        lock(handle)
        os.write(handle, _LOCK_TEXT)
        if os.fstat(handle).st_nlink:
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return -1


def remove_stale_stages(parent: Path, name: str | None) -> None:
    """Remove the stages of killed processes.

    Args:
        parent: the folder with the stages.
        name: the name of the data; None means any.
    """
    name_pattern = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{name_pattern}\.[0-9a-f]{{8}}\.tmp", re.DOTALL)
    with suppress(OSError):
        with os.scandir(parent) as entries:
            folders = [Path(e) for e in entries if pattern.fullmatch(e.name)]
        for folder in folders:
            _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    """Remove a stage, unless it is in use or belongs to another program."""
    if not is_folder(folder):
        return
    if not (folder / OWNER).exists():  # the owner was killed before it created the mark
        with suppress(OSError):
            folder.rmdir()
        return
    handle = open_lock_file(folder)
    if handle is None:
        return
    try:
        is_stale = lock(handle, wait=False)
        if is_stale and CAN_MOVE_OPEN_FILES:
            remove_stage(folder)
    finally:
        os.close(handle)
    if is_stale and CAN_MOVE_OPEN_FILES:
        remove_empty_stage(folder)
    elif is_stale:
        remove_stage(folder)


def remove_stage(folder: Path) -> None:
    """Remove a stage, with its lock file last to identify an interrupted removal."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry)
            elif entry.name != OWNER:
                os.unlink(entry)
        (folder / OWNER).unlink(missing_ok=True)
        folder.rmdir()


def remove_empty_stage(folder: Path) -> None:
    """Remove the rest of a stage whose lock file was open during the removal.

    On NFS and FUSE, such a file has a temporary name in the same folder.
    """
    with suppress(OSError):
        folder.rmdir()


def open_lock_file(folder: Path) -> int | None:
    """Open the lock file of a stage, for `lock`; return None for other folders."""
    try:
        handle = os.open(
            folder / OWNER, os.O_RDONLY | _NO_FOLLOW | _NON_BLOCKING | _BINARY
        )
    except OSError:
        return None
    is_file = stat.S_ISREG(os.fstat(handle).st_mode)
    if is_file and _LOCK_TEXT.startswith(os.read(handle, 2 * len(_LOCK_TEXT))):
        return handle
    os.close(handle)
    return None


def is_folder(path: Path) -> bool:
    """Return whether the path is a real folder, not a link."""
    return path.is_dir() and not is_link(path)


def is_listed(path: Path) -> bool:
    """Return whether the parent folder lists the path with this exact name.

    A file system that treats two names as equal, for example case-insensitively, lists
    the first. Inode numbers are not reliable: some systems create one for each name.
    """
    return path.name in os.listdir(path.parent)


def is_link(path: Path) -> bool:
    """Return whether a path is a link or a Windows junction."""
    try:
        status = path.lstat()
    except (OSError, ValueError):  # a NUL character makes a name invalid
        return False
    return stat.S_ISLNK(status.st_mode) or (
        getattr(status, "st_reparse_tag", 0) == _JUNCTION
    )


def remove_links(parent: str, names: list[str]) -> list[str]:
    """Remove links from a list of folder names, for `os.walk`."""
    links = [name for name in names if is_link(Path(parent, name))]
    names[:] = [name for name in names if name not in links]
    return links


def flush(path: Path) -> None:
    """Sync a file or a folder's entries to disk."""
    is_windows = sys.platform == "win32"
    if is_windows and path.is_dir():
        return
    # Windows can flush only writable files.
    descriptor = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
