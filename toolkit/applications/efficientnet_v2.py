"""EfficientNetV2: fused convolutions in the first stages, then as EfficientNet."""

from __future__ import annotations

import math
from typing import Any

from toolkit import layers
from toolkit.applications.common import (
    STANDARD,
    Application,
    Network,
    Preprocessor,
    apply_normalization,
    channel_axis,
    constructor,
    preprocessor,
)
from toolkit.applications.efficientnet import (
    classifier,
    convolve,
    depthwise,
    gate,
    shortcut,
)
from toolkit.applications.imagenet_utils import decode_predictions

__all__ = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "decode_predictions",
    "preprocess_input",
]

# Repeats, filters, expansion and strides of each stage; the first three are fused.
_STAGES = {
    "B": (
        *((1, 16, 1, 1), (2, 32, 4, 2), (2, 48, 4, 2), (3, 96, 4, 2)),
        *((5, 112, 6, 1), (8, 192, 6, 2)),
    ),
    "S": (
        *((2, 24, 1, 1), (4, 48, 4, 2), (4, 64, 4, 2), (6, 128, 4, 2)),
        *((9, 160, 6, 1), (15, 256, 6, 2)),
    ),
    "M": (
        *((3, 24, 1, 1), (5, 48, 4, 2), (5, 80, 4, 2), (7, 160, 4, 2)),
        *((14, 176, 6, 1), (18, 304, 6, 2), (5, 512, 6, 1)),
    ),
    "L": (
        *((4, 32, 1, 1), (7, 64, 4, 2), (7, 96, 4, 2), (10, 192, 4, 2)),
        *((19, 224, 6, 1), (25, 384, 6, 2), (7, 640, 6, 1)),
    ),
}
_STEMS = {"B": 32, "S": 24, "M": 24, "L": 32}
_DROP_RATE = 0.2  # of the last block's branch; lower in previous blocks
_NORM: dict[str, Any] = {"momentum": 0.9}
_PARAMETERS = {**STANDARD, "include_preprocessing": True}
_MORE = """
    include_preprocessing: whether the model scales pixels of 0..255."""
preprocess_input: Preprocessor = preprocessor(None, __name__)


def _round(filters: float) -> int:
    """Round to a multiple of 8."""
    return max(8, int(filters + 4) // 8 * 8)


def _fused(x: Any, filters: int, expand: int, strides: int, name: str) -> Any:
    """Apply an expanding 3 x 3 convolution and a projection."""
    width = x.shape[channel_axis()]
    if expand == 1:
        return convolve(x, filters, 3, f"{name}project_", strides, **_NORM)
    x = convolve(x, expand * width, 3, f"{name}expand_", strides, **_NORM)
    return convolve(x, filters, 1, f"{name}project_", activation=None, **_NORM)


def _separable(x: Any, filters: int, expand: int, strides: int, name: str) -> Any:
    """Expand, convolve depthwise, gate the channels, project."""
    width = x.shape[channel_axis()]
    x = convolve(x, expand * width, 1, f"{name}expand_", **_NORM)
    x = depthwise(3, strides=strides, padding="same", name=f"{name}dwconv2")(x)
    x = apply_normalization(x, f"{name}bn", "swish", f"{name}activation", **_NORM)
    x = gate(x, max(1, width // 4), name)
    return convolve(x, filters, 1, f"{name}project_", activation=None, **_NORM)


def _scaled(x: Any, kind: str) -> Any:
    """Scale pixels of 0..255 to the range of the weights."""
    axis = channel_axis()
    if kind != "B" or x.shape[axis] != 3:
        return layers.Rescaling(scale=1.0 / 128.0, offset=-1)(x)
    return layers.Normalization(
        mean=[0.485, 0.456, 0.406], variance=[0.229**2, 0.224**2, 0.225**2], axis=axis
    )(layers.Rescaling(scale=1.0 / 255)(x))


def _body(
    net: Network,
    x: Any,
    include_preprocessing: bool,
    kind: str,
    width: float,
    depth: float,
) -> Any:
    if include_preprocessing:
        x = _scaled(x, kind)
    x = convolve(x, _round(_STEMS[kind] * width), 3, "stem_", 2, **_NORM)
    stages = _STAGES[kind]
    blocks, block_index = sum(repeats for repeats, *_ in stages), 0
    for stage, (repeats, filters, expand, strides) in enumerate(stages):
        filters = _round(filters * width)
        block = _fused if stage < 3 else _separable
        for j in range(math.ceil(depth * repeats)):
            name, start = f"block{stage + 1}{chr(ord('a') + j)}_", x
            x = block(x, filters, expand, 1 if j else strides, name)
            if (strides == 1 or j) and start.shape[channel_axis()] == filters:
                x = shortcut(x, start, _DROP_RATE * block_index / blocks, name)
            block_index += 1
    x = convolve(x, _round(1280 * width), 1, "top_", **_NORM)
    return classifier(net, x, 0.2)


def _variant(key: str, size: int, width: float, depth: float) -> Application:
    name = f"efficientnetv2-{key.lower()}"
    return constructor(
        f"EfficientNetV2{key}",
        _body,
        "Tan and Le, 2021, arXiv:2104.00298.",
        file=f"efficientnet_v2/{name}{{}}.h5",
        name=name,
        size=size,
        parameters=_PARAMETERS,
        extra=_MORE,
        kind=key[0],
        width=width,
        depth=depth,
    )


EfficientNetV2B0: Application = _variant("B0", 224, 1.0, 1.0)
EfficientNetV2B1: Application = _variant("B1", 240, 1.0, 1.1)
EfficientNetV2B2: Application = _variant("B2", 260, 1.1, 1.2)
EfficientNetV2B3: Application = _variant("B3", 300, 1.2, 1.4)
EfficientNetV2S: Application = _variant("S", 384, 1.0, 1.0)
EfficientNetV2M: Application = _variant("M", 480, 1.0, 1.0)
EfficientNetV2L: Application = _variant("L", 480, 1.0, 1.0)
