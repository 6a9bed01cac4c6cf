"""Stages that open a data set for each element: interleave and flat_map."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import (
    add_location_note,
    describe_location,
    name_of,
    unpack_tuple,
)
from toolkit.data.interleave_order import interleave_order
from toolkit.data.options import Options
from toolkit.data.parallel_stream import ParallelStream
from toolkit.data.rows import MAX_ORDER_SIZE, ConcatenatedRows, ReorderedRows, Rows
from toolkit.data.specs import UNKNOWN_ELEMENT, nested_spec
from toolkit.data.streams import OnError, PassContext, Stream
from toolkit.data.tuning import AUTOTUNE, INITIAL_THREADS, Knob, check_workers
from toolkit.errors import ArgumentError, ArgumentTypeError

DEFAULT_CYCLE_LENGTH = (
    16  # default number of open data sets; it does not depend on the CPU count
)

MAX_INDEXED_DATASETS = 1 << 14  # a job streams more, because each needs an index


@transformation("interleave")
class Interleave(Dataset):
    """Interleaved elements of the data sets that a function returns for each element.

    The stage opens `cycle_length` data sets. It takes `block_length` elements of the
    first, then of the second, in a cycle. When a data set ends, the next one opens.

    Args:
        map_func: a function from an element, such as a file name, to a data set.
        cycle_length: the number of open data sets; 16 by default.
        block_length: the number of consecutive elements from each data set.
        num_parallel_calls: the number of data sets that threads prefetch in parallel;
            AUTOTUNE means all. None reads them sequentially, on demand.
        deterministic: whether to keep the cycle order if a data set is not ready. None
            uses the options of the data set.

    Example:
        >>> from toolkit.data import Dataset
        >>> rows = Dataset.range(3).interleave(lambda n: Dataset.range(n, n + 2))
        >>> [int(x) for x in rows]
        [0, 1, 2, 1, 2, 3]
    """

    def __init__(
        self,
        dataset: Dataset,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> None:
        super().__init__(dataset)
        check_workers(self._name, num_parallel_calls)
        cycle = (
            DEFAULT_CYCLE_LENGTH if cycle_length in (None, AUTOTUNE) else cycle_length
        )
        block = 1 if block_length is None else block_length
        for name, value in (("cycle_length", cycle), ("block_length", block)):
            if value < 1:
                raise ArgumentError(
                    f"{self._name}: expected {name} >= 1; received {value}"
                )
        self._function, self._cycle, self._block = map_func, int(cycle), int(block)
        self._workers, self._deterministic = num_parallel_calls, deterministic

    def _detail(self) -> str:
        return name_of(self._function)

    def is_ordered(self, options: Options) -> bool:
        """Return whether the elements keep the cycle order."""
        deterministic = self._deterministic
        return options.is_ordered if deterministic is None else deterministic

    def _rows(self, context: PassContext) -> Rows | None:
        is_ordered = self.is_ordered(context.run.options)
        if not context.uses_index or context.on_error is not None or not is_ordered:
            return None
        epoch, rows = context.run.rows.get(self, (None, None))
        if epoch != context.epoch:  # cached, because it calls the function
            rows = self._interleaved_rows(context)
            context.run.rows[self] = context.epoch, rows
        return rows

    def _interleaved_rows(self, context: PassContext) -> Rows | None:
        elements = context.rows(self._parents[0])
        if elements is None or len(elements) > MAX_INDEXED_DATASETS:
            return None
        function, sources = unpack_tuple(self._function), []
        for number, element in enumerate(elements.iterate(0)):
            origin = elements.origin(number) or describe_name(element)
            dataset = self.open_dataset(function, number, element, origin)
            if dataset is None:
                return None
            rows = self.nested_context(context, number).rows(dataset)
            if rows is None:
                return None
            sources.append(rows)
        counts = list(map(len, sources))
        joined = ConcatenatedRows(sources)
        if self._cycle == 1:
            return joined
        if len(joined) > MAX_ORDER_SIZE:
            return None
        order = interleave_order(counts, self._cycle, self._block)
        return ReorderedRows(joined, len(joined), order.__getitem__)

    def nested_context(self, context: PassContext, number: int) -> PassContext:
        """Return the context of the data set of an element."""
        return context.repetition_context(number)._replace(enclosing_stage=self)

    def open_dataset(
        self,
        function: Callable[[Any], Any],
        number: int,
        element: Any,
        origin: str | None,
        on_error: OnError | None = None,
    ) -> Dataset | None:
        """Return the data set of an element, or None if its error is ignored.

        Args:
            function: the function of the stage, for one argument.
            number: the index of the element.
            element: the element.
            origin: the origin of the element, for errors.
            on_error: a handler for an error of the function, if it is ignored.
        """
        try:
            dataset = function(element)
        except Exception as error:
            if on_error is not None:
                on_error(error, self._name)
                return None
            location = describe_location(self._name, number, origin, self._detail())
            add_location_note(error, location)
            raise
        if not isinstance(dataset, Dataset):
            raise ArgumentTypeError(
                f"{self._name}: expected a function that returns a Dataset; "
                f"{self._detail()} returned a {type(dataset).__name__} for "
                f"element {number:,}"
            )
        return dataset

    def _stream(self, context: PassContext) -> Stream:
        return _InterleaveStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        some = self._parents[0]._examples()
        try:
            function = unpack_tuple(self._function)
            return nested_spec(
                function, [one for one in some if one is not UNKNOWN_ELEMENT]
            )
        except Exception:  # the data set is empty or fails
            return super()._spec()


@transformation("flat_map")
class FlatMap(Interleave):
    """Elements of the data sets that a function returns for each element.

    Args:
        map_func: a function from an element to a data set.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(4).flat_map(Dataset.range)]
        [0, 0, 1, 0, 1, 2]
    """

    def __init__(self, dataset: Dataset, map_func: Callable[..., Dataset]) -> None:
        super().__init__(dataset, map_func, cycle_length=1)


class _Child:
    """State of an open data set.

    Attributes:
        number, element: the index and the element of the source.
        stream: its stream.
        elements: its iterator.
    """

    def __init__(self, number: int, element: Any, stream: Stream) -> None:
        self.number, self.element, self.stream = number, element, stream
        self.elements = iter(stream)


class _ChildPrefetch(ParallelStream):
    """Stream of an open data set that a thread prefetches."""

    def title(self) -> str:
        return f"prefetch for {self.dataset._name}"


class _InterleaveStream(Stream):
    """Stream of the open data sets; the first one is current."""

    def __init__(
        self, dataset: Interleave, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._stage = dataset
        self._function = unpack_tuple(dataset._function)
        self._children: deque[_Child] = deque()  # the first one is current
        self._block_count = 0  # elements taken from the current block
        self._opened = 0
        self._is_over = False
        options = context.run.options
        self._ordered = dataset.is_ordered(options)
        wide = INITIAL_THREADS if dataset._workers == AUTOTUNE else dataset._workers
        self._prefetch_count = min(dataset._cycle, wide or 0, options.max_threads)
        self._gate = threading.Semaphore(self._prefetch_count)
        self._news = threading.Event()
        if self._prefetch_count and not self._ordered:
            context.run.unordered.append(dataset._name)

    def elements(self) -> Iterator[Any]:
        source = iter(self.parent)
        self._fill(source)
        while self._children:
            if self._prefetch_count and not self._ordered:
                self._find_ready()
            child = self._children[0]
            ended = True
            for element in islice(
                child.elements, self._stage._block - self._block_count
            ):
                self._block_count += 1
                ended = False
                if self._block_count == self._stage._block:
                    self._next_child()
                yield element
            if ended:
                self._children.popleft()
                self._block_count = 0
                self._fill(source)

    def _next_child(self) -> None:
        self._children.rotate(-1)
        self._block_count = 0

    def _find_ready(self) -> None:
        """Move to the next data set that has an element ready."""
        while not self._block_count:
            self._news.clear()
            for _ in range(len(self._children)):
                stream: Any = self._children[0].stream
                if stream.is_ready:
                    return
                self._children.rotate(-1)
            self._news.wait()

    def _fill(self, source: Iterator[Any]) -> None:
        """Open data sets up to the cycle length."""
        while len(self._children) < self._stage._cycle and not self._is_over:
            element = next(source, self)
            if element is self:
                self._is_over = True
                return
            number, self._opened = self._opened, self._opened + 1
            stream = self._open(number, element)
            if stream is not None:
                self._children.append(_Child(number, element, stream))

    def _open(self, number: int, element: Any, position: Any = None) -> Stream | None:
        """Return the stream of an element's data set from a position on."""
        dataset = self._dataset_for(number, element)
        if dataset is None:
            return None
        context = self._stage.nested_context(self.context, number)
        stream = context.open(dataset)
        if self._prefetch_count:
            buffer = Knob(max(2, self._stage._block))
            prefetching = _ChildPrefetch(
                *(self._stage, context, stream, None, Knob(1), buffer),
                gate=self._gate,
                news=self._news,
            )
            stream = prefetching
        self.stage.add_input(stream.stage, max(1, self._prefetch_count))
        if position is not None:
            stream.restore(position)
        if self._prefetch_count:
            prefetching.start_threads()
        return stream

    def _dataset_for(self, number: int, element: Any) -> Dataset | None:
        """Return the data set for an element, or None if its error is ignored."""
        origin = self.parent.origin() or describe_name(element)
        return self._stage.open_dataset(
            self._function, number, element, origin, self.context.on_error
        )

    def state(self) -> Any:
        children = [[c.number, c.element, c.stream.state()] for c in self._children]
        local_state = [children, self._block_count, self._opened, self._is_over]
        return [local_state, [self.parent.state()]]

    def restore(self, state: Any) -> None:
        (children, self._block_count, self._opened, self._is_over), (before,) = state
        self.parent.restore(before)
        for number, element, position in children:
            stream = self._open(number, element, position)
            if stream is not None:
                self._children.append(_Child(number, element, stream))

    def origin(self) -> str | None:
        if not self._children:
            return None
        child = self._children[0]
        return child.stream.origin() or describe_name(child.element)


def describe_name(element: object) -> str | None:
    """Return an element as text if it is a name such as a path, else None."""
    return str(element) if isinstance(element, (str, bytes)) else None
