"""EfficientNet: blocks of MobileNetV3, with depth, width and image size in
proportion."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    apply_normalization,
    channel_axis,
    constructor,
    make_divisible,
    preprocessor,
)
from toolkit.applications.imagenet_utils import correct_pad, decode_predictions
from toolkit.type_aliases import TensorLike

__all__ = [
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "decode_predictions",
    "preprocess_input",
]

# Kernel, repeats, filters, expansion and strides of each stage.
_STAGES = (
    *((3, 1, 16, 1, 1), (3, 2, 24, 6, 2), (5, 2, 40, 6, 2), (3, 3, 80, 6, 2)),
    *((5, 3, 112, 6, 1), (5, 4, 192, 6, 2), (3, 1, 320, 6, 1)),
)
_DROP_RATE = 0.2  # of the last block's branch; lower in previous blocks
_DEVIATION = (0.229, 0.224, 0.225)
_KERNEL = {
    "class_name": "VarianceScaling",
    "config": {"scale": 2.0, "mode": "fan_out", "distribution": "truncated_normal"},
}
_DENSE_KERNEL = {
    "class_name": "VarianceScaling",
    "config": {"scale": 1.0 / 3.0, "mode": "fan_out", "distribution": "uniform"},
}
preprocess_input: Preprocessor = preprocessor(None, __name__)
convolution: partial[layers.Conv2D] = partial(
    layers.Conv2D, kernel_initializer=_KERNEL, padding="same"
)
depthwise: partial[layers.DepthwiseConv2D] = partial(
    layers.DepthwiseConv2D, depthwise_initializer=_KERNEL, use_bias=False
)


def convolve(
    x: TensorLike,
    filters: int,
    size: int,
    name: str,
    strides: int = 1,
    activation: str | None = "swish",
    padding: str = "same",
    **norm: Any,
) -> Any:
    """Apply a convolution, its normalization and swish."""
    x = convolution(
        filters,
        size,
        strides=strides,
        padding=padding,
        use_bias=False,
        name=f"{name}conv",
    )(x)
    return apply_normalization(x, f"{name}bn", activation, f"{name}activation", **norm)


def gate(x: Any, squeezed: int, name: str) -> Any:
    """Scale each channel by a gate from the global channel means."""
    filters = x.shape[channel_axis()]
    shape = (filters, 1, 1) if channel_axis() == 1 else (1, 1, filters)
    y = layers.GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    y = layers.Reshape(shape, name=f"{name}se_reshape")(y)
    y = convolution(squeezed, 1, activation="swish", name=f"{name}se_reduce")(y)
    y = convolution(filters, 1, activation="sigmoid", name=f"{name}se_expand")(y)
    return layers.Multiply(name=f"{name}se_excite")([x, y])


def shortcut(x: TensorLike, start: TensorLike, rate: float, name: str) -> Any:
    """Add the block's input, and drop the branch for random samples."""
    if rate > 0:
        x = layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
    return layers.Add(name=f"{name}add")([x, start])


def classifier(net: Network, x: TensorLike, dropout_rate: float) -> Any:
    """Apply the classifier of the family."""
    if not net.include_top:
        return net.pool(x)
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    x = layers.Dropout(dropout_rate, name="top_dropout")(x)
    return net.classify(x, kernel_initializer=_DENSE_KERNEL)


def _block(
    x: Any, size: int, filters: int, expand: int, strides: int, rate: float, name: str
) -> Any:
    """Expand, convolve depthwise, gate the channels, project."""
    start, width = x, x.shape[channel_axis()]
    if expand != 1:
        x = convolve(x, expand * width, 1, f"{name}expand_")
    if strides == 2:
        x = layers.ZeroPadding2D(correct_pad(x, size), name=f"{name}dwconv_pad")(x)
    padding = "valid" if strides == 2 else "same"
    x = depthwise(size, strides=strides, padding=padding, name=f"{name}dwconv")(x)
    x = apply_normalization(x, f"{name}bn", "swish", f"{name}activation")
    x = gate(x, max(1, width // 4), name)
    x = convolve(x, filters, 1, f"{name}project_", activation=None)
    if strides == 1 and width == filters:
        return shortcut(x, start, rate, name)
    return x


def _body(
    net: Network, x: TensorLike, width: float, depth: float, dropout_rate: float
) -> Any:
    normalization = layers.Normalization(axis=channel_axis())
    # the statistics are part of the ImageNet weights
    normalization.may_be_unadapted = True
    x = normalization(layers.Rescaling(1.0 / 255.0)(x))
    if net.pretrained:
        # The ImageNet weights divide by the variance, not by the deviation.
        x = layers.Rescaling([1.0 / math.sqrt(value) for value in _DEVIATION])(x)
    x = layers.ZeroPadding2D(correct_pad(x, 3), name="stem_conv_pad")(x)
    x = convolve(x, make_divisible(32 * width), 3, "stem_", 2, padding="valid")
    counts = [math.ceil(depth * repeats) for _, repeats, *_ in _STAGES]
    block_index = 0
    for stage, (size, _, filters, expand, strides) in enumerate(_STAGES):
        filters = make_divisible(filters * width)
        for j in range(counts[stage]):
            name = f"block{stage + 1}{chr(ord('a') + j)}_"
            rate = _DROP_RATE * block_index / sum(counts)
            x = _block(x, size, filters, expand, 1 if j else strides, rate, name)
            block_index += 1
    x = convolve(x, make_divisible(1280 * width), 1, "top_")
    return classifier(net, x, dropout_rate)


def _variant(
    number: int, width: float, depth: float, size: int, rate: float
) -> Application:
    name = f"efficientnetb{number}"
    return constructor(
        f"EfficientNetB{number}",
        _body,
        "Tan and Le, 2019, arXiv:1905.11946.",
        file=f"{name}{{}}.h5",
        url="https://storage.googleapis.com/keras-applications/",
        name=name,
        size=size,
        width=width,
        depth=depth,
        dropout_rate=rate,
    )


EfficientNetB0: Application = _variant(0, 1.0, 1.0, 224, 0.2)
EfficientNetB1: Application = _variant(1, 1.0, 1.1, 240, 0.2)
EfficientNetB2: Application = _variant(2, 1.1, 1.2, 260, 0.3)
EfficientNetB3: Application = _variant(3, 1.2, 1.4, 300, 0.3)
EfficientNetB4: Application = _variant(4, 1.4, 1.8, 380, 0.4)
EfficientNetB5: Application = _variant(5, 1.6, 2.2, 456, 0.4)
EfficientNetB6: Application = _variant(6, 1.8, 2.6, 528, 0.5)
EfficientNetB7: Application = _variant(7, 2.0, 3.1, 600, 0.5)
