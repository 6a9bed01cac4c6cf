"""ResNet: blocks of three convolutions with a shortcut."""

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

__all__ = [
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "decode_predictions",
    "preprocess_input",
]

_EPSILON = 1.001e-5
preprocess_input: Preprocessor = preprocessor("caffe", __name__)


def apply_batch_norm_relu(x: TensorLike, name: str) -> Any:
    """Apply batch normalization and relu, with the names of ResNet and DenseNet."""
    return apply_normalization(
        x, f"{name}_bn", "relu", f"{name}_relu", epsilon=_EPSILON
    )


def _block(x: TensorLike, filters: int, strides: int, project: bool, name: str) -> Any:
    """Apply convolutions of width 1, 3 and 1, add the shortcut, and apply relu."""
    shortcut = x
    if project:
        x0 = layers.Conv2D(4 * filters, 1, strides=strides, name=f"{name}_0_conv")(x)
        shortcut = apply_normalization(x0, f"{name}_0_bn", epsilon=_EPSILON)
    x = layers.Conv2D(filters, 1, strides=strides, name=f"{name}_1_conv")(x)
    x = apply_batch_norm_relu(x, f"{name}_1")
    x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_2_conv")(x)
    x = apply_batch_norm_relu(x, f"{name}_2")
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    x = apply_normalization(x, f"{name}_3_bn", epsilon=_EPSILON)
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def stem(x: TensorLike) -> Any:
    """Apply the 7 x 7 convolution, before any normalization."""
    x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
    return layers.Conv2D(64, 7, strides=2, name="conv1_conv")(x)


def stem_pool(x: TensorLike) -> Any:
    """Apply the pooling before the first block."""
    x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
    return layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)


def _body(net: Network, x: TensorLike, repeats: tuple[int, ...]) -> Any:
    x = stem_pool(apply_batch_norm_relu(stem(x), "conv1"))
    for stage, count in enumerate(repeats):
        for i in range(count):
            strides = 2 if stage and not i else 1
            name = f"conv{stage + 2}_block{i + 1}"
            x = _block(x, 64 << stage, strides, i == 0, name)
    return net.top(x, pools=("avg_pool", "max_pool"))


def variant(
    depth: int, repeats: tuple[int, ...], body: Any = _body, v: str = ""
) -> Application:
    """Create a ResNet with `depth` layers."""
    name = f"resnet{depth}{v.lower()}"
    return constructor(
        f"ResNet{depth}{v}",
        body,
        "He et al., 2016, arXiv:" + ("1603.05027." if v else "1512.03385."),
        file=f"resnet/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5",
        name=name,
        repeats=repeats,
    )


ResNet50: Application = variant(50, (3, 4, 6, 3))
ResNet101: Application = variant(101, (3, 4, 23, 3))
ResNet152: Application = variant(152, (3, 8, 36, 3))
