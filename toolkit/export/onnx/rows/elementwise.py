"""ONNX rules of elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolkit import dtypes
from toolkit.export.onnx.table import ELEMENTWISE, Row, direct, elementwise
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

# Computation dtypes: runtimes have few operators for narrow and unsigned integers.
WIDE = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
}

direct(
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
    *("less", "less_equal", "equal", "floor_divide", "remainder", "power"),
)


def widened(function: Row) -> Row:
    """Return a rule that computes in a dtype that runtimes support."""

    def row(write: Writer, node: Node, *names: str) -> str:
        dtype, result = node.inputs[-1].spec.dtype, node.outputs[0].spec.dtype
        wide = WIDE.get(dtype)
        if wide is None:
            return function(write, node, *names)
        name = function(write, node, *(write.cast(x, wide) for x in names))
        return name if result == "bool" else write.cast(name, result)

    return row


def _is_float(node: Node) -> bool:
    return node.inputs[-1].spec.dtype in dtypes.INEXACT


def _number(write: Writer, node: Node, number: float) -> str:
    """Return a number in the computation dtype of a node."""
    dtype = node.inputs[-1].spec.dtype
    return write.scalar(number, WIDE.get(dtype, dtype))


# --- rounding -------------------------------------------------------------------------


def _rounding(operator: str) -> Row:
    def row(write: Writer, node: Node, x: str) -> str:
        return write.node(operator if _is_float(node) else "Identity", [x])

    return row


for _name, _operator in (("floor", "Floor"), ("ceil", "Ceil"), ("round", "Round")):
    ELEMENTWISE[_name] = _rounding(_operator)


@elementwise("trunc")
def _trunc(write: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return write.node("Identity", [x])
    size = write.node("Floor", [write.node("Abs", [x])])
    return write.node("Mul", [write.node("Sign", [x]), size])


@elementwise("quantize")
def _quantize(write: Writer, node: Node, x: str, scale: str) -> str:
    offset, last = node.attrs["offset"], (1 << node.attrs["bits"]) - 1
    y = write.node("Mul", [x, scale])
    if offset:
        y = write.node("Add", [y, _number(write, node, offset)])
    limits = [_number(write, node, limit) for limit in (0, last)]
    y = write.node("Clip", [write.node("Round", [y]), *limits])
    return write.cast(y, "uint8")


# --- one input ------------------------------------------------------------------------


@elementwise("rsqrt")
def _rsqrt(write: Writer, node: Node, x: str) -> str:
    return write.node("Div", [_number(write, node, 1), write.node("Sqrt", [x])])


@elementwise("expm1")
def _expm1(write: Writer, node: Node, x: str) -> str:
    # tanh(x / 2) * (exp(x) + 1) is exp(x) - 1, without its cancellation near 0.
    half = write.node("Mul", [x, _number(write, node, 0.5)])
    above = write.node("Add", [write.node("Exp", [x]), _number(write, node, 1)])
    return write.node("Mul", [write.node("Tanh", [half]), above])


@elementwise("log1p")
def _log1p(write: Writer, node: Node, x: str) -> str:
    # log(u) * x / (u - 1) for the rounded u = 1 + x: the errors cancel.
    one = _number(write, node, 1)
    u = write.node("Add", [x, one])
    ratio = write.node("Div", [x, write.node("Sub", [u, one])])
    log = write.node("Log", [u])
    # If u = 1, or u is infinite, no correction is necessary.
    exact = write.node("Mul", [log, ratio])
    exact = _where(write, write.node("Equal", [u, x]), log, exact)
    return _where(write, write.node("Equal", [u, one]), x, exact)


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
def _erfinv(write: Writer, node: Node, x: str) -> str:
    """Write polynomials for float32, and additional Newton steps for float64."""

    def number(value: float) -> str:
        return _number(write, node, value)

    def apply(operator: str, *names: str) -> str:
        return write.node(operator, names)

    def polynomial(coefficients: Sequence[float], w: str) -> str:
        value, *rest = map(number, coefficients)
        for coefficient in rest:
            value = apply("Add", apply("Mul", value, w), coefficient)
        return value

    one = number(1)
    below = apply("Mul", apply("Sub", one, x), apply("Add", one, x))
    w = apply("Neg", apply("Log", below))
    near = polynomial(_ERFINV_NEAR, apply("Sub", w, number(2.5)))
    far = polynomial(_ERFINV_FAR, apply("Sub", apply("Sqrt", w), number(3)))
    factor = _where(write, apply("Less", w, number(5)), near, far)
    y = apply("Mul", x, factor)
    for _ in range(2 if node.inputs[0].spec.dtype == "float64" else 0):
        error = apply("Sub", apply("Erf", y), x)
        slope = apply("Exp", apply("Mul", y, y))
        step = apply("Mul", apply("Mul", error, slope), number(math.sqrt(math.pi) / 2))
        y = apply("Sub", y, step)
    is_end = apply("Equal", apply("Abs", x), one)
    return _where(write, is_end, apply("Mul", x, number(math.inf)), y)


@elementwise("isnan", "isinf")
def _is(write: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return write.node("Less", [x, x])
    return write.node("IsNaN" if node.op.name == "isnan" else "IsInf", [x])


@elementwise("isfinite")
def _isfinite(write: Writer, node: Node, x: str) -> str:
    if not _is_float(node):
        return write.node("Equal", [x, x])
    odd = write.node("Or", [write.node("IsNaN", [x]), write.node("IsInf", [x])])
    return write.node("Not", [odd])


@elementwise("cast")
def _cast(write: Writer, node: Node, x: str) -> str:
    return write.cast(x, node.attrs["dtype"])


# --- two inputs -----------------------------------------------------------------------


@elementwise("not_equal")
def _not_equal(write: Writer, node: Node, a: str, b: str) -> str:
    return write.node("Not", [widened(ELEMENTWISE["equal"])(write, node, a, b)])


def _divisor(write: Writer, node: Node, b: str) -> str:
    """Return an integer divisor with 1 for 0, because some runtimes crash on 0."""
    array = write.array(node.inputs[1])
    if array is not None and array.all():
        return b
    is_zero = write.node("Equal", [b, _number(write, node, 0)])
    return _where(write, is_zero, _number(write, node, 1), b)


def _zero_by_zero(write: Writer, node: Node, b: str, y: str) -> str:
    """Return an integer quotient, with 0 for division by zero."""
    array = write.array(node.inputs[1])
    if array is not None and array.all():
        return y
    zero = _number(write, node, 0)
    return _where(write, write.node("Equal", [b, zero]), zero, y)


@elementwise("floor_divide")
def _floor_divide(write: Writer, node: Node, a: str, b: str) -> str:
    if _is_float(node):
        # As in NumPy: the remainder is exact, so the difference is divided exactly.
        rest, other = _float_rest(write, node, a, b)
        whole = write.node("Div", [write.node("Sub", [a, rest]), b])
        whole = write.node("Round", [whole])
        low = write.node("Sub", [whole, _number(write, node, 1)])
        by_zero = write.node("Equal", [b, _number(write, node, 0)])
        quotient = _where(write, other, low, whole)
        return _where(write, by_zero, write.node("Div", [a, b]), quotient)
    divisor = _divisor(write, node, b)
    quotient = write.node("Div", [a, divisor])
    # ONNX truncates integer division: subtract one where this rounds up.
    rest = write.node("Sub", [a, write.node("Mul", [quotient, divisor])])
    zero = _number(write, node, 0)
    negative = [write.node("Less", [x, zero]) for x in (a, divisor)]
    uneven = write.node("Not", [write.node("Equal", [rest, zero])])
    up = write.node("And", [write.node("Xor", negative), uneven])
    low = write.node("Sub", [quotient, _number(write, node, 1)])
    return _zero_by_zero(write, node, b, _where(write, up, low, quotient))


@elementwise("remainder")
def _remainder(write: Writer, node: Node, a: str, b: str) -> str:
    if not _is_float(node):
        rest = write.node("Mod", [a, _divisor(write, node, b)])
        return _zero_by_zero(write, node, b, rest)
    rest, other = _float_rest(write, node, a, b)
    return _where(write, other, write.node("Add", [rest, b]), rest)


def _float_rest(write: Writer, node: Node, a: str, b: str) -> tuple[str, str]:
    """Return the remainder with the sign of a, and whether its sign differs from b."""
    zero = _number(write, node, 0)
    rest = write.node("Mod", [a, b], fmod=1)
    signs = [write.node("Less", [x, zero]) for x in (rest, b)]
    uneven = write.node("Not", [write.node("Equal", [rest, zero])])
    return rest, write.node("And", [write.node("Xor", signs), uneven])


@elementwise("power")
def _power(write: Writer, node: Node, a: str, b: str) -> str:
    return write.node("Pow", [a, b])


@elementwise("arctan2")
def _arctan2(write: Writer, node: Node, y: str, x: str) -> str:
    zero, one, pi = (_number(write, node, n) for n in (0, 1, math.pi))
    # The sign of the inverse detects minus zero.
    inverses = [write.node("Div", [one, v]) for v in (y, x)]
    below, left = (
        write.node("Or", [write.node("Less", [v, zero]) for v in pair])
        for pair in zip((y, x), inverses, strict=True)
    )
    # If one operand is infinite, finite values count as 0, and infinity as 1.
    odd = [write.node("IsInf", [v]) for v in (y, x)]
    beside = write.node("Or", odd)
    sides = []
    for v, is_odd in zip((y, x), odd, strict=True):
        size = write.node("Abs", [v])
        none = write.node("Mul", [size, zero])  # NaN stays NaN
        sides.append(_where(write, beside, _where(write, is_odd, one, none), size))
    height, width = sides
    flat = write.node("And", [write.node("Equal", [v, zero]) for v in (height, width)])
    width = _where(write, flat, one, width)
    angle = write.node("Atan", [write.node("Div", [height, width])])
    angle = _where(write, left, write.node("Sub", [pi, angle]), angle)
    # Use a product, because Where loses the sign of zeros in ONNX Runtime.
    sign = _where(write, below, _number(write, node, -1), one)
    return write.node("Mul", [angle, sign])


# --- truth values, and bits -----------------------------------------------------------


def _logical(operator: str) -> Row:
    def row(write: Writer, node: Node, *names: str) -> str:
        truths = [
            x if v.spec.dtype == "bool" else write.cast(x, "bool")
            for x, v in zip(names, node.inputs, strict=True)
        ]
        return write.node(operator, truths)

    return row


for _name, _operator in (
    *(("logical_and", "And"), ("logical_or", "Or")),
    *(("logical_xor", "Xor"), ("logical_not", "Not")),
):
    ELEMENTWISE[_name] = _logical(_operator)


def _bitwise(operator: str, of_truths: str) -> Row:
    def row(write: Writer, node: Node, *names: str) -> str:
        if node.inputs[0].spec.dtype == "bool":
            return write.node(of_truths, names)
        if write.opset < 18:
            raise write.refused(node, "operators on bits are in opset 18 and later")
        return write.node(operator, names)

    return row


for _name, _operator, _of_truths in (
    *(("bitwise_and", "BitwiseAnd", "And"), ("bitwise_or", "BitwiseOr", "Or")),
    *(("bitwise_xor", "BitwiseXor", "Xor"), ("bitwise_not", "BitwiseNot", "Not")),
):
    ELEMENTWISE[_name] = _bitwise(_operator, _of_truths)


@elementwise("left_shift")
def _left_shift(write: Writer, node: Node, a: str, b: str) -> str:
    return write.node("Mul", [a, write.node("Pow", [_number(write, node, 2), b])])


@elementwise("right_shift")
def _right_shift(write: Writer, node: Node, a: str, b: str) -> str:
    power = write.node("Pow", [_number(write, node, 2), b])
    rest = write.node("Mod", [a, power])  # with the sign of the power
    return write.node("Div", [write.node("Sub", [a, rest]), power])


# --- choices --------------------------------------------------------------------------

_CHOSEN = ("float32", "float64", "int32", "int64", "uint8")


def _where(write: Writer, condition: str, a: str, b: str) -> str:
    return write.node("Where", [condition, a, b])


@elementwise("where")
def _select(write: Writer, node: Node, condition: str, a: str, b: str) -> str:
    dtype = node.outputs[0].spec.dtype
    if node.inputs[0].spec.dtype != "bool":
        condition = write.cast(condition, "bool")
    if dtype in _CHOSEN:
        return _where(write, condition, a, b)
    wide = WIDE.get(dtype, "int32")
    chosen = _where(write, condition, write.cast(a, wide), write.cast(b, wide))
    return write.cast(chosen, dtype)


@elementwise("limit")
def _limit(write: Writer, node: Node, x: str) -> str:
    low, high = node.attrs["low"], node.attrs["high"]
    dtype = node.outputs[0].spec.dtype
    if low == 0 and high is None and dtype in ("float32", "float64"):
        return write.node("Relu", [x])
    wide = WIDE.get(dtype)
    x = x if wide is None else write.cast(x, wide)
    ends = ["" if n is None else write.scalar(n, wide or dtype) for n in (low, high)]
    name = write.node("Clip", [x, *ends] if ends[1] else [x, ends[0]])
    return name if wide is None else write.cast(name, dtype)


@elementwise("softplus")
def _softplus(write: Writer, node: Node, x: str) -> str:
    return write.node("Softplus", [x])


@elementwise("gelu")
def _gelu(write: Writer, node: Node, x: str) -> str:
    if write.opset >= 20:
        return write.node("Gelu", [x], approximate="tanh")
    cube = write.node(
        "Mul", [write.node("Mul", [x, x]), _number(write, node, 0.044715)]
    )
    inner = write.node("Mul", [x, write.node("Add", [cube, _number(write, node, 1)])])
    scaled = write.node("Mul", [inner, _number(write, node, math.sqrt(2 / math.pi))])
    above = write.node("Add", [write.node("Tanh", [scaled]), _number(write, node, 1)])
    half = write.node("Mul", [x, _number(write, node, 0.5)])
    return write.node("Mul", [half, above])


for _name in _WIDENED:
    ELEMENTWISE[_name] = widened(ELEMENTWISE[_name])
for _name in ("left_shift", "right_shift"):
    ELEMENTWISE[_name] = widened(ELEMENTWISE[_name])
