"""Stages that group elements: windows, groups by key, length buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from toolkit.data.batching import merge_padded
from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import name_of, unpack_tuple
from toolkit.data.sources import from_elements
from toolkit.data.specs import (
    UNKNOWN_ELEMENT,
    change_spec,
    first_elements,
    nested_spec,
    padded_spec,
)
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import TensorSpec, map_leaves, merge, stack_values
from toolkit.errors import ArgumentError, ArgumentTypeError, ShapeError


@transformation("window")
class Window(Dataset):
    """Datasets of consecutive elements.

    Args:
        size: the number of elements in a window.
        shift: the distance between the starts of windows; `size` by default.
        stride: the distance between the elements of a window.
        drop_remainder: whether to drop windows that are not full.

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

    def _stream(self, context: PassContext) -> Stream:
        return _WindowStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return change_spec(self._parents[0], lambda spec: spec)

    def _examples(self) -> list[Any]:
        spec = self._spec()
        return [
            merge(lambda pair: _with_spec(*pair), [window, spec], "window")
            for window in first_elements(self)
        ]


def _with_spec(window: Any, spec: TensorSpec) -> Any:
    """Return a window with the element spec of the whole data set."""
    return from_elements(window._elements, spec)


class _WindowStream(Stream):
    fields = ("waiting", "to_skip")

    def __init__(self, dataset: Window, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
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
    """Results of a reduction of each group of elements with the same key.

    Args:
        key_func: a function from an element to an integer key.
        reduce_func: a function from (key, data set of the group) to a data set.
        window_size: the number of elements in a full group.
        window_size_func: a function from a key to the size, instead of `window_size`.

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
                "group_by_window: expected either window_size or window_size_func"
            )
        self._key, self._reduce = key_func, reduce_func
        self._size = window_size_func or (lambda _: window_size or 1)

    def _detail(self) -> str:
        return name_of(self._reduce)

    def _stream(self, context: PassContext) -> Stream:
        return _GroupStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        parent = self._parents[0]
        spec = parent._spec()
        some = [
            element for element in parent._examples() if element is not UNKNOWN_ELEMENT
        ]
        groups = [some[:1], some[:1] * 2, *([element] for element in some[1:])]
        try:
            key = np.int64(int(unpack_tuple(self._key)(some[0])))
            return nested_spec(
                lambda group: self._reduce(key, from_elements(group, spec)), groups
            )
        except Exception:  # the group is smaller than the function expects
            return super()._spec()


class _GroupStream(Stream):
    fields = ("groups", "ready", "position")

    def __init__(
        self, dataset: GroupByWindow, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._of, self._key = dataset, unpack_tuple(dataset._key)
        self.position = 0
        self.groups: dict[int, list[Any]] = {}
        self.ready: list[Any] = []  # reversed: the next one is the last

    def elements(self) -> Iterator[Any]:
        yield from self._iterate_ready()
        for element in self.parent:
            try:
                key = int(self._key(element))
                group = self.groups.setdefault(key, [])
                group.append(element)
                if len(group) >= self._of._size(key):
                    self._reduce(key)
            except Exception as error:
                self.annotate_error(error, self.position)
                raise
            self.position += 1
            yield from self._iterate_ready()
        for key in sorted(self.groups):
            self._reduce(key)
            yield from self._iterate_ready()

    def _reduce(self, key: int) -> None:
        result = self._of._reduce(np.int64(key), from_elements(self.groups.pop(key)))
        if not isinstance(result, Dataset):
            raise ArgumentTypeError(
                f"{self._of._name}: expected a reduce_func that returns a Dataset; "
                f"{self._of._detail()} returned a {type(result).__name__}"
            )
        self.ready = list(result)[::-1]

    def _iterate_ready(self) -> Iterator[Any]:
        while self.ready:
            yield self.ready.pop()

    def state(self) -> Any:
        groups = {key: list(group) for key, group in self.groups.items()}
        local_state = [groups, list(self.ready), self.position]
        return [local_state, [self.parent.state()]]


@transformation("bucket_by_sequence_length")
class BucketBySequenceLength(Dataset):
    """Batches of elements of similar lengths, to reduce padding.

    Args:
        element_length_func: a function from an element to its length.
        bucket_boundaries: the lengths that start the next bucket.
        bucket_batch_sizes: the batch size of each bucket: one more than there are
            boundaries.
        padded_shapes, padding_values: as for `padded_batch`.
        pad_to_bucket_boundary: whether to pad to the bucket's boundary minus one.
        no_padding: whether all elements of a bucket have the same shape.
        drop_remainder: whether to drop batches that are not full.

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
        self._pad = partial(merge_padded, shapes=padded_shapes, fill=padding_values)
        self._shapes = padded_shapes
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
            return from_elements([merge(stack_values, elements, self._name)])
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
            return [
                longest if n is None else n
                for n in _with_variable_length(np.shape(value))
            ]

        return merge_padded(elements, map_leaves(shape, elements[0]), self._fill)

    def _stream(self, context: PassContext) -> Stream:
        return context.open(self._parents[0])

    def _spec(self) -> Any:
        elements = self._parents[0]._parents[0]  # the input of the groups
        rows = change_spec(
            elements,
            lambda s: replace(s, shape=s.shape and _with_variable_length(s.shape)),
        )
        sizes = set(self._sizes) if self._drops else set()
        is_plain = self._is_even or self._to_boundary
        shapes = None if is_plain else self._shapes
        return padded_spec(rows, shapes, sizes.pop() if len(sizes) == 1 else None)


def _with_variable_length(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return a shape whose first extent, the length, can vary."""
    return (None, *shape[1:]) if shape else ()
