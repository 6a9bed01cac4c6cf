"""The scalar operations of elementwise primitives as LLVM IR."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit import math
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.math import narrow
from toolkit.backends.numpy.jit.math.rounding import is_rounding, rounded
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir.scalars import SCALARS

_COMPARE = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
}
_ARITHMETIC = {"add": "add", "subtract": "sub", "multiply": "mul"}
_BOOL_ARITHMETIC = {"add": "or", "multiply": "and"}
_BITWISE = ("and", "or", "xor")
# Attributes of `LLVMScalars` that are not methods or functions.
_NAMES = {*_COMPARE, *_ARITHMETIC}
_NAMES |= {f"{prefix}_{kind}" for prefix in ("logical", "bitwise") for kind in _BITWISE}
# More uses of a function of floats in one kernel call a separate function. The time to
# compile is in proportion to the text: `zeta` raises 66 numbers to a power.
_MAX_INLINE_USES = 8
# A float literal of the builder: the bits of a double, and masks for its value.
_LITERAL = re.compile(r"\b0x([0-9A-F]{16})\b")
_SIGNLESS, _INFINITE = (1 << 63) - 1, 0x7FF << 52
# Operations that are undefined for bool, or differ from NumPy.
_UNSUPPORTED_FOR_BOOL = frozenset(("negative", "abs", "sign", "subtract"))


class LLVMScalars:
    """Emitter of scalar operations; arguments and results are Values."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        # How often the code of a function of floats was emitted, by name and type.
        self._uses: Counter[str] = Counter()

    @classmethod
    def has(cls, name: str, dtype: str) -> bool:
        """Return whether an operation supports operands of a dtype."""
        if name in math.INTEGERS and dtypes.is_integer(dtype):
            return True
        if name == "divide" or name in math.FLOATS:
            return dtypes.is_float(dtype)
        if name in math.INTEGERS:
            return False
        if SCALARS[name].llvm:
            return SCALARS[name].is_whole or dtypes.is_float(dtype)
        if name.startswith("bitwise_") and dtypes.is_float(dtype):
            return False
        is_known = hasattr(cls, name) or name in _NAMES
        return is_known and not (dtype == "bool" and name in _UNSUPPORTED_FOR_BOOL)

    def const(self, number: Any, like: Value) -> Value:
        """Return a number in the dtype of another value."""
        return self.b.constant(number, like)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Select a where the condition holds, otherwise b."""
        return self.b.select(condition, a, b)

    def cast(self, x: Value, dtype: str) -> Value:
        """Convert x to another dtype; float to integer truncates."""
        source = x.dtype
        if source == dtype:
            return x
        if narrow.converts(source, dtype):
            return narrow.convert(self.b, x, dtype)
        if dtype == "bool":
            return self._compare("not_equal", x, self.const(0, x))
        if dtypes.is_float(source) and dtypes.is_float(dtype):
            wider = dtypes.itemsize(dtype) > dtypes.itemsize(source)
            return self.b.convert("fpext" if wider else "fptrunc", x, dtype)
        if dtypes.is_float(source):
            return self._float_to_integer(x, dtype)
        if dtypes.is_float(dtype):
            signed = not _is_unsigned(source)
            return self.b.convert("sitofp" if signed else "uitofp", x, dtype)
        sizes = [0 if d == "bool" else dtypes.itemsize(d) for d in (source, dtype)]
        if sizes[0] == sizes[1]:
            return Value(x.text, dtype, x.lanes)
        if sizes[0] > sizes[1]:
            return self.b.convert("trunc", x, dtype)
        return self.b.convert("zext" if _is_unsigned(source) else "sext", x, dtype)

    def reinterpret(self, x: Value, dtype: str) -> Value:
        """Return the bits of x as a number of another dtype of the same size."""
        if dtypes.is_float(x.dtype) or dtypes.is_float(dtype):
            return self.b.convert("bitcast", x, dtype)
        return Value(x.text, dtype, x.lanes)

    def _float_to_integer(self, x: Value, dtype: str) -> Value:
        # Convert through a type that contains all values of this dtype. Most values
        # out of range then have the result of NumPy's cast on x86.
        if dtype == "uint64":
            limit = self.const(2.0**63, x)
            high = self.b.convert("fptosi", self.subtract(x, limit), "int64")
            high = self.b.binary("xor", high, self.const(-(2**63), high))
            low = self.b.convert("fptosi", x, "int64")
            return self.cast(self.select(self.less(x, limit), low, high), dtype)
        wide = "int64" if dtype in ("int64", "uint32") else "int32"
        return self.cast(self.b.convert("fptosi", x, wide), dtype)

    def saturate(self, x: Value, dtype: str, offset: int, bits: int) -> Value:
        """Emit x + offset, rounded and saturated to `bits` bits; NaN gives 0."""
        if offset:
            x = self.b.binary("fadd", x, self.const(offset, x))
        low, high = 0, 2**bits - 1
        near = self.b.intrinsic("maxnum", x, self.const(low, x))
        near = self.b.intrinsic("minnum", near, self.const(high, x))
        if current().architecture != "x86_64":
            return self.cast(self.round(near), dtype)
        rounded = self._nearest(near)
        # This does not change the value. LLVM then selects pack instructions.
        rounded = self.b.intrinsic("smax", rounded, self.const(0, rounded))
        rounded = self.b.intrinsic("smin", rounded, self.const(255, rounded))
        return self.b.convert("trunc", rounded, dtype)

    def _nearest(self, x: Value) -> Value:
        """Round x to int32, half to even: one instruction on x86."""
        kind = f"f{8 * dtypes.itemsize(x.dtype)}"
        lanes, result = (
            (f"v{x.lanes}", f"<{x.lanes} x i32>") if x.lanes else ("", "i32")
        )
        name = f"@llvm.lrint.{lanes}i32.{lanes}{kind}"
        self.b.declarations.add(f"declare {result} {name}({x.type})")
        return self.b.let(f"call {result} {name}({x.type} {x})", "int32", x.lanes)

    def negative(self, x: Value) -> Value:
        """Emit -x."""
        if dtypes.is_float(x.dtype):
            return self.b.let(f"fneg {x.type} {x.text}", x.dtype, x.lanes)
        return self.b.binary("sub", self.const(0, x), x)

    def abs(self, x: Value) -> Value:
        """Emit |x|."""
        if dtypes.is_float(x.dtype):
            return self.b.intrinsic("fabs", x)
        return x if _is_unsigned(x.dtype) else self.maximum(x, self.negative(x))

    def sign(self, x: Value) -> Value:
        """Emit -1, 0 or 1; NaN stays NaN."""
        zero = self.const(0, x)
        up = self.select(self.less(zero, x), self.const(1, x), x)
        return self.select(self.less(x, zero), self.const(-1, x), up)

    def divide(self, a: Value, b: Value) -> Value:
        """Emit a / b, for floats."""
        return self.b.binary("fdiv", a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        """Emit the larger value; NaN if either is NaN."""
        return self._select_extreme(lambda x, y: self.less(y, x), a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        """Emit the smaller value; NaN if either is NaN."""
        return self._select_extreme(self.less, a, b)

    def _select_extreme(
        self, wins: Callable[[Value, Value], Value], a: Value, b: Value
    ) -> Value:
        """Select the first value if it wins, otherwise the second; NaN propagates."""
        if not dtypes.is_float(a.dtype):
            return self.select(wins(a, b), a, b)
        if _is_number(b):
            a, b = b, a
        if _is_number(a):  # a loses against NaN: one instruction on x86
            return self.select(wins(a, b), a, b)
        return self.select(self.isnan(a), a, self.select(wins(a, b), a, b))

    def isnan(self, x: Value) -> Value:
        """Emit whether x is NaN."""
        if not dtypes.is_float(x.dtype):
            return self._constant_bool(False, x)
        return self.b.let(f"fcmp uno {x.type} {x.text}, {x.text}", "bool", x.lanes)

    def isinf(self, x: Value) -> Value:
        """Emit whether x is infinite."""
        if not dtypes.is_float(x.dtype):
            return self._constant_bool(False, x)
        return self._compare("equal", self.abs(x), self.const(float("inf"), x))

    def isfinite(self, x: Value) -> Value:
        """Emit whether x is neither infinite nor NaN."""
        if not dtypes.is_float(x.dtype):
            return self._constant_bool(True, x)
        return self._compare("less", self.abs(x), self.const(float("inf"), x))

    def _constant_bool(self, answer: bool, x: Value) -> Value:
        """Return a constant bool with the lanes of x."""
        return self.const(answer, self._compare("equal", x, x))

    def logical_not(self, x: Value) -> Value:
        """Emit not x."""
        return self.b.binary("xor", x, self.const(True, x))

    def __getattr__(self, name: str) -> Any:
        if name in _ARITHMETIC:
            return lambda a, b: self._arithmetic(name, a, b)
        if name in _COMPARE:
            return lambda a, b: self._compare(name, a, b)
        prefix, _, kind = name.partition("_")
        if prefix in ("logical", "bitwise") and kind in _BITWISE:
            return lambda a, b: self.b.binary(kind, a, b)
        is_function = name in math.FLOATS or name in math.INTEGERS
        if is_function or (name in SCALARS and SCALARS[name].llvm):
            return lambda *xs: self._function(name, xs)
        raise AttributeError(name)

    def bitwise_not(self, x: Value) -> Value:
        """Emit the complement of the bits of x."""
        return self.b.binary("xor", x, self.const(-1, x))

    def _arithmetic(self, name: str, a: Value, b: Value) -> Value:
        if a.dtype == "bool":
            return self.b.binary(_BOOL_ARITHMETIC[name], a, b)
        prefix = "f" if dtypes.is_float(a.dtype) else ""
        return self.b.binary(prefix + _ARITHMETIC[name], a, b)

    def _compare(self, name: str, a: Value, b: Value) -> Value:
        ordered, signed, unsigned = _COMPARE[name]
        if dtypes.is_float(a.dtype):
            return self.b.binary(f"fcmp {ordered}", a, b, "bool")
        predicate = unsigned if _is_unsigned(a.dtype) else signed
        return self.b.binary(f"icmp {predicate}", a, b, "bool")

    def _function(self, name: str, xs: tuple[Value, ...]) -> Value:
        if not dtypes.is_float(xs[0].dtype):
            if name in math.INTEGERS:
                return math.INTEGERS[name](self.b, *xs)
            if SCALARS[name].is_whole:
                return xs[0]
        llvm = SCALARS[name].llvm or math.FLOATS[name]
        if isinstance(llvm, str) and is_rounding(llvm):
            return math.of_vectors(partial(rounded, llvm), self.b, *xs)
        if isinstance(llvm, str):
            return self.b.intrinsic(llvm, *xs)
        emit = partial(math.of_vectors, llvm)
        use = f"{name}_{xs[0].dtype}x{xs[0].lanes}"
        self._uses[use] += 1
        if self._uses[use] <= _MAX_INLINE_USES:
            return emit(self.b, *xs)
        return self.b.call_function(use, emit, *xs)


def _is_number(x: Value) -> bool:
    """Return whether a float is a constant that is not NaN."""
    words = set(_LITERAL.findall(x.text))
    return bool(words) and all(int(word, 16) & _SIGNLESS <= _INFINITE for word in words)


def _is_unsigned(dtype: str) -> bool:
    return dtype == "bool" or dtype.startswith("u")
