"""Random access to the records of files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import IO, Any, Protocol

import numpy as np

from toolkit.data.record_index import CORRUPT_FILE_ERRORS, RecordIndex
from toolkit.data.rows import Indices, Rows, as_index_array
from toolkit.type_aliases import Array

_MAX_OPEN_FILES = 16
_CACHE_SIZE = 1 << 22  # bytes of blocks whose records are cached for a shuffle


class RecordFormat(Protocol):
    """Reader of one kind of record."""

    def open_blocks(self, path: str) -> IO[bytes]:
        """Open a file to read blocks."""

    def split_block(self, block: bytes) -> Sequence[object]:
        """Return the records of a block, before they are parsed."""

    def parse(self, record: Any) -> object:
        """Return the element of a record."""

    def read_error(
        self, path: str, start: tuple[int, int], error: Exception
    ) -> Exception:
        """Return the error for a record that cannot be parsed.

        Args:
            path: the file.
            start: the offset and the number of an earlier record.
            error: the error.
        """


class OpenFiles:
    """The open files of a pass; the last used ones stay open."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, IO[bytes]] = OrderedDict()
        self._lock = Lock()

    def read(self, source: RecordFormat, path: str, offset: int, size: int) -> bytes:
        """Return bytes of a file.

        Args:
            source: opens the file.
            path: the path of the file.
            offset: the offset of the first byte.
            size: the number of bytes.
        """
        with self._lock:  # other threads move the position of the same file
            if path not in self._files:
                self._files[path] = source.open_blocks(path)
            self._files.move_to_end(path)
            while len(self._files) > _MAX_OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            file = self._files[path]
            file.seek(offset)
            return file.read(size)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()


class IndexedRows(Rows):
    """Records of files, each parsed when it is read.

    Args:
        source: splits blocks and parses records.
        paths: the paths of the files.
        indices: the index of each file.
        files: reads the files.
    """

    def __init__(
        self,
        source: RecordFormat,
        paths: Sequence[str],
        indices: Sequence[RecordIndex],
        files: OpenFiles,
    ) -> None:
        counts = [int(index.numbers[-1]) for index in indices]
        self._file_starts = np.cumsum([0, *counts])
        super().__init__(int(self._file_starts[-1]))
        self._source, self._paths, self._files = source, paths, files
        starts = zip(self._file_starts.tolist(), indices, strict=False)
        # Of each block: the file, the range of bytes, and the number of its first
        # record in all files.
        self._file_numbers = np.repeat(
            np.arange(len(indices)), [len(index.numbers) - 1 for index in indices]
        )
        self._starts = _join([index.offsets[:-1] for index in indices])
        self._ends = _join([index.offsets[1:] for index in indices])
        self._numbers = _join([start + index.numbers[:-1] for start, index in starts])
        self._cache: OrderedDict[int, Sequence[object]] = OrderedDict()
        self._cached_bytes = 0
        self._lock = Lock()
        # The last block of single reads: its index, first record and records.
        self._last: tuple[int, int, Sequence[object]] = 0, 0, ()

    def __getitem__(self, number: int) -> Any:
        block, first, records = self._last
        if not first <= number < first + len(records):
            block = int(self._find_blocks(number))
            first, records = int(self._numbers[block]), self._records(block)
            self._last = block, first, records
        return self._parse(block, number - first, records)

    def gather(self, numbers: Indices) -> Sequence[Any]:
        indices = as_index_array(numbers)
        blocks = self._find_blocks(indices)
        positions = (indices - self._numbers[blocks]).tolist()
        elements, current = [], -1
        for block, position in zip(blocks.tolist(), positions, strict=True):
            if block != current:
                current, records = block, self._records(block)
            elements.append(self._parse(block, position, records))
        return elements

    def _find_blocks(self, numbers: int | Array) -> Any:
        return self._numbers.searchsorted(numbers, "right") - 1

    def _parse(self, block: int, position: int, records: Sequence[object]) -> object:
        try:
            return self._source.parse(records[position])
        except CORRUPT_FILE_ERRORS as error:
            file_number = int(self._file_numbers[block])
            number = int(self._numbers[block] - self._file_starts[file_number])
            start = int(self._starts[block]), number
            path = self._paths[file_number]
            raise self._source.read_error(path, start, error) from error

    def _records(self, block: int) -> Sequence[object]:
        """Return the records of a block, and cache them."""
        with self._lock:
            if block in self._cache:
                self._cache.move_to_end(block)
                return self._cache[block]
        start, size = int(self._starts[block]), self._size(block)
        path = self._paths[int(self._file_numbers[block])]
        data = self._files.read(self._source, path, start, size)
        records = self._source.split_block(data)
        with self._lock:
            if len(records) > 1 and block not in self._cache:
                self._cache[block] = records
                self._cached_bytes += size
                while self._cached_bytes > _CACHE_SIZE:
                    self._cached_bytes -= self._size(self._cache.popitem(False)[0])
        return records

    def _size(self, block: int) -> int:
        return int(self._ends[block] - self._starts[block])

    def origin(self, number: int) -> str | None:
        if not len(self):
            return None
        file_number = int(self._file_numbers[self._find_blocks(number)])
        number -= int(self._file_starts[file_number])
        return f"{self._paths[file_number]}, record {number:,}"


def _join(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
