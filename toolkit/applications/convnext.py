"""ConvNeXt: residual blocks of a wide depthwise convolution and two dense layers."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import layers
from toolkit.applications.common import (
    STANDARD,
    Application,
    Network,
    Preprocessor,
    channels_last_only,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.core.variable import Variable
from toolkit.initializers import Constant
from toolkit.models.sequential import Sequential
from toolkit.type_aliases import RegularizedLayerOptions, Shape, TensorLike

__all__ = [
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "decode_predictions",
    "preprocess_input",
]

_EPSILON = 1e-6
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_PARAMETERS = {"include_top": True, "include_preprocessing": True, **STANDARD}
_MORE = """
    include_preprocessing: whether the model normalizes pixels of 0..255."""
preprocess_input: Preprocessor = preprocessor(None, __name__)


class LayerScale(layers.Layer):
    """A layer that multiplies each channel by a weight.

    Args:
        init_values: the initial value of the weights.
        projection_dim: the number of channels.

    Output shape: the input shape, (..., projection_dim).
    """

    def __init__(
        self,
        init_values: float,
        projection_dim: int,
        **kwargs: Unpack[RegularizedLayerOptions],
    ):
        super().__init__(**kwargs)
        self.init_values = init_values
        self.projection_dim = projection_dim

    def build(self, input_shape: Shape) -> None:
        """Create the weights."""
        initializer = Constant(self.init_values)
        self.gamma: Variable = self.add_weight(
            (self.projection_dim,), initializer, name="gamma"
        )

    def call(self, x: TensorLike) -> Any:
        """Return the weighted input."""
        return x * self.gamma


def _norm(name: str | None = None) -> Any:
    return layers.LayerNormalization(epsilon=_EPSILON, name=name)


def _block(x: TensorLike, width: int, name: str) -> Any:
    """Apply a 7 x 7 convolution and two dense layers, the first four times as wide."""
    start = x
    x = layers.Conv2D(
        width, 7, padding="same", groups=width, name=f"{name}_depthwise_conv"
    )(x)
    x = _norm(f"{name}_layernorm")(x)
    x = layers.Dense(4 * width, name=f"{name}_pointwise_conv_1")(x)
    x = layers.Activation("gelu", name=f"{name}_gelu")(x)
    x = layers.Dense(width, name=f"{name}_pointwise_conv_2")(x)
    x = LayerScale(1e-6, width, name=f"{name}_layer_scale")(x)
    return start + layers.Activation("linear", name=f"{name}_identity")(x)


def _downsampling(widths: tuple[int, ...], name: str) -> list[Any]:
    """Return the layers before each stage: fewer pixels, more channels."""
    stem = [
        layers.Conv2D(widths[0], 4, strides=4, name=f"{name}_stem_conv"),
        _norm(f"{name}_stem_layernorm"),
    ]
    models = [Sequential(stem, name=f"{name}_stem")]
    for i, width in enumerate(widths[1:]):
        prefix = f"{name}_downsampling"
        conv = layers.Conv2D(width, 2, strides=2, name=f"{prefix}_conv_{i}")
        steps = [_norm(f"{prefix}_layernorm_{i}"), conv]
        models.append(Sequential(steps, name=f"{prefix}_block_{i}"))
    return models


def _body(
    net: Network, x: Any, include_preprocessing: bool, depth: int, width: int
) -> Any:
    channels_last_only("ConvNeXt")
    name, widths = str(net.name), tuple(width << i for i in range(4))
    if include_preprocessing and x.shape[-1] == 3:
        x = layers.Normalization(
            mean=[255 * value for value in _MEAN],
            variance=[(255 * value) ** 2 for value in _DEVIATION],
            name=f"{name}_prestem_normalization",
        )(x)
    for i, shrink in enumerate(_downsampling(widths, name)):
        x = shrink(x)
        for j in range((3, 3, depth, 3)[i]):
            x = _block(x, widths[i], f"{name}_stage_{i}_block_{j}")
    if not net.include_top:
        return _norm()(net.pool(x, None, None))
    x = layers.GlobalAveragePooling2D(name=f"{name}_head_gap")(x)
    return net.classify(_norm(f"{name}_head_layernorm")(x), f"{name}_head_dense")


def _variant(size: str, depth: int, width: int) -> Application:
    name = f"convnext_{size.lower()}"
    return constructor(
        f"ConvNeXt{size}",
        _body,
        "Liu et al., 2022, arXiv:2201.03545.",
        file=f"convnext/{name}{{}}.h5",
        name=name,
        parameters=_PARAMETERS,
        extra=_MORE,
        depth=depth,
        width=width,
    )


ConvNeXtTiny: Application = _variant("Tiny", 9, 96)
ConvNeXtSmall: Application = _variant("Small", 27, 96)
ConvNeXtBase: Application = _variant("Base", 27, 128)
ConvNeXtLarge: Application = _variant("Large", 27, 192)
ConvNeXtXLarge: Application = _variant("XLarge", 27, 256)
