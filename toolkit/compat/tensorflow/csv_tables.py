"""CSV files with named columns, whose dtypes are inferred from their first rows."""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from toolkit import data
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, MissingFileError, unknown_choice
from toolkit.reading.text import parse_number

_ROW_END = re.compile("\r\n?(?!$)")


def expand_paths(file_pattern: Any) -> list[str]:
    """Return the files of a path or pattern, or of a list of them, in order."""
    patterns = (
        [file_pattern] if isinstance(file_pattern, (str, os.PathLike)) else file_pattern
    )
    paths = [
        path for pattern in patterns for path in sorted(glob.glob(os.fspath(pattern)))
    ]
    if not paths:
        raise MissingFileError(f"make_csv_dataset: no file matches {file_pattern!r}")
    return paths


@record
class Table:
    """Description of a CSV file.

    Args:
        names: of its columns.
        defaults: for each column the value of an empty field.
        form: its delimiter, whether it has quotes, the text of an empty field.
        header: whether the first line has the names.
        compression: "GZIP", "ZLIB" or None.
    """

    names: Sequence[str]
    defaults: Sequence[Any]
    form: dict[str, Any]
    header: bool
    compression: str | None

    @classmethod
    def of(
        cls,
        path: str,
        form: dict[str, Any],
        column_names: Sequence[str] | None,
        header: bool,
        compression: str | None,
        rows: int,
    ) -> Table:
        """Infer the description from the first rows of a file."""
        lines = data.TextLineDataset(path, compression_type=compression)
        # Rows can end with CR, which is not a line end in other text files.
        pieces = (piece for line in lines for piece in _ROW_END.split(str(line)))
        texts = islice(pieces, rows + header)
        quoting: Any = csv.QUOTE_MINIMAL if form["quotes"] else csv.QUOTE_NONE
        fields = list(csv.reader(texts, delimiter=form["delimiter"], quoting=quoting))
        names = column_names
        if header:
            first, *fields = fields or [[]]
            names = first if names is None else names
        if names is None:
            raise ArgumentError(
                "make_csv_dataset: expected column_names, because the file has no "
                "header"
            )
        if len(set(names)) < len(names):
            raise ArgumentError(
                f"make_csv_dataset: expected unique names; received {list(names)}"
            )
        columns = zip(*fields, strict=False) if fields else [()] * len(names)
        defaults = [_infer_default(column, form["na"]) for column in columns]
        return cls(list(names), defaults, form, header, compression)

    def columns(self, selection: Sequence[Any] | None) -> list[int]:
        """Return the indices of columns, given by name or by index."""
        if selection is None:
            return list(range(len(self.names)))
        numbers = []
        for column in selection:
            if isinstance(column, str) and column not in self.names:
                raise unknown_choice("select_columns", column, self.names)
            is_name = isinstance(column, str)
            numbers.append(self.names.index(column) if is_name else int(column))
        return sorted(numbers)

    def read(
        self,
        paths: list[str],
        defaults: Sequence[Any] | None,
        selection: Sequence[Any] | None,
        blocks: int | None = None,
        skips_errors: bool = False,
    ) -> data.Dataset:
        """Read the rows of files with this description.

        Args:
            paths: of the files.
            defaults: for each column a dtype or the value of an empty field.
            selection: the names, or indices, of the columns to read.
            blocks: the number of files to interleave row by row; None for sequential
                reads.
            skips_errors: whether to skip rows with errors.
        """
        if blocks is not None and len(paths) > 1:
            files = data.Dataset.from_tensor_slices(np.array(paths))
            return files.interleave(
                lambda path: self.read(
                    [str(path)], defaults, selection, None, skips_errors
                ),
                cycle_length=blocks,
            )
        numbers = self.columns(selection)
        if defaults is None:
            defaults = [self.defaults[number] for number in numbers]
        elif len(defaults) == len(self.names) > len(numbers):
            defaults = [defaults[number] for number in numbers]
        return data.CsvDataset(
            paths,
            defaults,
            self.compression,
            header=self.header,
            field_delim=self.form["delimiter"],
            use_quote_delim=self.form["quotes"],
            na_value=self.form["na"],
            select_cols=None if selection is None else numbers,
            skip_errors=skips_errors,
        )

    def name_columns(
        self, selection: Sequence[Any] | None, label: str | None
    ) -> Callable[..., Any]:
        """Return a function that maps the columns of a batch to a dict, and the
        label."""
        names = [self.names[number] for number in self.columns(selection)]
        if label is not None and label not in names:
            raise unknown_choice("label_name", label, names)

        def name(*columns: Any) -> Any:
            features = dict(zip(names, columns, strict=True))
            if label is None:
                return features
            target = features.pop(label)
            return features, target

        return name


def _infer_default(column: Sequence[str], na_value: str) -> Any:
    """Return the value of an empty field of a column: 0, 0.0 or "", in its dtype."""
    texts = [text for text in column if text not in ("", na_value)]
    if texts and all(_can_parse(int, text) for text in texts):
        limits = np.iinfo("int32")
        fits = all(limits.min <= int(text) <= limits.max for text in texts)
        return np.int32(0) if fits else np.int64(0)
    return 0.0 if texts and all(_can_parse(float, text) for text in texts) else ""


def _can_parse(kind: type, text: str) -> bool:
    try:
        parse_number(kind, text)
    except ValueError:
        return False
    return True
