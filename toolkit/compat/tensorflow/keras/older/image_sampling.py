"""Interpolation of images, with the results of `scipy.ndimage`.

`toolkit.ops.image` differs: its "wrap" has a period of n pixels instead of n - 1, and
its "constant" blends with the fill value within a pixel of the border.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _reflected(place: Array, n: int) -> Array:
    """Reflect a coordinate with the edge pixel repeated: b a | a b c | c b."""
    place = np.mod(place, 2 * n)
    return np.where(place < n, place, 2 * n - 1 - place)


def _mirrored(place: Array, n: int) -> Array:
    """Reflect a coordinate with the edge pixel not repeated: c b | a b c | b a."""
    if n == 1:
        return np.zeros_like(place)
    folded = np.mod(place, 2 * n - 2)
    # Between n - 1 and n, SciPy reflects later, which affects rounding at half pixels.
    last = np.where(place < 0, n - 1, n)
    return np.where(folded < last, folded, 2 * n - 2 - folded)


def _wrapped(place: Array, n: int) -> Array:
    """Wrap a coordinate; the last pixel is also the first pixel of the next period."""
    period = n - 1
    if not period:
        return np.zeros_like(place)
    # Not `mod`: a negative multiple of the period maps to the last pixel.
    below = place + period * (np.trunc(-place / period) + 1)
    above = place - period * np.trunc(place / period)
    return np.where(place < 0, below, np.where(place > period, above, place))


def _clipped(place: Array, n: int) -> Array:
    return np.clip(place, 0, n - 1)


# Mode -> map from a coordinate outside of the image to one inside.
_PLACES: dict[str, Callable[[Array, int], Array]] = {
    "constant": _clipped,
    "nearest": _clipped,
    "reflect": _reflected,
    "grid-mirror": _reflected,
    "mirror": _mirrored,
    "wrap": _wrapped,
    "grid-wrap": np.mod,
    "grid-constant": lambda place, n: np.clip(place, -2, n + 1),
}
# Mode -> map of a pixel index outside of the image, if it is not the edge pixel.
_PIXELS: dict[str, Callable[[Array, int], Array]] = {
    "grid-wrap": np.mod,
    "mirror": _mirrored,
}
FILL_MODES = tuple(_PLACES)
ORDERS = range(6)


def affine_sampled(
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
        function = _scipy().affine_transform
        options = {"order": order, "mode": mode, "cval": value}
        channels = [
            function(channel, matrix, offset, **options)
            for channel in np.moveaxis(x, -1, 0)
        ]
        return np.stack(channels, axis=-1)
    rows, columns = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    places = [
        start + rows * by_row + columns * by_column
        for start, (by_row, by_column) in zip(offset, matrix, strict=True)
    ]
    return _as_pixels(_blended(x, places, order, mode, value), x.dtype)


def _scipy() -> Any:
    try:
        return import_module("scipy.ndimage")
    except ImportError as error:
        raise ImportError(
            "apply_affine_transform: interpolation orders above 1 need SciPy: "
            "`pip install scipy`"
        ) from error


def _blended(
    x: Array, places: list[Array], order: int, mode: str, value: float
) -> Array:
    """Return the interpolated values at coordinates, (rows, columns, channels),
    float64."""
    pixels = x.reshape(-1, x.shape[-1]).astype("float64")
    sides = [
        _neighbours(_PLACES[mode](place, n), n, order, mode)
        for place, n in zip(places, x.shape[:2], strict=True)
    ]
    total = np.zeros(x.shape)
    for row, row_share, no_row in sides[0]:
        for column, column_share, no_column in sides[1]:
            found = pixels.take(row * x.shape[1] + column, axis=0)
            if no_row is not None and no_column is not None:
                found[no_row | no_column] = value
            found *= (row_share * column_share)[..., None]
            total += found
    if mode == "constant":
        total[_outside(places[0], x.shape[0]) | _outside(places[1], x.shape[1])] = value
    return total


def _outside(place: Array, n: int) -> Array:
    outside: Array = (place < 0) | (place > n - 1)
    return outside


def _neighbours(
    place: Array, n: int, order: int, mode: str
) -> list[tuple[Array, Array, Array | None]]:
    """Return (index, weight, mask of fill values) of the interpolated neighbours."""
    low = np.floor(place if order else place + 0.5)
    share = place - low
    # Order 0 has one neighbour with weight 1.
    nodes = [(low, 1 - share), (low + 1, share)] if order else [(low, np.ones(()))]
    found = []
    for index, weight in nodes:
        inside = _PIXELS.get(mode, _clipped)(index, n)
        absent = _outside(index, n) if mode == "grid-constant" else None
        found.append((inside.astype("intp"), weight, absent))
    return found


def _as_pixels(y: Array, dtype: np.dtype[Any]) -> Array:
    """Cast to the dtype of an image; integers round half away from zero."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        y = np.clip(np.trunc(y + np.copysign(0.5, y)), limits.min, limits.max)
    return y.astype(dtype)
