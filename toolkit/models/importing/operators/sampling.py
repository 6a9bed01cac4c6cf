"""Operators that sample images at points between their elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.resizing import cubic_weight
from toolkit.models.importing.operators.windows import (
    Windows,
    channels_at_end,
    window_counts,
    windows_of,
)
from toolkit.models.importing.values import Value, channels_last

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # opset 16 -> later opsets
_STEPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_PADDINGS = ("zeros", "border", "reflection")
_MOST_AXES = 3  # of an image: each axis doubles the number of corners around a point
_CUBIC = -0.75  # the constant of Keys's kernel


def sample(
    tensor: Any, points: Sequence[Any], mode: str, padding: str, aligned: bool
) -> Any:
    """Sample images at points.

    Args:
        tensor: (batch, *spatial, channels).
        points: for each spatial axis (batch, ...), in units of elements.
        mode: "nearest", "linear" or "cubic".
        padding: the values outside: "zeros", "border" or "reflection".
        aligned: whether images end at the centers of elements, not at their edges.

    Returns:
        (batch, ..., channels).
    """
    spatial = tensor.shape[1:-1]
    neighbors = [
        _neighbors(point, n, mode, padding, aligned)
        for point, n in zip(points, spatial, strict=True)
    ]
    lead = points[0].shape
    counter = ops.arange(lead[0], dtype="int64") * math.prod(spatial)
    first = ops.reshape(counter, (-1, *(1,) * (len(lead) - 1)))
    table = ops.reshape(tensor, (lead[0] * math.prod(spatial), tensor.shape[-1]))
    result = None
    for corner in itertools.product(*neighbors):
        position, weight = 0, None
        for (index, factor), n in zip(corner, spatial, strict=True):
            position = position * n + index
            weight = factor if weight is None else weight * factor
        samples = ops.take(table, first + position, axis=0)
        term = samples * ops.cast(ops.expand_dims(weight, -1), tensor.dtype)
        result = term if result is None else result + term
    return result


def _neighbors(
    point: Any, n: int, mode: str, padding: str, aligned: bool
) -> list[tuple[Any, Any]]:
    """Return indices into an axis of n, and the weight of each of them."""
    ends = (0.0, n - 1.0) if aligned else (-0.5, n - 0.5)
    if mode == "nearest":
        point = ops.round(point)
    if padding == "border":
        point = ops.clip(point, 0.0, n - 1.0)
    elif padding == "reflection":
        point = _reflected(point, *ends)
    low = ops.floor(point)
    fraction = point - low
    results = []
    for step in _STEPS[mode]:
        position = low + step
        if padding == "reflection":
            position = ops.round(_reflected(position, *ends))
        weight = _weight(mode, fraction, step)
        if padding == "zeros":
            is_inside = ops.logical_and(position >= 0, position <= n - 1)
            weight = ops.where(is_inside, weight, ops.zeros_like(weight))
        index = ops.clip(position, 0.0, n - 1.0)
        index = ops.where(ops.isnan(index), ops.zeros_like(index), index)
        results.append((ops.cast(index, "int64"), weight))
    return results


def _weight(mode: str, fraction: Any, step: int) -> Any:
    if mode == "nearest":
        return ops.ones_like(fraction)
    if mode == "linear":
        return fraction if step else 1 - fraction
    return cubic_weight(ops.abs(fraction - step), _CUBIC)


def _reflected(x: Any, low: float, high: float) -> Tensor:
    """Return points inside of [low, high], reflected at its ends as often as needed."""
    extent = high - low
    if extent <= 0:
        return ops.full_like(x, low)
    distance = ops.abs(x - low)
    times = ops.floor(distance / extent)
    remainder = distance - times * extent
    return ops.where(
        ops.equal(ops.mod(times, 2.0), 0.0), low + remainder, high - remainder
    )


def _grid_sample(call: Call, x: Value, grid: Value) -> Value:
    mode = call.text("mode", "linear" if call.opset >= 20 else "bilinear")
    mode = _MODES.get(mode, mode)
    padding = call.text("padding_mode", "zeros")
    aligned = bool(call.integer("align_corners", 0))
    if mode not in _STEPS or padding not in _PADDINGS:
        raise ModelFileError(f"unsupported mode={mode!r} or padding_mode={padding!r}")
    axes = x.ndim - 2
    if axes > _MOST_AXES:
        raise UnsupportedError(
            f"expected 1 to {_MOST_AXES} spatial axes; received shape {x.shape}"
        )
    if axes < 1 or grid.ndim != x.ndim or grid.shape[-1] != axes:
        raise ModelFileError(
            f"a grid of shape {grid.shape} does not fit shape {x.shape}"
        )
    if grid.shape[0] != x.shape[0]:
        raise ModelFileError(
            f"expected {x.shape[0]} grids, one for each image; received {grid.shape[0]}"
        )
    shape = (x.shape[0], *grid.shape[1:-1], x.shape[1])
    call.allow(shape, x.dtype)
    call.work(*shape, len(_STEPS[mode]) ** axes)
    points = []
    for i, n in enumerate(x.shape[2:]):
        ratio = (grid.tensor[..., axes - 1 - i] + 1) / 2
        points.append(ratio * (n - 1) if aligned else ratio * n - 0.5)
    y = sample(x.ordered(channels_last(x.ndim)), points, mode, padding, aligned)
    return Value(y, channels_last(x.ndim))


def _affine_grid(call: Call, theta: Value, size: Value) -> Value:
    extents = call.static_integers(size, "the size")
    aligned = call.integer("align_corners", 0)
    spatial = extents[2:]
    axes = len(spatial)
    if axes not in (2, 3) or theta.shape != (extents[0], axes, axes + 1):
        raise ModelFileError(
            f"theta of shape {theta.shape} does not fit the size {extents}"
        )
    call.allow((extents[0], *spatial, axes), theta.dtype)
    lines = []
    for n in spatial:
        i = np.arange(n, dtype=np.float64)
        lines.append(2 * i / max(n - 1, 1) - 1 if aligned else (2 * i + 1) / n - 1)
    positions = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack([*positions, np.ones(spatial)], axis=-1).reshape((-1, axes + 1))
    tensor = ops.cast(ops.convert_to_tensor(points), theta.dtype)
    grid = ops.matmul(tensor, ops.transpose(theta.tensor, (0, 2, 1)))
    return Value(ops.reshape(grid, (extents[0], *spatial, axes)))


# --- deformable convolution -----------------------------------------------------------


def _deformable(
    call: Call,
    x: Value,
    w: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
) -> Value:
    groups, offset_groups = call.integer("group", 1), call.integer("offset_group", 1)
    windows = windows_of(call, x, call.integers("kernel_shape", w.shape[2:]))
    counts = window_counts(x.shape[2:], windows)
    n, channels = x.shape[:2]
    taps, axes = math.prod(windows.size), x.ndim - 2
    filters = w.shape[0]
    fits = groups > 0 and channels == w.shape[1] * groups and filters % groups == 0
    fits = (
        fits
        and offset_groups > 0
        and channels % offset_groups == 0
        and w.shape[2:] == windows.size
    )
    fits = fits and offset.shape == (n, offset_groups * taps * axes, *counts)
    if not fits or (
        mask is not None and mask.shape != (n, offset_groups * taps, *counts)
    ):
        raise ModelFileError(
            f"weights of shape {w.shape} and offsets of shape {offset.shape} do not "
            f"fit shape {x.shape}"
        )
    call.allow((n, math.prod(counts), taps, channels), x.dtype)
    call.work(n, *counts, w.size)
    columns = _sampled_windows(x, windows, counts, offset, mask, offset_groups)
    inputs = ops.split(columns, groups, axis=-1)
    kernels = ops.split(w.tensor, groups, axis=0)
    y = ops.concatenate(
        [
            ops.einsum("npkc,ock->npo", neighbors, ops.reshape(k, (*k.shape[:2], taps)))
            for neighbors, k in zip(inputs, kernels, strict=True)
        ],
        axis=-1,
    )
    y = y if bias is None else y + bias.tensor
    return Value(ops.reshape(y, (n, *counts, filters)), channels_last(x.ndim))


def _sampled_windows(
    x: Value,
    windows: Windows,
    counts: tuple[int, ...],
    offset: Value,
    mask: Value | None,
    offset_groups: int,
) -> Tensor:
    """Return the elements of each window: (batch, windows, elements, channels)."""
    n, taps, axes = x.shape[0], math.prod(windows.size), len(counts)
    shape = (n, offset_groups, taps, axes, math.prod(counts))
    # (batch, parts, windows, elements, axes)
    shifts = ops.transpose(ops.reshape(offset.tensor, shape), (0, 1, 4, 2, 3))
    starts = np.indices(counts).reshape((axes, -1, 1))
    positions = np.indices(windows.size).reshape((axes, 1, -1))
    results = []
    for fraction, tensor in enumerate(
        ops.split(channels_at_end(x), offset_groups, axis=-1)
    ):
        points = []
        for axis in range(axes):
            start = starts[axis] * windows.strides[axis] - windows.pads[axis][0]
            regular = start + positions[axis] * windows.dilation[axis]
            regular = ops.cast(ops.convert_to_tensor(regular), offset.dtype)
            points.append(shifts[:, fraction, :, :, axis] + regular)
        samples = sample(tensor, points, "linear", "zeros", True)
        if mask is not None:
            factors = ops.reshape(mask.tensor, (n, offset_groups, taps, -1))[
                :, fraction
            ]
            samples = samples * ops.expand_dims(ops.transpose(factors, (0, 2, 1)), -1)
        results.append(samples)
    return ops.concatenate(results, axis=-1)


# --- regions --------------------------------------------------------------------------


def _roi_align(call: Call, x: Value, boxes: Value, batch: Value) -> Value:
    mode = call.text("mode", "avg").lower()
    older = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    transform = call.text("coordinate_transformation_mode", older)
    size = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio, scale = call.integer("sampling_ratio", 0), call.number("spatial_scale", 1.0)
    if mode not in ("avg", "max") or transform not in (
        "half_pixel",
        "output_half_pixel",
    ):
        raise ModelFileError(
            f"unsupported mode={mode!r} or coordinate_transformation_mode={transform!r}"
        )
    if x.ndim != 4 or boxes.shape != (*batch.shape, 4) or batch.ndim != 1:
        raise ModelFileError(f"boxes of shape {boxes.shape} do not fit shape {x.shape}")
    if min(size) < 1 or ratio < 0:
        raise ModelFileError(
            f"expected an output size >= 1 and sampling_ratio >= 0; received {size} "
            f"and {ratio}"
        )
    call.allow((*batch.shape, x.shape[1], *size), x.dtype)
    is_half = transform == "half_pixel"
    corners = boxes.tensor * float(scale) - (0.5 if is_half else 0.0)
    start = ops.flip(corners[:, :2], axis=1)
    extent = ops.flip(corners[:, 2:], axis=1) - start
    if not is_half:
        extent = ops.maximum(extent, 1.0)
    bins = extent / ops.convert_to_tensor(np.array(size, np.float32))
    regions = (start, bins, ops.cast(batch.tensor, "int64"))
    if ratio:
        return Value(_aligned(call, x, regions, size, (ratio, ratio), mode))
    return Value(_aligned_by_size(call, x, regions, size, mode))


def _aligned_by_size(
    call: Call, x: Value, regions: Any, size: Any, mode: str
) -> Tensor:
    """Return the pooled regions, each with a number of samples for its size."""
    bins = call.static_array(
        Value(regions[1]), "the region size without sampling_ratio"
    )
    counts = np.maximum(np.ceil(bins), 0).astype(np.int64)
    if not len(counts):
        return ops.zeros((0, x.shape[1], *size), x.dtype)
    rows, pooled = [], []
    for count in np.unique(counts, axis=0):
        selected = np.flatnonzero((counts == count).all(axis=1))
        some = [ops.take(neighbors, selected, axis=0) for neighbors in regions]
        pooled.append(_aligned(call, x, some, size, tuple(map(int, count)), mode))
        rows.append(selected)
    order = np.argsort(np.concatenate(rows))
    return ops.take(ops.concatenate(pooled, axis=0), order, axis=0)


def _aligned(
    call: Call, x: Value, regions: Any, size: Any, counts: tuple[int, ...], mode: str
) -> Any:
    """Return the pooled regions: (regions, channels, *size)."""
    start, bins, batch = regions
    shape = (batch.shape[0], *(n * k for n, k in zip(size, counts, strict=True)))
    if 0 in shape:
        return ops.zeros((batch.shape[0], x.shape[1], *size), x.dtype)
    call.allow((*shape, x.shape[1]), x.dtype)
    call.work(*shape, x.shape[1], 4)
    pairs, is_inside = [], []
    for axis in range(2):
        positions = (np.arange(shape[1 + axis]) + 0.5) / counts[axis]
        line = ops.cast(ops.convert_to_tensor(positions), start.dtype)
        points = start[:, axis : axis + 1] + line * bins[:, axis : axis + 1]
        n = x.shape[2 + axis]
        is_inside.append(ops.logical_and(points >= -1.0, points <= float(n)))
        points = ops.clip(points, 0.0, n - 1.0)
        pairs.append(_neighbors(points, n, "linear", "border", True))
    return _pooled(x, batch, pairs, is_inside, (size, counts, mode))


def _pooled(x: Value, batch: Any, pairs: Any, is_inside: Any, how: Any) -> Tensor:
    size, counts, mode = how
    height, width = x.shape[2:]
    table = ops.reshape(channels_at_end(x), (x.shape[0] * height * width, x.shape[1]))
    is_valid = ops.logical_and(
        ops.expand_dims(is_inside[0], 2), ops.expand_dims(is_inside[1], 1)
    )
    first = ops.reshape(batch * (height * width), (-1, 1, 1))
    combine = ops.add if mode == "avg" else ops.maximum
    total = None
    for (row, row_weight), (column, column_weight) in itertools.product(*pairs):
        positions = ops.expand_dims(row, 2) * width + ops.expand_dims(column, 1)
        weight = ops.expand_dims(row_weight, 2) * ops.expand_dims(column_weight, 1)
        weight = ops.where(is_valid, weight, ops.zeros_like(weight))
        term = ops.take(table, first + positions, axis=0) * ops.expand_dims(weight, -1)
        total = term if total is None else combine(total, term)
    shape = (batch.shape[0], size[0], counts[0], size[1], counts[1], x.shape[1])
    reduce = ops.mean if mode == "avg" else ops.max
    pooled = reduce(ops.reshape(total, shape), axis=(2, 4))
    return ops.transpose(pooled, (0, 3, 1, 2))


OPERATORS = (
    Operator("GridSample", _grid_sample),
    Operator("AffineGrid", _affine_grid, host=(1,)),
    Operator("DeformConv", _deformable),
    Operator("RoiAlign", _roi_align),
)
