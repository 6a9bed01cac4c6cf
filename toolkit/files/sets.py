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
    FILES,
    OPEN_MAY_GO,
    OWNER,
    Stage,
    check_replaceable,
    flush,
    hold,
    is_folder,
    patiently,
    remove,
    remove_rest,
    retire,
    sweep,
)

_GONE = "gone.json"  # in the stage: files of the older save to remove
_TRIES = 100  # read attempts during concurrent saves
_Result = TypeVar("_Result")


class FileSet:
    """Files of a save in one folder, which can contain other files.

    Args:
        root: the folder.
        name: the name of the save, unique in the folder.
        owns: a function that returns whether a path in the folder, such as
            "assets/a/words.txt", can belong to the save. No other path is written or
            removed.
        key: a file that differs between saves.
    """

    def __init__(
        self, root: Path, name: str, owns: Callable[[str], bool], key: str
    ) -> None:
        self.root: Path = Path(os.path.realpath(root))
        self._name = name
        self._owns, self._key = owns, key
        self._ready = self.root / f".{name}.ready"

    # --- reading ----------------------------------------------------------------------

    def folder(self) -> Path:
        """Return the folder with the files: usually `root`."""
        return self._ready / FILES if self._is_ready() else self.root

    def read(self, read: Callable[[Path], _Result]) -> _Result:
        """Return the result of `read` for the folder; retry if the files were replaced.

        Args:
            read: a function of the folder.
        """
        for _ in range(_TRIES):
            before, error, result = self._state(), None, None
            folder, *_ = before
            try:
                result = read(folder)
            except Exception as caught:
                error = caught
            if before == self._state():
                break
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def _is_ready(self) -> bool:
        """Return whether a committed save exists whose files are not all moved."""
        if not is_folder(self._ready) or not is_folder(self._ready / FILES):
            return False
        handle = hold(self._ready)
        if handle is not None:
            os.close(handle)
        return handle is not None

    def _state(self) -> tuple[Path, Any, Any]:
        """Return the folder, and an identity that differs after a replacement."""
        while True:
            folder = self.folder()
            ready, key = _identity(self._ready), _identity(folder / self._key)
            if ready or folder == self.root:
                return folder, ready, key
            # The files were moved to their final paths in the meantime.

    # --- writing ----------------------------------------------------------------------

    @contextmanager
    def replace(self, older: Callable[[], list[str]] = list) -> Iterator[Path]:
        """Return a context with a folder for a new save; its end commits the save.

        Args:
            older: a function that runs first and returns the paths of the older save.
                Paths that the new save does not have are removed. It can raise an error
                if other files are in the way.
        """
        try:
            self.settle()
            sweep(self.root, self._name)
            gone = older()
            with Stage(self.root, self._name) as stage:
                yield stage.files
                new = paths_below(stage.files)
                for path in new:
                    self._check(path)
                old = set(gone).difference(new)
                identities = {p: _identity(self.root / p) for p in old}
                (stage.folder / _GONE).write_text(json.dumps(identities), "utf-8")
                self._commit(stage)
                self._finish(stage.folder)
                stage.withdraw()
        except UnwritableFileError:
            raise
        except OSError as error:
            raise UnwritableFileError(
                f"cannot write into {str(self.root)!r}: {error}"
            ) from error

    def _commit(self, stage: Stage) -> None:
        """Commit the new files after a sync to disk."""
        _flush_all(stage.folder)
        while True:
            try:
                stage.publish(self._ready)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            self.settle()  # another process saves too
        flush(self.root)

    def settle(self) -> None:
        """Complete an interrupted save."""
        handle, tries = None, 0
        while handle is None:  # the folder can disappear during concurrent saves
            if not os.path.lexists(self._ready):
                return
            if tries == _TRIES:
                raise UnwritableFileError(f"{str(self._ready)!r} is in the way")
            handle = hold(self._ready) if self._is_ready() else None
            tries += 1
        retired = None
        try:
            lock(handle)
            # The previous lock owner can have completed and replaced it.
            owner = os.fstat(handle)
            is_left = _has(owner, self._ready / OWNER)
            if is_left:
                self._finish(self._ready)
                if OPEN_MAY_GO:
                    retired = self._retire_ready()
                    remove(retired)
        finally:
            os.close(handle)
        if retired is not None:
            remove_rest(retired)
        elif is_left and _has(owner, self._ready / OWNER):
            with suppress(FileNotFoundError):  # another process moved it already
                remove(self._retire_ready())

    def _retire_ready(self) -> Path:
        return retire(self._ready, self.root, self._name)

    def _finish(self, ready: Path) -> None:
        """Move the files to their final paths; idempotent."""
        for path in paths_below(ready / FILES):
            self._check(path)
            self._place(ready, path)
        for path, identity in json.loads((ready / _GONE).read_text("utf-8")).items():
            self._remove(path, identity)
        flush(self.root)

    def _place(self, ready: Path, path: str) -> None:
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
        patiently(os.replace, link, target)
        flush(target.parent)

    def _remove(self, path: str, identity: Any) -> None:
        """Remove a file of the older save, if it is still the same file."""
        target = self.root / path
        if not self._owns(path) or not self._leads_inside(path):
            return
        with suppress(FileNotFoundError):
            if identity and _identity(target) == identity and target.is_file():
                target.unlink()

    def _check(self, path: str) -> None:
        """Raise an error unless a path belongs to the save and contains no links."""
        if not self._owns(path) or not self._leads_inside(path):
            raise UnwritableFileError(
                f"{str(self.root / path)!r} leads elsewhere, or is no file of this save"
            )
        check_replaceable(self.root / path)

    def _leads_inside(self, path: str) -> bool:
        """Return whether each folder on the path is a real folder or missing."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            return False
        places = [self.root / parent for parent in Path(path).parents]
        return all(is_folder(p) for p in places if os.path.lexists(p))


def _identity(path: Path) -> list[int] | None:
    """Return the identity of a file, which differs for later files, or None."""
    try:
        found = path.lstat()
    except (OSError, ValueError):  # a NUL character makes a name invalid
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _has(file: os.stat_result, path: Path) -> bool:
    """Return whether a path still refers to this file."""
    with suppress(OSError):
        return os.path.samestat(file, path.lstat())
    return False


def paths_below(folder: Path) -> list[str]:
    """Return the files below a folder in a fixed order, without links."""
    found = []
    for place, _, names in os.walk(folder, onerror=fail):
        paths = [Path(place, name) for name in names]
        found += [p for p in paths if stat.S_ISREG(p.lstat().st_mode)]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _flush_all(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False, onerror=fail):
        for name in names:
            flush(Path(place, name))
        flush(Path(place))


def fail(error: OSError) -> None:
    """Raise an error of `os.walk`, which otherwise ignores unreadable folders."""
    raise error
