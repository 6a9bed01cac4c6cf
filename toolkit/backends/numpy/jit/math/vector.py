"""Operators for values of a builder, so that code reads like formulas.

A `Vector` is a `Value` with its builder. Operators and functions emit instructions. A
Python number becomes a constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record


@record
class Format:
    """The layout of a floating dtype: [sign | exponent + bias | mantissa]."""

    integer: str  # the dtype of the bits
    mantissa: int
    bias: int

    @property
    def shift(self) -> float:
        """A number: adding it to a small x leaves round(x) in the lowest bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "float32": Format("int32", 23, 127),
    "float64": Format("int64", 52, 1023),
}


@record(eq=False)
class Vector:
    """A value, of any number of lanes, with its builder."""

    builder: Builder
    value: Value

    @property
    def format(self) -> Format:
        """The format of a floating vector."""
        return FORMATS[self.value.dtype]

    def constant(self, number: float | Vector) -> Vector:
        """Return a number as a vector like this one."""
        if isinstance(number, Vector):
            return number
        return Vector(self.builder, self.builder.constant(number, self.value))

    def _binary(
        self, instruction: str, other: float | Vector, dtype: str = ""
    ) -> Vector:
        operand = self.constant(other).value
        result = self.builder.binary(instruction, self.value, operand, dtype)
        return Vector(self.builder, result)

    def _arithmetic(self, name: str, other: float | Vector) -> Vector:
        floating = self.value.dtype in FORMATS
        return self._binary(f"f{name}" if floating else name, other)

    def _compare(self, condition: str, other: float | Vector) -> Vector:
        """Compare floats (false if either is NaN) or signed integers."""
        floating = self.value.dtype in FORMATS
        if floating:
            return self._binary(f"fcmp o{condition}", other, "bool")
        sign = "" if condition == "eq" else "s"
        return self._binary(f"icmp {sign}{condition}", other, "bool")

    def __add__(self, other: float | Vector) -> Vector:
        return self._arithmetic("add", other)

    def __sub__(self, other: float | Vector) -> Vector:
        return self._arithmetic("sub", other)

    def __mul__(self, other: float | Vector) -> Vector:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: float | Vector) -> Vector:
        return self._arithmetic("div", other)

    def __rsub__(self, other: float) -> Vector:
        return self.constant(other) - self

    def __rtruediv__(self, other: float) -> Vector:
        return self.constant(other) / self

    def __neg__(self) -> Vector:
        value = self.value
        text = f"fneg {value.type} {value.text}"
        return Vector(self.builder, self.builder.let(text, value.dtype, value.lanes))

    def __and__(self, other: int | Vector) -> Vector:
        return self._binary("and", other)

    def __or__(self, other: int | Vector) -> Vector:
        return self._binary("or", other)

    def __xor__(self, other: int | Vector) -> Vector:
        return self._binary("xor", other)

    def __invert__(self) -> Vector:
        return self ^ (1 if self.value.dtype == "bool" else -1)

    def __lshift__(self, count: int) -> Vector:
        return self._binary("shl", count)

    def __rshift__(self, count: int) -> Vector:
        """Shift right logically."""
        return self._binary("lshr", count)

    def __lt__(self, other: float | Vector) -> Vector:
        return self._compare("lt", other)

    def __le__(self, other: float | Vector) -> Vector:
        return self._compare("le", other)

    def __gt__(self, other: float | Vector) -> Vector:
        return self._compare("gt", other)

    def equals(self, other: float | Vector) -> Vector:
        """Emit whether both are equal; == is not overloaded."""
        return self._compare("eq", other)

    def where(self, condition: Vector, other: float | Vector) -> Vector:
        """Select self where the condition holds, otherwise `other`."""
        operand = self.constant(other).value
        result = self.builder.select(condition.value, self.value, operand)
        return Vector(self.builder, result)

    def at_most(self, limit: float) -> Vector:
        """Return the smaller of self and a limit; NaN stays NaN."""
        return self.constant(limit).where(self > limit, self)

    def at_least(self, limit: float) -> Vector:
        """Return the larger of self and a limit; NaN stays NaN."""
        return self.constant(limit).where(self < limit, self)

    def intrinsic(self, name: str, *operands: float | Vector) -> Vector:
        """Emit `llvm.name` with self and other operands."""
        values = [self.constant(operand).value for operand in operands]
        return Vector(self.builder, self.builder.intrinsic(name, self.value, *values))

    def bits(self) -> Vector:
        """Return the bits of a floating vector as integers."""
        return self.convert("bitcast", self.format.integer)

    def convert(self, instruction: str, dtype: str) -> Vector:
        """Emit `instruction` to another dtype."""
        result = self.builder.convert(instruction, self.value, dtype)
        return Vector(self.builder, result)


def absolute(x: Vector) -> Vector:
    """Return |x|."""
    return x.intrinsic("fabs")


def copysign(x: Vector, sign: Vector) -> Vector:
    """Return |x| with the sign of another vector."""
    return x.intrinsic("copysign", sign)


def fma(x: Vector, y: float | Vector, z: float | Vector) -> Vector:
    """Return x * y + z, rounded once, or twice without an FMA instruction."""
    return x.intrinsic("fma", y, z)


def exact_fma(x: Vector, y: float | Vector, z: float | Vector) -> Vector:
    """Return x * y + z, rounded about once, also if the product cancels z."""
    if current().has_fma:
        return fma(x, y, z)
    y, z = x.constant(y), x.constant(z)
    product = x * y
    rounding_error = _product_error(x, y, product)
    # Add the rounding error of the sum (Knuth's two-sum).
    total = product + z
    back = total - product
    return total + ((product - (total - back)) + (z - back) + rounding_error)


def _product_error(x: Vector, y: Vector, product: Vector) -> Vector:
    """Return x * y - product, from halves with exact products (Dekker)."""
    (x_high, x_low), (y_high, y_low) = _split_halves(x), _split_halves(y)
    error = x_high * y_high - product
    error = (error + x_high * y_low + x_low * y_high) + x_low * y_low
    # If a number is too large to split, the product overflows or the other factor is 0.
    return error.where(error.equals(error), 0.0)


def _split_halves(x: Vector) -> tuple[Vector, Vector]:
    """Return two numbers of half the bits with the sum x."""
    scaled = x * (2.0 ** (x.format.mantissa // 2 + 1) + 1.0)
    high = scaled - (scaled - x)
    return high, x - high


def polynomial(x: Vector, coefficients: Sequence[float]) -> Vector:
    """Return coefficients[0] + x * (coefficients[1] + ...), for two or more."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def power_of_two(exponent: Vector, dtype: str) -> Vector:
    """Return 2 ** exponent for integers, if the result is a normal number.

    Only the lowest bits of the exponent are used, as far as they fit above the
    mantissa.
    """
    layout = FORMATS[dtype]
    return ((exponent + layout.bias) << layout.mantissa).convert("bitcast", dtype)
