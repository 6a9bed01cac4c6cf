"""Stages that cache elements in memory or in files, to compute them only once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.console.progress import Stage, Work, show_progress, stage
from toolkit.data.dataset import Dataset, source, transformation
from toolkit.data.element_files import COMPRESSIONS, ElementWriter, StoredRows
from toolkit.data.fingerprints import fingerprint
from toolkit.data.rows import (
    ArrayRows,
    Indices,
    ItemRows,
    RangeRows,
    Rows,
    as_index_array,
)
from toolkit.data.specs import join_specs
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import spec_of
from toolkit.errors import DatasetError, UnsupportedError, unknown_choice

ELEMENTS_FILE = "elements.data"  # in the folder of a saved data set


@transformation("cache")
class Cache(Dataset):
    """A cache of the elements, filled in the first pass.

    Indexable elements are cached separately, in any order. Other elements are cached
    when a full pass ends. Rows of arrays in memory are not copied.

    Args:
        filename: the file for the cache, which later programs can reuse. "" caches in
            memory. A file from a different pipeline raises an error; delete it to start
            again.

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
        self._compression: str | None = None
        self._cached: Rows | None = None
        self._values: dict[int, Any] = {}

    def _detail(self) -> str:
        return self._path or "in memory"

    def _cardinality(self) -> int:
        return (
            self._parents[0]._cardinality()
            if self._cached is None
            else len(self._cached)
        )

    def _spec(self) -> Any:
        return self._parents[0]._spec()

    def _rows(self, context: PassContext) -> Rows | None:
        if not self._path:
            rows = self._first_pass(context).rows(self._parents[0])
            if isinstance(rows, (ArrayRows, RangeRows)):
                return rows
            if rows is not None:
                return _CachedRows(rows, self._values)
        if not context.run.uses_cache.setdefault(self, self.cached_rows() is not None):
            return None
        if self.cached_rows() is None:  # the position is from a pass with a full cache
            for _ in self._stream(context):
                pass
        return self.cached_rows()

    def cached_rows(self) -> Rows | None:
        """Return all elements, or None before the end of the first full pass."""
        if self._cached is None and self._path and Path(self._path).exists():
            rows, label = StoredRows(self._path), self.label()
            if rows.label != label:
                raise DatasetError(
                    f"{self._path}: expected elements of {label}; the file contains "
                    f"elements of {rows.label}. The stages or their arguments "
                    "differ. To create the file again, delete it"
                )
            self._cached = rows
        return self._cached

    def label(self) -> str:
        """Return the label that identifies the cached pipeline in a file."""
        return _label(self._parents[0])

    def sink(self) -> Any:
        """Return a sink for the elements of a full pass."""
        return _FileSink(self, self._path) if self._path else _MemorySink(self)

    @staticmethod
    def _first_pass(context: PassContext) -> PassContext:
        """Return the pass to cache; later passes repeat the order of the first.

        It has no index, because later passes shuffle the cached elements as rows.
        """
        return context._replace(epoch=(0,)).without_index()

    def _stream(self, context: PassContext) -> Stream:
        return _CachingStream(
            self, context, self._first_pass(context).open(self._parents[0])
        )


class _FileSink(ElementWriter):
    """Sink that writes a file cache and shows its progress."""

    def __init__(self, cache: Cache, path: str) -> None:
        super().__init__(path, cache.label(), cache._compression)
        count = cache._cardinality()
        self.shown = Stage("", count if count >= 0 else None)
        self._work = Work(f"caching in {path}")
        self._work.stages.append(self.shown)
        self._work.begin()

    def abandon(self) -> None:
        self._work.end()
        super().abandon()


class _MemorySink:
    """Sink that fills a memory cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._values: list[Any] = []
        self.shown = Stage("")

    def write(self, element: Any) -> None:
        self._values.append(element)

    def finish(self) -> None:
        self._cache._cached = ItemRows(self._values)

    def abandon(self) -> None:
        pass


class _CachedRows(Rows):
    """Rows that are computed once and cached."""

    def __init__(self, rows: Rows, values: dict[int, Any]) -> None:
        super().__init__(len(rows))
        self._rows, self._values = rows, values

    def __getitem__(self, number: int) -> Any:
        if number not in self._values:
            self._values[number] = self._rows[number]
        return self._values[number]

    def gather(self, numbers: Indices) -> list[Any]:
        indices = as_index_array(numbers).tolist()
        return [self[number] for number in indices]

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number)


class _CachingStream(Stream):
    """Stream that forwards elements, and caches them if it reads from the first one.

    A pass that starts before the cache is full keeps this stream until its end.
    Positions in such a pass do so too, although later repetitions read the cache.
    """

    def __init__(self, dataset: Cache, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._of = dataset
        self.position = 0
        self._reads_parent = False  # whether the parent is at our position

    def state(self) -> Any:
        return [self.position, self.parent.state() if self._reads_parent else None]

    def restore(self, state: Any) -> None:
        self.position, before = state
        self._reads_parent = before is not None
        if self._reads_parent:
            self.parent.restore(before)

    def elements(self) -> Iterator[Any]:
        cached = self._of.cached_rows()
        if cached is not None:
            self._reads_parent = False
            for element in cached.iterate(self.position):
                self.position += 1
                yield element
        elif self._reads_parent:
            for element in self.parent:
                self.position += 1
                yield element
        else:
            self._reads_parent = True
            yield from self._fill_cache()

    def _fill_cache(self) -> Iterator[Any]:
        sink, passed = self._of.sink(), self.position
        self.context.run.on_close(sink.abandon)
        try:
            for number, element in enumerate(self.parent):
                sink.write(element)
                sink.shown.count += 1
                if number >= passed:
                    self.position += 1
                    yield element
            sink.finish()
        finally:
            sink.abandon()
            self.context.run.cancel_on_close(sink.abandon)


@transformation("snapshot")
class Snapshot(Cache):
    """A snapshot of the elements in a folder that data sets can share.

    Args:
        path: the folder. It contains one file for each pipeline, with its arguments and
            functions (see `fingerprint`).
        compression: "GZIP" compresses arrays; "AUTO", "" and None do not.
        reader_func, shard_func: must be None. All elements are in one file, which can
            be read in any order.

    Example:
        >>> import tempfile
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     numbers = Dataset.range(3).filter(lambda x: x > 0).snapshot(folder)
        ...     [int(x) for x in numbers], [int(x) for x in numbers]
        ([1, 2], [1, 2])
    """

    def __init__(
        self,
        dataset: Dataset,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: None = None,
        shard_func: None = None,
    ) -> None:
        refuse_sharding("snapshot", reader_func=reader_func, shard_func=shard_func)
        # A custom stage name can contain path separators or invalid characters.
        name = re.sub(r"[^\w.-]", "-", dataset._name)
        file = f"{name}-{fingerprint(dataset):016x}.data"
        super().__init__(dataset, Path(path) / file)
        self._compression = compression


def _label(dataset: Dataset) -> str:
    return f"{dataset!r} {fingerprint(dataset):016x}"


def refuse_sharding(stage: str, **arguments: Any) -> None:
    """Raise an error if a sharding argument is given: elements are in one file."""
    for name, value in arguments.items():
        if value:
            raise UnsupportedError(
                f"{stage}: {name} is not supported: all elements are in one file, "
                "which is written once and read in any order"
            )


def save(
    self: Dataset,
    path: str | os.PathLike[str],
    compression: str | None = None,
    shard_func: None = None,
    checkpoint_args: None = None,
) -> None:
    """Write all elements to a folder, for `Dataset.load`.

    Args:
        path: the folder, created if it does not exist.
        compression: "GZIP" compresses arrays. None allows reading without a copy.
        shard_func, checkpoint_args: must be None. All elements are in one file, which
            appears when it is complete.

    Example:
        >>> import tempfile
        >>> from toolkit.data import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Dataset.range(3).save(folder)
        ...     [int(x) for x in Dataset.load(folder)]
        [0, 1, 2]
    """
    refuse_sharding("save", shard_func=shard_func, checkpoint_args=checkpoint_args)
    writer = ElementWriter(Path(path) / ELEMENTS_FILE, self._pipeline(), compression)
    count = self._cardinality()
    try:
        with (
            show_progress(f"saving in {path}"),
            stage("", max(count, 0) or None) as saved,
        ):
            for element in self:
                writer.write(element)
                saved.count += 1
        writer.finish()
    finally:
        writer.abandon()


Dataset.save = save  # type: ignore[attr-defined]


@source("load")
class Load(Dataset):
    """The elements of a data set written by `save`, read on demand.

    Args:
        path: the folder.
        element_spec: the TensorSpecs of an element, if known.
        compression: accepted for compatibility with TensorFlow; the file records it.
        reader_func, wait: must be the defaults. All elements are in one complete file.

    Raises:
        DatasetError: the file is corrupt or truncated; the message gives the offset.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: None = None,
        wait: bool = False,
    ) -> None:
        super().__init__()
        refuse_sharding("load", reader_func=reader_func, wait=wait)
        if compression not in COMPRESSIONS:
            raise unknown_choice("compression", compression, COMPRESSIONS)
        self._stored = StoredRows(Path(path) / ELEMENTS_FILE)
        self._given_spec = element_spec

    def _spec(self) -> Any:
        if self._given_spec is not None:
            return self._given_spec
        last = len(self._stored) - 1  # can be a partial batch
        return join_specs([super()._spec(), spec_of(self._stored[last])])

    def _cardinality(self) -> int:
        return len(self._stored)

    def _rows(self, context: PassContext) -> Rows:
        return self._stored
