"""`tf.SparseTensor`: the values of a tensor that are not zero, and their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.boundary import of_tensors
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.ragged_operations import coordinates, map_broadcast
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
)
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.data.structure import TensorSpec
from toolkit.errors import ShapeError, UnsupportedError


class SparseTensor:
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

    is_composite = True
    __array_priority__ = 3000
    # function name -> its implementation; see `sparse`.
    operations: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self.values: Any = as_values(values)
        self.extents: tuple[int, ...] = tuple(known(dense_shape).tolist())
        self.places: np.ndarray[Any, Any] = known(indices)
        if not self.places.size:
            self.places = self.places.reshape(-1, len(self.extents))
        wanted = (int(self.values.shape[0]), len(self.extents))
        if self.places.shape != wanted:
            raise ShapeError(
                f"SparseTensor: expected indices of shape {wanted}, a row for each "
                f"value; received {self.places.shape}"
            )

    @classmethod
    def dispatch(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute a function of TensorFlow with sparse arguments."""
        name = function.__name__
        if name not in cls.operations:
            raise UnsupportedError(
                f"{name}: sparse tensors are not supported; make a tensor by "
                "tf.sparse.to_dense"
            )
        return cls.operations[name](function, *args, **kwargs)

    @property
    def indices(self) -> Tensor:
        return convert(self.places)

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
        return SparseTensor(self.places, new_values, self.extents)

    def __mul__(self, other: Any) -> Any:
        return self._combined(lambda x, y: x * y, other)

    def __truediv__(self, other: Any) -> Any:
        return self._combined(lambda x, y: x / y, other)

    @of_tensors
    def _combined(self, function: Callable[..., Any], other: Any) -> Any:
        if isinstance(other, SparseTensor):
            return NotImplemented
        at = map_broadcast(other, self.extents, list(self.places.T))
        return self.with_values(function(self.values, at))

    def __repr__(self) -> str:
        parts = (self.indices, self.values, self.dense_shape)
        indices, values, shape = (_shown(part) for part in parts)
        return f"SparseTensor(indices={indices}, values={values}, dense_shape={shape})"

    def call_layer(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer with the dense tensor."""
        return layer(self.operations["to_dense"](self), *args[1:], **kwargs)

    def as_batch(self) -> Any:
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
        return int(self.places.nbytes + np.asarray(self.values).nbytes)

    def rows(self) -> list[SparseTensor]:
        """Return the rows as sparse tensors."""
        values = np.asarray(self.values)
        found = []
        for row in range(self.extents[0]):
            is_in = self.places[:, 0] == row
            part = self.places[is_in, 1:]
            found.append(SparseTensor(part, values[is_in], self.extents[1:]))
        return found

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


def stack_sparse(parts: Sequence[SparseTensor]) -> SparseTensor:
    """Stack sparse tensors along a new first axis, with the largest extents."""
    if len({part.ndim for part in parts}) != 1:
        raise ShapeError("batch: expected sparse tensors with the same number of axes")
    places = [
        np.insert(part.places, 0, number, axis=1) for number, part in enumerate(parts)
    ]
    largest = np.max([part.extents for part in parts], axis=0)
    values = np.concatenate([np.asarray(part.values) for part in parts])
    return SparseTensor(np.concatenate(places), values, (len(parts), *largest))


def _shown(part: Any) -> str:
    if isinstance(part, Tensor) and part.known() is None:
        return repr(part)
    return str(part)


def known(numbers: Any) -> np.ndarray[Any, Any]:
    """Return integers as an array of int64.

    Raises:
        NeedsValues: the integers are computed in a trace.
    """
    if isinstance(numbers, (Tensor, Variable)):
        found = convert(numbers).known()
        if found is None:
            raise NeedsValues("SparseTensor with indices that are computed")
        return found.astype("int64")
    return np.asarray(numbers, "int64")


def _rows_to_sparse(rows: RaggedTensor) -> SparseTensor:
    inner = np.argwhere(np.ones(tuple(rows.flat_values.shape)[1:], bool))
    places = np.stack(coordinates(rows), 1)
    if inner.size:
        places = np.concatenate(
            [np.repeat(places, len(inner), 0), np.tile(inner, (len(places), 1))], 1
        )
    values = rows.flat_values
    flat = values if not inner.size else ops.reshape(values, (-1,))
    return SparseTensor(places, flat, rows.bounds())


RaggedTensor.operations["to_sparse"] = _rows_to_sparse
