"""Operators of quantized models: 8-bit and 16-bit integers with scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.operators.contractions import matmul
from toolkit.models.importing.operators.convolutions import convolve
from toolkit.models.importing.operators.elementwise import apply, cast
from toolkit.models.importing.values import Value
from toolkit.reading.onnx.tensors import dtype_of

_LARGEST_TERM = 255 * 255  # of a product of two 8-bit integers
_EXACT = 1 << 24  # float32 represents integers up to it exactly
_NARROW = ("int8", "uint8", "int16", "uint16")


# --- scales and zero points -----------------------------------------------------------


def _with_shape(x: Value, shape: tuple[int, ...]) -> Value:
    if x.static_array is not None:
        return Value.of(x.static_array.reshape(shape))
    return Value(ops.reshape(x.tensor, shape))


def _broadcast_parameter(
    parameter: Value, x: Value, axis: int, block: int = 0
) -> Value:
    """Reshape a scale or zero point to broadcast to x.

    Args:
        parameter: one for all of x, one for each index of an axis, or one for each
            block of elements along the axis.
        x: the quantized values.
        axis: the axis of x.
        block: the number of elements in a block; 0 without blocks.
    """
    if parameter.size == 1:
        return _with_shape(parameter, ())
    axis = axis_of(axis, x.ndim)
    extent = x.shape[axis]
    if not block:
        if parameter.shape != (extent,):
            raise ModelFileError(
                f"expected a scale or zero point of shape ({extent},) for axis {axis} "
                f"of {x.shape}; received {parameter.shape}"
            )
        shape = [extent if i == axis else 1 for i in range(x.ndim)]
        return _with_shape(parameter, tuple(shape))
    expected = [-(-n // block) if i == axis else n for i, n in enumerate(x.shape)]
    if block < 0 or list(parameter.shape) != expected:
        raise ModelFileError(
            f"expected scales of shape {tuple(expected)} for blocks of {block}; "
            f"received {parameter.shape}"
        )
    blocks = np.arange(extent) // block
    return Value(ops.take(parameter.tensor, blocks, axis=axis))


def _check_type(name: str, x: Value, zero: Value | None) -> None:
    if zero is not None and zero.dtype != x.dtype:
        raise ModelFileError(
            f"expected {name} with the dtype of its values, {x.dtype}; received "
            f"{zero.dtype}"
        )


def _rounded(call: Call, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """Return round(scaled) + zero as an integer, saturated to its range."""
    if dtype not in _NARROW:
        raise ModelFileError(
            f"expected a result dtype among {_NARROW}; received {dtype}"
        )
    limits = np.iinfo(dtype)

    def function(x: Any, *zeros: Any) -> Tensor:
        total = ops.round(ops.cast(x, "float32"))
        for zero_point in zeros:
            total = total + ops.cast(zero_point, "float32")
        return ops.cast(ops.clip(total, limits.min, limits.max), dtype)

    return apply(call, function, scaled, *([] if zero is None else [zero]))


def _shifted(call: Call, x: Value, zero: Value | None, dtype: str) -> Value:
    """Return x - zero in a floating dtype."""
    x = cast(call, x, dtype)
    return x if zero is None else apply(call, ops.subtract, x, cast(call, zero, dtype))


def _exact_dtype(terms: int) -> str:
    """Return the dtype in which sums of this number of 8-bit products are exact."""
    return "float32" if terms * _LARGEST_TERM < _EXACT else "float64"


# --- quantization and dequantization --------------------------------------------------


def quantize(
    call: Call, x: Value, scale: Value, zero: Value | None, dtype: str
) -> Value:
    """Return round(x / scale) + zero, for scales that broadcast to x."""
    return _rounded(call, apply(call, ops.divide, x, scale), zero, dtype)


def dequantize(call: Call, x: Value, scale: Value, zero: Value | None) -> Value:
    """Return (x - zero) * scale in float32, for scales that broadcast to x."""
    _check_type("a zero point", x, zero)
    # Differences of 32-bit integers, such as biases, need more bits than float32 has.
    difference = _shifted(call, x, zero, "float64" if x.dtype == "int32" else "float32")
    difference = cast(call, difference, "float32")
    return apply(call, ops.multiply, difference, cast(call, scale, "float32"))


def _quantize(call: Call, x: Value, scale: Value, zero: Value | None = None) -> Value:
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    saturates = bool(call.integer("saturate", 1))
    number, precision = call.integer("output_dtype", 0), call.integer("precision", 0)
    dtype = dtype_of(number, "output_dtype") if number else "uint8"
    if zero is not None:
        if number and dtype != zero.dtype:
            raise ModelFileError(
                f"output_dtype={dtype} differs from the dtype {zero.dtype} of the "
                "zero point"
            )
        dtype = zero.dtype
        zero = _broadcast_parameter(zero, x, axis, block)
    scale = _broadcast_parameter(scale, x, axis, block)
    kind = dtype_of(precision, "precision") if precision else scale.dtype
    x, scale = cast(call, x, kind), cast(call, scale, kind)
    if dtype in dtypes.FLOAT8:  # their zero point is 0
        return cast(call, apply(call, ops.divide, x, scale), dtype, saturates)
    return quantize(call, x, scale, zero, dtype)


def _dequantize(call: Call, x: Value, scale: Value, zero: Value | None = None) -> Value:
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    number = call.integer("output_dtype", 0)
    dtype = dtype_of(number, "output_dtype") if number else scale.dtype
    zero = None if zero is None else _broadcast_parameter(zero, x, axis, block)
    y = dequantize(call, x, _broadcast_parameter(scale, x, axis, block), zero)
    return cast(call, y, dtype)


def dynamic_quantize(call: Call, x: Value) -> tuple[Value, Value, Value]:
    """Quantize numbers to 8-bit integers; also return the scale and the zero point."""
    low = ops.minimum(ops.min(x.tensor), 0.0)
    high = ops.maximum(ops.max(x.tensor), 0.0)
    extent = ops.where(ops.equal(high, low), ops.ones_like(high), high - low)
    scale = extent / 255.0
    zero = ops.round(ops.clip(-low / scale, 0.0, 255.0))
    scaled = apply(call, ops.divide, x, Value(scale))
    zero = ops.cast(zero, "uint8")
    return _rounded(call, scaled, Value(zero), "uint8"), Value(scale), Value(zero)


# --- products -------------------------------------------------------------------------


def _rows(parameter: Value | None) -> Value | None:
    """Reshape a scale or zero point per row to broadcast to matrices."""
    if parameter is None or parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return _with_shape(parameter, (*parameter.shape, 1))


def integer_product(
    call: Call, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None
) -> Value:
    """Return the exact product of integer matrices, in a floating dtype."""
    dtype = _exact_dtype(a.shape[-1] if a.ndim else 1)
    first = _shifted(call, a, _rows(a_zero), dtype)
    return matmul(call, first, _shifted(call, b, b_zero, dtype))


def _matmul_integer(
    call: Call, a: Value, b: Value, a_zero: Any = None, b_zero: Any = None
) -> Value:
    return cast(call, integer_product(call, a, a_zero, b, b_zero), "int32")


def _linear_matmul(
    call: Call,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    _check_type("a zero point", a, a_zero)
    _check_type("a zero point", b, b_zero)
    rows = _rows(a_scale)
    assert rows is not None
    factor = apply(call, lambda p, q, r: p * q / r, rows, b_scale, y_scale)
    product = integer_product(call, a, a_zero, b, b_zero)
    return rescale(call, product, factor, y_zero, y_zero.dtype)


def rescale(
    call: Call, x: Value, factor: Value, zero: Value | None, dtype: str
) -> Value:
    """Multiply exact sums by a factor; return integers around a zero point."""
    x, factor = cast(call, x, "float32"), cast(call, factor, "float32")
    if zero is not None and zero.size == 1:
        zero = _with_shape(zero, ())
    return _rounded(call, apply(call, ops.multiply, x, factor), zero, dtype)


def _convolution(
    call: Call, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None
) -> Value:
    dtype = _exact_dtype(w.size // max(w.shape[0], 1) if w.ndim else 1)
    if x_zero is not None:
        x_zero = _broadcast_parameter(x_zero, x, 1)
    if w_zero is not None:
        w_zero = _broadcast_parameter(w_zero, w, 0)
    x, w = _shifted(call, x, x_zero, dtype), _shifted(call, w, w_zero, dtype)
    return convolve(call, x, w)


def _conv_integer(
    call: Call, x: Value, w: Value, x_zero: Any = None, w_zero: Any = None
) -> Value:
    return cast(call, _convolution(call, x, x_zero, w, w_zero), "int32")


def _linear_conv(
    call: Call,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
) -> Value:
    _check_type("a zero point", x, x_zero)
    _check_type("a zero point", w, w_zero)
    y = _convolution(call, x, x_zero, w, w_zero)
    if bias is not None:
        y = apply(
            call, ops.add, y, cast(call, _broadcast_parameter(bias, y, 1), y.dtype)
        )
    scales = [
        _broadcast_parameter(scale, y, 1) for scale in (x_scale, w_scale, y_scale)
    ]
    factor = apply(call, lambda p, q, r: p * q / r, *scales)
    return rescale(call, y, factor, y_zero, y_zero.dtype)


OPERATORS = (
    Operator("QuantizeLinear", _quantize),
    Operator("DequantizeLinear", _dequantize),
    Operator("DynamicQuantizeLinear", dynamic_quantize),
    Operator("MatMulInteger", _matmul_integer),
    Operator("QLinearMatMul", _linear_matmul),
    Operator("ConvInteger", _conv_integer),
    Operator("QLinearConv", _linear_conv),
)
