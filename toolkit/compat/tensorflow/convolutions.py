"""Convolutions, pooling and related operations of `tf.nn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow import math
from toolkit.compat.tensorflow.arguments import extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.type_aliases import IntOrInts, TensorLike


def _to_data_format(data_format: str | None) -> str:
    """Convert NHWC and related layouts to toolkit's data format."""
    if data_format is None or data_format in ("NWC", "NHWC", "NDHWC"):
        return "channels_last"
    if data_format in ("NCW", "NCHW", "NCDHW"):
        return "channels_first"
    raise ArgumentError(f"data_format: expected NHWC or NCHW; received {data_format!r}")


def _spatial_sizes(
    sizes: int | Sequence[int], layout: str, count: int, argument: str
) -> tuple[int, ...]:
    """Return the sizes of the spatial axes from one number, or one per (spatial)
    axis."""
    values = extents(sizes)
    if len(values) == 1:
        return values * count
    if len(values) == count:
        return values
    inner = values[1:-1] if layout == "channels_last" else values[2:]
    outer = [*values[:1], *(values[-1:] if layout == "channels_last" else values[1:2])]
    if len(inner) != count or set(outer) != {1}:
        raise UnsupportedError(
            f"{argument}: expected sizes of {count} spatial axes, and 1 for the "
            f"other axes; received {values}"
        )
    return inner


def _apply_padding(x: TensorLike, padding: Any, count: int) -> tuple[Tensor, str]:
    """Apply explicit padding, and return the input and the padding mode."""
    if isinstance(padding, str):
        return convert(x), padding.lower()
    pairs = [tuple(map(int, pair)) for pair in padding]
    if len(pairs) != count + 2:
        raise ArgumentError(
            f"padding: expected a pair for each of {count + 2} axes; received {pairs}"
        )
    return ops.pad(x, pairs), "valid"


def _make_convolution(operation: Callable[..., Tensor], name: str, count: int) -> Any:
    def convolve(
        input: TensorLike,
        filters: TensorLike,
        strides: IntOrInts,
        padding: Any,
        data_format: str | None = None,
        dilations: int | Sequence[int] | None = None,
        name: str | None = None,
    ) -> Tensor:
        layout = _to_data_format(data_format)
        x, words = _apply_padding(input, padding, count)
        steps = _spatial_sizes(strides, layout, count, "strides")
        holes = _spatial_sizes(dilations or 1, layout, count, "dilations")
        return operation(x, filters, steps, words, layout, holes)

    convolve.__name__ = convolve.__qualname__ = name
    convolve.__doc__ = (
        f"The convolution of `ops.{operation.__name__}` over {count} spatial axes; "
        "padding: SAME, VALID or pairs."
    )
    return convolve


conv2d: Any = _make_convolution(ops.conv, "conv2d", 2)
conv3d: Any = _make_convolution(ops.conv, "conv3d", 3)


def conv1d(
    input: TensorLike,
    filters: TensorLike,
    stride: Any,
    padding: Any,
    data_format: str = "NWC",
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Compute a convolution over one spatial axis."""
    return _make_convolution(ops.conv, "conv1d", 1)(
        input, filters, stride, padding, data_format, dilations
    )


def depthwise_conv2d(
    input: TensorLike,
    filter: TensorLike,
    strides: IntOrInts,
    padding: Any,
    data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolve each channel with separate filters."""
    return _make_convolution(ops.depthwise_conv, "depthwise_conv2d", 2)(
        input, filter, strides, padding, data_format, dilations
    )


def separable_conv2d(
    input: TensorLike,
    depthwise_filter: TensorLike,
    pointwise_filter: TensorLike,
    strides: IntOrInts,
    padding: Any,
    data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolve each channel, then across channels."""
    y = depthwise_conv2d(
        input, depthwise_filter, strides, padding, data_format, dilations
    )
    return conv2d(y, pointwise_filter, 1, "VALID", data_format)


def _transposed_convolution(
    function: str,
    input: TensorLike,
    filters: TensorLike,
    output_shape: ShapeLike,
    strides: IntOrInts,
    padding: str,
    data_format: str,
    dilations: int | Sequence[int] | None,
) -> Tensor:
    """Compute a transposed convolution over the spatial axes of the input."""
    x, count = convert(input), convert(input).ndim - 2
    layout = _to_data_format(data_format)
    steps = _spatial_sizes(strides, layout, count, "strides")
    holes = _spatial_sizes(dilations or 1, layout, count, "dilations")
    first = 1 if layout == "channels_last" else 2
    at = slice(first, first + count)
    expected = extents(output_shape)
    expected = expected if len(expected) == count else expected[at]
    rests = []
    for n, size, k, s, d in zip(
        x.shape[at], expected, convert(filters).shape[:count], steps, holes, strict=True
    ):
        k = (k - 1) * d + 1
        minimum = (n - 1) * s + (k if padding == "VALID" else k - 2 * (k // 2))
        rests.append(size - minimum)
    y = ops.conv_transpose(
        x, filters, steps, padding.lower(), tuple(rests), layout, holes
    )
    if y.shape[at] != expected:
        raise UnsupportedError(
            f"{function}: output_shape {expected} is not supported for an input of "
            f"{x.shape[at]}; the nearest is {y.shape[at]}"
        )
    return y


def _make_transposed(name: str, data_format: str | None) -> Any:
    function, default = name, data_format

    def transpose(
        input: Any,
        filters: Any,
        output_shape: ShapeLike,
        strides: IntOrInts,
        padding: str = "SAME",
        data_format: Any = default,
        dilations: IntOrInts | None = None,
        name: str | None = None,
    ) -> Tensor:
        options = padding, data_format, dilations
        return _transposed_convolution(
            function, input, filters, output_shape, strides, *options
        )

    transpose.__name__ = transpose.__qualname__ = name
    transpose.__doc__ = f"""Return the gradient of a convolution, as an operation.

    Args:
        input: a batch, in the layout {default or "NWC, NHWC or NDHWC"}.
        filters: (spatial extents, channels out, channels in).
        output_shape: the shape of the result, or its spatial extents.
        strides, padding, data_format, dilations: those of the convolution.
    """
    return transpose


conv1d_transpose: Any = _make_transposed("conv1d_transpose", "NWC")
conv2d_transpose: Any = _make_transposed("conv2d_transpose", "NHWC")
conv3d_transpose: Any = _make_transposed("conv3d_transpose", "NDHWC")
conv_transpose: Any = _make_transposed("conv_transpose", None)


def atrous_conv2d(
    value: TensorLike,
    filters: TensorLike,
    rate: int,
    padding: str,
    name: str | None = None,
) -> Tensor:
    """Compute `conv2d` with strides of 1 and a dilation rate."""
    return conv2d(value, filters, 1, padding, None, int(rate))


def atrous_conv2d_transpose(
    value: TensorLike,
    filters: TensorLike,
    output_shape: ShapeLike,
    rate: int,
    padding: str,
    name: str | None = None,
) -> Tensor:
    """Compute the transpose of `atrous_conv2d`."""
    options = 1, padding, "NHWC", int(rate)
    name = "atrous_conv2d_transpose"
    return _transposed_convolution(name, value, filters, output_shape, *options)


def _channel_size(sizes: int | Sequence[int], layout: str) -> int:
    """Return the size along the channels: 1 unless each axis has a size."""
    values = extents(sizes)
    if len(values) < 3:
        return 1
    return values[-1] if layout == "channels_last" else values[1]


def _check_depth_only(ksize: int | Sequence[int], strides: int | Sequence[int]) -> None:
    """Raise for windows over channels and pixels at the same time."""
    for name, sizes in (("ksize", ksize), ("strides", strides)):
        if set(extents(sizes)[:-1]) != {1}:
            raise UnsupportedError(
                f"pool: expected {name} of 1 for the spatial axes if windows contain "
                f"several channels; received {extents(sizes)}"
            )


def _pool_channels(
    operation: Callable[..., Tensor],
    x: Any,
    size: int,
    step: int,
    padding: str,
) -> Tensor:
    """Pool over channels: they become the steps of a sequence with one channel."""
    x = convert(x)
    rows = ops.reshape(x, (-1, x.shape[-1], 1))
    pooled = operation(rows, (size,), (step,), padding, "channels_last")
    return ops.reshape(pooled, (*x.shape[:-1], pooled.shape[1]))


def _make_pooling(
    operation: Callable[..., Tensor], name: str, count: int | None
) -> Any:
    def pool(
        input: TensorLike,
        ksize: int | Sequence[int],
        strides: IntOrInts,
        padding: str,
        data_format: str | None = None,
        name: str | None = None,
    ) -> Tensor:
        refuse("pool", padding=(isinstance(padding, str), True))
        layout, axes = _to_data_format(data_format), count or convert(input).ndim - 2
        depth, step = _channel_size(ksize, layout), _channel_size(strides, layout)
        if depth > 1 and layout == "channels_last":
            _check_depth_only(ksize, strides)
            return _pool_channels(operation, input, depth, step, padding.lower())
        window = _spatial_sizes(ksize, layout, axes, "ksize")
        steps = _spatial_sizes(strides, layout, axes, "strides")
        return operation(input, window, steps, padding.lower(), layout)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"`ops.{operation.__name__}` of windows; padding: SAME or VALID."
    return pool


max_pool: Any = _make_pooling(ops.max_pool, "max_pool", None)
max_pool1d: Any = _make_pooling(ops.max_pool, "max_pool1d", 1)
max_pool2d: Any = _make_pooling(ops.max_pool, "max_pool2d", 2)
max_pool3d: Any = _make_pooling(ops.max_pool, "max_pool3d", 3)
avg_pool: Any = _make_pooling(ops.average_pool, "avg_pool", None)
avg_pool1d: Any = _make_pooling(ops.average_pool, "avg_pool1d", 1)
avg_pool2d: Any = _make_pooling(ops.average_pool, "avg_pool2d", 2)
avg_pool3d: Any = _make_pooling(ops.average_pool, "avg_pool3d", 3)


def convolution(
    input: TensorLike,
    filters: TensorLike,
    strides: IntOrInts | None = None,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Compute a convolution over the spatial axes of the input."""
    convolve = _make_convolution(ops.conv, "convolution", convert(input).ndim - 2)
    return convolve(input, filters, strides or 1, padding, data_format, dilations)


def pool(
    input: TensorLike,
    window_shape: int | Sequence[int],
    pooling_type: str,
    strides: IntOrInts | None = None,
    padding: str = "VALID",
    data_format: str | None = None,
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """Compute `max_pool` or `avg_pool`, for the pooling_type MAX or AVG."""
    refuse("pool", dilations=(dilations, None))
    if pooling_type not in ("MAX", "AVG"):
        raise ArgumentError(f"pool: expected MAX or AVG; received {pooling_type!r}")
    pooling = max_pool if pooling_type == "MAX" else avg_pool
    return pooling(input, window_shape, strides or 1, padding, data_format)


def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Compute x / (bias + alpha * sum of squares of the neighbouring channels) **
    beta."""
    x = convert(input)
    squares = ops.pad(
        ops.square(x), [(0, 0)] * (x.ndim - 1) + [(depth_radius, depth_radius)]
    )
    count = x.shape[-1]
    neighbours = [squares[..., i : i + count] for i in range(2 * depth_radius + 1)]
    return x / ops.power(bias + alpha * math.add_n(neighbours), beta)


lrn = local_response_normalization


make_operations(__name__)
