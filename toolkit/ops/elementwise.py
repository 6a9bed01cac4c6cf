"""Elementwise primitives, one row each, and their public functions.

A row contains the scalar rule, from which every backend generates code, and the
gradient. Rules use `g` for the incoming gradient, `y` for the result, `x` and so on for
the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from toolkit.core.convert import convert, floating, operands, tensors, to_float
from toolkit.core.tensor import Tensor, bind
from toolkit.dtypes import is_complex, real_type
from toolkit.errors import ArgumentError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ir.scalars import Rule
from toolkit.ops.checks import broadcast_shapes, known_values, stand_in, unknown_extent
from toolkit.ops.symbolic import operation


def elementwise(
    name: str,
    scalar: Rule,
    vjp: Any = None,
    result: str | Callable[[str], str] | None = None,
) -> Primitive:
    """Declare an elementwise primitive.

    Args:
        name: name of the primitive, and of its scalar function.
        scalar: the rule for one element, in the scalar vocabulary.
        vjp: as for every primitive.
        result: the dtype of the output, or a function of the last input's dtype.
    """

    def spec(*inputs: Spec) -> Spec:
        dtype = inputs[-1].dtype
        if result is not None:
            dtype = result(dtype) if callable(result) else result
        if len(inputs) == 1:
            return inputs[0].with_dtype(dtype)
        return Spec(broadcast_shapes(name, *(x.shape for x in inputs)), dtype)

    rules = {"vjp": vjp, "scalar": scalar, "axes": "...->..."}
    return primitive(name, Kind.ELEMENTWISE, spec, **rules)


class Unary(Protocol):
    """A public function of one input."""

    def __call__(self, x: Any) -> Tensor: ...


class Binary(Protocol):
    """A public function of two inputs, with dtype promotion."""

    def __call__(self, x1: Any, x2: Any) -> Tensor: ...


F = TypeVar("F", bound=Callable[..., Any])


# --- one input, floating --------------------------------------------------------------

exp_p: Primitive = elementwise("exp", lambda s, x: s.exp(x), lambda g, y, x: g * y)
expm1_p: Primitive = elementwise(
    "expm1", lambda s, x: s.expm1(x), lambda g, y, x: g * (y + 1)
)
log_p: Primitive = elementwise("log", lambda s, x: s.log(x), lambda g, y, x: g / x)
log1p_p: Primitive = elementwise(
    "log1p", lambda s, x: s.log1p(x), lambda g, y, x: g / (x + 1)
)
sqrt_p: Primitive = elementwise(
    "sqrt", lambda s, x: s.sqrt(x), lambda g, y, x: 0.5 * g / y
)
rsqrt_p: Primitive = elementwise(
    "rsqrt",
    lambda s, x: s.divide(s.const(1.0, x), s.sqrt(x)),
    lambda g, y, x: -0.5 * g * y / x,
)
sin_p: Primitive = elementwise("sin", lambda s, x: s.sin(x), lambda g, y, x: g * cos(x))
cos_p: Primitive = elementwise(
    "cos", lambda s, x: s.cos(x), lambda g, y, x: -g * sin(x)
)
tan_p: Primitive = elementwise(
    "tan", lambda s, x: s.tan(x), lambda g, y, x: g * (1 + y * y)
)
arcsin_p: Primitive = elementwise(
    "arcsin", lambda s, x: s.arcsin(x), lambda g, y, x: g * rsqrt(1 - x * x)
)
arccos_p: Primitive = elementwise(
    "arccos", lambda s, x: s.arccos(x), lambda g, y, x: -g * rsqrt(1 - x * x)
)
arctan_p: Primitive = elementwise(
    "arctan", lambda s, x: s.arctan(x), lambda g, y, x: g / (1 + x * x)
)
sinh_p: Primitive = elementwise(
    "sinh", lambda s, x: s.sinh(x), lambda g, y, x: g * cosh(x)
)
cosh_p: Primitive = elementwise(
    "cosh", lambda s, x: s.cosh(x), lambda g, y, x: g * sinh(x)
)
tanh_p: Primitive = elementwise(
    "tanh", lambda s, x: s.tanh(x), lambda g, y, x: g * (1 - y * y)
)
arcsinh_p: Primitive = elementwise(
    "arcsinh", lambda s, x: s.arcsinh(x), lambda g, y, x: g * rsqrt(x * x + 1)
)
arccosh_p: Primitive = elementwise(
    "arccosh",
    lambda s, x: s.arccosh(x),
    lambda g, y, x: g * rsqrt(x - 1) * rsqrt(x + 1),
)
arctanh_p: Primitive = elementwise(
    "arctanh", lambda s, x: s.arctanh(x), lambda g, y, x: g / (1 - x * x)
)
erf_p: Primitive = elementwise(
    "erf",
    lambda s, x: s.erf(x),
    lambda g, y, x: g * (2 / math.sqrt(math.pi)) * exp(-x * x),
)
erfinv_p: Primitive = elementwise(
    "erfinv",
    lambda s, x: s.erfinv(x),
    lambda g, y, x: g * (math.sqrt(math.pi) / 2) * exp(y * y),
)
sigmoid_p: Primitive = elementwise(
    "sigmoid", lambda s, x: s.sigmoid(x), lambda g, y, x: g * y * (1 - y)
)

# --- one input, any number ------------------------------------------------------------

negative_p: Primitive = elementwise(
    "negative", lambda s, x: s.negative(x), lambda g, y, x: -g
)
abs_p: Primitive = elementwise(
    "abs",
    lambda s, x: s.abs(x),
    lambda g, y, x: g * (y / where(y == 0, 1, x) if is_complex(x.dtype) else sign(x)),
    result=real_type,
)
sign_p: Primitive = elementwise("sign", lambda s, x: s.sign(x))
floor_p: Primitive = elementwise("floor", lambda s, x: s.floor(x))
ceil_p: Primitive = elementwise("ceil", lambda s, x: s.ceil(x))
round_p: Primitive = elementwise("round", lambda s, x: s.round(x))
trunc_p: Primitive = elementwise("trunc", lambda s, x: s.trunc(x))
stop_gradient_p: Primitive = elementwise("stop_gradient", lambda s, x: x)
isnan_p: Primitive = elementwise("isnan", lambda s, x: s.isnan(x), result="bool")
isinf_p: Primitive = elementwise("isinf", lambda s, x: s.isinf(x), result="bool")
isfinite_p: Primitive = elementwise(
    "isfinite", lambda s, x: s.isfinite(x), result="bool"
)
logical_not_p: Primitive = elementwise(
    "logical_not", lambda s, x: s.logical_not(x), result="bool"
)
bitwise_not_p: Primitive = elementwise("bitwise_not", lambda s, x: s.bitwise_not(x))


# --- two inputs -----------------------------------------------------------------------


def _share_of_ties(g: Tensor, y: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Return the gradient of the selected input; half for each if they are equal."""
    return where(equal(x, y), where(equal(other, y), 0.5 * g, g), zero_like(g))


def zero_like(g: Tensor) -> Tensor:
    """Return a zero that broadcasts with `g`."""
    return convert(0, g.dtype)


def _power_vjp_base(g: Tensor, y: Tensor, x: Tensor, p: Tensor) -> Tensor:
    # x ** (p - 1) is infinite at x = 0 for p < 1, but the derivative of x ** 0 is 0.
    return where(equal(p, 0), zero_like(g), g * p * power(x, p - 1))


def _power_vjp_exponent(g: Tensor, y: Tensor, x: Tensor, p: Tensor) -> Tensor:
    # y * log(x), with the limit 0 at x = 0, and no NaN from the branch that is not
    # selected.
    positive = greater(x, 0)
    return where(positive, g * y * log(where(positive, x, x * 0 + 1)), zero_like(g))


add_p: Primitive = elementwise(
    "add", lambda s, a, b: s.add(a, b), (lambda g, y, a, b: g, lambda g, y, a, b: g)
)
subtract_p: Primitive = elementwise(
    "subtract",
    lambda s, a, b: s.subtract(a, b),
    (lambda g, y, a, b: g, lambda g, y, a, b: -g),
)
multiply_p: Primitive = elementwise(
    "multiply",
    lambda s, a, b: s.multiply(a, b),
    (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
)
divide_p: Primitive = elementwise(
    "divide",
    lambda s, a, b: s.divide(a, b),
    (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b),
)
floor_divide_p: Primitive = elementwise(
    "floor_divide", lambda s, a, b: s.floor_divide(a, b)
)
remainder_p: Primitive = elementwise(
    "remainder",
    lambda s, a, b: s.remainder(a, b),
    (lambda g, y, a, b: g, lambda g, y, a, b: -g * floor(a / b)),
)
power_p: Primitive = elementwise(
    "power", lambda s, a, b: s.power(a, b), (_power_vjp_base, _power_vjp_exponent)
)
maximum_p: Primitive = elementwise(
    "maximum",
    lambda s, a, b: s.maximum(a, b),
    (
        lambda g, y, a, b: _share_of_ties(g, y, a, b),
        lambda g, y, a, b: _share_of_ties(g, y, b, a),
    ),
)
minimum_p: Primitive = elementwise(
    "minimum",
    lambda s, a, b: s.minimum(a, b),
    (
        lambda g, y, a, b: _share_of_ties(g, y, a, b),
        lambda g, y, a, b: _share_of_ties(g, y, b, a),
    ),
)
arctan2_p: Primitive = elementwise(
    "arctan2",
    lambda s, a, b: s.arctan2(a, b),
    (
        lambda g, y, a, b: g * b / (a * a + b * b),
        lambda g, y, a, b: -g * a / (a * a + b * b),
    ),
)
equal_p: Primitive = elementwise("equal", lambda s, a, b: s.equal(a, b), result="bool")
not_equal_p: Primitive = elementwise(
    "not_equal", lambda s, a, b: s.not_equal(a, b), result="bool"
)
less_p: Primitive = elementwise("less", lambda s, a, b: s.less(a, b), result="bool")
less_equal_p: Primitive = elementwise(
    "less_equal", lambda s, a, b: s.less_equal(a, b), result="bool"
)
logical_and_p: Primitive = elementwise(
    "logical_and", lambda s, a, b: s.logical_and(a, b), result="bool"
)
logical_or_p: Primitive = elementwise(
    "logical_or", lambda s, a, b: s.logical_or(a, b), result="bool"
)
logical_xor_p: Primitive = elementwise(
    "logical_xor", lambda s, a, b: s.logical_xor(a, b), result="bool"
)
bitwise_and_p: Primitive = elementwise(
    "bitwise_and", lambda s, a, b: s.bitwise_and(a, b)
)
bitwise_or_p: Primitive = elementwise("bitwise_or", lambda s, a, b: s.bitwise_or(a, b))
bitwise_xor_p: Primitive = elementwise(
    "bitwise_xor", lambda s, a, b: s.bitwise_xor(a, b)
)
left_shift_p: Primitive = elementwise("left_shift", lambda s, a, b: s.left_shift(a, b))
right_shift_p: Primitive = elementwise(
    "right_shift", lambda s, a, b: s.right_shift(a, b)
)

where_p: Primitive = elementwise(
    "where",
    lambda s, c, a, b: s.select(c, a, b),
    (
        None,
        lambda g, y, c, a, b: where(c, g, zero_like(g)),
        lambda g, y, c, a, b: where(c, zero_like(g), g),
    ),
)


# --- public functions -----------------------------------------------------------------


def _floating(record: Primitive, doc: str) -> Unary:
    """Return the public function of a primitive that computes in floating point."""

    def function(x: Any) -> Tensor:
        return bind(record, to_float(x))

    return published(function, record.name, doc)


def _numeric(record: Primitive, doc: str) -> Unary:
    """Return the public function of a primitive of one input of any dtype."""

    def function(x: Any) -> Tensor:
        return bind(record, convert(x))

    return published(function, record.name, doc)


def _binary(record: Primitive, doc: str) -> Binary:
    """Return the public function of a primitive with two promoted inputs."""

    def function(x1: Any, x2: Any) -> Tensor:
        (x1, x2), _ = operands(x1, x2)
        return bind(record, x1, x2)

    return published(function, record.name, doc)


def published(function: F, name: str, doc: str) -> F:
    """Set the name and the docstring of a public function."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return operation(function)


exp: Unary = _floating(exp_p, "Compute the exponential, elementwise.")
expm1: Unary = _floating(expm1_p, "Compute exp(x) - 1, elementwise, exact near 0.")
log: Unary = _floating(log_p, "Compute the natural logarithm, elementwise.")
log1p: Unary = _floating(log1p_p, "Compute log(1 + x), elementwise, exact near 0.")
sqrt: Unary = _floating(sqrt_p, "Compute the square root, elementwise.")
rsqrt: Unary = _floating(rsqrt_p, "Compute 1 / sqrt(x), elementwise.")
sin: Unary = _floating(sin_p, "Compute the sine of x in radians, elementwise.")
cos: Unary = _floating(cos_p, "Compute the cosine of x in radians, elementwise.")
tan: Unary = _floating(tan_p, "Compute the tangent of x in radians, elementwise.")
arcsin: Unary = _floating(arcsin_p, "Compute arcsin(x) in radians, elementwise.")
arccos: Unary = _floating(arccos_p, "Compute arccos(x) in radians, elementwise.")
arctan: Unary = _floating(arctan_p, "Compute arctan(x) in radians, elementwise.")
sinh: Unary = _floating(sinh_p, "Compute the hyperbolic sine, elementwise.")
cosh: Unary = _floating(cosh_p, "Compute the hyperbolic cosine, elementwise.")
tanh: Unary = _floating(tanh_p, "Compute the hyperbolic tangent, elementwise.")
arcsinh: Unary = _floating(arcsinh_p, "Compute arcsinh(x), the inverse of sinh.")
arccosh: Unary = _floating(arccosh_p, "Compute arccosh(x), the inverse of cosh.")
arctanh: Unary = _floating(arctanh_p, "Compute arctanh(x), the inverse of tanh.")
erf: Unary = _floating(erf_p, "Compute the error function, elementwise.")
erfinv: Unary = _floating(
    erfinv_p, "Compute the inverse of the error function on (-1, 1), elementwise."
)
sigmoid: Unary = _floating(sigmoid_p, "Compute 1 / (1 + exp(-x)), elementwise.")
floor: Unary = _floating(floor_p, "Return the largest integer <= x, elementwise.")
ceil: Unary = _floating(ceil_p, "Return the smallest integer >= x, elementwise.")
isnan: Unary = _numeric(isnan_p, "Return whether x is NaN, elementwise.")
isinf: Unary = _numeric(isinf_p, "Return whether x is infinite, elementwise.")
isfinite: Unary = _numeric(
    isfinite_p, "Return whether x is neither infinite nor NaN, elementwise."
)
bitwise_not: Unary = _numeric(bitwise_not_p, "Invert the bits of x, elementwise.")
bitwise_invert = bitwise_not

add: Binary = _binary(add_p, "Compute x1 + x2, elementwise.")
subtract: Binary = _binary(subtract_p, "Compute x1 - x2, elementwise.")
multiply: Binary = _binary(multiply_p, "Compute x1 * x2, elementwise.")
maximum: Binary = _binary(
    maximum_p, "Return the larger of x1 and x2, elementwise; NaN if either is NaN."
)
minimum: Binary = _binary(
    minimum_p, "Return the smaller of x1 and x2, elementwise; NaN if either is NaN."
)
equal: Binary = _binary(equal_p, "Compute x1 == x2, elementwise.")
not_equal: Binary = _binary(not_equal_p, "Compute x1 != x2, elementwise.")
less: Binary = _binary(less_p, "Compute x1 < x2, elementwise.")
less_equal: Binary = _binary(less_equal_p, "Compute x1 <= x2, elementwise.")


@operation
def sign(x: Any) -> Tensor:
    """Return -1, 0 or 1 by the sign of x, elementwise; booleans unchanged."""
    x = convert(x)
    return x if x.dtype == "bool" else bind(sign_p, x)


@operation
def power(x1: Any, x2: Any) -> Tensor:
    """Compute x1 ** x2, elementwise."""
    if isinstance(x2, (int, float)) and x2 == 2:
        (x1, _), _ = operands(x1, x2)
        return bind(multiply_p, x1, x1)
    (x1, x2), dtype = operands(x1, x2)
    if dtype == "bool":
        x1, x2 = convert(x1, "int32"), convert(x2, "int32")
    return bind(power_p, x1, x2)


@operation
def greater(x1: Any, x2: Any) -> Tensor:
    """Compute x1 > x2, elementwise."""
    (x1, x2), _ = operands(x1, x2)
    return bind(less_p, x2, x1)


@operation
def greater_equal(x1: Any, x2: Any) -> Tensor:
    """Compute x1 >= x2, elementwise."""
    (x1, x2), _ = operands(x1, x2)
    return bind(less_equal_p, x2, x1)


@operation
def divide(x1: Any, x2: Any) -> Tensor:
    """Compute x1 / x2, elementwise, in floating point."""
    return bind(divide_p, *floating(x1, x2))


true_divide = divide


@operation
def arctan2(x1: Any, x2: Any) -> Tensor:
    """Return the angle of the point (x2, x1) in radians, elementwise."""
    return bind(arctan2_p, *floating(*tensors(x1, x2)))


@operation
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Return x1 where the condition is true, x2 elsewhere; they broadcast.

    With only the condition: the indices where it is true, as `nonzero`.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ArgumentError(
            "where: `x1` and `x2` either both should be `None`, or neither"
        )
    (x1, x2), _ = operands(x1, x2)
    return bind(where_p, convert(condition, "bool"), x1, x2)


@operation
def nonzero(x: Any) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero, one int32 tensor per axis.

    Their number depends on the values, so this cannot be traced.
    """
    x = convert(x)
    extent = unknown_extent(x)
    if extent is not None:
        return tuple(stand_in((extent,), "int32") for _ in x.shape)
    values = known_values("nonzero", x, "use where(condition, x1, x2) instead")
    return tuple(
        convert(indices, "int32") for indices in np.nonzero(np.atleast_1d(values))
    )
