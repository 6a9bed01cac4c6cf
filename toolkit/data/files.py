"""Datasets of the paths of files, and of their records: lines, CSV rows, TFRecords."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any

from toolkit.data.dataset import Dataset, source
from toolkit.data.indexed_rows import IndexedRows
from toolkit.data.record_index import (
    BLOCK_SIZE as INDEX_BLOCK_SIZE,
    CORRUPT_FILE_ERRORS,
    RecordIndex,
    cached_index,
    index_equal_records,
    index_lines,
    index_sizes,
    tfrecord_sizes,
)
from toolkit.data.records import (
    RECORD_OVERHEAD,
    RecordError,
    read_records,
    split_records,
)
from toolkit.data.rows import Rows
from toolkit.data.sources import from_elements
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import TensorSpec
from toolkit.data.tuning import AUTOTUNE
from toolkit.errors import (
    ArgumentError,
    DamagedFileError,
    DatasetError,
    MissingDataError,
    unknown_choice,
)
from toolkit.reading.decompression import (
    decompress,
    decompression_limit,
    read_limited_lines,
)
from toolkit.reading.file_errors import check_regular_file

COMPRESSIONS = (None, "", "GZIP", "ZLIB")
BLOCK_SIZE = 1 << 18  # read buffer size in bytes

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset


def as_paths(files: Paths) -> list[str]:
    """Return a list of paths from the accepted types of file names."""
    if isinstance(files, (str, bytes, os.PathLike)):
        return [os.fsdecode(files)]
    return [os.fsdecode(file) for file in files]


def open_file(path: str, compression: str | None, block: int = BLOCK_SIZE) -> IO[bytes]:
    """Open a file with a large read buffer, decompressed on the fly."""
    check_regular_file(path, DatasetError, MissingDataError)
    try:
        if compression == "GZIP":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        if compression == "ZLIB":
            return io.BytesIO(
                decompress(Path(path).read_bytes(), decompression_limit(path))
            )
        return open(path, "rb", buffering=max(2, block))
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: cannot be read: {error}") from error
    except (OSError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def read_lines(file: IO[bytes], path: str, compression: str | None) -> Iterable[bytes]:
    """Return the lines of a file; lines of a compressed file have a maximum length."""
    return read_limited_lines(file, decompression_limit(path)) if compression else file


@source("list_files")
class ListFiles(Dataset):
    """The paths that match patterns, as strings.

    Args:
        file_pattern: one or several glob patterns, such as "data/*.csv".
        shuffle: whether to shuffle the paths again in each pass.
        seed: the shuffle seed; None draws one.

    Raises:
        DatasetError: no file matches.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "a.txt").touch()
        ...     [Path(path).name for path in Dataset.list_files(f"{folder}/*.txt")]
        ['a.txt']
    """

    def __init__(
        self,
        file_pattern: str | Iterable[str],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> None:
        is_single = isinstance(file_pattern, (str, os.PathLike))
        patterns = [file_pattern] if is_single else list(file_pattern)
        matches = sorted(
            path
            for pattern in patterns
            for path in glob(str(pattern), include_hidden=True)
        )
        if not matches:
            raise DatasetError(f"list_files: no file matches {patterns}")
        files = from_elements(matches)
        if shuffle is not False:
            files = files.shuffle(len(matches), seed)
        super().__init__(files)

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, context: PassContext) -> Any:
        return context.rows(self._parents[0])

    def _stream(self, context: PassContext) -> Stream:
        return context.open(self._parents[0])


class Records(Dataset):
    """Base class of data sets of the records of files.

    Args:
        filenames: one path, several paths, or a data set of paths.
        compression_type: "GZIP", "ZLIB", or None for uncompressed files.
        buffer_size: the read buffer size in bytes; 256 KB by default.
        num_parallel_reads: the number of files to read in parallel, with interleaved
            records. None reads the files sequentially.
        name: the name in tables, errors and `repr`.
    """

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        if name is not None:
            self._name = f"{self._name} {name!r}"
        if buffer_size is not None and buffer_size < 1:
            raise ArgumentError(
                f"{self._name}: expected buffer_size >= 1; received {buffer_size}"
            )
        self._block = buffer_size or BLOCK_SIZE
        if compression_type not in COMPRESSIONS:
            raise unknown_choice("compression_type", compression_type, COMPRESSIONS)
        self._files = [] if isinstance(filenames, Dataset) else as_paths(filenames)
        self._compression = compression_type or None
        self._interleaved: Dataset | None = None
        if num_parallel_reads is not None or isinstance(filenames, Dataset):
            names = (
                filenames
                if isinstance(filenames, Dataset)
                else from_elements(self._files)
            )
            wide = num_parallel_reads not in (None, AUTOTUNE)
            cycle = num_parallel_reads if wide else None
            if num_parallel_reads is None:
                cycle = 1
            self._interleaved = names.interleave(
                self._of_file, cycle, num_parallel_calls=num_parallel_reads
            )
        super().__init__(*([self._interleaved] if self._interleaved else []))

    def _of_file(self, path: Any) -> Dataset:
        """Return the same kind of data set for one file."""
        raise NotImplementedError

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        """Yield each record from the file position on, with its size in bytes.

        Args:
            file: the open file.
            path: the path of the file, for error messages.
        """
        raise NotImplementedError

    def skip_header(self, file: IO[bytes]) -> int:
        """Skip the header of a file and return its size in bytes.

        Args:
            file: the open file; by default it has no effect.

        Returns:
            The size in bytes.
        """
        return 0

    def _detail(self) -> str:
        return self._files[0] if len(self._files) == 1 else f"{len(self._files)} files"

    def _stream(self, context: PassContext) -> Stream:
        return (
            context.open(self._interleaved)
            if self._interleaved
            else _FileStream(self, context)
        )

    # Random access, with an index of each file

    def _rows(self, context: PassContext) -> Rows | None:
        if not context.uses_index or context.on_error is not None:
            return None
        if self._interleaved:
            return context.rows(self._interleaved)
        if not self._is_indexable:
            return None
        indices = list(map(self._index, self._files))
        return IndexedRows(self, self._files, indices, context.run.files)

    @property
    def _is_indexable(self) -> bool:
        """Return whether the offset of a record in a file can be found."""
        return self._compression is None

    def _index(self, path: str) -> RecordIndex:
        """Return the index of a file; a scan reads the file if it is not cached."""

        def scan() -> RecordIndex:
            with self.open_blocks(path) as file:
                return self.create_index(file, os.path.getsize(path))

        check_regular_file(path, DatasetError, MissingDataError)
        return cached_index(path, (type(self), *self._record_kind()), scan)

    def _record_kind(self) -> tuple[object, ...]:
        """Return the arguments that determine the offsets of records."""
        return ()

    def create_index(self, file: IO[bytes], size: int) -> RecordIndex:
        """Return the index of a file.

        Args:
            file: the open file.
            size: the size of the file in bytes.
        """
        raise NotImplementedError

    def open_blocks(self, path: str) -> IO[bytes]:
        """Open an uncompressed file to read blocks of its index.

        Args:
            path: the path of the file.

        Returns:
            The open file.
        """
        return open_file(path, None, 2 * INDEX_BLOCK_SIZE)

    def split_block(self, block: bytes) -> Sequence[object]:
        """Return the records of a block of the index, before they are parsed.

        Args:
            block: the bytes of the block.
        """
        raise NotImplementedError

    def parse(self, record: Any) -> object:
        """Return the element of a record.

        Args:
            record: a record of `split_block`.
        """
        raise NotImplementedError

    def read_error(
        self, path: str, start: tuple[int, int], error: Exception
    ) -> Exception:
        """Return the error of a record, as for a sequential read.

        Args:
            path: the path of the file.
            start: the offset and the number of an earlier record.
            error: the error of the record.
        """
        offset, number = start
        try:
            with open_file(path, None, self._block) as file:
                file.seek(offset)
                for _, size in self.records(file, path):
                    offset, number = offset + size, number + 1
        except CORRUPT_FILE_ERRORS as corruption:
            error = corruption
        return self.record_error(path, offset, number, error)

    def record_error(
        self, path: str, offset: int, number: int, error: Exception
    ) -> DamagedFileError:
        """Return the error of a record with its position.

        Args:
            path: the path of the file.
            offset: the offset of the record in bytes.
            number: the number of the record, from 0.
            error: the error of the record.
        """
        return DamagedFileError(f"{path}: byte {offset:,}, record {number:,}: {error}")


class _FileStream(Stream):
    """Stream of records, with a position of file, byte offset and record count."""

    fields = ("file_index", "offset", "record")

    def __init__(self, dataset: Records, context: PassContext) -> None:
        super().__init__(dataset, context)
        self._of = dataset
        self.file_index = self.offset = self.record = 0

    def elements(self) -> Iterator[Any]:
        files = self._of._files
        while self.file_index < len(files):
            of, path = self._of, files[self.file_index]
            with open_file(path, of._compression, of._block) as file:
                yield from self._of_one(file, path)
            self.file_index, self.offset, self.record = self.file_index + 1, 0, 0

    def _of_one(self, file: IO[bytes], path: str) -> Iterator[Any]:
        try:
            if self.offset:
                file.seek(self.offset)
            else:
                self.offset = self._of.skip_header(file)
            for element, size in self._of.records(file, path):
                self.offset += size
                self.record += 1
                yield element
        except CORRUPT_FILE_ERRORS as error:
            raise self._of.record_error(
                path, self.offset, self.record, error
            ) from error

    def origin(self) -> str | None:
        if self.file_index >= len(self._of._files):
            return None
        return f"{self._of._files[self.file_index]}, record {max(0, self.record - 1):,}"


class TextLineDataset(Records):
    """The lines of text files, without line endings.

    Args:
        filenames: one path, several paths, or a data set of paths.
        compression_type: "GZIP", "ZLIB", or None for uncompressed files.
        buffer_size: the read buffer size in bytes; 256 KB by default.
        num_parallel_reads: the number of files to read in parallel, with interleaved
            lines. None reads the files sequentially.
        name: the name in tables, errors and `repr`.
        encoding: the text encoding. None returns lines as bytes.

    Example:
        >>> import tempfile
        >>> from toolkit.data import TextLineDataset
        >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        ...     _ = file.write("one\\ntwo\\n"), file.flush()
        ...     list(TextLineDataset(file.name))
        ['one', 'two']
    """

    _name = "text_lines"

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        encoding: str | None = "utf-8",
    ) -> None:
        super().__init__(
            filenames, compression_type, buffer_size, num_parallel_reads, name
        )
        self._encoding = encoding

    def _of_file(self, path: Any) -> Dataset:
        return TextLineDataset(
            path, self._compression, self._block, encoding=self._encoding
        )

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        for line in read_lines(file, path, self._compression):
            yield self.parse(line), len(line)

    def create_index(self, file: IO[bytes], size: int) -> RecordIndex:
        """Return the index of the lines of a file.

        Args:
            file: the open file.
            size: has no effect.

        Returns:
            The index.
        """
        index = index_lines(file, 0)
        assert index is not None
        return index

    def split_block(self, block: bytes) -> Sequence[bytes]:
        return io.BytesIO(block).readlines()

    def parse(self, record: bytes) -> str | bytes:
        text = record.rstrip(b"\r\n")
        return text.decode(self._encoding) if self._encoding else text

    def _spec(self) -> Any:
        return TensorSpec((), str)


class TFRecordDataset(Records):
    """The records of TFRecord files as bytes, with verified checksums.

    Args:
        filenames: one path, several paths, or a data set of paths.
        compression_type: "GZIP", "ZLIB", or None for uncompressed files.
        buffer_size: the read buffer size in bytes; 256 KB by default.
        num_parallel_reads: the number of files to read in parallel, with interleaved
            records. None reads the files sequentially.
        name: the name in tables, errors and `repr`.

    Raises:
        DamagedFileError: a record is corrupt; the message gives the file and the
            offset.

    Example:
        >>> import tempfile
        >>> from toolkit.data import TFRecordDataset, TFRecordWriter
        >>> with tempfile.NamedTemporaryFile(suffix=".tfrecord") as file:
        ...     with TFRecordWriter(file.name) as writer:
        ...         writer.write(b"one")
        ...     list(TFRecordDataset(file.name))
        [b'one']
    """

    _name = "tfrecords"

    def _of_file(self, path: Any) -> Dataset:
        return TFRecordDataset(path, self._compression, self._block)

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        limit = decompression_limit(path) if self._compression else None
        for record in read_records(file, limit):
            yield record, len(record) + RECORD_OVERHEAD

    def create_index(self, file: IO[bytes], size: int) -> RecordIndex:
        return index_sizes(tfrecord_sizes(file, size), 0, size)

    def split_block(self, block: bytes) -> Sequence[bytes]:
        return split_records(block)

    def parse(self, record: bytes) -> bytes:
        return next(read_records(io.BytesIO(record)))

    def _spec(self) -> Any:
        return TensorSpec((), bytes)


class FixedLengthRecordDataset(Records):
    """Records of a fixed size in bytes.

    Args:
        filenames: one path, several paths, or a data set of paths.
        record_bytes: the size of a record.
        header_bytes: the number of bytes to skip at the start of each file.
        footer_bytes: the number of bytes to skip at the end of each file.
        buffer_size: the read buffer size in bytes; 256 KB by default.
        compression_type: "GZIP", "ZLIB", or None for uncompressed files.
        num_parallel_reads: the number of files to read in parallel.
        name: the name in tables, errors and `repr`.

    Raises:
        DamagedFileError: a file ends in the middle of a record.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.data import FixedLengthRecordDataset
        >>> file = Path(tempfile.mkdtemp()) / "records"
        >>> size = file.write_bytes(b"headaabbcc")
        >>> list(FixedLengthRecordDataset(file, record_bytes=2, header_bytes=4))
        [b'aa', b'bb', b'cc']
    """

    _name = "fixed_length_records"

    def __init__(
        self,
        filenames: Paths,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            filenames, compression_type, buffer_size, num_parallel_reads, name
        )
        if record_bytes < 1:
            raise ArgumentError(
                f"{self._name}: expected record_bytes >= 1; received {record_bytes}"
            )
        self._size, self._header = record_bytes, header_bytes or 0
        self._footer = footer_bytes or 0

    def _of_file(self, path: Any) -> Dataset:
        return FixedLengthRecordDataset(
            *(path, self._size, self._header, self._footer, self._block),
            self._compression,
        )

    def skip_header(self, file: IO[bytes]) -> int:
        return len(file.read(self._header))

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        buffered = file.read(self._footer)  # possibly the footer
        while chunk := file.read(self._size):
            buffered += chunk
            record, buffered = buffered[: self._size], buffered[self._size :]
            self.parse(chunk)  # raises an error for a truncated record
            yield record, len(record)

    def _record_kind(self) -> tuple[object, ...]:
        return self._size, self._header, self._footer

    def create_index(self, file: IO[bytes], size: int) -> RecordIndex:
        """Return the index of the records of a file.

        Args:
            file: has no effect.
            size: the size of the file in bytes.

        Returns:
            The index.
        """
        return index_equal_records(self._size, self._header, size - self._footer)

    def split_block(self, block: bytes) -> Sequence[bytes]:
        size = self._size
        return [block[start : start + size] for start in range(0, len(block), size)]

    def parse(self, record: bytes) -> bytes:
        if len(record) < self._size:
            raise RecordError(
                f"expected {self._size} bytes; the file ends after {len(record)}"
            )
        return record
