"""Sources of elements: arrays, ranges and indexable objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.data.dataset import INFINITE_CARDINALITY, Dataset, source
from toolkit.data.encoding import encodes
from toolkit.data.padding import Ragged, RaggedRow
from toolkit.data.randomness import CHUNK, generator, key_of, new_seed
from toolkit.data.rows import ArrayRows, ItemRows, RangeRows, Rows, VariableLengthRows
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import TensorSpec, leaves, map_leaves, object_array, spec_of
from toolkit.errors import ArgumentTypeError, ShapeError


def as_value(value: Any) -> Any:
    """Return a value as an array; a Ragged or None is unchanged, bytes keep zeros.

    A value with a `row_spec` and `rows` is also unchanged, for example a sparse matrix.
    """
    if value is None or hasattr(value, "row_spec"):
        return value
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return object_array(value)
    return np.asarray(value)


class FromRows(Dataset):
    """Base class of sources with random access."""

    _has_rows = True

    def _all(self) -> Rows:
        raise NotImplementedError

    def _cardinality(self) -> int:
        return len(self._all())

    def _rows(self, context: PassContext) -> Rows:
        return self._all()


@source("from_tensor_slices")
class FromTensorSlices(FromRows):
    """The rows of arrays, without a copy: an element is a row of each array.

    Args:
        tensors: an array, or a structure of tuples and dicts of arrays with the same
            number of rows. Lists become arrays; None has rows that are None.

    Raises:
        ShapeError: the arrays have different numbers of rows, or none.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> images, labels = np.zeros((3, 28, 28)), np.array([4, 1, 7])
        >>> dataset = Dataset.from_tensor_slices((images, labels))
        >>> [(x.shape, int(y)) for x, y in dataset]
        [((28, 28), 4), ((28, 28), 1), ((28, 28), 7)]
    """

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        values = map_leaves(as_value, tensors)
        self._specs = map_leaves(_row_spec, values)
        self._arrays = map_leaves(_as_rows, values)
        arrays = [array for array in leaves(self._arrays) if array is not None]
        if not arrays or any(array.ndim == 0 for array in arrays):
            raise ShapeError(
                "from_tensor_slices: expected arrays with rows; received "
                f"{tensors!r:.60}"
            )
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise ShapeError(
                "from_tensor_slices: expected arrays with the same number of rows; "
                f"received {sorted(lengths)}"
            )
        self._length = lengths.pop()
        is_ragged = any(hasattr(value, "row_spec") for value in leaves(values))
        self._kind = VariableLengthRows if is_ragged else ArrayRows

    def _all(self) -> Rows:
        return self._kind(self._arrays, self._length)

    def _spec(self) -> Any:
        return self._specs


def _row_spec(value: Any) -> TensorSpec:
    if value is None:
        return spec_of(None)
    if hasattr(value, "row_spec"):
        return value.row_spec
    return TensorSpec(value.shape[1:], value.dtype)


def _as_rows(value: Any) -> Any:
    if isinstance(value, Ragged):
        return object_array(list(map(RaggedRow.of, value)))
    return object_array(value.rows()) if hasattr(value, "row_spec") else value


@source("from_tensors")
class FromTensors(FromRows):
    """One element: the given value.

    Args:
        tensors: an array, or a structure of tuples and dicts of arrays.

    Example:
        >>> from toolkit.data import Dataset
        >>> [x.tolist() for x in Dataset.from_tensors([1, 2, 3])]
        [[1, 2, 3]]
    """

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self._element = map_leaves(as_value, tensors)

    def _all(self) -> Rows:
        return ItemRows([self._element])

    def _spec(self) -> Any:
        return spec_of(self._element)


@source("range")
class Range(FromRows):
    """The integers of a range, as in Python's `range`.

    Args:
        *args: stop; start and stop; or start, stop and step.
        output_type: the dtype; int64 by default.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(2, 10, 3)]
        [2, 5, 8]
    """

    def __init__(self, *args: int, output_type: Any = "int64") -> None:
        super().__init__()
        if not 1 <= len(args) <= 3:
            raise ArgumentTypeError(
                f"range: expected 1 to 3 integers; received {len(args)}"
            )
        self._numbers = range(*map(int, args))
        self._dtype = TensorSpec((), output_type).dtype

    def _all(self) -> Rows:
        if self._dtype == np.int64:
            return RangeRows(self._numbers)
        return ArrayRows(np.asarray(self._numbers, self._dtype), len(self._numbers))

    def _spec(self) -> Any:
        return TensorSpec((), self._dtype)

    def _detail(self) -> str:
        return repr(self._numbers)[5:]


@source("counter")
class Counter(Dataset):
    """An infinite sequence of numbers with a constant step.

    Args:
        start: the first number.
        step: the difference between consecutive numbers.
        dtype: the dtype.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.counter(start=2, step=3).take(3)]
        [2, 5, 8]
    """

    def __init__(self, start: int = 0, step: int = 1, dtype: Any = "int64") -> None:
        super().__init__()
        self._start, self._step = start, step
        self._dtype = TensorSpec((), dtype).dtype

    def _cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def _stream(self, context: PassContext) -> Stream:
        return _CounterStream(self, context)

    def _spec(self) -> Any:
        return TensorSpec((), self._dtype)


class _CounterStream(Stream):
    fields = ("position",)

    def __init__(self, dataset: Counter, context: PassContext) -> None:
        super().__init__(dataset, context)
        self._of = dataset
        self.position = 0

    def elements(self) -> Iterator[Any]:
        of, make = self._of, self._of._dtype.type
        while True:
            self.position += 1
            yield make(of._start + (self.position - 1) * of._step)

    def skip(self, count: int) -> Iterator[Any]:
        self.position += count
        return iter(self)


@source("from_items")
class FromItems(FromRows):
    """The items of an object with `__getitem__` and `__len__`.

    Args:
        items: a list, a memory-mapped array, a torch or grain data set, ...

    Example:
        >>> from toolkit.data import Dataset
        >>> list(Dataset.from_items(["a", "b"]).shuffle(2, seed=1).repeat(1)) != []
        True
    """

    def __init__(self, items: Any) -> None:
        super().__init__()
        for name in ("__getitem__", "__len__"):
            if not hasattr(items, name):
                raise ArgumentTypeError(
                    f"from_items: expected an object with {name}; received "
                    f"{type(items).__name__}"
                )
        self._items = items

    def _all(self) -> Rows:
        return ItemRows(self._items)


@source("random")
class Random(Dataset):
    """An infinite sequence of random 64-bit integers.

    Args:
        seed: the random seed; None draws one.
        rerandomize_each_iteration: whether each pass draws new numbers.

    Example:
        >>> from toolkit.data import Dataset
        >>> numbers = Dataset.random(seed=4).take(3)
        >>> list(numbers) == list(numbers)
        True
    """

    def __init__(
        self, seed: int | None = None, rerandomize_each_iteration: bool = False
    ) -> None:
        super().__init__()
        self._seed = new_seed() if seed is None else seed
        self._is_new_each_time = rerandomize_each_iteration

    def _cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def _stream(self, context: PassContext) -> Stream:
        epoch = context.epoch if self._is_new_each_time else ()
        return _RandomStream(self, context, key_of(self._seed, epoch))

    def _spec(self) -> Any:
        return TensorSpec((), "int64")


class _RandomStream(Stream):
    fields = ("position",)

    def __init__(self, dataset: Dataset, context: PassContext, key: Any) -> None:
        super().__init__(dataset, context)
        self._key = key
        self.position = 0

    def elements(self) -> Iterator[Any]:
        while True:
            chunk, offset = divmod(self.position, CHUNK)
            numbers = generator(self._key, chunk).integers(0, 1 << 63, CHUNK)
            for number in numbers[offset:]:
                self.position += 1
                yield number


def from_elements(elements: list[Any], spec: Any = None) -> Dataset:
    """Return a data set of elements in memory; `spec`: their TensorSpecs, if known."""
    return _Elements(elements, spec)


class _Elements(Dataset):
    _name = "elements"

    def __init__(self, elements: list[Any], spec: Any = None) -> None:
        super().__init__()
        self._elements, self._given_spec = elements, spec

    def _spec(self) -> Any:
        return super()._spec() if self._given_spec is None else self._given_spec

    def _cardinality(self) -> int:
        return len(self._elements)

    def _rows(self, context: PassContext) -> Rows:
        return ItemRows(self._elements)


encodes("elements", _Elements, lambda dataset: dataset._elements, from_elements)
