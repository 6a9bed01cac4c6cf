"""Images read between their pixels, with the numbers of `scipy.ndimage`.

`toolkit.ops.image` reads them too, but there "wrap" has a period of n pixels instead of
n - 1, and "constant" blends with the fill value within a pixel of the border.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _reflected(place: Array, n: int) -> Array:
    """Back and forth, with the outermost pixel twice: b a | a b c | c b."""
    place = np.mod(place, 2 * n)
    return np.where(place < n, place, 2 * n - 1 - place)


def _mirrored(place: Array, n: int) -> Array:
    """Back and forth, with the outermost pixel once: c b | a b c | b a."""
    if n == 1:
        return np.zeros_like(place)
    folded = np.mod(place, 2 * n - 2)
    # Between n - 1 and n, SciPy turns back later: it matters halfway between pixels.
    last = np.where(place < 0, n - 1, n)
    return np.where(folded < last, folded, 2 * n - 2 - folded)


def _wrapped(place: Array, n: int) -> Array:
    """Again and again, where the last pixel stands in the place of the first."""
    period = n - 1
    if not period:
        return np.zeros_like(place)
    # Not `mod`: what is a multiple of the period below 0 is the last pixel.
    below = place + period * (np.trunc(-place / period) + 1)
    above = place - period * np.trunc(place / period)
    return np.where(place < 0, below, np.where(place > period, above, place))


def _clipped(place: Array, n: int) -> Array:
    return np.clip(place, 0, n - 1)


# Where in the image a place outside of it is read.
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
# The pixel that stands for one outside of the image, where it is not the outermost.
_PIXELS: dict[str, Callable[[Array, int], Array]] = {
    "grid-wrap": np.mod,
    "mirror": _mirrored,
}
FILL_MODES = tuple(_PLACES)
ORDERS = range(6)


def affine_sampled(
    x: Array, matrix: Array, offset: Array, order: int, mode: str, value: float
) -> Array:
    """Pixel p of the result is what x has at `matrix @ p + offset`.

    Args:
        x: (rows, columns, channels).
        matrix: (2, 2).
        offset: (2,).
        order: of the splines between pixels, in `ORDERS`.
        mode: what is outside of the image, one of `FILL_MODES`.
        value: what is there in mode "constant".

    Returns:
        As x; integers are rounded.
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
    """(rows, columns, channels) in float64, of the pixels around each place."""
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
    """(index, share, where it has the fill value) of those that are blended."""
    low = np.floor(place if order else place + 0.5)
    share = place - low
    # Of order 0 there is one neighbour, whose share is the whole.
    nodes = [(low, 1 - share), (low + 1, share)] if order else [(low, np.ones(()))]
    found = []
    for index, weight in nodes:
        inside = _PIXELS.get(mode, _clipped)(index, n)
        absent = _outside(index, n) if mode == "grid-constant" else None
        found.append((inside.astype("intp"), weight, absent))
    return found


def _as_pixels(y: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in the dtype of an image, integers rounded with halves away from 0."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        y = np.clip(np.trunc(y + np.copysign(0.5, y)), limits.min, limits.max)
    return y.astype(dtype)
