"""Random access to elements by index, for data sets that support any order.

Orders, subsets and batches of such data sets are computed on indices. One gather then
reads the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise
from time import perf_counter_ns
from typing import Any

import numpy as np

from toolkit.data.batch_shards import RowSelector, rows_to_read, shard_of_batch
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.profiling import FunctionProfile
from toolkit.data.randomness import (
    CHUNK,
    LAST_CHUNK,
    Draws,
    generator,
)
from toolkit.data.structure import map_leaves, stack_elements
from toolkit.type_aliases import Array

Indices = range | Array  # a range can avoid a copy
# Indices of an order in memory, 8 bytes each; more records of files are streamed.
MAX_ORDER_SIZE = 1 << 25


def as_index_array(numbers: Indices) -> Array:
    """Return indices as an integer array."""
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop, numbers.step)
    return numbers


class Rows:
    """Base class for random access to elements, with indices from 0."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        """Return one element; a subclass defines this method or `many`."""
        return self.gather(range(number, number + 1))[0]

    def gather(self, numbers: Indices) -> Sequence[Any]:
        """Return several elements."""
        return [self[int(number)] for number in numbers]

    def stacked(self, numbers: Indices) -> Any:
        """Return several elements stacked along a new first axis."""
        return stack_elements(self.gather(numbers))

    def iterate(self, start: int) -> Iterator[Any]:
        """Yield the elements from an index on."""
        return map(self.__getitem__, range(start, len(self)))

    def origin(self, number: int) -> str | None:
        """Return the origin of an element, such as its file, or None."""
        return None

    def maps(self) -> Iterator[MappedRows]:
        """Yield the maps that compute these rows, the first one first."""
        source = getattr(self, "_rows", None)
        if isinstance(source, Rows):
            yield from source.maps()
        if isinstance(self, MappedRows):
            yield self


class ArrayRows(Rows):
    """Rows of arrays, without a copy; None has rows that are None."""

    def __init__(self, arrays: Any, length: int) -> None:
        super().__init__(length)
        self._arrays = map_leaves(_readonly_view, arrays)
        of_arrays = type(arrays) is tuple and all(type(a) is np.ndarray for a in arrays)
        self._is_flat = of_arrays  # the common case, with a fast path

    def __getitem__(self, number: int) -> Any:
        return map_leaves(lambda array: array[number], self._arrays)

    def stacked(self, numbers: Indices) -> Any:
        if isinstance(numbers, range):
            rows = slice(numbers.start, numbers.stop)
            if self._is_flat:
                return tuple([array[rows] for array in self._arrays])
            return map_leaves(lambda array: array[rows], self._arrays)
        if self._is_flat:
            return tuple([array.take(numbers, 0) for array in self._arrays])
        return map_leaves(lambda array: array.take(numbers, axis=0), self._arrays)

    def iterate(self, start: int) -> Iterator[Any]:
        arrays = self._arrays
        if isinstance(arrays, np.ndarray):
            return iter(arrays[start:])
        if self._is_flat:
            return zip(*(array[start:] for array in arrays), strict=True)
        return super().iterate(start)


class VariableLengthRows(ArrayRows):
    """Arrays whose rows can differ in length; rows are stacked separately."""

    stacked = Rows.stacked


class _NoneArray:
    """Substitute for an array whose rows are all None."""

    def __getitem__(self, rows: int | slice) -> None:
        return None

    def take(self, numbers: Array, axis: int = 0) -> None:
        return None


def _readonly_view(array: Array | None) -> Array | _NoneArray:
    """Return a read-only view, which prevents accidental changes."""
    if array is None:
        return _NoneArray()
    view = array.view()
    view.flags.writeable = False
    return view


class RangeRows(Rows):
    """Integers of a range."""

    def __init__(self, numbers: range) -> None:
        super().__init__(len(numbers))
        self._numbers = numbers

    def __getitem__(self, number: int) -> Any:
        return np.int64(self._numbers[number])

    def gather(self, numbers: Indices) -> Sequence[Any]:
        return self.stacked(numbers)

    def stacked(self, numbers: Indices) -> Any:
        return self._numbers.start + as_index_array(numbers) * self._numbers.step

    def iterate(self, start: int) -> Iterator[Any]:
        chunks = range(start, len(self), CHUNK)
        return chain.from_iterable(
            self.stacked(range(at, min(at + CHUNK, len(self)))) for at in chunks
        )


class ItemRows(Rows):
    """Items of an object with `__getitem__` and `__len__`."""

    def __init__(self, items: Any) -> None:
        super().__init__(len(items))
        self._items = items

    def __getitem__(self, number: int) -> Any:
        return self._items[number]


class MappedRows(Rows):
    """Results of a function for other rows; `name` is the function's name."""

    def __init__(self, rows: Rows, function: Callable[[Any], Any], name: str) -> None:
        super().__init__(len(rows))
        self._rows, self._function, self._name = rows, function, name
        self.profile = FunctionProfile(f"map({name})")

    def __getitem__(self, number: int) -> Any:
        element = self._rows[number]
        try:
            return self._function(element)
        except Exception as error:
            self._note(error, number)
            raise

    def gather(self, numbers: Indices) -> Sequence[Any]:
        function = self._function
        results: list[Any] = []
        try:
            elements = self._rows.gather(numbers)
            start = perf_counter_ns()
            for element in elements:
                results.append(function(element))
            self.profile.record(start, perf_counter_ns(), len(results))
        except Exception as error:
            self._note(error, int(numbers[len(results)]))
            raise
        return results

    def iterate(self, start: int) -> Iterator[Any]:
        return self.profile.apply(self._function, self._rows.iterate(start))

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number)

    def _note(self, error: Exception, number: int) -> None:
        where = describe_location("map", number, self._rows.origin(number))
        add_location_note(error, f"{where}, in {self._name}")


class ReorderedRows(Rows):
    """Rows in another order, or a subset: `pick` maps indices to indices.

    Args:
        rows: the source rows.
        length: the number of selected rows.
        pick: a function from an array of indices to an array of source indices.
    """

    def __init__(self, rows: Rows, length: int, pick: Callable[[Array], Array]) -> None:
        super().__init__(length)
        self._rows, self._pick = rows, pick
        self._chunk: tuple[int, Array] = 0, np.zeros(0, np.int64)

    def _source_indices(self, numbers: Indices) -> Array:
        if not isinstance(numbers, range):
            return self._pick(numbers)
        # Access is usually sequential: map many indices at once.
        start, indices = self._chunk
        if not start <= numbers.start <= numbers.stop <= start + len(indices):
            stop = min(len(self), max(numbers.stop, numbers.start + CHUNK))
            start, indices = numbers.start, self._pick(np.arange(numbers.start, stop))
            self._chunk = start, indices
        return indices[numbers.start - start : numbers.stop - start]

    def __getitem__(self, number: int) -> Any:
        return self._rows[int(self._source_indices(range(number, number + 1))[0])]

    def gather(self, numbers: Indices) -> Sequence[Any]:
        return self._rows.gather(self._source_indices(numbers))

    def stacked(self, numbers: Indices) -> Any:
        return self._rows.stacked(self._source_indices(numbers))

    def iterate(self, start: int) -> Iterator[Any]:
        # Indices are mapped in chunks; elements are computed separately.
        for at in range(start, len(self), CHUNK):
            indices = self._source_indices(range(at, min(at + CHUNK, len(self))))
            yield from map(self._rows.__getitem__, indices.tolist())

    def origin(self, number: int) -> str | None:
        return self._rows.origin(
            int(self._source_indices(range(number, number + 1))[0])
        )


class SlicedRows(Rows):
    """Every `step`-th row from `start` on, for take, skip and shard."""

    def __init__(self, rows: Rows, numbers: range) -> None:
        super().__init__(len(numbers))
        self._rows, self._numbers = rows, numbers

    def _source_rows(self, numbers: Indices) -> Indices:
        if isinstance(numbers, range):
            indices = self._numbers[numbers.start : numbers.stop]
            return indices if indices.step == 1 else as_index_array(indices)
        return self._numbers.start + numbers * self._numbers.step

    def __getitem__(self, number: int) -> Any:
        return self._rows[self._numbers[number]]

    def gather(self, numbers: Indices) -> Sequence[Any]:
        return self._rows.gather(self._source_rows(numbers))

    def stacked(self, numbers: Indices) -> Any:
        return self._rows.stacked(self._source_rows(numbers))

    def origin(self, number: int) -> str | None:
        return self._rows.origin(self._numbers[number])


class BatchedRows(Rows):
    """Rows in stacked batches; the last can be smaller.

    Args:
        rows: the source rows.
        size: the batch size.
        length: the number of batches.
        share: the local shard of each batch, to read as a `BatchShard`; None: all rows.
    """

    def __init__(
        self, rows: Rows, size: int, length: int, share: RowSelector | None = None
    ) -> None:
        super().__init__(length)
        self._rows, self._size, self._share = rows, size, share

    def _numbers(self, batch: int) -> range:
        start = batch * self._size
        return range(start, min(start + self._size, len(self._rows)))

    def __getitem__(self, number: int) -> Any:
        numbers = self._numbers(number)
        if self._share is None:
            return self._rows.stacked(numbers)
        rows = self._share(len(numbers))
        read = rows_to_read(rows)
        batch = self._rows.stacked(numbers[read.start : read.stop])
        return shard_of_batch(len(numbers), rows, batch)

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number * self._size)


class ZippedRows(Rows):
    """Elements of several rows in parallel, combined by `pack`."""

    def __init__(self, sources: list[Rows], pack: Callable[[Any], Any]) -> None:
        super().__init__(min(map(len, sources)))
        self._sources, self._pack = sources, pack

    def __getitem__(self, number: int) -> Any:
        return self._pack([rows[number] for rows in self._sources])

    def gather(self, numbers: Indices) -> Sequence[Any]:
        columns = [rows.gather(numbers) for rows in self._sources]
        return [self._pack(values) for values in zip(*columns, strict=True)]

    def stacked(self, numbers: Indices) -> Any:
        return self._pack([rows.stacked(numbers) for rows in self._sources])

    def origin(self, number: int) -> str | None:
        origins = (rows.origin(number) for rows in self._sources)
        return next((origin for origin in origins if origin is not None), None)


class ConcatenatedRows(Rows):
    """Concatenation of the rows of several data sets."""

    def __init__(self, sources: list[Rows]) -> None:
        self._sources = sources
        self._ends = np.cumsum([len(rows) for rows in sources], dtype=np.int64)
        self._starts = np.append(np.int64(0), self._ends[:-1])
        super().__init__(int(self._ends[-1]) if sources else 0)

    def _locate(self, number: int) -> tuple[Rows, int]:
        which = int(np.searchsorted(self._ends, number, "right"))
        rows = self._sources[which]
        return rows, number - int(self._ends[which]) + len(rows)

    def __getitem__(self, number: int) -> Any:
        rows, offset = self._locate(number)
        return rows[offset]

    def gather(self, numbers: Indices) -> Sequence[Any]:
        indices = as_index_array(numbers)
        which = np.searchsorted(self._ends, indices, "right")
        offsets = indices - self._starts[which]
        # Runs of elements of the same source.
        limits = np.flatnonzero(np.diff(which, prepend=-1, append=-1)).tolist()
        sources = [self._sources[number] for number in which[limits[:-1]].tolist()]
        firsts = offsets[limits[:-1]].tolist()
        elements: list[Any] = []
        for rows, first, (start, stop) in zip(
            sources, firsts, pairwise(limits), strict=True
        ):
            if stop == start + 1:
                elements.append(rows[first])
            else:
                elements.extend(rows.gather(offsets[start:stop]))
        return elements

    def iterate(self, start: int) -> Iterator[Any]:
        for rows, end in zip(self._sources, self._ends, strict=True):
            if start < end:
                yield from rows.iterate(max(0, start - int(end) + len(rows)))

    def origin(self, number: int) -> str | None:
        rows, offset = self._locate(number)
        return rows.origin(offset)


class ShuffleBufferOrder:
    """Order in which a shuffle buffer outputs 0 ... n - 1.

    Each step draws a slot of the buffer, outputs its index, and inserts the next index.
    The output is thus `buffer` more than the last step that drew the same slot. NumPy
    computes all steps at once.
    """

    def __init__(self, key: Array, n: int, buffer: int) -> None:
        self._key, self._n, self._buffer = key, n, buffer

    @cached_property
    def _order(self) -> Array:
        buffer, full = self._buffer, self._n - self._buffer
        draws = Draws(self._key, buffer).before(full)
        initial = np.arange(buffer)
        initial[draws] = buffer + np.arange(full)  # the last of equal slots wins
        last = initial[generator(self._key, LAST_CHUNK).permutation(buffer)]
        return np.concatenate([_inserted_indices(draws, buffer), last])

    def __getitem__(self, positions: Array) -> Array:
        return self._order[positions]


def _inserted_indices(draws: Array, buffer: int) -> Array:
    """Return for each step the index in the drawn slot."""
    narrow = draws.astype(np.uint16) if buffer <= 1 << 16 else draws  # sorts faster
    by_slot = np.argsort(narrow, kind="stable")
    slots = draws[by_slot]
    numbers = slots.copy()
    repeated = np.flatnonzero(slots[1:] == slots[:-1]) + 1
    numbers[repeated] = buffer + by_slot[repeated - 1]
    inserted = np.empty_like(numbers)
    inserted[by_slot] = numbers
    return inserted
