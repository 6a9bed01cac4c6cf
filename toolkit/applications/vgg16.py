"""VGG16: five blocks of 3 x 3 convolutions, each followed by pooling."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.type_aliases import TensorLike

__all__ = ["VGG16", "decode_predictions", "preprocess_input"]

_WIDTHS = (64, 128, 256, 512, 512)
preprocess_input: Preprocessor = preprocessor("caffe", __name__)


def _body(net: Network, x: TensorLike, repeats: tuple[int, ...]) -> Any:
    for block, (width, count) in enumerate(zip(_WIDTHS, repeats, strict=True), 1):
        for i in range(1, count + 1):
            x = layers.Conv2D(
                width,
                3,
                activation="relu",
                padding="same",
                name=f"block{block}_conv{i}",
            )(x)
        x = layers.MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
    if not net.include_top:
        return net.pool(x, None, None)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(4096, activation="relu", name="fc1")(x)
    x = layers.Dense(4096, activation="relu", name="fc2")(x)
    return net.classify(x)


def variant(depth: int, repeats: tuple[int, ...]) -> Application:
    """Create a VGG with `depth` layers that have weights."""
    name = f"vgg{depth}"
    return constructor(
        f"VGG{depth}",
        _body,
        "Simonyan and Zisserman, 2015, arXiv:1409.1556.",
        file=f"{name}/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5",
        name=name,
        repeats=repeats,
    )


VGG16: Application = variant(16, (2, 2, 3, 3, 3))
