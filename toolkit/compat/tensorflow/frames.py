"""Frames of `tf.signal`: extraction, transform, and overlap-add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.windows import hann_window
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.fourier import overlap_add
from toolkit.type_aliases import DTypeLike, TensorLike


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Return frames of a length along an axis, whose starts differ by a step."""
    x, length, step = convert(signal), int(frame_length), int(frame_step)
    axis = axis % x.ndim
    count = x.shape[axis]
    frames = -(-count // step) if pad_end else max(0, (count - length) // step + 1)
    padding = max(0, (frames - 1) * step + length - count) if pad_end else 0
    if padding:
        widths = [(0, padding if n == axis else 0) for n in range(x.ndim)]
        x = ops.pad(x, widths, constant_values=pad_value)
    indices = np.arange(frames)[:, None] * step + np.arange(length)
    return ops.take(x, indices, axis)


def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Tensor:
    """Add overlapping frames, whose starts differ by a step.

    Args:
        signal: (..., frames, frame_length).
        frame_step: the number of samples between the starts of frames.

    Returns:
        (..., samples) with samples = (frames - 1) * frame_step + frame_length.
    """
    x, step = convert(signal), int(frame_step)
    if x.ndim < 2 or step < 1:
        raise ShapeError(
            "overlap_and_add: expected (..., frames, frame_length) and a step >= 1; "
            f"received shape {tuple(x.shape)} and {step}"
        )
    if not x.shape[-2]:
        raise ShapeError("overlap_and_add: expected at least one frame; received none")
    return overlap_add(x, step)


def _power_of_2(length: int) -> int:
    return 1 << (length - 1).bit_length()


def stft(
    signals: TensorLike,
    frame_length: Any,
    frame_step: TensorLike,
    fft_length: Any = None,
    window_fn: Any = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the Fourier transform of each windowed frame.

    fft_length is the next power of two by default.
    """
    length = int(frame_length)
    frames = frame(signals, length, frame_step, pad_end)
    if window_fn is not None:
        frames = frames * window_fn(length, dtype=frames.dtype)
    count = _power_of_2(length) if fft_length is None else int(fft_length)
    return ops.view_as_complex(ops.stack(ops.rfft(frames, count), -1))


def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: TensorLike,
    fft_length: Any = None,
    window_fn: Any = hann_window,
    name: str | None = None,
) -> Tensor:
    """Return the signal of an `stft`, as far as the windows allow.

    Args:
        stfts: (..., frames, fft_length // 2 + 1), complex.
        frame_length, frame_step, fft_length: as in `stft`.
        window_fn: `inverse_stft_window_fn(frame_step)` reconstructs the signal exactly.

    Returns:
        (..., samples), real.
    """
    x, length = convert(stfts), int(frame_length)
    if not dtypes.is_complex(x.dtype):
        raise ArgumentError(f"inverse_stft: expected complex stfts; received {x.dtype}")
    count = _power_of_2(length) if fft_length is None else int(fft_length)
    frames = ops.irfft((ops.real(x), ops.imag(x)), count)
    if count > length:
        frames = frames[..., :length]
    elif count < length:
        frames = ops.pad(frames, [(0, 0)] * (x.ndim - 1) + [(0, length - count)])
    if window_fn is not None:
        frames = frames * window_fn(length, dtype=frames.dtype)
    return overlap_and_add(frames, frame_step)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Any = hann_window, name: str | None = None
) -> Callable[..., Tensor]:
    """Return the window function with which `inverse_stft` inverts `stft`.

    Args:
        frame_step: as in `stft`.
        forward_window_fn: the window function of `stft`.
    """
    step = int(frame_step)

    def inverse_window(frame_length: Any, dtype: DTypeLike = "float32") -> Tensor:
        length = int(frame_length)
        window = convert(forward_window_fn(length, dtype=dtype), dtype_name(dtype))
        overlaps = -(-length // step)
        squares = ops.pad(ops.square(window), [(0, overlaps * step - length)])
        total = ops.sum(ops.reshape(squares, (overlaps, step)), 0)
        return window / ops.tile(total, (overlaps,))[:length]

    return inverse_window


make_operations(__name__, besides="inverse_stft_window_fn")
