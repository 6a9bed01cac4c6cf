"""Prefetching: elements are computed while the consumer uses earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from toolkit.data.dataset import Dataset, DatasetIterator, transformation
from toolkit.data.parallel_stream import ParallelStream
from toolkit.data.streams import PassContext, Stream
from toolkit.data.tuning import AUTOTUNE, Knob
from toolkit.errors import ArgumentError


def prefetched(
    batches: Iterable[Any],
    count: int | None = None,
    function: Callable[[object], object] | None = None,
) -> DatasetIterator:
    """Return the batches of a data set or iterable, prefetched if that is faster.

    Args:
        count: the maximum number to take, because an iterator loses items taken in
            excess.
        batches: a data set or an iterable.
        function: the last function of the pipeline.

    Returns:
        An iterator over the batches.

    Example:
        >>> from toolkit.data import Dataset, prefetched
        >>> [batch.tolist() for batch in prefetched(Dataset.range(4).batch(2))]
        [[0, 1], [2, 3]]
    """
    if isinstance(batches, Dataset):
        return batches.prefetched(None, function)
    limited = batches if count is None else islice(batches, count)
    dataset: Dataset = Dataset.from_generator(lambda: limited)
    return dataset.prefetched(None, function)


@transformation("prefetch")
class Prefetch(Dataset):
    """The same elements, computed while the consumer uses earlier ones.

    A thread computes them. Elements that take less than 0.2 ms are computed on demand,
    because the transfer between threads would cost as much.

    Args:
        buffer_size: the maximum number of ready elements; AUTOTUNE selects it.

    Example:
        >>> from toolkit.data import AUTOTUNE, Dataset
        >>> [int(x) for x in Dataset.range(3).prefetch(AUTOTUNE)]
        [0, 1, 2]
    """

    def __init__(self, dataset: Dataset, buffer_size: int | None = AUTOTUNE) -> None:
        super().__init__(dataset)
        if buffer_size is not None and buffer_size < AUTOTUNE:
            raise ArgumentError(
                "prefetch: expected buffer_size >= 0 or AUTOTUNE; received "
                f"{buffer_size}"
            )
        self._size = AUTOTUNE if buffer_size is None else int(buffer_size)

    _is_passthrough = True

    def _aligned_input(self, context: PassContext) -> Dataset | None:
        return self._parents[0]

    def _with_prefetch(self, always: bool = False) -> Dataset:
        return self

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _spec(self) -> Any:
        return self._parents[0]._spec()

    def _stream(self, context: PassContext) -> Stream:
        parent = context.open(self._parents[0])
        if self._size == 0:
            return parent
        capacity = Knob(self._size) if self._size > 0 else Knob(2, 1, 512)
        function = context.run.last_functions.get(self)
        return ParallelStream(self, context, parent, function, Knob(1), capacity)
