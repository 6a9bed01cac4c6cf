"""MobileNetV3: blocks of MobileNetV2 with channel gates."""

from __future__ import annotations

from functools import partial
from typing import Any

from toolkit import layers, settings
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    activation_layer,
    apply_normalization,
    channel_axis,
    describe,
    make_divisible,
    preprocessor,
    with_signature,
)
from toolkit.applications.imagenet_utils import (
    check_size,
    correct_pad,
    decode_predictions,
)
from toolkit.applications.mobilenet import extents
from toolkit.applications.mobilenet_v2 import NORM, check_tensor
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.functional.model import Functional
from toolkit.type_aliases import Shape, TensorLike

__all__ = [
    "MobileNetV3Large",
    "MobileNetV3Small",
    "decode_predictions",
    "preprocess_input",
]

# Expansion, filters, kernel (0: 5, or 3 if minimalistic), strides, gate, hard swish.
_SMALL = (
    *((1, 16, 3, 2, 1, 0), (72 / 16, 24, 3, 2, 0, 0), (88 / 24, 24, 3, 1, 0, 0)),
    *((4, 40, 0, 2, 1, 1), (6, 40, 0, 1, 1, 1), (6, 40, 0, 1, 1, 1)),
    *((3, 48, 0, 1, 1, 1), (3, 48, 0, 1, 1, 1)),
    *((6, 96, 0, 2, 1, 1), (6, 96, 0, 1, 1, 1), (6, 96, 0, 1, 1, 1)),
)
_LARGE = (
    *((1, 16, 3, 1, 0, 0), (4, 24, 3, 2, 0, 0), (3, 24, 3, 1, 0, 0)),
    *((3, 40, 0, 2, 1, 0), (3, 40, 0, 1, 1, 0), (3, 40, 0, 1, 1, 0)),
    *((6, 80, 3, 2, 0, 1), (2.5, 80, 3, 1, 0, 1), (2.3, 80, 3, 1, 0, 1)),
    *((2.3, 80, 3, 1, 0, 1), (6, 112, 3, 1, 1, 1), (6, 112, 3, 1, 1, 1)),
    *((6, 160, 0, 2, 1, 1), (6, 160, 0, 1, 1, 1), (6, 160, 0, 1, 1, 1)),
)
_PARAMETERS = {
    "input_shape": None,
    "alpha": 1.0,
    "minimalistic": False,
    "include_top": True,
    "weights": "imagenet",
    "input_tensor": None,
    "classes": 1000,
    "pooling": None,
    "dropout_rate": 0.2,
    "classifier_activation": "softmax",
    "include_preprocessing": True,
}
_MORE = """
    alpha: the factor of the filters of every layer.
    minimalistic: whether to omit gates, hard swish and windows of 5 x 5.
    dropout_rate: the rate of the dropout before the classifier.
    include_preprocessing: whether the model scales pixels of 0..255 to -1..1."""
_relu = partial(layers.ReLU)
preprocess_input: Preprocessor = preprocessor(None, __name__)
_conv = partial(layers.Conv2D, kernel_size=1, padding="same")


def _gate(x: TensorLike, filters: int, name: str) -> Any:
    """Scale each channel by a gate from the global channel means."""
    name += "squeeze_excite_"
    y = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}avg_pool")(x)
    y = _conv(make_divisible(filters * 0.25), name=f"{name}conv")(y)
    y = layers.ReLU(name=f"{name}relu")(y)
    y = _conv(filters, name=f"{name}conv_1")(y)
    y = layers.ReLU(6.0)(y + 3.0) * (1.0 / 6.0)
    return layers.Multiply(name=f"{name}mul")([x, y])


def _block(
    x: Any,
    i: int,
    wide: int,
    filters: int,
    size: int,
    strides: int,
    gate: bool,
    act: Any,
) -> Any:
    """Expand, convolve depthwise, gate the channels, project."""
    start, width = x, x.shape[channel_axis()]
    name = f"expanded_conv_{i}_" if i else "expanded_conv_"
    if i:
        x = _conv(wide, use_bias=False, name=f"{name}expand")(x)
        x = apply_normalization(x, f"{name}expand_bn", act, **NORM)
    if strides == 2:
        x = layers.ZeroPadding2D(correct_pad(x, size), name=f"{name}depthwise_pad")(x)
    x = layers.DepthwiseConv2D(
        size,
        strides=strides,
        padding="same" if strides == 1 else "valid",
        use_bias=False,
        name=f"{name}depthwise",
    )(x)
    x = apply_normalization(x, f"{name}depthwise_bn", act, **NORM)
    if gate:
        x = _gate(x, wide, name)
    x = _conv(filters, use_bias=False, name=f"{name}project")(x)
    x = apply_normalization(x, f"{name}project_bn", **NORM)
    if strides == 1 and width == filters:
        return layers.Add(name=f"{name}add")([start, x])
    return x


def _shape(net: Network) -> Any:
    """Return the validated shape of one image."""
    check_tensor(net)
    first = settings.image_data_format() == "channels_first"
    shape = net.input_shape
    if net.input_tensor is not None:
        shape = net.input_tensor.shape[1:]
    elif shape is None:
        shape = (3, None, None) if first else (None, None, 3)
    check_size(shape, 32, first)
    return shape


def _check_weights(shape: Shape, alpha: float, minimalistic: bool) -> None:
    """Raise for widths without ImageNet weights."""
    allowed = (1.0,) if minimalistic else (0.75, 1.0)
    if alpha not in allowed:
        raise ArgumentError(
            f"with the imagenet weights and minimalistic={minimalistic}, alpha can be "
            f"one of {allowed}; received alpha={alpha}"
        )
    if extents(shape) != (224, 224):
        warn(
            "input_shape is undefined or not 224 x 224: the weights for an input shape "
            "of (224, 224) are loaded"
        )


def _variant(title: str, blocks: Any, last: int) -> Application:
    """Create the constructor of one size."""

    def build(
        alpha: float,
        minimalistic: bool,
        dropout_rate: float,
        include_preprocessing: bool,
        **standard: Any,
    ) -> Functional:
        net = Network(**standard)
        shape = _shape(net)
        if net.pretrained:
            _check_weights(shape, alpha, minimalistic)
        act = _relu if minimalistic else activation_layer("hard_swish")
        start = x = net.input(shape)
        if include_preprocessing:
            x = layers.Rescaling(scale=1.0 / 127.5, offset=-1.0)(x)
        x = layers.Conv2D(
            16, 3, strides=2, padding="same", use_bias=False, name="conv"
        )(x)
        x = apply_normalization(x, "conv_bn", act, **NORM)
        for i, (expand, filters, size, strides, gate, hard) in enumerate(blocks):
            wide = make_divisible(x.shape[channel_axis()] * expand)
            filters = make_divisible(filters * alpha)
            size = size or (3 if minimalistic else 5)
            gate = bool(gate) and not minimalistic
            x = _block(x, i, wide, filters, size, strides, gate, act if hard else _relu)
        wide = make_divisible(x.shape[channel_axis()] * 6)
        x = apply_normalization(
            _conv(wide, use_bias=False, name="conv_1")(x), "conv_1_bn", act, **NORM
        )
        width = make_divisible(last * alpha) if alpha > 1 else last
        x = _top(net, x, width, act, dropout_rate) if net.include_top else net.pool(x)
        kind = title.removeprefix("MobileNetV3").lower()
        kind += "_minimalistic" if minimalistic else ""
        key = f"{kind}_224_{float(alpha)}_float"
        file = f"mobilenet_v3/weights_mobilenet_v3_{key}{{}}.h5"
        return net.model(start, x, file, "_no_top_v2")

    reference = "Howard et al., 2019, arXiv:1905.02244."
    return with_signature(
        build, title, {**_PARAMETERS, "name": title}, describe(title, reference, _MORE)
    )


def _top(net: Network, x: TensorLike, width: int, act: Any, dropout_rate: float) -> Any:
    """Apply the classifier, as convolutions over 1 x 1."""
    x = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = act()(_conv(width, name="conv_2")(x))
    if dropout_rate > 0:
        x = layers.Dropout(dropout_rate)(x)
    x = layers.Flatten()(_conv(net.classes, name="logits")(x))
    return layers.Activation(net.classifier_activation, name="predictions")(x)


MobileNetV3Small: Application = _variant("MobileNetV3Small", _SMALL, 1024)
MobileNetV3Large: Application = _variant("MobileNetV3Large", _LARGE, 1280)
