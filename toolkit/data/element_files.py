"""Files of elements: written sequentially once, and read in any order.

A file is a line with its format and label, the elements, their offsets, and the offset
of the offset table. An element is a JSON header and the bytes of its arrays, which are
read without a copy. Reading a file executes no code. A writer uses a temporary name and
renames the complete file.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toolkit.data.encoding import decode, encode
from toolkit.data.rows import Rows
from toolkit.errors import DatasetError, MissingDataError, unknown_choice
from toolkit.files.staging import Stage, remove_stale_stages
from toolkit.reading.budget import load_budget
from toolkit.reading.decompression import decompress
from toolkit.reading.file_errors import check_regular_file

FIRST_LINE = "toolkit elements 1\n"
HEAD = struct.Struct("<III")  # header size, number of arrays, checksum
TAIL = struct.Struct("<QQQ")  # offset of the table, its length, end marker
COMPRESSIONS = (None, "", "AUTO", "GZIP")
MARK = 0x454E44_454C454D
_CORRUPT_FILE_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
    *(RecursionError, MemoryError, struct.error, zlib.error),
)


class ElementWriter:
    """Writer of elements to a file, which appears after `finish`.

    Args:
        path: the path of the file.
        label: a description of the elements for readers of the file.
        compression: "GZIP" compresses arrays. None, "" or "AUTO" does not, to allow
            reading without a copy.
    """

    def __init__(
        self, path: str | os.PathLike[str], label: str, compression: str | None = None
    ) -> None:
        if compression not in COMPRESSIONS:
            raise unknown_choice("compression", compression, COMPRESSIONS)
        self._packs = compression == "GZIP"
        self._path = Path(os.path.realpath(path))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _check_replaceable(self._path)
        remove_stale_stages(self._path.parent, self._path.name)
        self._stage = Stage(self._path.parent, self._path.name)
        self._new = self._stage.files / self._path.name
        self._file: BinaryIO = open(self._new, "xb")
        self._file.write(FIRST_LINE.encode() + json.dumps(label).encode() + b"\n")
        self._offsets: list[int] = []

    def write(self, element: Any) -> None:
        """Append an element."""
        buffers: list[bytes] = []
        tree = encode(element, buffers)
        if self._packs:
            buffers = [zlib.compress(buffer) for buffer in buffers]
        sizes = [len(buffer) for buffer in buffers]
        header = json.dumps([tree, sizes, self._packs]).encode()
        checksum = zlib.crc32(header)
        for buffer in buffers:
            checksum = zlib.crc32(buffer, checksum)
        self._offsets.append(self._file.tell())
        self._file.write(HEAD.pack(len(header), len(buffers), checksum) + header)
        for buffer in buffers:
            self._file.write(b"\0" * (-self._file.tell() % 64))  # arrays are aligned
            self._file.write(buffer)

    def finish(self) -> None:
        """Write the table of offsets, and move the file to its path."""
        start = self._file.tell()
        self._file.write(np.array(self._offsets, "<u8").tobytes())
        self._file.write(TAIL.pack(start, len(self._offsets), MARK))
        self._file.close()
        self._stage.move_file(self._new, self._path)
        self._stage.close()

    def abandon(self) -> None:
        """Remove an unfinished file."""
        with suppress(OSError):  # the final flush can run out of space
            self._file.close()
        self._stage.close()


def _check_replaceable(path: Path) -> None:
    """Raise an error if the path has a file that no ElementWriter wrote."""
    if not os.path.lexists(path):
        return
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(FIRST_LINE)) == FIRST_LINE.encode():
                return
    raise DatasetError(
        f"{path}: exists already and is not a file of elements. Move it away, or "
        "write to another path"
    )


class StoredRows(Rows):
    """Elements of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        check_regular_file(self._path, DatasetError, MissingDataError)
        try:
            with open(path, "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{self._path}: cannot be read: {error}") from error
        if self._data[: len(FIRST_LINE)] != FIRST_LINE.encode():
            raise DatasetError(f"{self._path}: expected a file of elements")
        end = max(0, len(self._data) - TAIL.size)
        start, count, mark = TAIL.unpack(self._data[end:].rjust(TAIL.size, b"\0"))
        if mark != MARK or start + 8 * count != end:
            raise DatasetError(f"{self._path}: the file is truncated at byte {end:,}")
        super().__init__(count)
        self._offsets = np.frombuffer(self._data, "<u8", count, start)
        first = len(FIRST_LINE)
        try:
            self.label: Any = json.loads(
                self._data[first : self._data.find(b"\n", first)]
            )
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{self._path}: its first lines are corrupt") from error

    def __getitem__(self, number: int) -> Any:
        offset = int(self._offsets[number])
        try:
            size, _, checksum = HEAD.unpack_from(self._data, offset)
            at = offset + HEAD.size
            header = self._data[at : at + size]
            tree, sizes, packed = json.loads(header)
            buffers, actual = self._buffers(at + size, sizes, zlib.crc32(header))
            if actual != checksum:
                raise ValueError("the checksum is wrong")
            if packed:
                limit = load_budget(len(self._data))
                buffers = [memoryview(decompress(b, limit)) for b in buffers]
            return decode(tree, buffers)
        except _CORRUPT_FILE_ERRORS as error:
            raise self._damaged(number, offset) from error

    def _buffers(
        self, at: int, sizes: list[int], checksum: int
    ) -> tuple[list[memoryview], int]:
        view, buffers = memoryview(self._data), []
        for size in sizes:
            at += -at % 64
            buffers.append(view[at : at + size])
            checksum = zlib.crc32(buffers[-1], checksum)
            at += size
        return buffers, checksum

    def _damaged(self, number: int, offset: int) -> DatasetError:
        return DatasetError(
            f"{self._path}: the element {number:,}, at byte {offset:,}, is corrupt"
        )

    def origin(self, number: int) -> str:
        return self._path
