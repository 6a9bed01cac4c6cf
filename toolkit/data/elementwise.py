"""Stages that process elements separately: map, filter, scan and similar stages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit.data.batch_shards import skip_absent
from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import missing_result_error, name_of, unpack_tuple
from toolkit.data.options import Options
from toolkit.data.parallel_stream import ParallelStream
from toolkit.data.randomness import new_seed, pass_draws
from toolkit.data.rows import MappedRows, RangeRows, Rows, ZippedRows
from toolkit.data.specs import apply_to_examples, first_elements, spec_of_examples
from toolkit.data.streams import SKIPPED, PassContext, Stream
from toolkit.data.structure import TensorSpec
from toolkit.data.tuning import AUTOTUNE, Knob, check_workers
from toolkit.errors import ArgumentError, ArgumentTypeError, unknown_choice


@transformation("map")
class Map(Dataset):
    """Results of a function for each element.

    Args:
        map_func: a function from an element to a new element; tuples are unpacked.
        num_parallel_calls: the number of threads; AUTOTUNE selects it, None uses none.
        deterministic: whether to keep the order; None uses the options.
        synchronous: whether to forbid parallel calls.
        use_unbounded_threadpool: whether to ignore the thread limit in the options.
        workers: "thread", or "process" for pure Python functions that hold the GIL.

    Raises:
        Exception: an exception of `map_func`, with a note of the stage and the element.

    Example:
        >>> from toolkit.data import AUTOTUNE, Dataset
        >>> squares = Dataset.range(4).map(lambda x: x * x, num_parallel_calls=AUTOTUNE)
        >>> [int(x) for x in squares]
        [0, 1, 4, 9]
    """

    def __init__(
        self,
        dataset: Dataset,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        workers: str = "thread",
    ) -> None:
        super().__init__(dataset)
        check_workers("map", num_parallel_calls)
        if workers not in ("thread", "process"):
            raise unknown_choice("workers", workers, ("thread", "process"))
        if workers == "process" and num_parallel_calls is None:
            num_parallel_calls = AUTOTUNE
        if synchronous and num_parallel_calls is not None:
            raise ArgumentError(
                "map: expected no parallel calls with synchronous=True; received "
                f"num_parallel_calls={num_parallel_calls}, workers={workers!r}"
            )
        self._is_unbounded = use_unbounded_threadpool
        self._function = map_func
        self._workers = num_parallel_calls
        self._deterministic = deterministic
        self._kind = workers
        # Draws in worker processes must not change a generator of this process.
        self._salt = new_seed() if workers == "process" else 0

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _detail(self) -> str:
        return name_of(self._function)

    def over(self, dataset: Dataset) -> Map:
        """Return the same stage for another input data set."""
        other = copy.copy(self)
        other._parents = (dataset,)
        return other

    def is_ordered(self, options: Options) -> bool:
        """Return whether the elements keep the order of the source."""
        deterministic = self._deterministic
        return options.is_ordered if deterministic is None else deterministic

    def _aligned_input(self, context: PassContext) -> Dataset | None:
        return self._parents[0] if self.is_ordered(context.run.options) else None

    def _rows(self, context: PassContext) -> Rows | None:
        # If errors are skipped, an index does not identify an element.
        if self._workers is not None or context.on_error is not None:
            return None
        rows = context.rows(self._parents[0])
        return rows and MappedRows(rows, unpack_tuple(self._function), self._detail())

    def _spec(self) -> Any:
        return spec_of_examples(self._examples())

    def _examples(self) -> list[Any]:
        try:
            return apply_to_examples(
                unpack_tuple(self._function), self._parents[0]._examples()
            )
        except Exception:
            return first_elements(self)  # reports the origin of an error

    def _stream(self, context: PassContext) -> Stream:
        parent = context.open(self._parents[0])
        if self._workers is None:
            return _MapStream(self, context, parent)
        ordered = self.is_ordered(context.run.options)
        workers = Knob.of(self._workers, context.run.options, self._is_unbounded)
        if self._kind == "process":
            # Imported late: pipes and subprocesses would slow down each start.
            from toolkit.data.processes import ProcessStream

            words = [self._salt, *context.epoch]
            return ProcessStream(
                self, context, parent, self._function, words, workers, ordered
            )
        function = _skip_errors(unpack_tuple(self._function), context, self)
        elements = pass_draws(context.epoch)
        return ParallelStream(
            self, context, parent, function, workers, ordered=ordered, elements=elements
        )


def _skip_errors(
    function: Callable[[Any], Any], context: PassContext, dataset: Dataset
) -> Callable[[Any], Any]:
    """Return a function that returns SKIPPED on ignored errors, and keeps ABSENT."""
    if context.selection is not None:
        function = skip_absent(function)
    if context.on_error is None:
        return function
    on_error = context.on_error

    def call(element: Any) -> Any:
        try:
            return function(element)
        except Exception as error:
            on_error(error, dataset._name)
            return SKIPPED

    return call


class _MapStream(Stream):
    fields = ("position",)

    def __init__(self, dataset: Map, context: PassContext, parent: Stream) -> None:
        super().__init__(dataset, context, parent)
        self._function = _skip_errors(unpack_tuple(dataset._function), context, dataset)
        self.position = 0

    def elements(self) -> Iterator[Any]:
        return self._iterate_results(iter(self.parent))

    def _iterate_results(self, elements: Iterator[Any]) -> Iterator[Any]:
        function = self._function
        for element in elements:
            try:
                result = function(element)
            except Exception as error:
                self.annotate_error(error, self.position)
                raise
            self.position += 1
            if result is not SKIPPED:
                yield result

    def skip(self, count: int) -> Iterator[Any]:
        if self.context.on_error is not None:
            return super().skip(count)
        self.position += count
        return self.stage.timed(self._iterate_results(self.parent.skip(count)))


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
