"""Functions that create, join and split tensors."""

from __future__ import annotations

import builtins
from itertools import accumulate
from time import time
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import (
    as_array,
    axes,
    dtype_name,
    extents,
    fitting,
)
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.operators import match_dtypes
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.core.composites import Composite
from toolkit.core.convert import operands
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.type_aliases import Array, DTypeLike, Shape, TensorLike

globals().update(
    rename_functions(
        {
            "broadcast_to": (ops.broadcast_to, "input shape"),
            "cast": (ops.cast, "x dtype"),
            "expand_dims": (ops.expand_dims, "input axis"),
            "identity": (ops.copy, "input"),
            "repeat": (ops.repeat, "input repeats axis"),
            "reverse": (ops.flip, "tensor axis"),
            "roll": (ops.roll, "input shift axis"),
            "saturate_cast": (ops.saturate_cast, "value dtype"),
            "squeeze": (ops.squeeze, "input axis"),
            "stop_gradient": (ops.stop_gradient, "input"),
            "tile": (ops.tile, "input multiples"),
            "unstack": (ops.unstack, "value num axis"),
        }
    )
)


# --- creation
# --------------------------------------------------------------------------


def constant(
    value: Any, dtype: Any = None, shape: Shape | None = None, name: str = "Const"
) -> Any:
    """Create a tensor from numbers or strings.

    Args:
        value: a number, an array, nested lists, or strings.
        dtype: the default is float32, int32 or bool, or the dtype of an array.
        shape: the shape of the result; one number or string fills it.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.constant(7, shape=(2, 2)).numpy().tolist()
        [[7, 7], [7, 7]]
    """
    fitting(value, dtype, "constant")
    x: Any
    if is_string(value):
        x = StringTensor(value)
    elif dtype_name(dtype) == dtypes.STRING and not np.size(value):
        x = zeros(np.shape(value), dtype)
    else:
        if isinstance(value, (list, tuple, builtins.complex)) and dtype is None:
            dtype = "complex128" if np.iscomplexobj(value) else None
        x = convert(as_array(value), dtype_name(dtype))
    if shape is None:
        return x
    shape = extents(shape)
    return ops.broadcast_to(x, shape) if x.size == 1 else ops.reshape(x, shape)


def convert_to_tensor(
    value: TensorLike,
    dtype: DTypeLike | None = None,
    dtype_hint: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Convert a value to a tensor; `dtype_hint` applies if the value has no dtype."""
    if dtype is None and not hasattr(value, "dtype"):
        try:
            return constant(value, dtype_hint)
        except DTypeError:
            pass  # a hint is not a requirement
    return constant(value, dtype)


def is_tensor(x: TensorLike) -> bool:
    """Return whether x is a tensor, a ragged or sparse tensor, or a Variable."""
    return isinstance(x, Composite) or ops.is_tensor(x) or hasattr(x, "assign_add")


def zeros(
    shape: ShapeLike, dtype: DTypeLike | None = "float32", name: str | None = None
) -> Any:
    """Create a tensor of zeros, or of empty strings."""
    if dtype_name(dtype) == dtypes.STRING:
        return StringTensor(np.full(extents(shape), b"", object))
    return ops.zeros(extents(shape), dtype_name(dtype))


def ones(shape: Shape, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """Create a tensor of ones."""
    return ops.ones(extents(shape), dtype_name(dtype))


def fill(dims: ShapeLike, value: TensorLike, name: str | None = None) -> Tensor:
    """Create a tensor of one value, in its dtype."""
    return ops.broadcast_to(convert(value), extents(dims))


def zeros_like(
    input: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Create zeros with the shape of `input`."""
    return ops.zeros_like(input, dtype_name(dtype))


def ones_like(
    input: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
    """Create ones with the shape of `input`."""
    return ops.ones_like(input, dtype_name(dtype))


def eye(
    num_rows: TensorLike,
    num_columns: Any = None,
    batch_shape: ShapeLike | None = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Create an identity matrix, or a batch of them."""
    sizes = extents((num_rows, num_rows if num_columns is None else num_columns))
    if min(sizes) < 0:
        raise ArgumentError(f"eye: expected extents of 0 or more; received {sizes}")
    one = ops.eye(sizes[0], sizes[1], dtype=dtype_name(dtype))
    return ops.broadcast_to(one, (*extents(batch_shape or ()), *one.shape))


def range(
    start: Any,
    limit: Any = None,
    delta: TensorLike = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the numbers from start to limit, or from 0 to start, in steps of delta.

    As in TensorFlow, the count is computed in the dtype: a rounded float step adds no
    number at the end.

    Args:
        start, limit, delta: numbers, or 0-d tensors with static values; with a step in
            the wrong direction the result is empty.
        dtype: the default is the widest of the given dtypes.

    Raises:
        ArgumentError: delta is 0, or has the wrong direction.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.range(3, 18, 5).numpy().tolist()
        [3, 8, 13]
    """
    if limit is None:
        start, limit = 0, start
    bounds = [
        convert(as_array(fitting(x, dtype, "range")), dtype_name(dtype))
        for x in (start, limit, delta)
    ]
    kinds = [str(x.dtype) for x in bounds]
    if not {*kinds} <= {*_RANGES}:
        raise DTypeError(
            f"range: expected numbers of {', '.join(_RANGES)}; received "
            f"{', '.join(kinds)}"
        )
    kind = max(kinds, key=_RANGES.index)
    # Static numbers, also in a trace: loops over them are unrolled.
    return convert(_steps(*(convert(x, kind).numpy() for x in bounds)))


_RANGES = ("int32", "int64", "float16", "bfloat16", "float32", "float64")


def _steps(start: Any, limit: Any, delta: Any) -> Array:
    """Return start + i * delta up to limit, counted and rounded in the dtype of the
    bounds."""
    if not delta or (limit - start) * np.sign(delta) < 0:
        raise ArgumentError(
            "range: expected steps that lead from start to limit; received "
            f"start={start}, limit={limit}, delta={delta}"
        )
    dtype = np.asarray(start).dtype
    if dtype.kind == "i":
        return np.arange(int(start), int(limit), int(delta)).astype(dtype)
    count = int(np.ceil(np.abs((limit - start) / delta)))
    return (start + np.arange(count).astype(dtype) * delta).astype(dtype)


def linspace(
    start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0
) -> Tensor:
    """Return `num` evenly spaced numbers from start to stop, both included."""
    start = convert(start)
    if not dtypes.is_float(start.dtype):
        start = convert(start, "float64")
    stop, dtype = convert(stop, start.dtype), start.dtype
    return ops.linspace(start, stop, int(num), dtype=dtype, axis=axis)


def one_hot(
    indices: TensorLike,
    depth: Any,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return on_value (1) at the indices and off_value (0) elsewhere; float32."""
    hot = ops.one_hot(indices, int(depth), -1 if axis is None else axis, dtype="bool")
    if dtype is None:
        values = [v for v in (on_value, off_value) if v is not None]
        dtype = convert(values[0]).dtype if values else "float32"
    on = convert(1 if on_value is None else on_value, dtype_name(dtype))
    return ops.where(hot, on, convert(off_value or 0, dtype_name(dtype)))


# --- shapes ---------------------------------------------------------------------------


def shape(
    input: TensorLike, out_type: DTypeLike | None = None, name: str | None = None
) -> Any:
    """Return the extents as an int32 tensor.

    In a traced function the result is a NumPy array: extents are static there, and can
    be used in shapes.
    """
    extents_array = np.array(convert(input).shape, dtype_name(out_type) or "int32")
    return convert(extents_array) if state.trace is None else extents_array


def size(input: Any, out_type: DTypeLike | None = None, name: str | None = None) -> Any:
    """Return the number of elements as an int32 tensor, see `shape`."""
    return shape_of_size(convert(input).size, out_type)


def rank(input: TensorLike, name: str | None = None) -> Any:
    """Return the number of axes as an int32 tensor, see `shape`."""
    return shape_of_size(convert(input).ndim, None)


def shape_of_size(number: int, out_type: Any) -> Any:
    """Return a number that depends only on shapes, in the form of `shape`."""
    result = np.array(number, dtype_name(out_type) or "int32")[()]
    return convert(result) if state.trace is None else result


def reshape(tensor: Any, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Reshape a tensor; one extent can be -1."""
    return ops.reshape(tensor, extents(shape))


def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> Tensor:
    """Combine real and imaginary parts, which broadcast, to a complex tensor."""
    (real, imag), _ = operands(real, imag)
    shape = np.broadcast_shapes(tuple(real.shape), tuple(imag.shape))
    components = [ops.broadcast_to(component, shape) for component in (real, imag)]
    return ops.view_as_complex(ops.stack(components, -1))


def bitcast(input: TensorLike, type: Any, name: str | None = None) -> Tensor:
    """Reinterpret the bits of each element in another dtype.

    A larger element becomes several, along a new last axis. Smaller elements along the
    last axis become one.

    Args:
        input: of any dtype but bool.
        type: the dtype of the result.
    """
    x, dtype = convert(input), dtype_name(type) or ""
    if "bool" in (x.dtype, dtype):
        raise DTypeError(
            f"bitcast: expected dtypes other than bool; received {x.dtype}, {dtype}"
        )
    old, new = dtypes.itemsize(str(x.dtype)), dtypes.itemsize(dtype)
    if old > new:
        return ops.view(ops.expand_dims(x, -1), dtype)
    if old == new:
        return ops.view(x, dtype)
    if not x.ndim or x.shape[-1] != new // old:
        raise ShapeError(
            f"bitcast: expected a last axis of {new // old} elements of {x.dtype} for "
            f"one of {dtype}; received shape {tuple(x.shape)}"
        )
    return ops.squeeze(ops.view(x, dtype), -1)


def timestamp(name: str | None = None) -> Tensor:
    """Return the seconds since the start of 1970, float64; in a trace, the trace
    time."""
    return convert(np.asarray(time()))


def broadcast_static_shape(shape_x: Shape, shape_y: Shape) -> TensorShape:
    """Return the broadcast shape of two shapes; None for a dynamic extent.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    x, y = TensorShape(shape_x), TensorShape(shape_y)
    wide = builtins.max(len(x), len(y))
    pairs = [((1,) * (wide - len(s)) + (*s,)) for s in (x, y)]
    result = []
    for m, n in zip(*pairs, strict=True):
        if 1 not in (m, n) and None not in (m, n) and m != n:
            raise ShapeError(f"broadcast_static_shape: {x} and {y} do not broadcast")
        static = [k for k in (m, n) if k not in (1, None)]
        result.append(static[0] if static else None if None in (m, n) else 1)
    return TensorShape(result)


def broadcast_dynamic_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> Any:
    """Return `broadcast_static_shape` as an int32 tensor, see `shape`."""
    broadcast = broadcast_static_shape(extents(shape_x), extents(shape_y))
    result = np.array(broadcast, "int32")
    return convert(result) if state.trace is None else result


def ensure_shape(x: Any, shape: Shape, name: str | None = None) -> Tensor:
    """Return x after a check of its shape; None matches any extent.

    Raises:
        ShapeError: the shape is different.
    """
    x, expected = convert(x), tuple(shape)
    fits = len(expected) == x.ndim and all(
        n in (None, m) for m, n in zip(x.shape, expected, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"ensure_shape: expected {expected}; received {tuple(x.shape)}"
        )
    return x


def transpose(
    a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None
) -> Tensor:
    """Permute the axes; reverse them if perm is None."""
    swapped = ops.transpose(a, axes(perm if perm is None else list(perm)))
    return ops.conj(swapped) if conjugate else swapped


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """Return coordinate grids from one vector per axis."""
    return ops.meshgrid(*args, indexing=indexing)


# --- join and split
# --------------------------------------------------------------------


def stack(values: Any, axis: Any = 0, name: str = "stack") -> Tensor:
    """Stack tensors of one shape along a new axis; an empty list gives float32."""
    if isinstance(values, (list, tuple)) and not values:
        return zeros((0,))
    return ops.stack(_stacked(values), int(axis))


def _stacked(values: TensorLike) -> Any:
    """Convert values to the dtype of the first tensor, if there is a tensor."""
    if isinstance(values, (list, tuple)) and any(
        isinstance(x, (Tensor, Variable)) for x in values
    ):
        return match_dtypes("stack", values)
    return values


def concat(values: Any, axis: Any, name: str | None = None) -> Tensor:
    """Concatenate tensors along an axis."""
    values = values if isinstance(values, (list, tuple)) else [values]
    return ops.concatenate(values, int(axis))


def split(
    value: Any,
    num_or_size_splits: Any,
    axis: int = 0,
    num: int | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """Split along an axis into equal parts, or into parts of the given sizes.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> [p.shape[0] for p in tf.split(tf.zeros((6, 2)), [1, 2, -1])]
        [1, 2, 3]
    """
    if not np.ndim(num_or_size_splits):
        return ops.split(value, int(num_or_size_splits), int(axis))
    sizes = list(extents(num_or_size_splits))
    extent = convert(value).shape[int(axis)]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = extent - sum(sizes) - 1
    if sum(sizes) != extent or (num is not None and num != len(sizes)):
        raise ShapeError(
            f"split: expected sizes that add up to {extent}; received {sizes}"
        )
    return ops.split(value, list(accumulate(sizes))[:-1], int(axis))


make_operations(__name__, besides="broadcast_static_shape is_tensor")
