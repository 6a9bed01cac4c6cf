"""Files that are written aside and then appear whole, flushed to disk.

What is written goes into a stage: a folder of ours beside its place, whose owner holds
a lock as long as it lives. A file is moved from there by one rename. A stage that
nobody holds was left by a process that was killed; the next save of the same name
removes it.
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

OWNER, FILES = "owner", "files"  # in a stage: what is locked, what is written
_MARK = b"toolkit: files that are being written\n"
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # for somebody at the other end of a pipe
_AS_IS = getattr(os, "O_BINARY", 0)  # no other ends of lines
# Whether a file can be renamed and removed that is open, and the folders that it is in.
OPEN_MAY_GO: bool = sys.platform != "win32"
_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT: os.walk of Python 3.11 enters it
_PATIENCE, _PAUSE = 5.0, 0.02  # seconds


def replace_file(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Let `write` fill a new file, then move it to `path`, flushed to disk.

    If anything fails, an older file stays as it was. A link is followed.

    Raises:
        UnwritableFileError: it cannot be written, or is there and no regular file.
    """
    target = Path(os.path.realpath(path))
    replace_files([target], lambda folder: write(folder / target.name), os.fspath(path))


def replace_files(
    targets: Sequence[Path], write: Callable[[Path], Any], given: str = ""
) -> None:
    """Let `write` fill a folder, then move its files to `targets`, flushed to disk.

    If `write` fails, older files stay as they were.

    Args:
        targets: paths in one folder; links are not followed. The file by which readers
            find the others is the last one, for it is moved last.
        write: called with a folder, where it writes a file of each target's name.
        given: the name of the last one as the user knows it, for messages.

    Raises:
        UnwritableFileError: one cannot be written, or is there and no regular file.
    """
    last = targets[-1]
    try:
        for target in targets:
            check_replaceable(target)
        sweep(last.parent, last.name)
        with Stage(last.parent, last.name) as stage:
            write(stage.files)
            for target in targets:
                stage.deliver(stage.files / target.name, target)
    except OSError as error:
        shown = given or str(last)
        raise UnwritableFileError(f"cannot write {shown!r}: {error}") from error


def check_replaceable(target: Path) -> None:
    """Raise where a file would take the place of a folder, a device or the like."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.lstat().st_mode):
            raise UnwritableFileError(f"{str(target)!r} is there, and no regular file")


class Stage:
    """A new folder of ours, to write files into before they go where they belong.

    Args:
        parent: the folder in which it is made.
        name: of what is written; the stage's own name begins with it.

    Attributes:
        folder: the stage.
        files: the folder in it for the files.
    """

    def __init__(self, parent: Path, name: str) -> None:
        self._parent, self._name = parent, name
        self._handle, self._is_published = -1, False
        try:
            while self._handle < 0:
                self.folder: Path = _unused(parent, name)
                # Whoever sweeps may take it for an old one until it is locked.
                with suppress(FileExistsError):
                    self.folder.mkdir()
                    self._handle = _own(self.folder / OWNER)
            self.files: Path = self.folder / FILES
            self.files.mkdir()
        except BaseException:
            self.close()
            raise

    def deliver(self, file: Path, target: Path) -> None:
        """Move a file of the stage to its place, which may hold an older one."""
        with suppress(FileNotFoundError):
            file.chmod(stat.S_IMODE(target.stat().st_mode))
        flush(file)
        patiently(os.replace, file, target)
        flush(target.parent)

    def publish(self, folder: Path) -> None:
        """Give the stage another name, under which `close` does not remove it."""
        if not OPEN_MAY_GO:
            self._release()
        self._is_published = True
        try:
            patiently(os.rename, self.folder, folder)
        except OSError:
            self._is_published = False
            raise
        self.folder, self.files = folder, folder / FILES

    def withdraw(self) -> None:
        """Give it the name of a stage again, whatever happens then."""
        self.folder = retire(self.folder, self._parent, self._name)
        self._is_published = False

    def close(self) -> None:
        """Remove what is left of it."""
        self._release()
        if not self._is_published:
            remove(self.folder)

    def _release(self) -> None:
        # Two threads may close it at once; a number that is free may be another file's.
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unused(parent: Path, name: str) -> Path:
    return parent / f".{name}.{os.urandom(4).hex()}.tmp"


def retire(folder: Path, parent: Path, name: str) -> Path:
    """Make a folder a stage in one step, so that nobody takes it for a whole one."""
    retired = _unused(parent, name)
    patiently(os.rename, folder, retired)
    return retired


def patiently(move: Callable[[Path, Path], Any], source: Path, target: Path) -> None:
    """Rename; where a reader may be in the way, once that has closed its file."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            move(source, target)
            return
        except PermissionError:
            if OPEN_MAY_GO or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def _own(path: Path) -> int:
    """A new file, locked; -1 if somebody has removed it meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK | _AS_IS
    try:
        handle = os.open(path, flags, 0o666)
    except FileNotFoundError:
        return -1
    try:
        lock(handle)
        os.write(handle, _MARK)
        if os.fstat(handle).st_nlink:
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return -1


def sweep(parent: Path, name: str | None) -> None:
    """Remove the stages that processes which were killed have left for a name.

    Args:
        parent: the folder with the stages.
        name: of what was written; None for any.
    """
    given = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{given}\.[0-9a-f]{{8}}\.tmp", re.DOTALL)
    with suppress(OSError):
        with os.scandir(parent) as entries:
            found = [Path(e) for e in entries if pattern.fullmatch(e.name)]
        for folder in found:
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    """Remove a stage, unless somebody is at work in it, or it is no stage of ours."""
    if not is_folder(folder):
        return
    if not (folder / OWNER).exists():  # killed before it was marked
        with suppress(OSError):
            folder.rmdir()
        return
    handle = hold(folder)
    if handle is None:
        return
    try:
        is_left = lock(handle, wait=False)
        if is_left and OPEN_MAY_GO:
            remove(folder)
    finally:
        os.close(handle)
    if is_left and OPEN_MAY_GO:
        remove_rest(folder)
    elif is_left:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a stage; its owner last, by which it is known if this is interrupted."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry)
            elif entry.name != OWNER:
                os.unlink(entry)
        (folder / OWNER).unlink(missing_ok=True)
        folder.rmdir()


def remove_rest(folder: Path) -> None:
    """Remove a stage that was removed while its owner was open, which is closed now.

    On NFS and in FUSE such a file has another name until then, in the same folder.
    """
    with suppress(OSError):
        folder.rmdir()


def hold(folder: Path) -> int | None:
    """The open owner of a stage, for `lock`; None if the folder is no stage of ours."""
    try:
        handle = os.open(folder / OWNER, os.O_RDONLY | _NO_LINK | _NO_WAIT | _AS_IS)
    except OSError:
        return None
    is_file = stat.S_ISREG(os.fstat(handle).st_mode)
    if is_file and _MARK.startswith(os.read(handle, 2 * len(_MARK))):
        return handle
    os.close(handle)
    return None


def is_folder(path: Path) -> bool:
    """Whether it is a folder, and no link to one."""
    return path.is_dir() and not is_link(path)


def is_listed(path: Path) -> bool:
    """Whether its folder has it by this very name.

    A file system that takes two names for the same, such as names that differ in case,
    lists the first. Numbers of files do not tell: some make one up for each name.
    """
    return path.name in os.listdir(path.parent)


def is_link(path: Path) -> bool:
    """Whether a path stands for another one: a link, or a junction of Windows."""
    try:
        found = path.lstat()
    except (OSError, ValueError):  # a name with a zero in it is no name
        return False
    return stat.S_ISLNK(found.st_mode) or (
        getattr(found, "st_reparse_tag", 0) == _JUNCTION
    )


def take_links(place: str, folders: list[str]) -> list[str]:
    """For `os.walk`: the names of folders that are links, taken out of the list."""
    links = [name for name in folders if is_link(Path(place, name))]
    folders[:] = [name for name in folders if name not in links]
    return links


def flush(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to disk."""
    is_windows = sys.platform == "win32"
    if is_windows and path.is_dir():
        return
    # Windows flushes only what may be written.
    descriptor = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot do this for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
