"""Xception: separable convolutions with shortcuts."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    apply_normalization,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.type_aliases import TensorLike

__all__ = ["Xception", "decode_predictions", "preprocess_input"]

preprocess_input: Preprocessor = preprocessor("tf", __name__)


def _separable(x: TensorLike, filters: int, name: str) -> Any:
    """Apply a separable convolution and its normalization."""
    x = layers.SeparableConv2D(
        filters, 3, padding="same", use_bias=False, name=f"{name}"
    )(x)
    return apply_normalization(x, f"{name}_bn")


def _block(x: TensorLike, widths: tuple[int, ...], block: int, shrink: bool) -> Any:
    """Apply separable convolutions with a shortcut; `shrink` halves height and
    width."""
    shortcut = x
    if shrink:
        shortcut = apply_normalization(
            layers.Conv2D(widths[-1], 1, strides=2, padding="same", use_bias=False)(x)
        )
    for i, width in enumerate(widths, 1):
        if block > 2 or i > 1:
            x = layers.Activation("relu", name=f"block{block}_sepconv{i}_act")(x)
        x = _separable(x, width, f"block{block}_sepconv{i}")
    if shrink:
        x = layers.MaxPooling2D(
            3, strides=2, padding="same", name=f"block{block}_pool"
        )(x)
    return layers.Add()([x, shortcut])


def _body(net: Network, x: TensorLike) -> Any:
    for i, (filters, strides) in enumerate(((32, 2), (64, 1)), 1):
        name = f"block1_conv{i}"
        x = layers.Conv2D(filters, 3, strides=strides, use_bias=False, name=name)(x)
        x = apply_normalization(x, f"{name}_bn", "relu", f"{name}_act")
    for block, width in enumerate((128, 256, 728), 2):
        x = _block(x, (width, width), block, shrink=True)
    for block in range(5, 13):
        x = _block(x, (728, 728, 728), block, shrink=False)
    x = _block(x, (728, 1024), 13, shrink=True)
    for i, width in enumerate((1536, 2048), 1):
        x = _separable(x, width, f"block14_sepconv{i}")
        x = layers.Activation("relu", name=f"block14_sepconv{i}_act")(x)
    return net.top(x)


Xception: Application = constructor(
    "Xception",
    _body,
    "Chollet, 2017, arXiv:1610.02357.",
    file="xception/xception_weights_tf_dim_ordering_tf_kernels{}.h5",
    name="xception",
    size=299,
    minimum=71,
)
