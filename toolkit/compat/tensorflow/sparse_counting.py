"""Counts in sparse tensors, and the combinations of their values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.boundary import wrap_module_results
from toolkit.compat.tensorflow.ragged_operations import coordinates
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import as_values
from toolkit.compat.tensorflow.sparse_tensor import SparseTensor
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.type_aliases import TensorLike


def bincount(
    values: Any,
    weights: TensorLike | None = None,
    axis: int | None = 0,
    minlength: Any = None,
    maxlength: Any = None,
    binary_output: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """Count each integer in all values or in each row.

    Args:
        values: a tensor, ragged rows or a sparse tensor of integers.
        weights: the weights to sum, in the same form.
        axis: 0 for all values, -1 for each row.
        minlength, maxlength: bounds for the number of counted integers.
        binary_output: whether to return 1 for each integer with a count.
    """
    rows, flat_values = _rows_and_values(values)
    shares = np.ones(len(flat_values), flat_values.dtype)
    if weights is not None:
        shares = _rows_and_values(weights)[1]
    if maxlength is not None:
        is_in = flat_values < int(maxlength)
        rows, flat_values, shares = rows[is_in], flat_values[is_in], shares[is_in]
    wide = max(
        int(flat_values.max()) + 1 if len(flat_values) else 0, int(minlength or 0)
    )
    keys = flat_values if axis == 0 else rows * max(wide, 1) + flat_values
    cells, ids = np.unique(keys, return_inverse=True)
    totals = np.zeros(len(cells), shares.dtype)
    np.add.at(totals, ids, shares)
    totals = np.minimum(totals, 1) if binary_output else totals
    if axis == 0:
        return SparseTensor(cells[:, None], totals, (wide,))
    count = int(as_shape(values)[0])
    indices = np.stack(np.divmod(cells, max(wide, 1)), 1)
    return SparseTensor(indices, totals, (count, wide))


def as_shape(values: TensorLike) -> Any:
    """Return the shape of a sparse, ragged or dense tensor."""
    return values.shape if hasattr(values, "shape") else as_values(values).shape


def _rows_and_values(x: TensorLike) -> tuple[Any, Any]:
    if isinstance(x, SparseTensor):
        return x.index_array[:, 0], np.asarray(x.values)
    if isinstance(x, RaggedTensor):
        return coordinates(x)[0], np.asarray(x.flat_values)
    array = np.asarray(as_values(x))
    rows = np.repeat(np.arange(len(array)), array.size // max(len(array), 1))
    return rows, array.reshape(-1)


def cross(
    inputs: Sequence[Any], name: str | None = None, separator: Any = None
) -> SparseTensor:
    """Return the combinations of the values of each row, joined by "_X_".

    Args:
        inputs: sparse or dense matrices of strings or integers.
        separator: between the values.
    """
    between = str.encode("_X_" if separator is None else str(separator))
    sources = [_texts_of_rows(x) for x in inputs]
    indices, texts = [], []
    for row, lists in enumerate(zip(*sources, strict=True)):
        for column, combination in enumerate(product(*lists)):
            indices.append((row, column))
            texts.append(between.join(combination))
    wide = max((index[1] + 1 for index in indices), default=0)
    values = StringTensor(texts) if texts else StringTensor(np.zeros(0, object))
    return SparseTensor(
        np.array(indices, int).reshape(-1, 2), values, (len(sources[0]), wide)
    )


def _texts_of_rows(x: TensorLike) -> list[list[bytes]]:
    rows, values = _rows_and_values(x)
    texts = [v if isinstance(v, bytes) else str(v).encode() for v in values.tolist()]
    row_texts: list[list[bytes]] = [[] for _ in range(int(as_shape(x)[0]))]
    for row, text in zip(rows.tolist(), texts, strict=True):
        row_texts[row].append(text)
    return row_texts


wrap_module_results(__name__)
