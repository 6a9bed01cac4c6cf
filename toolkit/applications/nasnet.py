"""NASNet-A: two kinds of cells from architecture search, each with two previous
inputs."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from toolkit import layers, ops
from toolkit.applications.common import (
    STANDARD,
    Application,
    Network,
    Preprocessor,
    apply_normalization,
    channel_axis,
    channels_last_only,
    constructor,
    preprocessor,
)
from toolkit.applications.imagenet_utils import correct_pad, decode_predictions
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike

__all__ = ["NASNetLarge", "NASNetMobile", "decode_predictions", "preprocess_input"]

_PARAMETERS = {"input_shape": None, **STANDARD}
_norm = partial(apply_normalization, momentum=0.9997, epsilon=1e-3)
_conv = partial(layers.Conv2D, use_bias=False, kernel_initializer="he_normal")
preprocess_input: Preprocessor = preprocessor("tf", __name__)


class ParityPadding(layers.Layer):
    """Zero padding for which a window with stride 2 starts as with "same".

    The layer checks the parity of the extents at each call.

    Args:
        size: height and width of the window.

    Output shape: (batch, height + about size - 1, width + about size - 1, channels).
    """

    def __init__(self, size: int, **kwargs: Unpack[RegularizedLayerOptions]):
        super().__init__(**kwargs)
        self.size = size

    def call(self, x: TensorLike) -> Tensor:
        """Return the padded images."""
        return ops.pad(x, ((0, 0), *correct_pad(x, self.size), (0, 0)))


def _relu(x: TensorLike, name: str | None = None) -> Any:
    return layers.Activation("relu", name=name)(x)


def _pad(x: Any, size: int, name: str) -> Any:
    """Pad with zeros for a window with stride 2."""
    if None in x.shape[1:3]:
        return ParityPadding(size, name=name)(x)
    return layers.ZeroPadding2D(correct_pad(x, size), name=name)(x)


def _mean(x: TensorLike, name: str, strides: int = 1) -> Any:
    """Apply 3 x 3 average pooling."""
    padding = "same" if strides == 1 else "valid"
    return layers.AveragePooling2D(3, strides=strides, padding=padding, name=name)(x)


def _add(x: TensorLike, y: TensorLike, name: str | None = None) -> Any:
    return layers.Add(name=name)([x, y])


def _separable(
    x: TensorLike, filters: int, size: int, name: str, strides: int = 1
) -> Any:
    """Apply relu, a separable convolution and normalization, twice."""
    for i in (1, 2):
        prefix = f"separable_conv_{i}"
        step = strides if i == 1 else 1
        x = _relu(x)
        if step == 2:
            x = _pad(x, size, f"{prefix}_pad_{name}")
        x = layers.SeparableConv2D(
            filters,
            size,
            strides=step,
            padding="valid" if step == 2 else "same",
            use_bias=False,
            name=f"{prefix}_{name}",
        )(x)
        x = _norm(x, f"{prefix}_bn_{name}")
    return x


def _adjust(p: Any, filters: int, halve: bool, name: str) -> Any:
    """Adapt the cell before the last to the last cell's height, width and channels."""
    if not halve:
        if p.shape[channel_axis()] == filters:
            return p
        p = _conv(filters, 1, padding="same", name=f"adjust_conv_projection_{name}")(
            _relu(p)
        )
        return _norm(p, f"adjust_bn_{name}")
    p = _relu(p, f"adjust_relu_1_{name}")
    shifted = p
    halves = []
    for i in (1, 2):
        if i == 2:
            shifted = layers.ZeroPadding2D(((0, 1), (0, 1)))(p)
            shifted = layers.Cropping2D(((1, 0), (1, 0)))(shifted)
        pooling = layers.AveragePooling2D(
            1, strides=2, name=f"adjust_avg_pool_{i}_{name}"
        )
        conv = _conv(filters // 2, 1, padding="same", name=f"adjust_conv_{i}_{name}")
        halves.append(conv(pooling(shifted)))
    p = layers.Concatenate(axis=channel_axis())(halves)
    return _norm(p, f"adjust_bn_{name}")


def _start(ip: Any, p: Any, filters: int, halve: bool, kind: str, name: str) -> Any:
    """Return both inputs of a cell, with `filters` channels."""
    p = ip if p is None else _adjust(p, filters, halve, name)
    h = _conv(filters, 1, padding="same", name=f"{kind}_conv_1_{name}")(_relu(ip))
    return _norm(h, f"{kind}_bn_1_{name}"), p


def _normal(ip: Any, p: Any, filters: int, name: str, halve: bool) -> Any:
    """Apply a cell that keeps height and width."""
    h, p = _start(ip, p, filters, halve, "normal", name)
    conv = partial(_separable, filters=filters)
    x1 = _add(
        conv(h, size=5, name=f"normal_left1_{name}"),
        conv(p, size=3, name=f"normal_right1_{name}"),
        f"normal_add_1_{name}",
    )
    x2 = _add(
        conv(p, size=5, name=f"normal_left2_{name}"),
        conv(p, size=3, name=f"normal_right2_{name}"),
        f"normal_add_2_{name}",
    )
    x3 = _add(_mean(h, f"normal_left3_{name}"), p, f"normal_add_3_{name}")
    x4 = _add(
        _mean(p, f"normal_left4_{name}"),
        _mean(p, f"normal_right4_{name}"),
        f"normal_add_4_{name}",
    )
    x5 = conv(h, size=3, name=f"normal_left5_{name}")
    x5 = _add(x5, h, f"normal_add_5_{name}")
    join = layers.Concatenate(axis=channel_axis(), name=f"normal_concat_{name}")
    return join([p, x1, x2, x3, x4, x5])


def _reduction(ip: Any, p: Any, filters: int, name: str, halve: bool) -> Any:
    """Apply a cell that halves height and width."""
    h, p = _start(ip, p, filters, halve, "reduction", name)
    conv = partial(_separable, filters=filters, strides=2)
    padded = _pad(h, 3, f"reduction_pad_1_{name}")

    def largest(suffix: str) -> Any:
        return layers.MaxPooling2D(3, strides=2, name=f"reduction_{suffix}_{name}")(
            padded
        )

    x1 = _add(
        conv(h, size=5, name=f"reduction_left1_{name}"),
        conv(p, size=7, name=f"reduction_right1_{name}"),
        f"reduction_add_1_{name}",
    )
    x2 = _add(
        largest("left2"),
        conv(p, size=7, name=f"reduction_right2_{name}"),
        f"reduction_add_2_{name}",
    )
    x3 = _add(
        _mean(padded, f"reduction_left3_{name}", strides=2),
        conv(p, size=5, name=f"reduction_right3_{name}"),
        f"reduction_add3_{name}",
    )
    x4 = _add(x2, _mean(x1, f"reduction_left4_{name}"))
    x5 = _separable(x1, filters, 3, f"reduction_left4_{name}")
    x5 = _add(x5, largest("right5"), f"reduction_add4_{name}")
    join = layers.Concatenate(axis=channel_axis(), name=f"reduction_concat_{name}")
    return join([x2, x3, x4, x5])


def _body(
    net: Network, x: TensorLike, filters: int, repeats: int, stem: int, skip: bool
) -> Any:
    """Apply all cells. `skip`: a cell after a reduction also receives the input before
    it."""
    channels_last_only("NASNet")
    x = _norm(_conv(stem, 3, strides=2, name="stem_conv1")(x), "stem_bn1")
    first = _reduction(x, None, filters // 4, "stem_1", halve=False)
    p, x = first, _reduction(first, x, filters // 2, "stem_2", halve=True)
    for stage in range(3):
        if stage:
            name = f"reduce_{stage * repeats}"
            y = _reduction(x, p, filters << stage, name, halve=False)
            p, x = (p if skip else x), y
        for i in range(repeats):
            name = str(stage * repeats + i + bool(stage))
            p, x = x, _normal(x, p, filters << stage, name, halve=i == 0)
    return net.top(_relu(x), average=None)


NASNetMobile: Application = constructor(
    "NASNetMobile",
    _body,
    "Zoph et al., 2018, arXiv:1707.07012.",
    file="nasnet/NASNet-mobile{}.h5",
    no_top="-no-top",
    name="nasnet_mobile",
    fixed=True,
    parameters=_PARAMETERS,
    filters=44,
    repeats=4,
    stem=32,
    skip=False,
)
NASNetLarge: Application = constructor(
    "NASNetLarge",
    _body,
    "Zoph et al., 2018, arXiv:1707.07012.",
    file="nasnet/NASNet-large{}.h5",
    no_top="-no-top",
    name="nasnet_large",
    parameters=_PARAMETERS,
    size=331,
    filters=168,
    repeats=6,
    stem=96,
    skip=True,
)
