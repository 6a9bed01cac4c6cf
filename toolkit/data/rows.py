"""Elements by their number: what a data set is whose elements can be had in any order.

Orders, shares and batches of such data sets are arithmetic on numbers; the elements
come last, many at once, by one gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from toolkit.data.errors import note, place
from toolkit.data.randomness import CHUNK, LAST, Array, Draws, generator
from toolkit.data.shares import RowsOf, share, taken
from toolkit.data.structure import map_leaves, stacked

Numbers = range | Array  # consecutive ones are a range, and may come without a copy


def as_array(numbers: Numbers) -> Array:
    """Numbers as an array of integers."""
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop, numbers.step)
    return numbers


class Rows:
    """Base: elements numbered from 0."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        """One element; a kind of rows defines this, or `many`."""
        return self.many(range(number, number + 1))[0]

    def many(self, numbers: Numbers) -> Sequence[Any]:
        """Several elements."""
        return [self[int(number)] for number in numbers]

    def stacked(self, numbers: Numbers) -> Any:
        """Several elements as one, with a first axis for them."""
        return stacked(self.many(numbers))

    def iterate(self, start: int) -> Iterator[Any]:
        """The elements from a number on."""
        return map(self.__getitem__, range(start, len(self)))

    def origin(self, number: int) -> str | None:
        """Where an element comes from, such as its file; None: nowhere special."""
        return None


class ArrayRows(Rows):
    """Rows of arrays, none of which is copied; None has rows that are None."""

    def __init__(self, arrays: Any, length: int) -> None:
        super().__init__(length)
        self._arrays = map_leaves(_rows_of, arrays)
        of_arrays = type(arrays) is tuple and all(type(a) is np.ndarray for a in arrays)
        self._is_flat = of_arrays  # as they mostly are: then there is a shorter way

    def __getitem__(self, number: int) -> Any:
        return map_leaves(lambda array: array[number], self._arrays)

    def stacked(self, numbers: Numbers) -> Any:
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


class UnequalRows(ArrayRows):
    """Arrays in which rows may be of other lengths: they are stacked one by one."""

    stacked = Rows.stacked


class _NoArray:
    """In place of an array: each of its rows, or several at once, are None."""

    def __getitem__(self, rows: int | slice) -> None:
        return None

    def take(self, numbers: Array, axis: int = 0) -> None:
        return None


def _rows_of(array: Array | None) -> Array | _NoArray:
    """A view in which nobody can change the array by mistake."""
    if array is None:
        return _NoArray()
    view = array.view()
    view.flags.writeable = False
    return view


class RangeRows(Rows):
    """The integers of a range."""

    def __init__(self, numbers: range) -> None:
        super().__init__(len(numbers))
        self._numbers = numbers

    def __getitem__(self, number: int) -> Any:
        return np.int64(self._numbers[number])

    def many(self, numbers: Numbers) -> Sequence[Any]:
        return self.stacked(numbers)

    def stacked(self, numbers: Numbers) -> Any:
        return self._numbers.start + as_array(numbers) * self._numbers.step

    def iterate(self, start: int) -> Iterator[Any]:
        chunks = range(start, len(self), CHUNK)
        return chain.from_iterable(
            self.stacked(range(at, min(at + CHUNK, len(self)))) for at in chunks
        )


class ItemRows(Rows):
    """The items of any object with `__getitem__` and `__len__`."""

    def __init__(self, items: Any) -> None:
        super().__init__(len(items))
        self._items = items

    def __getitem__(self, number: int) -> Any:
        return self._items[number]


class MappedRows(Rows):
    """Elements as a function makes them out of others; `name` is the function's."""

    def __init__(self, rows: Rows, function: Callable[[Any], Any], name: str) -> None:
        super().__init__(len(rows))
        self._rows, self._function, self._name = rows, function, name

    def __getitem__(self, number: int) -> Any:
        element = self._rows[number]
        try:
            return self._function(element)
        except Exception as error:
            self._note(error, number)
            raise

    def many(self, numbers: Numbers) -> Sequence[Any]:
        function = self._function
        made: list[Any] = []
        try:
            for element in self._rows.many(numbers):
                made.append(function(element))
        except Exception as error:
            self._note(error, int(numbers[len(made)]))
            raise
        return made

    def iterate(self, start: int) -> Iterator[Any]:
        return map(self._function, self._rows.iterate(start))

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number)

    def _note(self, error: Exception, number: int) -> None:
        where = place("map", number, self._rows.origin(number))
        note(error, f"{where}, in {self._name}")


class PickedRows(Rows):
    """Rows in another order, or some of them: `pick` maps numbers to numbers.

    Args:
        rows: of which.
        length: how many of them.
        pick: from an array of our numbers to one of theirs.
    """

    def __init__(self, rows: Rows, length: int, pick: Callable[[Array], Array]) -> None:
        super().__init__(length)
        self._rows, self._pick = rows, pick
        self._chunk: tuple[int, Array] = 0, np.zeros(0, np.int64)

    def _picked(self, numbers: Numbers) -> Array:
        if not isinstance(numbers, range):
            return self._pick(numbers)
        # Neighbours are asked for in turn: choose for many of them at once.
        start, chosen = self._chunk
        if not start <= numbers.start <= numbers.stop <= start + len(chosen):
            stop = min(len(self), max(numbers.stop, numbers.start + CHUNK))
            start, chosen = numbers.start, self._pick(np.arange(numbers.start, stop))
            self._chunk = start, chosen
        return chosen[numbers.start - start : numbers.stop - start]

    def __getitem__(self, number: int) -> Any:
        return self._rows[int(self._picked(range(number, number + 1))[0])]

    def many(self, numbers: Numbers) -> Sequence[Any]:
        return self._rows.many(self._picked(numbers))

    def stacked(self, numbers: Numbers) -> Any:
        return self._rows.stacked(self._picked(numbers))

    def iterate(self, start: int) -> Iterator[Any]:
        # Numbers are chosen many at once; elements are made one by one.
        for at in range(start, len(self), CHUNK):
            chosen = self._picked(range(at, min(at + CHUNK, len(self))))
            yield from map(self._rows.__getitem__, chosen.tolist())

    def origin(self, number: int) -> str | None:
        return self._rows.origin(int(self._picked(range(number, number + 1))[0]))


class SomeRows(Rows):
    """Every `step`-th row from `start` on: what take, skip and shard leave."""

    def __init__(self, rows: Rows, numbers: range) -> None:
        super().__init__(len(numbers))
        self._rows, self._numbers = rows, numbers

    def _of(self, numbers: Numbers) -> Numbers:
        if isinstance(numbers, range):
            chosen = self._numbers[numbers.start : numbers.stop]
            return chosen if chosen.step == 1 else as_array(chosen)
        return self._numbers.start + numbers * self._numbers.step

    def __getitem__(self, number: int) -> Any:
        return self._rows[self._numbers[number]]

    def many(self, numbers: Numbers) -> Sequence[Any]:
        return self._rows.many(self._of(numbers))

    def stacked(self, numbers: Numbers) -> Any:
        return self._rows.stacked(self._of(numbers))

    def origin(self, number: int) -> str | None:
        return self._rows.origin(self._numbers[number])


class BatchedRows(Rows):
    """Rows in batches of a size, each stacked; the last has what is left.

    Args:
        rows: of which.
        size: rows of a batch.
        length: how many batches.
        share: which rows of each batch are read, to make a Share of it; None: all.
    """

    def __init__(
        self, rows: Rows, size: int, length: int, share: RowsOf | None = None
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
        read = taken(rows)
        made = self._rows.stacked(numbers[read.start : read.stop])
        return share(len(numbers), rows, made)

    def origin(self, number: int) -> str | None:
        return self._rows.origin(number * self._size)


class ZippedRows(Rows):
    """Elements of several rows side by side; `pack` puts them together."""

    def __init__(self, several: list[Rows], pack: Callable[[Any], Any]) -> None:
        super().__init__(min(map(len, several)))
        self._several, self._pack = several, pack

    def __getitem__(self, number: int) -> Any:
        return self._pack([rows[number] for rows in self._several])

    def many(self, numbers: Numbers) -> Sequence[Any]:
        columns = [rows.many(numbers) for rows in self._several]
        return [self._pack(parts) for parts in zip(*columns, strict=True)]

    def stacked(self, numbers: Numbers) -> Any:
        return self._pack([rows.stacked(numbers) for rows in self._several])

    def origin(self, number: int) -> str | None:
        found = (rows.origin(number) for rows in self._several)
        return next((origin for origin in found if origin is not None), None)


class JoinedRows(Rows):
    """The rows of several data sets one after the other."""

    def __init__(self, several: list[Rows]) -> None:
        self._several = several
        self._ends = np.cumsum([len(rows) for rows in several])
        super().__init__(int(self._ends[-1]))

    def _place(self, number: int) -> tuple[Rows, int]:
        which = int(np.searchsorted(self._ends, number, "right"))
        rows = self._several[which]
        return rows, number - int(self._ends[which]) + len(rows)

    def __getitem__(self, number: int) -> Any:
        rows, inside = self._place(number)
        return rows[inside]

    def iterate(self, start: int) -> Iterator[Any]:
        for rows, end in zip(self._several, self._ends, strict=True):
            if start < end:
                yield from rows.iterate(max(0, start - int(end) + len(rows)))

    def origin(self, number: int) -> str | None:
        rows, inside = self._place(number)
        return rows.origin(inside)


class BufferedOrder:
    """The order in which a shuffle buffer of a size gives out 0 ... n - 1.

    A slot of the buffer is drawn for each place; its number goes out and the next
    number goes in. So what goes out is `buffer` more than the last place at which
    the same slot was drawn: NumPy can say it for all places at once.
    """

    def __init__(self, key: Array, n: int, buffer: int) -> None:
        self._key, self._n, self._buffer = key, n, buffer

    @cached_property
    def _order(self) -> Array:
        buffer, full = self._buffer, self._n - self._buffer
        draws = Draws(self._key, buffer).upto(full)
        left = np.arange(buffer)
        left[draws] = buffer + np.arange(full)  # of equal slots the last one stays
        last = left[generator(self._key, LAST).permutation(buffer)]
        return np.concatenate([_inserted(draws, buffer), last])

    def __getitem__(self, places: Array) -> Array:
        return self._order[places]


def _inserted(draws: Array, buffer: int) -> Array:
    """For each place the number in the slot that is drawn there."""
    narrow = draws.astype(np.uint16) if buffer <= 1 << 16 else draws  # sorts faster
    by_slot = np.argsort(narrow, kind="stable")
    slots = draws[by_slot]
    numbers = slots.copy()
    again = np.flatnonzero(slots[1:] == slots[:-1]) + 1
    numbers[again] = buffer + by_slot[again - 1]
    inserted = np.empty_like(numbers)
    inserted[by_slot] = numbers
    return inserted
