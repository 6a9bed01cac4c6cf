"""ONNX rules of elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolkit import dtypes
from toolkit.export.onnx.table import ELEMENTWISE, Rule, elementwise, register_operators
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

# Computation dtypes: runtimes have few operators for narrow and unsigned integers.
WIDE = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
}

register_operators(
    {
        "exp": "Exp",
        "log": "Log",
        "sqrt": "Sqrt",
        "sin": "Sin",
        "cos": "Cos",
        "tan": "Tan",
        "arcsin": "Asin",
        "arccos": "Acos",
        "arctan": "Atan",
        "sinh": "Sinh",
        "cosh": "Cosh",
        "tanh": "Tanh",
        "arcsinh": "Asinh",
        "arccosh": "Acosh",
        "arctanh": "Atanh",
        "erf": "Erf",
        "sigmoid": "Sigmoid",
        "softplus": "Softplus",
        "stop_gradient": "Identity",
        "negative": "Neg",
        "abs": "Abs",
        "sign": "Sign",
        "add": "Add",
        "subtract": "Sub",
        "multiply": "Mul",
        "maximum": "Max",
        "minimum": "Min",
        "divide": "Div",
        "less": "Less",
        "less_equal": "LessOrEqual",
        "equal": "Equal",
    }
)
_WIDENED = (
    *("negative", "abs", "sign", "add", "subtract", "multiply", "maximum", "minimum"),
    *("less", "less_equal", "equal", "floor_divide", "remainder", "power", "gcd"),
)


def with_wide_dtype(function: Rule) -> Rule:
    """Return a rule that computes in a dtype that runtimes support."""

    def rule(writer: Writer, node: Node, *names: str) -> str:
        dtype, result = node.inputs[-1].spec.dtype, node.outputs[0].spec.dtype
        wide = WIDE.get(dtype)
        if wide is None:
            return function(writer, node, *names)
        name = function(writer, node, *(writer.cast(x, wide) for x in names))
        return name if result == "bool" else writer.cast(name, result)

    return rule


def _is_float(node: Node) -> bool:
    return node.inputs[-1].spec.dtype in dtypes.INEXACT


def _number(writer: Writer, node: Node, number: float) -> str:
    """Return a number in the computation dtype of a node."""
    dtype = node.inputs[-1].spec.dtype
    return writer.scalar(number, WIDE.get(dtype, dtype))


# --- rounding -------------------------------------------------------------------------


def _rounding(operator: str) -> Rule:
    def rule(writer: Writer, node: Node, x: str) -> str:
        return writer.node(operator if _is_float(node) else "Identity", [x])

    return rule


for _name, _operator in (("floor", "Floor"), ("ceil", "Ceil"), ("round", "Round")):
    ELEMENTWISE[_name] = _rounding(_operator)


@elementwise("trunc")
def _trunc(writer: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return writer.node("Identity", [x])
    size = writer.node("Floor", [writer.node("Abs", [x])])
    return writer.node("Mul", [writer.node("Sign", [x]), size])


@elementwise("quantize")
def _quantize(writer: Writer, node: Node, x: str, scale: str) -> str:
    offset, last = node.attrs["offset"], (1 << node.attrs["bits"]) - 1
    y = writer.node("Mul", [x, scale])
    if offset:
        y = writer.node("Add", [y, _number(writer, node, offset)])
    limits = [_number(writer, node, limit) for limit in (0, last)]
    y = writer.node("Clip", [writer.node("Round", [y]), *limits])
    return writer.cast(y, "uint8")


# --- one input ------------------------------------------------------------------------


@elementwise("cbrt")
def _cbrt(writer: Writer, node: Node, x: str) -> str:
    third = _number(writer, node, 1 / 3)
    size = writer.node("Pow", [writer.node("Abs", [x]), third])
    return writer.node("Mul", [writer.node("Sign", [x]), size])


@elementwise("rsqrt")
def _rsqrt(writer: Writer, node: Node, x: str) -> str:
    return writer.node("Div", [_number(writer, node, 1), writer.node("Sqrt", [x])])


@elementwise("exp2")
def _exp2(writer: Writer, node: Node, x: str) -> str:
    return writer.node("Pow", [_number(writer, node, 2), x])


@elementwise("expm1")
def _expm1(writer: Writer, node: Node, x: str) -> str:
    # tanh(x / 2) * (exp(x) + 1) is exp(x) - 1, without its cancellation near 0.
    half = writer.node("Mul", [x, _number(writer, node, 0.5)])
    above = writer.node("Add", [writer.node("Exp", [x]), _number(writer, node, 1)])
    return writer.node("Mul", [writer.node("Tanh", [half]), above])


@elementwise("log2")
def _log2(writer: Writer, node: Node, x: str) -> str:
    base = _number(writer, node, math.log(2))
    return writer.node("Div", [writer.node("Log", [x]), base])


@elementwise("log1p")
def _log1p(writer: Writer, node: Node, x: str) -> str:
    # log(u) * x / (u - 1) for the rounded u = 1 + x: the errors cancel.
    one = _number(writer, node, 1)
    u = writer.node("Add", [x, one])
    ratio = writer.node("Div", [x, writer.node("Sub", [u, one])])
    log = writer.node("Log", [u])
    # If u = 1, or u is infinite, no correction is necessary.
    exact = writer.node("Mul", [log, ratio])
    exact = _where(writer, writer.node("Equal", [u, x]), log, exact)
    return _where(writer, writer.node("Equal", [u, one]), x, exact)


# erfinv(x) = x * P(w - 2.5) for w = -log(1 - x**2) < 5, and x * Q(sqrt(w) - 3) beyond;
# highest powers first. M. Giles, "Approximating the erfinv function" (2010).
_ERFINV_NEAR = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06),
    *(0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_ERFINV_FAR = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844),
    *(0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


@elementwise("erfinv")
def _erfinv(writer: Writer, node: Node, x: str) -> str:
    """Write polynomials for float32, and additional Newton steps for float64."""

    def number(value: float) -> str:
        return _number(writer, node, value)

    def apply(operator: str, *names: str) -> str:
        return writer.node(operator, names)

    def polynomial(coefficients: Sequence[float], w: str) -> str:
        value, *remaining = map(number, coefficients)
        for coefficient in remaining:
            value = apply("Add", apply("Mul", value, w), coefficient)
        return value

    one = number(1)
    below = apply("Mul", apply("Sub", one, x), apply("Add", one, x))
    w = apply("Neg", apply("Log", below))
    near = polynomial(_ERFINV_NEAR, apply("Sub", w, number(2.5)))
    far = polynomial(_ERFINV_FAR, apply("Sub", apply("Sqrt", w), number(3)))
    factor = _where(writer, apply("Less", w, number(5)), near, far)
    y = apply("Mul", x, factor)
    for _ in range(2 if node.inputs[0].spec.dtype == "float64" else 0):
        error = apply("Sub", apply("Erf", y), x)
        slope = apply("Exp", apply("Mul", y, y))
        step = apply("Mul", apply("Mul", error, slope), number(math.sqrt(math.pi) / 2))
        y = apply("Sub", y, step)
    is_end = apply("Equal", apply("Abs", x), one)
    return _where(writer, is_end, apply("Mul", x, number(math.inf)), y)


@elementwise("isnan", "isinf")
def _is_nan_or_inf(writer: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return writer.node("Less", [x, x])
    return writer.node("IsNaN" if node.op.name == "isnan" else "IsInf", [x])


@elementwise("isfinite")
def _isfinite(writer: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return writer.node("Equal", [x, x])
    is_nonfinite = writer.node(
        "Or", [writer.node("IsNaN", [x]), writer.node("IsInf", [x])]
    )
    return writer.node("Not", [is_nonfinite])


@elementwise("cast")
def _cast(writer: Writer, node: Node, x: str) -> str:
    return writer.cast(x, node.attrs["dtype"])


# --- two inputs -----------------------------------------------------------------------


@elementwise("not_equal")
def _not_equal(writer: Writer, node: Node, a: str, b: str) -> str:
    return writer.node(
        "Not", [with_wide_dtype(ELEMENTWISE["equal"])(writer, node, a, b)]
    )


def _divisor(writer: Writer, node: Node, b: str) -> str:
    """Return an integer divisor with 1 for 0, because some runtimes crash on 0."""
    array = writer.array(node.inputs[1])
    if array is not None and array.all():
        return b
    is_zero = writer.node("Equal", [b, _number(writer, node, 0)])
    return _where(writer, is_zero, _number(writer, node, 1), b)


def _zero_for_zero_divisor(writer: Writer, node: Node, b: str, y: str) -> str:
    """Return an integer quotient, with 0 for division by zero."""
    array = writer.array(node.inputs[1])
    if array is not None and array.all():
        return y
    zero = _number(writer, node, 0)
    return _where(writer, writer.node("Equal", [b, zero]), zero, y)


@elementwise("floor_divide")
def _floor_divide(writer: Writer, node: Node, a: str, b: str) -> str:
    if _is_float(node):
        # As in NumPy: the remainder is exact, so the difference is divided exactly.
        remainder, signs_differ = _float_remainder(writer, node, a, b)
        rounded = writer.node("Div", [writer.node("Sub", [a, remainder]), b])
        rounded = writer.node("Round", [rounded])
        low = writer.node("Sub", [rounded, _number(writer, node, 1)])
        by_zero = writer.node("Equal", [b, _number(writer, node, 0)])
        quotient = _where(writer, signs_differ, low, rounded)
        return _where(writer, by_zero, writer.node("Div", [a, b]), quotient)
    divisor = _divisor(writer, node, b)
    quotient = writer.node("Div", [a, divisor])
    # ONNX truncates integer division: subtract one where this rounds up.
    remainder = writer.node("Sub", [a, writer.node("Mul", [quotient, divisor])])
    zero = _number(writer, node, 0)
    negative = [writer.node("Less", [x, zero]) for x in (a, divisor)]
    has_remainder = writer.node("Not", [writer.node("Equal", [remainder, zero])])
    rounds_up = writer.node("And", [writer.node("Xor", negative), has_remainder])
    low = writer.node("Sub", [quotient, _number(writer, node, 1)])
    return _zero_for_zero_divisor(
        writer, node, b, _where(writer, rounds_up, low, quotient)
    )


@elementwise("remainder")
def _remainder(writer: Writer, node: Node, a: str, b: str) -> str:
    if not _is_float(node):
        remainder = writer.node("Mod", [a, _divisor(writer, node, b)])
        return _zero_for_zero_divisor(writer, node, b, remainder)
    remainder, signs_differ = _float_remainder(writer, node, a, b)
    return _where(writer, signs_differ, writer.node("Add", [remainder, b]), remainder)


def _float_remainder(writer: Writer, node: Node, a: str, b: str) -> tuple[str, str]:
    """Return the remainder with the sign of a, and whether its sign differs from b."""
    zero = _number(writer, node, 0)
    remainder = writer.node("Mod", [a, b], fmod=1)
    signs = [writer.node("Less", [x, zero]) for x in (remainder, b)]
    has_remainder = writer.node("Not", [writer.node("Equal", [remainder, zero])])
    return remainder, writer.node("And", [writer.node("Xor", signs), has_remainder])


@elementwise("gcd")
def _gcd(writer: Writer, node: Node, a: str, b: str) -> str:
    dtype, zero = node.inputs[1].spec.dtype, _number(writer, node, 0)
    if not dtype.startswith("u"):
        a, b = (writer.node("Abs", [x]) for x in (a, b))
    # Euclid's algorithm takes at most a step for each power of the golden ratio.
    for _ in range(math.ceil(8 * dtypes.itemsize(dtype) * math.log(2, 1.618)) + 1):
        remainder = _remainder(writer, node, a, b)
        a, b = _where(writer, writer.node("Equal", [b, zero]), a, b), remainder
    return a


@elementwise("power")
def _power(writer: Writer, node: Node, a: str, b: str) -> str:
    return writer.node("Pow", [a, b])


@elementwise("arctan2")
def _arctan2(writer: Writer, node: Node, y: str, x: str) -> str:
    zero, one, pi = (_number(writer, node, n) for n in (0, 1, math.pi))
    # The sign of the inverse detects minus zero.
    inverses = [writer.node("Div", [one, v]) for v in (y, x)]
    y_is_negative, x_is_negative = (
        writer.node("Or", [writer.node("Less", [v, zero]) for v in pair])
        for pair in zip((y, x), inverses, strict=True)
    )
    # If one operand is infinite, finite values count as 0, and infinity as 1.
    infinities = [writer.node("IsInf", [v]) for v in (y, x)]
    any_infinite = writer.node("Or", infinities)
    sides = []
    for v, is_infinite in zip((y, x), infinities, strict=True):
        size = writer.node("Abs", [v])
        none = writer.node("Mul", [size, zero])  # NaN stays NaN
        sides.append(
            _where(writer, any_infinite, _where(writer, is_infinite, one, none), size)
        )
    height, width = sides
    both_zero = writer.node(
        "And", [writer.node("Equal", [v, zero]) for v in (height, width)]
    )
    width = _where(writer, both_zero, one, width)
    angle = writer.node("Atan", [writer.node("Div", [height, width])])
    angle = _where(writer, x_is_negative, writer.node("Sub", [pi, angle]), angle)
    # Use a product, because Where loses the sign of zeros in ONNX Runtime.
    sign = _where(writer, y_is_negative, _number(writer, node, -1), one)
    return writer.node("Mul", [angle, sign])


# --- truth values, and bits -----------------------------------------------------------


def _logical(operator: str) -> Rule:
    def rule(writer: Writer, node: Node, *names: str) -> str:
        booleans = [
            x if v.spec.dtype == "bool" else writer.cast(x, "bool")
            for x, v in zip(names, node.inputs, strict=True)
        ]
        return writer.node(operator, booleans)

    return rule


for _name, _operator in (
    *(("logical_and", "And"), ("logical_or", "Or")),
    *(("logical_xor", "Xor"), ("logical_not", "Not")),
):
    ELEMENTWISE[_name] = _logical(_operator)


def _bitwise(operator: str, boolean_operator: str) -> Rule:
    def rule(writer: Writer, node: Node, *names: str) -> str:
        if node.inputs[0].spec.dtype == "bool":
            return writer.node(boolean_operator, names)
        if writer.opset < 18:
            raise writer.unsupported_node(
                node, "bitwise operators need opset 18 or later"
            )
        return writer.node(operator, names)

    return rule


for _name, _operator, _boolean_operator in (
    *(("bitwise_and", "BitwiseAnd", "And"), ("bitwise_or", "BitwiseOr", "Or")),
    *(("bitwise_xor", "BitwiseXor", "Xor"), ("bitwise_not", "BitwiseNot", "Not")),
):
    ELEMENTWISE[_name] = _bitwise(_operator, _boolean_operator)


@elementwise("left_shift")
def _left_shift(writer: Writer, node: Node, a: str, b: str) -> str:
    return writer.node("Mul", [a, writer.node("Pow", [_number(writer, node, 2), b])])


@elementwise("right_shift")
def _right_shift(writer: Writer, node: Node, a: str, b: str) -> str:
    power = writer.node("Pow", [_number(writer, node, 2), b])
    remainder = writer.node("Mod", [a, power])  # with the sign of the power
    return writer.node("Div", [writer.node("Sub", [a, remainder]), power])


# --- choices --------------------------------------------------------------------------

_WHERE_DTYPES = ("float32", "float64", "int32", "int64", "uint8")


def _where(writer: Writer, condition: str, a: str, b: str) -> str:
    return writer.node("Where", [condition, a, b])


@elementwise("where")
def _select(writer: Writer, node: Node, condition: str, a: str, b: str) -> str:
    dtype = node.outputs[0].spec.dtype
    if node.inputs[0].spec.dtype != "bool":
        condition = writer.cast(condition, "bool")
    if dtype in _WHERE_DTYPES:
        return _where(writer, condition, a, b)
    wide = WIDE.get(dtype, "int32")
    selected = _where(writer, condition, writer.cast(a, wide), writer.cast(b, wide))
    return writer.cast(selected, dtype)


@elementwise("limit")
def _limit(writer: Writer, node: Node, x: str) -> str:
    low, high = node.attrs["low"], node.attrs["high"]
    dtype = node.outputs[0].spec.dtype
    if low == 0 and high is None and dtype in ("float32", "float64"):
        return writer.node("Relu", [x])
    wide = WIDE.get(dtype)
    x = x if wide is None else writer.cast(x, wide)
    ends = ["" if n is None else writer.scalar(n, wide or dtype) for n in (low, high)]
    name = writer.node("Clip", [x, *ends] if ends[1] else [x, ends[0]])
    return name if wide is None else writer.cast(name, dtype)


@elementwise("gelu")
def _gelu(writer: Writer, node: Node, x: str) -> str:
    if writer.opset >= 20:
        return writer.node("Gelu", [x], approximate="tanh")
    cube = writer.node(
        "Mul", [writer.node("Mul", [x, x]), _number(writer, node, 0.044715)]
    )
    inner = writer.node(
        "Mul", [x, writer.node("Add", [cube, _number(writer, node, 1)])]
    )
    scaled = writer.node("Mul", [inner, _number(writer, node, math.sqrt(2 / math.pi))])
    above = writer.node(
        "Add", [writer.node("Tanh", [scaled]), _number(writer, node, 1)]
    )
    half = writer.node("Mul", [x, _number(writer, node, 0.5)])
    return writer.node("Mul", [half, above])


for _name in _WIDENED:
    ELEMENTWISE[_name] = with_wide_dtype(ELEMENTWISE[_name])
for _name in ("left_shift", "right_shift"):
    ELEMENTWISE[_name] = with_wide_dtype(ELEMENTWISE[_name])
