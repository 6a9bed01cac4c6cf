"""Geometric transformations of one image, with NumPy's global random numbers.

Images are arrays of three axes: rows, columns, and channels first or last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.compat.tensorflow.keras.legacy.image_drawing import check_pair, draw_zoom
from toolkit.compat.tensorflow.keras.legacy.image_sampling import (
    FILL_MODES,
    ORDERS,
    sample_affine,
)
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.type_aliases import Array, TensorLike


def random_rotation(
    x: TensorLike,
    rg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Rotate an image by a random angle.

    Args:
        x: an image, three axes.
        rg: the maximum angle, in degrees.
        row_axis: the axis of rows.
        col_axis: the axis of columns.
        channel_axis: the axis of channels, 0 or 2.
        fill_mode: the fill mode outside of the image, see `apply_affine_transform`.
        cval: the fill value in mode "constant".
        interpolation_order: 0: nearest pixel, 1: linear; up to 5 with SciPy.

    Returns:
        An image of the shape and dtype of x.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_rotation = tf.keras.preprocessing.image.random_rotation
        >>> random_rotation(np.ones((3, 8, 8)), 30).shape
        (3, 8, 8)
    """
    theta = np.random.uniform(-rg, rg)
    axes, filling = (row_axis, col_axis, channel_axis), (fill_mode, cval)
    return apply_affine_transform(
        x, theta, 0, 0, 0, 1, 1, *axes, *filling, interpolation_order
    )


def random_shift(
    x: Any,
    wrg: float,
    hrg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Shift an image at random.

    Args:
        x: an image, three axes.
        wrg: the maximum shift, as a fraction of the width.
        hrg: the maximum shift, as a fraction of the height.
        row_axis: the axis of rows.
        col_axis: the axis of columns.
        channel_axis: the axis of channels, 0 or 2.
        fill_mode: the fill mode outside of the image, see `apply_affine_transform`.
        cval: the fill value in mode "constant".
        interpolation_order: 0: nearest pixel, 1: linear; up to 5 with SciPy.

    Returns:
        An image of the shape and dtype of x.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_shift = tf.keras.preprocessing.image.random_shift
        >>> random_shift(np.ones((3, 8, 8)), 0.2, 0.2).shape
        (3, 8, 8)
    """
    tx = np.random.uniform(-hrg, hrg) * x.shape[row_axis]
    ty = np.random.uniform(-wrg, wrg) * x.shape[col_axis]
    axes, filling = (row_axis, col_axis, channel_axis), (fill_mode, cval)
    return apply_affine_transform(
        x, 0, tx, ty, 0, 1, 1, *axes, *filling, interpolation_order
    )


def random_shear(
    x: TensorLike,
    intensity: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Shear an image by a random angle.

    Args:
        x: an image, three axes.
        intensity: the maximum angle, in degrees.
        row_axis: the axis of rows.
        col_axis: the axis of columns.
        channel_axis: the axis of channels, 0 or 2.
        fill_mode: the fill mode outside of the image, see `apply_affine_transform`.
        cval: the fill value in mode "constant".
        interpolation_order: 0: nearest pixel, 1: linear; up to 5 with SciPy.

    Returns:
        An image of the shape and dtype of x.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_shear = tf.keras.preprocessing.image.random_shear
        >>> random_shear(np.ones((3, 8, 8)), 20).shape
        (3, 8, 8)
    """
    shear = np.random.uniform(-intensity, intensity)
    axes, filling = (row_axis, col_axis, channel_axis), (fill_mode, cval)
    return apply_affine_transform(
        x, 0, 0, 0, shear, 1, 1, *axes, *filling, interpolation_order
    )


def random_zoom(
    x: TensorLike,
    zoom_range: Any,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> Array:
    """Zoom an image by two random factors.

    Args:
        x: an image, three axes.
        zoom_range: (minimum, maximum) factor; above 1 the image becomes smaller.
        row_axis: the axis of rows.
        col_axis: the axis of columns.
        channel_axis: the axis of channels, 0 or 2.
        fill_mode: the fill mode outside of the image, see `apply_affine_transform`.
        cval: the fill value in mode "constant".
        interpolation_order: 0: nearest pixel, 1: linear; up to 5 with SciPy.

    Returns:
        An image of the shape and dtype of x.

    Raises:
        ArgumentError: if `zoom_range` is not a pair.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_zoom = tf.keras.preprocessing.image.random_zoom
        >>> random_zoom(np.ones((3, 8, 8)), (0.8, 1.2)).shape
        (3, 8, 8)
    """
    zx, zy = draw_zoom(check_pair("random_zoom: zoom_range", zoom_range))
    axes, filling = (row_axis, col_axis, channel_axis), (fill_mode, cval)
    return apply_affine_transform(
        x, 0, 0, 0, 0, zx, zy, *axes, *filling, interpolation_order
    )


def apply_affine_transform(
    x: Any,
    theta: float = 0,
    tx: float = 0,
    ty: float = 0,
    shear: float = 0,
    zx: float = 1,
    zy: float = 1,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    order: int = 1,
) -> Array:
    """Rotate, shift, shear and zoom an image.

    Args:
        x: an image, three axes.
        theta: the rotation angle, in degrees.
        tx: the shift along one axis, in pixels.
        ty: the shift along the other axis, in pixels.
        shear: the shear angle, in degrees.
        zx: the factor along one axis; above 1 the image becomes smaller.
        zy: the factor along the other axis.
        row_axis: the axis of rows.
        col_axis: the axis of columns.
        channel_axis: the axis of channels, 0 or 2.
        fill_mode: the fill mode outside of the image: "constant"; "nearest" repeats the
            edge pixel, "reflect" reflects with the edge pixel repeated, "wrap"
                continues
            at the opposite side; or another mode of `scipy.ndimage`.
        cval: the fill value in mode "constant".
        order: 0: nearest pixel, 1: linear; up to 5 with SciPy.

    Returns:
        An image of the shape and dtype of x; x itself without a change.

    Raises:
        ArgumentError: if axes, mode or order are invalid.
        ShapeError: if x does not have three axes.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> apply_affine_transform = tf.keras.preprocessing.image.apply_affine_transform
        >>> x = np.array([[[1.0, 2.0, 3.0]]])
        >>> apply_affine_transform(x, tx=1, fill_mode="constant").tolist()
        [[[2.0, 3.0, 0.0]]]
    """
    axes = (row_axis, col_axis, channel_axis)
    if sorted(axes) != [0, 1, 2] or channel_axis == 1:
        raise ArgumentError(
            "apply_affine_transform: expected row_axis, col_axis and channel_axis to "
            f"be 0, 1 and 2, with the channels first or last; received {axes}"
        )
    if np.ndim(x) != 3:
        raise ShapeError(
            "apply_affine_transform: expected an image with three axes; received shape "
            f"{np.shape(x)}"
        )
    check_sampling("apply_affine_transform: fill_mode", fill_mode, order)
    matrix = _build_matrix(theta, tx, ty, shear, zx, zy)
    if matrix is None:
        return x
    matrix = _center_matrix(matrix, x.shape[row_axis], x.shape[col_axis])
    if col_axis > row_axis:
        matrix = matrix[np.ix_([1, 0, 2], [1, 0, 2])]
    pixels = np.moveaxis(np.asarray(x), channel_axis, -1)
    y = sample_affine(pixels, matrix[:2, :2], matrix[:2, 2], order, fill_mode, cval)
    return np.moveaxis(y, -1, channel_axis)


def check_sampling(caller: str, fill_mode: str, order: int) -> None:
    """Raise for an unknown mode or order of interpolation."""
    if fill_mode not in FILL_MODES:
        raise unknown_choice(caller, fill_mode, FILL_MODES)
    if order not in ORDERS:
        raise ArgumentError(
            f"{caller.partition(':')[0]}: the order of interpolation must be an "
            f"integer in [0, 5]; received {order!r}"
        )


def _build_matrix(
    theta: float, tx: float, ty: float, shear: float, zx: float, zy: float
) -> Array | None:
    """Return the (3, 3) map from result to image coordinates; None for the identity."""
    angle, slant = np.deg2rad(theta), np.deg2rad(shear)
    sine, cosine = np.sin(angle), np.cos(angle)
    factors = (
        (theta != 0, [[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]]),
        (tx != 0 or ty != 0, [[1, 0, tx], [0, 1, ty], [0, 0, 1]]),
        (shear != 0, [[1, -np.sin(slant), 0], [0, np.cos(slant), 0], [0, 0, 1]]),
        (zx != 1 or zy != 1, [[zx, 0, 0], [0, zy, 0], [0, 0, 1]]),
    )
    matrix = None
    for is_used, rows in factors:
        if is_used:
            factor = np.array(rows)
            matrix = factor if matrix is None else np.dot(matrix, factor)
    return matrix


def _center_matrix(matrix: Array, height: int, width: int) -> Array:
    """Return a matrix that acts around the center of the image, not its first pixel."""
    x, y = height / 2 - 0.5, width / 2 - 0.5
    to_center = np.array([[1, 0, x], [0, 1, y], [0, 0, 1]])
    back = np.array([[1, 0, -x], [0, 1, -y], [0, 0, 1]])
    centred: Array = np.dot(np.dot(to_center, matrix), back)
    return centred
