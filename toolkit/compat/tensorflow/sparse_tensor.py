"""`tf.SparseTensor`: the values of a tensor that are not zero, and their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.ragged_operations import coordinates, map_broadcast
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.core.composites import Composite
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.data.structure import TensorSpec
from toolkit.errors import ShapeError, UnsupportedError
from toolkit.type_aliases import Array, TensorLike


class SparseTensor(Composite):
    """Values and their indices; all other elements are zero.

    Operators multiply and divide it by numbers and tensors, as in TensorFlow;
    `tf.sparse` has the other operations.

    Args:
        indices: integers (values, axes): the index of each value.
        values: one value for each row of `indices`.
        dense_shape: the shape of the tensor.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x = tf.sparse.SparseTensor([[0, 1], [1, 0]], [3, 4], (2, 2))
        >>> tf.sparse.to_dense(x * 2).numpy().tolist()
        [[0, 6], [8, 0]]
    """

    __array_priority__ = 3000
    # function name -> its implementation; see `sparse`.
    operations: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self.values: Any = as_values(values)
        self.extents: tuple[int, ...] = tuple(static_int64(dense_shape).tolist())
        self.index_array: Array = static_int64(indices)
        if not self.index_array.size:
            self.index_array = self.index_array.reshape(-1, len(self.extents))
        expected = (int(self.values.shape[0]), len(self.extents))
        if self.index_array.shape != expected:
            raise ShapeError(
                f"SparseTensor: expected indices of shape {expected}, a row for each "
                f"value; received {self.index_array.shape}"
            )

    @classmethod
    def dispatch(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute a function of TensorFlow with sparse arguments."""
        name = function.__name__
        if name not in cls.operations:
            raise UnsupportedError(
                f"{name}: sparse tensors are not supported; create a tensor by "
                "tf.sparse.to_dense"
            )
        return cls.operations[name](function, *args, **kwargs)

    @property
    def indices(self) -> Tensor:
        return convert(self.index_array)

    @property
    def dense_shape(self) -> Tensor:
        return convert(np.array(self.extents, "int64"))

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self.extents)

    def get_shape(self) -> TensorShape:
        """Return the extents."""
        return self.shape

    @property
    def ndim(self) -> int:
        return len(self.extents)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def with_values(self, new_values: Any) -> SparseTensor:
        """Return a sparse tensor with other values at the same indices."""
        return SparseTensor(self.index_array, new_values, self.extents)

    def __mul__(self, other: Any) -> SparseTensor:
        return self._combined(lambda x, y: x * y, other)

    def __truediv__(self, other: Any) -> Any:
        return self._combined(lambda x, y: x / y, other)

    @wrap_results
    def _combined(
        self, function: Callable[..., Any], other: Tensor | float
    ) -> SparseTensor:
        if isinstance(other, SparseTensor):
            return NotImplemented
        at = map_broadcast(other, self.extents, list(self.index_array.T))
        return self.with_values(function(self.values, at))

    def __repr__(self) -> str:
        values_shown = (self.indices, self.values, self.dense_shape)
        indices, values, shape = (_format_field(value) for value in values_shown)
        return f"SparseTensor(indices={indices}, values={values}, dense_shape={shape})"

    def call_layer(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer with the dense tensor."""
        return layer(self.operations["to_dense"](self), *args[1:], **kwargs)

    def as_batch(self) -> Tensor:
        """Return the batch for a step of a model: the dense tensor."""
        return self.operations["to_dense"](self)

    # --- as an element of a data set --------------------------------------------------

    @property
    def spec(self) -> SparseTensorSpec:
        """Return the shape and dtype."""
        return SparseTensorSpec(self.extents, self._array_dtype)

    @property
    def row_spec(self) -> SparseTensorSpec:
        """Return the shape and dtype of a row."""
        return SparseTensorSpec(self.extents[1:], self._array_dtype)

    @property
    def _array_dtype(self) -> Any:
        return np.asarray(self.values).dtype

    @property
    def nbytes(self) -> int:
        """Return the bytes of the values and their indices."""
        return int(self.index_array.nbytes + np.asarray(self.values).nbytes)

    def rows(self) -> list[SparseTensor]:
        """Return the rows as sparse tensors."""
        values = np.asarray(self.values)
        rows = []
        for row in range(self.extents[0]):
            is_in = self.index_array[:, 0] == row
            indices = self.index_array[is_in, 1:]
            rows.append(SparseTensor(indices, values[is_in], self.extents[1:]))
        return rows

    @property
    def stacked(self) -> Callable[[Sequence[Any]], SparseTensor]:
        """Return the function that batches sparse tensors."""
        return stack_sparse


class SparseTensorSpec(TensorSpec):
    """The shape and dtype of a sparse tensor.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.SparseTensorSpec([None, 4], tf.float32)
        SparseTensorSpec(TensorShape([None, 4]), tf.float32)
    """

    def __repr__(self) -> str:
        return f"SparseTensorSpec({TensorShape(self.shape)!r}, tf.{self.dtype.name})"


def stack_sparse(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Stack sparse tensors along a new first axis, with the largest extents."""
    if len({tensor.ndim for tensor in tensors}) != 1:
        raise ShapeError("batch: expected sparse tensors with the same number of axes")
    indices = [
        np.insert(tensor.index_array, 0, number, axis=1)
        for number, tensor in enumerate(tensors)
    ]
    largest = np.max([tensor.extents for tensor in tensors], axis=0)
    values = np.concatenate([np.asarray(tensor.values) for tensor in tensors])
    return SparseTensor(np.concatenate(indices), values, (len(tensors), *largest))


def _format_field(value: TensorLike) -> str:
    if isinstance(value, Tensor) and value.static_value() is None:
        return repr(value)
    return str(value)


def static_int64(numbers: Any) -> Array:
    """Return integers as an array of int64.

    Raises:
        NeedsValues: the integers are computed in a trace.
    """
    if isinstance(numbers, (Tensor, Variable)):
        values = convert(numbers).static_value()
        if values is None:
            raise NeedsValues("SparseTensor with indices that are computed")
        return values.astype("int64")
    return np.asarray(numbers, "int64")


def _rows_to_sparse(rows: RaggedTensor) -> SparseTensor:
    inner = np.argwhere(np.ones(tuple(rows.flat_values.shape)[1:], bool))
    indices = np.stack(coordinates(rows), 1)
    if inner.size:
        indices = np.concatenate(
            [np.repeat(indices, len(inner), 0), np.tile(inner, (len(indices), 1))], 1
        )
    values = rows.flat_values
    flat = values if not inner.size else ops.reshape(values, (-1,))
    return SparseTensor(indices, flat, rows.bounds())


RaggedTensor.operations["to_sparse"] = _rows_to_sparse
