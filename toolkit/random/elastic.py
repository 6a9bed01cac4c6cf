"""Random elastic distortion of images; not in `ops`, because it is random."""

from __future__ import annotations

from typing import Any

from toolkit import ops, random
from toolkit.core.tensor import Tensor
from toolkit.ops.image.filters import bell, blurred
from toolkit.ops.image.layout import batched, widened
from toolkit.ops.image.warping import check_mode, displaced
from toolkit.ops.symbolic import operation


@operation
def elastic_transform(
    images: Any,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: Any = None,
    data_format: str | None = None,
) -> Tensor:
    """Distort images elastically: displace pixels by smooth random fields.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        alpha: the scale of the displacements.
        sigma: the standard deviation in pixels of the noise, and of the Gaussian kernel
            that smooths it.
        interpolation: "nearest" or "bilinear".
        fill_mode: the values outside an image, as for `map_coordinates`.
        fill_value: the value in mode "constant".
        seed: an integer, a `SeedGenerator`, or None for the global generator.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Reference:
        Simard et al., Best Practices for Convolutional Neural Networks (2003),
            doi:10.1109/ICDAR.2003.1227801

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((4, 4, 1))  # a constant image is a fixed point
        >>> y = ops.image.elastic_transform(x, sigma=1.0, seed=1)
        >>> y.shape, bool(ops.allclose(x, y))
        ((4, 4, 1), True)
    """
    check_mode("elastic_transform", interpolation, fill_mode)
    size = int(6 * sigma) | 1
    padding = fill_mode, fill_value
    return distort_elastically(
        images, alpha, sigma, size, interpolation, padding, seed, data_format
    )


def distort_elastically(
    images: Any,
    alpha: Any,
    sigma: Any,
    size: int,
    interpolation: str,
    padding: tuple[str, float],
    seed: Any,
    data_format: str | None,
) -> Tensor:
    """Run `elastic_transform` with alpha and sigma that may be tensors.

    Args:
        size: size of the kernel, in pixels.
        padding: fill_mode and fill_value.
    """
    x, restore = batched("elastic_transform", images, data_format)
    dtype = widened(x).dtype
    # One channel for each direction.
    noise = random.normal((*x.shape[:3], 2), dtype=dtype, seed=seed)
    weights = bell(size, sigma, dtype)
    fields = blurred(noise, weights, weights) * ops.cast(alpha * sigma, dtype)
    down, right = ops.unstack(fields, axis=-1)
    return restore(displaced(x, down, right, interpolation, *padding))
