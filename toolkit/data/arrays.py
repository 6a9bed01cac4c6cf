"""Batches of arrays in memory: rows are gathered by index, nothing else is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError, ShapeError

Array = np.ndarray[Any, Any]


class ArrayBatches:
    """The rows of several arrays in batches.

    Args:
        arrays: arrays of shape (samples, ...) with the same number of samples; None
            among them stays None in each batch.
        batch_size: rows per batch; the last batch has what is left.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import ArrayBatches
        >>> [batch[0].tolist() for batch in ArrayBatches([np.arange(5)], 2).in_order()]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, arrays: Sequence[Array | None], batch_size: int) -> None:
        lengths = {len(array) for array in arrays if array is not None}
        if len(lengths) != 1:
            raise ShapeError(
                "ArrayBatches: expected arrays with the same number of samples; "
                f"received {sorted(lengths) or 'none'}"
            )
        if batch_size < 1:
            raise ArgumentError(f"expected batch_size >= 1; received {batch_size}")
        self.arrays = list(arrays)
        self.batch_size = int(batch_size)
        self.samples: int = lengths.pop()

    def __len__(self) -> int:
        return ceil(self.samples / self.batch_size)

    def in_order(self) -> Iterator[list[Array | None]]:
        """The batches as they stand, as views of the arrays."""
        for start, stop in self._bounds():
            yield [None if a is None else a[start:stop] for a in self.arrays]

    def shuffled(
        self, rng: np.random.Generator, within_batches: bool = False
    ) -> Iterator[list[Array | None]]:
        """The batches in a random order of rows, each gathered as it is needed.

        Args:
            rng: where the order comes from.
            within_batches: whether rows stay in their batch and move only inside it.
        """
        order = None if within_batches else rng.permutation(self.samples)
        for start, stop in self._bounds():
            if order is None:
                index = start + rng.permutation(stop - start)
            else:
                index = order[start:stop]
            yield [None if a is None else a.take(index, axis=0) for a in self.arrays]

    def _bounds(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.samples, self.batch_size):
            yield start, min(start + self.batch_size, self.samples)
