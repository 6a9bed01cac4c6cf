"""TensorFlow's functions and operators for ragged rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.ragged_indexing import get_item
from toolkit.compat.tensorflow.ragged_joining import OPERATIONS, stack_rows
from toolkit.compat.tensorflow.ragged_reductions import REDUCTIONS
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
    gather_values,
    reshape_values,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import Array, Axis, Shape, TensorLike

_Function = Callable[..., Any]

# Elementwise functions: the innermost values are their arguments.
ELEMENTWISE = (
    "abs acos acosh add asin asinh as_string atan atan2 atanh bitcast bitwise_and "
    "bitwise_or bitwise_xor cast ceil check_numerics clip_by_value complex conj cos "
    "cosh digamma divide divide_no_nan dropout elu equal erf erfc erfinv exp expm1 "
    "floor floordiv floormod gelu greater greater_equal identity imag invert is_finite "
    "is_inf is_nan leaky_relu left_shift less less_equal lgamma log log1p log_sigmoid "
    "logical_and logical_not logical_or logical_xor maximum minimum multiply "
    "multiply_no_nan negative nextafter not_equal one_hot ones_like pow real "
    "reciprocal relu relu6 right_shift rint round rsqrt saturate_cast selu sigmoid "
    "sign silu sin sinh softplus softsign sqrt square squared_difference "
    "stop_gradient subtract tan tanh truediv xdivy xlog1py xlogy zeros_like"
).split()
_OPERATORS: dict[str, _Function] = {
    **{
        name: getattr(operator, name)
        for name in "add sub mul truediv floordiv mod pow xor matmul".split()
    },
    "and": operator.and_,
    "or": operator.or_,
}


# --- elementwise
# ------------------------------------------------------------------------


def map_flat(function: _Function, args: Any, kwargs: Any) -> Any:
    """Call a function with the innermost values of its ragged arguments.

    Tensors among the arguments are broadcast to the rows.

    Raises:
        ShapeError: ragged arguments have rows of different lengths.
    """
    ragged_args = [x for x in (*args, *kwargs.values()) if isinstance(x, RaggedTensor)]
    rows = max(ragged_args, key=lambda x: x.ragged_rank)
    for other in ragged_args:
        _check_same_rows(function, rows, other)

    def flat(x: TensorLike) -> Any:
        if isinstance(x, RaggedTensor):
            return x.flat_values
        return _broadcast(rows, x)

    result = function(*map(flat, args), **{k: flat(x) for k, x in kwargs.items()})
    return rows.with_flat_values(result)


def _check_same_rows(
    function: _Function, rows: RaggedTensor, other: RaggedTensor
) -> None:
    ours, theirs = rows.all_splits(), other.all_splits()
    if len(ours) != len(theirs) or not all(map(np.array_equal, ours, theirs)):
        raise ShapeError(
            f"{function.__name__}: expected ragged tensors with rows of the same "
            f"lengths; received shapes {rows.shape} and {other.shape} with row "
            f"lengths {rows.lengths.tolist()[:8]} and {other.lengths.tolist()[:8]}"
        )


def _may_broadcast(x: TensorLike) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype") and len(x.shape) > 0


def _broadcast(rows: RaggedTensor, x: TensorLike) -> Any:
    """Return the element of a tensor for each of the innermost values of rows."""
    return map_broadcast(x, tuple(rows.shape), coordinates(rows))


def map_broadcast(x: TensorLike, shape: tuple[Any, ...], indices: Sequence[Any]) -> Any:
    """Return the broadcast elements of a tensor at indices.

    Args:
        x: a number, an array or a tensor.
        shape: the shape that it broadcasts to.
        indices: the indices along the first axes; further axes of the shape broadcast.
    """
    if not _may_broadcast(x):
        return x
    values = as_values(x)
    ragged_axes = len(values.shape) - (len(shape) - len(indices))
    if ragged_axes <= 0:
        return values
    if ragged_axes > len(indices):
        raise ShapeError(
            f"broadcast: a tensor of shape {tuple(values.shape)} does not broadcast to "
            f"shape {shape}"
        )
    flat = np.zeros(len(indices[0]), int)
    for extent, index in zip(
        values.shape[:ragged_axes], indices[-ragged_axes:], strict=True
    ):
        if extent != 1 and index.size and index.max() >= extent:
            raise ShapeError(
                f"broadcast: rows of up to {index.max() + 1} values do not broadcast "
                f"with an axis of {extent} of a tensor of shape {tuple(values.shape)}"
            )
        flat = flat * extent + (0 if extent == 1 else index)
    return gather_values(
        reshape_values(values, (-1, *values.shape[ragged_axes:])), flat
    )


def coordinates(rows: RaggedTensor) -> list[Array]:
    """Return the index of each innermost value along the first and the ragged axes."""
    result: list[Array] = [np.arange(rows.count)]
    for splits in rows.all_splits():
        lengths = np.diff(splits)
        ids = np.repeat(np.arange(len(lengths)), lengths)
        result = [index[ids] for index in result]
        result.append(np.arange(len(ids)) - splits[:-1][ids])
    return result


def _elementwise(function: _Function, *args: Any, **kwargs: Any) -> Any:
    return map_flat(function, args, kwargs)


def _operate(name: str, is_reflected: bool) -> _Function:
    function = _OPERATORS[name]

    def operate(rows: RaggedTensor, other: Any) -> RaggedTensor:
        pair = (other, rows) if is_reflected else (rows, other)
        return map_flat(function, [_of_tensors(x) for x in pair], {})

    return operate


def _compare(name: str) -> _Function:
    function = getattr(operator, name)

    def compare(rows: RaggedTensor, other: Any) -> Any:
        if other is None:
            return name == "ne"
        return map_flat(function, (rows, _of_tensors(other)), {})

    return compare


def _of_tensors(x: TensorLike) -> Any:
    """Convert an operand to a tensor or rows; a number does not change."""
    if isinstance(x, (RaggedTensor, bool, int, float, complex, np.generic)):
        return x
    return x if isinstance(x, (str, bytes)) else as_values(x)


# --- other functions
# --------------------------------------------------------------------


def _where(
    function: _Function,
    condition: RaggedTensor,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
) -> Any:
    if x is not None or y is not None:
        return map_flat(function, (condition, x, y), {})
    indices = np.stack(coordinates(condition), 1)
    return convert(indices[np.asarray(condition.flat_values)].astype("int64"))


def _size(function: _Function, input: Any, *args: Any, **names: Any) -> Any:
    return function(input.flat_values, *args, **names)


def _rank(function: _Function, input: RaggedTensor, name: str | None = None) -> Tensor:
    return convert(np.array(input.ndim, "int32"))


def _add_n(function: _Function, inputs: Any, name: str | None = None) -> Any:
    first, *remaining = inputs
    for other in remaining:
        first = first + other
    return first


def _softmax(
    function: _Function, logits: Any, axis: Axis | None = None, name: str | None = None
) -> Any:
    if axis not in (None, -1, logits.ndim - 1):
        raise ShapeError(f"softmax: expected the last axis; received {axis}")
    if logits.ndim > logits.ragged_rank + 1:
        return map_flat(function, (logits,), {})
    dense = function(logits.to_tensor(float("-inf")))
    return RaggedTensor.from_tensor(dense, lengths=logits.lengths)


def _cumsum(
    function: _Function, x: Any, axis: int = 0, *args: Any, **kwargs: Any
) -> Any:
    if x.ragged_rank != 1 or int(axis) % x.ndim != 1:
        raise ShapeError(f"cumsum: expected axis=1 of ragged rows; received {axis}")
    dense = function(x.to_tensor(), 1, *args, **kwargs)
    return RaggedTensor.from_tensor(dense, lengths=x.lengths)


def _matmul(function: _Function, a: TensorLike, b: TensorLike, **options: Any) -> Any:
    dense = [x.to_tensor() if isinstance(x, RaggedTensor) else x for x in (a, b)]
    product = function(*dense, **options)
    if isinstance(a, RaggedTensor) and not options.get("transpose_a"):
        return RaggedTensor.from_tensor(product, lengths=a.lengths)
    return product


def _reshape(
    function: _Function, tensor: Any, shape: Shape, name: str | None = None
) -> Any:
    if np.asarray(convert(shape)).tolist() != [-1]:
        raise ShapeError(
            "reshape: expected [-1] or the current shape for ragged rows; received "
            f"{shape}: make a tensor by to_tensor()"
        )
    return function(tensor.flat_values, shape)


def _bincount(function: _Function, arr: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("axis") == -1:
        rows = [function(row, *args, **{**kwargs, "axis": None}) for row in arr]
        wide = max(len(row) for row in rows)
        return ops.stack([ops.pad(row, ((0, wide - len(row)),)) for row in rows])
    return function(arr.flat_values, *args, **kwargs)


def _map_fn(
    function: _Function, fn: _Function, elems: Any, *args: object, **kwargs: object
) -> Any:
    results = [fn(row) for row in elems]
    if all(len(y.shape) == 0 for y in results):
        return ops.stack(results)
    return stack_rows(results)


def _convert(
    function: _Function, value: TensorLike, *args: object, **kwargs: object
) -> Any:
    return value


_TABLE: dict[str, _Function] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **REDUCTIONS,
    **OPERATIONS,
    "add_n": _add_n,
    "bincount": _bincount,
    "cumsum": _cumsum,
    "getitem": get_item,
    "map_fn": _map_fn,
    "matmul": _matmul,
    "rank": _rank,
    "reshape": _reshape,
    "size": _size,
    "softmax": _softmax,
    "where": _where,
    **{f"__{name}__": _operate(name, False) for name in _OPERATORS},
    **{f"__r{name}__": _operate(name, True) for name in _OPERATORS},
    **{f"__{name}__": _compare(name) for name in "eq ne lt le gt ge".split()},
    "__abs__": lambda rows: map_flat(abs, (rows,), {}),
    "__invert__": lambda rows: map_flat(operator.invert, (rows,), {}),
    "__neg__": lambda rows: map_flat(operator.neg, (rows,), {}),
}
RaggedTensor.operations.update(_TABLE)
