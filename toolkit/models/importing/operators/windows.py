"""Windows along spatial axes, for convolution and pooling with channels last."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call
from toolkit.models.importing.values import Value, channels_last

Pairs = tuple[tuple[int, int], ...]


class Windows(NamedTuple):
    """Windows along the spatial axes."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs

    @property
    def reach(self) -> tuple[int, ...]:
        """Return the extents of a dilated window."""
        pairs = zip(self.size, self.dilation, strict=True)
        return tuple((k - 1) * d + 1 for k, d in pairs)


def windows_of(call: Call, x: Value | tuple[int, ...], size: Any) -> Windows:
    """Return the windows of the attributes; pads are for valid convolutions."""
    shape = x.shape if isinstance(x, Value) else x
    spatial = shape[2:]
    n = len(spatial)
    if not 1 <= n <= 3:
        raise UnsupportedError(
            f"expected batch, channels and 1 to 3 spatial axes; received shape {shape}"
        )
    size = tuple(size)
    strides = call.integers("strides", (1,) * n)
    dilation = call.integers("dilations", (1,) * n)
    pads = call.integers("pads", (0,) * (2 * n))
    lengths = len(size), len(strides), len(dilation), len(pads) // 2
    if lengths != (n,) * 4 or min((*size, *strides, *dilation), default=0) < 1:
        raise ModelFileError(
            f"windows of {size}, strides {strides}, dilations {dilation} and pads "
            f"{pads} do not fit shape {shape}"
        )
    if min(pads) < 0 or max((*pads, *size, *strides, *dilation)) >= 1 << 31:
        raise ModelFileError(f"pads {pads} are out of range")
    pairs = tuple(zip(pads[:n], pads[n:], strict=True))
    windows = Windows(size, strides, dilation, pairs)
    mode = call.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return windows._replace(pads=_same(spatial, windows, mode == "SAME_UPPER"))
    if mode == "VALID":
        return windows._replace(pads=((0, 0),) * n)
    if mode != "NOTSET":
        raise ModelFileError(f"unsupported auto_pad={mode!r}")
    return windows


def _same(spatial: Any, windows: Windows, upper: bool) -> Pairs:
    pairs = []
    for n, stride, reach in zip(spatial, windows.strides, windows.reach, strict=True):
        total = max((-(-n // stride) - 1) * stride + reach - n, 0)
        low = total // 2 if upper else total - total // 2
        pairs.append((low, total - low))
    return tuple(pairs)


def window_counts(spatial: Any, windows: Windows) -> tuple[int, ...]:
    """Return the number of windows along each axis."""
    counts = []
    for n, reach, stride, (low, high) in zip(
        spatial, windows.reach, windows.strides, windows.pads, strict=True
    ):
        room = n + low + high - reach
        if room < 0:
            raise ModelFileError(
                f"windows of {windows.size} do not fit the spatial axes "
                f"{tuple(spatial)}"
            )
        counts.append(room // stride + 1)
    return tuple(counts)


def channels_at_end(x: Value) -> Any:
    """Return the tensor with its channels in the last axis."""
    return x.ordered(channels_last(x.ndim))


def from_channels_at_end(y: Any) -> Value:
    """Return the value of a tensor with channels in the last axis."""
    return Value(y, channels_last(y.ndim))
