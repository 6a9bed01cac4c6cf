"""Views: data sets that show the elements of another one in a different form."""

from __future__ import annotations

from typing import Any, TypeVar

from toolkit.data.dataset import Dataset, DatasetIterator
from toolkit.data.rows import Rows
from toolkit.data.streams import PassContext, Stream

Iterator = TypeVar("Iterator", bound=DatasetIterator)


class View(Dataset):
    """Base class of data sets whose iterators convert the elements of another one.

    Args:
        dataset: the data set with the elements.
        name: the name of the stage, for tables and errors.
    """

    def __init__(self, dataset: Dataset, name: str) -> None:
        super().__init__(dataset)
        self._name = name

    @property
    def source(self) -> Dataset:
        """Return the data set with the elements."""
        return self._parents[0]

    def iterate(self, iterator: type[Iterator]) -> Iterator:
        """Start a new pass.

        Args:
            iterator: the class of the iterator.
        """
        epoch, self._passes = self._passes, self._passes + 1
        return iterator(self, (epoch,))

    _is_passthrough = True

    def _cardinality(self) -> int:
        return self.source._cardinality()

    def _rows(self, context: PassContext) -> Rows | None:
        return context.rows(self.source)

    def _stream(self, context: PassContext) -> Stream:
        return self.source._stream(context)

    def _spec(self) -> Any:
        return self.source._spec()
