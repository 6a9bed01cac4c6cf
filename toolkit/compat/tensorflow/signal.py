"""`tf.signal`: Fourier transforms of complex tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import extents
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.frames import (
    frame as frame,
    inverse_stft as inverse_stft,
    inverse_stft_window_fn as inverse_stft_window_fn,
    overlap_and_add as overlap_and_add,
    stft as stft,
)
from toolkit.compat.tensorflow.spectra import (
    dct as dct,
    idct as idct,
    inverse_mdct as inverse_mdct,
    linear_to_mel_weight_matrix as linear_to_mel_weight_matrix,
    mdct as mdct,
    mfccs_from_log_mel_spectrograms as mfccs_from_log_mel_spectrograms,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import AxisLike
from toolkit.compat.tensorflow.windows import (
    hamming_window as hamming_window,
    hann_window as hann_window,
    kaiser_bessel_derived_window as kaiser_bessel_derived_window,
    kaiser_window as kaiser_window,
    vorbis_window as vorbis_window,
)
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import TensorLike


def _complex_parts(x: Any) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part."""
    x = convert(x)
    return ops.real(x), ops.imag(x) if dtypes.is_complex(x.dtype) else ops.zeros_like(x)


def _complex(components: tuple[Tensor, Tensor]) -> Tensor:
    return ops.view_as_complex(ops.stack(components, -1))


def _transform_axis(x: Tensor, axis: int, inverse: bool) -> Tensor:
    """Return the transform of a complex tensor along one axis."""
    real, imag = _complex_parts(ops.swapaxes(x, axis, -1))
    sign = -1 if inverse else 1
    real, imag = ops.fft((real, imag * sign))
    count = real.shape[-1] if inverse else 1
    return ops.swapaxes(_complex((real / count, imag * sign / count)), axis, -1)


def _resize_axis(x: Tensor, axis: int, count: int | None) -> Tensor:
    """Truncate an axis, or pad it with zeros, to an extent."""
    if count is None or count == x.shape[axis]:
        return x
    if count < x.shape[axis]:
        return ops.take(x, np.arange(count), axis)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, count - x.shape[axis])
    return ops.pad(x, widths)


def _transform(
    x: Any, axes: Sequence[int], lengths: Any = None, inverse: bool = False
) -> Tensor:
    """Return the transform along axes, with the given lengths."""
    x = convert(x)
    counts = [None] * len(axes) if lengths is None else lengths
    for axis, count in zip(axes, counts, strict=True):
        x = _transform_axis(_resize_axis(x, axis, count), axis, inverse)
    return x


def _last(count: int) -> list[int]:
    return list(range(-count, 0))


def fft(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the Fourier transform over the last axis."""
    return _complex(ops.fft(_complex_parts(input)))


def ifft(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the inverse of `fft`."""
    return _transform(input, _last(1), inverse=True)


def fft2d(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the Fourier transform over the last two axes."""
    return _transform(input, _last(2))


def ifft2d(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the inverse of `fft2d`."""
    return _transform(input, _last(2), inverse=True)


def fft3d(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the Fourier transform over the last three axes."""
    return _transform(input, _last(3))


def ifft3d(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the inverse of `fft3d`."""
    return _transform(input, _last(3), inverse=True)


# --- real numbers ---------------------------------------------------------------------


def _real_transform(x: Any, axes: Sequence[int], lengths: Any = None) -> Tensor:
    """Return the transform of real numbers; on the last axis only the first half."""
    x = convert(x)
    lengths = [x.shape[axis] for axis in axes] if lengths is None else lengths
    *leading_axes, last = axes
    for axis, count in zip(axes, lengths, strict=True):
        x = _resize_axis(x, axis, count)
    y = _complex(ops.rfft(ops.swapaxes(x, last, -1), lengths[-1]))
    return _transform(ops.swapaxes(y, last, -1), leading_axes)


def _real_inverse(x: Any, axes: Sequence[int], lengths: Any = None) -> Tensor:
    """Return the real inverse of `_halves`."""
    x = convert(x)
    *leading_axes, last = axes
    if lengths is None:
        lengths = [*(x.shape[axis] for axis in leading_axes), 2 * (x.shape[last] - 1)]
    for axis, count in zip(leading_axes, lengths, strict=False):
        x = _transform_axis(_resize_axis(x, axis, count), axis, True)
    y = ops.irfft(_complex_parts(ops.swapaxes(x, last, -1)), lengths[-1])
    return ops.swapaxes(y, last, -1)


def _parse_lengths(
    fft_length: int | Sequence[int] | None, count: int, name: str
) -> list[int] | None:
    """Return the lengths of a transform along `count` axes."""
    if fft_length is None:
        return None
    lengths = [int(n) for n in np.ravel(np.asarray(convert(fft_length)))]
    if len(lengths) != count:
        raise ArgumentError(
            f"{name}: fft_length: expected {count} extents; received {lengths}"
        )
    return lengths


def rfft(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the first half of the transform of real numbers.

    The last axis is truncated, or padded with zeros, to fft_length.
    """
    return _real_transform(
        input_tensor, _last(1), _parse_lengths(fft_length, 1, "rfft")
    )


def irfft(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `rfft`."""
    return _real_inverse(input_tensor, _last(1), _parse_lengths(fft_length, 1, "irfft"))


def rfft2d(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the transform of real numbers over two axes; on the last only one half."""
    return _real_transform(
        input_tensor, _last(2), _parse_lengths(fft_length, 2, "rfft2d")
    )


def irfft2d(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `rfft2d`."""
    return _real_inverse(
        input_tensor, _last(2), _parse_lengths(fft_length, 2, "irfft2d")
    )


def rfft3d(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the transform of real numbers over three axes; on the last only one
    half."""
    return _real_transform(
        input_tensor, _last(3), _parse_lengths(fft_length, 3, "rfft3d")
    )


def irfft3d(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `rfft3d`."""
    return _real_inverse(
        input_tensor, _last(3), _parse_lengths(fft_length, 3, "irfft3d")
    )


# --- any axes -------------------------------------------------------------------------


def _resolve_axes(
    function: str,
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None,
    axes: AxisLike | None,
    norm: str | None,
) -> tuple[list[int], list[int] | None]:
    """Return axes and lengths; the default is all axes, or as many as lengths."""
    if norm is not None:
        raise ArgumentError(f"{function}: norm: expected None; received {norm!r}")
    lengths = None if fft_length is None else list(extents(fft_length))
    if axes is None:
        count = convert(input_tensor).ndim if lengths is None else len(lengths)
        return _last(count), lengths
    return list(extents(axes)), lengths


def fftnd(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    axes: AxisLike | None = None,
    norm: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the Fourier transform over axes, all by default; norm is only None."""
    axes_and_lengths = _resolve_axes("fftnd", input_tensor, fft_length, axes, norm)
    return _transform(input_tensor, *axes_and_lengths)


def ifftnd(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    axes: AxisLike | None = None,
    norm: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `fftnd`."""
    axes_and_lengths = _resolve_axes("ifftnd", input_tensor, fft_length, axes, norm)
    return _transform(input_tensor, *axes_and_lengths, inverse=True)


def rfftnd(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    axes: AxisLike | None = None,
    norm: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the transform of real numbers over axes; on the last only one half."""
    axes_and_lengths = _resolve_axes("rfftnd", input_tensor, fft_length, axes, norm)
    return _real_transform(input_tensor, *axes_and_lengths)


def irfftnd(
    input_tensor: TensorLike,
    fft_length: int | Sequence[int] | None = None,
    axes: AxisLike | None = None,
    norm: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the inverse of `rfftnd`."""
    axes_and_lengths = _resolve_axes("irfftnd", input_tensor, fft_length, axes, norm)
    return _real_inverse(input_tensor, *axes_and_lengths)


def _roll(x: Any, axes: AxisLike | None, sign: int) -> Tensor:
    x = convert(x)
    for axis in range(x.ndim) if axes is None else extents(axes):
        x = ops.roll(x, sign * (x.shape[axis] // 2), axis)
    return x


def fftshift(
    x: TensorLike, axes: AxisLike | None = None, name: str | None = None
) -> Tensor:
    """Roll the axes so that frequency 0 is in the center."""
    return _roll(x, axes, 1)


def ifftshift(
    x: TensorLike, axes: AxisLike | None = None, name: str | None = None
) -> Tensor:
    """Return the inverse of `fftshift`."""
    return _roll(x, axes, -1)


make_operations(__name__)
