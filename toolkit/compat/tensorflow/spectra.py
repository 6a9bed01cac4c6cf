"""Cosine transforms and mel spectra of `tf.signal`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.frames import frame, overlap_and_add
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.windows import vorbis_window
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, UnsupportedError
from toolkit.type_aliases import DTypeLike, TensorLike


def dct(
    input: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the cosine transform of type 1 to 4: see `toolkit.ops.dct`."""
    return ops.dct(input, type, n, _last_axis("dct", axis), norm)


def idct(
    input: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `dct`, without scale unless norm is "ortho"."""
    return ops.idct(input, type, n, _last_axis("idct", axis), norm)


def _last_axis(function: str, axis: int) -> int:
    if axis != -1:
        raise UnsupportedError(
            f"{function}: expected the axis -1; received {axis}: use "
            f"toolkit.ops.{function} for another axis"
        )
    return axis


def mdct(
    signals: TensorLike,
    frame_length: Any,
    window_fn: Any = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the modified cosine transform of half-overlapping frames.

    Args:
        signals: (..., samples), real.
        frame_length: a multiple of 4.
        window_fn: from a length and a dtype to a window; None for a constant window.
        pad_end: whether to pad the end with zeros.
        norm: "ortho" or None.

    Returns:
        (..., frames, frame_length // 2).
    """
    length = int(frame_length)
    if length % 4:
        raise ArgumentError(
            f"mdct: expected a frame_length that is a multiple of 4; received {length}"
        )
    frames = frame(signals, length, length // 2, pad_end)
    frames = _apply_window(frames, window_fn)
    a, b, c, d = ops.split(frames, 4, -1)
    folded = ops.concatenate([-ops.flip(c, -1) - d, a - ops.flip(b, -1)], -1)
    return ops.dct(folded, 4, norm=norm)


def inverse_mdct(
    mdcts: TensorLike,
    window_fn: Any = vorbis_window,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the signal of an `mdct` with the same window and norm.

    The first and the last half frame are not reconstructed.
    """
    x = convert(mdcts)
    half = x.shape[-1]
    if half % 2:
        raise ShapeError(f"inverse_mdct: expected an even last axis; received {half}")
    folded = ops.idct(x, 4, norm=norm)
    if norm is None:
        folded = folded * (0.5 / half)
    first_half, right = ops.split(folded, 2, -1)
    frames = ops.concatenate(
        [right, -ops.flip(right, -1), -ops.flip(first_half, -1), -first_half], -1
    )
    return overlap_and_add(_apply_window(frames, window_fn), half)


def _apply_window(frames: Tensor, window_fn: Any) -> Tensor:
    """Apply the window; without one, scale so that the squares add up to 1."""
    if window_fn is None:
        return frames * math.sqrt(0.5)
    return frames * window_fn(frames.shape[-1], dtype=frames.dtype)


def mfccs_from_log_mel_spectrograms(
    log_mel_spectrograms: TensorLike, name: str | None = None
) -> Tensor:
    """Return the cepstral coefficients of log mel spectra.

    Args:
        log_mel_spectrograms: (..., bins).
    """
    x = convert(log_mel_spectrograms)
    if not x.ndim or not x.shape[-1]:
        raise ShapeError(
            f"mfccs_from_log_mel_spectrograms: expected bins; received {tuple(x.shape)}"
        )
    return ops.dct(x) * (1 / math.sqrt(2 * x.shape[-1]))


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: Any = 125.0,
    upper_edge_hertz: Any = 3800.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Return the matrix that maps a spectrum to its mel spectrum.

    Args:
        num_mel_bins: the number of triangles, evenly spaced on the mel scale.
        num_spectrogram_bins: the number of frequencies up to half the sample rate.
        sample_rate: samples per second.
        lower_edge_hertz, upper_edge_hertz: the bounds of the lowest and highest
            triangle.
        dtype: of the result.

    Returns:
        (num_spectrogram_bins, num_mel_bins).
    """
    bins, count = int(num_mel_bins), int(num_spectrogram_bins)
    rate, low, high = map(float, (sample_rate, lower_edge_hertz, upper_edge_hertz))
    is_valid = bins > 0 and count > 0 and rate > 0 and 0 <= low < high <= rate / 2
    if not is_valid:
        raise ArgumentError(
            "linear_to_mel_weight_matrix: expected positive numbers of bins and "
            "0 <= lower_edge_hertz < upper_edge_hertz <= sample_rate / 2; received "
            f"{bins}, {count}, {low}, {high} and {rate}"
        )
    # No triangle contains frequency 0.
    frequencies = _mel(np.linspace(0.0, rate / 2, count)[1:])[:, None]
    edges = np.linspace(_mel(low), _mel(high), bins + 2)
    rise = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0.0, np.minimum(rise, fall))
    return convert(np.pad(weights, [[1, 0], [0, 0]]), dtype_name(dtype))


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)


make_operations(__name__)
