"""Extraction of untrusted tar and zip archives."""

from __future__ import annotations

import lzma
import os
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from toolkit.errors import DatasetError
from toolkit.files.staging import is_listed
from toolkit.reading.decompression import (
    DecompressedFile,
    decompression_limit,
    size_error,
)

FORMATS = ("tar", "zip")
_MIN_MEMBER_SIZE = 512  # minimum bytes of a member
_MAX_HEADER_SIZE = 1 << 24  # bytes of a name, or of other metadata of a member
_CORRUPT_ARCHIVE_ERRORS = (
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, TypeError),
    *(OverflowError, MemoryError, NotImplementedError, struct.error),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


def extract_archive(archive: Path, folder: Path, formats: Sequence[str]) -> None:
    """Extract `archive` into an empty folder; an error may leave it incomplete.

    Only files and folders are extracted: an archive with links, devices or paths
    outside the folder is rejected as a whole.
    """
    try:
        _extract(archive, folder, formats)
    except DatasetError:
        raise
    except _CORRUPT_ARCHIVE_ERRORS as error:
        raise DatasetError(f"get_file: cannot unpack {archive}: {error}") from error


def _extract(archive: Path, folder: Path, formats: Sequence[str]) -> None:
    """Extract the archive with the first of `formats` that matches."""
    if "tar" in formats and _is_tar(archive):
        _extract_tar(archive, folder)
    elif "zip" in formats and zipfile.is_zipfile(archive):
        _extract_zip(archive, folder)
    else:
        raise DatasetError(
            f"get_file: cannot unpack {archive}: expected a complete archive of "
            f"format {' or '.join(formats)}"
        )


def _extract_tar(path: Path, folder: Path) -> None:
    """Extract a tar archive that contains only files and folders."""
    with _open_tar(path) as archive:
        budget = decompression_limit(path)
        for member in archive:
            budget -= _MIN_MEMBER_SIZE + member.size
            if budget < 0:
                raise size_error(
                    f"get_file: unpacking {path}", decompression_limit(path)
                )
            if not (member.isfile() or member.isdir()):
                raise _unsafe_member_error(path, member.name, "is not a file or folder")
            _check_inside(path, folder, member.name)
        # Python 3.11.0 to 3.11.3 lack the filter; the checks above do not need it.
        options: dict[str, Any] = {}
        if hasattr(tarfile, "data_filter"):
            options["filter"] = "data"
        archive.extractall(folder, **options)
        _check_distinct(path, folder, archive.getnames())


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Yield a tar archive, with a limit on the unpacked bytes of its headers too."""
    with DecompressedFile(path, decompression_limit(path), _MAX_HEADER_SIZE) as file:
        with tarfile.open(fileobj=file, mode="r:") as archive:  # type: ignore[call-overload]
            yield archive


def _is_tar(path: Path) -> bool:
    try:
        with _open_tar(path):
            return True
    except DatasetError:
        raise
    except _CORRUPT_ARCHIVE_ERRORS:
        return False


def _extract_zip(path: Path, folder: Path) -> None:
    """Extract a zip archive; a link in it would become a plain file."""
    with zipfile.ZipFile(path) as archive:
        budget = decompression_limit(path)
        for info in archive.infolist():
            budget -= _MIN_MEMBER_SIZE + info.file_size
            if budget < 0:
                raise size_error(
                    f"get_file: unpacking {path}", decompression_limit(path)
                )
            _check_inside(path, folder, info.filename)
        archive.extractall(folder)
        _check_distinct(path, folder, archive.namelist())


def _check_inside(archive: Path, folder: Path, name: str) -> None:
    """Raise if the path of a member is outside the folder."""
    root = Path(os.path.realpath(folder))
    target = Path(os.path.realpath(root / name))
    components = name.replace("\\", "/").split("/")
    if ".." in components or not target.is_relative_to(root):
        raise _unsafe_member_error(archive, name, "has a path that leaves the archive")


def _check_distinct(archive: Path, folder: Path, names: Sequence[str]) -> None:
    """Raise if two paths of an extracted archive became one file.

    File systems may ignore case, or the composition of letters, in names.
    """
    by_key: dict[str, set[PurePosixPath]] = {}
    paths = {PurePosixPath(name) for name in names}
    for path in paths.union(*(path.parents for path in paths)):
        key = unicodedata.normalize("NFC", str(path)).casefold()
        by_key.setdefault(key, set()).add(path)
    for group in by_key.values():
        if len(group) > 1 and not all(is_listed(folder / path) for path in group):
            raise DatasetError(
                f"get_file: {archive} was not unpacked: its members "
                f"{' and '.join(repr(str(path)) for path in sorted(group))} have "
                "the same name on this file system"
            )


def _unsafe_member_error(archive: Path, name: str, reason: str) -> DatasetError:
    """Return the error for an archive that must not be extracted."""
    return DatasetError(
        f"get_file: {archive} was not unpacked: its member {name!r} {reason}"
    )
