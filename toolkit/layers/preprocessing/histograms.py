"""Layers that change the histogram of image colors."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.color_layer import BYTES, ColorLayer, rescaled
from toolkit.type_aliases import NumberRange, RegularizedLayerOptions, TensorLike

_LEVELS = 256


def _counts(levels: Tensor, groups: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Count each level in each group; return `shape`: groups, then levels.

    Args:
        levels: int32, below shape[-1].
        groups: int32, the flat index of the group in shape[:-1], row-major.
    """
    offsets = ops.reshape(groups * shape[-1] + levels, (-1,))
    total = 1
    for n in shape:
        total *= n
    ones = ops.ones(offsets.shape, "float32")
    return ops.reshape(ops.segment_sum(ones, offsets, total), shape)


class AutoContrast(ColorLayer):
    """Auto contrast: stretches each channel of each image to the full value range.

    A channel of one value stays unchanged. The layer is also active in inference.

    Args:
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.AutoContrast(value_range=(0, 1))
        >>> layer(toolkit.ops.array([[[0.25], [0.375], [0.75]]])).tolist()
        [[[0.0], [0.25], [1.0]]]
    """

    in_inference = True

    def _adjusted(self, x: TensorLike) -> Tensor:
        low = ops.amin(x, axis=(1, 2), keepdims=True)
        extent = ops.amax(x, axis=(1, 2), keepdims=True) - low
        flat = extent == 0
        shares = (x - low) / ops.where(flat, 1.0, extent)
        return ops.where(flat, x, rescaled(shares, (0, 1), self.value_range))


class Equalization(ColorLayer):
    """Histogram equalization: in training, makes the values of a channel uniform.

    A value becomes the fraction of pixels, over all images of the batch, that are not
    above it.

    Args:
        value_range: (lowest, highest) value of the images.
        bins: the number of distinct values.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Equalization()
        >>> layer(toolkit.ops.array([[[10.0], [11.0], [12.0], [12.0]]])).tolist()
        [[[0.0], [85.0], [255.0], [255.0]]]
    """

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        bins: int = 256,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(value_range, data_format, **kwargs)
        if not is_int(bins) or bins < 1:
            raise ArgumentError(
                f"Equalization: expected bins, an integer > 0; received {bins!r}"
            )
        self.bins = bins

    def _adjusted(self, x: Tensor) -> Tensor:
        last = self.bins - 1
        scaled = rescaled(ops.cast(x, "float32"), self.value_range, BYTES)
        levels = ops.cast(ops.clip(scaled * last / 255, 0, last), "int32")
        channels = ops.arange(x.shape[-1], dtype="int32")
        channels = ops.broadcast_to(channels, x.shape)
        counts = _counts(levels, channels, (x.shape[-1], self.bins))
        below = ops.cumsum(counts, axis=-1)
        first = ops.amin(ops.where(below > 0, below, below[:, -1:]), -1, keepdims=True)
        remaining = below[:, -1:] - first  # pixels above the lowest value
        table = (below - first) * 255 / ops.where(remaining == 0, 1.0, remaining)
        table = ops.reshape(ops.clip(ops.round(table), 0, 255), (-1,))
        equalized = ops.take(table, channels * self.bins + levels)
        equalized = rescaled(equalized, BYTES, self.value_range)
        return ops.where(remaining[:, 0] == 0, x, ops.cast(equalized, x.dtype))


class ContrastLimitedAdaptiveHistogramEqualization(ColorLayer):
    """Contrast-limited adaptive histogram equalization (CLAHE) of each channel.

    Each image is divided into tiles. Each tile has a lookup table from its histogram,
    whose counts are clipped at a limit; the excess is distributed over all values. A
    pixel's new value is interpolated between the tables of the four nearest tiles. The
    layer is also active in inference.

    Args:
        value_range: (lowest, highest) value of the images.
        clip_limit: the maximum count relative to the mean; 0 or less: no limit.
        tile_grid_size: the number of tiles (rows, columns).
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.

    Output shape: same as the inputs, with the same dtype.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ContrastLimitedAdaptiveHistogramEqualization(
        ...     value_range=(0, 1)
        ... )
        >>> layer(toolkit.ops.ones((2, 16, 16, 3))).shape
        (2, 16, 16, 3)

    Reference: Zuiderveld, Contrast Limited Adaptive Histogram Equalization (1994).
    """

    in_inference = True

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: tuple[int, int] = (8, 8),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(value_range, data_format, **kwargs)
        self.clip_limit = clip_limit
        self.tile_grid_size: tuple[int, ...] = tuple(tile_grid_size)

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        result = super().transform_images(images, transformation, training)
        return ops.cast(result, ops.convert_to_tensor(images).dtype)

    def _adjusted(self, x: TensorLike) -> Tensor:
        x = ops.cast(x, "float32")
        batch, height, width, channels = x.shape
        extents = height, width
        sizes = [-(-n // k) for n, k in zip(extents, self.tile_grid_size, strict=True)]
        margins = [
            (0, size * k - n)
            for n, k, size in zip(extents, self.tile_grid_size, sizes, strict=True)
        ]
        levels = rescaled(x, self.value_range, BYTES)
        levels = ops.pad(levels, [(0, 0), *margins, (0, 0)], mode="symmetric")
        levels = ops.cast(ops.clip(levels, *BYTES), "int32")
        tables = self._tables(levels, sizes)
        result = self._interpolated(tables, levels, sizes)[:, :height, :width]
        return rescaled(result, BYTES, self.value_range)

    def _table_offsets(self, levels: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Return for each pixel the index of its table: image, tile and channel."""
        down, across = self.tile_grid_size
        batch, _, _, channels = levels.shape
        images = ops.arange(batch, dtype="int32")[:, None, None, None]
        tiles = (images * down + rows[:, None, None]) * across + columns[:, None]
        return tiles * channels + ops.arange(channels, dtype="int32")

    def _tables(self, levels: Tensor, sizes: list[int]) -> Tensor:
        """Return tables (batch, rows, columns, channels, 256) of clipped histograms."""
        rows, columns = (
            ops.arange(size * k, dtype="int32") // size
            for size, k in zip(sizes, self.tile_grid_size, strict=True)
        )
        offsets = self._table_offsets(levels, rows, columns)
        shape = (levels.shape[0], *self.tile_grid_size, levels.shape[-1], _LEVELS)
        counts, pixels = _counts(levels, offsets, shape), sizes[0] * sizes[1]
        if self.clip_limit > 0:
            cut = ops.minimum(counts, self.clip_limit * pixels / _LEVELS)
            excess = ops.sum(counts - cut, axis=-1, keepdims=True)
            counts = cut + excess / _LEVELS
        below = ops.cumsum(counts, axis=-1)
        remaining = pixels - below[..., :1]
        table = (
            (below - below[..., :1]) * 255 / ops.where(remaining == 0, 1.0, remaining)
        )
        return ops.clip(table, *BYTES)

    def _interpolated(self, tables: Tensor, levels: Tensor, sizes: list[int]) -> Tensor:
        """Return the new values of pixels, bilinear between the centers of tiles."""
        tables = ops.reshape(tables, (-1,))
        (top, bottom, down), (left, right, across) = (
            _neighbours(size, k)
            for size, k in zip(sizes, self.tile_grid_size, strict=True)
        )

        def looked_up(rows: Tensor, columns: Tensor) -> Tensor:
            offsets = self._table_offsets(levels, rows, columns)
            return ops.take(tables, offsets * _LEVELS + levels)

        def between(rows: Tensor) -> Any:
            first = looked_up(rows, left)
            return first + (looked_up(rows, right) - first) * across[:, None]

        above = between(top)
        return above + (between(bottom) - above) * down[:, None, None]


def _neighbours(size: int, count: int) -> tuple[Any, Any, Any]:
    """Return for each pixel along one axis: the two nearest tiles and the weight."""
    position = (ops.arange(size * count, dtype="float32") - size / 2) / size
    first = ops.floor(position)
    share = position - first
    before = ops.cast(ops.clip(first, 0, count - 1), "int32")
    after = ops.cast(ops.clip(first + 1, 0, count - 1), "int32")
    return before, after, share
