"""A small builder of LLVM IR as text: values, arithmetic on vectors, loops.

A `Value` knows its dtype and whether it is a vector of `lanes` elements or a scalar;
instructions take values and return values. Nothing here knows about tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# LLVM's names of our dtypes. A bool is one byte in memory and one bit in a register.
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
    "float32": "float",
    "float64": "double",
}
MEMORY_TYPES = {**TYPES, "bool": "i8"}
_BITS = {"float": 32, "double": 64}
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "sdiv": int.__floordiv__,
    "srem": int.__mod__,
    "xor": int.__xor__,
    "and": int.__and__,
}
_NEUTRAL = {("add", "0"), ("sub", "0"), ("mul", "1"), ("sdiv", "1"), ("xor", "0")}


@dataclass(frozen=True)
class Value:
    """A register or constant: its text, dtype, and number of lanes (0: a scalar)."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type."""
        return vector_type(TYPES[self.dtype], self.lanes)


def vector_type(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements, or of a scalar for 0."""
    return f"<{lanes} x {element}>" if lanes else element


def literal(number: Any, dtype: str) -> str:
    """A Python number as LLVM writes it."""
    if dtype == "bool":
        return "true" if number else "false"
    if dtype in ("float32", "float64"):
        # Hexadecimal doubles are exact; a float must be one that a float can hold.
        if dtype == "float32":
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    return str(int(number))


class Accumulation:
    """One turn of a loop that carries values."""

    def __init__(self, index: str, values: list[Value]) -> None:
        self.index = index
        self.values = values

    def next(self, values: Sequence[Value]) -> None:
        """Hand these values to the next turn."""
        self.values = list(values)


class Builder:
    """Emits the instructions of one function."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self._count = 0
        self.block = "entry"

    def fresh(self, prefix: str = "v") -> str:
        """A name that nothing else has."""
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
        """A number in the dtype and lanes of another value."""
        text = literal(number, like.dtype)
        if like.lanes:
            element = TYPES[like.dtype]
            text = f"<{', '.join([f'{element} {text}'] * like.lanes)}>"
        return Value(text, like.dtype, like.lanes)

    def splat(self, scalar: Value) -> Value:
        """A vector whose lanes all hold a scalar."""
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
        """`instruction type a, b`; `dtype` if the result's differs."""
        text = f"{instruction} {a.type} {a.text}, {b.text}"
        return self.let(text, dtype or a.dtype, a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """a where the condition holds, else b."""
        return self.let(
            f"select {condition.type} {condition.text}, "
            f"{a.type} {a.text}, {b.type} {b.text}",
            a.dtype,
            a.lanes,
        )

    def convert(self, instruction: str, x: Value, dtype: str) -> Value:
        """`instruction type x to type`: a conversion or a bitcast."""
        target = vector_type(TYPES[dtype], x.lanes)
        return self.let(f"{instruction} {x.type} {x.text} to {target}", dtype, x.lanes)

    def intrinsic(self, name: str, *values: Value, dtype: str = "") -> Value:
        """Call `llvm.name` on values of one type."""
        x = values[0]
        suffix = f"{'v' + str(x.lanes) if x.lanes else ''}{_mangled(x.dtype)}"
        result = vector_type(TYPES[dtype or x.dtype], x.lanes)
        types = ", ".join(v.type for v in values)
        function = f"@llvm.{name}.{suffix}"
        self.declarations.add(f"declare {result} {function}({types})")
        arguments = ", ".join(f"{v.type} {v.text}" for v in values)
        return self.let(
            f"call {result} {function}({arguments})", dtype or x.dtype, x.lanes
        )

    # --- integers ---------------------------------------------------------------------

    def integer(self, instruction: str, a: str | int, b: str | int) -> str:
        """`instruction i64 a, b` on names or numbers; what is known is computed now."""
        if isinstance(a, int) and isinstance(b, int):
            return str(_FOLDED[instruction](a, b))
        if (instruction, str(b)) in _NEUTRAL:
            return str(a)
        name = f"%{self.fresh('n')}"
        self.emit(f"{name} = {instruction} i64 {a}, {b}")
        return name

    def least(self, a: str | int, b: str | int) -> str:
        """The smaller of two 64-bit integers."""
        return self._extreme("smin", a, b)

    def most(self, a: str | int, b: str | int) -> str:
        """The larger of two 64-bit integers."""
        return self._extreme("smax", a, b)

    def _extreme(self, name: str, a: str | int, b: str | int) -> str:
        return self.intrinsic(name, Value(str(a), "int64"), Value(str(b), "int64")).text

    # --- control ----------------------------------------------------------------------

    @contextmanager
    def loop(self, low: str, high: str, step: int = 1) -> Iterator[str]:
        """for i in range(low, high, step), which may be empty; yields i's name."""
        head, body, done = (self.fresh(p) for p in ("head", "body", "done"))
        index, following = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        before = self.block
        self.emit(f"br label %{head}")
        self.label(head)
        slot = len(self.lines)
        self.emit("phi")  # known when the body is
        check = f"%{self.fresh('c')}"
        self.emit(f"{check} = icmp slt i64 {index}, {high}")
        self.emit(f"br i1 {check}, label %{body}, label %{done}")
        self.label(body)
        yield index
        self.emit(f"{following} = add nsw i64 {index}, {step}")
        self.emit(f"br label %{head}")
        self.lines[slot] = (
            f"  {index} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]"
        )
        self.label(done)

    @contextmanager
    def accumulate(
        self, low: str, high: str, step: int, initial: Sequence[Value]
    ) -> Iterator[Accumulation]:
        """A loop that carries values in registers from turn to turn.

        The body reads `.index` and `.values` and calls `.next(values)` once; after the
        loop `.values` are the last ones, or the initial ones if there was no turn.
        """
        head, body, done = (self.fresh(p) for p in ("head", "body", "done"))
        index, following = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        before = self.block
        self.emit(f"br label %{head}")
        self.label(head)
        slot = len(self.lines)
        self.emit("phi")  # known when the body is
        carried = [Value(f"%{self.fresh('a')}", v.dtype, v.lanes) for v in initial]
        check = f"%{self.fresh('c')}"
        self.emit(f"{check} = icmp slt i64 {index}, {high}")
        self.emit(f"br i1 {check}, label %{body}, label %{done}")
        self.label(body)
        turn = Accumulation(index, list(carried))
        yield turn
        self.emit(f"{following} = add nsw i64 {index}, {step}")
        self.emit(f"br label %{head}")
        edges = [(Value(index, "int64"), low, following)]
        edges += [
            (phi, first.text, last.text)
            for phi, first, last in zip(carried, initial, turn.values, strict=True)
        ]
        self.lines[slot] = "\n".join(
            f"  {phi.text} = phi {phi.type} "
            f"[ {first}, %{before} ], [ {last}, %{self.block} ]"
            for phi, first, last in edges
        )
        self.label(done)
        turn.values = carried

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run what follows only if an i1 holds."""
        yes, done = self.fresh("yes"), self.fresh("done")
        self.emit(f"br i1 {condition}, label %{yes}, label %{done}")
        self.label(yes)
        yield
        self.emit(f"br label %{done}")
        self.label(done)

    def function(self, name: str, parameters: Sequence[str]) -> str:
        """The text of the function that was built."""
        head = f"define void @{name}({', '.join(parameters)}) #0 {{\nentry:"
        return "\n".join([head, *self.lines, "  ret void", "}"])


def _mangled(dtype: str) -> str:
    kind = TYPES[dtype]
    return f"f{_BITS[kind]}" if kind in _BITS else kind
