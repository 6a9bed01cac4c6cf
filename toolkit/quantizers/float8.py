"""8-bit floats, as values of larger dtypes."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import unknown_choice
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


class Format(NamedTuple):
    """Floating format: mantissa bits, smallest exponent, largest value."""

    bits: int
    exponent: int
    largest: float


FORMATS = {
    "float8_e4m3fn": Format(3, -6, 448.0),
    "float8_e5m2": Format(2, -14, 57344.0),
}


@operation
def compute_float8_scale(
    amax: Any, scale: Any, dtype_max: float, margin: int = 0
) -> Tensor:
    """Return amax * 2**margin / dtype_max: the scale that uses the format's full range.

    If `amax` is 0 or not finite, return the old scale.

    Args:
        amax: the largest absolute value so far.
        scale: the old divisor of the values.
        dtype_max: the largest number of the format.
        margin: the exponent of the headroom: 2**margin.

    Returns:
        The new divisor, a scalar.

    Example:
        >>> from toolkit import ops, quantizers
        >>> float(quantizers.compute_float8_scale(ops.array(896.0), 1.0, 448.0))
        2.0

    Reference:
        P. Micikevicius et al., FP8 Formats for Deep Learning,
        https://arxiv.org/abs/2209.05433
    """
    amax, scale = convert(amax, "float32"), convert(scale, "float32")
    is_valid = ops.logical_and(ops.greater(amax, 0.0), ops.isfinite(amax))
    safe_amax = ops.where(is_valid, amax, 1.0)
    return ops.where(is_valid, ops.multiply(safe_amax, 2.0**margin / dtype_max), scale)


@operation
def compute_float8_amax_history(x: TensorLike, amax_history: Any) -> Tensor:
    """Shift the history of absolute maxima, (n,); put the maximum of x first.

    Args:
        x: a tensor.
        amax_history: the history, (n,).

    Returns:
        The new history, (n,).

    Example:
        >>> from toolkit import ops, quantizers
        >>> history = ops.array([1.0, 2.0, 3.0])
        >>> quantizers.compute_float8_amax_history([-5.0, 4.0], history).tolist()
        [5.0, 3.0, 1.0]
    """
    amax_history = convert(amax_history)
    newest = ops.cast(ops.max(ops.abs(convert(x))), amax_history.dtype)
    older = ops.roll(amax_history, shift=-1)[1:]
    return ops.concatenate([ops.reshape(newest, (1,)), older])


@operation
def quantize_and_dequantize(
    inputs: Any, scale: Any, quantized_dtype: str, compute_dtype: str
) -> Tensor:
    """Return inputs / scale, rounded to 8-bit floats, * scale.

    Gradients pass through the rounding; they are 0 for clipped values.

    Args:
        inputs: (...), floating.
        scale: the divisor of the inputs.
        quantized_dtype: "float8_e4m3fn" or "float8_e5m2".
        compute_dtype: the dtype of the result.

    Returns:
        A tensor of the shape of the inputs.

    Example:
        >>> from toolkit import ops, quantizers
        >>> x = ops.array([0.3, 17.0, 1000.0])
        >>> y = quantizers.quantize_and_dequantize(x, 1.0, "float8_e4m3fn", "float32")
        >>> y.tolist()
        [0.3125, 16.0, 448.0]
    """
    if quantized_dtype not in FORMATS:
        raise unknown_choice(
            "quantize_and_dequantize: quantized_dtype", quantized_dtype, FORMATS
        )
    kind = FORMATS[quantized_dtype]
    scale = ops.cast(scale, compute_dtype)
    x = ops.divide(ops.cast(inputs, compute_dtype), scale)
    x = ops.clip(x, -kind.largest, kind.largest)
    quantized = ops.add(
        x, ops.stop_gradient(ops.subtract(_round_to_format(x, kind), x))
    )
    return ops.multiply(quantized, scale)


def _round_to_format(x: Tensor, kind: Format) -> Tensor:
    """Return the nearest values of a format, in the dtype of x."""
    values = ops.cast(x, "float32")
    min_normal = 2.0**kind.exponent
    exponent = ops.floor(ops.log2(ops.maximum(ops.abs(values), min_normal)))
    step = ops.power(2.0, ops.subtract(exponent, kind.bits))
    return ops.cast(ops.multiply(ops.round(ops.divide(values, step)), step), x.dtype)
