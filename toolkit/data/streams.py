"""Streams of one pass over a dataset: one for each stage, each reading its inputs.

A stream is a generator with a serializable position. `fields` names all state that a
stage keeps between two elements. A new stream with these values continues from that
position.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from toolkit.buffer_pool import BufferPool
from toolkit.data.batch_shards import ABSENT, RowSelector, Selection
from toolkit.data.errors import add_location_note, describe_location
from toolkit.data.indexed_rows import OpenFiles
from toolkit.data.profiling import PassProfile, StageProfile
from toolkit.data.rows import Rows
from toolkit.data.structure import stack_elements

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

# A row selection is partial in all processes or in none, if the batch is this large.
_MANY_ROWS = 1 << 20
SKIPPED = object()  # replaces an element with an ignored error

OnError = Callable[[Exception, str], None]


class ClosedError(Exception):
    """Error for a pass that was closed while a stage waited for an element.

    It differs from the end of the elements: the elements received so far are
    incomplete. The user of the pass's iterator sees a normal end instead.
    """


class Run:
    """State that all streams of one pass share.

    Attributes:
        watch: the measurements of the stages.
        options: the options of the data set.
        unordered: the stages that deliver elements as they become ready.
        uses_cache: whether caching stages read their cache in this pass. The choice is
            fixed for the whole pass.
        shard_selectors: the batch stage with a local shard, and its row selection.
        uses_index: whether an index gives random access to the records of files. The
            choice is fixed for the whole pass; None: it is not made yet.
        files: the files that are read by an index.
        rows: for stages whose random access is slow to create, the epoch and the rows.
        last_functions: the last stage, with a function for its elements, if any.
    """

    def __init__(self, watch: PassProfile, options: Any) -> None:
        self.watch = watch
        self.options = options
        self.unordered: list[str] = []
        self.uses_cache: WeakKeyDictionary[Dataset, bool] = WeakKeyDictionary()
        self.shard_selectors: dict[Dataset, RowSelector] = {}
        self.uses_index: bool | None = None
        self.files = OpenFiles()
        self.rows: dict[Dataset, tuple[tuple[int, ...], Rows | None]] = {}
        self.last_functions: dict[Dataset, Callable[[object], object]] = {}
        self._closing: dict[Callable[[], None], None] = {}
        self.is_closed: bool = False

    def on_close(self, function: Callable[[], None]) -> None:
        """Register a function to call at the end of the pass in all cases."""
        self._closing[function] = None
        if self.is_closed:  # a thread reached this stage after the end
            self.close()

    def cancel_on_close(self, function: Callable[[], None]) -> None:
        """Unregister a function, because its stream has ended."""
        self._closing.pop(function, None)

    def close(self) -> None:
        """Stop threads and processes, close files; idempotent."""
        self.is_closed = True
        while self._closing:
            with contextlib.suppress(Exception):  # two threads can close it at once
                self._closing.popitem()[0]()
        self.files.close()


class PassContext(NamedTuple):
    """Context in which a stage opens its stream in a run.

    Attributes:
        run: the run.
        epoch: the pass number, and the numbers of nested repetitions. Random choices
            depend on it and on their seed.
        on_error: a handler for an error of one element, if such errors are ignored.
        enclosing_stage: the enclosing stage of a nested data set, if any.
        selection: the elements to compute; other elements are ABSENT. None selects all.
        ignores_index: whether to read files sequentially nevertheless.
    """

    run: Run
    epoch: tuple[int, ...]
    on_error: OnError | None = None
    enclosing_stage: Dataset | None = None
    selection: Selection | None = None
    ignores_index: bool = False

    @property
    def uses_index(self) -> bool:
        """Return whether an index gives random access to the records of files."""
        return bool(self.run.uses_index) and not self.ignores_index

    def without_index(self) -> PassContext:
        """Return the context in which files are read sequentially."""
        return self._replace(ignores_index=True)

    def share_batches(self, batches: Dataset, rows: RowSelector) -> None:
        """Compute only some rows of each batch, if possible.

        Args:
            batches: the stage that creates the batches.
            rows: a function that selects the rows.
        """
        run = self.run
        run.shard_selectors[batches] = rows
        if run.uses_index is None and len(rows(_MANY_ROWS)) < _MANY_ROWS:
            run.uses_index = True  # for the answer of the stage
            run.uses_index = batches._can_skip_rows(self)

    def repetition_context(self, repetition: int) -> PassContext:
        """Return the context of a repetition in this pass."""
        return self._replace(epoch=(*self.epoch, repetition))

    def rows(self, dataset: Dataset) -> Rows | None:
        """Return random access to the elements of a data set, or None."""
        return dataset._rows(self)

    def open(self, dataset: Dataset) -> Stream:
        """Open the stream of a data set."""
        rows = self.rows(dataset)
        if rows is not None:
            stream: Stream = RowStream(dataset, self, rows)
        else:
            stream = dataset._stream(self)
        return stream


class Stream:
    """Base class of the stream of a stage.

    Args:
        dataset: the stage.
        context: the context.
        parents: the input streams.
    """

    fields: tuple[str, ...] = ()

    def __init__(
        self, dataset: Dataset, context: PassContext, *parents: Stream
    ) -> None:
        self.dataset = dataset
        self.context = context
        self.parents = parents
        stages: list[StageProfile] = [parent.stage for parent in parents]
        title = self.title()
        key = (
            id(dataset)
            if context.enclosing_stage is None
            else (id(context.enclosing_stage), title)
        )
        self.stage: StageProfile = context.run.watch.stage(key, title, dataset, stages)

    def title(self) -> str:
        """Return its name in tables of times."""
        return self.dataset._name

    @property
    def parent(self) -> Stream:
        """Return the single input stream."""
        return self.parents[0]

    def elements(self) -> Iterator[Any]:
        """Yield the elements from the position on; subclasses define this method."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return self.stage.timed(self.elements())

    def chunks(self, size: int) -> Iterator[list[Any]]:
        """Yield lists of elements; the last list can be shorter."""
        elements = iter(self)
        while together := list(islice(elements, size)):
            yield together

    def stacked(self, size: int, drops: bool) -> Iterator[Any]:
        """Yield batches of the elements.

        Args:
            size: the batch size.
            drops: whether to drop a last batch that is not full.
        """
        buffers = BufferPool()
        for elements in self.chunks(size):
            if drops and len(elements) < size:
                return
            yield stack_elements(elements, buffers.empty)

    def state(self) -> Any:
        """Return the position, for `restore`; it can contain elements."""
        return [
            [_copy_list(getattr(self, name)) for name in self.fields],
            [parent.state() for parent in self.parents],
        ]

    def restore(self, state: Any) -> None:
        """Restore a position, before the first element is taken."""
        values, theirs = state
        for name, value in zip(self.fields, values, strict=True):
            setattr(self, name, value)
        for parent, position in zip(self.parents, theirs, strict=True):
            parent.restore(position)

    def skip(self, count: int) -> Iterator[Any]:
        """Return an iterator after the next `count` elements, before the start."""
        elements = iter(self)
        next(islice(elements, count, count), None)
        return elements

    def annotate_error(self, error: Exception, index: int) -> None:
        """Add a note to an error: this stage raised it for an element of its input.

        Args:
            index: the index of the element.
        """
        stage = self.dataset
        add_location_note(
            error,
            describe_location(
                stage._name, index, self.parent.origin(), stage._detail()
            ),
        )

    def origin(self) -> str | None:
        """Return the origin of the last element, such as a file and a line."""
        origins = (parent.origin() for parent in self.parents)
        return next((origin for origin in origins if origin is not None), None)


def _copy_list(value: Any) -> Any:
    """Return a value that does not change when the stream continues."""
    return list(value) if isinstance(value, list) else value


class RowStream(Stream):
    """Stream of rows in their order."""

    fields: tuple[str, ...] = ("position",)

    def __init__(self, dataset: Dataset, context: PassContext, rows: Rows) -> None:
        super().__init__(dataset, context)
        self._rows = rows
        self.position: int = 0
        functions = self.stage.functions
        for index, mapped in enumerate(rows.maps()):
            if index < len(functions):  # of another stream of the same stage
                mapped.profile = functions[index]
            else:
                functions.append(mapped.profile)

    def title(self) -> str:
        return " > ".join(self.dataset._names())

    def elements(self) -> Iterator[Any]:
        if self.context.on_error is not None:
            yield from self._without_errors(self.context.on_error)
        selection = self.context.selection
        iterate = self._selected(selection) if selection else self._rows.iterate
        try:
            for element in iterate(self.position):
                self.position += 1
                yield element
        except Exception as error:
            origin = self._rows.origin(self.position)
            add_location_note(
                error, describe_location(self.title(), self.position, origin)
            )
            raise

    def _selected(self, selection: Selection) -> Callable[[int], Iterator[Any]]:
        def iterate(start: int) -> Iterator[Any]:
            for numbers, selected in selection.ranges(start):
                for number in numbers:
                    yield self._rows[number] if number in selected else ABSENT

        return iterate

    def _without_errors(self, on_error: OnError) -> Iterator[Any]:
        while self.position < len(self._rows):
            self.position += 1
            try:
                element = self._rows[self.position - 1]
            except Exception as error:
                on_error(error, self.title())
                continue
            yield element

    def skip(self, count: int) -> Iterator[Any]:
        self.position = min(self.position + count, len(self._rows))
        return iter(self)

    def origin(self) -> str | None:
        return self._rows.origin(max(0, self.position - 1)) if len(self._rows) else None
