"""Records of files, one after the other: lines of text, rows of CSV, TFRecords."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any

import numpy as np

from toolkit.data.dataset import AUTOTUNE, Dataset, source
from toolkit.data.records import RecordError, read_record
from toolkit.data.sources import from_elements
from toolkit.data.streams import Pass, Stream
from toolkit.data.structure import TensorSpec
from toolkit.errors import DatasetError, ShapeError, unknown_choice

COMPRESSIONS = (None, "", "GZIP", "ZLIB")
BLOCK = 1 << 18  # bytes read from a file at once
DAMAGES = (  # what reading a damaged file may raise; a RecordError is a ValueError
    *(OSError, EOFError, ValueError, ArithmeticError, IndexError),
    *(csv.Error, zlib.error),
)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset


def as_paths(files: Paths) -> list[str]:
    """A list of paths of whatever names files."""
    if isinstance(files, (str, bytes, os.PathLike)):
        return [os.fsdecode(files)]
    return [os.fsdecode(file) for file in files]


def open_file(path: str, compression: str | None) -> IO[bytes]:
    """A file, whose reader takes large blocks, unpacked as it is read."""
    try:
        if compression == "GZIP":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        if compression == "ZLIB":
            return gzip.io.BytesIO(zlib.decompress(Path(path).read_bytes()))  # type: ignore[attr-defined, no-any-return]
        return open(path, "rb", buffering=BLOCK)
    except (OSError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


class _Files(Dataset):
    """Base of data sets of the records of files.

    Args:
        files: one path or several, or a data set of them.
        compression_type: "GZIP", "ZLIB", or None for none.
        num_parallel_reads: how many files are read at the same time, their records by
            turns; None: one after the other.
    """

    def __init__(
        self,
        files: Paths,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        if compression_type not in COMPRESSIONS:
            raise unknown_choice("compression_type", compression_type, COMPRESSIONS)
        self._files = [] if isinstance(files, Dataset) else as_paths(files)
        self._compression = compression_type or None
        self._turns: Dataset | None = None
        if num_parallel_reads is not None or isinstance(files, Dataset):
            names = files if isinstance(files, Dataset) else from_elements(self._files)
            wide = num_parallel_reads not in (None, AUTOTUNE)
            cycle = num_parallel_reads if wide else None
            if num_parallel_reads is None:
                cycle = 1
            self._turns = names.interleave(
                self._of_file, cycle, num_parallel_calls=num_parallel_reads
            )
        super().__init__(*([self._turns] if self._turns else []))

    def _of_file(self, path: Any) -> Dataset:
        """The same kind of data set, of one file."""
        raise NotImplementedError

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        """Each record from a position of a file on, and how many bytes it takes."""
        raise NotImplementedError

    def begin(self, file: IO[bytes]) -> int:
        """Pass over what comes before the first record; how many bytes that is."""
        return 0

    def _detail(self) -> str:
        return self._files[0] if len(self._files) == 1 else f"{len(self._files)} files"

    def _stream(self, here: Pass) -> Stream:
        return here.open(self._turns) if self._turns else _FileStream(self, here)


class _FileStream(Stream):
    """Where reading is: which file, at which byte, after how many records."""

    fields = ("turn", "offset", "record")

    def __init__(self, dataset: _Files, here: Pass) -> None:
        super().__init__(dataset, here)
        self._of = dataset
        self.turn = self.offset = self.record = 0

    def elements(self) -> Iterator[Any]:
        files = self._of._files
        while self.turn < len(files):
            with open_file(files[self.turn], self._of._compression) as file:
                yield from self._of_one(file, files[self.turn])
            self.turn, self.offset, self.record = self.turn + 1, 0, 0

    def _of_one(self, file: IO[bytes], path: str) -> Iterator[Any]:
        try:
            if self.offset:
                file.seek(self.offset)
            else:
                self.offset = self._of.begin(file)
            for element, size in self._of.records(file, path):
                self.offset += size
                self.record += 1
                yield element
        except DAMAGES as error:
            raise DatasetError(
                f"{path}: byte {self.offset:,}, record {self.record:,}: {error}"
            ) from error

    def origin(self) -> str | None:
        if self.turn >= len(self._of._files):
            return None
        return f"{self._of._files[self.turn]}, record {max(0, self.record - 1):,}"


class TextLineDataset(_Files):
    """The lines of text files, without their ends.

    Args:
        filenames: one path or several, or a data set of them.
        compression_type: "GZIP", "ZLIB", or None for none.
        buffer_size: accepted as TensorFlow does; files are read in blocks of 256 KB.
        num_parallel_reads: how many files are read at the same time, their lines by
            turns; None: one after the other.
        encoding: of the text; None: lines are bytes.

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
        num_parallel_reads: int | None = None,
        encoding: str | None = "utf-8",
    ) -> None:
        super().__init__(filenames, compression_type, num_parallel_reads)
        self._encoding = encoding

    def _of_file(self, path: Any) -> Dataset:
        return TextLineDataset(path, self._compression, None, self._encoding)

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        encoding = self._encoding
        for line in file:
            text = line.rstrip(b"\r\n")
            yield text.decode(encoding) if encoding else text, len(line)

    def _spec(self) -> Any:
        return TensorSpec((), str)


class TFRecordDataset(_Files):
    """The records of TFRecord files, as bytes; their checksums are verified.

    Args:
        filenames: one path or several, or a data set of them.
        compression_type: "GZIP", "ZLIB", or None for none.
        num_parallel_reads: how many files are read at the same time, their records by
            turns; None: one after the other.

    Raises:
        DatasetError: a record is damaged or cut off; it names the file and the byte.

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
        return TFRecordDataset(path, self._compression)

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        while (record := read_record(file)) is not None:
            yield record, len(record) + 16

    def _spec(self) -> Any:
        return TensorSpec((), bytes)


class FixedLengthRecordDataset(_Files):
    """Records of a fixed number of bytes each.

    Args:
        filenames: one path or several, or a data set of them.
        record_bytes: the size of a record.
        header_bytes: how much to pass over at the beginning of each file.
        compression_type: "GZIP", "ZLIB", or None for none.
        num_parallel_reads: how many files are read at the same time.

    Raises:
        DatasetError: a file ends inside of a record.
    """

    _name = "fixed_length_records"

    def __init__(
        self,
        filenames: Paths,
        record_bytes: int,
        header_bytes: int = 0,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        super().__init__(filenames, compression_type, num_parallel_reads)
        self._size, self._header = record_bytes, header_bytes

    def _of_file(self, path: Any) -> Dataset:
        return FixedLengthRecordDataset(
            path, self._size, self._header, self._compression
        )

    def begin(self, file: IO[bytes]) -> int:
        return len(file.read(self._header))

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        while record := file.read(self._size):
            if len(record) < self._size:
                raise RecordError(
                    f"expected {self._size} bytes; the file ends after {len(record)}"
                )
            yield record, len(record)


class CsvDataset(_Files):
    """The rows of CSV files, as tuples of numbers and strings.

    Args:
        filenames: one path or several, or a data set of them.
        record_defaults: for each column that is read its dtype, if it must not be
            empty, or the value that stands for an empty one, whose dtype it has.
        header: whether each file begins with a row of names.
        field_delim: what stands between fields.
        use_quote_delim: whether double quotes may enclose fields.
        na_value: what also counts as empty.
        select_cols: the numbers of the columns to read, in rising order; None: all.
        compression_type: "GZIP", "ZLIB", or None for none.

    Raises:
        DatasetError: a row that does not fit; it names the file and the byte.

    Example:
        >>> import tempfile
        >>> from toolkit.data import CsvDataset
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("1,a\\n,b\\n"), file.flush()
        ...     [(int(x), y) for x, y in CsvDataset(file.name, [0, "string"])]
        [(1, 'a'), (0, 'b')]
    """

    _name = "csv"

    def __init__(
        self,
        filenames: Paths,
        record_defaults: Sequence[Any],
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        compression_type: str | None = None,
    ) -> None:
        super().__init__(filenames, compression_type)
        self._defaults = list(record_defaults)
        self._columns = [_Column(default) for default in self._defaults]
        self._header, self._na, self._chosen = header, na_value, select_cols
        self._format = {
            "delimiter": field_delim,
            "quoting": csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE,
            "strict": True,  # a file that ends inside of quotes is cut off
        }

    def _of_file(self, path: Any) -> Dataset:
        quotes = self._format["quoting"] == csv.QUOTE_MINIMAL
        delimiter = str(self._format["delimiter"])
        return CsvDataset(
            *(path, self._defaults, self._header, delimiter, quotes, self._na),
            *(self._chosen, self._compression),
        )

    def begin(self, file: IO[bytes]) -> int:
        return len(file.readline()) if self._header else 0

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        lines = _Counted(file)
        for fields in csv.reader(lines, **self._format):  # type: ignore[arg-type]
            size, lines.size = lines.size, 0
            yield self._converted(fields), size

    def _converted(self, fields: list[str]) -> tuple[Any, ...]:
        if self._chosen is not None:
            if len(fields) <= max(self._chosen, default=-1):
                raise ShapeError(
                    f"expected at least {max(self._chosen) + 1} fields; received "
                    f"{len(fields)}"
                )
            fields = [fields[column] for column in self._chosen]
        if len(fields) != len(self._columns):
            raise ShapeError(
                f"expected {len(self._columns)} fields; received {len(fields)}"
            )
        pairs = zip(self._columns, fields, strict=True)
        return tuple(column.value(field, self._na) for column, field in pairs)

    def _spec(self) -> Any:
        return tuple(TensorSpec((), column.dtype) for column in self._columns)


class _Counted:
    """The lines of a file, and how many bytes were read since the last row."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.size += len(line)
            yield line.decode("utf-8")


class _Column:
    """What a field of a column becomes: text stays text."""

    def __init__(self, default: Any) -> None:
        named = isinstance(default, type) or hasattr(default, "name")
        self.is_required = named or default in (
            "string",
            "float32",
            "float64",
            "int32",
            "int64",
        )
        if self.is_required:
            self.dtype = TensorSpec((), default).dtype
        else:
            self._default = np.asarray(default).ravel()[0]
            is_text = isinstance(self._default, str)
            self.dtype = TensorSpec((), str).dtype if is_text else self._default.dtype
        if isinstance(default, float):
            self.dtype = np.dtype("float32")

    def value(self, field: str, na_value: str) -> Any:
        """A field as a value."""
        if field in ("", na_value):
            if self.is_required:
                raise RecordError("a field that must not be empty is empty")
            field = self._default
        return str(field) if self.dtype == object else self.dtype.type(field)


@source("list_files")
class ListFiles(Dataset):
    """The paths that match patterns, as strings.

    Args:
        file_pattern: such as "data/*.csv"; one or several.
        shuffle: whether they come in a random order, a new one in each pass.
        seed: what the order depends on; None draws one.

    Raises:
        DatasetError: nothing matches.

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
        given = isinstance(file_pattern, (str, os.PathLike))
        patterns = [file_pattern] if given else list(file_pattern)  # type: ignore[list-item, arg-type]
        found = sorted(path for pattern in patterns for path in glob(str(pattern)))
        if not found:
            raise DatasetError(f"list_files: no file matches {patterns}")
        files = from_elements(found)
        if shuffle is not False:
            files = files.shuffle(len(found), seed)
        super().__init__(files)

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, here: Pass) -> Any:
        return here.rows(self._parents[0])

    def _stream(self, here: Pass) -> Stream:
        return here.open(self._parents[0])
