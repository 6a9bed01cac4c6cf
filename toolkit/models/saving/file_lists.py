"""Weights in several files, and the JSON index of these files.

As in Keras and at Hugging Face, an index is a JSON object with `weight_map`, name of an
array or of a group -> name of a file, or of several; and `metadata`. The files are in
the same folder.
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
from toolkit.reading.budget import load_within_budget, spend
from toolkit.reading.file_errors import add_path_to_errors
from toolkit.reading.sibling_paths import is_plain_name, sibling_path
from toolkit.reading.text import parse_json

_MAX_LIST = 1 << 25  # bytes of an index, enough for 300,000 arrays
_MAX_FILES = 500  # that are open at the same time
_Content = TypeVar("_Content")


class Listing(NamedTuple):
    """Content of an index.

    where: the files of each array or group. written: the files that this package has
    written, with their entries, such as a checksum.
    """

    where: dict[str, list[str]]
    written: dict[str, Any]

    @property
    def names(self) -> list[str]:
        """Return the files."""
        return list(dict.fromkeys(n for names in self.where.values() for n in names))


class FileList:
    """Index of weights files, and these files.

    Args:
        path: the path of the index.
        numbered: a pattern of the number before the ending of file names that a save
            generates.
        ending: the ending of all file names.
    """

    def __init__(self, path: Path, numbered: str, ending: str) -> None:
        pattern = re.compile(numbered + re.escape(ending))
        self._path, self._ending = path, ending
        self.files: FileSet = FileSet(
            path.parent,
            path.name,
            lambda name: name == path.name or bool(pattern.fullmatch(name)),
            path.name,
        )

    # --- reading ----------------------------------------------------------------------

    @contextmanager
    def open(
        self, open_file: Callable[[Path], AbstractContextManager[_Content]]
    ) -> Iterator[tuple[Listing, dict[str, _Content]]]:
        """Open all files of the index in one load; return its content and the files.

        Raises:
            MissingFileError: the index or a file is missing.
            ModelFileError: the index is corrupt, or names files outside of its folder.
        """
        path = self.files.folder() / self._path.name
        listing = self.listing()
        with add_path_to_errors(self._path):
            files = {name: sibling_path(path, name) for name in listing.names}
        with load_within_budget(path, *files.values()), ExitStack() as stack:
            yield (
                listing,
                {n: stack.enter_context(open_file(file)) for n, file in files.items()},
            )

    def listing(self) -> Listing:
        """Return the content of the index after a check that all names are plain."""
        path, label = self.files.folder() / self._path.name, repr(str(self._path))
        if not path.is_file():
            raise MissingFileError(f"File not found: there is no file {label}")
        size = path.stat().st_size
        if size > _MAX_LIST:
            raise ModelFileError(
                f"{label}: {size} bytes are too many for a list of files"
            )
        with load_within_budget(path):
            spend(size, "the list")
            content = parse_json(path.read_bytes(), label, unique=True)
        where = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(where, dict):
            raise ModelFileError(
                f'{label}: expected a list of files, under "weight_map"'
            )
        listing = Listing(
            {key: x if isinstance(x, list) else [x] for key, x in where.items()},
            _written(content.get("metadata")),
        )
        for name in (n for names in listing.where.values() for n in names):
            if not isinstance(name, str) or not self._is_valid_name(name):
                raise ModelFileError(
                    f"{label}: expected names of {self._ending} files in the same "
                    f"folder; received {str(name)[:100]!r}"
                )
        if len(listing.names) > _MAX_FILES:
            raise ModelFileError(
                f"{label}: {len(listing.names)} files exceed the limit"
            )
        return listing

    def _is_valid_name(self, name: str) -> bool:
        return is_plain_name(name) and name.endswith(self._ending)

    # --- writing ----------------------------------------------------------------------

    def replace(self, names: list[str]) -> AbstractContextManager[Path]:
        """Return a folder to write the index and the files of these names into.

        Raises:
            ArgumentError: the number of files is above the limit of reading.
            UnwritableFileError: they cannot be written, or a file that the older index
                does not contain would be overwritten.
        """
        if len(names) > _MAX_FILES:
            raise ArgumentError(
                f"save_weights: expected at most {_MAX_FILES} files; received "
                f"{len(names)}. Increase max_shard_size"
            )
        return self.files.replace(lambda: self._own_files(names))

    def _own_files(self, names: list[str]) -> list[str]:
        """Return the files of the older index; raise unless this package wrote them."""
        try:
            older = self.listing()
        except ModelFileError:
            older = Listing({}, {})
        listed = set(older.names)
        for name in names:
            if name not in listed and lexists(self._path.with_name(name)):
                raise UnwritableFileError(
                    f"cannot write {str(self._path)!r}: "
                    f"{str(self._path.with_name(name))!r} exists already and does "
                    "not belong to an older list; move it away"
                )
        return [name for name in older.written if name in listed]


def _written(metadata: Any) -> dict[str, Any]:
    """Return the files that this package has written; foreign indexes have none."""
    files = metadata.get("files") if isinstance(metadata, dict) else None
    if isinstance(files, dict):
        return files
    names = files if isinstance(files, list) else []
    return {name: None for name in names if isinstance(name, str)}


class Division:
    """Assignment of arrays to files: in order, filled up to the size limit.

    Args:
        max_shard_size: the maximum size of a file, in gigabytes.
    """

    def __init__(self, max_shard_size: float) -> None:
        self._limit = float(max_shard_size) * 2**30
        self._size = self._number = 0

    def assign_file(self, name: str, nbytes: int) -> int:
        """Return the index of the next array's file.

        Raises:
            ArgumentError: the array is larger than the maximum file size.
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
    """Return the path of the index; the argument can be the name of a single file.

    Args:
        path: the argument.
        single: the ending of a single file.
        ending: the ending of an index.
    """
    if path.name.endswith(ending):
        return path
    renamed = path.with_name(path.name.removesuffix(single) + ending)
    warn(
        f"the list of several weight files is a `*{ending}` file; {str(path)!r} is "
        f"renamed to {str(renamed)!r}"
    )
    return renamed
