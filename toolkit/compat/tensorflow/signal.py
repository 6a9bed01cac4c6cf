"""`tf.signal`: Fourier transforms of complex tensors, frames and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import operations
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor


def _parts(x: Any) -> tuple[Tensor, Tensor]:
    """The real and the imaginary part, as the core's transforms take them."""
    x = convert(x)
    return ops.real(x), ops.imag(x) if dtypes.is_complex(x.dtype) else ops.zeros_like(x)


def _complex(parts: tuple[Tensor, Tensor]) -> Tensor:
    return ops.view_as_complex(ops.stack(parts, -1))


def fft(input: Any, name: Any = None) -> Tensor:
    """The Fourier transform over the last axis."""
    return _complex(ops.fft(_parts(input)))


def ifft(input: Any, name: Any = None) -> Tensor:
    """The inverse of `fft`."""
    real, imag = _parts(input)
    count = real.shape[-1]
    real, imag = ops.fft((real, ops.negative(imag)))
    return _complex((real / count, ops.negative(imag) / count))


def fft2d(input: Any, name: Any = None) -> Tensor:
    """The Fourier transform over the last two axes."""
    return _complex(ops.fft2(_parts(input)))


def ifft2d(input: Any, name: Any = None) -> Tensor:
    """The inverse of `fft2d`."""
    return _complex(ops.ifft2(_parts(input)))


def _length(fft_length: Any) -> int | None:
    return None if fft_length is None else int(np.asarray(fft_length).ravel()[-1])


def rfft(input_tensor: Any, fft_length: Any = None, name: Any = None) -> Tensor:
    """The first half of the transform of real numbers, zeros after or cut off."""
    return _complex(ops.rfft(input_tensor, _length(fft_length)))


def irfft(input_tensor: Any, fft_length: Any = None, name: Any = None) -> Tensor:
    """The inverse of `rfft`."""
    return ops.irfft(_parts(input_tensor), _length(fft_length))


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: Any = None,
) -> Tensor:
    """Windows of a length along an axis, each a step further."""
    x, length, step = convert(signal), int(frame_length), int(frame_step)
    axis = axis % x.ndim
    count = x.shape[axis]
    frames = -(-count // step) if pad_end else max(0, (count - length) // step + 1)
    missing = max(0, (frames - 1) * step + length - count) if pad_end else 0
    if missing:
        widths = [(0, missing if n == axis else 0) for n in range(x.ndim)]
        x = ops.pad(x, widths, constant_values=pad_value)
    places = np.arange(frames)[:, None] * step + np.arange(length)
    return ops.take(x, places, axis)


def _window(name: str, at_zero: float) -> Callable[..., Tensor]:
    """at_zero - (1 - at_zero) * cos(2 pi n / N), N the length of a period."""

    def window(
        window_length: Any,
        periodic: bool = True,
        dtype: Any = "float32",
        name: Any = None,
    ) -> Tensor:
        count = int(window_length)
        # As there, an odd window is the same, periodic or not.
        period = count if periodic and count % 2 == 0 else count - 1
        angles = 2 * np.pi * np.arange(count) / max(period, 1)
        values = at_zero - (1 - at_zero) * np.cos(angles)
        return convert(values if count > 1 else np.ones(count), dtype_name(dtype))

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"The {name.replace('_', ' ')}."
    return window


hann_window: Callable[..., Any] = _window("hann_window", 0.5)
hamming_window: Callable[..., Any] = _window("hamming_window", 0.54)


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Any = hann_window,
    pad_end: bool = False,
    name: Any = None,
) -> Tensor:
    """The transform of each frame, of a power of two by default, under a window."""
    length = int(frame_length)
    if fft_length is None:
        fft_length = 1 << (length - 1).bit_length()
    frames = frame(signals, length, frame_step, pad_end)
    if window_fn is not None:
        frames = frames * window_fn(length, dtype=frames.dtype)
    return rfft(frames, [int(fft_length)])


operations(__name__)
