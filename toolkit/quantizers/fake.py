"""Fake quantization: rounding in floating dtypes, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.dtypes import result_type
from toolkit.ops.symbolic import operation


@operation
def fake_quant_with_min_max_vars(
    inputs: Any,
    min_vals: Any,
    max_vals: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Any:
    """Round to the nearest of 2**num_bits evenly spaced values.

    The values span `min_vals` to `max_vals`. The range is shifted a little so that 0 is
    one of the values. Gradients pass through for inputs within the range. The gradient
    of a clipped input goes to the bound that clipped it.

    Args:
        inputs: (...), floating.
        min_vals: the lower bound; for each channel, (channels,), with an `axis`.
        max_vals: the upper bound, in the same format.
        num_bits: the number of bits of a value.
        narrow_range: whether to leave out the lowest value.
        axis: the axis of channels.

    Example:
        >>> from toolkit import ops, quantizers
        >>> x = ops.array([-9.0, 0.3, 0.6, 9.0])
        >>> y = quantizers.fake_quant_with_min_max_vars(x, 0.0, 1.5, num_bits=2)
        >>> y.tolist()
        [0.0, 0.5, 0.5, 1.5]
    """
    x = convert(inputs)
    ends = tuple(convert(end) for end in (min_vals, max_vals))
    shape: tuple[int, ...] = ()
    if axis is not None:
        channels = range(x.ndim)[axis]
        shape = tuple(x.shape[i] if i == channels else 1 for i in range(x.ndim))
    wide = [result_type(end.dtype, "float32") for end in ends]
    low, high = (
        ops.reshape(ops.cast(end, name), shape)
        for end, name in zip(ends, wide, strict=True)
    )
    steps = int(num_bits), bool(narrow_range)
    return ops.cast(_quantized(ops.cast(x, low.dtype), low, high, *steps), x.dtype)


def _quantized(x: Any, low: Any, high: Any, num_bits: int, narrow_range: bool) -> Any:
    """Compute `fake_quant_with_min_max_vars` for bounds that broadcast with x."""
    first, last = int(narrow_range), 2**num_bits - 1
    size = ops.divide(ops.subtract(high, low), last - first)
    count = ops.divide(last - first, ops.subtract(high, low))  # steps per 1
    zero = ops.round(ops.clip(first - ops.divide(low, size), first, last))
    bottom = ops.multiply(ops.subtract(first, zero), size)
    top = ops.multiply(ops.subtract(last, zero), size)

    @ops.custom_gradient
    def rounded(x: Any, low: Any, high: Any) -> Any:
        position = ops.multiply(ops.subtract(ops.clip(x, bottom, top), bottom), count)
        origin = ops.floor(ops.add(ops.multiply(-bottom, count), 0.5))
        y = ops.multiply(ops.floor(ops.add(ops.subtract(position, origin), 0.5)), size)
        within = ops.logical_and(ops.greater_equal(x, bottom), ops.less_equal(x, top))

        def grad(g: Any) -> tuple[Any, Any, Any]:
            to_ends = (
                _summed(ops.where(mask, g, 0.0), end)
                for mask, end in (
                    (ops.less_equal(x, bottom), low),
                    (ops.greater_equal(x, top), high),
                )
            )
            return ops.where(within, g, 0.0), *to_ends

        return y, grad

    return rounded(x, low, high)


def _summed(g: Any, end: Any) -> Any:
    """Reduce the gradient of broadcast values to the shape of a bound."""
    axes = tuple(i for i in range(g.ndim) if i >= end.ndim or end.shape[i] == 1)
    return ops.reshape(ops.sum(g, axis=axes), end.shape)
