"""Dataset: a lazy sequence of elements with chainable transformations.

Each source and each transformation is a class, in the module of its family. A decorator
adds it to `Dataset` as a method. A stage defines its cardinality, and access to its
elements: random access by index (`_rows`) or sequential (`_stream`).
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit import pictures
from toolkit.arguments import check_arguments, check_call, signature_of
from toolkit.data.batch_shards import RowSelector
from toolkit.data.encoding import decode, encode
from toolkit.data.methods import Methods
from toolkit.data.options import Options
from toolkit.data.profiling import PassProfile
from toolkit.data.rows import Rows
from toolkit.data.specs import (
    examples,
    first_elements,
    format_spec,
    infer_spec,
    known_spec,
    spec_of_examples,
)
from toolkit.data.stage_registry import import_stages
from toolkit.data.stats import Stats
from toolkit.data.streams import ClosedError, PassContext, Run, Stream
from toolkit.data.structure import map_leaves
from toolkit.data.tuning import AUTOTUNE
from toolkit.errors import ArgumentError, ArgumentTypeError, UnsupportedError

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2
POLL_SECONDS = 0.0002  # s between polls while another thread takes an element
_COUNTS = {
    INFINITE_CARDINALITY: "without end",
    UNKNOWN_CARDINALITY: "of unknown length",
}

Stage = TypeVar("Stage", bound="type[Dataset]")
Method = TypeVar("Method", bound=Callable[..., Any])


class Dataset(Methods):
    """Sequence of elements: the input pipeline of a model.

    A data set starts with a source, such as `Dataset.from_tensor_slices`.
    Transformations, such as `map`, `shuffle`, `batch` and `prefetch`, return a new
    data set and change nothing. An element is an array, a number, or a structure of
    tuples and dicts of them. A data set is lazy: a loop or `fit` reads its elements.
    Each loop starts a new pass.

    Args:
        *parents: the data sets that the stage reads; sources have none.

    Example:
        >>> from toolkit.data import Dataset
        >>> dataset = Dataset.range(6).map(lambda x: x * x).batch(4)
        >>> for batch in dataset:
        ...     print(batch)
        [0 1 4 9]
        [16 25]
    """

    _name = "dataset"  # name of the stage
    _seed = 0  # random seed of the stage
    # (number of shards, index) of a stage that selects a shard
    _shard: tuple[int, int] | None = None
    _has_rows = False  # whether the package itself can read any element
    _is_passthrough = False  # whether its elements are unchanged elements of the parent

    def __init__(self, *parents: Dataset) -> None:
        import_stages()
        self._parents = parents
        self._passes = 0
        self._profile: PassProfile | None = None
        # Converts each value for loops over the elements. `fit`, `map` and other stages
        # use the arrays without conversion.
        shown = (parent._shown for parent in parents if isinstance(parent, Dataset))
        self._shown: Callable[[Any], Any] | None = next(filter(None, shown), None)

    if TYPE_CHECKING:  # the methods that `source` and `transformation` add

        def __getattr__(self, name: str) -> Any: ...

    # Interface of a stage

    def _cardinality(self) -> int:
        """Return the number of elements, `INFINITE_` or `UNKNOWN_CARDINALITY`."""
        return UNKNOWN_CARDINALITY

    def _rows(self, context: PassContext) -> Rows | None:
        """Return random access to the elements, or None if not supported."""
        return None

    def _stream(self, context: PassContext) -> Stream:
        """Return a stream of the elements."""
        raise NotImplementedError(f"{type(self).__name__} does not define its elements")

    def _aligned_input(self, context: PassContext) -> Dataset | None:
        """Return the data set with the input of each element at the same index."""
        return None

    def _can_skip_rows(self, context: PassContext) -> bool:
        """Return whether a stage of batches can compute only some of their rows."""
        return False

    def _spec(self) -> Any:
        """Return the TensorSpecs of an element; by default, from the first elements."""
        return spec_of_examples(first_elements(self))

    def _examples(self) -> list[Any]:
        """Return example elements, from which later stages infer their specs."""
        return examples(self)

    def _detail(self) -> str:
        """Return a short description of the arguments of the stage."""
        return ""

    def _with_prefetch(self, always: bool = False) -> Dataset:
        """Return the data set, with a prefetch thread if a stage is parallel."""
        stages = self._ancestors()
        if always or any(getattr(stage, "_workers", None) for stage in stages):
            return self.prefetch(AUTOTUNE)
        return self

    # Public methods

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element's values, with the structure of the element.

        Dimensions that vary are None. If a spec is unknown, the first elements are
        computed to infer it. Functions receive them, and one longer element if lengths
        vary. This does not count as a pass and does not change later passes.
        """
        return infer_spec(self)

    def cardinality(self) -> int:
        """Return the number of elements, `INFINITE_` or `UNKNOWN_CARDINALITY`."""
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
        kind = DatasetIterator if self._shown is None else _ConvertingIterator
        return kind(self, (epoch,))

    def prefetched(
        self,
        rows: RowSelector | None = None,
        function: Callable[[object], object] | None = None,
    ) -> DatasetIterator:
        """Return an iterator over a prefetched pass, for `fit`.

        Args:
            rows: the rows to compute of each batch, if `batch` is the last stage except
                for stages that forward its batches. Each element is then a
                `BatchShard`.
            function: the thread of the last `prefetch` applies it to each element.
        """
        epoch, self._passes = self._passes, self._passes + 1
        dataset = self._with_prefetch(always=True)
        return DatasetIterator(dataset, (epoch,), rows, function)

    def get_state(self) -> dict[str, Any]:
        """Return the state that later passes depend on, as a JSON-serializable dict."""
        seeds = [stage._seed for stage in self._ancestors()]
        return {"pipeline": self._pipeline(), "passes": self._passes, "seeds": seeds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state that `get_state` returned.

        Args:
            state: the result of `get_state`.

        Raises:
            ArgumentError: the state is from a different pipeline.
        """
        pipeline = self._pipeline()
        if state.get("pipeline") != pipeline:
            raise ArgumentError(
                f"set_state: expected the state of {pipeline}; received the state of "
                f"{state.get('pipeline')}"
            )
        self._passes = state["passes"]
        for stage, seed in zip(self._ancestors(), state["seeds"], strict=True):
            stage._reseed(seed)

    def _reseed(self, seed: int) -> None:
        if "_seed" in self.__dict__:  # else the stage makes no random choices
            self._seed = type(self._seed)(seed)  # keeps its type: fixed or drawn

    def as_numpy_iterator(self) -> DatasetIterator:
        """Return an iterator over the elements with NumPy values."""
        epoch, self._passes = self._passes, self._passes + 1
        return DatasetIterator(self, (epoch,))

    def options(self) -> Options:
        """Return the merged options of this data set and its inputs."""
        merged = Options()
        for parent in self._parents:
            merged = merged.updated(parent.options())
        return merged

    @check_arguments
    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Apply a function to this data set and return the result.

        Args:
            transformation_func: a function from a data set to a data set.

        Returns:
            The data set that the function returns.

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
        """Return a table of the time of each stage in the last pass, with advice."""
        if self._profile is None:
            raise ArgumentError("stats: no element of this data set has been taken yet")
        return Stats(self._profile)

    def timeline(self, path: str | Path) -> None:
        """Write a trace of the threads of the last pass for ui.perfetto.dev.

        Args:
            path: the JSON file to write.
        """
        self.stats().timeline(path)

    def plot(self, to_file: str | Path | None = None) -> Picture:
        """Plot a timeline of the last pass: the work of each stage and of the consumer.

        Args:
            to_file: the path; ".svg" needs no package, ".png" and ".pdf" Matplotlib.

        Returns:
            A picture for notebooks; `svg()` returns text, `save(path)` writes a file.
        """
        return self.stats().plot(to_file)

    def _repr_html_(self) -> str:
        count = self._cardinality()
        size = _COUNTS.get(count, f"{count:,} elements")
        chain = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ".join(self._names())
        tag = pictures.page.tag
        spec = known_spec(self)
        elements = "" if spec is None else f" of {format_spec(spec)}"
        fragments = [tag("div", tag("b", "Dataset"), f" {chain}, {size}{elements}")]
        if self._profile is not None:
            fragments.append(pictures.page.Markup(self.stats()._repr_html_()))
        return pictures.notebook.note(*fragments)

    def _pipeline(self) -> str:
        """Return the text that identifies the pipeline in states and files."""
        return f"<Dataset {' > '.join(self._names())}>"

    def __repr__(self) -> str:
        spec = known_spec(self)
        elements = "" if spec is None else f": {format_spec(spec)}"
        return f"<Dataset {' > '.join(self._names())}{elements}>"

    def _names(self) -> list[str]:
        """Return the names of the stages up to this one, along the first parents."""
        before = self._parents[0]._names() if self._parents else []
        return [*before, self._name]

    def _ancestors(self) -> Iterator[Dataset]:
        yield self
        for parent in self._parents:
            yield from parent._ancestors()


def last_batch_stage(dataset: Dataset) -> Dataset:
    """Return the stage whose elements a data set forwards unchanged."""
    while dataset._is_passthrough:
        dataset = dataset._parents[0]
    return dataset


def _stage_method(stage: Stage) -> Callable[..., Dataset]:
    """Return a function that creates a stage, with its signature and docstring.

    Its argument `name` is added to the stage name in tables, errors and `repr`.
    """

    def make(*args: Any, name: str | None = None, **arguments: Any) -> Dataset:
        check_call(stage._name, signature_of(stage.__init__), args, arguments)
        instance = stage(*args, **arguments)
        if name is not None:
            instance._name = f"{stage._name} {name!r}"
        return instance

    make.__doc__ = _method_docstring(stage.__doc__ or "")
    make.__module__ = stage.__module__
    parameters = list(inspect.signature(stage).parameters.values())
    named = inspect.Parameter(
        "name", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
    )
    vars(make)["__signature__"] = inspect.Signature([*parameters, named])
    return make


def _method_docstring(text: str) -> str:
    """Return the docstring of a stage with the argument `name` and the result."""
    text = inspect.cleandoc(text)
    name = "    name: the name of the stage in tables, errors and `repr`.\n"
    result = "\nReturns:\n    The new data set.\n"
    if arguments := re.search(r"(?m)^Args:\n(?: {4}.*(?:\n|$))+", text):
        before, after = text[: arguments.end()].rstrip(), text[arguments.end() :]
        return f"{before}\n{name}{result}{after}".rstrip()
    section = re.search(r"(?m)^(?:Raises|Example|Reference):", text)
    start = section.start() if section else len(text)
    before = text[:start].rstrip()
    return f"{before}\n\nArgs:\n{name}{result}\n{text[start:]}".rstrip()


def transformation(name: str) -> Callable[[Stage], Stage]:
    """Add a stage to Data set as a method; its first argument is the data set."""
    return partial(_add_stage, name, lambda method: method)


def source(name: str) -> Callable[[Stage], Stage]:
    """Add a stage to Data set as a static method."""
    return partial(_add_stage, name, staticmethod)


def _add_stage(name: str, kind: Callable[[Any], Any], stage: Stage) -> Stage:
    method = _stage_method(stage)
    method.__name__ = stage._name = name
    method.__qualname__ = f"Dataset.{name}"
    setattr(Dataset, name, kind(method))
    return stage


def internal_method(name: str) -> Callable[[Method], Method]:
    """Add a function or class to Data set as a method for other packages."""

    def add(method: Method) -> Method:
        setattr(Dataset, name, lambda *args, **options: method(*args, **options))
        return method

    return add


class DatasetIterator:
    """Iterator over one pass of a data set, with a position to save and restore.

    `close`, or the end of a `with` statement, stops its threads at once.

    Args:
        dataset: the data set.
        epoch: the number of the pass, which seeds the shuffles.
        rows: the rows of the batches that a process of a job takes; None for all.
        function: a function that is applied to each element, or None.

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
        self,
        dataset: Dataset,
        epoch: tuple[int, ...],
        rows: RowSelector | None = None,
        function: Callable[[object], object] | None = None,
    ) -> None:
        self._dataset = dataset
        self._function = function
        self._shares = rows
        self._epoch = epoch
        self._run: Run | None = None
        self._elements: Iterator[Any] = iter(())
        self._open(None)

    def _open(self, state: dict[str, Any] | None) -> None:
        dataset = self._dataset
        run = Run(PassProfile(), dataset.options())
        context = PassContext(run, self._epoch)
        if state is not None:
            stages, cached = enumerate(dataset._ancestors()), state["kept"]
            run.uses_cache.update((stage, number in cached) for number, stage in stages)
            run.uses_index = state.get("indexed", False)
        if self._shares is not None:
            context.share_batches(last_batch_stage(dataset), self._shares)
        if self._function is not None:
            run.last_functions[dataset] = self._function
        stream = context.open(dataset._with_prefetch())
        run.watch.output = stream.stage
        if state is not None:
            stream.restore(decode(state["position"]))
        for stage in dataset._ancestors():
            stage._profile = run.watch
        self._run, self._stream = run, stream
        self._close = weakref.finalize(self, run.close)
        self._elements = run.watch.timed(iter(stream))

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return next(self._elements)
            except ClosedError:  # closed by another thread: the loop ends
                raise StopIteration from None
            except BaseException as error:
                if not _is_in_other_thread(error):  # the end is final for all threads
                    self._close()
                    raise
            sleep(POLL_SECONDS)

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element, as in the data set."""
        return self._dataset.element_spec

    def get_next(self) -> Any:
        """Return the next element; raise StopIteration at the end."""
        return next(self)

    def get_state(self) -> dict[str, Any]:
        """Return the position as a JSON-serializable dict, for `set_state`.

        Raises:
            UnsupportedError: a parallel stage has no fixed order (deterministic=False).
        """
        assert self._run is not None
        if self._run.unordered:
            raise UnsupportedError(
                f"get_state: the stage {self._run.unordered[0]} returns elements "
                "when they become ready (deterministic=False), so its position "
                "cannot be restored"
            )
        return {
            **self._dataset.get_state(),
            "epoch": list(self._epoch),
            "position": encode(self._stream.state()),
            "indexed": bool(self._run.uses_index),
            "kept": [
                number
                for number, stage in enumerate(self._dataset._ancestors())
                if self._run.uses_cache.get(stage)
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a position from `get_state`, in this process or another.

        Args:
            state: the result of `get_state`.

        Raises:
            ArgumentError: the position is from a different pipeline.
        """
        self._dataset.set_state(state)
        self.close()
        self._epoch = tuple(state["epoch"])
        self._open(state)

    def close(self) -> None:
        """End the pass: stop its threads and processes, close its files."""
        self._elements = iter(())
        self._close()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ConvertingIterator(DatasetIterator):
    """Iterator that converts the values of elements for the user."""

    def __next__(self) -> Any:
        element, shown = super().__next__(), self._dataset._shown
        return element if shown is None else map_leaves(shown, element)


def _is_in_other_thread(error: BaseException) -> bool:
    """Return whether the error means that another thread is taking an element.

    A generator detects this itself. A lock for each element would cost as much as a
    cheap element.
    """
    trace = error.__traceback__
    return isinstance(error, ValueError) and trace is not None and not trace.tb_next
