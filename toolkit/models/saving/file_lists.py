"""Weights in several files, and the list that tells which of them is in which.

As in Keras and at Hugging Face, a list is a JSON object with `weight_map`, name of an
array or of a group -> name of a file, or of several; and `metadata`. The files lie
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from os.path import lexists
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from toolkit.console.frames import warn
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.files.sets import FileSet
from toolkit.reading.beside import is_bare, path_beside
from toolkit.reading.budget import limited_load, spend
from toolkit.reading.clear import naming
from toolkit.reading.text import parsed_json

_MAX_LIST = 1 << 25  # bytes of a list, enough for 300,000 arrays
_MAX_FILES = 500  # that are open at the same time
_Content = TypeVar("_Content")


class Listing(NamedTuple):
    """What a list says.

    where: the files that an array or a group is in. written: the files that a save here
    has written, with what the list says of them, such as a checksum.
    """

    where: dict[str, list[str]]
    written: dict[str, Any]

    @property
    def names(self) -> list[str]:
        """The files."""
        return list(dict.fromkeys(n for names in self.where.values() for n in names))


class FileList:
    """A list of files with weights, and these files.

    Args:
        path: of the list.
        numbered: a pattern of what stands before the ending of a name that a save here
            gives.
        ending: of the names of all files.
    """

    def __init__(self, path: Path, numbered: str, ending: str) -> None:
        own = re.compile(numbered + re.escape(ending))
        self._path, self._ending = path, ending
        self.files: FileSet = FileSet(
            path.parent,
            path.name,
            lambda name: name == path.name or bool(own.fullmatch(name)),
            path.name,
        )

    # --- reading ----------------------------------------------------------------------

    @contextmanager
    def open(
        self, open_file: Callable[[Path], AbstractContextManager[_Content]]
    ) -> Iterator[tuple[Listing, dict[str, _Content]]]:
        """What the list says, and all files that it names, in one load of them.

        Raises:
            MissingFileError: the list or a file is not there.
            ModelFileError: the list is damaged, or names files that do not lie beside
                it.
        """
        path = self.files.folder() / self._path.name
        listing = self.listing()
        with naming(self._path):
            files = {name: path_beside(path, name) for name in listing.names}
        with limited_load(path, *files.values()), ExitStack() as stack:
            yield (
                listing,
                {n: stack.enter_context(open_file(file)) for n, file in files.items()},
            )

    def listing(self) -> Listing:
        """What the list says, once all names in it are plain ones."""
        path, label = self.files.folder() / self._path.name, repr(str(self._path))
        if not path.is_file():
            raise MissingFileError(f"File not found: there is no file {label}")
        size = path.stat().st_size
        if size > _MAX_LIST:
            raise ModelFileError(f"{label}: {size} bytes, too long for a list of files")
        with limited_load(path):
            spend(size, "the list")
            found = parsed_json(path.read_bytes(), label, unique=True)
        where = found.get("weight_map") if isinstance(found, dict) else None
        if not isinstance(where, dict):
            raise ModelFileError(
                f'{label}: expected a list of files, under "weight_map"'
            )
        listing = Listing(
            {key: x if isinstance(x, list) else [x] for key, x in where.items()},
            _written(found.get("metadata")),
        )
        for name in (n for names in listing.where.values() for n in names):
            if not isinstance(name, str) or not self._may_be(name):
                raise ModelFileError(
                    f"{label}: expected names of {self._ending} files beside it; found "
                    f"{str(name)[:100]!r}: refused"
                )
        if len(listing.names) > _MAX_FILES:
            raise ModelFileError(f"{label}: {len(listing.names)} files: refused")
        return listing

    def _may_be(self, name: str) -> bool:
        return is_bare(name) and name.endswith(self._ending)

    # --- writing ----------------------------------------------------------------------

    def replace(self, names: list[str]) -> AbstractContextManager[Path]:
        """A folder to write the list and the files of these names into.

        Raises:
            ArgumentError: they are more than can be read.
            UnwritableFileError: they cannot be written, or one of the names is that of
                a file which the older list does not have.
        """
        if len(names) > _MAX_FILES:
            raise ArgumentError(
                f"save_weights: {len(names)} files, of at most {_MAX_FILES}; increase "
                "max_shard_size"
            )
        return self.files.replace(lambda: self._own_files(names))

    def _own_files(self, names: list[str]) -> list[str]:
        """The files of the older list that were written here; raises if foreign."""
        try:
            older = self.listing()
        except ModelFileError:
            older = Listing({}, {})
        listed = set(older.names)
        for name in names:
            if name not in listed and lexists(self._path.with_name(name)):
                raise UnwritableFileError(
                    f"cannot write {str(self._path)!r}: "
                    f"{str(self._path.with_name(name))!r} is there already, and no "
                    "file of an older list; move it away"
                )
        return [name for name in older.written if name in listed]


def _written(metadata: Any) -> dict[str, Any]:
    """The files that were written here, of which lists of others say nothing."""
    files = metadata.get("files") if isinstance(metadata, dict) else None
    if isinstance(files, dict):
        return files
    names = files if isinstance(files, list) else []
    return {name: None for name in names if isinstance(name, str)}


class Division:
    """Which file each array goes to: in their order, as many to a file as fit.

    Args:
        max_shard_size: the most gigabytes of a file.
    """

    def __init__(self, max_shard_size: float) -> None:
        self._limit = float(max_shard_size) * 2**30
        self._size = self._number = 0

    def place(self, name: str, nbytes: int) -> int:
        """The number of the next array's file.

        Raises:
            ArgumentError: the array is larger than a file may be.
        """
        if nbytes > self._limit:
            raise ArgumentError(
                f"save_weights: {name} has {nbytes} bytes, which exceeds the maximum "
                f"shard size of {self._limit:.0f} bytes; increase max_shard_size"
            )
        if self._size + nbytes > self._limit:
            self._number += 1
            self._size = 0
        self._size += nbytes
        return self._number


def list_path(path: Path, single: str, ending: str) -> Path:
    """Where the list of several files goes, given the name of a single one too.

    Args:
        path: the name that was given.
        single: the ending of a single file.
        ending: of a list.
    """
    if path.name.endswith(ending):
        return path
    renamed = path.with_name(path.name.removesuffix(single) + ending)
    warn(
        f"weights in several files are listed in a `*{ending}` file: {str(path)!r} "
        f"becomes {str(renamed)!r}"
    )
    return renamed
