"""Operators of ONNX Runtime's quantizer, in the domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.operators.elementwise import apply, cast, leaky_relu
from toolkit.models.importing.operators.pooling import average_pool
from toolkit.models.importing.operators.quantized import (
    OPERATORS as ROWS,
    dequantize,
    dynamic_quantize,
    integer_product,
    quantize,
    rescale,
)
from toolkit.models.importing.operators.reductions import mean_over
from toolkit.models.importing.values import Value

DOMAIN = "com.microsoft"
_Optional = Value | None  # a trailing input


def _arguments(inputs: tuple[Any, ...], names: str) -> list[Any]:
    """Return inputs, with None for omitted ones.

    Args:
        inputs: inputs of the node, after the common ones.
        names: names of all inputs; a name with "?" at the end is optional.
    """
    names_list = names.split()
    arguments = [*inputs, *[None] * (len(names_list) - len(inputs))]
    if len(arguments) > len(names_list):
        raise ModelFileError(
            f"expected at most {len(names_list)} inputs, {names}; received "
            f"{len(arguments)}"
        )
    for name, value in zip(names_list, arguments, strict=True):
        if value is None and not name.endswith("?"):
            raise ModelFileError(f"the input {name!r} is required, but it is missing")
    return arguments


def _as_integers(call: Call, y: Value, scale: Value, zero: Any, dtype: str) -> Value:
    """Return integers in the dtype of the zero point, or in `dtype` without one."""
    return quantize(call, y, scale, zero, dtype if zero is None else zero.dtype)


def _binary(name: str, function: Callable[..., Any]) -> Operator:
    def run(call: Call, a: Value, a_scale: Value, *operands: Any) -> Value:
        a_zero, b, b_scale, b_zero, y_scale, y_zero = _arguments(
            operands, "a_zero? b b_scale b_zero? y_scale y_zero?"
        )
        x = dequantize(call, a, a_scale, a_zero)
        y = apply(call, function, x, dequantize(call, b, b_scale, b_zero))
        return _as_integers(call, y, y_scale, y_zero, a.dtype)

    return _operator(name, run)


def _unary(name: str, function: Callable[[Call, Value], Value]) -> Operator:
    def run(call: Call, x: Value, x_scale: Value, *operands: Any) -> Value:
        x_zero, y_scale, y_zero = _arguments(operands, "x_zero? y_scale y_zero?")
        y = function(call, dequantize(call, x, x_scale, x_zero))
        return _as_integers(call, y, y_scale, y_zero, x.dtype)

    return _operator(name, run)


def _operator(name: str, function: Callable[..., Any]) -> Operator:
    return Operator(f"{DOMAIN}.{name}", function)


def _sigmoid(call: Call, x: Value) -> Value:
    return apply(call, ops.sigmoid, x)


def _leaky(call: Call, x: Value) -> Value:
    alpha = float(call.number("alpha", 0.01))
    return apply(call, lambda t: leaky_relu(t, alpha), x)


def _check_layout(call: Call) -> None:
    if call.integer("channels_last", 0):
        raise UnsupportedError("expected channels_last=0; received 1")


def _average(call: Call, x: Value) -> Value:
    _check_layout(call)
    return average_pool(call, x)


def _global_average(call: Call, x: Value) -> Value:
    _check_layout(call)
    return mean_over(x, tuple(range(2, x.ndim)), True)


def _mean(call: Call, x: Value) -> Value:
    axes = call.integers("axes", tuple(range(x.ndim)))
    which = tuple(axis_of(axis, x.ndim) for axis in axes)
    return mean_over(x, which, bool(call.integer("keepdims", 1)))


def _softmax(call: Call, x: Value) -> Value:
    opset, axis = call.integer("opset", 13), axis_of(call.integer("axis", -1), x.ndim)
    if opset < 13 and axis != x.ndim - 1:
        raise UnsupportedError(f"unsupported softmax of opset {opset} over axis {axis}")
    return Value(ops.softmax(x.tensor, axis=axis))


def _concat(call: Call, y_scale: Value, *operands: Any) -> Value:
    y_zero, *triples = operands
    if not triples or len(triples) % 3:
        raise ModelFileError(
            f"expected three inputs for each value; received {len(triples)}"
        )
    axis = axis_of(call.integer("axis"), triples[0].ndim)
    values = [dequantize(call, *triples[i : i + 3]) for i in range(0, len(triples), 3)]
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    call.allow(shape, "float32")
    y = Value(ops.concatenate([value.tensor for value in values], axis=axis))
    return _as_integers(call, y, y_scale, y_zero, triples[0].dtype)


def _gemm(call: Call, a: Value, a_scale: Value, *operands: Any) -> Value:
    a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = _arguments(
        operands, "a_zero? b b_scale b_zero? bias? y_scale? y_zero?"
    )
    alpha = float(call.number("alpha", 1.0))
    a = a.permuted((1, 0)) if call.integer("transA", 0) else a
    b = b.permuted((1, 0)) if call.integer("transB", 0) else b
    y = integer_product(call, a, a_zero, b, b_zero)
    if bias is not None:
        y = apply(call, ops.add, y, cast(call, bias, y.dtype))
    factor = apply(call, lambda p, q: p * q * alpha, a_scale, b_scale)
    if y_scale is None:
        return apply(call, ops.multiply, cast(call, y, "float32"), factor)
    factor = apply(call, ops.divide, factor, y_scale)
    return rescale(call, y, factor, y_zero, y_zero.dtype if y_zero else a.dtype)


def _product_of_integers(
    call: Call,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: _Optional = None,
    b_zero: _Optional = None,
    bias: _Optional = None,
) -> Value:
    factor = apply(call, ops.multiply, a_scale, b_scale)
    product = cast(call, integer_product(call, a, a_zero, b, b_zero), "float32")
    y = apply(call, ops.multiply, product, factor)
    return y if bias is None else apply(call, ops.add, y, bias)


def _dynamic_product(
    call: Call,
    x: Value,
    b: Value,
    b_scale: Value,
    b_zero: _Optional = None,
    bias: _Optional = None,
) -> Value:
    a, scale, zero = dynamic_quantize(call, x)
    return _product_of_integers(call, a, b, scale, b_scale, zero, b_zero, bias)


# They have the semantics of ONNX's operators of these names.
_SAME = {"QuantizeLinear", "DequantizeLinear"}

OPERATORS = (
    *(_operator(row.name, row.function) for row in ROWS if row.name in _SAME),
    _binary("QLinearAdd", ops.add),
    _binary("QLinearMul", ops.multiply),
    _unary("QLinearSigmoid", _sigmoid),
    _unary("QLinearLeakyRelu", _leaky),
    _unary("QLinearAveragePool", _average),
    _unary("QLinearGlobalAveragePool", _global_average),
    _unary("QLinearReduceMean", _mean),
    _unary("QLinearSoftmax", _softmax),
    _operator("QLinearConcat", _concat),
    _operator("QGemm", _gemm),
    _operator("MatMulIntegerToFloat", _product_of_integers),
    _operator("DynamicQuantizeMatMul", _dynamic_product),
)
