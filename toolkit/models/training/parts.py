"""Batches of which this process of a job has its rows, with the specs of the whole."""

from __future__ import annotations

from typing import Any

from toolkit import tree
from toolkit.core.tensor import Tensor
from toolkit.data.shares import RowsOf
from toolkit.ir import Spec


def rows_of(batch: Any) -> int | None:
    """How many rows a batch of tensors has; None without any tensor."""
    tensors = (leaf for leaf in tree.flatten(batch) if isinstance(leaf, Tensor))
    first = next(tensors, None)
    return first.shape[0] if first is not None and first.shape else None


def as_whole(batch: Any, rows: int) -> Any:
    """Tensors of some rows of a batch, with the specs of the whole batch.

    Args:
        batch: a nest of tensors.
        rows: how many the whole batch has.
    """
    present = rows_of(batch)
    if present == rows:
        return batch

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (present,):
            return leaf
        return type(leaf)(leaf._array, Spec((rows, *leaf.shape[1:]), leaf.dtype))

    return tree.map_structure(convert, batch)


def cut(batch: Any, rows: RowsOf) -> Any:
    """The rows of a whole batch that this process computes.

    Args:
        batch: a nest of tensors; what has another first extent than the first of them
            stays as it is, as in programs.
        rows: which rows, of so many.
    """
    whole = rows_of(batch)
    if whole is None:
        return batch
    mine = rows(whole)

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (whole,):
            return leaf
        return type(leaf)(leaf._array[mine.start : mine.stop], leaf.spec)

    return tree.map_structure(convert, batch)
