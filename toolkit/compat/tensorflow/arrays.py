"""Making, joining and cutting tensors."""

from __future__ import annotations

import builtins
from itertools import accumulate
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import as_array, axes, dtype_name, extents
from toolkit.compat.tensorflow.boundary import operations
from toolkit.compat.tensorflow.renaming import functions
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.views import convert
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ShapeError

globals().update(
    functions(
        {
            "broadcast_to": (ops.broadcast_to, "input shape"),
            "cast": (ops.cast, "x dtype"),
            "expand_dims": (ops.expand_dims, "input axis"),
            "bitcast": (ops.view, "input type"),
            "identity": (ops.copy, "input"),
            "repeat": (ops.repeat, "input repeats axis"),
            "reverse": (ops.flip, "tensor axis"),
            "roll": (ops.roll, "input shift axis"),
            "saturate_cast": (ops.saturate_cast, "value dtype"),
            "squeeze": (ops.squeeze, "input axis"),
            "stack": (ops.stack, "values axis"),
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
        shape: what the value is reshaped to; one number fills it.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.constant(7, shape=(2, 2)).numpy().tolist()
        [[7, 7], [7, 7]]
    """
    if is_string(value):
        return StringTensor(value)
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
        dtype = dtype_hint
    return constant(value, dtype)


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor or a Variable."""
    return ops.is_tensor(x) or hasattr(x, "assign_add")


def zeros(shape: Any, dtype: Any = "float32", name: Any = None) -> Tensor:
    """Zeros."""
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
    one = ops.eye(
        int(num_rows),
        None if num_columns is None else int(num_columns),
        dtype=dtype_name(dtype),
    )
    return ops.broadcast_to(one, (*extents(batch_shape or ()), *one.shape))


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: Any = None
) -> Tensor:
    """The numbers from start to limit, or from 0 to start, in steps of delta.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.range(3, 18, 5).numpy().tolist()
        [3, 8, 13]
    """
    if limit is None:
        start, limit = 0, start
    bounds = [convert(bound, dtype_name(dtype)) for bound in (start, limit, delta)]
    # Known numbers, also in a trace: loops over them are unrolled.
    found = np.arange(*(bound.numpy().item() for bound in bounds))
    kinds = [bound.dtype for bound in bounds]
    order = ("int32", "int64", "float16", "bfloat16", "float32", "float64")
    return convert(found.astype(dtypes.numpy_dtype(max(kinds, key=order.index))))


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
    """A complex tensor of its real and imaginary parts."""
    return ops.view_as_complex(ops.stack([convert(real), convert(imag)], -1))


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


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: Any = 0,
    name: Any = None,
) -> Tensor:
    """Values around a tensor: constant ones, or its own, reflected or symmetric."""
    widths = [tuple(map(int, pair)) for pair in np.asarray(paddings)]
    if mode.upper() != "CONSTANT":
        return ops.pad(tensor, widths, mode.lower())
    return ops.pad(tensor, widths, constant_values=constant_values)


def slice(input_: Any, begin: Any, size: Any, name: Any = None) -> Tensor:
    """A box of a size from where it begins; a size of -1 takes all that is left."""
    x, begin = convert(input_), extents(begin)
    pairs = zip(begin, extents(size), x.shape, strict=True)
    return x[tuple(builtins.slice(b, n if s == -1 else b + s) for b, s, n in pairs)]


def boolean_mask(
    tensor: Any, mask: Any, axis: int | None = None, name: Any = None
) -> Tensor:
    """The parts of a tensor where a mask over its axes, from `axis` on, is true."""
    tensor, mask, axis = convert(tensor), np.asarray(mask, bool), int(axis or 0)
    before, after = tensor.shape[:axis], tensor.shape[axis + mask.ndim :]
    if tensor.shape[axis : axis + mask.ndim] != mask.shape:
        raise ShapeError(
            f"boolean_mask: expected a mask of the extents of {tuple(tensor.shape)} "
            f"from axis {axis} on; received {mask.shape}"
        )
    flat = ops.reshape(tensor, (*before, mask.size, *after))
    return ops.take(flat, np.flatnonzero(mask), axis)


operations(__name__, besides="is_tensor")
