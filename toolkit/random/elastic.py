"""Random distortion of images: above `ops`, because it draws random numbers."""

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
    """Images distorted as if drawn on rubber: pixels move by smooth random fields.

    Args:
        images: (height, width, channels) or a batch of them.
        alpha: factor of the fields.
        sigma: standard deviation of the noise that the fields are made of, and of the
            Gaussian bell that smooths it, in pixels.
        interpolation: "nearest" or "bilinear".
        fill_mode: what is outside of an image, as for `map_coordinates`.
        fill_value: what is outside in mode "constant".
        seed: an integer, a SeedGenerator, or None for the global generator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Reference: Simard et al. 2003, doi:10.1109/ICDAR.2003.1227801
    """
    check_mode("elastic_transform", interpolation, fill_mode)
    size = int(6 * sigma) | 1
    outside = fill_mode, fill_value
    return stretched(
        images, alpha, sigma, size, interpolation, outside, seed, data_format
    )


def stretched(
    images: Any,
    alpha: Any,
    sigma: Any,
    size: int,
    interpolation: str,
    outside: tuple[str, float],
    seed: Any,
    data_format: str | None,
) -> Tensor:
    """`elastic_transform` where alpha and sigma may be tensors.

    Args:
        size: of the bell, in pixels.
        outside: fill_mode and fill_value.
    """
    x, restore = batched("elastic_transform", images, data_format)
    dtype = widened(x).dtype
    # One channel for each direction.
    noise = random.normal((*x.shape[:3], 2), dtype=dtype, seed=seed)
    weights = bell(size, sigma, dtype)
    fields = blurred(noise, weights, weights) * ops.cast(alpha * sigma, dtype)
    down, right = ops.unstack(fields, axis=-1)
    return restore(displaced(x, down, right, interpolation, *outside))
