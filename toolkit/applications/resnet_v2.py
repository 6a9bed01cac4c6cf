"""ResNet V2: as ResNet, with normalization and relu before each convolution."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.applications.common import Application, Network, Preprocessor, preprocessor
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.applications.resnet import apply_batch_norm_relu, stem, stem_pool, variant
from toolkit.type_aliases import TensorLike

__all__ = [
    "ResNet50V2",
    "ResNet101V2",
    "ResNet152V2",
    "decode_predictions",
    "preprocess_input",
]

preprocess_input: Preprocessor = preprocessor("tf", __name__)


def _block(x: TensorLike, filters: int, strides: int, project: bool, name: str) -> Any:
    """Apply convolutions of width 1, 3 and 1, with the strides in the second."""
    before = apply_batch_norm_relu(x, f"{name}_preact")
    if project:
        shortcut = layers.Conv2D(4 * filters, 1, name=f"{name}_0_conv")(before)
    else:
        shortcut = layers.MaxPooling2D(1, strides=strides)(x) if strides > 1 else x
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_1_conv")(before)
    x = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(
        apply_batch_norm_relu(x, f"{name}_1")
    )
    x = layers.Conv2D(
        filters, 3, strides=strides, use_bias=False, name=f"{name}_2_conv"
    )(x)
    x = apply_batch_norm_relu(x, f"{name}_2")
    x = layers.Conv2D(4 * filters, 1, name=f"{name}_3_conv")(x)
    return layers.Add(name=f"{name}_out")([shortcut, x])


def _body(net: Network, x: TensorLike, repeats: tuple[int, ...]) -> Any:
    x = stem_pool(stem(x))
    for stage, count in enumerate(repeats):
        for i in range(count):
            strides = 2 if stage < 3 and i == count - 1 else 1
            name = f"conv{stage + 2}_block{i + 1}"
            x = _block(x, 64 << stage, strides, i == 0, name)
    return net.top(apply_batch_norm_relu(x, "post"), pools=("avg_pool", "max_pool"))


ResNet50V2: Application = variant(50, (3, 4, 6, 3), _body, "V2")
ResNet101V2: Application = variant(101, (3, 4, 23, 3), _body, "V2")
ResNet152V2: Application = variant(152, (3, 8, 36, 3), _body, "V2")
