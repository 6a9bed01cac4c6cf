"""Indices of the records in uncompressed files, for random access.

An index has one entry for each block of a few kilobytes, so its size is a small
fraction of the file. A scan finds the limits of records without parsing them.
"""

from __future__ import annotations

import csv
import os
import time
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from threading import Lock
from typing import IO, NamedTuple

import numpy as np

from toolkit.data.records import HEADER_SIZE, RECORD_OVERHEAD, is_valid_header
from toolkit.type_aliases import Array

CORRUPT_FILE_ERRORS = (  # errors when a file is corrupt; a RecordError is a ValueError
    *(OSError, EOFError, ValueError, ArithmeticError, IndexError),
    *(csv.Error, zlib.error),
)
BLOCK_SIZE = 4096  # bytes: the minimum size of a block; it is read in one call
_CHUNK_SIZE = 1 << 20  # bytes that a scan reads at once
_CACHE_SIZE = 1 << 28  # bytes: the maximum total size of cached indices
_SETTLED_SECONDS = 2.0  # s: a change within it may leave the time of a file unchanged


class RecordIndex(NamedTuple):
    """The blocks of a file.

    Attributes:
        offsets: the offset of each block in bytes, and the end of the last one.
        numbers: the number of the first record of each block, and the record count.
    """

    offsets: Array
    numbers: Array


class IndexBuilder:
    """Builder of the index of a file from its records in order.

    Args:
        start: the offset of the first record.
    """

    def __init__(self, start: int) -> None:
        self._offsets, self._numbers = array("q", [start]), array("q", [0])
        self._end, self._count = start, 0

    @property
    def block_end(self) -> int:
        """Return the minimum end of the current block."""
        return self._offsets[-1] + BLOCK_SIZE

    def add(self, count: int, end: int) -> None:
        """Add records up to an offset, and end the block if it is full."""
        self._count, self._end = self._count + count, end
        if end >= self.block_end:
            self._end_block()

    def finish(self) -> RecordIndex:
        """Return the index."""
        if self._end > self._offsets[-1]:
            self._end_block()
        arrays = (np.array(x, np.int64) for x in (self._offsets, self._numbers))
        return RecordIndex(*arrays)

    def _end_block(self) -> None:
        self._offsets.append(self._end)
        self._numbers.append(self._count)


def index_lines(
    file: IO[bytes], start: int, is_plain: Callable[[bytes], bool] | None = None
) -> RecordIndex | None:
    """Return the index of lines that end with LF.

    Args:
        file: the file.
        start: the offset of the first line.
        is_plain: whether a chunk of the file has only such lines.

    Returns:
        The index, or None if a chunk is not plain.
    """
    builder, position, last = IndexBuilder(start), start, b""
    file.seek(start)
    while chunk := file.read(_CHUNK_SIZE):
        while chunk.endswith(b"\r") and (next_byte := file.read(1)):
            chunk += next_byte  # so that no chunk separates CR LF
        if is_plain is not None and not is_plain(chunk):
            return None
        counted = 0
        while True:
            search_start = max(builder.block_end - 1 - position, counted)
            end = chunk.find(b"\n", search_start) + 1
            if not end:
                break
            builder.add(chunk.count(b"\n", counted, end), position + end)
            counted = end
        builder.add(chunk.count(b"\n", counted), builder._end)
        position, last = position + len(chunk), chunk[-1:]
    if last:
        builder.add(int(last != b"\n"), position)
    return builder.finish()


def index_sizes(sizes: Iterable[int], start: int, end: int) -> RecordIndex:
    """Return the index of records with these sizes.

    Args:
        sizes: the size of each record in bytes.
        start: the offset of the first record.
        end: the maximum end of a record.
    """
    builder, position = IndexBuilder(start), start
    for size in sizes:
        position = min(position + size, end)
        builder.add(1, position)
    return builder.finish()


def index_equal_records(record_size: int, start: int, end: int) -> RecordIndex:
    """Return the index of records of one size; the last can be truncated."""
    count = -(-max(0, end - start) // record_size)
    per_block = max(1, BLOCK_SIZE // record_size)
    numbers = np.append(np.arange(0, count, per_block), count)
    return RecordIndex(np.minimum(start + numbers * record_size, end), numbers)


def tfrecord_sizes(file: IO[bytes], size: int) -> Iterator[int]:
    """Yield the sizes of the records of a TFRecord file, from their headers.

    A record with a corrupt header is the last and extends to the end of the file.

    Args:
        file: the file, open at its start.
        size: the size of the file in bytes.
    """
    position = 0
    while position < size:
        header = file.read(HEADER_SIZE)
        if not is_valid_header(header):
            yield size
            return
        length = int.from_bytes(header[:8], "little") + RECORD_OVERHEAD
        yield length
        position += length
        if position < size:
            file.seek(position)


class _IndexCache:
    """Cache of the indices of the last used files."""

    def __init__(self) -> None:
        self._indices: OrderedDict[Hashable, RecordIndex] = OrderedDict()
        self._nbytes = 0
        self._lock = Lock()

    def get(
        self, path: str, kind: Hashable, scan: Callable[[], RecordIndex]
    ) -> RecordIndex:
        """Return the index of a file.

        Args:
            path: the path of the file.
            kind: the kind of records.
            scan: computes the index.
        """
        status = os.stat(path)
        key = path, kind, status.st_ino, status.st_size, status.st_mtime_ns
        with self._lock:
            if key in self._indices:
                self._indices.move_to_end(key)
                return self._indices[key]
        is_settled = time.time() - status.st_mtime > _SETTLED_SECONDS
        index = scan()
        if is_settled:
            self._add(key, index)
        return index

    def _add(self, key: Hashable, index: RecordIndex) -> None:
        with self._lock:
            if key in self._indices:  # another thread was faster
                return
            self._indices[key] = index
            self._nbytes += index.offsets.nbytes + index.numbers.nbytes
            while self._nbytes > _CACHE_SIZE:
                _, oldest = self._indices.popitem(last=False)
                self._nbytes -= oldest.offsets.nbytes + oldest.numbers.nbytes


_cache = _IndexCache()
cached_index = _cache.get
