"""Rows of CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from toolkit.console.frames import warn
from toolkit.data.dataset import Dataset
from toolkit.data.files import Paths, Records, read_lines
from toolkit.data.record_index import (
    CORRUPT_FILE_ERRORS,
    RecordIndex,
    index_lines,
    index_sizes,
)
from toolkit.data.records import RecordError
from toolkit.data.structure import TensorSpec
from toolkit.errors import (
    ArgumentError,
    DamagedFileError,
    ShapeError,
    suggest_choice,
)
from toolkit.reading.text import parse_number


class CsvDataset(Records):
    """The rows of CSV files, as tuples of numbers and strings.

    Rows end with LF, CR LF or CR. Numbers have ASCII digits and no underscores.

    Args:
        filenames: one path, several paths, or a data set of paths.
        record_defaults: for each selected column, a dtype for a required field, or a
            default value for empty fields, which also sets the dtype. The texts
            "float32", "float64", "int32", "int64" and "string" are dtypes. Any other
            text is a default value of a column of texts.
        compression_type: "GZIP", "ZLIB", or None for uncompressed files.
        buffer_size: the read buffer size in bytes; 256 KB by default.
        header: whether the first row of each file is a header.
        field_delim: the field delimiter.
        use_quote_delim: whether double quotes can enclose fields.
        na_value: a string that also counts as an empty field.
        select_cols: the indices of the columns to read, in ascending order. None
            selects all columns.
        exclude_cols: the indices of the columns to drop, instead of `select_cols`.
        skip_errors: whether to skip invalid rows, with one warning for each file,
            instead of an error.

    Raises:
        DatasetError: a row is invalid; the message gives the file and the byte offset.

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
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
        skip_errors: bool = False,
    ) -> None:
        super().__init__(filenames, compression_type, buffer_size)
        if select_cols is not None and exclude_cols is not None:
            raise ArgumentError(
                "csv: expected select_cols or exclude_cols; received both"
            )
        self._left_out, self._skips = list(exclude_cols or ()), skip_errors
        self._defaults = list(record_defaults)
        self._columns = [_Column(default) for default in self._defaults]
        for number, default in enumerate(self._defaults):
            _warn_of_type_names(number, default)
        self._header, self._na, self._chosen = header, na_value, select_cols
        self._format = {
            "delimiter": field_delim,
            "quoting": csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE,
            "strict": True,  # a file that ends in a quoted field is truncated
        }

    def _of_file(self, path: Any) -> Dataset:
        quotes = self._format["quoting"] == csv.QUOTE_MINIMAL
        delimiter = str(self._format["delimiter"])
        return CsvDataset(
            *(path, self._defaults, self._compression, self._block, self._header),
            *(delimiter, quotes, self._na, self._chosen, self._left_out or None),
            self._skips,
        )

    def skip_header(self, file: IO[bytes]) -> int:
        if not self._header:
            return 0
        line = file.readline()
        first = line.splitlines(keepends=True)[:1]
        size = sum(map(len, first))
        if size < len(line):  # lines end with CR: the buffer has more rows
            file.seek(size)
        return size

    def records(self, file: IO[bytes], path: str) -> Iterator[tuple[Any, int]]:
        size = skipped = 0
        lines = read_lines(file, path, self._compression)
        for fields, row_size in self._split_rows(lines):
            size += row_size
            try:
                row = self._converted(fields)
            except (ValueError, RecordError):
                if not self._skips:
                    raise
                skipped += 1
                continue
            yield row, size
            size = 0
        if skipped:
            warn(f"{path}: {skipped} invalid rows are skipped")

    def _split_rows(self, lines: Iterable[bytes]) -> Iterator[tuple[list[str], int]]:
        """Yield the fields of each row, and the size of the row in bytes."""
        counter = _LineCounter(lines)
        for fields in csv.reader(counter, **self._format):  # type: ignore[arg-type]
            size, counter.size = counter.size, 0
            yield fields, size

    # Random access

    @property
    def _is_indexable(self) -> bool:
        # Only a parser finds the rows to skip.
        return super()._is_indexable and not self._skips

    def _record_kind(self) -> tuple[object, ...]:
        return self._header, *self._format.values()

    def create_index(self, file: IO[bytes], size: int) -> RecordIndex:
        start = self.skip_header(file)
        index = index_lines(file, start, self._is_plain)
        if index is None:
            file.seek(start)
            index = index_sizes(self._row_sizes(file, size), start, size)
        return index

    def _is_plain(self, chunk: bytes) -> bool:
        """Return whether rows end exactly at line feeds."""
        has_quotes = self._format["quoting"] != csv.QUOTE_NONE and b'"' in chunk
        return not has_quotes and chunk.count(b"\r") == chunk.count(b"\r\n")

    def _row_sizes(self, lines: Iterable[bytes], end: int) -> Iterator[int]:
        """Yield the size of each row; a row with an error extends to the end."""
        try:
            for _, size in self._split_rows(lines):
                yield size
        except CORRUPT_FILE_ERRORS:
            yield end

    def split_block(self, block: bytes) -> Sequence[list[str] | Exception]:
        records: list[list[str] | Exception] = []
        try:
            for fields, _ in self._split_rows(io.BytesIO(block)):
                records.append(fields)
        except CORRUPT_FILE_ERRORS as error:
            records.append(error)
        return records

    def parse(self, record: list[str] | Exception) -> tuple[object, ...]:
        if isinstance(record, Exception):
            raise record
        return self._converted(record)

    def _converted(self, fields: list[str]) -> tuple[Any, ...]:
        if self._left_out:
            columns = enumerate(fields)
            fields = [field for i, field in columns if i not in self._left_out]
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
        values = []
        for number, (column, field) in enumerate(
            zip(self._columns, fields, strict=True)
        ):
            try:
                values.append(column.value(field, self._na, number))
            except (ValueError, OverflowError) as error:
                raise RecordError(f"field {number}: {error}") from error
        return tuple(values)

    def record_error(
        self, path: str, offset: int, number: int, error: Exception
    ) -> DamagedFileError:
        if number == 0 and not self._header:
            hint = "if the first row has the names of the columns, pass header=True"
            error = RecordError(f"{error}; {hint}")
        return super().record_error(path, offset, number, error)

    def _spec(self) -> Any:
        return tuple(TensorSpec((), column.dtype) for column in self._columns)


class _LineCounter:
    """Lines of a file, with a count of the bytes read since the last row."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            # A row ends with LF, CR LF or CR; bytes are split at no other characters.
            for row in line.splitlines(keepends=True) if b"\r" in line else (line,):
                self.size += len(row)
                yield row.decode("utf-8")


# Python numbers have no fixed width: map them to the default column dtypes.
_DEFAULT_DTYPES = {
    np.dtype("float64"): np.dtype("float32"),
    np.dtype("int64"): np.dtype("int32"),
}


# Texts that name a dtype in `record_defaults`.
_DTYPES = ("string", "float32", "float64", "int32", "int64")
# Texts that name a type elsewhere.
_TYPE_NAMES = ("float", "int", "str", "object", "bool", "double", "half", "float16")


def _warn_of_type_names(number: int, default: object) -> None:
    """Warn of a default text that a user may have meant as a dtype."""
    if not isinstance(default, str) or default in _DTYPES:
        return
    if default.lower() in _TYPE_NAMES or suggest_choice(default, _DTYPES):
        warn(
            f"csv: record_defaults[{number}]={default!r} is the default text of a "
            f"column of texts; the dtypes are {', '.join(map(repr, _DTYPES))}"
        )


class _Column:
    """Parser of one column; text stays text."""

    def __init__(self, default: Any) -> None:
        named = isinstance(default, type) or hasattr(default, "name")
        self.is_required = named or default in _DTYPES
        if self.is_required:
            self.dtype = TensorSpec((), default).dtype
        else:
            self._default = np.asarray(default).ravel()[0]
            is_text = isinstance(self._default, str)
            self.dtype = TensorSpec((), str).dtype if is_text else self._default.dtype
            if not isinstance(default, (np.ndarray, np.generic)):
                self.dtype = _DEFAULT_DTYPES.get(self.dtype, self.dtype)

    def value(self, field: str, na_value: str, number: int) -> Any:
        """Return the value of a field in the column with this number."""
        if field in ("", na_value):
            if self.is_required:
                raise RecordError(
                    f"a required field is empty: record_defaults[{number}] is a dtype; "
                    "pass a value for empty fields instead, such as 0.0 or ''"
                )
            field = self._default
        if self.dtype == object:
            return str(field)
        if not isinstance(field, str):
            return self.dtype.type(field)
        if self.dtype == bool:
            return np.bool_(_parse_boolean(field))
        return parse_number(self.dtype.type, field)


def _parse_boolean(text: str) -> bool:
    """Return the value of a boolean field."""
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise RecordError(f"expected true, false, 1 or 0; received {text!r:.60}")
    return value
