"""Fourier transforms, windows and filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.values import Value
from toolkit.ops.fourier import dft_p
from toolkit.reading.onnx.tensors import dtype_of
from toolkit.type_aliases import Array

_Array = Array
# Sums of cosines: c[0] + c[1] cos(t) + c[2] cos(2 t), t from 0 to 2 pi.
_WINDOWS = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def _complex(x: Value, name: str) -> list[Any]:
    """Return the real and the imaginary part, which are in the last axis."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ModelFileError(
            f"{name}: expected a last axis of 1, for real numbers, or 2, for complex "
            f"ones; received shape {x.shape}"
        )
    real = x.tensor[..., 0]
    return [real, x.tensor[..., 1] if x.shape[-1] == 2 else ops.zeros_like(real)]


def _fitted(x: Any, axis: int, n: int) -> Tensor:
    """Truncate an axis to n elements, or pad it with zeros."""
    cut = [slice(None)] * x.ndim
    cut[axis] = slice(0, n)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, max(n - x.shape[axis], 0))
    return ops.pad(x[tuple(cut)], widths, "constant", 0.0)


def _transform(
    call: Call, components: list[Any], axis: int, inverse: bool = False
) -> list[Any]:
    shape = components[0].shape
    call.allow((2, *shape), components[0].dtype)
    call.work(*shape, shape[axis])
    return list(bind(dft_p, *components, axis=axis, inverse=inverse))


def _dft(
    call: Call, x: Value, length: Value | None = None, axis: Value | None = None
) -> Value:
    inverse, one_sided = call.integer("inverse", 0), call.integer("onesided", 0)
    position = call.integer("axis", 1) if call.opset < 20 else -2
    position = axis_of(int(call.static_number(axis, position, "the axis")), x.ndim)
    components = _complex(x, "DFT")
    if position == x.ndim - 1:
        raise ModelFileError("DFT: expected an axis before the last one")
    default = x.shape[position]
    if inverse and one_sided:
        default = 2 * (default - 1)
    n = int(call.static_number(length, default, "the length"))
    if n < 1 or (one_sided and not inverse and x.shape[-1] == 2):
        raise ModelFileError(f"DFT: unsupported length {n} with onesided={one_sided}")
    shape = tuple(n if i == position else k for i, k in enumerate(x.shape[:-1]))
    call.allow((2, *shape), x.dtype)
    if inverse and one_sided:
        components = _mirrored(components, position, n)
    else:
        components = [_fitted(component, position, n) for component in components]
    components = _transform(call, components, position, bool(inverse))
    if inverse:
        components = [component / n for component in components]
    elif one_sided:
        components = [
            _fitted(component, position, n // 2 + 1) for component in components
        ]
    if inverse and one_sided:
        return Value(ops.expand_dims(components[0], -1))
    return Value(ops.stack(components, axis=-1))


def _mirrored(components: Any, axis: int, n: int) -> list[Any]:
    """Return all n frequencies of real numbers from the first n // 2 + 1."""
    positions = np.arange(n)
    is_mirrored = positions > n // 2
    positions = np.where(is_mirrored, n - positions, positions)
    shape = [-1 if i == axis else 1 for i in range(components[0].ndim)]
    real, imag = (_fitted(component, axis, n // 2 + 1) for component in components)
    signs = np.where(is_mirrored, -1.0, 1.0)
    signs[0] = 0.0  # real numbers have no imaginary part at this frequency
    if n % 2 == 0:
        signs[n // 2] = 0.0
    factors = ops.cast(ops.convert_to_tensor(signs.reshape(shape)), real.dtype)
    return [
        ops.take(real, positions, axis=axis),
        ops.take(imag, positions, axis=axis) * factors,
    ]


def _stft(
    call: Call,
    x: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
) -> Value:
    one_sided = call.integer("onesided", 1)
    frame_step = int(call.static_number(step, None, "the step"))
    default = x.shape[1] if window is None or window.ndim != 1 else window.shape[0]
    n = int(call.static_number(length, default, "the frame length"))
    components = _complex(x, "STFT")
    fits = x.ndim == 3 and frame_step > 0 and 0 < n <= x.shape[1]
    if not fits or (window is not None and window.shape != (n,)):
        raise ModelFileError(
            f"STFT: frames of {n} at steps of {frame_step} for the shape {x.shape}"
        )
    frames = 1 + (x.shape[1] - n) // frame_step
    call.allow((x.shape[0], frames, n), x.dtype)
    positions = np.arange(frames)[:, None] * frame_step + np.arange(n)
    components = [ops.take(component, positions, axis=1) for component in components]
    if window is not None:
        components = [component * window.tensor for component in components]
    components = _transform(call, components, 2)
    if one_sided:
        components = [component[..., : n // 2 + 1] for component in components]
    return Value(ops.stack(components, axis=-1))


# --- arrays ---------------------------------------------------------------------------


def _window(name: str, coefficients: tuple[float, ...]) -> Operator:
    def run(call: Call, size: Value) -> Value:
        n = int(call.static_number(size, None, "the size"))
        periodic = call.integer("periodic", 1)
        dtype = dtype_of(call.integer("output_datatype", 1), "output_datatype")
        call.allow((n,), dtype)
        angle = 2 * np.pi * np.arange(n) / max(n if periodic else n - 1, 1)
        terms = [c * np.cos(k * angle) for k, c in enumerate(coefficients)]
        return Value(ops.cast(ops.convert_to_tensor(np.sum(terms, axis=0)), dtype))

    return Operator(name, run, host=(0,))


def _mel_weights(
    call: Call, bins: Value, length: Value, rate: Value, low: Value, high: Value
) -> Value:
    dtype = dtype_of(call.integer("output_datatype", 1), "output_datatype")
    count, n, hertz = (
        int(call.static_number(value, None, label))
        for value, label in ((bins, "the bins"), (length, "the length"), (rate, "rate"))
    )
    ends = [float(call.static_number(v, None, "an edge")) for v in (low, high)]
    if min(count, n, hertz) < 1 or not 0 <= ends[0] <= ends[1] < np.inf:
        raise ModelFileError(
            f"cannot create {count} filters from {ends[0]} to {ends[1]} Hz"
        )
    call.allow((n // 2 + 1, count), "float64")
    mels = [2595 * np.log10(1 + end / 700) for end in ends]
    steps = mels[0] + np.arange(count + 2) * (mels[1] - mels[0]) / (count + 2)
    edges = (n + 1) * (700 * (10 ** (steps / 2595) - 1)) // hertz
    if edges[-1] > n // 2 + 1:
        raise ModelFileError(f"{ends[1]} Hz is above half of the sample rate {hertz}")
    weights = _triangles(edges, n // 2 + 1)
    return Value(ops.cast(ops.convert_to_tensor(weights), dtype))


def _triangles(edges: _Array, count: int) -> _Array:
    """Return triangular filters that rise from one edge and fall after the next."""
    position = np.arange(count)[:, None]
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (position - low) / np.maximum(center - low, 1)
    rising = np.where(center == low, position == center, rising)
    falling = (high - position) / np.maximum(high - center, 1)
    is_rising = (position >= low) & (position <= center)
    is_falling = (position >= center) & (position < high) & (high > center)
    return np.where(is_falling, falling, np.where(is_rising, rising, 0.0))


OPERATORS = (
    Operator("DFT", _dft, host=(1, 2)),
    Operator("STFT", _stft, host=(1, 3)),
    Operator("MelWeightMatrix", _mel_weights, host=(0, 1, 2, 3, 4)),
    *(_window(name, coefficients) for name, coefficients in _WINDOWS.items()),
)
