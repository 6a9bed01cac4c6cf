"""InceptionResNetV2: Inception branches with shortcuts."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import layers
from toolkit.applications.common import (
    Application,
    Network,
    Preprocessor,
    channel_axis,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.applications.inception_v3 import (
    apply_pool_branch,
    chain,
    convolve,
    halve,
    join,
    stem,
)
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike

__all__ = ["InceptionResNetV2", "decode_predictions", "preprocess_input"]

# The branches of each kind of block, as a sequence of (filters, size).
_BLOCKS: dict[str, tuple[tuple[tuple[int, Any], ...], ...]] = {
    "block35": (
        ((32, 1),),
        ((32, 1), (32, 3)),
        ((32, 1), (48, 3), (64, 3)),
    ),
    "block17": (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1)))),
    "block8": (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1)))),
}
preprocess_input: Preprocessor = preprocessor("tf", __name__)


class CustomScaleLayer(layers.Layer):
    """A layer that returns the first input plus `scale` times the second.

    Args:
        scale: the factor of the second input.

    Output shape: the input shape.
    """

    def __init__(self, scale: float, **kwargs: Unpack[RegularizedLayerOptions]):
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        """Return the sum."""
        return inputs[0] + inputs[1] * self.scale


def _block(x: Any, kind: str, i: int, scale: float, activate: bool = True) -> Any:
    """Return x plus `scale` times the output of the branches."""
    name = f"{kind}_{i}"
    mixed = join([chain(x, *branch) for branch in _BLOCKS[kind]], f"{name}_mixed")
    filters = x.shape[channel_axis()]
    y = layers.Conv2D(filters, 1, padding="same", name=f"{name}_conv")(mixed)
    x = CustomScaleLayer(scale)([x, y])
    return layers.Activation("relu", name=f"{name}_ac")(x) if activate else x


def _body(net: Network, x: TensorLike) -> Any:
    x = stem(x)
    branches = [
        chain(x, (96, 1)),
        chain(x, (48, 1), (64, 5)),
        chain(x, (64, 1), (96, 3), (96, 3)),
        apply_pool_branch(x, 64),
    ]
    x = join(branches, "mixed_5b")
    for i in range(1, 11):
        x = _block(x, "block35", i, 0.17)
    branches = [halve(x, 384), halve(chain(x, (256, 1), (256, 3)), 384)]
    x = join([*branches, layers.MaxPooling2D(3, strides=2)(x)], "mixed_6a")
    for i in range(1, 21):
        x = _block(x, "block17", i, 0.1)
    branches = [
        halve(chain(x, (256, 1)), 384),
        halve(chain(x, (256, 1)), 288),
        halve(chain(x, (256, 1), (288, 3)), 320),
    ]
    x = join([*branches, layers.MaxPooling2D(3, strides=2)(x)], "mixed_7a")
    for i in range(1, 10):
        x = _block(x, "block8", i, 0.2)
    x = _block(x, "block8", 10, 1.0, activate=False)
    return net.top(convolve(x, 1536, 1, name="conv_7b"))


InceptionResNetV2: Application = constructor(
    "InceptionResNetV2",
    _body,
    "Szegedy et al., 2017, arXiv:1602.07261.",
    file="inception_resnet_v2/"
    "inception_resnet_v2_weights_tf_dim_ordering_tf_kernels{}.h5",
    name="inception_resnet_v2",
    size=299,
    minimum=75,
)
