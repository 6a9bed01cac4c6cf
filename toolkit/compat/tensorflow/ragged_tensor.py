"""`tf.RaggedTensor`: rows of different lengths, as values and row splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.ragged_constructors import RaggedConstructors
from toolkit.compat.tensorflow.ragged_values import (
    append_padding,
    count_values,
    gather_values,
    reshape_values,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.core.composites import Composite
from toolkit.core.tensor import Tensor
from toolkit.data import Ragged
from toolkit.errors import UnsupportedError
from toolkit.type_aliases import Array, DTypeLike, Shape, TensorLike

_BINARY = "add sub mul truediv floordiv mod pow and or xor matmul".split()
_COMPARISONS = "eq ne lt le gt ge".split()


class RaggedTensor(RaggedConstructors, Composite):
    """Rows of different lengths.

    `tf.ragged.constant` and the methods `from_...` create them. Row splits are static
    in a traced function; the values can be computed in the trace.

    Args:
        values: the values of all rows: a tensor, strings, or a RaggedTensor.
        row_splits: the start of each row and the end of the last one.
        uniform_row_length: the length of each row, if it is the same by construction.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> rows = tf.ragged.constant([[1, 2, 3], [], [4]])
        >>> rows.to_tensor().numpy().tolist(), rows.row_lengths().numpy().tolist()
        ([[1, 2, 3], [0, 0, 0], [4, 0, 0]], [3, 0, 1])
        >>> rows * 10
        <tf.RaggedTensor [[10, 20, 30], [], [40]]>
    """

    __array_priority__ = 3000
    # function name -> its implementation; see `ragged_operations`.
    operations: ClassVar[dict[str, Callable[..., Any]]] = {}

    @classmethod
    def dispatch(cls, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute a function of TensorFlow with ragged arguments."""
        name = function.__name__
        if name not in cls.operations:
            raise UnsupportedError(
                f"{name}: ragged tensors are not supported; create a tensor by "
                "to_tensor(), or use tf.ragged.map_flat_values"
            )
        return cls.operations[name](function, *args, **kwargs)

    # --- properties -------------------------------------------------------------------

    @property
    def shape(self) -> TensorShape:
        inner = tuple(self.values.shape)[1:]
        return TensorShape([self.count, self.uniform_row_length, *inner])

    def get_shape(self) -> TensorShape:
        """Return the extents, None for the lengths of rows."""
        return self.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self.splits) - 1

    @property
    def lengths(self) -> Any:
        """Return the lengths of the rows as an array."""
        return np.diff(self.splits)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def ragged_rank(self) -> int:
        inner = self.values
        return 1 + (inner.ragged_rank if isinstance(inner, RaggedTensor) else 0)

    @property
    def flat_values(self) -> Any:
        """Return the innermost values, a tensor."""
        inner = self.values
        return inner.flat_values if isinstance(inner, RaggedTensor) else inner

    @property
    def row_splits(self) -> Tensor:
        return convert(self.splits)

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        return tuple(convert(splits) for splits in self.all_splits())

    def all_splits(self) -> list[Array]:
        """Return the splits of each ragged axis as arrays, the outermost first."""
        inner = self.values
        inner_splits = inner.all_splits() if isinstance(inner, RaggedTensor) else []
        return [self.splits, *inner_splits]

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """Return the lengths of rows in each ragged axis."""
        return tuple(convert(np.diff(splits)) for splits in self.all_splits())

    def row_starts(self, name: str | None = None) -> Tensor:
        """Return the start of each row."""
        return convert(self.splits[:-1])

    def row_limits(self, name: str | None = None) -> Tensor:
        """Return the end of each row."""
        return convert(self.splits[1:])

    def value_rowids(self, name: str | None = None) -> Tensor:
        """Return the row index of each value."""
        return convert(self.rowids())

    def rowids(self) -> Array:
        """Return the row index of each value as an array."""
        return np.repeat(np.arange(self.count, dtype=self.splits.dtype), self.lengths)

    def nrows(
        self, out_type: DTypeLike | None = None, name: str | None = None
    ) -> Tensor:
        """Return the number of rows."""
        dtype = self.splits.dtype if out_type is None else dtype_name(out_type)
        return convert(np.array(self.count, dtype))

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Return the number of values of each row along an axis: ragged for inner
        axes."""
        axis = axis % self.ndim
        if axis == 1:
            return convert(self.lengths)
        if not isinstance(self.values, RaggedTensor):
            raise UnsupportedError(f"row_lengths: axis {axis} is not ragged")
        return self.with_values(self.values.row_lengths(axis - 1))

    def bounding_shape(
        self,
        axis: int | None = None,
        name: str | None = None,
        out_type: DTypeLike | None = None,
    ) -> Tensor:
        """Return the shape of `to_tensor()`."""
        dtype = self.splits.dtype if out_type is None else dtype_name(out_type)
        shape = convert(np.array(self.bounds(), dtype))
        return shape if axis is None else shape[axis]

    def bounds(self) -> tuple[int, ...]:
        """Return the shape of `to_tensor()` as integers."""
        inner = self.values
        inner_bounds = (
            inner.bounds() if isinstance(inner, RaggedTensor) else inner.shape
        )
        return (self.count, int(max(self.lengths, default=0)), *tuple(inner_bounds)[1:])

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Return rows of the same lengths with other values."""
        return RaggedTensor(new_values, self.splits, self.uniform_row_length)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Return rows of the same lengths with other innermost values."""
        inner = self.values
        if isinstance(inner, RaggedTensor):
            return self.with_values(inner.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: DTypeLike) -> RaggedTensor:
        """Return the same rows with splits of a dtype, int32 or int64."""
        inner = self.values
        if isinstance(inner, RaggedTensor):
            inner = inner.with_row_splits_dtype(dtype)
        splits = self.splits.astype(dtype_name(dtype))
        return RaggedTensor(inner, splits, self.uniform_row_length)

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Merge the axes from `outer_axis` to `inner_axis`."""
        outer, inner = outer_axis % self.ndim, inner_axis % self.ndim
        if outer == inner:
            return self
        if outer:
            merged = _merged(self.values, outer - 1, inner - 1)
            if outer > 1 or not isinstance(self.values, RaggedTensor):
                return self.with_values(merged)
            splits = self.values.split_at(inner - 1)[self.splits]
            return RaggedTensor(merged, splits)
        return _merged(self.values, 0, inner - 1)

    def split_at(self, axis: int) -> Array:
        """Return the start of each row among the values below an axis."""
        splits = self.splits
        for inner in self.all_splits()[1:axis]:
            splits = inner[splits]
        return splits

    # --- tensors, lists and arrays ----------------------------------------------------

    @wrap_results
    def to_tensor(
        self,
        default_value: TensorLike | None = None,
        name: str | None = None,
        shape: Shape | None = None,
    ) -> Any:
        """Pad all rows to the longest, and return a tensor.

        Args:
            default_value: the padding; 0 or an empty string by default.
            shape: its extents, None for the natural extent; longer rows are truncated.
        """
        count, length, *inner_shape = (*(shape or ()), *[None] * self.ndim)[: self.ndim]
        inner = self.values
        if isinstance(inner, RaggedTensor):
            inner = inner.to_tensor(default_value, shape=(None, *inner_shape))
        longest = int(max(self.lengths, default=0))
        wide = longest if length is None or int(length) < 0 else int(length)
        rows = self.count if count is None or int(count) < 0 else int(count)
        grid = np.full((rows, wide), count_values(inner))
        for row, (first, last) in enumerate(
            zip(self.splits[:rows], self.splits[1:], strict=False)
        ):
            grid[row, : last - first] = np.arange(first, last)[:wide]
        return gather_values(append_padding(inner, default_value), grid)

    def to_sparse(self, name: str | None = None) -> Any:
        """Return the values and their indices as a SparseTensor."""
        return self.operations["to_sparse"](self)

    def to_list(self) -> list[Any]:
        """Return the rows as lists."""
        return [_listed(row) for row in self._rows()]

    def numpy(self) -> Any:
        """Return an array of arrays, or one array if all rows have one length."""
        rows = [np.asarray(row.numpy()) for row in self._rows()]
        if len({row.shape for row in rows}) <= 1 and all(
            row.dtype != object or self.dtype == "string" for row in rows
        ):
            return np.array(rows)
        arrays = np.empty(len(rows), object)
        arrays[:] = rows
        return arrays

    def __array__(self, dtype: DTypeLike | None = None, copy: object = None) -> Any:
        return np.asarray(self.numpy(), dtype)

    def call_layer(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer with these rows; see `ragged_layers`."""
        return self.operations["call_layer"](self, layer, args, kwargs)

    def as_batch(self) -> RaggedTensor:
        """Return the batch for a step of a model: the rows."""
        return self

    def as_data(self) -> Ragged:
        """Return the rows in the form of `toolkit.data`."""
        if isinstance(self.values, RaggedTensor):
            raise UnsupportedError(
                "Dataset: ragged tensors with more than one ragged axis are not "
                "supported as elements; received a ragged tensor of shape "
                f"{self.shape}"
            )
        return Ragged(np.asarray(self.values), self.splits)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows())

    def _rows(self) -> list[Any]:
        return [self[row] for row in range(self.count)]

    @wrap_results
    def __getitem__(self, key: Any) -> Any:
        return self.operations["getitem"](self, key)

    def __bool__(self) -> bool:
        raise TypeError("a ragged tensor has no truth value")

    def __repr__(self) -> str:
        flat = self.flat_values
        if isinstance(flat, Tensor) and flat.static_value() is None:
            return f"<tf.RaggedTensor shape={self.shape} dtype={self.dtype}, traced>"
        return f"<tf.RaggedTensor {self.to_list()}>"

    __hash__ = object.__hash__


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: RaggedTensor, *operands: Any) -> Any:
        return self.operations[name](self, *operands)

    operate.__name__ = operate.__qualname__ = name
    return wrap_results(operate)


for _name in (*_BINARY, *(f"r{name}" for name in _BINARY), *_COMPARISONS):
    setattr(RaggedTensor, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("neg", "abs", "invert"):
    setattr(RaggedTensor, f"__{_name}__", _operator(f"__{_name}__"))


def _merged(values: Any, outer: int, inner: int) -> Any:
    if isinstance(values, RaggedTensor):
        return values.merge_dims(outer, inner)
    shape = tuple(values.shape)
    if outer == inner:
        return values
    size = int(np.prod(shape[outer : inner + 1]))
    return reshape_values(values, (*shape[:outer], size, *shape[inner + 1 :]))


def _listed(row: Any) -> Any:
    return row.to_list() if isinstance(row, RaggedTensor) else row.numpy().tolist()
