"""Random crops of an image that contain enough of its objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toolkit.compat.tensorflow import random
from toolkit.compat.tensorflow.boundary import wrap_module_results
from toolkit.compat.tensorflow.modes import require_eager
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import Array, SeedLike, TensorLike

__all__ = [
    "sample_distorted_bounding_box",
    "stateless_sample_distorted_bounding_box",
]
_LARGEST_SEED = 2**31 - 1


class SampleDistortedBoundingBoxV2(NamedTuple):
    """The start of a crop, its size, and its box in [0, 1]."""

    begin: Tensor
    size: Tensor
    bboxes: Tensor


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int = 0,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> SampleDistortedBoundingBoxV2:
    """Return a random crop of an image that covers enough of one of its objects.

    Args:
        image_size: (height, width, channels).
        bounding_boxes: (batch, boxes, 4): the objects, as (low y, low x, high y, high
            x) in [0, 1].
        seed: of the random numbers; 0 for different crops in each call.
        min_object_covered: the minimum fraction of an object in the crop.
        aspect_ratio_range: the bounds of width / height; (0.75, 1.33) by default.
        area_range: the bounds of the crop's area; (0.05, 1) by default.
        max_attempts: the number of attempts before the result is the whole image;
            100 by default.
        use_image_if_no_bounding_boxes: whether the image is the object if there is no
            box, instead of an error.

    Returns:
        (begin, size, bboxes): arguments for `tf.slice`, and the box, (1, 1, 4).

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> image = tf.zeros((8, 8, 3))
        >>> begin, size, _ = tf.image.sample_distorted_bounding_box(
        ...     tf.shape(image), [[[0.0, 0.0, 1.0, 1.0]]], area_range=(1.0, 1.0))
        >>> tf.slice(image, begin, size).shape
        TensorShape([8, 8, 3])
    """
    require_eager("sample_distorted_bounding_box")
    seed_tensor = random.uniform((), 0, _LARGEST_SEED, "int32", seed or None)
    return _sample_crop(
        seed_tensor,
        image_size,
        bounding_boxes,
        min_object_covered,
        (aspect_ratio_range, area_range, max_attempts),
        use_image_if_no_bounding_boxes,
    )


def stateless_sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: SeedLike,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> SampleDistortedBoundingBoxV2:
    """Return a crop as `sample_distorted_bounding_box`, by a seed of two integers."""
    seed_tensor = random.stateless_uniform((), seed, 0, _LARGEST_SEED, "int32")
    return _sample_crop(
        seed_tensor,
        image_size,
        bounding_boxes,
        min_object_covered,
        (aspect_ratio_range, area_range, max_attempts),
        use_image_if_no_bounding_boxes,
    )


def _sample_crop(
    seed_tensor: Tensor,
    image_size: Tensor,
    boxes: TensorLike,
    min_covered: float,
    limits: Any,
    uses_image: Any,
) -> SampleDistortedBoundingBoxV2:
    height, width = (int(n) for n in np.asarray(convert(image_size))[:2])
    objects = np.asarray(convert(boxes), "float64").reshape(-1, 4)
    if not len(objects):
        if not uses_image:
            raise ArgumentError(
                "sample_distorted_bounding_box: expected bounding boxes; received "
                "none: with use_image_if_no_bounding_boxes=True, the image is the "
                "object"
            )
        objects = np.array([[0.0, 0.0, 1.0, 1.0]])
    if (objects < 0).any() or (objects > 1).any():
        raise ShapeError(
            "sample_distorted_bounding_box: expected boxes in [0, 1]; received "
            f"{objects.tolist()[:2]}"
        )
    ratios, areas, attempts = limits
    generator = np.random.default_rng(int(seed_tensor))
    scale = np.array([height, width, height, width])
    y, x, h, w = 0, 0, height, width
    for _ in range(attempts or 100):
        ratio = generator.uniform(*(ratios or (0.75, 1.33)))
        crop = _draw_crop(generator, height, width, ratio, areas or (0.05, 1.0))
        if crop and _covers(crop, objects * scale, float(min_covered)):
            y, x, h, w = crop
            break
    box = np.array([y / height, x / width, (y + h) / height, (x + w) / width])
    return SampleDistortedBoundingBoxV2(
        convert(np.array([y, x, 0], "int32")),
        convert(np.array([h, w, -1], "int32")),
        convert(box.astype("float32").reshape(1, 1, 4)),
    )


def _draw_crop(
    generator: Any, height: int, width: int, ratio: float, areas: Sequence[float]
) -> tuple[int, int, int, int] | None:
    """Return (y, x, height, width) of a crop with this ratio; None if none fits."""
    min_area, max_area = (area * height * width for area in areas)
    low = int(round((min_area / ratio) ** 0.5))
    high = min(int(round((max_area / ratio) ** 0.5)), height, int(width / ratio + 0.5))
    if not high:
        return None
    rows = int(generator.integers(min(low, high), high + 1))
    columns = int(round(rows * ratio))
    if not (0 < columns <= width and 0 < rows <= height):
        return None
    if not min_area <= rows * columns <= max_area:
        return None
    y = int(generator.integers(height - rows + 1))
    return y, int(generator.integers(width - columns + 1)), rows, columns


def _covers(crop: tuple[int, int, int, int], objects: Array, minimum: float) -> bool:
    """Return whether a crop covers enough of one of the objects, in pixels."""
    y, x, height, width = crop
    low = np.maximum(objects[:, :2], [y, x])
    high = np.minimum(objects[:, 2:], [y + height, x + width])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    object_areas = np.prod(objects[:, 2:] - objects[:, :2], axis=1)
    is_object = object_areas > 0
    return bool((shared[is_object] >= minimum * object_areas[is_object]).any())


wrap_module_results(__name__)
