"""InceptionV3: branches of convolutions with several shapes, concatenated by
channel."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    apply_normalization,
    channel_axis,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.type_aliases import IntOrInts, TensorLike

__all__ = ["InceptionV3", "decode_predictions", "preprocess_input"]

preprocess_input: Preprocessor = preprocessor("tf", __name__)


def convolve(
    x: TensorLike,
    filters: int,
    size: IntOrInts,
    strides: int = 1,
    padding: str = "same",
    name: str | None = None,
) -> Any:
    """Apply a convolution, its normalization without a scale, and relu."""
    x = layers.Conv2D(
        filters, size, strides=strides, padding=padding, use_bias=False, name=name
    )(x)
    names = (name and f"{name}_bn", "relu", name and f"{name}_ac")
    return apply_normalization(x, *names, scale=False)


def chain(x: TensorLike, *convolutions: tuple[int, Any]) -> Any:
    """Apply a sequence of convolutions (filters, size)."""
    for filters, size in convolutions:
        x = convolve(x, filters, size)
    return x


def halve(x: TensorLike, filters: int) -> Any:
    """Apply a 3 x 3 convolution that halves height and width."""
    return convolve(x, filters, 3, strides=2, padding="valid")


def join(branches: list[Any], name: str | None = None) -> Any:
    """Concatenate the channels of all branches."""
    return layers.Concatenate(axis=channel_axis(), name=name)(branches)


def apply_pool_branch(x: TensorLike, filters: int) -> Any:
    """Apply average pooling and a 1 x 1 convolution."""
    x = layers.AveragePooling2D(3, strides=1, padding="same")(x)
    return convolve(x, filters, 1)


def stem(x: TensorLike) -> Any:
    """Map the image to 192 channels, at an eighth of its height and width."""
    x = halve(x, 32)
    x = convolve(x, 32, 3, padding="valid")
    x = layers.MaxPooling2D(3, strides=2)(convolve(x, 64, 3))
    x = convolve(x, 80, 1, padding="valid")
    x = convolve(x, 192, 3, padding="valid")
    return layers.MaxPooling2D(3, strides=2)(x)


def _small(x: TensorLike, width: int, name: str) -> Any:
    """Apply branches of 1 x 1, 5 x 5, two 3 x 3, and pooling."""
    branches = [
        chain(x, (64, 1)),
        chain(x, (48, 1), (64, 5)),
        chain(x, (64, 1), (96, 3), (96, 3)),
        apply_pool_branch(x, width),
    ]
    return join(branches, name)


def _long(x: TensorLike, width: int, name: str) -> Any:
    """Apply branches of 1 x 1, one and two pairs of 1 x 7 and 7 x 1, and pooling."""
    row, column = (1, 7), (7, 1)
    branches = [
        chain(x, (192, 1)),
        chain(x, (width, 1), (width, row), (192, column)),
        chain(
            x, (width, 1), (width, column), (width, row), (width, column), (192, row)
        ),
        apply_pool_branch(x, 192),
    ]
    return join(branches, name)


def _wide(x: TensorLike, i: int) -> Any:
    """Apply branches of 1 x 1, 3 x 3 split into 1 x 3 and 3 x 1, the same after 3 x 3,
    and pooling."""

    def split(x: TensorLike, name: str | None = None) -> Any:
        return join([chain(x, (384, (1, 3))), chain(x, (384, (3, 1)))], name)

    branches = [
        chain(x, (320, 1)),
        split(chain(x, (384, 1)), f"mixed9_{i}"),
        split(chain(x, (448, 1), (384, 3))),
        apply_pool_branch(x, 192),
    ]
    return join(branches, f"mixed{9 + i}")


def _body(net: Network, x: TensorLike) -> Any:
    x = stem(x)
    for i, width in enumerate((32, 64, 64)):
        x = _small(x, width, f"mixed{i}")
    branches = [halve(x, 384), halve(chain(x, (64, 1), (96, 3)), 96)]
    x = join([*branches, layers.MaxPooling2D(3, strides=2)(x)], "mixed3")
    for i, width in enumerate((128, 160, 160, 192), 4):
        x = _long(x, width, f"mixed{i}")
    branches = [
        halve(chain(x, (192, 1)), 320),
        halve(chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192),
    ]
    x = join([*branches, layers.MaxPooling2D(3, strides=2)(x)], "mixed8")
    return net.top(_wide(_wide(x, 0), 1))


InceptionV3: Application = constructor(
    "InceptionV3",
    _body,
    "Szegedy et al., 2016, arXiv:1512.00567.",
    file="inception_v3/inception_v3_weights_tf_dim_ordering_tf_kernels{}.h5",
    name="inception_v3",
    size=299,
    minimum=75,
)
