"""Windows of `tf.signal`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import DTypeLike, TensorLike


def _window(name: str, at_zero: float) -> Callable[..., Tensor]:
    """Create the window function at_zero - (1 - at_zero) * cos(2 pi n / period)."""

    def window(
        window_length: Any,
        periodic: bool = True,
        dtype: DTypeLike = "float32",
        name: str | None = None,
    ) -> Tensor:
        count = int(window_length)
        # As in TensorFlow, an odd window is equal for periodic True and False.
        period = count if periodic and count % 2 == 0 else count - 1
        angles = 2 * np.pi * np.arange(count) / max(period, 1)
        values = at_zero - (1 - at_zero) * np.cos(angles)
        return convert(values if count > 1 else np.ones(count), dtype_name(dtype))

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"Return the {name.replace('_', ' ')}."
    return window


hann_window: Callable[..., Any] = _window("hann_window", 0.5)
hamming_window: Callable[..., Any] = _window("hamming_window", 0.54)


def _kaiser(count: int, beta: TensorLike, dtype: Any) -> Tensor:
    """Return the window in the dtype."""
    if count < 1:
        raise ArgumentError(f"kaiser_window: expected a length >= 1; received {count}")
    dtype = dtype_name(dtype)
    if count == 1:
        return ops.ones((1,), dtype)
    beta = convert(beta, "float64")
    positions = 2 * np.arange(count) / (count - 1) - 1
    values = ops.i0e(beta * convert(np.sqrt(1 - positions**2))) / ops.i0e(beta)
    growth = ops.exp(ops.abs(beta) * convert(np.sqrt(1 - positions**2) - 1))
    return convert(values * growth, dtype)


def kaiser_window(
    window_length: Any,
    beta: Any = 12.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Return the Kaiser window; a larger beta gives a narrower window."""
    return _kaiser(int(window_length), beta, dtype)


def kaiser_bessel_derived_window(
    window_length: Any,
    beta: TensorLike = 12.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Return the window w with w[n] ** 2 + w[n + half] ** 2 = 1.

    An odd length is rounded down.
    """
    half = int(window_length) // 2
    kaiser = ops.cumsum(_kaiser(half + 1, beta, "float64"))
    rise = ops.sqrt(kaiser[:-1] / kaiser[-1])
    return convert(ops.concatenate([rise, ops.flip(rise, 0)]), dtype_name(dtype))


def vorbis_window(
    window_length: Any, dtype: DTypeLike = "float32", name: str | None = None
) -> Tensor:
    """Return the power complementary window of Vorbis."""
    count = int(window_length)
    sines = np.sin(np.pi / count * (np.arange(count) + 0.5))
    return convert(np.sin(np.pi / 2 * sines**2), dtype_name(dtype))


make_operations(__name__)
