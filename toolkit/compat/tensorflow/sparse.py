"""`tf.sparse`: tensors given by their values that are not zero, from and to dense ones.

Nothing computes with a SparseTensor: `to_dense` makes a tensor of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.compat.tensorflow.views import convert
from toolkit.core.strings import is_string
from toolkit.errors import ShapeError


class SparseTensor:
    """Values and where they are; everything else is zero.

    Args:
        indices: integers (values, axes): the place of each value.
        values: one value for each row of `indices`.
        dense_shape: the shape of the whole.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x = tf.sparse.SparseTensor([[0, 1], [1, 0]], [3, 4], (2, 2))
        >>> tf.sparse.to_dense(x).numpy().tolist()
        [[0, 3], [4, 0]]
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self.indices: Any = convert(np.asarray(indices, "int64"))
        self.values: Any = (
            StringTensor(values) if is_string(values) else convert(values)
        )
        self.dense_shape: Any = convert(np.asarray(dense_shape, "int64"))
        wanted = (len(self.values), len(self.dense_shape))
        if tuple(self.indices.shape) != wanted:
            raise ShapeError(
                f"SparseTensor: expected indices of shape {wanted}, a row for each "
                f"value; received {tuple(self.indices.shape)}"
            )

    @property
    def shape(self) -> TensorShape:
        return TensorShape(int(n) for n in self.dense_shape.numpy())

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __repr__(self) -> str:
        return f"SparseTensor(shape={tuple(self.shape)}, values={len(self.values)})"


def to_dense(
    sp_input: Any,
    default_value: Any = None,
    validate_indices: bool = True,
    name: Any = None,
) -> Any:
    """The whole tensor.

    What is no SparseTensor is returned as it is, a RaggedTensor padded:
    `tf.io.parse_example` gives those for features of different lengths.

    Args:
        sp_input: a SparseTensor.
        default_value: where there is no value; 0 or an empty string by default.
        validate_indices: whether places must be in the order of rows, each once.
    """
    if isinstance(sp_input, RaggedTensor):
        return sp_input.to_tensor(default_value)
    if not isinstance(sp_input, SparseTensor):
        return sp_input
    places = np.asarray(sp_input.indices)
    if validate_indices and not _is_rising(places, sp_input.shape):
        raise ShapeError(
            "to_dense: expected indices inside of the shape, in the order of rows and "
            "each once; tf.sparse.reorder brings them into it"
        )
    values = np.asarray(sp_input.values)
    fill = default_value
    if fill is None:
        fill = b"" if values.dtype == object else 0
    dense = np.full(tuple(sp_input.shape), fill, values.dtype)
    dense[tuple(places.T)] = values
    return StringTensor(dense) if values.dtype == object else convert(dense)


def _is_rising(places: Any, shape: Any) -> bool:
    if ((places < 0) | (places >= np.asarray(shape))).any():
        return False
    flat = np.ravel_multi_index(tuple(places.T), tuple(shape))
    return bool((np.diff(flat) > 0).all())


def from_dense(tensor: Any, name: Any = None) -> SparseTensor:
    """The values that are not zero, or not empty, and where they are."""
    array = np.asarray(StringTensor(tensor) if is_string(tensor) else convert(tensor))
    places = np.argwhere(array != (b"" if array.dtype == object else 0))
    return SparseTensor(places, array[tuple(places.T)], array.shape)


def reorder(sp_input: SparseTensor, name: Any = None) -> SparseTensor:
    """The same values in the order of rows."""
    places = np.asarray(sp_input.indices)
    order = np.lexsort(places.T[::-1])
    values = np.asarray(sp_input.values)[order]
    return SparseTensor(places[order], values, sp_input.dense_shape.numpy())


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.sparse.{name} is not supported: make a tensor by tf.sparse.to_dense"
    )
