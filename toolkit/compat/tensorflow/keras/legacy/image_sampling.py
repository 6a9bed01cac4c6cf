"""Interpolation of images, with the results of `scipy.ndimage`.

`toolkit.ops.image` differs: its "wrap" has a period of n pixels instead of n - 1, and
its "constant" blends with the fill value within a pixel of the border.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from toolkit.type_aliases import Array


def _reflect(x: Array, n: int) -> Array:
    """Reflect a coordinate with the edge pixel repeated: b a | a b c | c b."""
    x = np.mod(x, 2 * n)
    return np.where(x < n, x, 2 * n - 1 - x)


def _mirror(x: Array, n: int) -> Array:
    """Reflect a coordinate with the edge pixel not repeated: c b | a b c | b a."""
    if n == 1:
        return np.zeros_like(x)
    folded = np.mod(x, 2 * n - 2)
    # Between n - 1 and n, SciPy reflects later, which affects rounding at half pixels.
    last = np.where(x < 0, n - 1, n)
    return np.where(folded < last, folded, 2 * n - 2 - folded)


def _wrap(x: Array, n: int) -> Array:
    """Wrap a coordinate; the last pixel is also the first pixel of the next period."""
    period = n - 1
    if not period:
        return np.zeros_like(x)
    # Not `mod`: a negative multiple of the period maps to the last pixel.
    below = x + period * (np.trunc(-x / period) + 1)
    above = x - period * np.trunc(x / period)
    return np.where(x < 0, below, np.where(x > period, above, x))


def _clip(x: Array, n: int) -> Array:
    return np.clip(x, 0, n - 1)


# Mode -> map from a coordinate outside of the image to one inside.
_PLACES: dict[str, Callable[[Array, int], Array]] = {
    "constant": _clip,
    "nearest": _clip,
    "reflect": _reflect,
    "grid-mirror": _reflect,
    "mirror": _mirror,
    "wrap": _wrap,
    "grid-wrap": np.mod,
    "grid-constant": lambda x, n: np.clip(x, -2, n + 1),
}
# Mode -> map of a pixel index outside of the image, if it is not the edge pixel.
_PIXELS: dict[str, Callable[[Array, int], Array]] = {
    "grid-wrap": np.mod,
    "mirror": _mirror,
}
FILL_MODES = tuple(_PLACES)
ORDERS = range(6)


def sample_affine(
    x: Array, matrix: Array, offset: Array, order: int, mode: str, value: float
) -> Array:
    """Resample x: pixel p of the result is the value of x at `matrix @ p + offset`.

    Args:
        x: (rows, columns, channels).
        matrix: (2, 2).
        offset: (2,).
        order: of the interpolating splines, in `ORDERS`.
        mode: the fill mode outside of the image, one of `FILL_MODES`.
        value: the fill value in mode "constant".

    Returns:
        An image as x; integers are rounded.
    """
    if order > 1:
        function = _sample_with_scipy().affine_transform
        options = {"order": order, "mode": mode, "cval": value}
        channels = [
            function(channel, matrix, offset, **options)
            for channel in np.moveaxis(x, -1, 0)
        ]
        return np.stack(channels, axis=-1)
    rows, columns = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    coordinates = [
        start + rows * by_row + columns * by_column
        for start, (by_row, by_column) in zip(offset, matrix, strict=True)
    ]
    return _as_pixels(_interpolate(x, coordinates, order, mode, value), x.dtype)


def _sample_with_scipy() -> Any:
    try:
        return import_module("scipy.ndimage")
    except ImportError as error:
        raise ImportError(
            "apply_affine_transform: interpolation orders above 1 need SciPy: "
            "`pip install scipy`"
        ) from error


def _interpolate(
    x: Array, coordinates: list[Array], order: int, mode: str, value: float
) -> Array:
    """Return the interpolated values at coordinates, (rows, columns, channels),
    float64."""
    pixels = x.reshape(-1, x.shape[-1]).astype("float64")
    sides = [
        _neighbours(_PLACES[mode](coordinate, n), n, order, mode)
        for coordinate, n in zip(coordinates, x.shape[:2], strict=True)
    ]
    total = np.zeros(x.shape)
    for row, row_share, no_row in sides[0]:
        for column, column_share, no_column in sides[1]:
            samples = pixels.take(row * x.shape[1] + column, axis=0)
            if no_row is not None and no_column is not None:
                samples[no_row | no_column] = value
            samples *= (row_share * column_share)[..., None]
            total += samples
    if mode == "constant":
        total[
            _is_outside(coordinates[0], x.shape[0])
            | _is_outside(coordinates[1], x.shape[1])
        ] = value
    return total


def _is_outside(x: Array, n: int) -> Array:
    result: Array = (x < 0) | (x > n - 1)
    return result


def _neighbours(
    x: Array, n: int, order: int, mode: str
) -> list[tuple[Array, Array, Array | None]]:
    """Return (index, weight, mask of fill values) of the interpolated neighbours."""
    low = np.floor(x if order else x + 0.5)
    share = x - low
    # Order 0 has one neighbour with weight 1.
    nodes = [(low, 1 - share), (low + 1, share)] if order else [(low, np.ones(()))]
    result = []
    for index, weight in nodes:
        clipped_index = _PIXELS.get(mode, _clip)(index, n)
        absent = _is_outside(index, n) if mode == "grid-constant" else None
        result.append((clipped_index.astype("intp"), weight, absent))
    return result


def _as_pixels(y: Array, dtype: np.dtype[Any]) -> Array:
    """Cast to the dtype of an image; integers round half away from zero."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        y = np.clip(np.trunc(y + np.copysign(0.5, y)), limits.min, limits.max)
    return y.astype(dtype)
