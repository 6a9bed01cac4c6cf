"""Direct calls of NumPy's functions, for small arrays whose specs are known.

A kernel chooses among several ways by the sizes and the dtypes of its arrays. These
calls are the end of its way for small arrays. They have the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array.common import CHUNK, HALVES, WIDE
from toolkit.backends.array.reduce import has_short_rows
from toolkit.backends.array.shape import slices_of
from toolkit.backends.kernels import Attributes, DirectCall, Kernel
from toolkit.backends.numpy.array_calls import (
    broadcast_call,
    pad_call,
    transform_call,
)
from toolkit.backends.numpy.window_calls import (
    conv_call,
    conv_input_grad_call,
    conv_kernel_grad_call,
    pool_call,
)
from toolkit.ir import Primitive, Spec

Array = Any
# Elements up to which NumPy needs one call for `where`, `argmax` and `argmin`.
_MAX_SELECTED, _MAX_SEARCHED = 1024, 2048
_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
    "cumsum": np.add,
    "cumprod": np.multiply,
}


def direct_call(
    primitive: Primitive,
    kernel: Kernel,
    specs: Sequence[Spec],
    attrs: Attributes,
    used: Sequence[bool],
) -> DirectCall | None:
    """Return the calls of NumPy that a kernel makes for small operands.

    Args:
        primitive: the primitive of the kernel.
        kernel: the kernel.
        specs: the specs of the operands.
        attrs: the attributes of the call.
        used: whether a result is used, for each result.

    Returns:
        The calls; None if the kernel is as fast.
    """
    if primitive.name in _CONVOLUTIONS:
        return _CONVOLUTIONS[primitive.name](kernel, specs, attrs)
    if primitive.name in ("max_pool", "sum_pool"):
        return pool_call(primitive.name, specs, attrs, used)
    rule = _RULES.get(primitive.name)
    return rule and rule(primitive.name, specs, attrs)


def _sum(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    (x,) = specs
    if x.size >= WIDE or x.dtype in HALVES:
        return None
    return _reduction(name, attrs, dtypes.numpy_dtype(x.dtype))


def _extreme(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    (x,) = specs
    if x.size >= WIDE or x.dtype in HALVES or has_short_rows(x, attrs["axis"]):
        return None
    return _reduction(name, attrs)


def _test(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall:
    return _reduction(name, attrs)


def _reduction(name: str, attrs: Attributes, dtype: object = None) -> DirectCall:
    axis = attrs["axis"]
    if len(axis) == 1:
        (axis,) = axis
    # Arguments by position are faster.
    options = (None, True) if attrs["keepdims"] else ()
    return DirectCall(_UFUNCS[name].reduce, (axis, dtype, *options))


def _scan(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    (x,) = specs
    if x.size >= WIDE or x.dtype in HALVES:
        return None
    dtype, axis = dtypes.numpy_dtype(x.dtype), attrs["axis"]
    accumulate = _UFUNCS[name].accumulate
    if not attrs["reverse"]:
        return DirectCall(accumulate, (axis, dtype))
    shape, backwards = x.shape, (*[slice(None)] * axis, slice(None, None, -1))

    def call(x: Array) -> Array:
        y = np.empty(shape, dtype)
        accumulate(x[backwards], axis, dtype, y[backwards])
        return y

    return DirectCall(call)


def _position(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    if specs[0].size > _MAX_SEARCHED or not specs[0].ndim:
        return None
    find: Kernel = np.ndarray.argmax if name == "argmax" else np.ndarray.argmin
    if attrs["keepdims"]:
        find = partial(find, keepdims=True)
    int32 = np.dtype("int32")

    def call(x: Array, axis: int) -> Array:
        return find(x, axis).astype(int32)

    return DirectCall(call, (attrs["axis"],))


def _where(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    is_small = max(x.size for x in specs) <= _MAX_SELECTED
    return DirectCall(np.where) if is_small else None


def _cast(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    (x,) = specs
    # A 0-d result of NumPy is a scalar, and not an array.
    if dtypes.is_complex(x.dtype) or not x.ndim:
        return None
    return DirectCall(np.ndarray.astype, (dtypes.numpy_dtype(attrs["dtype"]),))


def _round(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    return DirectCall(np.rint) if dtypes.is_float(specs[0].dtype) else None


def _is_small_float(x: Spec) -> bool:
    """Return whether the kernel of a float function has one chunk of its own dtype."""
    return x.size <= CHUNK and x.dtype in ("float32", "float64") and x.ndim > 0


def _sigmoid(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    if not _is_small_float(specs[0]):
        return None

    def call(x: Array) -> Array:
        y = np.negative(x)
        np.exp(y, y)
        np.add(y, 1.0, y)
        return np.reciprocal(y, y)

    return DirectCall(call)


def _rsqrt(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    if not _is_small_float(specs[0]):
        return None

    def call(x: Array) -> Array:
        y = np.sqrt(x)
        return np.reciprocal(y, y)

    return DirectCall(call)


def _view(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    if not specs[0].ndim:
        return None
    if name == "reshape":
        return DirectCall(np.ndarray.reshape, (attrs["shape"],))
    if name == "transpose":
        return DirectCall(np.ndarray.transpose, (attrs["axes"],))
    return DirectCall(
        getitem, (slices_of(attrs["start"], attrs["stop"], attrs["step"]),)
    )


_CONVOLUTIONS = {
    "conv": conv_call,
    "conv_input_grad": conv_input_grad_call,
    "conv_kernel_grad": conv_kernel_grad_call,
}
_Rule = Callable[[str, Sequence[Spec], Attributes], DirectCall | None]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("sum", "prod"), _sum),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("any", "all"), _test),
    **dict.fromkeys(("cumsum", "cumprod"), _scan),
    **dict.fromkeys(("argmax", "argmin"), _position),
    **dict.fromkeys(("reshape", "transpose", "slice"), _view),
    **dict.fromkeys(("dft", "rdft", "irdft"), transform_call),
    "pad": pad_call,
    "broadcast_to": broadcast_call,
    "where": _where,
    "cast": _cast,
    "round": _round,
    "sigmoid": _sigmoid,
    "rsqrt": _rsqrt,
}
