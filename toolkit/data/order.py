"""Stages that select and reorder elements."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Any

from toolkit.data.dataset import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    transformation,
)
from toolkit.data.mapping import Map
from toolkit.data.randomness import (
    LAST_CHUNK,
    Draws,
    Permutation,
    generator,
    key_of,
    new_seed,
)
from toolkit.data.rows import (
    MAX_ORDER_SIZE,
    ReorderedRows,
    Rows,
    ShuffleBufferOrder,
    SlicedRows,
)
from toolkit.data.streams import PassContext, Stream
from toolkit.errors import ArgumentError


class _SameSpecStage(Dataset):
    """Base class of stages whose elements have the spec of their input."""

    def _spec(self) -> Any:
        return self._parents[0]._spec()


class _IndexSelectionStage(_SameSpecStage):
    """Base class of stages that select elements by index.

    If a parallel map computes the elements, the selection applies to its input indices.
    Elements that are not selected are not computed.
    """

    _before: Dataset | None = None

    def _reseed(self, seed: int) -> None:
        super()._reseed(seed)
        self._before = None

    def _aligned_input(self, context: PassContext) -> Dataset | None:
        return self._select_before_map(context)

    def _select_before_map(self, context: PassContext) -> Dataset | None:
        """Return the same selection before a parallel map, or None if not possible."""
        parallel: Dataset | None = self._parents[0]
        if isinstance(parallel, _IndexSelectionStage):
            parallel = parallel._select_before_map(context)
        if not isinstance(parallel, Map) or not parallel.is_ordered(
            context.run.options
        ):
            return None
        if context.on_error is not None:  # the selection would include skipped elements
            return None
        first = parallel._parents[0]
        if not isinstance(first, Map) and context.rows(first) is None:
            return None
        if self._before is None:  # cached, because state keys are stage objects
            copied = copy(self)
            copied._parents = (first,)
            self._before = parallel.over(copied)
        return self._before


@transformation("shuffle")
class Shuffle(_IndexSelectionStage):
    """The elements in a random order.

    The stage fills a buffer with the first elements. Then it repeatedly outputs a
    random element of the buffer, and the next element replaces it. A buffer of all
    elements gives a uniform shuffle. For indexable elements, such as rows of arrays,
    the buffer holds indices, and the elements are read in the new order.

    Args:
        buffer_size: the size of the buffer; None means all elements.
        seed: the seed of the order, combined with the pass number; None draws one.
        reshuffle_each_iteration: whether to reshuffle for each pass.

    Example:
        >>> from toolkit.data import Dataset
        >>> sorted(int(x) for x in Dataset.range(5).shuffle(5, seed=3))
        [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        dataset: Dataset,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
    ) -> None:
        super().__init__(dataset)
        if buffer_size is not None and buffer_size < 1:
            raise ArgumentError(
                f"shuffle: expected buffer_size >= 1; received {buffer_size}"
            )
        self._size = buffer_size
        self._seed = new_seed() if seed is None else int(seed)
        self._is_new_each_time = reshuffle_each_iteration is not False

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _detail(self) -> str:
        return "all" if self._size is None else f"{self._size:,}"

    def key(self, context: PassContext) -> Any:
        """Return the random key for the order of a pass."""
        return key_of(self._seed, context.epoch if self._is_new_each_time else ())

    def _rows(self, context: PassContext) -> Rows | None:
        rows = context.rows(self._parents[0])
        if rows is None:
            return None
        key, n = self.key(context), len(rows)
        size = n if self._size is None else min(n, self._size)
        if self._is_sequential(context):
            if n > MAX_ORDER_SIZE:
                return None
        elif size == n:
            return ReorderedRows(rows, n, Permutation(key, n).__getitem__)
        return ReorderedRows(rows, n, ShuffleBufferOrder(key, n, size).__getitem__)

    def _is_sequential(self, context: PassContext) -> bool:
        """Return whether the order must be as in a pass without an index."""
        before = self._parents[0]
        return context.uses_index and context.without_index().rows(before) is None

    def _stream(self, context: PassContext) -> Stream:
        before = self._select_before_map(context)
        if before is not None:
            return context.open(before)
        return _ShuffleStream(self, context, context.open(self._parents[0]))


class _ShuffleStream(Stream):
    fields = ("position", "buffer", "is_full", "is_last")

    def __init__(self, dataset: Shuffle, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._size, self._key = dataset._size, dataset.key(context)
        self.position = 0
        self.buffer: list[Any] = []
        self.is_full = self.is_last = False
        self.stage.capacity = self._size

    def elements(self) -> Iterator[Any]:
        buffer = self.buffer
        if not self.is_last:
            source = iter(self.parent)
            if not self.is_full:
                buffer.extend(islice(source, self._size))
                self.is_full = True
            yield from self._draw_from_buffer(source)
            order = generator(self._key, LAST_CHUNK).permutation(len(buffer))
            buffer[:] = [buffer[i] for i in reversed(order)]
            self.is_last = True
        while buffer:
            yield buffer.pop()

    def _draw_from_buffer(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield random elements of the buffer, each replaced by the next element."""
        buffer = self.buffer
        draws = Draws(self._key, max(1, len(buffer)))
        for element in source:
            slot = draws[self.position]
            drawn_element, buffer[slot] = buffer[slot], element
            self.position += 1
            self.stage.buffered = len(buffer)
            yield drawn_element


@transformation("repeat")
class Repeat(_SameSpecStage):
    """The elements, repeated; earlier shuffle stages reshuffle for each repetition.

    Args:
        count: the number of repetitions. None or -1 repeats indefinitely.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(2).repeat(2)]
        [0, 1, 0, 1]
    """

    _is_passthrough = True

    def __init__(self, dataset: Dataset, count: int | None = None) -> None:
        super().__init__(dataset)
        if count is not None and count < -1:
            raise ArgumentError(f"repeat: expected count >= -1; received {count}")
        self._count = -1 if count is None else int(count)

    def _detail(self) -> str:
        return "without end" if self._count < 0 else str(self._count)

    def _cardinality(self) -> int:
        count = self._parents[0]._cardinality()
        if count == 0 or self._count == 0:
            return 0
        if self._count < 0 or count == INFINITE_CARDINALITY:
            return INFINITE_CARDINALITY
        return count * self._count if count > 0 else UNKNOWN_CARDINALITY

    def _stream(self, context: PassContext) -> Stream:
        return _RepeatStream(self, context)


class _RepeatStream(Stream):
    def __init__(self, dataset: Repeat, context: PassContext) -> None:
        self.repetition = 0
        self._count = dataset._count
        first = context.repetition_context(0).open(dataset._parents[0])
        super().__init__(dataset, context, first)
        self._is_empty = True  # so far; an empty data set would loop indefinitely

    def elements(self) -> Iterator[Any]:
        while self.repetition != self._count:
            for element in self.parent:
                self._is_empty = False
                yield element
            if self._is_empty:
                return
            self.repetition += 1
            self._open()

    def _open(self) -> None:
        context = self.context.repetition_context(self.repetition)
        self.parents = (context.open(self.dataset._parents[0]),)

    def state(self) -> Any:
        return [self.repetition, self._is_empty, self.parent.state()]

    def restore(self, state: Any) -> None:
        self.repetition, self._is_empty, inner = state
        self._open()
        self.parent.restore(inner)


class _SubsetStage(_IndexSelectionStage):
    """Base class of stages that select a subset of the elements by index."""

    _is_passthrough = True

    def _selected_range(self, n: int) -> range:
        """Return the selected range of indices among n elements."""
        raise NotImplementedError

    def _cardinality(self) -> int:
        count = self._parents[0]._cardinality()
        return len(self._selected_range(count)) if count >= 0 else count

    def _rows(self, context: PassContext) -> Rows | None:
        rows = context.rows(self._parents[0])
        return rows and SlicedRows(rows, self._selected_range(len(rows)))

    def _stream(self, context: PassContext) -> Stream:
        before = self._select_before_map(context)
        if before is not None:
            return context.open(before)
        return _SubsetStream(self, context, context.open(self._parents[0]))


class _SubsetStream(Stream):
    """Stream of the selected elements when the cardinality is unknown."""

    fields = ("position",)

    def __init__(
        self, dataset: _SubsetStage, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._selected_range = dataset._selected_range(1 << 62)
        self.position = 0  # index among all elements

    def elements(self) -> Iterator[Any]:
        selected = self._selected_range
        if self.position >= selected.stop:
            return
        if self.position < selected.start:
            self.position = selected.start
            source = self.parent.skip(selected.start)
        else:
            source = iter(self.parent)
        for element in source:
            is_kept = (self.position - selected.start) % selected.step == 0
            self.position += 1
            if is_kept:
                yield element
            if self.position >= selected.stop:
                return


@transformation("take")
class Take(_SubsetStage):
    """The first elements.

    Args:
        count: the number of elements; -1 means all.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(9).take(2)]
        [0, 1]
    """

    def __init__(self, dataset: Dataset, count: int) -> None:
        super().__init__(dataset)
        self._count = int(count)

    def _detail(self) -> str:
        return str(self._count)

    def _selected_range(self, n: int) -> range:
        return range(n if self._count < 0 else min(n, self._count))

    def _cardinality(self) -> int:
        if self._count >= 0 and self._parents[0]._cardinality() == INFINITE_CARDINALITY:
            return self._count
        return super()._cardinality()


@transformation("skip")
class Skip(_SubsetStage):
    """The elements after the first ones.

    Args:
        count: the number of elements to skip; -1 means all.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(4).skip(2)]
        [2, 3]
    """

    def __init__(self, dataset: Dataset, count: int) -> None:
        super().__init__(dataset)
        self._count = int(count)

    def _detail(self) -> str:
        return str(self._count)

    def _selected_range(self, n: int) -> range:
        return range(n if self._count < 0 else min(n, self._count), n)


@transformation("shard")
class Shard(_SubsetStage):
    """Every n-th element, for one of n workers.

    Args:
        num_shards: the number of shards.
        index: the index of the shard, from 0.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(7).shard(3, 1)]
        [1, 4]
    """

    _shard: tuple[int, int]

    def __init__(self, dataset: Dataset, num_shards: int, index: int) -> None:
        super().__init__(dataset)
        if not 0 <= index < num_shards:
            raise ArgumentError(
                f"shard: expected 0 <= index < num_shards; received index={index}, "
                f"num_shards={num_shards}"
            )
        self._shard = int(num_shards), int(index)

    def _detail(self) -> str:
        num_shards, index = self._shard
        return f"{index} of {num_shards}"

    def _selected_range(self, n: int) -> range:
        num_shards, index = self._shard
        return range(min(index, n), n, num_shards)
