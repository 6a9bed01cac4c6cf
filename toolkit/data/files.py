"""Datasets of the paths of files, and of their records: lines, CSV rows, TFRecords."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any

from toolkit.data.dataset import Dataset, source
from toolkit.data.records import RecordError, read_record
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
CORRUPT_FILE_ERRORS = (  # errors when a file is corrupt; a RecordError is a ValueError
    *(OSError, EOFError, ValueError, ArithmeticError, IndexError),
    *(csv.Error, zlib.error),
)

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
            raise DamagedFileError(
                f"{path}: byte {self.offset:,}, record {self.record:,}: {error}"
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
        encoding = self._encoding
        for line in read_lines(file, path, self._compression):
            text = line.rstrip(b"\r\n")
            yield text.decode(encoding) if encoding else text, len(line)

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
        while (record := read_record(file, limit)) is not None:
            yield record, len(record) + 16

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
            if len(chunk) < self._size:
                raise RecordError(
                    f"expected {self._size} bytes; the file ends after {len(chunk)}"
                )
            yield record, len(record)
