"""Dataset: elements that come one after the other, and what can be made of them.

Each source and each transformation is a class of its own, in the file of its family; a
decorator makes it a method of `Dataset`. A stage says how many elements it has, and how
they are had: by their number (`_rows`), or one after the other (`_stream`).
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit import pictures
from toolkit.arguments import check_given, checked, taken_by
from toolkit.data.encoding import decode, encode
from toolkit.data.methods import Methods
from toolkit.data.options import Options
from toolkit.data.profiling import Watch
from toolkit.data.rows import Rows
from toolkit.data.shares import RowsOf
from toolkit.data.specs import examples, looked, spec_of_examples
from toolkit.data.stats import Stats
from toolkit.data.streams import ClosedError, Pass, Run, Stream
from toolkit.data.structure import map_leaves
from toolkit.data.tuning import AUTOTUNE
from toolkit.errors import ArgumentError, ArgumentTypeError, UnsupportedError

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2
SHARED = 0.0002  # s between two looks whether another thread still takes an element
_COUNTS = {
    INFINITE_CARDINALITY: "without end",
    UNKNOWN_CARDINALITY: "of unknown length",
}

Stage = TypeVar("Stage", bound="type[Dataset]")


class Dataset(Methods):
    """Elements that come one after the other: the input pipeline of a model.

    A data set begins at a source, such as `Dataset.from_tensor_slices`, and is changed
    by transformations, such as `map`, `shuffle`, `batch` and `prefetch`; each returns a
    new data set and changes nothing. An element is an array or a number, or a nest of
    tuples and dicts of them. Nothing is read before elements are taken, by a loop or by
    `fit`; each loop begins a new pass.

    Example:
        >>> from toolkit.data import Dataset
        >>> dataset = Dataset.range(6).map(lambda x: x * x).batch(4)
        >>> for batch in dataset:
        ...     print(batch)
        [0 1 4 9]
        [16 25]
    """

    _name = "dataset"  # of the stage
    _seed = 0  # of its random choices, if it has any
    _hands_on = False  # whether its elements are some of its parent's, as they are

    def __init__(self, *parents: Dataset) -> None:
        import_module("toolkit.data.pipeline")  # whoever made it: it has all methods
        self._parents = parents
        self._passes = 0
        self._watch: Watch | None = None
        # What becomes of each value for who loops over the elements; not for `fit`,
        # `map` and the like, which take the arrays.
        given = (parent._shown for parent in parents if isinstance(parent, Dataset))
        self._shown: Callable[[Any], Any] | None = next(filter(None, given), None)

    if TYPE_CHECKING:  # the methods that `source` and `transformation` add

        def __getattr__(self, name: str) -> Any: ...

    # What a stage defines

    def _cardinality(self) -> int:
        """The number of elements; `INFINITE_` or `UNKNOWN_CARDINALITY`."""
        return UNKNOWN_CARDINALITY

    def _rows(self, here: Pass) -> Rows | None:
        """The elements by their number; None where they cannot be had so."""
        return None

    def _stream(self, here: Pass) -> Stream:
        """The elements one after the other."""
        raise NotImplementedError(f"{type(self).__name__} defines no elements")

    def _made_of(self, here: Pass) -> Dataset | None:
        """The data set of whose elements these are made, each of that of its number."""
        return None

    def _spec(self) -> Any:
        """The TensorSpecs of an element; here, what the first ones have in common."""
        return spec_of_examples(looked(self))

    def _examples(self) -> list[Any]:
        """Some elements, out of which others can be made to see what they are like."""
        return examples(self)

    def _detail(self) -> str:
        """What the stage was given, in a few words."""
        return ""

    def _worked_ahead(self, always: bool = False) -> Dataset:
        """The data set, made ahead by a thread where stages of it are parallel."""
        stages = self._ancestors()
        if always or any(getattr(stage, "_workers", None) for stage in stages):
            return self.prefetch(AUTOTUNE)
        return self

    # What users call

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element's values, nested as they are.

        Extents that vary are None. Where they are not known otherwise, the first
        elements are made to see, and functions are called with these, and with one
        that is longer where lengths vary: that is no pass, and changes none.
        """
        return self._spec()

    def cardinality(self) -> int:
        """The number of elements; `INFINITE_` or `UNKNOWN_CARDINALITY`."""
        return self._cardinality()

    def __len__(self) -> int:
        count = self._cardinality()
        if count >= 0:
            return count
        kind = "infinite" if count == INFINITE_CARDINALITY else "unknown"
        raise TypeError(f"the length of this data set is {kind} ({self!r})")

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> DatasetIterator:
        epoch, self._passes = self._passes, self._passes + 1
        kind = DatasetIterator if self._shown is None else _ShownIterator
        return kind(self, (epoch,))

    def prefetched(self, rows: RowsOf | None = None) -> DatasetIterator:
        """A pass that is made ahead, as `fit` takes it.

        Args:
            rows: which rows of each batch to make, where `batch` is the last stage but
                for some that hand on its batches; each of them is a Share then.
        """
        epoch, self._passes = self._passes, self._passes + 1
        return DatasetIterator(self._worked_ahead(always=True), (epoch,), rows)

    def _own_rows(self, rows: RowsOf, makes_all: bool = False) -> Dataset:
        """Some rows of each batch, without making the others if need not be."""
        return import_module("toolkit.data.own_rows").OwnRows(self, rows, makes_all)

    def _first_row(self) -> Any:
        """What makes the first row of a batch by itself, and by which functions."""
        return import_module("toolkit.data.own_rows").FirstRow(self)

    def get_state(self) -> dict[str, Any]:
        """What later passes depend on: a dict that JSON can hold, for `set_state`."""
        seeds = [stage._seed for stage in self._ancestors()]
        return {"pipeline": repr(self), "passes": self._passes, "seeds": seeds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Have later passes be those of the data set that `get_state` was asked for.

        Raises:
            ArgumentError: it is the state of a data set of other stages.
        """
        if state.get("pipeline") != repr(self):
            raise ArgumentError(
                f"set_state: expected the state of {self!r}; received that of "
                f"{state.get('pipeline')}"
            )
        self._passes = state["passes"]
        for stage, seed in zip(self._ancestors(), state["seeds"], strict=True):
            stage._reseed(seed)

    def _reseed(self, seed: int) -> None:
        if "_seed" in self.__dict__:  # else it makes no random choices
            self._seed = type(self._seed)(seed)  # still given, or drawn

    def as_numpy_iterator(self) -> DatasetIterator:
        """An iterator over the elements; their values are NumPy's in any case."""
        epoch, self._passes = self._passes, self._passes + 1
        return DatasetIterator(self, (epoch,))

    def options(self) -> Options:
        """The options that hold for this data set, `with_options` and those before."""
        merged = Options()
        for parent in self._parents:
            merged = merged.updated(parent.options())
        return merged

    @checked
    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """What a function makes of this data set.

        Example:
            >>> from toolkit.data import Dataset
            >>> list(Dataset.range(3).apply(lambda d: d.concatenate(d.take(1))))
            [np.int64(0), np.int64(1), np.int64(2), np.int64(0)]
        """
        result = transformation_func(self)
        if not isinstance(result, Dataset):
            raise ArgumentTypeError(
                f"apply: expected a function that returns a Dataset; received {result}"
            )
        return result

    def stats(self) -> Stats:
        """Where the time of the last pass went: a table, and what to do about it."""
        if self._watch is None:
            raise ArgumentError("stats: no element of this data set has been taken yet")
        return Stats(self._watch)

    def timeline(self, path: str | Path) -> None:
        """Write the last pass for ui.perfetto.dev: who worked when, in which thread."""
        self.stats().timeline(path)

    def plot(self, to_file: str | Path | None = None) -> Picture:
        """A picture of the last pass: when each stage, and the consumer, was at work.

        Args:
            to_file: where to save it: ".svg" needs no other package, ".png" and
                ".pdf" need Matplotlib.

        Returns:
            A picture that notebooks show; its `svg()` is text, `save(path)` a file.
        """
        return self.stats().plot(to_file)

    def _repr_html_(self) -> str:
        count = self._cardinality()
        size = _COUNTS.get(count, f"{count:,} elements")
        chain = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ".join(self._chain())
        tag = pictures.page.tag
        parts = [tag("div", tag("b", "Dataset"), f" {chain}, {size}")]
        if self._watch is not None:
            parts.append(pictures.page.Markup(self.stats()._repr_html_()))
        return pictures.notebook.note(*parts)

    def __repr__(self) -> str:
        return f"<Dataset {' > '.join(self._chain())}>"

    def _chain(self) -> list[str]:
        """The names of the stages up to here, along the first parents."""
        before = self._parents[0]._chain() if self._parents else []
        return [*before, self._name]

    def _ancestors(self) -> Iterator[Dataset]:
        yield self
        for parent in self._parents:
            yield from parent._ancestors()


def last_batches(dataset: Dataset) -> Dataset:
    """The stage whose elements a data set hands on, as they are."""
    while dataset._hands_on:
        dataset = dataset._parents[0]
    return dataset


def _method(stage: Stage) -> Callable[..., Dataset]:
    """A function that makes a stage, with the stage's signature and docstring.

    Its argument `name` is what tables, errors and `repr` call the stage beside its
    kind.
    """

    def make(*args: Any, name: str | None = None, **arguments: Any) -> Dataset:
        check_given(stage._name, taken_by(stage.__init__), args, arguments)
        made = stage(*args, **arguments)
        if name is not None:
            made._name = f"{stage._name} {name!r}"
        return made

    make.__doc__ = stage.__doc__
    make.__module__ = stage.__module__
    given = list(inspect.signature(stage).parameters.values())
    named = inspect.Parameter(
        "name", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
    )
    vars(make)["__signature__"] = inspect.Signature([*given, named])
    return make


def transformation(name: str) -> Callable[[Stage], Stage]:
    """Make a stage a method of Dataset; its first argument is the data set."""

    def add(stage: Stage) -> Stage:
        method = _method(stage)
        method.__name__ = stage._name = name
        method.__qualname__ = f"Dataset.{name}"
        setattr(Dataset, name, method)
        return stage

    return add


def source(name: str) -> Callable[[Stage], Stage]:
    """Make a stage a static method of Dataset."""

    def add(stage: Stage) -> Stage:
        method = _method(stage)
        method.__name__ = stage._name = name
        method.__qualname__ = f"Dataset.{name}"
        setattr(Dataset, name, staticmethod(method))
        return stage

    return add


class DatasetIterator:
    """One pass over a data set, whose position can be saved and restored.

    Used in a `with` statement, or closed, it stops its threads at once; otherwise they
    stop when it is dropped.

    Example:
        >>> from toolkit.data import Dataset
        >>> dataset = Dataset.range(100).shuffle(100, seed=1).batch(10)
        >>> iterator = iter(dataset)
        >>> first = next(iterator)
        >>> state = iterator.get_state()
        >>> second = next(iterator)
        >>> again = iter(dataset)
        >>> again.set_state(state)
        >>> bool((next(again) == second).all())
        True
    """

    def __init__(
        self, dataset: Dataset, epoch: tuple[int, ...], rows: RowsOf | None = None
    ) -> None:
        self._dataset = dataset
        self._shares = rows
        self._epoch = epoch
        self._run: Run | None = None
        self._elements: Iterator[Any] = iter(())
        self._open(None)

    def _open(self, state: Any, kept: Sequence[int] = ()) -> None:
        dataset = self._dataset
        run = Run(Watch(), dataset.options())
        if state is not None:
            stages = enumerate(dataset._ancestors())
            run.kept.update((stage, number in kept) for number, stage in stages)
        if self._shares is not None:
            run.shares[last_batches(dataset)] = self._shares
        stream = Pass(run, self._epoch).open(dataset._worked_ahead())
        if state is not None:
            stream.restore(state)
        for stage in dataset._ancestors():
            stage._watch = run.watch
        self._run, self._stream = run, stream
        self._close = weakref.finalize(self, run.close)
        self._elements = run.watch.timed(iter(stream))

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return next(self._elements)
            except ClosedError:  # by another thread: to it, the loop ends here
                raise StopIteration from None
            except BaseException as error:
                if not _is_taken(error):  # at the end, too, nothing goes on behind it
                    self._close()
                    raise
            sleep(SHARED)

    def get_next(self) -> Any:
        """The next element; StopIteration after the last."""
        return next(self)

    def get_state(self) -> dict[str, Any]:
        """The position: a dict that JSON can hold, for `set_state`.

        Raises:
            UnsupportedError: a parallel stage keeps no order (deterministic=False).
        """
        assert self._run is not None
        if self._run.unordered:
            raise UnsupportedError(
                f"get_state: the stage {self._run.unordered[0]} gives out elements as "
                "they become ready (deterministic=False): there is no position to go "
                "back to"
            )
        return {
            **self._dataset.get_state(),
            "epoch": list(self._epoch),
            "position": encode(self._stream.state()),
            "kept": [
                number
                for number, stage in enumerate(self._dataset._ancestors())
                if self._run.kept.get(stage)
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to a position that `get_state` has returned, here or in another process.

        Raises:
            ArgumentError: it is the position in a data set of other stages.
        """
        self._dataset.set_state(state)
        self.close()
        self._epoch = tuple(state["epoch"])
        self._open(decode(state["position"]), state["kept"])

    def close(self) -> None:
        """End the pass: stop its threads and processes, close its files."""
        self._elements = iter(())
        self._close()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ShownIterator(DatasetIterator):
    """A pass for who loops over elements whose values are shown in another form."""

    def __next__(self) -> Any:
        element, shown = super().__next__(), self._dataset._shown
        return element if shown is None else map_leaves(shown, element)


def _is_taken(error: BaseException) -> bool:
    """Whether another thread is taking an element: a generator says so by itself.

    A lock, held for each element, would cost as much as a cheap element.
    """
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and not trace.tb_next
