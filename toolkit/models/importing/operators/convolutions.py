"""Convolutions, computed with channels last."""

from __future__ import annotations

from typing import Any

from toolkit.core.tensor import bind
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.windows import (
    Pairs,
    Windows,
    channels_at_end,
    from_channels_at_end,
    window_counts,
    windows_of,
)
from toolkit.models.importing.values import Value, kernel_order
from toolkit.ops.conv import conv_input_grad_p, conv_p
from toolkit.ops.shape import pad_p


def _kernel_size(call: Call, w: Value) -> tuple[int, ...]:
    size = call.integers("kernel_shape", w.shape[2:])
    if size != w.shape[2:]:
        raise ModelFileError(
            f"kernel_shape={size} does not fit weights of shape {w.shape}"
        )
    return tuple(size)


def convolve(call: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Compute a convolution, with the attributes of the node."""
    groups = call.integer("group", 1)
    windows = windows_of(call, x, _kernel_size(call, w))
    filters, channels = w.shape[:2]
    if groups < 1 or x.shape[1] != channels * groups or filters % groups:
        raise ModelFileError(
            f"{groups} groups of shape {x.shape} do not fit weights of shape {w.shape}"
        )
    counts = window_counts(x.shape[2:], windows)
    call.allow((x.shape[0], *counts, filters), x.dtype)
    call.work(x.shape[0], *counts, w.size)
    y = bind(
        conv_p,
        channels_at_end(x),
        w.ordered(kernel_order(w.ndim)),
        strides=windows.strides,
        padding=windows.pads,
        dilation=windows.dilation,
        groups=groups,
    )
    return from_channels_at_end(y if bias is None else y + _vector(bias, filters))


def _vector(bias: Value, n: int) -> Any:
    if bias.shape != (n,):
        raise ModelFileError(f"expected a bias of shape ({n},); received {bias.shape}")
    return bias.tensor


def _conv_transpose(call: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    groups = call.integer("group", 1)
    n = x.ndim - 2
    added = call.integers("output_padding", (0,) * n)
    target = call.integers("output_shape", None)
    mode = call.text("auto_pad", "NOTSET")
    windows = windows_of(call, x, _kernel_size(call, w))
    channels, filters = w.shape[0], w.shape[1] * groups
    if groups < 1 or x.shape[1] != channels or channels % groups or len(added) != n:
        raise ModelFileError(
            f"{groups} groups of shape {x.shape} do not fit weights of shape {w.shape}"
        )
    full_extents = tuple(
        (extent - 1) * stride + reach
        for extent, stride, reach in zip(
            x.shape[2:], windows.strides, windows.reach, strict=True
        )
    )
    if target is None and mode.startswith("SAME"):
        pairs = zip(x.shape[2:], windows.strides, strict=True)
        target = tuple(extent * stride for extent, stride in pairs)
    pads = windows.pads
    if target is not None:
        pads = _transposed_pads(full_extents, added, target, mode)
    extents = tuple(
        size - low - high + extra
        for size, (low, high), extra in zip(full_extents, pads, added, strict=True)
    )
    call.allow((x.shape[0], *extents, filters), x.dtype)
    call.work(x.shape[0], *x.shape[2:], w.size)
    y = _scattered(x, w, windows, pads, added, groups)
    return from_channels_at_end(y if bias is None else y + _vector(bias, filters))


def _transposed_pads(full_extents: Any, added: Any, target: Any, mode: str) -> Pairs:
    if len(target) != len(full_extents):
        raise ModelFileError(
            f"output_shape={target} does not fit {len(full_extents)} axes"
        )
    pairs = []
    for size, extra, extent in zip(full_extents, added, target, strict=True):
        total = size + extra - extent
        low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        pairs.append((low, total - low))
    return tuple(pairs)


def _scattered(
    x: Value, w: Value, windows: Windows, pads: Pairs, added: Any, groups: int
) -> Any:
    """Compute a transposed convolution, padded with zeros beyond all windows."""
    tensor = channels_at_end(x)
    crop, grow, spatial = [], [(0, 0)], []
    for extent, stride, reach, (low, high), extra in zip(
        *(tensor.shape[1:-1], windows.strides, windows.reach, pads, added), strict=True
    ):
        high -= extra
        inner = min(max(-high, 0), stride - 1)
        crop.append((max(low, 0), max(high, 0)))
        spatial.append((extent - 1) * stride + reach - sum(crop[-1]) + inner)
        grow.append((max(-low, 0), max(-high, 0) - inner))
    y = bind(
        conv_input_grad_p,
        tensor,
        w.ordered(kernel_order(w.ndim)),
        spatial=tuple(spatial),
        strides=windows.strides,
        padding=tuple(crop),
        dilation=windows.dilation,
        groups=groups,
    )
    if any(map(any, grow)):
        y = bind(pad_p, y, widths=(*grow, (0, 0)), value=0)
    return y


OPERATORS = (
    Operator("Conv", convolve),
    Operator("ConvTranspose", _conv_transpose),
)
