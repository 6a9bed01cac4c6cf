"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toolkit import dtypes, ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.values import Value, common_order
from toolkit.quantizers.float8 import FORMATS
from toolkit.reading.onnx.tensors import dtype_of


def apply(call: Call, function: Callable[..., Any], *values: Value) -> Value:
    """Apply a function to values that broadcast, in the order that moves least data."""
    ndim = max(v.ndim for v in values)
    shape = broadcast(*(v.shape for v in values))
    call.allow(shape, values[0].dtype)
    order = common_order(values, ndim)
    result = function(*(v.aligned(order) for v in values))
    if tuple(result.shape) != tuple(shape[i] for i in order):  # scalars of some axes
        result = ops.broadcast_to(result, tuple(shape[i] for i in order))
    return Value(result, order)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape."""
    ndim = max(map(len, shapes))
    padded = [(*(1,) * (ndim - len(s)), *s) for s in shapes]
    extents_out = []
    for extents in zip(*padded, strict=True):
        operands = {n for n in extents if n != 1}
        if len(operands) > 1:
            raise ModelFileError(f"shapes {shapes} do not broadcast")
        extents_out.append(operands.pop() if operands else 1)
    return tuple(extents_out)


def _unary(name: str, function: Callable[[Tensor], Any]) -> Operator:
    def run(call: Call, x: Value) -> Value:
        return apply(call, function, x)

    return Operator(name, run)


def _binary(name: str, function: Callable[[Tensor, Tensor], Any]) -> Operator:
    def run(call: Call, x: Value, y: Value) -> Value:
        return apply(call, function, x, _placed(call, x, y))

    return Operator(name, run)


def _placed(call: Call, x: Value, y: Value) -> Value:
    """Align the second operand: up to opset 6, `axis` is its first axis."""
    if call.opset > 6:
        return y
    call.integer("broadcast", 0)
    axis = call.integer("axis", None)
    if axis is None:
        return y
    trailing = x.ndim - axis_of(axis, x.ndim) - y.ndim
    shape = (*y.shape, *(1,) * max(trailing, 0))
    return Value(ops.reshape(y.tensor, shape))


def _folded(name: str, function: Callable[[Tensor, Tensor], Any]) -> Operator:
    def run(call: Call, x: Value, *operands: Value) -> Value:
        for other in operands:
            x = apply(call, function, x, other)
        return x

    return Operator(name, run)


def _with_numbers(
    name: str, function: Callable[..., Any], **defaults: float
) -> Operator:
    """Return a function of a tensor whose numbers are attributes."""

    def run(call: Call, x: Value) -> Value:
        numbers = [float(call.number(key, n)) for key, n in defaults.items()]
        return apply(call, lambda t: function(t, *numbers), x)

    return Operator(name, run)


# --- formulas -------------------------------------------------------------------------


def _divide(x: Tensor, y: Tensor) -> Any:
    """Divide; integers round towards zero."""
    if dtypes.is_float(x.dtype):
        return ops.divide(x, y)
    if x.dtype.startswith("u"):
        return ops.floor_divide(x, y)
    # Add one where that is towards zero. The smallest integer has no absolute value.
    quotient = ops.floor_divide(x, y)
    uneven = ops.not_equal(quotient * y, x)
    below = ops.logical_and(ops.logical_xor(x < 0, y < 0), uneven)
    return quotient + ops.cast(below, x.dtype)


def _elu(x: Tensor, alpha: float) -> Tensor:
    return ops.where(x > 0, x, alpha * ops.expm1(ops.minimum(x, 0.0)))


def _selu(x: Tensor, alpha: float, gamma: float) -> Any:
    return gamma * _elu(x, alpha)


def _celu(x: Tensor, alpha: float) -> Any:
    negative = alpha * ops.expm1(ops.minimum(x, 0.0) / alpha)
    return ops.maximum(x, 0.0) + ops.minimum(negative, 0.0)


def _shrink(x: Tensor, bias: float, lambd: float) -> Tensor:
    return ops.where(x < -lambd, x + bias, ops.where(x > lambd, x - bias, x * 0))


def _hard_swish(x: Tensor) -> Any:
    return x * ops.clip(x * (1 / 6) + 0.5, 0.0, 1.0)


def _swish(x: Tensor, alpha: float) -> Any:
    return x * ops.sigmoid(x if alpha == 1 else alpha * x)


def _gelu(call: Call, x: Value) -> Value:
    approximate = call.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise ModelFileError(f"unsupported approximate={approximate!r}")
    return apply(call, lambda t: ops.gelu(t, approximate == "tanh"), x)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """Return x where it is not negative, else alpha * x."""
    return ops.where(x < 0, alpha * x, x)


def _clip(call: Call, x: Value, low: Any = None, high: Any = None) -> Value:
    numbers = call.number("min", None), call.number("max", None)
    result = x
    if low is not None:
        result = apply(call, ops.maximum, result, low)
    elif numbers[0] is not None:
        result = apply(call, lambda t: ops.maximum(t, numbers[0]), result)
    if high is not None:
        result = apply(call, ops.minimum, result, high)
    elif numbers[1] is not None:
        result = apply(call, lambda t: ops.minimum(t, numbers[1]), result)
    return result


def _power(call: Call, x: Value, y: Value) -> Value:
    if (
        y.static_array is not None
        and y.size == 1
        and float(y.static_array.reshape(())) == 2.0
    ):
        return apply(call, lambda a, b: a * a, x, y)
    y = _placed(call, x, y)
    return apply(call, lambda a, b: ops.cast(ops.power(a, b), a.dtype), x, y)


def _modulo(call: Call, x: Value, y: Value) -> Value:
    truncated = call.integer("fmod", 0)
    return apply(call, ops.fmod if truncated else ops.mod, x, y)


def _shift(call: Call, x: Value, y: Value) -> Value:
    direction = call.text("direction")
    shifts = {"LEFT": ops.left_shift, "RIGHT": ops.right_shift}
    if direction not in shifts:
        raise ModelFileError(f"expected LEFT or RIGHT; received {direction!r}")
    return apply(call, shifts[direction], x, y)


def _is_infinite(call: Call, x: Value) -> Value:
    negative = call.integer("detect_negative", 1)
    positive = call.integer("detect_positive", 1)

    def function(t: Tensor) -> Tensor:
        low = ops.equal(t, -math.inf) if negative else ops.zeros_like(t, "bool")
        high = ops.equal(t, math.inf) if positive else ops.zeros_like(t, "bool")
        return ops.logical_or(low, high)

    return apply(call, function, x)


def _mean(call: Call, x: Value, *operands: Value) -> Value:
    total = x
    for other in operands:
        total = apply(call, ops.add, total, other)
    return apply(call, lambda t: t * (1 / (1 + len(operands))), total)


def _where(call: Call, condition: Value, x: Value, y: Value) -> Value:
    call.allow(broadcast(condition.shape, x.shape, y.shape), x.dtype)
    return apply(call, ops.where, condition, x, y)


def _prelu(call: Call, x: Value, slope: Value) -> Value:
    if call.opset <= 6 and slope.ndim == 1 and slope.size > 1:  # one for each channel
        shape = (slope.size, *(1,) * (x.ndim - 2))
        slope = Value(ops.reshape(slope.tensor, shape))
    return apply(call, lambda t, s: ops.where(t < 0, s * t, t), x, slope)


def cast(call: Call, x: Value, dtype: str, saturates: bool = False) -> Value:
    """Cast the value to another dtype.

    Args:
        call: the node.
        x: the value.
        dtype: the dtype of the result.
        saturates: whether too large numbers saturate to the largest 8-bit float,
            instead of NaN or infinity.
    """

    def function(t: Tensor) -> Tensor:
        if saturates and dtype in FORMATS:
            largest = FORMATS[dtype].largest
            t = ops.clip(ops.cast(t, "float32"), -largest, largest)
        if dtype == "bool":
            return ops.not_equal(t, 0)
        return ops.cast(t, dtype)

    return x if x.dtype == dtype else apply(call, function, x)


def _cast(call: Call, x: Value) -> Value:
    saturates = bool(call.integer("saturate", 1))
    call.text("round_mode", "up")  # of an unsupported dtype
    return cast(call, x, dtype_of(call.integer("to"), "Cast"), saturates)


def _cast_like(call: Call, x: Value, like: Value) -> Value:
    saturates = bool(call.integer("saturate", 1))
    call.text("round_mode", "up")
    return cast(call, x, like.dtype, saturates)


def _bit_cast(call: Call, x: Value) -> Value:
    dtype = dtype_of(call.integer("to"), "BitCast")
    if dtypes.itemsize(dtype) != dtypes.itemsize(x.dtype):
        raise ModelFileError(f"{x.dtype} and {dtype} have elements of different sizes")
    return apply(call, lambda t: ops.view(t, dtype), x)


def _swiglu(call: Call, x: Value, gate: Value) -> Value:
    alpha = float(call.number("alpha", 1.0))
    if x.shape != gate.shape:
        raise ModelFileError(
            f"expected equal shapes; received {x.shape} and {gate.shape}"
        )
    return apply(call, lambda a, b: _swish(a, alpha) * b, x, gate)


def _identity(call: Call, x: Value) -> Value:
    return x


def _dropout(call: Call, x: Value, ratio: Any = None, training: Any = None) -> Any:
    """Return the inputs: an inference file drops nothing."""
    for name, read in (("ratio", call.number), ("seed", call.integer)):
        read(name, None)
    call.integer("is_test", 1)
    share = call.static_number(ratio, 0.5, "the ratio")
    if call.static_number(training, False, "training_mode") and share:
        raise UnsupportedError(
            "it drops elements at each call; expected a model that was exported for "
            "inference"
        )
    if not call.is_output_used(1):
        return x
    return x, apply(call, lambda t: ops.ones_like(t, "bool"), x)


OPERATORS = (
    *(
        _unary(name, function)
        for name, function in {
            "Abs": ops.abs,
            "Neg": ops.negative,
            "Sign": ops.sign,
            "Exp": ops.exp,
            "Log": ops.log,
            "Sqrt": ops.sqrt,
            "Reciprocal": ops.reciprocal,
            "Floor": ops.floor,
            "Ceil": ops.ceil,
            "Round": ops.round,
            "Sin": ops.sin,
            "Cos": ops.cos,
            "Tan": ops.tan,
            "Asin": ops.arcsin,
            "Acos": ops.arccos,
            "Atan": ops.arctan,
            "Sinh": ops.sinh,
            "Cosh": ops.cosh,
            "Tanh": ops.tanh,
            "Asinh": ops.arcsinh,
            "Acosh": ops.arccosh,
            "Atanh": ops.arctanh,
            "Erf": ops.erf,
            "Relu": ops.relu,
            "Sigmoid": ops.sigmoid,
            "Softplus": ops.softplus,
            "Softsign": ops.softsign,
            "HardSwish": _hard_swish,
            "Mish": lambda x: x * ops.tanh(ops.softplus(x)),
            "IsNaN": ops.isnan,
            "Not": ops.logical_not,
            "BitwiseNot": ops.bitwise_not,
        }.items()
    ),
    *(
        _binary(name, function)
        for name, function in {
            "Add": ops.add,
            "Sub": ops.subtract,
            "Mul": ops.multiply,
            "Div": _divide,
            "And": ops.logical_and,
            "Or": ops.logical_or,
            "Xor": ops.logical_xor,
            "Equal": ops.equal,
            "Less": ops.less,
            "Greater": ops.greater,
            "LessOrEqual": ops.less_equal,
            "GreaterOrEqual": ops.greater_equal,
            "BitwiseAnd": ops.bitwise_and,
            "BitwiseOr": ops.bitwise_or,
            "BitwiseXor": ops.bitwise_xor,
        }.items()
    ),
    *(
        _folded(name, function)
        for name, function in {
            "Sum": ops.add,
            "Max": ops.maximum,
            "Min": ops.minimum,
        }.items()
    ),
    _with_numbers("LeakyRelu", leaky_relu, alpha=0.01),
    _with_numbers("Elu", _elu, alpha=1.0),
    _with_numbers("Selu", _selu, alpha=1.67326319217681884765625, gamma=1.05070102214),
    _with_numbers("Celu", _celu, alpha=1.0),
    _with_numbers(
        *("HardSigmoid", lambda x, a, b: ops.clip(a * x + b, 0.0, 1.0)),
        alpha=0.2,
        beta=0.5,
    ),
    _with_numbers("ThresholdedRelu", lambda x, a: ops.where(x > a, x, x * 0), alpha=1),
    _with_numbers("Shrink", _shrink, bias=0.0, lambd=0.5),
    _with_numbers("Swish", _swish, alpha=1.0),
    Operator("Gelu", _gelu),
    Operator("Clip", _clip),
    Operator("Pow", _power),
    Operator("Mod", _modulo),
    Operator("BitShift", _shift),
    Operator("IsInf", _is_infinite),
    Operator("Mean", _mean),
    Operator("Where", _where),
    Operator("PRelu", _prelu),
    Operator("Cast", _cast),
    Operator("CastLike", _cast_like),
    Operator("BitCast", _bit_cast),
    Operator("SwiGLU", _swiglu),
    Operator("Identity", _identity),
    Operator("Dropout", _dropout, host=(1, 2)),
)
