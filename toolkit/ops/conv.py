"""Convolutions: three primitives, each a gradient of the others, and their users.

The layout of the primitives is channels last: x (batch, *spatial, channels), kernel
(*size, channels / groups, filters).
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ir.extents import has_extent
from toolkit.ops.contract import matmul
from toolkit.ops.padding import pad
from toolkit.ops.shape import concatenate, expand_dims, pad_p, reshape
from toolkit.ops.spatial import (
    Extents,
    Pads,
    channels_last,
    in_format,
    padding_pairs,
    per_axis,
    spatial_ndim,
    window_counts,
    window_slices,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import IntOrInts, TensorLike

# --- primitives -----------------------------------------------------------------------


# `factors`: the dtype to which a backend may round the factors; "": none.
def conv_spec(
    x: Spec,
    w: Spec,
    strides: Extents,
    padding: Pads,
    dilation: Extents,
    groups: int,
    factors: str = "",
) -> Spec:
    """Infer the spec of a convolution; groups and factors have no effect."""
    out = window_counts("conv", x.shape[1:-1], w.shape[:-2], strides, padding, dilation)
    return x.with_shape((x.shape[0], *out, w.shape[-1]))


def _input_grad_spec(
    g: Spec,
    w: Spec,
    spatial: Extents,
    strides: Extents,
    padding: Pads,
    dilation: Extents,
    groups: int,
    factors: str = "",
) -> Spec:
    out = window_counts(
        "conv_transpose", spatial, w.shape[:-2], strides, padding, dilation
    )
    if g.shape[1:-1] != out:
        raise ShapeError(
            f"conv_transpose: spatial shape {spatial} has {out} windows; received "
            f"{g.shape[1:-1]}"
        )
    return g.with_shape((g.shape[0], *spatial, w.shape[-2] * groups))


def _kernel_grad_spec(
    x: Spec,
    g: Spec,
    kernel: Extents,
    strides: Extents,
    padding: Pads,
    dilation: Extents,
    groups: int,
    factors: str = "",
) -> Spec:
    return x.with_shape((*kernel, x.shape[-1] // groups, g.shape[-1]))


def _input_grad(g: Tensor, w: Tensor, x: Tensor, **attrs: Any) -> Tensor:
    return bind(conv_input_grad_p, g, w, spatial=x.shape[1:-1], **attrs)


def _kernel_grad(x: Tensor, g: Tensor, w: Tensor, **attrs: Any) -> Tensor:
    return bind(conv_kernel_grad_p, x, g, kernel=w.shape[:-2], **attrs)


def conv_axes(order: str) -> Any:
    """Return the axis rule of a convolution or a gradient of one.

    order: letters of its operands and its result; x, g and w mean (batch, ...,
    channels), (batch, ..., filters) and (..., channels, filters).
    """

    def rule(first: Spec, second: Spec, groups: int, **attrs: Any) -> str:
        c, f = ("c", "f") if groups == 1 else "__"
        space = "_" * (first.ndim - 2)
        texts = {"x": f"b{space}{c}", "g": f"b{space}{f}", "w": f"{space}{c}{f}"}
        return "".join(texts.get(letter, letter) for letter in order)

    return rule


# A convolution is linear in x and in w, and so are its gradients. With the incoming
# gradient h, each rule replaces by h the argument whose gradient is computed.
conv_p: Primitive = primitive(
    "conv",
    Kind.CONTRACT,
    conv_spec,
    vjp=(
        lambda h, y, x, w, **attrs: _input_grad(h, w, x, **attrs),
        lambda h, y, x, w, **attrs: _kernel_grad(x, h, w, **attrs),
    ),
    axes=conv_axes("x,w->g"),
)
conv_input_grad_p: Primitive = primitive(
    "conv_input_grad",
    Kind.CONTRACT,
    _input_grad_spec,
    vjp=(
        lambda h, y, g, w, spatial, **attrs: bind(conv_p, h, w, **attrs),
        lambda h, y, g, w, spatial, **attrs: _kernel_grad(h, g, w, **attrs),
    ),
    axes=conv_axes("g,w->x"),
)
conv_kernel_grad_p: Primitive = primitive(
    "conv_kernel_grad",
    Kind.CONTRACT,
    _kernel_grad_spec,
    vjp=(
        lambda h, y, x, g, kernel, **attrs: _input_grad(g, h, x, **attrs),
        lambda h, y, x, g, kernel, **attrs: bind(conv_p, x, h, **attrs),
    ),
    axes=conv_axes("x,g->w"),
)


# --- public functions -----------------------------------------------------------------


def _check_kernel(op: str, x: Tensor, kernel: Tensor) -> None:
    if kernel.ndim != x.ndim:
        raise ShapeError(
            f"{op}: expected a kernel of {x.ndim} axes for inputs of shape {x.shape}; "
            f"received shape {kernel.shape}"
        )


def _groups(op: str, x: Tensor, kernel: Tensor) -> int:
    """Return the number of groups of channels of a kernel; x is channels last."""
    channels, (depth, filters) = x.shape[-1], kernel.shape[-2:]
    groups = channels // depth if depth else 0
    if groups * depth != channels or groups == 0 or filters % groups:
        raise ShapeError(
            f"{op}: inputs have {channels} channels; a kernel of shape {kernel.shape} "
            f"takes {depth} of them per group and has {filters} filters"
        )
    return groups


@operation
def conv(
    inputs: TensorLike,
    kernel: Any,
    strides: IntOrInts = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrInts = 1,
) -> Tensor:
    """Convolve inputs with kernels over 1 to 3 spatial axes.

    As usual in neural networks, it is a cross-correlation: kernels are not flipped.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first".
        kernel: (*size, channels / groups, filters). The channels of inputs and kernel
            determine the number of groups.
        strides: the distance between windows, in elements: one integer, or one for each
            axis.
        padding: "valid" (no padding) or "same" (zeros, for ceil(extent / stride)
            windows).
        data_format: "channels_last", "channels_first", or None for the global default.
        dilation_rate: the distance between the elements of a window: one integer, or
            one for each axis.

    Returns:
        A tensor of shape (batch, *windows, filters), in the data format of `inputs` and
        the common dtype.

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((1, 5, 1))
        >>> y = ops.conv(x, ops.ones((3, 1, 2)), padding="same")
        >>> y[0, :, 0].tolist()
        [2.0, 3.0, 3.0, 3.0, 2.0]
    """
    (x, kernel), _ = operands(inputs, kernel)
    return convolve(conv_p, x, kernel, strides, padding, data_format, dilation_rate)


def convolve(
    op: Primitive,
    x: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: str,
    data_format: str | None,
    dilation_rate: Any,
    **extra_attrs: Any,
) -> Tensor:
    """Apply one of the convolution primitives, with its further attributes."""
    ndim = spatial_ndim("conv", x)
    x = channels_last(x, data_format)
    _check_kernel("conv", x, kernel)
    strides = per_axis("conv", "strides", strides, ndim)
    dilation = per_axis("conv", "dilation_rate", dilation_rate, ndim)
    pads = padding_pairs(
        "conv", padding, x.shape[1:-1], kernel.shape[:-2], strides, dilation
    )
    groups = _groups("conv", x, kernel)
    if op is conv_p and ndim == 1 and has_extent(x.shape[1]):
        convolve_windows = {1: _convolve_windows, x.shape[-1]: _convolve_channels}
        if groups in convolve_windows:
            lines = pad(x, ((0, 0), pads[0], (0, 0)))
            windows = window_slices(lines, kernel.shape[0], strides[0], dilation[0])
            return in_format(convolve_windows[groups](windows, kernel), data_format)
    attrs = {"strides": strides, "padding": pads, "dilation": dilation}
    return in_format(
        bind(op, x, kernel, **attrs, groups=groups, **extra_attrs), data_format
    )


def _convolve_windows(windows: list[Tensor], kernel: Tensor) -> Tensor:
    """Convolve lines whose length is a free extent, as a product with their windows.

    The code of a convolution is divided into tiles for one length.

    Args:
        windows: for each position in the windows, (batch, windows, channels).
        kernel: (size, channels, filters).
    """
    size, channels, filters = kernel.shape
    return matmul(
        concatenate(windows, axis=-1), reshape(kernel, (size * channels, filters))
    )


def _convolve_channels(windows: list[Tensor], kernel: Tensor) -> Tensor:
    """Convolve each channel of such lines: (size, 1, channels * multiplier)."""
    batch, count, channels = windows[0].shape
    size, _, filters = kernel.shape
    kernel = reshape(kernel, (size, channels, filters // channels))
    terms = [expand_dims(x, -1) * kernel[i] for i, x in enumerate(windows)]
    return reshape(reduce(operator.add, terms), (batch, count, filters))


@operation
def depthwise_conv(
    inputs: TensorLike,
    kernel: Any,
    strides: IntOrInts = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrInts = 1,
) -> Tensor:
    """Convolve each channel with separate kernels.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first".
        kernel: (*size, channels, multiplier): `multiplier` kernels for each channel.
        strides: the distance between windows, in elements: one integer, or one for each
            axis.
        padding: "valid" (no padding) or "same" (zeros, for ceil(extent / stride)
            windows).
        data_format: "channels_last", "channels_first", or None for the global default.
        dilation_rate: the distance between the elements of a window: one integer, or
            one for each axis.

    Returns:
        A tensor of shape (batch, *windows, channels * multiplier), in the data format
        of `inputs`.

    Raises:
        ShapeError: `inputs` and `kernel` have different numbers of channels.

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((1, 4, 2))
        >>> ops.depthwise_conv(x, ops.ones((3, 2, 1))).tolist()
        [[[3.0, 3.0], [3.0, 3.0]]]
    """
    x, kernel = convert(inputs), convert(kernel)
    spatial_ndim("depthwise_conv", x)
    _check_kernel("depthwise_conv", x, kernel)
    *size, channels, multiplier = kernel.shape
    depth = channels_last(x, data_format).shape[-1]
    if depth != channels:
        raise ShapeError(
            f"depthwise_conv: inputs have {depth} channels; the kernel of shape "
            f"{kernel.shape} is for {channels}"
        )
    kernel = reshape(kernel, (*size, 1, channels * multiplier))
    return conv(x, kernel, strides, padding, data_format, dilation_rate)


@operation
def separable_conv(
    inputs: TensorLike,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: IntOrInts = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: IntOrInts = 1,
) -> Tensor:
    """Apply a depthwise convolution, then a convolution with windows of one element.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first".
        depthwise_kernel: (*size, channels, multiplier).
        pointwise_kernel: (*ones, channels * multiplier, filters), where each extent of
            `ones` is 1.
        strides: the distance between windows of the depthwise convolution: one integer,
            or one for each axis.
        padding: "valid" (no padding) or "same" (zeros, for ceil(extent / stride)
            windows).
        data_format: "channels_last", "channels_first", or None for the global default.
        dilation_rate: the distance between the elements of a window: one integer, or
            one for each axis.

    Returns:
        A tensor of shape (batch, *windows, filters), in the data format of `inputs`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((1, 4, 2))
        >>> ops.separable_conv(x, ops.ones((3, 2, 1)), ops.ones((1, 2, 1))).tolist()
        [[[6.0], [6.0]]]
    """
    y = depthwise_conv(
        inputs, depthwise_kernel, strides, padding, data_format, dilation_rate
    )
    return conv(y, pointwise_kernel, 1, "valid", data_format)


@operation
def conv_transpose(
    inputs: TensorLike,
    kernel: Any,
    strides: IntOrInts = 1,
    padding: str = "valid",
    output_padding: Any = None,
    data_format: str | None = None,
    dilation_rate: IntOrInts = 1,
) -> Tensor:
    """Apply a transposed convolution: each input element adds a scaled kernel.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first".
        kernel: (*size, filters, channels).
        strides: the distance between windows of the output: one integer, or one for
            each axis.
        padding: "valid" keeps each window complete; "same" gives the extent times the
            stride.
        output_padding: the number of additional elements at the end of each axis. None
            means max(size, stride) - size with "valid", and the number for the extent
            above with "same".
        data_format: "channels_last", "channels_first", or None for the global default.
        dilation_rate: the distance between the elements of a window: one integer, or
            one for each axis.

    Returns:
        A tensor of shape (batch, *outputs, filters), in the data format of `inputs` and
        the common dtype.

    Raises:
        ShapeError: `inputs` and `kernel` have different numbers of channels.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape([1.0, 10.0], (1, 2, 1))
        >>> ops.conv_transpose(x, ops.ones((3, 1, 1)))[0, :, 0].tolist()
        [1.0, 11.0, 11.0, 10.0]
    """
    (x, kernel), _ = operands(inputs, kernel)
    op = "conv_transpose"
    ndim = spatial_ndim(op, x)
    x = channels_last(x, data_format)
    _check_kernel(op, x, kernel)
    if x.shape[-1] != kernel.shape[-1]:
        raise ShapeError(
            f"{op}: inputs have {x.shape[-1]} channels; the kernel of shape "
            f"{kernel.shape} is for {kernel.shape[-1]}"
        )
    strides = per_axis(op, "strides", strides, ndim)
    dilation = per_axis(op, "dilation_rate", dilation_rate, ndim)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel.shape, dilation, strict=False))
    crops = _crops(padding, output_padding, reach, strides)
    # Remaining elements after the last window: a few belong to the primitive's output,
    # although no window covers them; the rest is appended as zeros.
    extra = tuple(max(-high, 0) for _, high in crops)
    inner = tuple(min(n, s - 1) for n, s in zip(extra, strides, strict=True))
    pads = tuple((low, max(high, 0)) for low, high in crops)
    axes = zip(x.shape[1:-1], strides, reach, pads, inner, strict=True)
    spatial = tuple((n - 1) * s + k - sum(crop) + i for n, s, k, crop, i in axes)
    attrs = {"strides": strides, "padding": pads, "dilation": dilation}
    y = bind(conv_input_grad_p, x, kernel, spatial=spatial, **attrs, groups=1)
    if extra != inner:
        zeros = tuple((0, n - i) for n, i in zip(extra, inner, strict=True))
        y = bind(pad_p, y, widths=((0, 0), *zeros, (0, 0)), value=0)
    return in_format(y, data_format)


def _crops(padding: str, extras: Any, reach: Extents, strides: Extents) -> Pads:
    """Return the crops of conv_transpose's full output; after an axis they may be < 0.

    Args:
        padding: "valid" or "same".
        extras: the argument `output_padding`.
        reach: the extents of a dilated window.
        strides: one for each axis.
    """
    mode = str(padding).lower()
    if mode not in ("valid", "same"):
        raise unknown_choice("conv_transpose: padding", padding, ("same", "valid"))
    is_sequence = isinstance(extras, (tuple, list))
    extras = tuple(extras) if is_sequence else (extras,) * len(reach)
    if len(extras) != len(reach) or any(n is not None and n < 0 for n in extras):
        raise ArgumentError(
            "conv_transpose: output_padding must be None, an integer >= 0 or "
            f"{len(reach)} of them; received {extras!r}"
        )
    crops = []
    for k, stride, extra in zip(reach, strides, extras, strict=True):
        if mode == "valid":
            crops.append((0, -max(stride - k, 0) if extra is None else -extra))
        else:
            # The number of kept elements among the k - 1 elements before the first and
            # after the last window; more than half are before.
            overlap = k + stride - 2 if extra is None else k + k % 2 - 2 + extra
            front = min(overlap - overlap // 2, k - 1)
            crops.append((k - 1 - front, k - 1 - (overlap - front)))
    return tuple(crops)
