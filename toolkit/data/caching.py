"""Stages that keep elements, in memory or in files, so that they are made once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.data.dataset import Dataset, source, transformation
from toolkit.data.rows import ArrayRows, ItemRows, Numbers, RangeRows, Rows, as_array
from toolkit.data.store import StoredRows, Writer
from toolkit.data.streams import Pass, Stream
from toolkit.errors import DatasetError
from toolkit.progress import Stage, Work, stage, working

ELEMENTS = "elements.data"  # in the folder of a saved data set


@transformation("cache")
class Cache(Dataset):
    """The elements, kept when they come for the first time.

    Elements that have numbers are kept one by one, in any order; others when a whole
    pass has ended. Rows of arrays in memory are not kept a second time.

    Args:
        filename: the file to keep them in, for later programs too; "": in memory. A
            file that was made by other stages is refused; delete it to begin anew.

    Example:
        >>> from toolkit.data import Dataset
        >>> made = []
        >>> cached = Dataset.range(3).map(lambda x: made.append(x) or x).cache()
        >>> _ = list(cached), list(cached)
        >>> len(made)
        3
    """

    def __init__(self, dataset: Dataset, filename: str | os.PathLike[str] = "") -> None:
        super().__init__(dataset)
        self._path = os.fspath(filename)
        self._kept: Rows | None = None
        self._values: dict[int, Any] = {}

    def _detail(self) -> str:
        return self._path or "in memory"

    def _cardinality(self) -> int:
        return (
            self._parents[0]._cardinality() if self._kept is None else len(self._kept)
        )

    def _spec(self) -> Any:
        return self._parents[0]._spec()

    def _rows(self, here: Pass) -> Rows | None:
        if self._kept is None and self._path and Path(self._path).exists():
            self._kept = self._opened()
        if self._kept is not None:
            return self._kept
        if self._path:
            return None
        rows = here.rows(self._parents[0])
        if rows is None or isinstance(rows, (ArrayRows, RangeRows)):
            return rows
        return _KeptRows(rows, self._values)

    def _opened(self) -> StoredRows:
        rows = StoredRows(self._path)
        if rows.label != repr(self._parents[0]):
            raise DatasetError(
                f"{self._path}: expected elements of {self._parents[0]!r}; the file "
                f"holds those of {rows.label}"
            )
        return rows

    def _stream(self, here: Pass) -> Stream:
        parent = here.open(self._parents[0])
        if self._path:
            return _WritingStream(self, here, parent, self._path)
        return _KeepingStream(self, here, parent)


class _KeptRows(Rows):
    """Rows that are made once each."""

    def __init__(self, rows: Rows, values: dict[int, Any]) -> None:
        super().__init__(len(rows))
        self._rows, self._values = rows, values

    def __getitem__(self, number: int) -> Any:
        if number not in self._values:
            self._values[number] = self._rows[number]
        return self._values[number]

    def many(self, numbers: Numbers) -> list[Any]:
        wanted = as_array(numbers).tolist()
        return [self[number] for number in wanted]

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number)


class _KeepingStream(Stream):
    """Hands on elements and keeps them, if it begins with the first one."""

    fields = ("position",)

    def __init__(self, dataset: Cache, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._of = dataset
        self.position = 0

    def elements(self) -> Iterator[Any]:
        is_whole = self.position == 0
        values = []
        for element in self.parent:
            if is_whole:
                values.append(element)
            self.position += 1
            yield element
        if is_whole:
            self._of._kept = ItemRows(values)


class _WritingStream(Stream):
    """Hands on elements and writes them to a file, if it begins with the first one."""

    fields = ("position",)

    def __init__(self, dataset: Dataset, here: Pass, parent: Stream, path: str) -> None:
        super().__init__(dataset, here, parent)
        self._path = path
        self.position = 0

    def elements(self) -> Iterator[Any]:
        if self.position:
            for element in self.parent:
                self.position += 1
                yield element
            return
        writer = Writer(self._path, repr(self.dataset._parents[0]))
        work = Work(f"caching in {self._path}")
        count = self.dataset._cardinality()
        self.here.run.at_close(writer.abandon)
        self.here.run.at_close(work.end)
        kept = Stage("", count if count >= 0 else None)
        work.stages.append(kept)
        work.begin()
        try:
            for element in self.parent:
                writer.write(element)
                self.position = kept.done = self.position + 1
                yield element
            writer.finish()
        finally:
            writer.abandon()
            work.end()


@transformation("snapshot")
class Snapshot(Cache):
    """The elements, kept in a folder that other data sets may use too.

    Args:
        path: the folder; each chain of stages has a file of its own in it.

    Example:
        >>> import tempfile
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     numbers = Dataset.range(3).filter(lambda x: x > 0).snapshot(folder)
        ...     [int(x) for x in numbers], [int(x) for x in numbers]
        ([1, 2], [1, 2])
    """

    def __init__(self, dataset: Dataset, path: str | os.PathLike[str]) -> None:
        name = "-".join(dataset._chain())
        super().__init__(dataset, Path(path) / f"{name}.data")


def save(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write all elements into a folder, for `Dataset.load`.

    Args:
        path: the folder; it is made if it does not exist.

    Example:
        >>> import tempfile
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Dataset.range(3).save(folder)
        ...     [int(x) for x in Dataset.load(folder)]
        [0, 1, 2]
    """
    writer = Writer(Path(path) / ELEMENTS, repr(dataset))
    count = dataset._cardinality()
    try:
        with working(f"saving in {path}"), stage("", max(count, 0) or None) as saved:
            for element in dataset:
                writer.write(element)
                saved.done += 1
        writer.finish()
    finally:
        writer.abandon()


Dataset.save = save  # type: ignore[attr-defined]


@source("load")
class Load(Dataset):
    """The elements that `save` has written; they are read where they are needed.

    Args:
        path: the folder.

    Raises:
        DatasetError: the file is damaged or cut off; it says where.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._stored = StoredRows(Path(path) / ELEMENTS)

    def _cardinality(self) -> int:
        return len(self._stored)

    def _rows(self, here: Pass) -> Rows:
        return self._stored
