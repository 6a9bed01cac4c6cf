"""`tf.image` of TensorFlow 1: resize methods that align pixel corners, not centers."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow import image
from toolkit.compat.tensorflow.arguments import extents, refuse
from toolkit.compat.tensorflow.boundary import make_recordable
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import Array, IntOrInts, TensorLike

_METHODS = ("bilinear", "nearest", "bicubic", "area")


class ResizeMethod:
    """The values of `method` for `resize_images`; lower-case names are also valid."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = 0, 1, 2, 3


def _sample_coordinates(
    method: str, count: int, new_count: int, corners: bool, half: bool
) -> Any:
    """Return the coordinates of the resized elements on the old axis, and the step."""
    between = corners and new_count > 1
    step = np.float32(
        (count - 1) / np.float32(new_count - 1)
        if between
        else count / np.float32(new_count)
    )
    numbers = np.arange(new_count, dtype="float32")
    if not half:
        return numbers * step, step
    return (numbers + np.float32(0.5)) * step - (
        np.float32(0.0 if method == "nearest" else 0.5)
    ), step


def _weights(
    method: str, count: int, new_count: int, corners: bool, half: bool
) -> Array:
    """Return the weight of each old element (column) for each new one (row)."""
    coordinates, step = _sample_coordinates(method, count, new_count, corners, half)
    matrix = np.zeros((new_count, count), "float32")
    rows = np.arange(new_count)

    def add(columns: Array, weights: Any) -> None:
        np.add.at(matrix, (rows, np.clip(columns, 0, count - 1)), weights)

    below = np.floor(coordinates).astype(int)
    share = coordinates - below
    if method == "nearest":
        add(np.floor(coordinates + 0.5).astype(int) if corners else below, 1)
    elif method == "bilinear":
        add(below, 1 - share)
        add(below + 1, share)
    elif method == "bicubic":
        _add_cubic(add, below, np.round(share * 1024) / 1024, -0.5 if half else -0.75)
        if half:  # drop elements outside
            is_inside = (below[:, None] + [-1, 0, 1, 2] >= 0) & (
                below[:, None] + [-1, 0, 1, 2] < count
            )
            matrix[:] = 0
            _add_cubic(add, below, np.round(share * 1024) / 1024, -0.5, is_inside)
            matrix /= matrix.sum(1, keepdims=True)
    else:
        for row in rows:
            end = coordinates[row] + step
            for column in np.arange(below[row], int(np.ceil(end))):
                overlap = min(column + 1, end) - max(column, coordinates[row])
                matrix[row, min(column, count - 1)] += overlap / step
    return matrix


def _add_cubic(
    add: Any, below: Array, share: Array, a: float, is_inside: Any = None
) -> None:
    """Add Keys's cubic kernel over the two elements on each side."""
    for i, distance in enumerate((1 + share, share, 1 - share, 2 - share)):
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = near if i in (1, 2) else far
        add(below + i - 1, weights if is_inside is None else weights * is_inside[:, i])


def _resized(
    x: Any, size: TensorLike, method: str, corners: bool, half: bool
) -> Tensor:
    x = convert(x)
    if x.ndim not in (3, 4):
        raise ShapeError(
            "resize: expected a picture (height, width, channels) or a batch; received "
            f"shape {tuple(x.shape)}"
        )
    height, width = extents(size)
    axis = x.ndim - 3
    rows = _weights(method, x.shape[axis], height, corners, half)
    columns = _weights(method, x.shape[axis + 1], width, corners, half)
    if method == "nearest":
        y = ops.take(x, rows.argmax(1).astype("int32"), axis)
        return ops.take(y, columns.argmax(1).astype("int32"), axis + 1)
    y = ops.cast(x, "float32")
    return ops.einsum("yh,xw,...hwc->...yxc", rows, columns, y)


@make_recordable
def resize(
    images: TensorLike,
    size: TensorLike,
    method: Any = 0,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Tensor:
    """Resize images: pixel corners are aligned, as in TensorFlow 1.

    Args:
        images: (..., height, width, channels), one or a batch.
        size: the new height and width.
        method: a member of `ResizeMethod`, or "bilinear", "nearest", "bicubic", "area".
        align_corners: whether to align the centers of the outer pixels.
        preserve_aspect_ratio: only False.

    Returns:
        float32; for the method "nearest", the dtype of `images`.
    """
    refuse("resize_images", preserve_aspect_ratio=(preserve_aspect_ratio, False))
    word = _METHODS[method] if isinstance(method, int) else str(method)
    if word not in _METHODS:
        raise ArgumentError(
            f"resize_images: expected a method among {_METHODS}; received {method!r}"
        )
    return _resized(images, size, word, bool(align_corners), False)


def _make_resize(method: str, name: str) -> Any:
    def resize_pictures(
        images: TensorLike,
        size: IntOrInts,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
        name: str | None = None,
    ) -> Tensor:
        return _resized(
            images, size, method, bool(align_corners), bool(half_pixel_centers)
        )

    resize_pictures.__name__ = resize_pictures.__qualname__ = f"resize_{name}"
    resize_pictures.__doc__ = (
        f"As `resize` by the method {method}; `half_pixel_centers` aligns the centers "
        "of pixels."
    )
    return make_recordable(resize_pictures)


resize_images: Any = resize
resize_area: Any = _make_resize("area", "area")
resize_bicubic: Any = _make_resize("bicubic", "bicubic")
resize_bilinear: Any = _make_resize("bilinear", "bilinear")
resize_nearest_neighbor: Any = _make_resize("nearest", "nearest_neighbor")


def __getattr__(name: str) -> Any:
    """Return a name of TensorFlow 2."""
    return getattr(image, name)
