"""Stages that combine several datasets: zip, concatenate and sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from toolkit.data.dataset import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    source,
    transformation,
)
from toolkit.data.errors import add_location_note, describe_location, name_of
from toolkit.data.randomness import CHUNK, generator, key_of, new_seed
from toolkit.data.rows import ConcatenatedRows, Rows, ZippedRows
from toolkit.data.specs import join_element_specs
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import leaves, rebuild_structure
from toolkit.errors import ArgumentError, ArgumentTypeError, DatasetError


def check_datasets(stage: str, datasets: Sequence[Any]) -> None:
    """Raise an error unless the list has data sets only, and at least one."""
    wrong = [type(d).__name__ for d in datasets if not isinstance(d, Dataset)]
    if wrong or not datasets:
        raise ArgumentTypeError(
            f"{stage}: expected data sets; received {wrong[0] if wrong else 'none'}"
        )


@source("zip")
class Zip(Dataset):
    """Tuples of elements of several data sets, up to the end of the shortest.

    Args:
        *args: data sets, for tuples of their elements; or one structure of tuples and
            dicts of data sets, for elements with that structure.
        datasets: that structure as a keyword.

    Example:
        >>> from toolkit.data import Dataset
        >>> pairs = Dataset.zip(Dataset.range(2), Dataset.range(5, 9))
        >>> [(int(a), int(b)) for a, b in pairs]
        [(0, 5), (1, 6)]
    """

    def __init__(self, *args: Any, datasets: Any = None) -> None:
        if datasets is not None:
            args = (*args, datasets)
        self._nest = args[0] if len(args) == 1 else tuple(args)
        if isinstance(self._nest, list):
            self._nest = tuple(self._nest)
        values = leaves(self._nest)
        check_datasets("zip", values)
        super().__init__(*values)
        self._is_flat = type(self._nest) is tuple and list(self._nest) == values

    def _pack(self, values: Sequence[Any]) -> Any:
        if self._is_flat:
            return tuple(values)
        return _fill_structure(self._nest, iter(values))

    def _cardinality(self) -> int:
        counts = [parent._cardinality() for parent in self._parents]
        finite = [count for count in counts if count != INFINITE_CARDINALITY]
        if not finite:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if min(finite) < 0 else min(finite)

    def _rows(self, context: PassContext) -> Rows | None:
        sources = [context.rows(parent) for parent in self._parents]
        available = [rows for rows in sources if rows is not None]
        return (
            ZippedRows(available, self._pack)
            if len(available) == len(sources)
            else None
        )

    def _stream(self, context: PassContext) -> Stream:
        return _ZipStream(self, context, *map(context.open, self._parents))

    def _spec(self) -> Any:
        return self._pack([parent._spec() for parent in self._parents])


def _fill_structure(nest: Any, values: Iterator[Any]) -> Any:
    """Return a structure with its leaves replaced by consecutive items of a list."""
    if isinstance(nest, tuple):
        return rebuild_structure(nest, [_fill_structure(item, values) for item in nest])
    if isinstance(nest, dict):
        return {key: _fill_structure(item, values) for key, item in nest.items()}
    return next(values)


class _ZipStream(Stream):
    def elements(self) -> Iterator[Any]:
        pack = self.dataset._pack
        for values in zip(*self.parents, strict=False):
            yield pack(values)


@transformation("concatenate")
class Concatenate(Dataset):
    """The elements of this data set followed by the elements of another.

    Args:
        dataset: the data set to append.

    Example:
        >>> from toolkit.data import Dataset
        >>> [int(x) for x in Dataset.range(2).concatenate(Dataset.range(2))]
        [0, 1, 0, 1]
    """

    def __init__(self, before: Dataset, dataset: Dataset) -> None:
        check_datasets("concatenate", [dataset])
        super().__init__(before, dataset)

    def _cardinality(self) -> int:
        counts = [parent._cardinality() for parent in self._parents]
        if INFINITE_CARDINALITY in counts:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if min(counts) < 0 else sum(counts)

    def _rows(self, context: PassContext) -> Rows | None:
        sources = [context.rows(parent) for parent in self._parents]
        available = [rows for rows in sources if rows is not None]
        return ConcatenatedRows(available) if len(available) == len(sources) else None

    def _stream(self, context: PassContext) -> Stream:
        return _ConcatenateStream(self, context, *map(context.open, self._parents))

    def _spec(self) -> Any:
        return join_element_specs(self._parents)


class _ConcatenateStream(Stream):
    fields = ("index",)

    index = 0

    def elements(self) -> Iterator[Any]:
        while self.index < len(self.parents):
            yield from self.parents[self.index]
            self.index += 1


class _Chosen(Dataset):
    """Base class of stages that select one of several data sets for each element."""

    def __init__(self, datasets: Sequence[Dataset], *inputs: Dataset, stops: bool):
        check_datasets(self._name, datasets)
        super().__init__(*datasets, *inputs)
        self._count, self._stops = len(datasets), stops
        self._never: list[int] = []  # data sets that are never selected

    def _choices(self, context: PassContext, position: int) -> Iterator[int]:
        """Return the selected data set indices from a position on."""
        raise NotImplementedError

    def _stream(self, context: PassContext) -> Stream:
        return _ChosenStream(self, context, *map(context.open, self._parents))

    def _spec(self) -> Any:
        return join_element_specs(self._parents[: self._count])


class _ChosenStream(Stream):
    fields = ("position", "ended")

    def __init__(
        self, dataset: _Chosen, context: PassContext, *parents: Stream
    ) -> None:
        super().__init__(dataset, context, *parents)
        self._of = dataset
        self.position = 0  # index among the choices
        self.ended = list(dataset._never)  # whether each data set is exhausted

    def elements(self) -> Iterator[Any]:
        if self._is_over():  # the position is after the end
            return
        sources = [iter(parent) for parent in self.parents]
        for choice in self._choices(sources):
            self.position += 1
            if choice in self.ended:
                continue
            element = next(sources[choice], self)
            if element is not self:
                yield element
                continue
            self.ended.append(choice)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        minimum = len(self._of._never) + 1 if self._of._stops else self._of._count
        return len(self.ended) >= minimum

    def _choices(self, sources: list[Iterator[Any]]) -> Iterator[int]:
        of = self._of
        if len(sources) > of._count:  # the last stream supplies the choices
            return map(self._checked, sources[-1])
        return of._choices(self.context, self.position)

    def _checked(self, choice: Any) -> int:
        if not 0 <= choice < self._of._count:
            raise ArgumentError(
                f"choose_from_datasets: expected choices from 0 to "
                f"{self._of._count - 1}; received {choice}"
            )
        return int(choice)


@source("sample_from_datasets")
class SampleFromDatasets(_Chosen):
    """Elements sampled at random from several data sets.

    Args:
        datasets: a list of data sets.
        weights: the relative sampling weights. None samples uniformly.
        seed: the random seed; None draws one.
        stop_on_empty_dataset: whether to stop when one data set ends. Otherwise the
            remaining data sets are sampled to their end.
        rerandomize_each_iteration: whether each pass draws a new order; False by
            default.

    Example:
        >>> from toolkit.data import Dataset
        >>> parts = [Dataset.range(3), Dataset.range(10, 13)]
        >>> sorted(int(x) for x in Dataset.sample_from_datasets(parts, seed=1))
        [0, 1, 2, 10, 11, 12]
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> None:
        super().__init__(datasets, stops=stop_on_empty_dataset)
        weights = np.ones(len(datasets)) if weights is None else np.asarray(weights)
        if weights.shape != (len(datasets),) or (weights < 0).any():
            raise ArgumentError(
                f"sample_from_datasets: expected {len(datasets)} weights >= 0; received"
                f" {weights.tolist()}"
            )
        if not weights.sum() > 0:
            raise ArgumentError("sample_from_datasets: expected a weight above 0")
        self._weights = weights / weights.sum()
        self._never = np.flatnonzero(weights == 0).tolist()
        self._seed = new_seed() if seed is None else int(seed)
        self._is_new_each_time = bool(rerandomize_each_iteration)

    def _choices(self, context: PassContext, position: int) -> Iterator[int]:
        key = key_of(self._seed, context.epoch if self._is_new_each_time else (), 1)
        ends = np.cumsum(self._weights)
        ends[-1] = 1
        chunk, offset = divmod(position, CHUNK)
        while True:
            numbers = generator(key, chunk).random(CHUNK)
            yield from np.searchsorted(ends, numbers, "right")[offset:].tolist()
            chunk, offset = chunk + 1, 0


@source("choose_from_datasets")
class ChooseFromDatasets(_Chosen):
    """Elements of the data sets selected by a data set of indices.

    Args:
        datasets: a list of data sets.
        choice_dataset: a data set of scalar indices into the list.
        stop_on_empty_dataset: whether to stop when a selected data set is exhausted.
            Otherwise that choice is skipped.

    Example:
        >>> from toolkit.data import Dataset
        >>> parts = [Dataset.range(3), Dataset.range(10, 13)]
        >>> choices = Dataset.from_tensor_slices([1, 0, 1])
        >>> [int(x) for x in Dataset.choose_from_datasets(parts, choices)]
        [10, 0, 11]
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool = True,
    ) -> None:
        check_datasets("choose_from_datasets", [choice_dataset])
        super().__init__(datasets, choice_dataset, stops=stop_on_empty_dataset)


def reduce(
    self: Dataset,
    initial_state: Any,
    reduce_func: Callable[..., Any],
    name: str | None = None,
) -> Any:
    """Reduce the elements to one state.

    Args:
        initial_state: the state before the first element.
        reduce_func: a function of (state, element) that returns the next state.
        name: the name of the stage in error messages.

    Returns:
        The last state.

    Example:
        >>> from toolkit.data import Dataset
        >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
        10
    """
    state, stage = initial_state, f"reduce {name!r}" if name else "reduce"
    with iter(self) as elements:
        for number, element in enumerate(elements):
            try:
                state = reduce_func(state, element)
            except Exception as error:
                add_location_note(
                    error, describe_location(stage, number, None, name_of(reduce_func))
                )
                raise
    return state


def get_single_element(self: Dataset, name: str | None = None) -> Any:
    """Return the element of a data set with exactly one element.

    Args:
        name: the name of the stage in error messages.

    Raises:
        DatasetError: the data set is empty or has more than one element.

    Example:
        >>> from toolkit.data import Dataset
        >>> Dataset.range(3).batch(3).get_single_element().tolist()
        [0, 1, 2]
    """
    with iter(self) as elements:
        available = list(islice(elements, 2))
    if len(available) != 1:
        stage = f"get_single_element {name!r}" if name else "get_single_element"
        raise DatasetError(
            f"{stage}: expected a data set of one element; {self!r} has "
            f"{'more' if available else 'no elements'}"
        )
    return available[0]


Dataset.reduce = reduce  # type: ignore[attr-defined]
Dataset.get_single_element = get_single_element  # type: ignore[attr-defined]
