"""A small builder of LLVM IR as text: values, arithmetic on vectors, loops.

A `Value` has a dtype, and is a scalar or a vector of `lanes` elements. Instructions
take values and return values. This module does not depend on tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

# The LLVM types of dtypes. A bool is one byte in memory and one bit in a register.
# A float of 16 bits is its bit pattern; `cast` converts it to a number.
TYPES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bfloat16": "i16",
    "float16": "i16",
    "float32": "float",
    "float64": "double",
}
MEMORY_TYPES = {**TYPES, "bool": "i8"}
# The dtype for moving elements without arithmetic, by their size in bytes.
MOVED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_BITS = {"float": 32, "double": 64}


@record
class Value:
    """A register or constant: its text, dtype and number of lanes (0: a scalar)."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type."""
        return vector_type(TYPES[self.dtype], self.lanes)

    def __str__(self) -> str:
        return self.text


class Index(Value):
    """A 64-bit integer in a register, with operators that emit instructions.

    Operations on Python integers are folded at generation time. `//` and `%` round
    towards zero. Comparisons are signed.
    """

    def __init__(self, builder: Builder, text: str) -> None:
        super().__init__(text, "int64")
        # The class is frozen, like all values.
        object.__setattr__(self, "b", builder)

    b: Builder

    def __add__(self, other: Number) -> Index:
        return self if other == 0 else self.b.integer("add", self, other)

    def __radd__(self, other: int) -> Index:
        return self if other == 0 else self.b.integer("add", other, self)

    def __sub__(self, other: Number) -> Index:
        return self if other == 0 else self.b.integer("sub", self, other)

    def __rsub__(self, other: int) -> Index:
        return self.b.integer("sub", other, self)

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, int) and other in (0, 1):
            return self if other else 0
        return self.b.integer("mul", self, other)

    def __rmul__(self, other: int) -> Number:
        if other in (0, 1):
            return self if other else 0
        return self.b.integer("mul", other, self)

    def __floordiv__(self, other: Number) -> Index:
        return self if other == 1 else self.b.integer("sdiv", self, other)

    def __mod__(self, other: Number) -> Number:
        return 0 if other == 1 else self.b.integer("srem", self, other)

    def __rfloordiv__(self, other: int) -> Index:
        return self.b.integer("sdiv", other, self)

    def __rmod__(self, other: int) -> Index:
        return self.b.integer("srem", other, self)

    def __and__(self, other: Number) -> Index:
        return self.b.integer("and", self, other)

    def __xor__(self, other: Number) -> Index:
        return self if other == 0 else self.b.integer("xor", self, other)

    def __lt__(self, other: Number) -> Value:
        return self.b.compare("slt", self, other)

    def __le__(self, other: Number) -> Value:
        return self.b.compare("sle", self, other)

    def __gt__(self, other: Number) -> Value:
        return self.b.compare("sgt", self, other)

    def __ge__(self, other: Number) -> Value:
        return self.b.compare("sge", self, other)


# An integer that is constant at generation time, or a run-time value.
Number = int | Index
# The bounds of a loop.
Range = tuple[Number, Number]
# The active lanes of a vector; None: all lanes.
Mask = Value | None


class Pointer(Value):
    """An address. `pointer + n` is the address of element n after it.

    Args:
        builder: the builder of the function.
        text: the name of the register.
        kind: the LLVM type of the elements; the default is bytes.
    """

    def __init__(self, builder: Builder, text: str, kind: str = "i8") -> None:
        super().__init__(text, "uint64")
        object.__setattr__(self, "b", builder)
        object.__setattr__(self, "kind", kind)

    b: Builder
    kind: str

    @property
    def type(self) -> str:
        """The LLVM type."""
        return "ptr"

    def __add__(self, count: Number) -> Pointer:
        return self if count == 0 else self.element(count, self.kind)

    def element(self, number: Number, kind: str) -> Pointer:
        """Return the address of element `number` from this address."""
        text = f"getelementptr {kind}, ptr {self}, i64 {number}"
        return self.b.pointer(text, self.kind)


def vector_type(element: str, lanes: int) -> str:
    """Return the LLVM type of `lanes` elements, or of a scalar for 0."""
    return f"<{lanes} x {element}>" if lanes else element


def literal(number: Any, dtype: str) -> str:
    """Return a Python number in the syntax of LLVM."""
    if dtype == "bool":
        return "true" if number else "false"
    if dtype in ("float32", "float64"):
        # Hexadecimal doubles are exact; a float literal must be exact in float32.
        if dtype == "float32":
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    return str(int(number))


class Accumulation:
    """One iteration of a loop that carries values."""

    def __init__(self, index: Index, values: list[Value]) -> None:
        self.index = index
        self.values: list[Value] = values

    def index_of(self, number: int) -> Index:
        """Return a carried value that is a 64-bit integer."""
        value = self.values[number]
        assert isinstance(value, Index)
        return value

    def next(self, values: Sequence[Value]) -> None:
        """Pass these values to the next iteration."""
        self.values = list(values)


class Builder:
    """Builder of the instructions of one function."""

    low: Index
    high: Index
    slot: Index

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.selected: set[str] = set()  # the names of the results of `select`
        self._results: dict[str, Value] = {}  # of the functions of `call_function`
        self._count = 0
        self.block: str = "entry"
        # The parameters of a kernel: the rows [low, high) and the index of a task.
        self.low, self.high, self.slot = map(self.parameter, ("lo", "hi", "slot"))
        self.table: Pointer = self.pointer_parameter("table")

    def fresh(self, prefix: str = "v") -> str:
        """Return an unused name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def let(self, text: str, dtype: str, lanes: int = 0) -> Value:
        """Append an instruction and name its result."""
        value = Value(f"%{self.fresh()}", dtype, lanes)
        self.emit(f"{value.text} = {text}")
        return value

    def label(self, name: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{name}:")
        self.block = name

    # --- values -----------------------------------------------------------------------

    def constant(self, number: Any, like: Value) -> Value:
        """Return a number with the dtype and lanes of another value."""
        text = literal(number, like.dtype)
        if like.lanes:
            element = TYPES[like.dtype]
            text = f"<{', '.join([f'{element} {text}'] * like.lanes)}>"
        return Value(text, like.dtype, like.lanes)

    def splat(self, scalar: Value) -> Value:
        """Broadcast a scalar to all lanes of a vector."""
        vector = vector_type(TYPES[scalar.dtype], self.lanes)
        first = self.let(
            f"insertelement {vector} poison, {scalar.type} {scalar.text}, i64 0",
            scalar.dtype,
            self.lanes,
        )
        return self.let(
            f"shufflevector {vector} {first.text}, {vector} poison, "
            f"<{self.lanes} x i32> zeroinitializer",
            scalar.dtype,
            self.lanes,
        )

    def binary(self, instruction: str, a: Value, b: Value, dtype: str = "") -> Value:
        """Emit `instruction type a, b`; `dtype` is the dtype of the result."""
        text = f"{instruction} {a.type} {a.text}, {b.text}"
        return self.let(text, dtype or a.dtype, a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Select a where the condition holds, otherwise b."""
        text = f"select {condition.type} {condition}, {a.type} {a}, {b.type} {b}"
        selected = self.let(text, a.dtype, a.lanes)
        self.selected.add(selected.text)
        return selected

    def across_lanes(self, how: str, condition: Value) -> Value:
        """Reduce the lanes of a condition with "or" or "and"."""
        if not condition.lanes:
            return condition
        name = f"i1 @llvm.vector.reduce.{how}.v{condition.lanes}i1"
        self.declarations.add(f"declare {name}({condition.type})")
        return self.let(f"call {name}({condition.type} {condition})", "bool")

    def convert(self, instruction: str, x: Value, dtype: str) -> Value:
        """Emit `instruction type x to type`: a conversion or a bitcast."""
        target = vector_type(TYPES[dtype], x.lanes)
        return self.let(f"{instruction} {x.type} {x.text} to {target}", dtype, x.lanes)

    def intrinsic(self, name: str, *values: Value, dtype: str = "") -> Value:
        """Call `llvm.name` on values of one type.

        `fma` rounds once, or twice if the processor has no FMA instruction.
        """
        if name == "fma" and not current().has_fma:
            name = "fmuladd"
        x = values[0]
        suffix = f"{'v' + str(x.lanes) if x.lanes else ''}{mangled(x.dtype)}"
        result = vector_type(TYPES[dtype or x.dtype], x.lanes)
        types = ", ".join(v.type for v in values)
        function = f"@llvm.{name}.{suffix}"
        self.declarations.add(f"declare {result} {function}({types})")
        arguments = ", ".join(f"{v.type} {v.text}" for v in values)
        return self.let(
            f"call {result} {function}({arguments})", dtype or x.dtype, x.lanes
        )

    # --- addresses --------------------------------------------------------------------

    def index(self, text: str) -> Index:
        """Append an instruction whose result is a 64-bit integer."""
        return Index(self, self.let(text, "int64").text)

    def pointer(self, text: str, kind: str = "i8") -> Pointer:
        """Append an instruction whose result is an address."""
        return Pointer(self, self.let(text, "int64").text, kind)

    def parameter(self, name: str) -> Index:
        """Return a parameter of the function that is a 64-bit integer."""
        return Index(self, f"%{name}")

    def pointer_parameter(self, name: str) -> Pointer:
        """Return a parameter of the function that is an address."""
        return Pointer(self, f"%{name}")

    def integer(self, instruction: str, a: Number, b: Number) -> Index:
        """Emit `instruction i64 a, b`."""
        return self.index(f"{instruction} i64 {a}, {b}")

    def compare(self, predicate: str, a: Number, b: Number) -> Value:
        """Emit a comparison of two 64-bit integers."""
        return self.let(f"icmp {predicate} i64 {a}, {b}", "bool")

    def opposite(self, condition: Value) -> Value:
        """Emit the negation of a condition."""
        return self.let(f"xor i1 {condition}, true", "bool")

    def choose(self, condition: Value, a: Number, b: Number) -> Index:
        """Select a if the condition holds, otherwise b."""
        pair = self.int64(a), self.int64(b)
        return Index(self, self.select(condition, *pair).text)

    def min(self, a: Number, b: Number) -> Number:
        """Emit the minimum of two integers."""
        return self._extreme("smin", a, b)

    def max(self, a: Number, b: Number) -> Number:
        """Emit the maximum of two integers."""
        return self._extreme("smax", a, b)

    def _extreme(self, name: str, a: Number, b: Number) -> Number:
        return Index(self, self.intrinsic(name, self.int64(a), self.int64(b)).text)

    def int64(self, number: Number) -> Value:
        """Return an integer as a value."""
        return Value(str(number), "int64")

    def memory(self, count: int, of: Value) -> Pointer:
        """Allocate stack memory for `count` values of one type."""
        name = f"%{self.fresh('memory')}"
        self.emit(f"{name} = alloca [{count} x {of.type}], align 64")
        return Pointer(self, name)

    # --- control ----------------------------------------------------------------------

    @contextmanager
    def loop(self, low: Number, high: Number, step: int = 1) -> Iterator[Index]:
        """Emit for i in range(low, high, step), which can be empty."""
        with self.accumulate(low, high, step, ()) as iteration:
            yield iteration.index

    @contextmanager
    def accumulate(
        self, low: Number, high: Number, step: int, initial: Sequence[Value]
    ) -> Iterator[Accumulation]:
        """Emit a loop that carries values in registers between iterations.

        The body reads `.index` and `.values` and calls `.next(values)` once. After the
        loop, `.values` are the final values, or the initial values of an empty loop.
        """
        head, body, exit_block = (self.fresh(p) for p in ("head", "body", "done"))
        index = Index(self, f"%{self.fresh('i')}")
        following = f"%{self.fresh('i')}"
        before = self.block
        self.emit(f"br label %{head}")
        self.label(head)
        slot = len(self.lines)
        self.emit("phi")  # replaced after the body
        carried = [self._carried(v) for v in initial]
        check = f"%{self.fresh('c')}"
        self.emit(f"{check} = icmp slt i64 {index}, {high}")
        self.emit(f"br i1 {check}, label %{body}, label %{exit_block}")
        self.label(body)
        iteration = Accumulation(index, list(carried))
        yield iteration
        self.emit(f"{following} = add nsw i64 {index}, {step}")
        self.emit(f"br label %{head}")
        edges: list[tuple[Value, object, object]] = [(index, low, following)]
        edges += [
            (phi, first, last)
            for phi, first, last in zip(carried, initial, iteration.values, strict=True)
        ]
        self.lines[slot] = "\n".join(
            f"  {phi} = phi {phi.type} "
            f"[ {first}, %{before} ], [ {last}, %{self.block} ]"
            for phi, first, last in edges
        )
        self.label(exit_block)
        iteration.values = carried

    def _carried(self, initial: Value) -> Value:
        name = f"%{self.fresh('a')}"
        if (initial.dtype, initial.lanes) == ("int64", 0):
            return Index(self, name)
        return Value(name, initial.dtype, initial.lanes)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit a block that runs only if an i1 is true."""
        then_block, exit_block = self.fresh("yes"), self.fresh("done")
        self.emit(f"br i1 {condition}, label %{then_block}, label %{exit_block}")
        self.label(then_block)
        yield
        self.emit(f"br label %{exit_block}")
        self.label(exit_block)

    def function(
        self, name: str, parameters: Sequence[str], result: Value | None = None
    ) -> str:
        """Return the text of the function."""
        kind = result.type if result else "void"
        head = f"define {kind} @{name}({', '.join(parameters)}) #0 {{\nentry:"
        end = f"  ret {kind} {result}" if result else "  ret void"
        return "\n".join([head, *self.lines, end, "}"])

    def internal_function(
        self, name: str, parameters: Sequence[str], result: Value | None = None
    ) -> set[str]:
        """Return the text of a function for `call`, and its declarations.

        A separate function keeps other values out of its registers.
        """
        text = self.function(name, parameters, result)
        return {*self.declarations, text.replace("define", "define internal", 1)}

    def call(self, name: str, *arguments: Value | int) -> None:
        """Call an internal function."""
        types = (x.type if isinstance(x, Value) else "i64" for x in arguments)
        texts = [f"{t} {x}" for t, x in zip(types, arguments, strict=True)]
        self.emit(f"call void @{name}({', '.join(texts)})")

    def call_function(
        self, name: str, emit: Callable[..., Value], *arguments: Value
    ) -> Value:
        """Call a function of values; the first call adds its text.

        Args:
            name: the name; one name has one body and one type of arguments.
            emit: `emit(builder, *values)` emits the body and returns the result.
            arguments: the arguments.
        """
        if name not in self._results:
            self._results[name] = self._add_function(name, emit, arguments)
        result = self._results[name]
        listed = ", ".join(f"{x.type} {x}" for x in arguments)
        call = f"call {result.type} @{name}({listed})"
        return self.let(call, result.dtype, result.lanes)

    def _add_function(
        self, name: str, emit: Callable[..., Value], arguments: Sequence[Value]
    ) -> Value:
        """Add the text of a function of values, and return its result."""
        b = Builder(self.lanes)
        parameters = [
            Value(f"%x{i}", x.dtype, x.lanes) for i, x in enumerate(arguments)
        ]
        result = emit(b, *parameters)
        texts = [f"{x.type} {x}" for x in parameters]
        self.declarations |= b.internal_function(name, texts, result)
        return result


def mangled(dtype: str) -> str:
    """Return the suffix of a dtype in the names of intrinsics."""
    kind = TYPES[dtype]
    return f"f{_BITS[kind]}" if kind in _BITS else kind
