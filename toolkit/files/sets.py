"""Sets of files with atomic replacement: readers see all files of one save.

A save writes the files into a stage (see `staging`), and syncs it to disk. A rename of
the stage to a ready name commits the save: readers look there first. Then each file is
renamed to its final path, and the folder is removed. If this is interrupted, the next
save completes it. Until then, readers find all files.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from toolkit.errors import UnwritableFileError
from toolkit.files.locks import lock
from toolkit.files.staging import (
    CAN_MOVE_OPEN_FILES,
    FILES,
    OWNER,
    Stage,
    check_replaceable,
    describe_write_error,
    flush,
    is_folder,
    move_with_retries,
    open_lock_file,
    remove_empty_stage,
    remove_stage,
    remove_stale_stages,
    rename_to_stage,
)

_OBSOLETE_FILES = "gone.json"  # in the stage: files of the older save to remove
_MAX_ATTEMPTS = 100  # read attempts during concurrent saves
_Result = TypeVar("_Result")


class FileSet:
    """Files of a save in one folder, which can contain other files.

    Args:
        root: the folder.
        name: the name of the save, unique in the folder.
        is_member: a function that returns whether a path in the folder, such as
            "assets/a/words.txt", can belong to the save. No other path is written or
            removed.
        key: a file that differs between saves.
    """

    def __init__(
        self, root: Path, name: str, is_member: Callable[[str], bool], key: str
    ) -> None:
        self.root: Path = Path(os.path.realpath(root))
        self._name = name
        self._is_member, self._key = is_member, key
        self._ready_folder = self.root / f".{name}.ready"

    # --- reading ----------------------------------------------------------------------

    def folder(self) -> Path:
        """Return the folder with the files: usually `root`."""
        return self._ready_folder / FILES if self._is_ready() else self.root

    def read(self, read: Callable[[Path], _Result]) -> _Result:
        """Return the result of `read` for the folder; retry if the files were replaced.

        Args:
            read: a function of the folder.
        """
        for _ in range(_MAX_ATTEMPTS):
            state, error, result = self._state(), None, None
            folder, *_ = state
            try:
                result = read(folder)
            except Exception as exception:
                error = exception
            if state == self._state():
                break
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def _is_ready(self) -> bool:
        """Return whether a committed save exists whose files are not all moved."""
        if not is_folder(self._ready_folder) or not is_folder(
            self._ready_folder / FILES
        ):
            return False
        handle = open_lock_file(self._ready_folder)
        if handle is not None:
            os.close(handle)
        return handle is not None

    def _state(self) -> tuple[Path, Any, Any]:
        """Return the folder, and an identity that differs after a replacement."""
        while True:
            folder = self.folder()
            ready, key = _identity(self._ready_folder), _identity(folder / self._key)
            if ready or folder == self.root:
                return folder, ready, key
            # The files were moved to their final paths in the meantime.

    # --- writing ----------------------------------------------------------------------

    @contextmanager
    def replace(self, list_old_paths: Callable[[], list[str]] = list) -> Iterator[Path]:
        """Return a context with a folder for a new save; its end commits the save.

        Args:
            list_old_paths: a function that runs first and returns the paths of the
                older save. Paths that the new save does not have are removed. It can
                raise an error if other files block the save.
        """
        try:
            self.complete_interrupted_save()
            remove_stale_stages(self.root, self._name)
            old_paths = list_old_paths()
            with Stage(self.root, self._name) as stage:
                yield stage.files
                new_paths = list_files(stage.files)
                for path in new_paths:
                    self._check(path)
                obsolete_paths = set(old_paths).difference(new_paths)
                identities = {p: _identity(self.root / p) for p in obsolete_paths}
                (stage.folder / _OBSOLETE_FILES).write_text(
                    json.dumps(identities), "utf-8"
                )
                self._commit(stage)
                self._finish_save(stage.folder)
                stage.unpublish()
        except UnwritableFileError:
            raise
        except OSError as error:
            raise UnwritableFileError(
                f"cannot write into {str(self.root)!r}: "
                f"{describe_write_error(error, self.root)}"
            ) from error

    def _commit(self, stage: Stage) -> None:
        """Commit the new files after a sync to disk."""
        _flush_all(stage.folder)
        while True:
            try:
                stage.publish(self._ready_folder)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            self.complete_interrupted_save()  # another process saves too
        flush(self.root)

    def complete_interrupted_save(self) -> None:
        """Complete an interrupted save."""
        handle, attempts = None, 0
        while handle is None:  # the folder can disappear during concurrent saves
            if not os.path.lexists(self._ready_folder):
                return
            if attempts == _MAX_ATTEMPTS:
                raise UnwritableFileError(
                    f"{str(self._ready_folder)!r} blocks this path"
                )
            handle = open_lock_file(self._ready_folder) if self._is_ready() else None
            attempts += 1
        retired_folder = None
        try:
            lock(handle)
            # The previous lock owner can have completed and replaced it.
            owner = os.fstat(handle)
            is_current = _is_file_at(owner, self._ready_folder / OWNER)
            if is_current:
                self._finish_save(self._ready_folder)
                if CAN_MOVE_OPEN_FILES:
                    retired_folder = self._retire_ready()
                    remove_stage(retired_folder)
        finally:
            os.close(handle)
        if retired_folder is not None:
            remove_empty_stage(retired_folder)
        elif is_current and _is_file_at(owner, self._ready_folder / OWNER):
            with suppress(FileNotFoundError):  # another process moved it already
                remove_stage(self._retire_ready())

    def _retire_ready(self) -> Path:
        return rename_to_stage(self._ready_folder, self.root, self._name)

    def _finish_save(self, ready: Path) -> None:
        """Move the files to their final paths; idempotent."""
        for path in list_files(ready / FILES):
            self._check(path)
            self._move_file(ready, path)
        for path, identity in json.loads(
            (ready / _OBSOLETE_FILES).read_text("utf-8")
        ).items():
            self._remove(path, identity)
        flush(self.root)

    def _move_file(self, ready: Path, path: str) -> None:
        source, target = ready / FILES / path, self.root / path
        if target.exists() and target.samefile(source):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        link = ready / "next"
        link.unlink(missing_ok=True)
        try:
            os.link(source, link)
        except OSError:  # some file systems have no links
            shutil.copy(source, link)
            flush(link)
        move_with_retries(os.replace, link, target)
        flush(target.parent)

    def _remove(self, path: str, identity: Any) -> None:
        """Remove a file of the older save, if it is still the same file."""
        target = self.root / path
        if not self._is_member(path) or not self._is_inside_root(path):
            return
        with suppress(FileNotFoundError):
            if identity and _identity(target) == identity and target.is_file():
                target.unlink()

    def _check(self, path: str) -> None:
        """Raise an error unless a path belongs to the save and contains no links."""
        if not self._is_member(path) or not self._is_inside_root(path):
            raise UnwritableFileError(
                f"{str(self.root / path)!r} is a link, or is not a file of this save"
            )
        check_replaceable(self.root / path)

    def _is_inside_root(self, path: str) -> bool:
        """Return whether each folder on the path is a real folder or missing."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            return False
        parents = [self.root / parent for parent in Path(path).parents]
        return all(is_folder(folder) for folder in parents if os.path.lexists(folder))


def _identity(path: Path) -> list[int] | None:
    """Return the identity of a file, which differs for later files, or None."""
    try:
        status = path.lstat()
    except (OSError, ValueError):  # a NUL character makes a name invalid
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _is_file_at(status: os.stat_result, path: Path) -> bool:
    """Return whether a path still refers to this file."""
    with suppress(OSError):
        return os.path.samestat(status, path.lstat())
    return False


def list_files(folder: Path) -> list[str]:
    """Return the files below a folder in a fixed order, without links."""
    files = []
    for parent, _, names in os.walk(folder, onerror=raise_error):
        paths = [Path(parent, name) for name in names]
        files += [p for p in paths if stat.S_ISREG(p.lstat().st_mode)]
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _flush_all(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False, onerror=raise_error):
        for name in names:
            flush(Path(parent, name))
        flush(Path(parent))


def raise_error(error: OSError) -> None:
    """Raise an error of `os.walk`, which otherwise ignores unreadable folders."""
    raise error
