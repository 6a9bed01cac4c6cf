"""Convolution and pooling, computed with channels last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from toolkit import ops
from toolkit.core.tensor import bind
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.values import Value, channels_last, kernel_order
from toolkit.ops.conv import conv_input_grad_p, conv_p
from toolkit.ops.pool import max_pool_p, sum_pool_p
from toolkit.ops.shape import pad_p

Pairs = tuple[tuple[int, int], ...]
_MOST_TERMS = 1_000  # of a window that is computed as slices


class Windows(NamedTuple):
    """Windows along the spatial axes."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs

    @property
    def reach(self) -> tuple[int, ...]:
        """The extents of a dilated window."""
        pairs = zip(self.size, self.dilation, strict=True)
        return tuple((k - 1) * d + 1 for k, d in pairs)


def _windows(call: Call, x: Value, size: Any) -> Windows:
    """The windows that the attributes describe; pads are for valid convolutions."""
    spatial = x.shape[2:]
    n = len(spatial)
    if not 1 <= n <= 3:
        raise UnsupportedError(
            f"expected a batch, channels and 1 to 3 axes; received shape {x.shape}"
        )
    size = tuple(size)
    strides = call.integers("strides", (1,) * n)
    dilation = call.integers("dilations", (1,) * n)
    pads = call.integers("pads", (0,) * (2 * n))
    lengths = len(size), len(strides), len(dilation), len(pads) // 2
    if lengths != (n,) * 4 or min((*size, *strides, *dilation), default=0) < 1:
        raise ModelFileError(
            f"windows of {size}, strides {strides}, dilations {dilation} and pads "
            f"{pads} for the shape {x.shape}"
        )
    if min(pads) < 0 or max((*pads, *size, *strides, *dilation)) >= 1 << 31:
        raise ModelFileError(f"pads {pads} are out of range")
    pairs = tuple(zip(pads[:n], pads[n:], strict=True))
    found = Windows(size, strides, dilation, pairs)
    mode = call.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return found._replace(pads=_same(spatial, found, mode == "SAME_UPPER"))
    if mode == "VALID":
        return found._replace(pads=((0, 0),) * n)
    if mode != "NOTSET":
        raise ModelFileError(f"auto_pad={mode!r}")
    return found


def _same(spatial: Any, windows: Windows, upper: bool) -> Pairs:
    pairs = []
    for n, stride, reach in zip(spatial, windows.strides, windows.reach, strict=True):
        total = max((-(-n // stride) - 1) * stride + reach - n, 0)
        low = total // 2 if upper else total - total // 2
        pairs.append((low, total - low))
    return tuple(pairs)


def _counts(spatial: Any, windows: Windows) -> tuple[int, ...]:
    found = []
    for n, reach, stride, (low, high) in zip(
        spatial, windows.reach, windows.strides, windows.pads, strict=True
    ):
        room = n + low + high - reach
        if room < 0:
            raise ModelFileError(
                f"windows of {windows.size} do not fit into the axes {tuple(spatial)}"
            )
        found.append(room // stride + 1)
    return tuple(found)


def read_windows(call: Call, x: Value, size: Any) -> tuple[Windows, tuple[int, ...]]:
    """Return the windows of a node, and how many there are along each axis."""
    windows = _windows(call, x, size)
    return windows, _counts(x.shape[2:], windows)


def _last(x: Value) -> Any:
    return x.ordered(channels_last(x.ndim))


def _made(y: Any) -> Value:
    return Value(y, channels_last(y.ndim))


# --- convolution ----------------------------------------------------------------------


def _kernel_size(call: Call, w: Value) -> tuple[int, ...]:
    size = call.integers("kernel_shape", w.shape[2:])
    if size != w.shape[2:]:
        raise ModelFileError(f"kernel_shape={size} for weights of shape {w.shape}")
    return tuple(size)


def convolve(call: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Return a convolution, by the attributes of the node."""
    groups = call.integer("group", 1)
    windows = _windows(call, x, _kernel_size(call, w))
    filters, channels = w.shape[:2]
    if groups < 1 or x.shape[1] != channels * groups or filters % groups:
        raise ModelFileError(
            f"{groups} groups of shape {x.shape} for weights of shape {w.shape}"
        )
    counts = _counts(x.shape[2:], windows)
    call.allow((x.shape[0], *counts, filters), x.dtype)
    call.work(x.shape[0], *counts, w.size)
    y = bind(
        conv_p,
        _last(x),
        w.ordered(kernel_order(w.ndim)),
        strides=windows.strides,
        padding=windows.pads,
        dilation=windows.dilation,
        groups=groups,
    )
    return _made(y if bias is None else y + _vector(bias, filters))


def _vector(bias: Value, n: int) -> Any:
    if bias.shape != (n,):
        raise ModelFileError(f"expected a bias of shape ({n},); received {bias.shape}")
    return bias.tensor


def _conv_transpose(call: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    groups = call.integer("group", 1)
    n = x.ndim - 2
    added = call.integers("output_padding", (0,) * n)
    wanted = call.integers("output_shape", None)
    mode = call.text("auto_pad", "NOTSET")
    windows = _windows(call, x, _kernel_size(call, w))
    channels, filters = w.shape[0], w.shape[1] * groups
    if groups < 1 or x.shape[1] != channels or channels % groups or len(added) != n:
        raise ModelFileError(
            f"{groups} groups of shape {x.shape} for weights of shape {w.shape}"
        )
    whole = tuple(
        (extent - 1) * stride + reach
        for extent, stride, reach in zip(
            x.shape[2:], windows.strides, windows.reach, strict=True
        )
    )
    if wanted is None and mode.startswith("SAME"):
        pairs = zip(x.shape[2:], windows.strides, strict=True)
        wanted = tuple(extent * stride for extent, stride in pairs)
    pads = windows.pads
    if wanted is not None:
        pads = _transposed_pads(whole, added, wanted, mode)
    extents = tuple(
        size - low - high + extra
        for size, (low, high), extra in zip(whole, pads, added, strict=True)
    )
    call.allow((x.shape[0], *extents, filters), x.dtype)
    call.work(x.shape[0], *x.shape[2:], w.size)
    y = _scattered(x, w, windows, pads, added, groups)
    return _made(y if bias is None else y + _vector(bias, filters))


def _transposed_pads(whole: Any, added: Any, wanted: Any, mode: str) -> Pairs:
    if len(wanted) != len(whole):
        raise ModelFileError(f"output_shape={wanted} for {len(whole)} axes")
    pairs = []
    for size, extra, extent in zip(whole, added, wanted, strict=True):
        total = size + extra - extent
        low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        pairs.append((low, total - low))
    return tuple(pairs)


def _scattered(
    x: Value, w: Value, windows: Windows, pads: Pairs, added: Any, groups: int
) -> Any:
    """The transpose of a convolution, then what is beyond all windows as zeros."""
    tensor = _last(x)
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


# --- pooling --------------------------------------------------------------------------


def _pooled(call: Call, x: Value) -> tuple[Windows, Pairs]:
    """The windows, grown so that the last one fits if `ceil_mode` says so."""
    windows = _windows(call, x, call.integers("kernel_shape"))
    ceil, stated = call.integer("ceil_mode", 0), windows.pads
    if ceil:
        pairs = []
        for n, reach, stride, (low, high) in zip(
            x.shape[2:], windows.reach, windows.strides, windows.pads, strict=True
        ):
            count = -(-(n + low + high - reach) // stride) + 1
            if (count - 1) * stride >= n + low:  # it would begin behind the data
                count -= 1
            grown = (count - 1) * stride + reach - n - low
            pairs.append((low, max(high, grown)))
        windows = windows._replace(pads=tuple(pairs))
    shape = (*x.shape[:2], *_counts(x.shape[2:], windows))
    call.allow(shape, x.dtype)
    call.work(*shape, *windows.size)
    return windows, stated


def _max_pool(call: Call, x: Value) -> Value:
    call.integer("storage_order", 0)
    if call.wants(1):
        raise UnsupportedError("expected a MaxPool whose indices are not wanted")
    windows, _ = _pooled(call, x)
    if max(windows.dilation) > 1 or x.dtype not in ("float32", "float64"):
        return _made(_by_slices(call, x, windows, ops.maximum, _lowest(x.dtype)))
    attrs = {"strides": windows.strides, "padding": windows.pads}
    return _made(bind(max_pool_p, _last(x), window=windows.size, **attrs)[0])


def _lowest(dtype: str) -> Any:
    kind = np.dtype(dtype if dtype != "bfloat16" else "float32")
    return -math.inf if kind.kind == "f" else int(np.iinfo(kind).min)


def _average_pool(call: Call, x: Value) -> Value:
    with_pads = call.integer("count_include_pad", 0)
    windows, stated = _pooled(call, x)
    if max(windows.dilation) > 1:
        total = _by_slices(call, x, windows, ops.add, 0)
    else:
        attrs = {"strides": windows.strides, "padding": windows.pads}
        total = bind(sum_pool_p, _last(x), window=windows.size, **attrs)
    for axis, places in enumerate(_seen(x.shape[2:], windows, stated, with_pads)):
        if np.all(places == places[0]):
            total = total * (1 / float(places[0]))
        else:
            extents = [-1 if i == axis + 1 else 1 for i in range(x.ndim)]
            total = total / ops.cast(places.reshape(extents), x.dtype)
    return _made(total)


def _seen(spatial: Any, windows: Windows, stated: Pairs, with_pads: int) -> Any:
    """Along each axis, how many elements each window has that count."""
    for n, k, d, stride, (low, high), (first, last) in zip(
        *(spatial, windows.size, windows.dilation, windows.strides),
        *(windows.pads, stated),
        strict=True,
    ):
        reach = (k - 1) * d + 1
        starts = np.arange(-low, n + high - reach + 1, stride)
        bottom, top = (-first, n + last) if with_pads else (0, n)
        # Places start + i d for i < k that are in [bottom, top).
        before = np.clip(-((starts - bottom) // d), 0, k)
        behind = np.clip(-((starts - top) // d), 0, k)
        yield np.maximum(behind - before, 1)


def _by_slices(
    call: Call, x: Value, windows: Windows, combine: Callable[..., Any], fill: Any
) -> Any:
    """A pooling as a sum, or a maximum, of strided slices: one for each place."""
    if math.prod(windows.size) > _MOST_TERMS:
        raise UnsupportedError(f"a dilated window of {windows.size}")
    tensor = _last(x)
    if any(map(any, windows.pads)):
        widths = ((0, 0), *windows.pads, (0, 0))
        padded = [n + sum(w) for n, w in zip(tensor.shape, widths, strict=True)]
        call.allow(padded, x.dtype)
        tensor = bind(pad_p, tensor, widths=widths, value=fill)
    counts = _counts(x.shape[2:], windows)
    result = None
    for place in itertools.product(*map(range, windows.size)):
        starts = [i * d for i, d in zip(place, windows.dilation, strict=True)]
        cuts = [
            slice(a, a + (n - 1) * s + 1, s)
            for a, n, s in zip(starts, counts, windows.strides, strict=True)
        ]
        part = tensor[(slice(None), *cuts)]
        result = part if result is None else combine(result, part)
    return result


def _lp_pool(call: Call, x: Value) -> Value:
    p = call.integer("p", 2)
    windows, _ = _pooled(call, x)
    powers = Value(ops.power(ops.abs(_last(x)), float(p)), channels_last(x.ndim))
    total = _by_slices(call, powers, windows, ops.add, 0)
    return _made(ops.power(total, 1 / p))


def _global(reduce: Callable[..., Any]) -> Callable[..., Value]:
    def run(call: Call, x: Value) -> Value:
        if x.ndim < 3:
            raise ModelFileError(f"expected spatial axes; received shape {x.shape}")
        order = x.orders[0]
        axes = tuple(i for i, axis in enumerate(order) if axis > 1)
        return Value(reduce(x.ordered(order), axis=axes, keepdims=True), order)

    return run


def _global_lp(call: Call, x: Value) -> Value:
    p = call.integer("p", 2)

    def norm(tensor: Any, axis: Any, keepdims: bool) -> Any:
        powers = ops.power(ops.abs(tensor), float(p))
        return ops.power(ops.sum(powers, axis=axis, keepdims=keepdims), 1 / p)

    return _global(norm)(call, x)


OPERATORS = (
    Operator("Conv", convolve),
    Operator("ConvTranspose", _conv_transpose),
    Operator("MaxPool", _max_pool),
    Operator("AveragePool", _average_pool),
    Operator("LpPool", _lp_pool),
    Operator("GlobalAveragePool", _global(ops.mean)),
    Operator("GlobalMaxPool", _global(ops.max)),
    Operator("GlobalLpPool", _global_lp),
)
