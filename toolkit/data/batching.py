"""Stages that put elements together, and take them apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset, known_spec, transformation
from toolkit.data.encoding import encodes
from toolkit.data.padding import as_ragged, pad
from toolkit.data.rows import BatchedRows, ItemRows, Rows
from toolkit.data.streams import Pass, Stream
from toolkit.data.structure import TensorSpec, leaves, map_leaves, merge, stack
from toolkit.errors import ArgumentError, ShapeError


def check_size(stage: str, size: int) -> int:
    """A batch size, or an error."""
    if size < 1:
        raise ArgumentError(f"{stage}: expected batch_size >= 1; received {size}")
    return int(size)


class _Batched(Dataset):
    """Base of stages that make one element of several that follow each other."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_remainder: bool) -> None:
        super().__init__(dataset)
        self._size = check_size(self._name, batch_size)
        self._drops = drop_remainder

    def _detail(self) -> str:
        return str(self._size)

    def _cardinality(self) -> int:
        count = self._parents[0]._cardinality()
        if count < 0:
            return count
        return count // self._size if self._drops else -(-count // self._size)

    def _merged(self, elements: list[Any]) -> Any:
        raise NotImplementedError

    def _stream(self, here: Pass) -> Stream:
        return _BatchStream(self, here, here.open(self._parents[0]))

    def _leading(self) -> int | None:
        return self._size if self._drops else None


class _BatchStream(Stream):
    def __init__(self, dataset: _Batched, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._merged = dataset._merged
        self._size, self._drops = dataset._size, dataset._drops

    def elements(self) -> Iterator[Any]:
        source = iter(self.parent)
        while batch := list(islice(source, self._size)):
            if len(batch) < self._size and self._drops:
                return
            yield self._merged(batch)


@transformation("batch")
class Batch(_Batched):
    """Elements in batches: values of equal shapes are stacked along a new first axis.

    Args:
        batch_size: how many elements a batch has; the last has what is left.
        drop_remainder: whether to leave out a last batch that is not full.

    Raises:
        ShapeError: values of a batch differ in shape (`padded_batch`, `ragged_batch`).

    Example:
        >>> from toolkit.data import Dataset
        >>> [x.tolist() for x in Dataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, drop_remainder: bool = False
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)

    def _rows(self, here: Pass) -> Rows | None:
        rows = here.rows(self._parents[0])
        if rows is None:
            return None
        count = len(rows) // self._size if self._drops else -(-len(rows) // self._size)
        return BatchedRows(rows, self._size, count)

    def _merged(self, elements: list[Any]) -> Any:
        return merge(stack, elements, "batch")

    def _spec(self) -> Any:
        first = self._leading()

        def batched(spec: TensorSpec) -> TensorSpec:
            shape = None if spec.shape is None else (first, *spec.shape)
            return replace(spec, shape=shape)

        return known_spec(self._parents[0], batched)


@transformation("padded_batch")
class PaddedBatch(_Batched):
    """Elements in batches, with values filled up to equal shapes.

    Args:
        batch_size: how many elements a batch has.
        padded_shapes: the shape that each value is filled up to, nested as elements
            are; None or -1 for an extent: as long as the longest of the batch, which
            is what None for all of it means.
        padding_values: with what, nested as elements are, or one for all; None: 0, or
            the empty string.
        drop_remainder: whether to leave out a last batch that is not full.

    Raises:
        ShapeError: a value is longer than its padded shape.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> next(iter(rows.padded_batch(3))).tolist()
        [[1, 0, 0], [2, 2, 0], [3, 3, 3]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)
        self._shapes, self._fill = padded_shapes, padding_values

    def _merged(self, elements: list[Any]) -> Any:
        return padded(elements, self._shapes, self._fill)


def padded(elements: list[Any], shapes: Any, fill: Any) -> Any:
    """Elements as one, padded to shapes that are nested as an element is."""
    first = elements[0]
    if isinstance(first, tuple):
        columns = list(zip(*elements, strict=True))
        given = [None] * len(columns) if shapes is None else shapes
        fills = fill if isinstance(fill, (tuple, list)) else [fill] * len(columns)
        return tuple(map(padded, columns, given, fills))
    if isinstance(first, dict):
        shapes = shapes or dict.fromkeys(first)
        fills = fill if isinstance(fill, dict) else dict.fromkeys(first, fill)
        columns_of = {key: [element[key] for element in elements] for key in first}
        return {k: padded(columns_of[k], shapes[k], fills[k]) for k in first}
    return pad(elements, shapes, fill)


@transformation("ragged_batch")
class RaggedBatch(_Batched):
    """Elements in batches whose rows may differ in length.

    Args:
        batch_size: how many elements a batch has.
        drop_remainder: whether to leave out a last batch that is not full.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> next(iter(rows.ragged_batch(3))).to_list()
        [[1], [2, 2], [3, 3, 3]]
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, drop_remainder: bool = False
    ) -> None:
        super().__init__(dataset, batch_size, drop_remainder)

    def _merged(self, elements: list[Any]) -> Any:
        return merge(as_ragged, elements, "ragged_batch")


@transformation("unbatch")
class Unbatch(Dataset):
    """The rows of each element, one after the other.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(4).batch(3).unbatch()]
        [0, 1, 2, 3]
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)

    def _stream(self, here: Pass) -> Stream:
        return _UnbatchStream(self, here, here.open(self._parents[0]))

    def _spec(self) -> Any:
        def row(spec: TensorSpec) -> TensorSpec:
            return replace(spec, shape=spec.shape and spec.shape[1:])

        return known_spec(self._parents[0], row)


class _UnbatchStream(Stream):
    """Rows of elements; where an element has been begun, it is remembered whole."""

    fields = ("position", "batch")

    def __init__(self, dataset: Unbatch, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self.position = 0
        self.batch: Any = None

    def elements(self) -> Iterator[Any]:
        if self.batch is not None:
            yield from self._rest()
        for self.batch in self.parent:
            self.position = 0
            yield from self._rest()

    def _rest(self) -> Iterator[Any]:
        lengths = {len(value) for value in leaves(self.batch)}
        if len(lengths) != 1:
            raise ShapeError(
                "unbatch: expected values with the same number of rows; received "
                f"{sorted(lengths)}"
            )
        for row in range(self.position, lengths.pop()):
            self.position = row + 1
            yield map_leaves(lambda value, row=row: value[row], self.batch)
        self.batch = None


@transformation("rebatch")
class Rebatch(Dataset):
    """Batches of other sizes with the same rows.

    Args:
        batch_size: how many rows a batch has; a list: the sizes in turn.
        drop_remainder: whether to leave out a last batch that is not full.

    Example:
        >>> from toolkit.data import Dataset
        >>> [x.tolist() for x in Dataset.range(5).batch(4).rebatch(2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
    ) -> None:
        super().__init__(dataset.unbatch())
        sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
        self._sizes = [check_size("rebatch", size) for size in sizes]
        self._drops = drop_remainder

    def _stream(self, here: Pass) -> Stream:
        return _RebatchStream(self, here, here.open(self._parents[0]))


class _RebatchStream(Stream):
    fields = ("turn",)

    def __init__(self, dataset: Rebatch, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._sizes, self._drops = dataset._sizes, dataset._drops
        self.turn = 0

    def elements(self) -> Iterator[Any]:
        source = iter(self.parent)
        while True:
            size = self._sizes[self.turn]
            rows = list(islice(source, size))
            if not rows or (len(rows) < size and self._drops):
                return
            self.turn = (self.turn + 1) % len(self._sizes)
            yield merge(stack, rows, "rebatch")


def from_elements(elements: list[Any]) -> Dataset:
    """A data set of elements that are in memory."""
    return _Elements(elements)


class _Elements(Dataset):
    _name = "elements"

    def __init__(self, elements: list[Any]) -> None:
        super().__init__()
        self._elements = elements

    def _cardinality(self) -> int:
        return len(self._elements)

    def _rows(self, here: Pass) -> Rows:
        return ItemRows(self._elements)


@transformation("window")
class Window(Dataset):
    """Data sets of elements that follow each other.

    Args:
        size: how many elements a window has.
        shift: how far one begins after the other; `size` by default.
        stride: how far the elements of a window lie apart.
        drop_remainder: whether to leave out windows that are not full.

    Elements that are tuples or dicts give tuples or dicts of data sets.

    Example:
        >>> from toolkit.data import Dataset
        >>> windows = Dataset.range(5).window(3, shift=1, drop_remainder=True)
        >>> [[int(x) for x in window] for window in windows]
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> None:
        super().__init__(dataset)
        shift = size if shift is None else shift
        for name, value in (("size", size), ("shift", shift), ("stride", stride)):
            if value < 1:
                raise ArgumentError(f"window: expected {name} >= 1; received {value}")
        self._size, self._shift, self._stride = size, shift, stride
        self._drops = drop_remainder

    def _detail(self) -> str:
        return str(self._size)

    def _cardinality(self) -> int:
        count = self._parents[0]._cardinality()
        if count < 0:
            return count
        span = (self._size - 1) * self._stride + 1 if self._drops else 1
        return max(0, (count - span) // self._shift + 1)

    def _stream(self, here: Pass) -> Stream:
        return _WindowStream(self, here, here.open(self._parents[0]))

    def _spec(self) -> Any:
        return known_spec(self._parents[0], lambda spec: spec)


class _WindowStream(Stream):
    fields = ("waiting", "to_skip")

    def __init__(self, dataset: Window, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._of = dataset
        self.waiting: list[Any] = []
        self.to_skip = 0

    def elements(self) -> Iterator[Any]:
        of, source = self._of, iter(self.parent)
        span = (of._size - 1) * of._stride + 1
        while True:
            next(islice(source, self.to_skip, self.to_skip), None)
            self.to_skip = 0
            self.waiting.extend(islice(source, span - len(self.waiting)))
            if not self.waiting or (len(self.waiting) < span and of._drops):
                return
            window = self.waiting[: span : of._stride]
            self.to_skip = max(0, of._shift - len(self.waiting))
            self.waiting = self.waiting[of._shift :]
            yield merge(from_elements, window, "window")


@transformation("group_by_window")
class GroupByWindow(Dataset):
    """Elements gathered by a key; of each full group a function makes a data set.

    Args:
        key_func: from an element to the key of its group, an integer.
        reduce_func: from (key, data set of the group's elements) to a data set.
        window_size: how many elements make a group full.
        window_size_func: from a key to that; it excludes `window_size`.

    Example:
        >>> from toolkit.data import Dataset
        >>> groups = Dataset.range(6).group_by_window(
        ...     lambda x: x % 2, lambda key, group: group.batch(2), window_size=2)
        >>> [x.tolist() for x in groups]
        [[0, 2], [1, 3], [4], [5]]
    """

    def __init__(
        self,
        dataset: Dataset,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Dataset], Dataset],
        window_size: int | None = None,
        window_size_func: Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__(dataset)
        if (window_size is None) == (window_size_func is None):
            raise ArgumentError(
                "group_by_window: expected window_size or window_size_func, and not "
                "both"
            )
        self._key, self._reduce = key_func, reduce_func
        self._size = window_size_func or (lambda _: window_size or 1)

    def _stream(self, here: Pass) -> Stream:
        return _GroupStream(self, here, here.open(self._parents[0]))


class _GroupStream(Stream):
    fields = ("groups", "ready")

    def __init__(self, dataset: GroupByWindow, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._of = dataset
        self.groups: dict[int, list[Any]] = {}
        self.ready: list[Any] = []  # in reverse: the next one is the last

    def elements(self) -> Iterator[Any]:
        yield from self._given()
        for element in self.parent:
            args = element if isinstance(element, tuple) else (element,)
            key = int(self._of._key(*args))
            group = self.groups.setdefault(key, [])
            group.append(element)
            if len(group) >= self._of._size(key):
                self._reduce(key)
                yield from self._given()
        for key in list(self.groups):
            self._reduce(key)
            yield from self._given()

    def _reduce(self, key: int) -> None:
        made = self._of._reduce(np.int64(key), from_elements(self.groups.pop(key)))
        self.ready = list(made)[::-1]

    def _given(self) -> Iterator[Any]:
        while self.ready:
            yield self.ready.pop()

    def state(self) -> Any:
        groups = {key: list(group) for key, group in self.groups.items()}
        return [[groups, list(self.ready)], [self.parent.state()]]


@transformation("bucket_by_sequence_length")
class BucketBySequenceLength(Dataset):
    """Batches of elements of similar lengths, so that little is padded.

    Args:
        element_length_func: from an element to its length.
        bucket_boundaries: the lengths at which the next bucket begins.
        bucket_batch_sizes: how many elements a batch of each bucket has: one more than
            there are boundaries.
        padded_shapes, padding_values: as of `padded_batch`.
        pad_to_bucket_boundary: whether to pad to one less than the bucket's boundary.
        no_padding: whether all elements of a bucket are alike in shape.
        drop_remainder: whether to leave out batches that are not full.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.from_items([1, 5, 2, 6]).map(lambda n: np.full(n, n))
        >>> batches = rows.bucket_by_sequence_length(len, [3], [2, 2])
        >>> [x.shape for x in batches]
        [(2, 2), (2, 6)]
    """

    def __init__(
        self,
        dataset: Dataset,
        element_length_func: Callable[..., int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> None:
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise ArgumentError(
                "bucket_by_sequence_length: expected one batch size more than "
                f"boundaries; received {len(bucket_batch_sizes)} and "
                f"{len(bucket_boundaries)}"
            )
        self._boundaries, self._length = bucket_boundaries, element_length_func
        self._sizes = bucket_batch_sizes
        self._drops, self._is_even = drop_remainder, no_padding
        self._to_boundary = pad_to_bucket_boundary
        self._pad = partial(padded, shapes=padded_shapes, fill=padding_values)
        self._fill = padding_values
        groups = dataset.group_by_window(
            self._bucket, self._batch, window_size_func=lambda key: self._sizes[key]
        )
        super().__init__(groups)

    def _bucket(self, *element: Any) -> int:
        length = self._length(*element)
        return int(np.searchsorted(self._boundaries, length, "right"))

    def _batch(self, key: Any, group: Dataset) -> Dataset:
        elements = list(group)
        if self._drops and len(elements) < self._sizes[key]:
            return from_elements([])
        if self._is_even:
            return from_elements([merge(stack, elements, self._name)])
        if self._to_boundary:
            return from_elements([self._padded_to(int(key), elements)])
        return from_elements([self._pad(elements)])

    def _padded_to(self, key: int, elements: list[Any]) -> Any:
        if key == len(self._boundaries):
            raise ShapeError(
                "bucket_by_sequence_length: an element is longer than the last boundary"
                f" {self._boundaries[-1]}, to which pad_to_bucket_boundary would pad"
            )
        longest = self._boundaries[key] - 1

        def shape(value: Any) -> list[int]:
            return [longest if n is None else n for n in _varying(np.shape(value))]

        return padded(elements, map_leaves(shape, elements[0]), self._fill)

    def _stream(self, here: Pass) -> Stream:
        return here.open(self._parents[0])


def _varying(shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """A shape whose first extent, the length, may vary."""
    return (None, *shape[1:]) if shape else ()


encodes("elements", _Elements, lambda dataset: dataset._elements, from_elements)
