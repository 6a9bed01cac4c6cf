"""DenseNet: every layer of a block receives the outputs of all previous layers."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    channel_axis,
    channels_last_only,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.applications.resnet import apply_batch_norm_relu
from toolkit.type_aliases import TensorLike

__all__ = [
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "decode_predictions",
    "preprocess_input",
]

_GROWTH = 32  # channels that each layer adds
preprocess_input: Preprocessor = preprocessor("torch", __name__)


def _layer(x: TensorLike, name: str) -> Any:
    """Concatenate x and the output of two convolutions."""
    y = apply_batch_norm_relu(x, f"{name}_0")
    y = layers.Conv2D(4 * _GROWTH, 1, use_bias=False, name=f"{name}_1_conv")(y)
    y = layers.Conv2D(
        _GROWTH, 3, padding="same", use_bias=False, name=f"{name}_2_conv"
    )(apply_batch_norm_relu(y, f"{name}_1"))
    return layers.Concatenate(axis=channel_axis(), name=f"{name}_concat")([x, y])


def _transition(x: Any, name: str) -> Any:
    """Halve the channels, the height and the width."""
    filters = x.shape[channel_axis()] // 2
    x = apply_batch_norm_relu(x, name)
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_conv")(x)
    return layers.AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)


def _body(net: Network, x: TensorLike, repeats: tuple[int, ...]) -> Any:
    channels_last_only("DenseNet")
    x = layers.ZeroPadding2D(3)(x)
    x = layers.Conv2D(64, 7, strides=2, use_bias=False, name="conv1_conv")(x)
    x = layers.ZeroPadding2D(1)(apply_batch_norm_relu(x, "conv1"))
    x = layers.MaxPooling2D(3, strides=2, name="pool1")(x)
    for stage, count in enumerate(repeats, 2):
        for i in range(1, count + 1):
            x = _layer(x, f"conv{stage}_block{i}")
        if stage < 5:
            x = _transition(x, f"pool{stage}")
    x = layers.BatchNormalization(axis=channel_axis(), epsilon=1.001e-5, name="bn")(x)
    x = layers.Activation("relu", name="relu")(x)
    return net.top(x, pools=("avg_pool", "max_pool"))


def _variant(depth: int, repeats: tuple[int, ...]) -> Application:
    name = f"densenet{depth}"
    return constructor(
        f"DenseNet{depth}",
        _body,
        "Huang et al., 2017, arXiv:1608.06993.",
        file=f"densenet/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5",
        name=name,
        repeats=repeats,
    )


DenseNet121: Application = _variant(121, (6, 12, 24, 16))
DenseNet169: Application = _variant(169, (6, 12, 32, 32))
DenseNet201: Application = _variant(201, (6, 12, 48, 32))
