"""The rows of each batch that one process of a job computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset, last_batches
from toolkit.data.shares import RowsOf, Share
from toolkit.data.streams import Pass, Stream
from toolkit.data.structure import leaves, map_leaves


class OwnRows(Dataset):
    """Some rows of each batch; others are not made where that can be.

    Args:
        dataset: of whole batches.
        rows: which rows, of so many.
    """

    _name = "own rows"

    def __init__(self, dataset: Dataset, rows: RowsOf) -> None:
        super().__init__(dataset)
        self.rows: RowsOf = rows

    @property
    def whole(self) -> Dataset:
        """The data set of whole batches."""
        return self._parents[0]

    def _cardinality(self) -> int:
        return self.whole._cardinality()

    def _stream(self, here: Pass) -> Stream:
        here.run.shares[last_batches(self.whole)] = self.rows
        return _OwnRowsStream(self, here, here.open(self.whole))


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
