"""Fake quantization: rounding in floating dtypes, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.dtypes import result_type
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


@operation
def fake_quant_with_min_max_vars(
    inputs: Any,
    min_vals: Any,
    max_vals: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Tensor:
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

    Returns:
        A tensor of the shape of the inputs.

    Example:
        >>> from toolkit import ops, quantizers
        >>> x = ops.array([-9.0, 0.3, 0.6, 9.0])
        >>> y = quantizers.fake_quant_with_min_max_vars(x, 0.0, 1.5, num_bits=2)
        >>> y.tolist()
        [0.0, 0.5, 0.5, 1.5]
    """
    x = convert(inputs)
    bounds = tuple(convert(bound) for bound in (min_vals, max_vals))
    shape: tuple[int, ...] = ()
    if axis is not None:
        channels = range(x.ndim)[axis]
        shape = tuple(x.shape[i] if i == channels else 1 for i in range(x.ndim))
    bound_dtypes = [result_type(bound.dtype, "float32") for bound in bounds]
    low, high = (
        ops.reshape(ops.cast(bound, name), shape)
        for bound, name in zip(bounds, bound_dtypes, strict=True)
    )
    options = int(num_bits), bool(narrow_range)
    return ops.cast(
        _fake_quantize(ops.cast(x, low.dtype), low, high, *options), x.dtype
    )


def _fake_quantize(
    x: TensorLike, low: Any, high: Any, num_bits: int, narrow_range: bool
) -> Any:
    """Compute `fake_quant_with_min_max_vars` for bounds that broadcast with x."""
    min_integer, max_integer = int(narrow_range), 2**num_bits - 1
    step = ops.divide(ops.subtract(high, low), max_integer - min_integer)
    steps_per_unit = ops.divide(
        max_integer - min_integer, ops.subtract(high, low)
    )  # steps per 1
    zero = ops.round(
        ops.clip(min_integer - ops.divide(low, step), min_integer, max_integer)
    )
    lowest = ops.multiply(ops.subtract(min_integer, zero), step)
    highest = ops.multiply(ops.subtract(max_integer, zero), step)

    @ops.custom_gradient
    def rounded(x: TensorLike, low: Any, high: Any) -> Any:
        position = ops.multiply(
            ops.subtract(ops.clip(x, lowest, highest), lowest), steps_per_unit
        )
        origin = ops.floor(ops.add(ops.multiply(-lowest, steps_per_unit), 0.5))
        y = ops.multiply(ops.floor(ops.add(ops.subtract(position, origin), 0.5)), step)
        is_inside = ops.logical_and(
            ops.greater_equal(x, lowest), ops.less_equal(x, highest)
        )

        def grad(g: Any) -> tuple[Any, Any, Any]:
            bound_gradients = (
                _reduce_to_shape(ops.where(mask, g, 0.0), bound)
                for mask, bound in (
                    (ops.less_equal(x, lowest), low),
                    (ops.greater_equal(x, highest), high),
                )
            )
            return ops.where(is_inside, g, 0.0), *bound_gradients

        return y, grad

    return rounded(x, low, high)


def _reduce_to_shape(g: Any, bound: Any) -> Any:
    """Reduce the gradient of broadcast values to the shape of a bound."""
    axes = tuple(i for i in range(g.ndim) if i >= bound.ndim or bound.shape[i] == 1)
    return ops.reshape(ops.sum(g, axis=axes), bound.shape)
