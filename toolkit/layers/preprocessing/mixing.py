"""Layers that mix pairs of images in a batch, and their labels."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.layers.preprocessing.color_layer import RandomColorLayer, batch_size
from toolkit.type_aliases import NumberOrRange, Range, RegularizedLayerOptions


def _order(n: int, seed: Any) -> Tensor:
    """Return a random permutation of 0, ..., n - 1: the partner of each image."""
    return random.shuffle(ops.arange(n, dtype="int32"), seed=seed)


def _partners(x: Tensor, order: Any) -> Tensor:
    return ops.take(x, ops.convert_to_tensor(order, dtype="int32"), axis=0)


def _mixed(
    x: Tensor, transformation: dict[str, Any], ndim: int | None = None
) -> Tensor:
    """Return weight * x + (1 - weight) * partner, along the first of `ndim` axes."""
    shape = (-1,) + (1,) * ((ndim or x.ndim) - 1)
    weight = ops.reshape(ops.cast(transformation["mix_weight"], x.dtype), shape)
    return weight * x + (1 - weight) * _partners(x, transformation["permutation_order"])


class _Mixing(RandomColorLayer):
    """Base class of both layers: labels become weighted means of two images' labels."""

    bounds: ClassVar[Range] = (0.0, 1.0)

    # Images keep their data format; masks are mixed by the same method.
    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        return self._mixture(images, transformation) if training else images

    def transform_labels(
        self, labels: Any, transformation: Any, training: bool = True
    ) -> Tensor:
        if not training:
            return labels
        return _mixed(ops.cast(labels, self.compute_dtype), transformation)

    def transform_segmentation_masks(
        self,
        segmentation_masks: Any,
        transformation: Any,
        training: bool = True,
    ) -> Tensor:
        return self.transform_images(segmentation_masks, transformation, training)

    def _mixture(self, images: Any, transformation: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _mixture")


class MixUp(_Mixing):
    """MixUp: in training, mixes each image x with a partner y: `w * x + (1 - w) * y`.

    Labels and masks are mixed in the same way, so labels should be one-hot. The boxes
    of both images are kept.

    Args:
        alpha: w has the distribution Beta(alpha, alpha): with a small alpha, one of the
            two images dominates.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: a batch of images, or a dict of "images" and any of "labels",
            "bounding_boxes" and "segmentation_masks".
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs, with twice as many boxes.

    Example:
        >>> import toolkit
        >>> data = {
        ...     "images": toolkit.ops.ones((2, 4, 4, 3)),
        ...     "labels": toolkit.ops.eye(2),
        ... }
        >>> mixed = toolkit.layers.MixUp(seed=1)(data)
        >>> toolkit.ops.sum(mixed["labels"], axis=-1).tolist()
        [1.0, 1.0]

    Reference: https://arxiv.org/abs/1710.09412
    """

    def __init__(
        self,
        alpha: float = 0.2,
        data_format: str | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(0.0, (0, 255), data_format, seed, **kwargs)
        if not alpha > 0:
            raise ArgumentError(f"MixUp: expected alpha > 0; received {alpha!r}")
        self.alpha = alpha

    def _draw_transformation(self, n: int, seed: Any) -> dict[str, Any]:
        weight = random.beta((n,), self.alpha, self.alpha, seed=seed)
        return {"mix_weight": weight, "permutation_order": _order(n, seed)}

    def _mixture(self, images: Tensor, transformation: Any) -> Tensor:
        return _mixed(images, transformation, ndim=4)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        if not training:
            return bounding_boxes
        order = transformation["permutation_order"]
        boxes, labels = bounding_boxes["boxes"], bounding_boxes["labels"]
        axes = {"boxes": 1, "labels": len(boxes.shape) - 2}
        return {
            fraction: ops.concatenate([x, _partners(x, order)], axis=axes[fraction])
            for fraction, x in (("boxes", boxes), ("labels", labels))
        }


class CutMix(_Mixing):
    """CutMix: in training, replaces a rectangle of each image by a part of a partner.

    Labels are mixed by area, so they should be one-hot. A single image stays unchanged.

    Args:
        factor: range (lower, upper) inside [0, 1] of a; the kept area has the
            distribution Beta(a, a); a number f: (0, f).
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: a batch of images, or a dict of "images" and any of "labels" and
            "segmentation_masks".
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> images = toolkit.ops.ones((2, 4, 4, 3))
        >>> toolkit.layers.CutMix(seed=1)(images).shape
        (2, 4, 4, 3)

    Reference: https://arxiv.org/abs/1905.04899
    """

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, (0, 255), data_format, seed, **kwargs)

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: Any = None
    ) -> Any:
        images = data["images"] if isinstance(data, dict) else data
        if not training:
            return None
        n, size = batch_size(images), self.image_size(images)
        return self._rectangles(n, size, self.generator if seed is None else seed)

    def _rectangles(self, n: int, size: tuple[int, int], seed: Any) -> dict[str, Any]:
        """Return replaced rectangle, partner and kept fraction of each image."""
        low, high = map(float, self.factor)
        # Beta is undefined at 0.
        alpha = random.uniform((), low, high, seed=seed) + 1e-6
        kept_area = random.beta((n, 1, 1, 1), alpha, alpha, seed=seed)
        is_inside: Any = True
        fraction: Any = 1.0
        axes = (-2, -1) if self.data_format == "channels_first" else (-3, -2)
        for extent, axis in zip(size, axes, strict=True):
            length = ops.sqrt(1 - kept_area) * extent
            start = self._uniform(n, seed, (0.0, 1.0)) * (extent - length)
            shape = [1] * 4
            shape[axis] = extent
            position = ops.reshape(ops.arange(extent, dtype="float32"), shape)
            is_inside = is_inside & (position >= start) & (position < start + length)
            fraction = fraction * length / extent
        return {
            "batch_masks": is_inside,
            "mix_weight": 1 - fraction,
            "permutation_order": _order(n, seed),
        }

    def _mixture(self, images: Tensor, transformation: dict[str, Tensor]) -> Tensor:
        masks = ops.cast(transformation["batch_masks"], "bool")
        partners = _partners(images, transformation["permutation_order"])
        return ops.where(masks, partners, images)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        raise UnsupportedError(
            "CutMix: bounding boxes are unsupported, because the layer combines "
            "rectangles of two images"
        )
