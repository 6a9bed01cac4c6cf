"""Direct calls of NumPy for padding, broadcasts and Fourier transforms of few elements.

The kernels look up shapes and dtypes in each call, and a transform also holds the lock
of the threads of OpenBLAS. These calls know the specs, and have the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array.common import HALVES
from toolkit.backends.kernels import Attributes, DirectCall
from toolkit.ir import Spec
from toolkit.plans.operands import contiguous

Array = Any
# Elements up to which a new array with one value takes less time than writes of edges.
_MAX_PADDED = 1 << 12


def pad_call(name: str, specs: Sequence[Spec], attrs: Attributes) -> DirectCall | None:
    """Return the steps of a padding; None for a large one.

    Args:
        name: the primitive.
        specs: the specs of the operands.
        attrs: the attributes of the call.
    """
    (x,), widths, value = specs, attrs["widths"], attrs["value"]
    if any(low < 0 or high < 0 for low, high in widths):
        return None
    shape = tuple(
        low + n + high for n, (low, high) in zip(x.shape, widths, strict=True)
    )
    if prod(shape) > _MAX_PADDED or not x.ndim:
        return None
    box = tuple(
        slice(low, low + n) for n, (low, _) in zip(x.shape, widths, strict=True)
    )
    dtype = dtypes.numpy_dtype(x.dtype)
    edges = np.full((), value, dtype)
    if not any(edges.tobytes()):

        def call(x: Array) -> Array:
            y = np.zeros(shape, dtype)
            y[box] = x
            return y

        return DirectCall(call)

    def call_with_value(x: Array) -> Array:
        y = np.empty(shape, dtype)
        y.fill(edges)
        y[box] = x
        return y

    return DirectCall(call_with_value)


def broadcast_call(
    name: str, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall | None:
    """Return the call that creates a view with repeated axes, for contiguous arrays.

    Args:
        name: the primitive.
        specs: the specs of the operands.
        attrs: the attributes of the call.
    """
    (x,), shape = specs, attrs["shape"]
    dtype, expected = dtypes.numpy_dtype(x.dtype), contiguous(x).strides
    leading = len(shape) - x.ndim
    repeated = zip(x.shape, shape[leading:], expected, strict=True)
    strides = (0,) * leading + tuple(step if n == m else 0 for n, m, step in repeated)
    if not x.size or not prod(shape):
        return None
    ndarray, broadcast_to = np.ndarray, np.broadcast_to

    def call(x: Array) -> Array:
        if type(x) is not ndarray or x.strides != expected:
            return broadcast_to(x, shape)
        y = ndarray(shape, dtype, x, 0, strides)
        y.setflags(write=False)  # elements share their memory
        return y

    return DirectCall(call)


def transform_call(
    name: str, specs: Sequence[Spec], attrs: Attributes
) -> DirectCall | None:
    """Return the steps of a Fourier transform.

    Args:
        name: the primitive: "dft", "rdft" or "irdft".
        specs: the specs of the operands.
        attrs: the attributes of the call.
    """
    x = specs[0]
    if x.dtype in HALVES:
        return None
    dtype, shape = dtypes.numpy_dtype(x.dtype), x.shape
    wide = np.dtype("complex128" if x.dtype == "float64" else "complex64")
    fft, ifft, rfft, irfft = np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft
    if name == "rdft":

        def transform_reals(x: Array) -> tuple[Array, Array]:
            y = rfft(x)
            return y.real.astype(dtype, copy=False), y.imag.astype(dtype, copy=False)

        return DirectCall(transform_reals)
    if name == "irdft":
        length = attrs["length"]
        twice = (..., slice(1, (length + 1) // 2))

        def invert_reals(real: Array, imag: Array) -> Array:
            x = np.empty(shape, wide)
            x.real, x.imag = real, imag
            x[twice] /= 2
            return irfft(x, length, -1, "forward").astype(dtype, copy=False)

        return DirectCall(invert_reals)
    axis, is_inverse = attrs["axis"], attrs["inverse"]

    def transform(real: Array, imag: Array) -> tuple[Array, Array]:
        x = np.empty(shape, wide)
        x.real, x.imag = real, imag
        y = ifft(x, None, axis, "forward") if is_inverse else fft(x, None, axis)
        return y.real.astype(dtype, copy=False), y.imag.astype(dtype, copy=False)

    return DirectCall(transform)
