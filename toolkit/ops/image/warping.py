"""Interpolation of images at computed coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.creation import arange, ones_like, zeros_like
from toolkit.ops.decomposition import solve_p
from toolkit.ops.elementwise import floor, greater_equal, less, where
from toolkit.ops.image.layout import as_pixels, batched, weighted, widened
from toolkit.ops.index import gather_p
from toolkit.ops.numeric import absolute, clip, logical_and, mod
from toolkit.ops.shape import concatenate, expand_dims, reshape, stack, unstack
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

ORDERS = {"nearest": 0, "bilinear": 1}


def _mirrored(index: Tensor, n: int) -> Tensor:
    """Reflect indices, without a repeated end element: d c b | a b c d | c b a."""
    return absolute(mod(index + (n - 1), 2 * (n - 1)) - (n - 1))


# Maps an index outside [0, n) to an index inside; "constant" reads no pixel there.
_INDEX = {
    "constant": lambda index, n: index,
    "nearest": lambda index, n: index,
    "wrap": mod,
    "mirror": lambda index, n: _mirrored(index, n) if n > 1 else index,
    "reflect": lambda index, n: (_mirrored(2 * index + 1, 2 * n + 1) - 1) // 2,
}
FILL_MODES = tuple(_INDEX)
# Far outside of any image, and 2 * index + 1 still fits int32.
_FAR = 2.0**28


def _nodes(coordinate: Tensor, order: int) -> list[tuple[Tensor, Any]]:
    """Return the two indices around a coordinate, and the weight of each."""
    coordinate = clip(coordinate, -_FAR, _FAR)
    if order == 0:
        half = floor(absolute(coordinate) + 0.5)  # round half away from 0
        return [(convert(where(less(coordinate, 0), -half, half), "int32"), None)]
    low = floor(coordinate)
    share, index = coordinate - low, convert(low, "int32")
    return [(index, 1 - share), (index + 1, share)]


def interpolated(
    x: Tensor, coordinates: Sequence[Tensor], order: int, mode: str, value: TensorLike
) -> Tensor:
    """Read each image of a batch at separate coordinates.

    Args:
        x: (batch, *spatial, channels).
        coordinates: coordinates for each spatial axis, (batch or 1, *points).
        order: 0 reads the nearest pixel, 1 interpolates linearly.
        mode: mode of the padding, one of FILL_MODES.
        value: value of the padding in mode "constant".

    Returns:
        (batch, *points, channels).
    """
    batch, *spatial, channels = x.shape
    rows = reshape(x, (-1, channels))
    points = coordinates[0].shape[1:]
    first = arange(batch, dtype="int32") * math.prod(spatial)
    first = reshape(first, (batch, *(1,) * len(points)))
    total: Any = 0
    for nodes in itertools.product(
        *(_nodes(coordinate, order) for coordinate in coordinates)
    ):
        flat: Any = 0
        weight = is_inside = None
        for (index, share), n in zip(nodes, spatial, strict=True):
            if share is not None:
                weight = share if weight is None else weight * share
            if mode == "constant":
                valid = logical_and(greater_equal(index, 0), less(index, n))
                is_inside = (
                    valid if is_inside is None else logical_and(is_inside, valid)
                )
            flat = flat * n + clip(_INDEX[mode](index, n), 0, n - 1)
        pixels = bind(gather_p, rows, first + flat, axis=0)
        if is_inside is not None:
            pixels = where(expand_dims(is_inside, -1), pixels, convert(value, x.dtype))
        if weight is not None:
            pixels = weighted(pixels, expand_dims(weight, -1))
        total = total + pixels
    return total


def check_mode(op: str, interpolation: str, fill_mode: str) -> None:
    """Raise an error for an unknown interpolation or fill mode."""
    if interpolation not in ORDERS:
        raise unknown_choice(f"{op}: interpolation", interpolation, ORDERS)
    if fill_mode not in FILL_MODES:
        raise unknown_choice(f"{op}: fill_mode", fill_mode, FILL_MODES)


@operation
def map_coordinates(
    inputs: TensorLike,
    coordinates: Any,
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
) -> Tensor:
    """Read a tensor at coordinates between its elements.

    Args:
        inputs: a tensor with n axes.
        coordinates: (n, *points), the coordinate along each axis, in elements.
        order: 0 reads the nearest element, 1 interpolates linearly.
        fill_mode: the values outside the tensor. "constant" is `fill_value`, "nearest"
            the outermost element. "reflect" mirrors the tensor with its outermost
            element, and "mirror" without it. "wrap" continues at the opposite end.
        fill_value: the value in mode "constant".

    Returns:
        A tensor of shape points with the dtype of `inputs`; integers are rounded.

    Raises:
        ShapeError: the first extent of `coordinates` is not n.
        ArgumentError: `order` is not 0 or 1.

    Example:
        >>> from toolkit import ops
        >>> x = [[0.0, 1.0], [2.0, 3.0]]
        >>> ops.image.map_coordinates(x, [[0.5, 1.0], [0.5, 0.0]], order=1).tolist()
        [1.5, 2.0]
    """
    inputs = convert(inputs)
    x = widened(inputs)
    coordinates = convert(coordinates)
    if coordinates.ndim < 2 or coordinates.shape[0] != x.ndim:
        raise ShapeError(
            "map_coordinates: Invalid coordinates rank or shape: expected at least "
            "rank 2, and the first extent must be the same as the rank of `inputs`, "
            f"{x.ndim}; received coordinates {coordinates.shape} for inputs {x.shape}"
        )
    if order not in (0, 1):
        raise ArgumentError(
            "map_coordinates: Invalid value for argument `order`. Expected one of "
            f"[0, 1]. Received: order={order}"
        )
    if fill_mode not in FILL_MODES:
        raise unknown_choice("map_coordinates: fill_mode", fill_mode, FILL_MODES)
    if not dtypes.is_float(coordinates.dtype):
        coordinates = convert(coordinates, x.dtype)
    x = reshape(x, (1, *x.shape, 1))
    axes_coordinates = unstack(expand_dims(coordinates, 1))
    y = interpolated(x, axes_coordinates, order, fill_mode, fill_value)
    return as_pixels(reshape(y, coordinates.shape[1:]), inputs.dtype)


def _grid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return row indices (1, height, 1) and column indices (1, 1, width) of images."""
    height, width = x.shape[1:3]
    rows, columns = (arange(n, dtype=widened(x).dtype) for n in (height, width))
    return reshape(rows, (1, -1, 1)), reshape(columns, (1, 1, -1))


def displaced(
    x: Tensor,
    down: Tensor,
    right: Tensor,
    interpolation: str,
    mode: str,
    value: TensorLike,
) -> Tensor:
    """Read images at displaced coordinates, in their dtype."""
    rows, columns = _grid(x)
    coordinates = rows + down, columns + right
    y = interpolated(widened(x), coordinates, ORDERS[interpolation], mode, value)
    return as_pixels(y, x.dtype)


def _projected(
    x: Tensor, transforms: Tensor, interpolation: str, mode: str, value: TensorLike
) -> Tensor:
    """Read each pixel of the result at the coordinates of its transform, (8,)."""
    rows, columns = _grid(x)
    if transforms.shape[0] not in (1, x.shape[0]):
        raise ShapeError(
            f"expected one transform or {x.shape[0]}, one for each image; received "
            f"{transforms.shape[0]}"
        )
    a0, a1, a2, b0, b1, b2, c0, c1 = (
        reshape(t, (-1, 1, 1)) for t in unstack(transforms, axis=1)
    )
    depth = c0 * columns + c1 * rows + 1
    coordinates = (
        (b0 * columns + b1 * rows + b2) / depth,
        (a0 * columns + a1 * rows + a2) / depth,
    )
    y = interpolated(widened(x), coordinates, ORDERS[interpolation], mode, value)
    return as_pixels(y, x.dtype)


@operation
def affine_transform(
    images: TensorLike,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Tensor:
    """Translate, rotate, scale and shear images.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        transform: (8,) or (batch, 8): numbers a0, a1, a2, b0, b1, b2, c0, c1. Pixel (x,
            y) of the result is read at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)
            with k = c0 x + c1 y + 1.
        interpolation: "nearest" or "bilinear".
        fill_mode: the values outside an image, as for `map_coordinates`.
        fill_value: the value in mode "constant".
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Raises:
        ShapeError: `transform` has another shape.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape([1.0, 2.0, 3.0], (1, 3, 1))
        >>> shift = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
        >>> ops.image.affine_transform(x, shift)[0, :, 0].tolist()
        [2.0, 3.0, 0.0]
    """
    check_mode("affine_transform", interpolation, fill_mode)
    x, restore = batched("affine_transform", images, data_format)
    transform = convert(transform, widened(x).dtype)
    if transform.ndim not in (1, 2) or transform.shape[-1] != 8:
        raise ShapeError(
            "affine_transform: Invalid transform rank: expected rank 1, shape (8,), or "
            f"rank 2, shape (batch, 8); received shape {transform.shape}"
        )
    transform = reshape(transform, (-1, 8))
    return restore(_projected(x, transform, interpolation, fill_mode, fill_value))


@operation
def perspective_transform(
    images: TensorLike,
    start_points: Any,
    end_points: Any,
    interpolation: str = "bilinear",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Tensor:
    """Map four points of images to four other points by a perspective transform.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        start_points: (4, 2) or (batch, 4, 2): points (x, y) in the images, in pixels.
        end_points: the corresponding points in the result, with the shape of
            `start_points`.
        interpolation: "nearest" or "bilinear".
        fill_value: the value outside an image.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Raises:
        ShapeError: the shapes of the points are not valid, or differ.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape([1.0, 2.0, 3.0, 4.0], (2, 2, 1))
        >>> points = [[0, 0], [1, 0], [0, 1], [1, 1]]
        >>> mirrored = [[1, 0], [0, 0], [1, 1], [0, 1]]
        >>> y = ops.image.perspective_transform(x, points, mirrored)
        >>> print(ops.round(y[:, :, 0], 3))
        [[2. 1.]
         [4. 3.]]
    """
    check_mode("perspective_transform", interpolation, "constant")
    x, restore = batched("perspective_transform", images, data_format)
    start, end = (convert(p, widened(x).dtype) for p in (start_points, end_points))
    for name, points in (("start_points", start), ("end_points", end)):
        if points.ndim not in (2, 3) or points.shape[-2:] != (4, 2):
            raise ShapeError(
                f"perspective_transform: Invalid {name} shape: expected (4,2) for a "
                f"single image or (N,4,2) for a batch. Received shape: {points.shape}"
            )
    if start.shape != end.shape:
        raise ShapeError(
            "perspective_transform: start_points and end_points must have the same "
            f"shape. Received {start.shape} and {end.shape}"
        )
    transforms = homographies(*(reshape(p, (-1, 4, 2)) for p in (start, end)))
    return restore(_projected(x, transforms, interpolation, "constant", fill_value))


def homographies(start: Tensor, end: Tensor) -> Tensor:
    """Return the transforms (batch, 8) that map 4 points from `end` to `start`."""
    (to_x, to_y), (x, y) = unstack(start, axis=-1), unstack(end, axis=-1)
    one, zero = ones_like(x), zeros_like(x)
    rows = [
        stack([x, y, one, zero, zero, zero, -to_x * x, -to_x * y], axis=-1),
        stack([zero, zero, zero, x, y, one, -to_y * x, -to_y * y], axis=-1),
    ]
    targets = expand_dims(concatenate([to_x, to_y], axis=-1), -1)
    solution = bind(solve_p, concatenate(rows, axis=1), targets)
    return reshape(solution, (-1, 8))
