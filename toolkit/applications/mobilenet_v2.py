"""MobileNetV2: inverted residual blocks, with shortcuts between the narrow ends."""

from __future__ import annotations

import os
from typing import Any

from toolkit import layers, settings
from toolkit.applications.common import (
    Network,
    Preprocessor,
    apply_normalization,
    channel_axis,
    make_divisible,
    preprocessor,
    relu6,
)
from toolkit.applications.imagenet_utils import correct_pad, decode_predictions
from toolkit.applications.mobilenet import default_size, select_weights_height
from toolkit.errors import ArgumentError
from toolkit.models.functional.model import Functional
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import ActivationLike, Shape

__all__ = ["MobileNetV2", "decode_predictions", "preprocess_input"]

# Filters, strides of the first block, and number of blocks of each stage.
_STAGES = (
    *((16, 1, 1), (24, 2, 2), (32, 2, 3), (64, 2, 4), (96, 1, 3), (160, 2, 3)),
    (320, 1, 1),
)
_SIZES = (96, 128, 160, 192, 224)
_ALPHAS = (0.35, 0.50, 0.75, 1.0, 1.3, 1.4)
NORM: dict[str, Any] = {"epsilon": 1e-3, "momentum": 0.999}
preprocess_input: Preprocessor = preprocessor("tf", __name__)


def check_tensor(net: Network) -> None:
    """Raise for an input shape that differs from the input tensor."""
    tensor, shape = net.input_tensor, net.input_shape
    axis = 1 if settings.image_data_format() == "channels_first" else 2
    if tensor is not None and shape is not None and tensor.shape[axis] != shape[1]:
        raise ArgumentError(
            f"input_shape[1] must equal input_tensor.shape[{axis}]; received "
            f"input_shape={shape} and input_tensor.shape={tensor.shape}"
        )


def _block(x: Any, filters: int, strides: int, i: int) -> Any:
    """Expand six times, convolve depthwise, project."""
    start, width = x, x.shape[channel_axis()]
    name = f"block_{i}_" if i else "expanded_conv_"
    if i:
        x = layers.Conv2D(
            6 * width, 1, padding="same", use_bias=False, name=f"{name}expand"
        )(x)
        x = apply_normalization(
            x, f"{name}expand_BN", relu6, f"{name}expand_relu", **NORM
        )
    if strides == 2:
        x = layers.ZeroPadding2D(correct_pad(x, 3), name=f"{name}pad")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=strides,
        use_bias=False,
        padding="same" if strides == 1 else "valid",
        name=f"{name}depthwise",
    )(x)
    x = apply_normalization(
        x, f"{name}depthwise_BN", relu6, f"{name}depthwise_relu", **NORM
    )
    x = layers.Conv2D(
        filters, 1, padding="same", use_bias=False, name=f"{name}project"
    )(x)
    x = apply_normalization(x, f"{name}project_BN", **NORM)
    if width == filters and strides == 1:
        return layers.Add(name=f"{name}add")([start, x])
    return x


def MobileNetV2(
    input_shape: Shape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: str | os.PathLike[str] | None = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: ActivationLike | None = "softmax",
    name: str | None = None,
) -> Functional:
    """Create a MobileNetV2, a small network for image classification. arXiv:1801.04381.

    Args:
        input_shape: of one image. The default is 224 x 224 x 3, with dynamic height and
            width without the classifier. At least 32 x 32.
        alpha: multiplies the filters of every layer.
        include_top: whether the model includes the classifier.
        weights: None for new weights, "imagenet" for a download of pretrained weights,
            or the path of a weights file.
        input_tensor: a Keras tensor to use instead of a new input.
        pooling: without the classifier: "avg" or "max" over the image, or None.
        classes: the number of classes.
        classifier_activation: of the last layer; None returns the logits.
        name: of the model; the default contains alpha and the height.

    Returns:
        A Model: (batch, height, width, channels) to (batch, classes).

    Raises:
        ArgumentError: the arguments conflict.
        DatasetError: the download of the ImageNet weights fails.

    Example:
        >>> import toolkit
        >>> model = toolkit.applications.MobileNetV2(
        ...     (32, 32, 3), alpha=0.35, weights=None, classes=10
        ... )
        >>> model.count_params()
        423018
    """
    net = Network(
        *(include_top, weights, input_tensor, input_shape, pooling, classes),
        *(classifier_activation, name),
    )
    check_tensor(net)
    known_shape = input_shape or (input_tensor is not None and input_tensor.shape[1:])
    shape = net.shape(default_size(known_shape, _SIZES))
    rows = select_weights_height(net, shape, _SIZES, alpha, _ALPHAS)
    start = x = net.input(shape)
    x = layers.Conv2D(
        make_divisible(32 * alpha),
        3,
        strides=2,
        padding="same",
        use_bias=False,
        name="Conv1",
    )(x)
    x = apply_normalization(x, "bn_Conv1", relu6, "Conv1_relu", **NORM)
    i = 0
    for filters, strides, count in _STAGES:
        filters = make_divisible(int(filters * alpha))
        for j in range(count):
            x = _block(x, filters, 1 if j else strides, i)
            i += 1
    last = make_divisible(1280 * alpha) if alpha > 1 else 1280
    x = layers.Conv2D(last, 1, use_bias=False, name="Conv_1")(x)
    x = net.top(
        apply_normalization(x, "Conv_1_bn", relu6, "out_relu", **NORM), average=None
    )
    file = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{float(alpha)}_{rows}"
    name = f"mobilenetv2_{alpha:0.2f}_{rows}" if name is None else name
    return net.model(
        start, x, f"mobilenet_v2/{file}{{}}.h5", no_top="_no_top", name=name
    )
