"""The local shard of each batch for one process in distributed training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit.data.batching import Batch
from toolkit.data.dataset import Dataset, last_batches
from toolkit.data.elementwise import Map
from toolkit.data.errors import spread
from toolkit.data.profiling import Watch
from toolkit.data.shares import RowsOf, Share
from toolkit.data.streams import Pass, Run, Stream
from toolkit.data.structure import leaves, map_leaves


class OwnRows(Dataset):
    """Some rows of each batch; other rows are not computed if possible.

    Args:
        dataset: the data set of global batches.
        rows: a function that selects the rows.
        makes_all: whether to compute all rows nevertheless.
    """

    _name = "own rows"

    def __init__(self, dataset: Dataset, rows: RowsOf, makes_all: bool = False) -> None:
        passes = dataset._passes
        super().__init__(dataset)
        self._passes = passes  # continues the count of the passes
        self.rows: RowsOf = rows
        self._makes_all = makes_all

    @property
    def _passes(self) -> int:
        return self.whole._passes

    @_passes.setter
    def _passes(self, number: int) -> None:
        self.whole._passes = number

    @property
    def whole(self) -> Dataset:
        """Return the data set of global batches."""
        return self._parents[0]

    def _cardinality(self) -> int:
        return self.whole._cardinality()

    def _stream(self, here: Pass) -> Stream:
        if not self._makes_all:
            here.run.shares[last_batches(self.whole)] = self.rows
        return _OwnRowsStream(self, here, here.open(self.whole))


class FirstRow:
    """The first row of the batches, for data sets that compute rows separately.

    Attributes:
        functions: the `map` functions that compute rows; empty if they compute batches.
    """

    def __init__(self, dataset: Dataset) -> None:
        batches = last_batches(dataset)
        self.functions: list[Callable[..., Any]] = []
        if isinstance(batches, Batch):
            before = batches._ancestors()
            self.functions = [x._function for x in before if isinstance(x, Map)]
        self._dataset, self._batches = dataset, batches

    def make(self) -> Any:
        """Return the row as in the first batch of the next pass, in this thread."""
        run = Run(Watch(), self._dataset.options())
        try:
            here = Pass(run, (self._dataset._passes,))
            stage, later = self._batches._parents[0], []
            while (rows := here.rows(stage)) is None:
                if isinstance(stage, Map):
                    later.append(spread(stage._function))
                before = stage._made_of(here)
                if before is None:  # all rows are computed
                    return None
                stage = before
            made = rows[0]
            for function in reversed(later):
                made = function(made)
            return made
        finally:
            run.close()


class _OwnRowsStream(Stream):
    def __init__(self, dataset: OwnRows, here: Pass, parent: Stream) -> None:
        super().__init__(dataset, here, parent)
        self._rows = dataset.rows

    def elements(self) -> Iterator[Any]:
        for batch in self.parent:
            yield batch.value if type(batch) is Share else self._cut(batch)

    def _cut(self, batch: Any) -> Any:
        whole = next((np.shape(v)[:1] for v in leaves(batch)), ())
        if not whole:
            return batch
        mine = self._rows(whole[0])
        part = slice(mine.start, mine.stop)
        return map_leaves(lambda v: v[part] if np.shape(v)[:1] == whole else v, batch)
