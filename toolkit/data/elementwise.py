"""Stages that process elements one after the other: filter, scan and similar stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import missing_result_error, name_of, unpack_tuple
from toolkit.data.rows import RangeRows, Rows, ZippedRows
from toolkit.data.specs import apply_to_examples, first_elements, spec_of_examples
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import TensorSpec
from toolkit.errors import ArgumentTypeError


@transformation("filter")
class Filter(Dataset):
    """The elements for which a predicate is true.

    Args:
        predicate: a function from an element to a boolean; tuples are unpacked.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(6).filter(lambda x: x % 2 == 1)]
        [1, 3, 5]
    """

    def __init__(self, dataset: Dataset, predicate: Callable[..., Any]) -> None:
        super().__init__(dataset)
        self._predicate = predicate

    def _detail(self) -> str:
        return name_of(self._predicate)

    def _stream(self, context: PassContext) -> Stream:
        return _FilterStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()


class _FilterStream(Stream):
    fields = ("position",)

    def __init__(self, dataset: Filter, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._predicate = unpack_tuple(dataset._predicate)
        self.position = 0  # index among all elements

    def elements(self) -> Iterator[Any]:
        predicate, on_error = self._predicate, self.context.on_error
        for element in self.parent:
            try:
                is_chosen = predicate(element)
                if is_chosen is None:
                    raise missing_result_error(self.dataset._predicate)
            except Exception as error:
                if on_error is None:
                    self.annotate_error(error, self.position)
                    raise
                on_error(error, self.dataset._name)
                is_chosen = False
            self.position += 1
            if is_chosen:
                yield element


@transformation("enumerate")
class Enumerate(Dataset):
    """Each element with its index: (index, element).

    Args:
        start: the first index.

    Example:
        >>> from toolkit.data import Dataset
        >>> [(int(i), int(x)) for i, x in Dataset.range(7, 9).enumerate(start=1)]
        [(1, 7), (2, 8)]
    """

    def __init__(self, dataset: Dataset, start: int = 0) -> None:
        super().__init__(dataset)
        self._start = start

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, context: PassContext) -> Rows | None:
        rows = context.rows(self._parents[0])
        if rows is None:
            return None
        numbers = RangeRows(range(self._start, self._start + len(rows)))
        return ZippedRows([numbers, rows], tuple)

    def _stream(self, context: PassContext) -> Stream:
        return _EnumerateStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return TensorSpec((), "int64"), self._parents[0]._spec()


class _EnumerateStream(Stream):
    fields = ("number",)

    def __init__(
        self, dataset: Enumerate, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self.number = dataset._start

    def elements(self) -> Iterator[Any]:
        for element in self.parent:
            number = np.int64(self.number)
            self.number += 1
            yield number, element


@transformation("take_while")
class TakeWhile(Dataset):
    """The elements before the first for which a predicate is false.

    Args:
        predicate: a function from an element to a boolean; tuples are unpacked.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(9).take_while(lambda x: x < 3)]
        [0, 1, 2]
    """

    def __init__(self, dataset: Dataset, predicate: Callable[..., Any]) -> None:
        super().__init__(dataset)
        self._predicate = predicate

    def _detail(self) -> str:
        return name_of(self._predicate)

    def _stream(self, context: PassContext) -> Stream:
        return _TakeWhileStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()


class _TakeWhileStream(Stream):
    fields = ("is_over", "position")

    def __init__(
        self, dataset: TakeWhile, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._predicate = unpack_tuple(dataset._predicate)
        self.is_over = False
        self.position = 0

    def elements(self) -> Iterator[Any]:
        if self.is_over:
            return
        for element in self.parent:
            try:
                is_before = self._predicate(element)
                if is_before is None:
                    raise missing_result_error(self.dataset._predicate)
            except Exception as error:
                self.annotate_error(error, self.position)
                raise
            if not is_before:
                self.is_over = True
                return
            self.position += 1
            yield element


@transformation("scan")
class Scan(Dataset):
    """Outputs of a function with a running state.

    Args:
        initial_state: the state before the first element; a structure of arrays.
        scan_func: a function from (state, element) to (new state, output element).

    Example:
        >>> from toolkit.data import Dataset
        >>> sums = Dataset.range(1, 5).scan(0, lambda total, x: (total + x, total + x))
        >>> [int(x) for x in sums]
        [1, 3, 6, 10]
    """

    def __init__(
        self, dataset: Dataset, initial_state: Any, scan_func: Callable[..., Any]
    ) -> None:
        super().__init__(dataset)
        self._initial, self._function = initial_state, scan_func

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _detail(self) -> str:
        return name_of(self._function)

    def _stream(self, context: PassContext) -> Stream:
        return _ScanStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return spec_of_examples(self._examples())

    def _examples(self) -> list[Any]:
        def given_out(element: Any) -> Any:
            return self._function(self._initial, element)[1]

        try:
            result = apply_to_examples(given_out, self._parents[0]._examples())
        except Exception:
            result = []
        return [*first_elements(self), *result]  # adds the specs of later states


class _ScanStream(Stream):
    fields = ("state_value", "position")

    def __init__(self, dataset: Scan, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._function = dataset._function
        self.state_value = dataset._initial
        self.position = 0

    def elements(self) -> Iterator[Any]:
        for element in self.parent:
            try:
                self.state_value, result = self._function(self.state_value, element)
            except Exception as error:
                self.annotate_error(error, self.position)
                raise
            self.position += 1
            yield result


@transformation("unique")
class Unique(Dataset):
    """The distinct values in order of first occurrence; elements must be scalars.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.from_tensor_slices([3, 1, 3, 2, 1]).unique()]
        [3, 1, 2]
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)

    def _stream(self, context: PassContext) -> Stream:
        return _UniqueStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return self._parents[0]._spec()


class _UniqueStream(Stream):
    fields = ("distinct",)

    def __init__(self, dataset: Unique, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self.distinct: list[Any] = []

    def elements(self) -> Iterator[Any]:
        visited = set(self.distinct)
        for element in self.parent:
            is_array = isinstance(element, (np.ndarray, np.generic))
            value = element.item() if is_array and element.size == 1 else element
            if isinstance(value, (list, dict, np.ndarray)):
                raise ArgumentTypeError(
                    "unique: expected elements that are single values; received "
                    f"{element!r:.60}"
                )
            if value not in visited:
                visited.add(value)
                self.distinct.append(value)
                yield element
