"""Making, joining and cutting tensors."""

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
from toolkit.compat.tensorflow.boundary import operations
from toolkit.compat.tensorflow.operators import match_dtypes
from toolkit.compat.tensorflow.renaming import functions
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.compat.tensorflow.views import convert
from toolkit.core.convert import operands
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, DTypeError, ShapeError

globals().update(
    functions(
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


# --- making ---------------------------------------------------------------------------


def constant(
    value: Any, dtype: Any = None, shape: Any = None, name: str = "Const"
) -> Any:
    """A tensor of the given numbers, or strings.

    Args:
        value: a number, an array, nested lists, or strings.
        dtype: float32, int32 or bool by default, or that of an array.
        shape: what the value is reshaped to; one number or string fills it.

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
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: Any = None
) -> Any:
    """The value as a tensor; `dtype_hint` is used where the value has no dtype."""
    if dtype is None and not hasattr(value, "dtype"):
        try:
            return constant(value, dtype_hint)
        except DTypeError:
            pass  # a hint is no demand
    return constant(value, dtype)


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor, also a ragged or a sparse one, or a Variable."""
    is_composite = getattr(x, "is_composite", False)
    return is_composite or ops.is_tensor(x) or hasattr(x, "assign_add")


def zeros(shape: Any, dtype: Any = "float32", name: Any = None) -> Any:
    """Zeros, or empty strings."""
    if dtype_name(dtype) == dtypes.STRING:
        return StringTensor(np.full(extents(shape), b"", object))
    return ops.zeros(extents(shape), dtype_name(dtype))


def ones(shape: Any, dtype: Any = "float32", name: Any = None) -> Tensor:
    """Ones."""
    return ops.ones(extents(shape), dtype_name(dtype))


def fill(dims: Any, value: Any, name: Any = None) -> Tensor:
    """A tensor of one value, in its dtype."""
    return ops.broadcast_to(convert(value), extents(dims))


def zeros_like(input: Any, dtype: Any = None, name: Any = None) -> Tensor:
    """Zeros of the shape of `input`."""
    return ops.zeros_like(input, dtype_name(dtype))


def ones_like(input: Any, dtype: Any = None, name: Any = None) -> Tensor:
    """Ones of the shape of `input`."""
    return ops.ones_like(input, dtype_name(dtype))


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = "float32",
    name: Any = None,
) -> Tensor:
    """Ones on the diagonal of a matrix, or of each of a batch."""
    sizes = extents((num_rows, num_rows if num_columns is None else num_columns))
    if min(sizes) < 0:
        raise ArgumentError(f"eye: expected extents of 0 or more; received {sizes}")
    one = ops.eye(sizes[0], sizes[1], dtype=dtype_name(dtype))
    return ops.broadcast_to(one, (*extents(batch_shape or ()), *one.shape))


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: Any = None
) -> Tensor:
    """The numbers from start to limit, or from 0 to start, in steps of delta.

    How many there are is counted in the dtype, as there: a rounded step of floats adds
    none at the end.

    Args:
        start, limit, delta: numbers, or 0-d tensors whose values are known; steps must
            lead from start to limit, or there are none.
        dtype: the widest of the given ones if None.

    Raises:
        ArgumentError: delta is 0, or leads away from limit.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.range(3, 18, 5).numpy().tolist()
        [3, 8, 13]
    """
    if limit is None:
        start, limit = 0, start
    given = [
        convert(as_array(fitting(x, dtype, "range")), dtype_name(dtype))
        for x in (start, limit, delta)
    ]
    kinds = [str(x.dtype) for x in given]
    if not {*kinds} <= {*_RANGES}:
        raise DTypeError(
            f"range: expected numbers of {', '.join(_RANGES)}; received "
            f"{', '.join(kinds)}"
        )
    kind = max(kinds, key=_RANGES.index)
    # Known numbers, also in a trace: loops over them are unrolled.
    return convert(_steps(*(convert(x, kind).numpy() for x in given)))


_RANGES = ("int32", "int64", "float16", "bfloat16", "float32", "float64")


def _steps(start: Any, limit: Any, delta: Any) -> np.ndarray[Any, Any]:
    """start + i * delta up to limit, counted and rounded in the dtype of the bounds."""
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
    start: Any, stop: Any, num: Any, name: Any = None, axis: int = 0
) -> Tensor:
    """`num` evenly spaced numbers from start to stop, both included."""
    start = convert(start)
    if not dtypes.is_float(start.dtype):
        start = convert(start, "float64")
    stop, dtype = convert(stop, start.dtype), start.dtype
    return ops.linspace(start, stop, int(num), dtype=dtype, axis=axis)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: Any = None,
) -> Tensor:
    """on_value (1) where an index says so, off_value (0) elsewhere; float32."""
    hot = ops.one_hot(indices, int(depth), -1 if axis is None else axis, dtype="bool")
    if dtype is None:
        given = [v for v in (on_value, off_value) if v is not None]
        dtype = convert(given[0]).dtype if given else "float32"
    on = convert(1 if on_value is None else on_value, dtype_name(dtype))
    return ops.where(hot, on, convert(off_value or 0, dtype_name(dtype)))


# --- shapes ---------------------------------------------------------------------------


def shape(input: Any, out_type: Any = None, name: Any = None) -> Any:
    """The extents as an int32 tensor.

    Inside of a traced function it is a NumPy array: extents are known there, and can
    be used in shapes.
    """
    found = np.array(convert(input).shape, dtype_name(out_type) or "int32")
    return convert(found) if state.trace is None else found


def size(input: Any, out_type: Any = None, name: Any = None) -> Any:
    """The number of elements, an int32 tensor, as `shape` returns it."""
    return shape_of_size(convert(input).size, out_type)


def rank(input: Any, name: Any = None) -> Any:
    """The number of axes, an int32 tensor, as `shape` returns it."""
    return shape_of_size(convert(input).ndim, None)


def shape_of_size(number: int, out_type: Any) -> Any:
    """A number known from shapes, as `shape` returns them."""
    found = np.array(number, dtype_name(out_type) or "int32")[()]
    return convert(found) if state.trace is None else found


def reshape(tensor: Any, shape: Any, name: Any = None) -> Tensor:
    """The same elements in another shape; one extent may be -1."""
    return ops.reshape(tensor, extents(shape))


def complex(real: Any, imag: Any, name: Any = None) -> Tensor:
    """A complex tensor of its real and imaginary parts, which broadcast."""
    (real, imag), _ = operands(real, imag)
    shape = np.broadcast_shapes(tuple(real.shape), tuple(imag.shape))
    parts = [ops.broadcast_to(part, shape) for part in (real, imag)]
    return ops.view_as_complex(ops.stack(parts, -1))


def bitcast(input: Any, type: Any, name: Any = None) -> Tensor:
    """The bits of each element as one of another dtype.

    A larger element becomes several, along a new last axis; of smaller ones, those
    along the last axis become one.

    Args:
        input: of any dtype but bool.
        type: that of the result.
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


def timestamp(name: Any = None) -> Tensor:
    """The seconds since the beginning of 1970, float64; in a trace, of the trace."""
    return convert(np.asarray(time()))


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """The shape that two shapes have together, None where it is unknown.

    Raises:
        ShapeError: they do not go together.
    """
    x, y = TensorShape(shape_x), TensorShape(shape_y)
    wide = builtins.max(len(x), len(y))
    pairs = [((1,) * (wide - len(s)) + (*s,)) for s in (x, y)]
    found = []
    for m, n in zip(*pairs, strict=True):
        if 1 not in (m, n) and None not in (m, n) and m != n:
            raise ShapeError(f"broadcast_static_shape: {x} and {y} do not go together")
        known = [k for k in (m, n) if k not in (1, None)]
        found.append(known[0] if known else None if None in (m, n) else 1)
    return TensorShape(found)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Any:
    """`broadcast_static_shape` as an int32 tensor, as `shape` returns it."""
    both = broadcast_static_shape(extents(shape_x), extents(shape_y))
    found = np.array(both, "int32")
    return convert(found) if state.trace is None else found


def ensure_shape(x: Any, shape: Any, name: Any = None) -> Tensor:
    """x, if it has this shape; None fits any extent.

    Raises:
        ShapeError: it has another one.
    """
    x, wanted = convert(x), tuple(shape)
    fits = len(wanted) == x.ndim and all(
        n in (None, m) for m, n in zip(x.shape, wanted, strict=True)
    )
    if not fits:
        raise ShapeError(f"ensure_shape: expected {wanted}; received {tuple(x.shape)}")
    return x


def transpose(
    a: Any, perm: Any = None, conjugate: bool = False, name: Any = None
) -> Tensor:
    """The axes in another order, reversed if perm is None."""
    swapped = ops.transpose(a, axes(perm if perm is None else list(perm)))
    return ops.conj(swapped) if conjugate else swapped


def meshgrid(*args: Any, indexing: str = "xy", name: Any = None) -> list[Tensor]:
    """Grids of coordinates from one vector for each axis."""
    return ops.meshgrid(*args, indexing=indexing)


# --- joining and cutting --------------------------------------------------------------


def stack(values: Any, axis: Any = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape along a new axis; float32 of none."""
    if isinstance(values, (list, tuple)) and not values:
        return zeros((0,))
    return ops.stack(_stacked(values), int(axis))


def _stacked(values: Any) -> Any:
    """Tensors of one dtype: the dtype of the first tensor, if there is a tensor."""
    if isinstance(values, (list, tuple)) and any(
        isinstance(x, (Tensor, Variable)) for x in values
    ):
        return match_dtypes("stack", values)
    return values


def concat(values: Any, axis: Any, name: Any = None) -> Tensor:
    """Tensors one after the other along an axis."""
    values = values if isinstance(values, (list, tuple)) else [values]
    return ops.concatenate(values, int(axis))


def split(
    value: Any,
    num_or_size_splits: Any,
    axis: Any = 0,
    num: int | None = None,
    name: Any = None,
) -> list[Tensor]:
    """Equal parts along an axis, or parts of the sizes that a list gives.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> [p.shape[0] for p in tf.split(tf.zeros((6, 2)), [1, 2, -1])]
        [1, 2, 3]
    """
    if not np.ndim(num_or_size_splits):
        return ops.split(value, int(num_or_size_splits), int(axis))
    sizes = list(extents(num_or_size_splits))
    whole = convert(value).shape[int(axis)]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = whole - sum(sizes) - 1
    if sum(sizes) != whole or (num is not None and num != len(sizes)):
        raise ShapeError(
            f"split: expected sizes that add up to {whole}; received {sizes}"
        )
    return ops.split(value, list(accumulate(sizes))[:-1], int(axis))


operations(__name__, besides="broadcast_static_shape is_tensor")
