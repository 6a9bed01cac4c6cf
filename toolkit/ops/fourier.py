"""Fourier transforms. Complex tensors are pairs of real ones: (real, imaginary)."""

from __future__ import annotations

import math

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, DTypeError, ShapeError, unknown_choice
from toolkit.ir import Kind, Primitive, Spec, primitive, rule_along_axis
from toolkit.ops.creation import arange, zeros, zeros_like
from toolkit.ops.elementwise import greater, where
from toolkit.ops.index import scatter_p
from toolkit.ops.padding import pad
from toolkit.ops.ranges import check_range
from toolkit.ops.shape import pad_p, reshape, slice_axis
from toolkit.ops.statistics import extract_sequences, sequence_runs
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import cos
from toolkit.type_aliases import TensorLike

Pair = tuple[Tensor, Tensor]


def _dft_spec(real: Spec, imag: Spec, axis: int, inverse: bool) -> tuple[Spec, Spec]:
    if real.shape != imag.shape or not 0 <= axis < real.ndim:
        raise ShapeError(
            f"fft: expected a real and an imaginary part of one shape with an axis "
            f"{axis}; received {real.shape} and {imag.shape}"
        )
    return real, imag


# The sums of x[k] * exp(-2 pi i j k / n), or of exp(+...) if inverse, without 1 / n:
# each is the adjoint of the other.
dft_p: Primitive = primitive(
    "dft",
    Kind.CONTRACT,
    _dft_spec,
    vjp=lambda g, y, real, imag, axis, inverse: bind(
        dft_p, *g, axis=axis, inverse=not inverse
    ),
    axes=lambda real, imag, **attrs: rule_along_axis(real, attrs["axis"]),
)


def _rdft_spec(x: Spec) -> tuple[Spec, Spec]:
    if not x.ndim:
        raise ShapeError("rfft: expected a tensor with axes; received a 0-d one")
    half = Spec((*x.shape[:-1], x.shape[-1] // 2 + 1), x.dtype)
    return half, half


def _irdft_spec(real: Spec, imag: Spec, length: int) -> Spec:
    if real.shape != imag.shape or real.shape[-1:] != (length // 2 + 1,):
        raise ShapeError(
            f"irfft: expected a real and an imaginary part of {length // 2 + 1} "
            f"frequencies each; received {real.shape} and {imag.shape}"
        )
    return Spec((*real.shape[:-1], length), real.dtype)


# The first n // 2 + 1 of the sums above for real numbers, along the last axis. Its
# adjoint is the real part of the inverse sums of these frequencies, with zeros for the
# remaining ones.
rdft_p: Primitive = primitive(
    "rdft",
    Kind.CONTRACT,
    _rdft_spec,
    vjp=lambda g, y, x: bind(irdft_p, *g, length=x.shape[-1]),
    axes="..._->..._",
)
irdft_p: Primitive = primitive(
    "irdft",
    Kind.CONTRACT,
    _irdft_spec,
    vjp=lambda g, y, real, imag, length: bind(rdft_p, g),
    axes="..._->..._",
)


def _pair(op: str, x: TensorLike, axes: int) -> Pair:
    """Check a complex tensor with at least `axes` axes."""
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ArgumentError(
            f"{op}: expected a tuple of two tensors, real and imaginary; received {x!r}"
        )
    real, imag = floating(*x)
    if real.shape != imag.shape or real.ndim < axes:
        raise ShapeError(
            f"{op}: expected a real and an imaginary part of one shape with at least "
            f"{axes} axes; received {real.shape} and {imag.shape}"
        )
    return real, imag


def _transform(x: Pair, axes: int, inverse: bool = False) -> Pair:
    """Transform along each of the last `axes` axes."""
    last = x[0].ndim
    for axis in range(last - axes, last):
        x = bind(dft_p, *x, axis=axis, inverse=inverse)
    return x


@operation
def fft(x: TensorLike) -> Pair:
    """Compute the discrete Fourier transform along the last axis.

    The result is y[j] = sum_k x[k] * exp(-2 * pi * i * j * k / n).

    Args:
        x: a pair (real, imaginary) of tensors of shape (..., n).

    Returns:
        A pair (real, imaginary) of floating tensors of shape (..., n).

    Example:
        >>> from toolkit import ops
        >>> real, imaginary = ops.fft(([1.0, 0.0, 0.0], [0.0, 0.0, 0.0]))
        >>> real.tolist()
        [1.0, 1.0, 1.0]
    """
    return _transform(_pair("fft", x, 1), 1)


@operation
def fft2(x: TensorLike) -> Pair:
    """Compute the discrete Fourier transform over the last two axes.

    Args:
        x: a pair (real, imaginary) of tensors of shape (..., m, n).

    Returns:
        A pair (real, imaginary) of floating tensors of shape (..., m, n).

    Example:
        >>> from toolkit import ops
        >>> real, imaginary = ops.fft2((ops.ones((2, 2)), ops.zeros((2, 2))))
        >>> real.tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _transform(_pair("fft2", x, 2), 2)


@operation
def ifft2(x: TensorLike) -> Pair:
    """Compute the inverse of the Fourier transform over the last two axes.

    Unlike `fft2`, it divides by the number of elements m * n.

    Args:
        x: a pair (real, imaginary) of tensors of shape (..., m, n).

    Returns:
        A pair (real, imaginary) of floating tensors of shape (..., m, n).

    Example:
        >>> from toolkit import ops
        >>> spectrum = ([[4.0, 0.0], [0.0, 0.0]], ops.zeros((2, 2)))
        >>> ops.ifft2(spectrum)[0].tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    real, imag = _transform(_pair("ifft2", x, 2), 2, inverse=True)
    count = math.prod(real.shape[-2:])
    return real / count, imag / count


def resized(x: Tensor, n: int) -> Tensor:
    """Return the last axis truncated, or padded with zeros, to n elements."""
    last = x.ndim - 1
    if n <= x.shape[last]:
        return slice_axis(x, last, 0, n)
    widths = ((0, 0),) * last + ((0, n - x.shape[last]),)
    return bind(pad_p, x, widths=widths, value=0)


def _length(op: str, n: int) -> int:
    if n < 1:
        raise ArgumentError(f"{op}: expected fft_length >= 1; received {n}")
    return int(n)


@operation
def rfft(x: TensorLike, fft_length: int | None = None) -> Pair:
    """Compute the discrete Fourier transform of real numbers along the last axis.

    The second half of the spectrum mirrors the first half, and is not in the result.

    Args:
        x: (..., n), real numbers.
        fft_length: the extent to which `x` is truncated or padded with zeros. None
            means n.

    Returns:
        A pair (real, imaginary) of floating tensors of shape (..., fft_length // 2 +
        1).

    Raises:
        ShapeError: `x` has no axes.

    Example:
        >>> from toolkit import ops
        >>> real, imaginary = ops.rfft([1.0, 1.0, 1.0, 1.0])
        >>> real.tolist()
        [4.0, 0.0, 0.0]
    """
    (x,) = floating(x)
    if x.ndim == 0:
        raise ShapeError("rfft: expected a tensor with axes; received a 0-d one")
    n = _length("rfft", x.shape[-1] if fft_length is None else fft_length)
    real, imag = bind(rdft_p, resized(x, n))
    return real, imag


@operation
def irfft(x: TensorLike, fft_length: int | None = None) -> Tensor:
    """Compute the inverse of `rfft` along the last axis.

    Args:
        x: a pair (real, imaginary) of tensors of shape (..., m).
        fft_length: the extent of the result. None means 2 * (m - 1).

    Returns:
        A real floating tensor of shape (..., fft_length).

    Example:
        >>> from toolkit import ops
        >>> ops.irfft(([4.0, 0.0, 0.0], [0.0, 0.0, 0.0])).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    real, imag = _pair("irfft", x, 1)
    m = real.shape[-1]
    n = _length("irfft", 2 * (m - 1) if fft_length is None else fft_length)
    # Each frequency counts for itself and its mirror image, except the first one and,
    # if n is even, the middle one.
    check_range(n // 2 + 1)
    weights = np.full(n // 2 + 1, 2 / n)
    weights[0] = weights[n // 2 if n % 2 == 0 else 0] = 1 / n
    scale = convert(weights, real.dtype)
    half = (resized(component, n // 2 + 1) * scale for component in (real, imag))
    return bind(irdft_p, *half, length=n)


# --- short times ----------------------------------------------------------------------

_WINDOWS = {"hann": 0.5, "hamming": 0.54}


def _window(
    op: str, window: str | TensorLike, length: int, fft_length: int, dtype: str
) -> Tensor:
    """Return the window with zeros on both sides; all ones if it is None."""
    check_range(fft_length)
    if window is None:
        return convert(np.ones(fft_length), dtype)
    if isinstance(window, str):
        if window not in _WINDOWS:
            raise unknown_choice(
                f"{op}: If a string is passed to `window`: it", window, _WINDOWS
            )
        share = _WINDOWS[window]
        angles = arange(length, dtype=dtype) * (2 * math.pi / length)
        window = share - (1 - share) * cos(angles)
    window = convert(window, dtype)
    if window.shape != (length,):
        raise ShapeError(
            f"{op}: The shape of `window` must be equal to ({length},), the "
            f"sequence_length; received {window.shape}"
        )
    low = (fft_length - length) // 2
    widths = ((low, fft_length - length - low),)
    return bind(pad_p, window, widths=widths, value=0)


def _check_lengths(op: str, length: int, stride: int, fft_length: int) -> None:
    if not is_int(stride) or stride <= 0:
        raise ArgumentError(
            f"{op}: expected sequence_stride, an integer > 0; received {stride!r}"
        )
    if fft_length < length:
        raise ArgumentError(
            f"{op}: `fft_length` must equal or exceed `sequence_length`; received "
            f"{fft_length} and {length}"
        )


@operation
def stft(
    x: TensorLike,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: str | TensorLike = "hann",
    center: bool = True,
) -> Pair:
    """Compute the Fourier transforms of overlapping frames of the last axis.

    Args:
        x: (..., samples), float32 or float64.
        sequence_length: the number of samples that the window covers.
        sequence_stride: the number of samples between the starts of adjacent frames.
        fft_length: the number of samples of a frame. The window is in the middle of a
            frame.
        window: "hann", "hamming", weights (sequence_length,), or None for ones.
        center: whether to mirror fft_length // 2 samples at both ends. Then frame t is
            centered at sample t * sequence_stride.

    Returns:
        A pair (real, imaginary) of tensors of shape (..., frames, fft_length // 2 + 1).

    Raises:
        DTypeError: `x` is not float32 or float64.

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((8,))
        >>> real, imaginary = ops.stft(x, 4, 2, 4, window=None, center=False)
        >>> real.tolist()
        [[4.0, 0.0, 0.0], [4.0, 0.0, 0.0], [4.0, 0.0, 0.0]]
    """
    _check_lengths("stft", sequence_length, sequence_stride, fft_length)
    x = convert(x)
    if x.dtype not in ("float32", "float64"):
        raise DTypeError(f"stft: expected `float32` or `float64`; received {x.dtype}")
    weights = _window("stft", window, sequence_length, fft_length, x.dtype)
    if center:
        widths = [(0, 0)] * (x.ndim - 1) + [(fft_length // 2,) * 2]
        x = pad(x, widths, mode="reflect")
    return rfft(extract_sequences(x, fft_length, sequence_stride) * weights)


def overlap_add(x: Tensor, stride: int) -> Tensor:
    """Sum frames (..., frames, length) that start `stride` apart."""
    *lead, pieces, length = x.shape
    positions, run = sequence_runs(pieces, length, stride)
    count = (pieces - 1) * stride + length
    blank = zeros((*lead, count // run, run), x.dtype)
    x = reshape(x, (*lead, *positions.shape, run))
    y = bind(scatter_p, blank, convert(positions), x, axis=len(lead), mode="add")
    return reshape(y, (*lead, count))


@operation
def istft(
    x: TensorLike,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: str | TensorLike = "hann",
    center: bool = True,
) -> Tensor:
    """Compute the inverse of `stft`, where its windows overlap.

    Args:
        x: a pair (real, imaginary) of tensors of shape (..., frames, fft_length // 2 +
            1).
        sequence_length: the number of samples that the window covers.
        sequence_stride: the number of samples between the starts of adjacent frames.
        fft_length: the number of samples of a frame. The window is in the middle of a
            frame.
        length: the number of samples of the result. None means the samples that the
            frames cover.
        window: "hann", "hamming", weights (sequence_length,), or None, which adds
            overlapping frames and does not normalize the sum.
        center: whether `stft` mirrored fft_length // 2 samples at both ends.

    Returns:
        A floating tensor of shape (..., length).

    Example:
        >>> from toolkit import ops
        >>> x = ops.arange(8.0)
        >>> y = ops.istft(ops.stft(x, 4, 2, 4), 4, 2, 4)
        >>> print(ops.round(y, 3))
        [0. 1. 2. 3. 4. 5. 6. 7.]
    """
    _check_lengths("istft", sequence_length, sequence_stride, fft_length)
    real, imag = _pair("istft", x, 2)
    weights = _window("istft", window, sequence_length, fft_length, real.dtype)
    pieces = irfft((real, imag), fft_length) * weights
    y = overlap_add(pieces, sequence_stride)
    if window is not None:
        squares = zeros_like(pieces) + weights * weights
        squares = overlap_add(squares, sequence_stride)
        covered = greater(squares, 1e-10)
        y = where(covered, y / where(covered, squares, 1.0), y)
    start = fft_length // 2 if center else 0
    stop = y.shape[-1] - start if length is None else start + length
    pad_size = max(stop - y.shape[-1], 0)
    widths = ((0, 0),) * (y.ndim - 1) + ((0, pad_size),)
    return slice_axis(
        bind(pad_p, y, widths=widths, value=0), y.ndim - 1, start, max(stop, start)
    )
