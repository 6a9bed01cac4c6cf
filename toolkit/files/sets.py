"""Files that belong together: at any moment all of one save, never some of two.

A save writes them into a stage (see `staging`), and flushes it to disk. Then the stage
is renamed to the one name under which readers look first: from this moment on, the new
files count. After that they get their places, each by a rename, and the folder goes.
What a kill leaves undone there, the next save does; until then, readers find all of it.
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

_GONE = "gone.json"  # in the stage: which files of the older save end with it
_TRIES = 100  # to read while others save
_Result = TypeVar("_Result")


class FileSet:
    """The files of a save, in one folder, which may hold others too.

    Args:
        root: the folder.
        name: of the save, different from that of others in the same folder.
        owns: whether a path in the folder, such as "assets/a/words.txt", may be one of
            the save's. No other path is written or removed, whatever a stage holds.
        key: the file in which each save differs from the others.
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
        """Where the files are: usually `root`."""
        return self._ready / FILES if self._is_ready() else self.root

    def read(self, read: Callable[[Path], _Result]) -> _Result:
        """What `read` makes of the folder with the files; again if they were replaced.

        Args:
            read: called with the folder.
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
        """Whether a save counts whose files may not all have their places yet."""
        if not is_folder(self._ready) or not is_folder(self._ready / FILES):
            return False
        handle = hold(self._ready)
        if handle is not None:
            os.close(handle)
        return handle is not None

    def _state(self) -> tuple[Path, Any, Any]:
        """Where the files are, and what differs once they have been replaced."""
        while True:
            folder = self.folder()
            ready, key = _identity(self._ready), _identity(folder / self._key)
            if ready or folder == self.root:
                return folder, ready, key
            # They have got their places meanwhile.

    # --- writing ----------------------------------------------------------------------

    @contextmanager
    def replace(self, older: Callable[[], list[str]] = list) -> Iterator[Path]:
        """A folder to write all files of a new save into; it counts when this ends.

        Args:
            older: called before anything is done: the paths of the older save, of which
                those are removed that the newer one does not have. It may raise where
                files are in the way.
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
        """Have the new files count, once they are on disk."""
        _flush_all(stage.folder)
        while True:
            try:
                stage.publish(self._ready)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            self.settle()  # another process saves, too
        flush(self.root)

    def settle(self) -> None:
        """Do what an interrupted save has left undone."""
        handle, tries = None, 0
        while handle is None:  # it comes and goes while others save
            if not os.path.lexists(self._ready):
                return
            if tries == _TRIES:
                raise UnwritableFileError(f"{str(self._ready)!r} is in the way")
            handle = hold(self._ready) if self._is_ready() else None
            tries += 1
        retired = None
        try:
            lock(handle)
            # Whoever held it may have finished it meanwhile, and others have come.
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
            with suppress(FileNotFoundError):  # of another process, which did the same
                remove(self._retire_ready())

    def _retire_ready(self) -> Path:
        return retire(self._ready, self.root, self._name)

    def _finish(self, ready: Path) -> None:
        """Give the files their places; whatever was done before is no harm."""
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
        except OSError:  # there are file systems without links
            shutil.copy(source, link)
            flush(link)
        patiently(os.replace, link, target)
        flush(target.parent)

    def _remove(self, path: str, identity: Any) -> None:
        """Remove a file of the older save, if it is still the one that was seen."""
        target = self.root / path
        if not self._owns(path) or not self._leads_inside(path):
            return
        with suppress(FileNotFoundError):
            if identity and _identity(target) == identity and target.is_file():
                target.unlink()

    def _check(self, path: str) -> None:
        """Raise unless a path is one of the save's, and leads to nothing else."""
        if not self._owns(path) or not self._leads_inside(path):
            raise UnwritableFileError(
                f"{str(self.root / path)!r} leads elsewhere, or is no file of this save"
            )
        check_replaceable(self.root / path)

    def _leads_inside(self, path: str) -> bool:
        """Whether each folder on the way is a folder, or not there."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            return False
        places = [self.root / parent for parent in Path(path).parents]
        return all(is_folder(p) for p in places if os.path.lexists(p))


def _identity(path: Path) -> list[int] | None:
    """What tells a file from others that have its name later; None: there is none."""
    try:
        found = path.lstat()
    except (OSError, ValueError):  # a name with a zero in it is no name
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _has(file: os.stat_result, path: Path) -> bool:
    """Whether a file is the one that has this path now."""
    with suppress(OSError):
        return os.path.samestat(file, path.lstat())
    return False


def paths_below(folder: Path) -> list[str]:
    """The files below a folder, in a fixed order; links are none."""
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
    """For `os.walk`, which takes a folder that it cannot read for an empty one."""
    raise error
