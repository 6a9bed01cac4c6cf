"""Map: the results of a function for each element, in parallel if requested."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from toolkit.data.batch_shards import skip_absent
from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import name_of, unpack_tuple
from toolkit.data.options import Options
from toolkit.data.parallel_stream import ParallelStream
from toolkit.data.randomness import new_seed, pass_draws
from toolkit.data.rows import MappedRows, Rows
from toolkit.data.specs import apply_to_examples, first_elements, spec_of_examples
from toolkit.data.streams import SKIPPED, PassContext, Stream
from toolkit.data.tuning import AUTOTUNE, Knob, check_workers
from toolkit.errors import ArgumentError, unknown_choice


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
