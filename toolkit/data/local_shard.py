"""The local shard of each batch for one process in distributed training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from toolkit.data.batch_shards import (
    BatchShard,
    RowSelector,
    checksum_of_arrays,
    mark_local_rows,
)
from toolkit.data.batching import Batch
from toolkit.data.dataset import Dataset, internal_method, last_batch_stage
from toolkit.data.errors import unpack_tuple
from toolkit.data.interleave import Interleave
from toolkit.data.mapping import Map
from toolkit.data.profiling import PassProfile
from toolkit.data.streams import PassContext, Run, Stream
from toolkit.data.structure import leaves, map_leaves

# Rows of a source that processes compare.
_SOME_ROWS = 8


@internal_method("_local_shard")
class LocalShard(Dataset):
    """Some rows of each batch; other rows are not computed if possible.

    Args:
        dataset: the data set of global batches.
        rows: a function that selects the rows.
        makes_all: whether to compute all rows nevertheless.
    """

    _name = "own rows"

    def __init__(
        self, dataset: Dataset, rows: RowSelector, makes_all: bool = False
    ) -> None:
        passes = dataset._passes
        super().__init__(dataset)
        self._passes = passes  # continues the count of the passes
        self.rows: RowSelector = rows
        self._makes_all = makes_all

    @property
    def _passes(self) -> int:
        return self.global_batches._passes

    @_passes.setter
    def _passes(self, number: int) -> None:
        self.global_batches._passes = number

    @property
    def global_batches(self) -> Dataset:
        """Return the data set of global batches."""
        return self._parents[0]

    def _cardinality(self) -> int:
        return self.global_batches._cardinality()

    def _stream(self, context: PassContext) -> Stream:
        if not self._makes_all:
            context.share_batches(last_batch_stage(self.global_batches), self.rows)
        return _LocalShardStream(self, context, context.open(self.global_batches))


@internal_method("_first_row")
class FirstRow:
    """The first row of the batches, for data sets that compute rows separately.

    Attributes:
        functions: the functions of `map` and `interleave` that compute rows; empty if
            they compute batches.
    """

    def __init__(self, dataset: Dataset) -> None:
        batches = last_batch_stage(dataset)
        self.functions: list[Callable[..., Any]] = []
        if isinstance(batches, Batch):
            before = batches._ancestors()
            kinds = Map, Interleave
            self.functions = [x._function for x in before if isinstance(x, kinds)]
        self._dataset, self._batches = dataset, batches

    def make(self) -> Any:
        """Return the row as in the first batch of the next pass, in this thread."""
        run = Run(PassProfile(), self._dataset.options())
        run.uses_index = True
        try:
            context = PassContext(run, (self._dataset._passes,))
            stage, later = self._batches._parents[0], []
            while (rows := context.rows(stage)) is None:
                if isinstance(stage, Map):
                    later.append(unpack_tuple(stage._function))
                before = stage._aligned_input(context)
                if before is None:  # all rows are computed
                    return None
                stage = before
            row = rows[0]
            for function in reversed(later):
                row = function(row)
            return row
        finally:
            run.close()

    def source_checksum(self, uses_index: bool = True) -> int:
        """Return a checksum of some rows of the sources, and of the shards of stages.

        All processes must have the same rows. It calls no function of `map`.

        Args:
            uses_index: whether to read rows of files, which needs an index of them.
        """
        stages = list(self._batches._ancestors())
        shards = [stage._shard for stage in stages if stage._shard is not None]
        checksum = checksum_of_arrays([repr(shards)])
        run = Run(PassProfile(), self._dataset.options())
        run.uses_index = uses_index
        try:
            context = PassContext(run, (self._dataset._passes,))
            for stage in _find_sources(stages):
                rows = context.rows(stage)
                if rows is not None:
                    numbers = np.linspace(0, len(rows) - 1, min(_SOME_ROWS, len(rows)))
                    elements = tuple(rows[int(number)] for number in numbers)
                    values = map(_without_folder, leaves(elements))
                    checksum = checksum_of_arrays(values, checksum)
        finally:
            run.close()
        return checksum


def _find_sources(stages: Sequence[Dataset]) -> list[Dataset]:
    """Return the stages that provide rows: sources, or the contents of their files."""
    hidden: set[Dataset] = set()  # of names of files that `interleave` reads
    for stage in stages:
        ancestors = list(stage._ancestors())
        if isinstance(stage, Interleave):
            hidden.update(x for x in ancestors if x is not stage)
            if any(isinstance(x, Map) for x in ancestors):
                hidden.add(stage)
    return [
        stage
        for stage in stages
        if isinstance(stage, Interleave) or not stage._parents
        if stage not in hidden
    ]


def _without_folder(value: object) -> object:
    """Return the last part of a path, because processes can have copies of files."""
    text = value.item() if isinstance(value, np.ndarray) and not value.ndim else value
    if not isinstance(text, (str, bytes)):
        return value
    slash: Any = "/" if isinstance(text, str) else b"/"
    return text.rpartition(slash)[2]


class _LocalShardStream(Stream):
    def __init__(
        self, dataset: LocalShard, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._rows = dataset.rows
        self._checksum = FirstRow(dataset.global_batches).source_checksum()

    def elements(self) -> Iterator[Any]:
        for batch in self.parent:
            if type(batch) is BatchShard:
                mark = partial(
                    mark_local_rows,
                    global_count=batch.rows,
                    checksum=checksum_of_arrays(leaves(batch.ends), self._checksum),
                )
                yield map_leaves(mark, batch.value)
            else:
                yield self._slice_batch(batch)

    def _slice_batch(self, batch: Any) -> Any:
        batch_shape = next((np.shape(v)[:1] for v in leaves(batch)), ())
        if not batch_shape:
            return batch
        local_rows = self._rows(batch_shape[0])
        section = slice(local_rows.start, local_rows.stop)
        checksum = checksum_of_arrays(leaves(batch), self._checksum)

        def take_rows(value: Any) -> Any:
            if np.shape(value)[:1] != batch_shape:
                return value
            return mark_local_rows(value[section], batch_shape[0], checksum)

        return map_leaves(take_rows, batch)
