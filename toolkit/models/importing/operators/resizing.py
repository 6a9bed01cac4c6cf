"""Resize and Upsample: interpolation along each axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axes_of
from toolkit.models.importing.values import Value

_MODES = ("nearest", "linear", "cubic")
_FEW = 4  # number of taps that are computed in separate steps


def _resize(
    call: Call,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    if call.opset < 11:  # then the second input contains the scales
        return _upsample(call, x, roi)
    way = _Interpolation(call)
    axes = call.integers("axes", None)
    axes = tuple(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if way.antialias and way.mode == "nearest":
        raise ModelFileError(
            "antialias=1 needs mode 'linear' or 'cubic'; received 'nearest'"
        )
    factors, extents = _targets(call, x, axes, scales, sizes, policy)
    box = (
        ()
        if roi is None or not roi.size
        else call.static_array(roi, "the roi").reshape(-1)
    )
    if way.transform == "tf_crop_and_resize" and len(box) != 2 * len(axes):
        raise ModelFileError(
            f"expected two numbers in roi for each of {len(axes)} axes; received "
            f"{len(box)}"
        )
    shape = list(x.shape)
    for axis, extent in zip(axes, extents, strict=True):
        shape[axis] = extent
    call.allow(shape, x.dtype)
    pairs = {}
    for i, axis in enumerate(axes):
        ends = (0.0, 1.0)
        if way.transform == "tf_crop_and_resize":
            ends = float(box[i]), float(box[i + len(axes)])
        pairs[axis] = factors[i], extents[i], ends
    return _along_axes(call, x, way, pairs)


def _targets(
    call: Call,
    x: Value,
    axes: tuple[int, ...],
    scales: Value | None,
    sizes: Value | None,
    policy: str,
) -> tuple[list[float], list[int]]:
    """Return the factor and the new extent of each axis."""
    old = [x.shape[axis] for axis in axes]
    if sizes is not None and sizes.size:
        targets = list(call.static_integers(sizes, "the sizes"))
        if len(targets) != len(axes):
            raise ModelFileError(
                f"expected {len(axes)} sizes, one for each axis; received {targets}"
            )
        factors = [n / max(m, 1) for n, m in zip(targets, old, strict=True)]
        if policy == "stretch":
            return factors, targets
        choose = {"not_larger": min, "not_smaller": max}.get(policy)
        if choose is None:
            raise ModelFileError(f"unsupported keep_aspect_ratio_policy={policy!r}")
        factor = choose(factors)
        return [factor] * len(old), [math.floor(factor * n + 0.5) for n in old]
    if scales is None or scales.size != len(axes):
        raise ModelFileError("expected scales or sizes, one for each axis")
    factors = [float(s) for s in call.static_array(scales, "the scales").reshape(-1)]
    if not all(0 < s < 1 << 40 for s in factors):
        raise ModelFileError(f"scales {factors}")
    _check_corners(call, scales, factors, old)
    return factors, [math.floor(n * s) for n, s in zip(old, factors, strict=True)]


def _check_corners(
    call: Call, scales: Value, factors: list[float], old: list[int]
) -> None:
    """Reject computed scales for which ONNX and its runtimes align corners differently.

    ONNX's reference aligns the corners of `scale * extent`. Runtimes, and exporters
    that write scales to files, align the corners of that product rounded down.
    """
    mode = call.text("coordinate_transformation_mode", "half_pixel")
    is_exact = all(float(n * s).is_integer() for n, s in zip(old, factors, strict=True))
    if mode == "align_corners" and scales.static_array is None and not is_exact:
        raise UnsupportedError(
            f"align_corners does not support computed scales {factors} of extents "
            f"{old} with fractional products; expected sizes or constant scales"
        )


def _upsample(call: Call, x: Value, scales: Value | None = None) -> Value:
    mode = call.text("mode", "nearest")
    factors = call.numbers("scales", None)
    if scales is not None:
        factors = tuple(
            float(s) for s in call.static_array(scales, "the scales").reshape(-1)
        )
    if factors is None or len(factors) != x.ndim or min(factors) <= 0:
        raise ModelFileError(f"scales {factors} do not fit shape {x.shape}")
    way = _Interpolation.__new__(_Interpolation)
    way.mode, way.transform, way.nearest = mode, "asymmetric", "floor"
    way.cubic, way.exclude, way.fill, way.antialias = -0.75, False, 0.0, False
    if mode not in ("nearest", "linear", "bilinear"):
        raise ModelFileError(f"mode={mode!r}")
    way.mode = "linear" if mode == "bilinear" else mode
    extents = [math.floor(n * s) for n, s in zip(x.shape, factors, strict=True)]
    call.allow(extents, x.dtype)
    pairs = {i: (factors[i], extents[i], (0.0, 1.0)) for i in range(x.ndim)}
    return _along_axes(call, x, way, pairs)


class _Interpolation:
    """Interpolation method: positions and weights of new elements."""

    def __init__(self, call: Call) -> None:
        self.mode = call.text("mode", "nearest")
        self.transform = call.text("coordinate_transformation_mode", "half_pixel")
        self.nearest = call.text("nearest_mode", "round_prefer_floor")
        self.cubic = float(call.number("cubic_coeff_a", -0.75))
        self.exclude = bool(call.integer("exclude_outside", 0))
        self.fill = float(call.number("extrapolation_value", 0.0))
        self.antialias = bool(call.integer("antialias", 0))
        if self.mode not in _MODES:
            raise ModelFileError(
                f"expected mode to be one of {_MODES}; received {self.mode!r}"
            )

    def taps(self, fraction: Any, scale: float) -> tuple[list[int], list[Any]]:
        """Return offsets from the element before each point, and the weights.

        Args:
            fraction: the distance of each point from that element.
            scale: new elements per old element: antialiasing widens kernels.
        """
        scale = min(scale, 1.0) if self.antialias else 1.0
        reach = 1 if self.mode == "linear" else 2
        first = math.floor(-reach / scale) + 1
        steps = list(range(first, reach - first + (reach == 1)))
        distances = [abs(fraction - step) * scale for step in steps]
        if self.mode == "linear":
            weights = [np.clip(1 - t, 0, 1) for t in distances]
        else:
            weights = [cubic_weight(t, self.cubic) for t in distances]
        total = sum(weights) if scale < 1 else 1
        return steps, [weight / total for weight in weights]

    def positions(self, old: int, new: int, scale: float, ends: Any) -> Any:
        """Return the position of each new element in the old axis."""
        i = np.arange(new, dtype=np.float64)
        if self.transform == "asymmetric":
            return i / scale
        if self.transform == "half_pixel":
            return (i + 0.5) / scale - 0.5
        if self.transform == "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if new > 1 else i * 0
        if self.transform == "half_pixel_symmetric":
            shift = old / 2 * (1 - new / (scale * old))
            return shift + (i + 0.5) / scale - 0.5
        if self.transform == "align_corners":
            # Of the new extent, not of scale * old, like runtimes and exporters.
            return i * (old - 1) / max(new - 1, 1)
        if self.transform == "tf_crop_and_resize":
            start, end = ends
            if new == 1:
                return i * 0 + 0.5 * (start + end) * (old - 1)
            return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        raise ModelFileError(
            f"unsupported coordinate_transformation_mode={self.transform!r}"
        )


def _along_axes(
    call: Call, x: Value, way: _Interpolation, pairs: dict[int, Any]
) -> Value:
    order = x.orders[0]
    tensor = x.ordered(order)
    is_outside = None
    for axis, (scale, new, ends) in sorted(pairs.items()):
        old = x.shape[axis]
        if old == 0 or (old == new and scale == 1 and ends == (0.0, 1.0)):
            continue
        positions = way.positions(old, new, scale, ends)
        position = order.index(axis)
        if way.antialias and scale < 1:
            call.allow((new, old), "float64")
        tensor = _along(tensor, position, way, positions, old, scale)
        if way.transform == "tf_crop_and_resize":
            shape = [-1 if i == position else 1 for i in range(x.ndim)]
            out = ((positions < 0) | (positions > old - 1)).reshape(shape)
            is_outside = out if is_outside is None else is_outside | out
    if is_outside is not None and is_outside.any():
        tensor = ops.where(ops.convert_to_tensor(is_outside), way.fill, tensor)
    return Value(ops.cast(tensor, x.dtype), order)


def _along(
    tensor: Any, axis: int, way: _Interpolation, positions: Any, old: int, scale: float
) -> Any:
    if way.mode == "nearest":
        return ops.take(tensor, _nearest(positions, way.nearest, old), axis=axis)
    if not len(positions):
        return ops.take(tensor, np.zeros(0, np.int64), axis=axis)
    low = np.floor(positions)
    steps, weights = way.taps(positions - low, scale)
    indices = [(low + s).astype(np.int64) for s in steps]
    if way.exclude:
        is_inside = [(0 <= i) & (i < old) for i in indices]
        weights = [w * ok for w, ok in zip(weights, is_inside, strict=True)]
        total = np.sum(weights, axis=0)
        weights = [w / np.where(total == 0, 1, total) for w in weights]
    indices = [np.clip(index, 0, old - 1) for index in indices]
    dtype = tensor.dtype if tensor.dtype.startswith(("f", "b")) else "float32"
    tensor = ops.cast(tensor, dtype)
    if len(steps) > _FEW:
        return _mixed(tensor, axis, indices, weights, old)
    shape = [-1 if i == axis else 1 for i in range(tensor.ndim)]
    result = None
    for index, weight in zip(indices, weights, strict=True):
        factor = ops.cast(ops.convert_to_tensor(weight.reshape(shape)), dtype)
        term = ops.take(tensor, index, axis=axis) * factor
        result = term if result is None else result + term
    return result


def _mixed(tensor: Any, axis: int, indices: Any, weights: Any, old: int) -> Tensor:
    """Compute sums of many elements each, as a product with a matrix."""
    new = len(indices[0])
    matrix = np.zeros((old, new))
    for index, weight in zip(indices, weights, strict=True):
        np.add.at(matrix, (index, np.arange(new)), weight)
    factors = ops.cast(ops.convert_to_tensor(matrix), tensor.dtype)
    return ops.moveaxis(ops.matmul(ops.moveaxis(tensor, axis, -1), factors), -1, axis)


def _nearest(positions: Any, mode: str, old: int) -> Any:
    rounded = {
        "floor": lambda p: np.floor(p),
        "ceil": lambda p: np.ceil(p),
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    }
    if mode not in rounded:
        raise ModelFileError(f"unsupported nearest_mode={mode!r}")
    return np.clip(rounded[mode](positions), 0, old - 1).astype(np.int64)


def cubic_weight(t: Any, a: float) -> Any:
    """Return Keys's weight of an element at a distance t."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    where = np.where if isinstance(t, np.ndarray) else ops.where
    return where(t <= 1, near, where(t < 2, far, near * 0))


OPERATORS = (
    Operator("Resize", _resize, host=(1, 2, 3)),
    Operator("Upsample", _upsample, host=(1,)),
)
