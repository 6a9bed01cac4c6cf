"""Operators that move blocks of images."""

from __future__ import annotations

import math

import numpy as np

from toolkit import ops
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator, axes_of
from toolkit.models.importing.operators.shapes import padded
from toolkit.models.importing.operators.windows import window_counts, windows_of
from toolkit.models.importing.values import Value


def _depth_to_space(call: Call, x: Value) -> Value:
    block, mode = call.integer("blocksize"), call.text("mode", "DCR")
    if x.ndim != 4 or block < 1 or mode not in ("DCR", "CRD"):
        raise ModelFileError(
            f"cannot apply blocksize={block} and mode={mode!r} to shape {x.shape}"
        )
    n, c, h, w = x.shape
    if c % block**2:
        raise ModelFileError(
            f"{c} channels are not a multiple of blocksize={block} squared"
        )
    order = (0, 2, 3, 1)
    c //= block**2
    split = (block, block, c) if mode == "DCR" else (c, block, block)
    axes = (0, 1, 3, 2, 4, 5) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    y = ops.transpose(ops.reshape(x.ordered(order), (n, h, w, *split)), axes)
    return Value(ops.reshape(y, (n, h * block, w * block, c)), order)


def _space_to_depth(call: Call, x: Value) -> Value:
    block, mode = call.integer("blocksize"), call.text("mode", "DCR")
    if x.ndim != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
        raise ModelFileError(f"cannot split shape {x.shape} by blocksize={block}")
    n, c, h, w = x.shape
    order = (0, 2, 3, 1)
    y = ops.reshape(x.ordered(order), (n, h // block, block, w // block, block, c))
    y = ops.transpose(y, (0, 1, 3, *((2, 4, 5) if mode == "DCR" else (5, 2, 4))))
    return Value(ops.reshape(y, (n, h // block, w // block, block**2 * c)), order)


def _columns_to_image(call: Call, x: Value, image: Value, block: Value) -> Value:
    """Add blocks at their positions in an image; they can overlap."""
    spatial = call.static_integers(image, "the shape of the image")
    size = call.static_integers(block, "the shape of blocks")
    taps = math.prod(size)
    if x.ndim != 3 or len(size) != len(spatial) or taps < 1 or x.shape[1] % taps:
        raise ModelFileError(
            f"blocks of {size} in an image of {spatial} do not fit shape {x.shape}"
        )
    n, channels = x.shape[0], x.shape[1] // taps
    call.allow((n, channels, *spatial), x.dtype)
    windows = windows_of(call, (n, channels, *spatial), size)
    counts = window_counts(spatial, windows)
    if x.shape[2] != math.prod(counts):
        raise ModelFileError(
            f"expected {math.prod(counts)} blocks; received {x.shape[2]}"
        )
    flat, is_inside = np.zeros((taps, x.shape[2]), np.int64), True
    elements = np.indices(size).reshape((len(size), taps, 1))
    starts = np.indices(counts).reshape((len(size), 1, -1))
    for axis, extent in enumerate(spatial):
        line = starts[axis] * windows.strides[axis] - windows.pads[axis][0]
        line = line + elements[axis] * windows.dilation[axis]
        is_inside = is_inside & (line >= 0) & (line < extent)
        flat = flat * extent + line
    rows = ops.reshape(x.tensor, (n * channels, taps * x.shape[2]))
    valid = np.flatnonzero(is_inside)
    updates = ops.take(ops.transpose(rows), valid, axis=0)
    blank = ops.zeros((math.prod(spatial), n * channels), x.dtype)
    indices = flat.reshape(-1)[valid][:, None]
    y = ops.scatter_update(blank, indices, updates, "add")
    return Value(ops.reshape(ops.transpose(y), (n, channels, *spatial)))


def _center_crop_pad(call: Call, x: Value, shape: Value) -> Value:
    axes = axes_of(call.integers("axes", tuple(range(x.ndim))), x.ndim)
    target = call.static_integers(shape, "the shape")
    if len(target) != len(axes) or min(target, default=0) < 0:
        raise ModelFileError(f"the target shape {target} does not fit the axes {axes}")
    widths = [(0, 0)] * x.ndim
    for axis, n in zip(axes, target, strict=True):
        growth = n - x.shape[axis]
        low = abs(growth) // 2
        widths[axis] = (low, growth - low) if growth > 0 else (-low, growth + low)
    return padded(call, x, widths, "constant", 0)


OPERATORS = (
    Operator("DepthToSpace", _depth_to_space),
    Operator("SpaceToDepth", _space_to_depth),
    Operator("Col2Im", _columns_to_image, host=(1, 2)),
    Operator("CenterCropPad", _center_crop_pad, host=(1,)),
)
