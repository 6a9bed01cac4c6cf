"""One pass over a data set: a stream for each stage, each drawing on those before it.

A stream is a generator with a position that can be written down. What `fields` names
is all that a stage must remember between two elements; a stream that is given these
values again, before its first element, goes on where the other was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from toolkit.data.errors import note, place
from toolkit.data.profiling import Stage, Watch
from toolkit.data.rows import Rows
from toolkit.data.shares import ABSENT, RowsOf, Selection
from toolkit.data.structure import stacked
from toolkit.spares import Spares

if TYPE_CHECKING:
    from toolkit.data.dataset import Dataset

SKIPPED = object()  # in the place of an element whose error is passed over

OnError = Callable[[Exception, str], None]


class ClosedError(Exception):
    """A pass was closed while a stage waited for an element; no end of its elements.

    Whoever takes elements of a stream may tell by it that there are more: what was kept
    of them is not all. Only who has the iterator of the pass sees an end instead.
    """


class Run:
    """What all streams of one pass have in common.

    Attributes:
        watch: how long each stage takes.
        options: those of the data set.
        unordered: stages that give out elements as they become ready.
        kept: whether stages that keep elements read what they have kept in this pass;
            they do so from its beginning to its end, or not at all.
        shares: the stage of batches that makes some rows of each, and which ones.
    """

    def __init__(self, watch: Watch, options: Any) -> None:
        self.watch = watch
        self.options = options
        self.unordered: list[str] = []
        self.kept: WeakKeyDictionary[Dataset, bool] = WeakKeyDictionary()
        self.shares: dict[Dataset, RowsOf] = {}
        self._closing: dict[Callable[[], None], None] = {}
        self.is_closed: bool = False

    def at_close(self, function: Callable[[], None]) -> None:
        """Have a function called when the pass ends, however it ends."""
        self._closing[function] = None
        if self.is_closed:  # a thread came to this stage when the pass was over
            self.close()

    def has_ended(self, function: Callable[[], None]) -> None:
        """Forget a function for the end: its stream has come to its own."""
        self._closing.pop(function, None)

    def close(self) -> None:
        """Stop threads and processes, close files; idempotent."""
        self.is_closed = True
        while self._closing:
            with contextlib.suppress(Exception):  # also where two threads close it
                self._closing.popitem()[0]()


class Pass(NamedTuple):
    """Where in a run a stage is opened.

    Attributes:
        run: the run.
        epoch: its number, and those of the repetitions inside it: what random choices
            depend on beside their seed.
        on_error: what takes an error of one element, if it is to be passed over.
        within: the stage of whose elements these data sets are made, if any.
        selection: the elements that are made; others are ABSENT. None: all.
    """

    run: Run
    epoch: tuple[int, ...]
    on_error: OnError | None = None
    within: Dataset | None = None
    selection: Selection | None = None

    def inside(self, repetition: int) -> Pass:
        """The pass of a repetition inside this one."""
        return self._replace(epoch=(*self.epoch, repetition))

    def rows(self, dataset: Dataset) -> Rows | None:
        """The elements of a data set by their number, if they can be had so."""
        return dataset._rows(self)

    def open(self, dataset: Dataset) -> Stream:
        """The stream of a data set."""
        rows = self.rows(dataset)
        if rows is not None:
            stream: Stream = RowStream(dataset, self, rows)
        else:
            stream = dataset._stream(self)
        return stream


class Stream:
    """Base: the elements of a stage, one after the other.

    Args:
        dataset: the stage.
        here: the pass.
        parents: the streams on which it draws.
    """

    fields: tuple[str, ...] = ()

    def __init__(self, dataset: Dataset, here: Pass, *parents: Stream) -> None:
        self.dataset = dataset
        self.here = here
        self.parents = parents
        stages: list[Stage] = [parent.stage for parent in parents]
        title = self.title()
        key = id(dataset) if here.within is None else (id(here.within), title)
        self.stage: Stage = here.run.watch.stage(key, title, dataset, stages)

    def title(self) -> str:
        """What it is called where times are shown."""
        return self.dataset._name

    @property
    def parent(self) -> Stream:
        """The only stream on which it draws."""
        return self.parents[0]

    def elements(self) -> Iterator[Any]:
        """The elements from the position on; a kind of stream defines this."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return self.stage.timed(self.elements())

    def lists(self, size: int) -> Iterator[list[Any]]:
        """The elements, several at a time; the last list has what is left."""
        elements = iter(self)
        while together := list(islice(elements, size)):
            yield together

    def stacked(self, size: int, drops: bool) -> Iterator[Any]:
        """The elements in batches.

        Args:
            size: how many a batch has.
            drops: whether to leave out a last batch that is not full.
        """
        spares = Spares()
        for elements in self.lists(size):
            if drops and len(elements) < size:
                return
            yield stacked(elements, spares.empty)

    def state(self) -> Any:
        """The position, for `restore`; it may hold elements."""
        return [
            [_kept(getattr(self, name)) for name in self.fields],
            [parent.state() for parent in self.parents],
        ]

    def restore(self, state: Any) -> None:
        """Go to a position, before the first element has been taken."""
        mine, theirs = state
        for name, value in zip(self.fields, mine, strict=True):
            setattr(self, name, value)
        for parent, position in zip(self.parents, theirs, strict=True):
            parent.restore(position)

    def skip(self, count: int) -> Iterator[Any]:
        """The elements after the next `count`, before the first has been taken."""
        elements = iter(self)
        next(islice(elements, count, count), None)
        return elements

    def failed(self, error: Exception, index: int) -> None:
        """Note on an error that this stage raised it, at an element of the one before.

        Args:
            index: the number of the element.
        """
        stage = self.dataset
        note(error, place(stage._name, index, self.parent.origin(), stage._detail()))

    def origin(self) -> str | None:
        """Where the last element comes from, such as a file and a line."""
        found = (parent.origin() for parent in self.parents)
        return next((origin for origin in found if origin is not None), None)


def _kept(value: Any) -> Any:
    """A value that stays as it is while the stream goes on."""
    return list(value) if isinstance(value, list) else value


class RowStream(Stream):
    """The rows of a data set in their order."""

    fields: tuple[str, ...] = ("position",)

    def __init__(self, dataset: Dataset, here: Pass, rows: Rows) -> None:
        super().__init__(dataset, here)
        self._rows = rows
        self.position: int = 0

    def title(self) -> str:
        return " > ".join(self.dataset._chain())

    def elements(self) -> Iterator[Any]:
        if self.here.on_error is not None:
            yield from self._without_errors(self.here.on_error)
        selection = self.here.selection
        made = self._selected(selection) if selection else self._rows.iterate
        try:
            for element in made(self.position):
                self.position += 1
                yield element
        except Exception as error:
            origin = self._rows.origin(self.position)
            note(error, place(self.title(), self.position, origin))
            raise

    def _selected(self, selection: Selection) -> Callable[[int], Iterator[Any]]:
        def iterate(start: int) -> Iterator[Any]:
            for number in range(start, len(self._rows)):
                yield self._rows[number] if number in selection else ABSENT

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
