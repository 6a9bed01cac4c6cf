"""Elementwise kernels, rendered from each primitive's scalar rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Kernel
from toolkit.backends.reference.common import deliver, upcast
from toolkit.ir import PRIMITIVES, Spec

Array = Any
_SAME_NAME = (
    "negative exp expm1 log log1p sqrt sin cos tan sinh cosh tanh arcsin arccos arctan "
    "arcsinh arccosh arctanh arctan2 sign floor ceil trunc isnan isinf isfinite add "
    "subtract multiply divide floor_divide remainder power maximum minimum equal "
    "not_equal less less_equal logical_not logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()


def _erfinv(y: float) -> float:
    """A normal quantile, then Newton's method on erf, or on erfc near the ends."""
    if math.isnan(y) or abs(y) > 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    tail = (1 - abs(y)) / 2
    x = -NormalDist().inv_cdf(tail) / math.sqrt(2)
    for _ in range(3):
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        central = abs(y) < 0.5
        wrong = math.erf(x) - abs(y) if central else 2 * tail - math.erfc(x)
        x -= wrong / slope
    return math.copysign(x, y)


class NumPyScalars:
    """The scalar vocabulary on whole arrays: a method for each primitive."""

    def __getattr__(self, name: str) -> Callable[..., Array]:
        if name in _SAME_NAME:
            return getattr(np, name)  # type: ignore[no-any-return]
        raise AttributeError(f"the scalar vocabulary has no {name!r}")

    def const(self, value: Any, like: Array) -> Array:
        """A constant of the dtype of `like`."""
        return np.asarray(value, np.asarray(like).dtype)

    def select(self, c: Array, a: Array, b: Array) -> Array:
        return np.where(c, a, b)

    def where(self, c: Array, a: Array, b: Array) -> Array:
        return np.where(c, a, b)

    def cast(self, x: Array, dtype: str) -> Array:
        return np.asarray(x).astype(dtypes.numpy_dtype(dtype))

    def stop_gradient(self, x: Array) -> Array:
        return x

    def abs(self, x: Array) -> Array:
        return np.absolute(x)

    def bitwise_not(self, x: Array) -> Array:
        return np.invert(x)

    def round(self, x: Array) -> Array:
        return np.rint(x).astype(np.asarray(x).dtype)

    def rsqrt(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def sigmoid(self, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def erf(self, x: Array) -> Array:
        return np.vectorize(math.erf, [np.float64])(x).astype(np.asarray(x).dtype)

    def erfinv(self, x: Array) -> Array:
        return np.vectorize(_erfinv, [np.float64])(x).astype(np.asarray(x).dtype)


def names() -> list[str]:
    """The elementwise primitives: the vocabulary but for constants and choices."""
    methods = {name for name in vars(NumPyScalars) if not name.startswith("_")}
    return sorted({*_SAME_NAME, *methods} - {"const", "select"})


def elementwise_kernel(name: str) -> Kernel:
    """The kernel that evaluates a primitive's scalar rule on whole arrays."""

    def kernel(*arrays: Array, out: Array | None = None, **attrs: Any) -> Array:
        record = PRIMITIVES[name]
        specs = (Spec(a.shape, dtypes.name_of(a.dtype)) for a in arrays)
        dtype = dtypes.numpy_dtype(record.spec(*specs, **attrs).dtype)
        assert record.scalar is not None
        result = record.scalar(NumPyScalars(), *map(upcast, arrays), **attrs)
        return deliver(np.asarray(result).astype(dtype), out)

    return kernel
