"""MobileNet: depthwise convolutions, each followed by a 1 x 1 convolution."""

from __future__ import annotations

import os
from typing import Any

from toolkit import layers, settings
from toolkit.applications.common import (
    Network,
    Preprocessor,
    apply_normalization,
    preprocessor,
    relu6,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.functional.model import Functional
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import ActivationLike, Shape, TensorLike

__all__ = ["MobileNet", "decode_predictions", "preprocess_input"]

# Filters and strides of each block.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *[(512, 1)] * 5,
    *((1024, 2), (1024, 1)),
)
_SIZES = (128, 160, 192, 224)
_NAMES_OF_ALPHA = {0.25: "2_5", 0.5: "5_0", 0.75: "7_5", 1.0: "1_0"}
preprocess_input: Preprocessor = preprocessor("tf", __name__)


def extents(shape: Any) -> tuple[Any, Any]:
    """Return height and width of one image."""
    first = settings.image_data_format() == "channels_first"
    return tuple(shape[1:3] if first else shape[:2])


def default_size(shape: Any, sizes: tuple[int, ...]) -> int:
    """Return the image height if it has ImageNet weights, else 224."""
    rows, columns = extents(shape) if shape else (None, None)
    return rows if rows == columns and rows in sizes else 224


def select_weights_height(
    net: Network, shape: Shape, sizes: tuple[int, ...], alpha: float, alphas: Any
) -> Any:
    """Return the image height, or with ImageNet weights the height of their
    training."""
    rows, columns = extents(shape)
    if not net.pretrained:
        return rows
    if alpha not in alphas:
        raise ArgumentError(
            "with the imagenet weights, alpha can be one of "
            f"{', '.join(map(str, alphas))} only; received alpha={alpha}"
        )
    if rows == columns and rows in sizes:
        return rows
    warn(
        f"input_shape is undefined or not square, or its height is not in {sizes}: "
        "the weights for an input shape of (224, 224) are loaded"
    )
    return 224


def _block(x: TensorLike, filters: int, strides: int, multiplier: int, i: int) -> Any:
    """Apply a 3 x 3 depthwise convolution and a 1 x 1 convolution."""
    if strides > 1:
        x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{i}")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=strides,
        padding="same" if strides == 1 else "valid",
        depth_multiplier=multiplier,
        use_bias=False,
        name=f"conv_dw_{i}",
    )(x)
    x = apply_normalization(x, f"conv_dw_{i}_bn", relu6, f"conv_dw_{i}_relu")
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"conv_pw_{i}")(
        x
    )
    return apply_normalization(x, f"conv_pw_{i}_bn", relu6, f"conv_pw_{i}_relu")


def MobileNet(
    input_shape: Shape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 1e-3,
    include_top: bool = True,
    weights: str | os.PathLike[str] | None = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: ActivationLike | None = "softmax",
    name: str | None = None,
) -> Functional:
    """Create a MobileNet, a small network for image classification. arXiv:1704.04861.

    Args:
        input_shape: of one image. The default is 224 x 224 x 3, with dynamic height and
            width without the classifier. At least 32 x 32.
        alpha: multiplies the filters of every layer.
        depth_multiplier: output channels per channel of the depthwise convolutions.
        dropout: rate before the classifier.
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
        >>> model = toolkit.applications.MobileNet(
        ...     (32, 32, 3), alpha=0.25, weights=None, classes=10
        ... )
        >>> model.output_shape
        (None, 10)
    """
    net = Network(
        *(include_top, weights, input_tensor, input_shape, pooling, classes),
        *(classifier_activation, name),
    )
    shape = net.shape(default_size(input_shape, _SIZES))
    rows = select_weights_height(net, shape, _SIZES, alpha, tuple(_NAMES_OF_ALPHA))
    if net.pretrained and depth_multiplier != 1:
        raise ArgumentError(
            "with the imagenet weights, depth_multiplier must be 1; received "
            f"{depth_multiplier}"
        )
    start = x = net.input(shape)
    x = layers.Conv2D(
        int(32 * alpha), 3, strides=2, padding="same", use_bias=False, name="conv1"
    )(x)
    x = apply_normalization(x, "conv1_bn", relu6, "conv1_relu")
    for i, (filters, strides) in enumerate(_BLOCKS, 1):
        x = _block(x, int(filters * alpha), strides, depth_multiplier, i)
    x = _top(net, x, dropout) if include_top else net.pool(x, None, None)
    file = f"mobilenet/mobilenet_{_NAMES_OF_ALPHA.get(alpha)}_{rows}_tf{{}}.h5"
    name = f"mobilenet_{alpha:0.2f}_{rows}" if name is None else name
    return net.model(start, x, file, no_top="_no_top", name=name)


def _top(net: Network, x: TensorLike, dropout: float) -> Any:
    """Apply the classifier, a 1 x 1 convolution."""
    x = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = layers.Dropout(dropout, name="dropout")(x)
    x = layers.Conv2D(net.classes, 1, padding="same", name="conv_preds")(x)
    x = layers.Reshape((net.classes,), name="reshape_2")(x)
    return layers.Activation(net.classifier_activation, name="predictions")(x)
