"""`tf.sparse`: operations of sparse tensors, from and to dense ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import wrap_module_results
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
)
from toolkit.compat.tensorflow.segments import (
    segment_sum as _segment_sum,
    unsorted_segment_max,
    unsorted_segment_sum,
)
from toolkit.compat.tensorflow.sparse_counting import (
    bincount as bincount,
    cross as cross,
)
from toolkit.compat.tensorflow.sparse_shapes import (
    concat as concat,
    concatenate_values,
    expand_dims as expand_dims,
    fill_empty_rows as fill_empty_rows,
    flat_offsets,
    reorder as reorder,
    reset_shape as reset_shape,
    reshape as reshape,
    retain as retain,
    slice as slice,
    split as split,
    transpose as transpose,
)
from toolkit.compat.tensorflow.sparse_tensor import (
    SparseTensor as SparseTensor,
    static_int64,
)
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import AxisLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import Array, DTypeLike, Shape, TensorLike

_ELEMENTWISE = "abs cast identity negative sign sqrt square stop_gradient tanh".split()


# --- from and to dense tensors --------------------------------------------------------


def to_dense(
    sp_input: Any,
    default_value: TensorLike | None = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Any:
    """Return the dense tensor.

    A RaggedTensor is padded; any other tensor does not change.

    Args:
        sp_input: a SparseTensor.
        default_value: for missing values; 0 or an empty string by default.
        validate_indices: whether indices must be sorted by rows and unique.
    """
    if isinstance(sp_input, RaggedTensor):
        return sp_input.to_tensor(default_value)
    if not isinstance(sp_input, SparseTensor):
        return sp_input
    indices = sp_input.index_array
    if validate_indices and not _is_ascending(indices, sp_input.extents):
        raise ShapeError(
            "to_dense: expected unique indices within the shape, in row-major order; "
            "use tf.sparse.reorder to sort them"
        )
    values, fill = sp_input.values, default_value
    if isinstance(values, StringTensor):
        text = b"" if fill is None else np.asarray(StringTensor(fill))[()]
        dense = np.full(sp_input.extents, text, object)
        dense[tuple(indices.T)] = np.asarray(values)
        return StringTensor(dense)
    one = ops.cast(0 if fill is None else fill, values.dtype)
    filled = ops.broadcast_to(one, sp_input.extents)
    return ops.scatter_update(filled, convert(indices), values)


def _is_ascending(indices: Array, shape: Shape) -> bool:
    if ((indices < 0) | (indices >= np.asarray(shape))).any():
        return False
    return bool((np.diff(flat_offsets(indices, shape)) > 0).all())


def from_dense(tensor: TensorLike, name: str | None = None) -> SparseTensor:
    """Return the values that are not zero, or not empty, and their indices."""
    x = as_values(tensor)
    if isinstance(x, Tensor) and x.static_value() is None:
        raise NeedsValues("tf.sparse.from_dense")
    array = np.asarray(x)
    indices = np.argwhere(array != (b"" if array.dtype == object else 0))
    if isinstance(x, StringTensor):
        values: Any = StringTensor(array[tuple(indices.T)])
    else:
        values = ops.take(ops.reshape(x, (-1,)), flat_offsets(indices, array.shape), 0)
    return SparseTensor(indices, values, array.shape)


def eye(
    num_rows: Any,
    num_columns: Any = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> SparseTensor:
    """Return ones on the diagonal of a matrix."""
    rows = int(num_rows)
    columns = rows if num_columns is None else int(num_columns)
    indices = np.repeat(np.arange(min(rows, columns))[:, None], 2, axis=1)
    return SparseTensor(
        indices, np.ones(len(indices), dtype_name(dtype)), (rows, columns)
    )


def to_indicator(
    sp_input: SparseTensor, vocab_size: Any, name: str | None = None
) -> Tensor:
    """Return booleans that are true at the values of each row."""
    values = np.asarray(sp_input.values)
    dense = np.zeros((*sp_input.extents[:-1], int(vocab_size)), bool)
    dense[(*sp_input.index_array[:, :-1].T, values)] = True
    return convert(dense)


# --- arithmetic -----------------------------------------------------------------------


def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> SparseTensor:
    """Call a function with the values of its sparse arguments.

    Raises:
        ShapeError: the arguments have values at different indices.
    """
    sparse_args = [x for x in (*args, *kwargs.values()) if isinstance(x, SparseTensor)]
    if not sparse_args:
        raise ArgumentError("map_values: expected a sparse tensor; received none")
    if any(
        not np.array_equal(x.index_array, sparse_args[0].index_array)
        for x in sparse_args
    ):
        raise ShapeError("map_values: expected values at the same indices")

    def values(x: TensorLike) -> Any:
        return x.values if isinstance(x, SparseTensor) else x

    names = {key: values(x) for key, x in kwargs.items()}
    return sparse_args[0].with_values(op(*map(values, args), **names))


def add(a: TensorLike, b: TensorLike, threshold: float = 0) -> Any:
    """Add tensors; the result is sparse if both are.

    Args:
        a, b: sparse tensors, or one sparse and one dense tensor.
        threshold: sums of a smaller magnitude are dropped.
    """
    if not (isinstance(a, SparseTensor) and isinstance(b, SparseTensor)):
        return ops.add(to_dense(a), to_dense(b))
    total = _combine(
        "add", a, b, lambda values, ids, n: unsorted_segment_sum(values, ids, n)
    )
    if not threshold:
        return total
    return retain(total, np.abs(np.asarray(total.values)) >= threshold)


def _combine(
    function: str, a: SparseTensor, b: SparseTensor, reduce: Any
) -> SparseTensor:
    if a.extents != b.extents:
        raise ShapeError(
            f"sparse.{function}: expected equal shapes; received {a.shape} and "
            f"{b.shape}"
        )
    values = concatenate_values((a, b))
    flat = flat_offsets(np.concatenate([a.index_array, b.index_array]), a.extents)
    cells, ids = np.unique(flat, return_inverse=True)
    indices = np.stack(np.unravel_index(cells, a.extents), 1)
    return SparseTensor(indices, reduce(values, ids, len(cells)), a.extents)


def maximum(
    sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None
) -> SparseTensor:
    """Return the maximum where either has a value."""
    return _extreme("maximum", sp_a, sp_b, ops.maximum)


def minimum(
    sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None
) -> SparseTensor:
    """Return the minimum where either has a value."""
    return _extreme("minimum", sp_a, sp_b, ops.minimum)


def _extreme(
    name: str, a: SparseTensor, b: SparseTensor, function: Callable[..., Any]
) -> SparseTensor:
    union = _combine(name, a, b, lambda values, ids, n: np.zeros(n))
    cells = tuple(union.index_array.T)
    of_a, of_b = (
        ops.take(
            ops.reshape(to_dense(x), (-1,)),
            flat_offsets(np.stack(cells, 1), x.extents),
            0,
        )
        for x in (a, b)
    )
    return union.with_values(function(of_a, of_b))


def sparse_dense_matmul(
    sp_a: Any,
    b: TensorLike,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Multiply a sparse and a dense matrix, in either order.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x = tf.SparseTensor([[0, 1]], [2.0], (1, 2))
        >>> tf.sparse.sparse_dense_matmul(x, [[1.0], [3.0]]).numpy().tolist()
        [[6.0]]
    """
    if isinstance(b, SparseTensor):
        transposed = sparse_dense_matmul(b, sp_a, not adjoint_b, not adjoint_a)
        return (
            ops.conj(ops.transpose(transposed))
            if _is_complex(b)
            else ops.transpose(transposed)
        )
    dense = as_values(b)
    if adjoint_b:
        dense = ops.transpose(ops.conj(dense) if _is_complex(dense) else dense)
    rows, columns = sp_a.index_array.T
    shape, values = sp_a.extents, sp_a.values
    if adjoint_a:
        rows, columns, shape = columns, rows, shape[::-1]
        values = ops.conj(values) if _is_complex(values) else values
    if shape[1] != dense.shape[0]:
        raise ShapeError(
            f"sparse_dense_matmul: cannot multiply a matrix with {shape[1]} columns "
            f"by shape {tuple(dense.shape)}"
        )
    terms = ops.expand_dims(values, 1) * ops.take(dense, columns, 0)
    return unsorted_segment_sum(terms, rows, shape[0])


def _is_complex(x: Any) -> bool:
    return str(x.dtype).startswith("complex")


def softmax(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Return the softmax over the values of each row."""
    flat = flat_offsets(sp_input.index_array[:, :-1], sp_input.extents[:-1])
    _, ids = np.unique(flat, return_inverse=True)
    count = int(ids.max()) + 1 if ids.size else 0
    maxima = ops.take(unsorted_segment_max(sp_input.values, ids, count), ids, 0)
    scaled = ops.exp(sp_input.values - maxima)
    total = unsorted_segment_sum(scaled, ids, count)
    return sp_input.with_values(scaled / ops.take(total, ids, 0))


def reduce_sum(
    sp_input: SparseTensor,
    axis: AxisLike | None = None,
    keepdims: bool | None = None,
    output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Return the sum along axes, dense by default."""
    total = ops.sum(to_dense(reorder(sp_input)), _axes(axis), bool(keepdims))
    return from_dense(total) if output_is_sparse else total


def reduce_max(
    sp_input: SparseTensor,
    axis: AxisLike | None = None,
    keepdims: bool | None = None,
    output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Return the maximum along axes, 0 without a value."""
    values = sp_input.values
    low = ops.cast(ops.min(values) if values.shape[0] else 0, values.dtype)
    dense = to_dense(reorder(sp_input), low)
    has_any = np.zeros(sp_input.extents, bool)
    has_any[tuple(sp_input.index_array.T)] = True
    axes = _axes(axis)
    largest = ops.max(dense, axes, bool(keepdims))
    is_there = has_any.any(axis=axes, keepdims=bool(keepdims))
    result = ops.where(is_there, largest, ops.zeros_like(largest))
    return from_dense(result) if output_is_sparse else result


def _axes(axis: AxisLike | None) -> Any:
    return tuple(int(n) for n in axis) if isinstance(axis, (list, tuple)) else axis


def segment_sum(
    data: TensorLike,
    indices: TensorLike,
    segment_ids: TensorLike,
    num_segments: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the segment sums of the rows of data at the indices."""
    return _reduce_segments(
        _segment_sum, unsorted_segment_sum, data, indices, segment_ids, num_segments
    )


def segment_mean(
    data: TensorLike,
    indices: TensorLike,
    segment_ids: TensorLike,
    num_segments: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the segment means of the rows of data at the indices."""
    total = segment_sum(data, indices, segment_ids, num_segments)
    sizes = np.bincount(static_int64(segment_ids), minlength=int(total.shape[0]))
    shape = (len(sizes), *[1] * (len(total.shape) - 1))
    return total / ops.cast(np.maximum(sizes, 1).reshape(shape), total.dtype)


def _reduce_segments(
    function: Callable[..., Any],
    unsorted: Any,
    data: TensorLike,
    indices: TensorLike,
    ids: TensorLike,
    count: Any,
) -> Tensor:
    rows = ops.take(as_values(data), static_int64(indices), 0)
    if count is None:
        return function(rows, static_int64(ids))
    return unsorted(rows, static_int64(ids), int(count))


def _number(numbers: Callable[[SparseTensor], Any]) -> Callable[..., Any]:
    def compute(
        function: Any,
        input: SparseTensor,
        out_type: DTypeLike = "int32",
        name: str | None = None,
    ) -> Tensor:
        return convert(np.array(numbers(input), dtype_name(out_type)))

    return compute


def _elementwise(
    function: Callable[..., Any], x: SparseTensor, *args: Any, **kwargs: Any
) -> SparseTensor:
    return x.with_values(function(x.values, *args, **kwargs))


SparseTensor.operations.update(
    dict.fromkeys(_ELEMENTWISE, _elementwise),
    matmul=lambda function, a, b, **options: sparse_dense_matmul(
        a,
        b,
        options.get("adjoint_a", False) or options.get("transpose_a", False),
        options.get("adjoint_b", False) or options.get("transpose_b", False),
    ),
    rank=_number(lambda x: x.ndim),
    to_dense=lambda x: to_dense(reorder(x)),
    shape=_number(lambda x: x.extents),
    size=_number(lambda x: int(np.prod(x.extents))),
)


wrap_module_results(__name__)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.sparse.{name} is not supported: create a tensor by tf.sparse.to_dense"
    )
