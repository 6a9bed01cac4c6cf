"""ZIP reader that checks every member before reading."""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from toolkit.errors import ModelFileError
from toolkit.reading.budget import load_within_budget, spend
from toolkit.reading.byte_ranges import FileRange
from toolkit.reading.file_errors import add_path_to_errors, check_present

_MAX_MEMBERS = 10_000
_MAX_DEPTH, _MAX_NAME = 200, 4096  # nested folders, and characters of a path
_ALWAYS_ALLOWED_SIZE = 1 << 20  # bytes that are always allowed
_CHECKED_AT_ONCE = 1 << 20  # bytes
# The offset of the lengths of name and extra field in the header before a member.
_NAME_LENGTH_OFFSET = 26
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
CORRUPT_ZIP_ERRORS = (  # errors for a corrupt ZIP
    *(OSError, EOFError, ValueError, NotImplementedError, RuntimeError, LookupError),
    *(zlib.error, lzma.LZMAError, OverflowError, TypeError),
)


@contextmanager
def open_members(path: Path, kind: str, max_ratio: int) -> Iterator[Members]:
    """Return a context with the checked members of a ZIP, and its load.

    Args:
        path: the path of the file.
        kind: the expected kind of file, for messages.
        max_ratio: the maximum compression ratio of a member.
    """
    check_present(path)
    try:
        with (
            add_path_to_errors(path),
            load_within_budget(path),
            _open_zip(path) as archive,
        ):
            yield Members(archive, max_ratio)
    except zipfile.BadZipFile as error:
        raise ModelFileError(
            f"{str(path)!r}: expected a {kind} file, which is a ZIP; it is corrupt "
            f"or has another format ({error})"
        ) from error


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except CORRUPT_ZIP_ERRORS as error:
        raise zipfile.BadZipFile(str(error)) from error


class Members:
    """Members of an archive, after a check of their names and sizes."""

    def __init__(self, archive: zipfile.ZipFile, max_ratio: int) -> None:
        self._archive = archive
        self._infos: dict[str, zipfile.ZipInfo] = {}
        infos = archive.infolist()
        if not _has_complete_directory(archive):
            raise ModelFileError("its list of members is corrupt")
        if len(infos) > _MAX_MEMBERS:
            raise ModelFileError(f"the archive has more than {_MAX_MEMBERS} members")
        for info in infos:
            if info.filename in self._infos:
                raise ModelFileError(f"{info.filename!r} occurs twice")
            _check_member(info, max_ratio)
            self._infos[info.filename] = info

    def sizes(self) -> dict[str, int]:
        """Return the declared size of each member in bytes."""
        return {name: info.file_size for name, info in self._infos.items()}

    def read_head(self, name: str, size: int) -> bytes:
        """Return the first bytes of a member, at most `size`."""
        info = self._infos.get(name)
        if info is None:
            raise ModelFileError(f"missing member {name!r}")
        try:
            with self._archive.open(info) as file:
                return file.read(size)
        except CORRUPT_ZIP_ERRORS as error:
            raise ModelFileError(f"{name!r} is corrupt ({error})") from error

    def read(self, name: str) -> bytes:
        """Return all bytes of a member."""
        info = self._infos.get(name)
        spend(info.file_size if info else 0, f"the member {name!r}")
        data = self.read_head(name, info.file_size + 1 if info else 0)
        if info is None or len(data) != info.file_size:
            raise ModelFileError(
                f"{name!r} has a different size than its declared size"
            )
        return data

    def open(self, name: str) -> io.BytesIO | FileRange:
        """Return a member as a file.

        A member that is stored without compression stays on disk. Its checksum is
        verified first.
        """
        info = self._infos.get(name)
        if info is None or info.compress_type != zipfile.ZIP_STORED:
            return io.BytesIO(self.read(name))
        try:
            with self._archive.open(info) as file:
                while file.read(_CHECKED_AT_ONCE):
                    pass
        except CORRUPT_ZIP_ERRORS as error:
            raise ModelFileError(f"{name!r} is corrupt ({error})") from error
        return FileRange(self._file, self._data_offset(info), info.file_size)

    @property
    def _file(self) -> IO[bytes]:
        file = self._archive.fp
        assert file is not None
        return file

    def _data_offset(self, info: zipfile.ZipInfo) -> int:
        """Return the offset of a member's data, after its header."""
        self._file.seek(info.header_offset + _NAME_LENGTH_OFFSET)
        lengths = self._file.read(4)
        name_length, extra_length = (
            int.from_bytes(lengths[k : k + 2], "little") for k in (0, 2)
        )
        start = info.header_offset + _NAME_LENGTH_OFFSET + 4
        return start + name_length + extra_length

    def extract(self, prefix: str, folder: Path) -> None:
        """Write the members with `prefix` to files in `folder`."""
        for name, info in self._infos.items():
            if name.startswith(f"{prefix}/") and not info.is_dir():
                target = Path(folder, *PurePosixPath(name).parts)
                data = self.read(name)
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with open(target, "xb") as file:  # names can collide
                        file.write(data)
                except (OSError, ValueError) as error:  # for example, too long a name
                    raise ModelFileError(
                        f"{name[:80]!r} cannot be decompressed: {type(error).__name__}"
                    ) from error


def _has_complete_directory(archive: zipfile.ZipFile) -> bool:
    """Return whether the central directory ends correctly.

    A wrong length hides members."""
    end = archive.start_dir
    for info in archive.infolist():
        encoding = "utf-8" if info.flag_bits & 0x800 else "cp437"
        name = info.orig_filename.encode(encoding)
        end += 46 + len(name) + len(info.extra) + len(info.comment)
    file = archive.fp
    assert file is not None
    file.seek(end)
    summary = file.read(40)
    counts = {b"PK\5\6": summary[10:12], b"PK\6\6": summary[32:40]}
    count = counts.get(summary[:4], b"")
    return int.from_bytes(count, "little") == len(archive.infolist())


def _check_member(info: zipfile.ZipInfo, max_ratio: int) -> None:
    name = info.filename
    components = PurePosixPath(name).parts
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if not components or ".." in components or name.startswith("/") or is_link:
        raise ModelFileError(f"{name!r} points outside of the archive")
    if len(components) > _MAX_DEPTH or len(name) > _MAX_NAME:
        raise ModelFileError(f"the archive contains a name of {len(name)} characters")
    if "\\" in name or ":" in components[0] or "\0" in name:
        raise ModelFileError(f"{name!r} is not a plain name")
    if info.flag_bits & 1:
        raise ModelFileError(f"{name!r} is encrypted")
    if info.compress_type not in _METHODS:
        raise ModelFileError(
            f"{name!r} uses another compression than Deflate (method "
            f"{info.compress_type})"
        )
    if info.file_size > max(_ALWAYS_ALLOWED_SIZE, max_ratio * info.compress_size):
        raise ModelFileError(
            f"{name!r} declares {info.file_size} bytes, but the archive contains "
            f"{info.compress_size}"
        )
