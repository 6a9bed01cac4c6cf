"""CUDA C++ implementation of the scalar operations of elementwise primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.definitions.records import record
from toolkit.ir.scalars import SCALARS, Scalar

_COMPARE = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<="}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_INTEGERS = {
    "floor_divide": "quotient",
    "remainder": "modulo",
    "gcd": "common_divisor",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
}
# The names that `__getattr__` resolves in addition to functions.
_NAMES = {*_COMPARE, *_ARITHMETIC, *_INTEGERS}
_NAMES |= {f"{prefix}_{kind}" for prefix in ("logical", "bitwise") for kind in _BITWISE}


@record
class Value:
    """Expression without side effects, with its dtype."""

    text: str
    dtype: str

    @property
    def is_float(self) -> bool:
        return dtypes.is_float(self.dtype)

    @property
    def ctype(self) -> str:
        return COMPUTED[self.dtype]


class SourceWriter:
    """Writer of indented lines of C and of unique names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth: int = 1
        self.count: int = 0

    def __call__(self, *lines: str) -> None:
        self.lines += ["  " * self.depth + line for line in lines]

    def name(self) -> str:
        """Return a unique name."""
        self.count += 1
        return f"v{self.count}"

    def let(self, dtype: str, text: str) -> Value:
        """Define a constant with the value of an expression."""
        name = self.name()
        self(f"const {COMPUTED[dtype]} {name} = {text};")
        return Value(name, dtype)

    @contextmanager
    def block(self, *heads: str) -> Iterator[None]:
        """Open a block; the last head starts it."""
        self(*heads[:-1], f"{heads[-1]} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self("}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def split(
    w: SourceWriter, index: str, extents: Sequence[int], prefix: str, number: str
) -> list[str]:
    """Return the names of the loop indices that a flat index decomposes into."""
    if len(extents) <= 1:
        return [index] * len(extents)
    names = [f"{prefix}{k}" for k in range(len(extents))]
    for k in reversed(range(len(extents))):
        step = prod(extents[k + 1 :])
        text = index if step == 1 else f"{index} / {step}"
        text = f"({text}) % {extents[k]}" if k else text
        w(f"const {number} {names[k]} = {text};")
    return names


def literal(number: Any, dtype: str) -> str:
    """Return a number of a dtype as a bit-exact expression."""
    if dtype == "bool":
        return "true" if number else "false"
    if not dtypes.is_float(dtype):
        number, ctype = int(number), COMPUTED[dtype]
        if dtype == "uint64":
            return f"{number}ull"
        # C has no negative literals, so the smallest number has none.
        text = f"{number}ll" if number > -(2**63) else f"(-{2**63 - 1}ll - 1)"
        return f"(({ctype}){text})"
    is_double = dtype == "float64"
    value = float(number) if is_double else float(np.float32(number))
    if np.isfinite(value):
        return f"{value.hex()}{'' if is_double else 'f'}"
    if is_double:
        bits = np.float64(value).view(np.int64)
        return f"__longlong_as_double({int(bits)}ll)"
    return f"__int_as_float({int(np.float32(value).view(np.int32))})"


class CUDAScalars:
    """Writer of each scalar operation; arguments and results are Values."""

    # Attributes that `__getattr__` resolves and that other methods use.
    equal: Callable[[Value, Value], Value]
    less: Callable[[Value, Value], Value]
    subtract: Callable[[Value, Value], Value]

    def __init__(self, writer: SourceWriter) -> None:
        self.let = writer.let

    @classmethod
    def has(cls, name: str) -> bool:
        """Return whether an operation exists."""
        return hasattr(cls, name) or name in _NAMES or bool(SCALARS[name].cuda)

    def const(self, number: Any, like: Value) -> Value:
        """Return a number in the dtype of another value."""
        return Value(literal(number, like.dtype), like.dtype)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Return a where the condition is true, else b."""
        return self.let(a.dtype, f"{condition.text} ? {a.text} : {b.text}")

    def cast(self, x: Value, dtype: str) -> Value:
        """Return x in another dtype; truncate floats, round to 16-bit floats."""
        if x.dtype == dtype:
            return x
        if dtype == "bool":
            return self.let(dtype, f"{x.text} != 0")
        text = f"({COMPUTED[dtype]}){x.text}"
        if dtype in ("float16", "bfloat16"):
            half = "f16" if dtype == "float16" else "bf16"
            text = f"widen(Narrow<{half}>::of({text}))"
        elif x.is_float and not dtypes.is_float(dtype):
            # Via a type that holds all values of this dtype, as NumPy does.
            wide = {"int64": "i64", "uint32": "i64", "uint64": "u64"}.get(dtype, "int")
            text = f"({COMPUTED[dtype]})({wide}){x.text}"
        return self.let(dtype, text)

    def reinterpret(self, x: Value, dtype: str) -> Value:
        """Return the bits of x as a number of another dtype of the same size."""
        text = f"Narrow<{STORED[x.dtype]}>::of({x.text})"
        return self.let(dtype, f"widen(reinterpret<{STORED[dtype]}>({text}))")

    def saturate(self, x: Value, dtype: str, offset: int, bits: int) -> Value:
        """Return x + offset, rounded and clamped to 2 ** bits integers; NaN gives 0."""
        x = self.let(x.dtype, f"{x.text} + {literal(offset, x.dtype)}")
        limits = 0, 2**bits - 1
        low, high = (literal(n, x.dtype) for n in limits)
        suffix = "" if x.dtype == "float64" else "f"
        near = f"fmin{suffix}(fmax{suffix}({x.text}, {low}), {high})"
        return self.let(dtype, f"({COMPUTED[dtype]})(int)rint{suffix}({near})")

    def negative(self, x: Value) -> Value:
        """Return -x."""
        if x.is_float:
            return self.let(x.dtype, f"-{x.text}")
        return self.subtract(self.const(0, x), x)

    def abs(self, x: Value) -> Value:
        """Return |x|."""
        if x.is_float:
            return self._call("fabs", x)
        if x.dtype == "bool" or x.dtype.startswith("u"):
            return x
        return self.maximum(x, self.negative(x))

    def sign(self, x: Value) -> Value:
        """Return -1, 0 or 1; NaN stays NaN."""
        zero = self.const(0, x)
        up = self.select(self.less(zero, x), self.const(1, x), x)
        return self.select(self.less(x, zero), self.const(-1, x), up)

    def divide(self, a: Value, b: Value) -> Value:
        """Return a / b, for floats."""
        return self.let(a.dtype, f"{a.text} / {b.text}")

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the larger value; NaN if either is NaN."""
        return self._limit(f"{a.text} > {b.text}", a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        """Return the smaller value; NaN if either is NaN."""
        return self._limit(f"{a.text} < {b.text}", a, b)

    def _limit(self, first: str, a: Value, b: Value) -> Value:
        nan = f" || {a.text} != {a.text}" if a.is_float else ""
        return self.select(Value(f"({first}{nan})", "bool"), a, b)

    def isnan(self, x: Value) -> Value:
        """Return whether x is NaN."""
        return self.let("bool", f"{x.text} != {x.text}")

    def isinf(self, x: Value) -> Value:
        """Return whether x is infinite."""
        if not x.is_float:
            return Value("false", "bool")
        return self.equal(self.abs(x), self.const(float("inf"), x))

    def isfinite(self, x: Value) -> Value:
        """Return whether x is finite."""
        if not x.is_float:
            return Value("true", "bool")
        return self.less(self.abs(x), self.const(float("inf"), x))

    def logical_not(self, x: Value) -> Value:
        """Return not x."""
        return self.let("bool", f"!{x.text}")

    def _logical(self, sign: str, a: Value, b: Value) -> Value:
        a, b = (self.cast(x, "bool") for x in (a, b))
        return self.let("bool", f"{a.text} {sign} {b.text}")

    def bitwise_not(self, x: Value) -> Value:
        """Return the bitwise complement."""
        return self.let(x.dtype, f"{'!' if x.dtype == 'bool' else '~'}{x.text}")

    def _call(self, name: str, *xs: Value) -> Value:
        suffix = "" if xs[0].dtype == "float64" else "f"
        arguments = ", ".join(x.text for x in xs)
        return self.let(xs[0].dtype, f"{name}{suffix}({arguments})")

    def _arithmetic(self, sign: str, a: Value, b: Value) -> Value:
        if a.dtype == "bool":
            return self.let("bool", f"{a.text} {'|' if sign == '+' else '&'} {b.text}")
        if a.is_float:
            return self.let(a.dtype, f"{a.text} {sign} {b.text}")
        # Integers wrap around; C guarantees this for unsigned types only.
        unsigned = "u64" if dtypes.itemsize(a.dtype) == 8 else "unsigned"
        return self.let(
            a.dtype, f"({a.ctype})(({unsigned}){a.text} {sign} ({unsigned}){b.text})"
        )

    def _helper(self, name: str, xs: Sequence[Value]) -> Value:
        """Return a call of a prelude function, with operands of one type."""
        arguments = ", ".join(f"({xs[0].ctype}){x.text}" for x in xs)
        return self.let(xs[0].dtype, f"{name}({arguments})")

    def __getattr__(self, name: str) -> Any:
        if name in _ARITHMETIC:
            return lambda a, b: self._arithmetic(_ARITHMETIC[name], a, b)
        if name in _COMPARE:
            sign = _COMPARE[name]
            return lambda a, b: self.let("bool", f"{a.text} {sign} {b.text}")
        prefix, _, kind = name.partition("_")
        if prefix == "logical" and kind in _BITWISE:
            return lambda a, b: self._logical(_BITWISE[kind], a, b)
        if prefix == "bitwise" and kind in _BITWISE:
            sign = _BITWISE[kind]
            return lambda a, b: self.let(a.dtype, f"{a.text} {sign} {b.text}")
        if name in _INTEGERS:
            return lambda *xs: self._helper(_INTEGERS[name], xs)
        if name in SCALARS and SCALARS[name].cuda:
            return lambda *xs: self._function(SCALARS[name], xs)
        raise AttributeError(f"unknown scalar function {name!r}")

    def _function(self, word: Scalar, xs: Sequence[Value]) -> Value:
        if xs[0].is_float:
            return self._call(word.cuda, *xs)
        return xs[0] if word.is_whole else self._helper(f"integer_{word.name}", xs)
