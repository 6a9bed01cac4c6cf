"""Resizing of images from files to one size, as in Keras's data sets of folders."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.ops.image.layout import batched
from toolkit.ops.image.resizing import cropped, to_size

Size = tuple[int, int]


def fit_image(
    image: Any,
    size: Size,
    interpolation: str,
    crop_to_aspect_ratio: bool,
    pad_to_aspect_ratio: bool,
    data_format: str,
) -> Any:
    """Resize an image (height, width, channels), or channels first.

    Unlike `ops.image.resize`, it pads after resizing: the padding is 0, with a sharp
    border.
    """
    x, restore = batched("image_dataset_from_directory", image, data_format)
    if not pad_to_aspect_ratio:
        x = cropped(x, size) if crop_to_aspect_ratio else x
        return restore(to_size(x, size, interpolation))
    inner_size, offsets = _fit_size((x.shape[1], x.shape[2]), size)
    x = to_size(x, inner_size, interpolation)
    sides = [(a, n - m - a) for a, m, n in zip(offsets, inner_size, size, strict=True)]
    return restore(ops.pad(x, [(0, 0), *sides, (0, 0)]))


def _fit_size(image_size: Size, size: Size) -> tuple[Size, Size]:
    """Return the largest size with an aspect ratio inside another, and its offsets."""
    # In float32 as in TensorFlow: it affects the rounding.
    extents, targets = np.array(image_size, "float32"), np.array(size, "float32")
    exact_size = extents / (extents / targets).max()
    inner_size = np.maximum(exact_size, 1).astype(int).tolist()
    offsets = np.maximum((targets - exact_size) / 2, 0).astype(int).tolist()
    return tuple(inner_size), tuple(offsets)
