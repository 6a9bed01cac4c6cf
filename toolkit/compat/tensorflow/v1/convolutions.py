"""Convolutions and pooling with the arguments of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.compat.tensorflow import nn
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import IntOrInts, TensorLike


def _select_argument(
    function: str, name: str, value: Any, older: str, as_older: Any
) -> Any:
    """Return the value of an argument with two names."""
    if (value is None) == (as_older is None):
        raise ArgumentError(f"{function}: expected one of {name} and {older}")
    return as_older if value is None else value


def convolution(
    input: TensorLike,
    filter: TensorLike | None = None,
    padding: Any = None,
    strides: IntOrInts | None = None,
    dilation_rate: IntOrInts | None = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:
    """Compute a convolution over the spatial axes of the input.

    `filters` and `dilations` are newer names of filter and dilation_rate.
    """
    kernel = _select_argument("convolution", "filter", filter, "filters", filters)
    holes = dilation_rate if dilations is None else dilations
    return nn.convolution(
        input, kernel, strides, padding or "VALID", data_format, holes, name=name
    )


def pool(
    input: TensorLike,
    window_shape: int | Sequence[int],
    pooling_type: str,
    padding: str,
    dilation_rate: IntOrInts | None = None,
    strides: IntOrInts | None = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:
    """Compute `max_pool` or `avg_pool`, for the pooling_type MAX or AVG.

    `dilations` is a newer name of dilation_rate; only None.
    """
    holes = dilation_rate if dilations is None else dilations
    return nn.pool(
        input, window_shape, pooling_type, strides, padding, data_format, holes, name
    )


def conv1d(
    value: TensorLike | None = None,
    filters: Any = None,
    stride: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:
    """Compute a convolution over one spatial axis; `use_cudnn_on_gpu` has no effect.

    `input` is a newer name of value.
    """
    x = _select_argument("conv1d", "value", value, "input", input)
    return nn.conv1d(
        x, filters, stride or 1, padding, data_format or "NWC", dilations, name=name
    )


def conv2d_transpose(
    value: TensorLike | None = None,
    filter: TensorLike | None = None,
    output_shape: ShapeLike | None = None,
    strides: IntOrInts | None = None,
    padding: str = "SAME",
    data_format: str = "NHWC",
    name: str | None = None,
    input: TensorLike | None = None,
    filters: TensorLike | None = None,
    dilations: int | Sequence[int] | None = None,
) -> Tensor:
    """Compute a transposed convolution; `input` and `filters` are newer names."""
    x = _select_argument("conv2d_transpose", "value", value, "input", input)
    kernel = _select_argument("conv2d_transpose", "filter", filter, "filters", filters)
    return nn.conv2d_transpose(
        x, kernel, output_shape, strides, padding, data_format, dilations, name=name
    )


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: IntOrInts,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: Any = None,
    dilations: IntOrInts | None = None,
) -> Tensor:
    """Convolve each channel; `dilations` is a newer name of rate."""
    holes = rate if dilations is None else dilations
    return nn.depthwise_conv2d(
        input, filter, strides, padding, data_format, holes, name=name
    )


def separable_conv2d(
    input: TensorLike,
    depthwise_filter: TensorLike,
    pointwise_filter: TensorLike,
    strides: IntOrInts,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: IntOrInts | None = None,
) -> Tensor:
    """Convolve each channel, then across channels; `dilations` is a newer name of
    rate."""
    return nn.separable_conv2d(
        input,
        depthwise_filter,
        pointwise_filter,
        strides,
        padding,
        data_format,
        rate if dilations is None else dilations,
        name=name,
    )
