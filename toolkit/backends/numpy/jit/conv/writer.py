"""What the writers of convolution kernels share: addresses, and loops that may fold."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, TYPES, Builder, Value
from toolkit.backends.numpy.jit.memory import Memory


class Writer:
    """Emits integer arithmetic on names and digits; digits are computed now."""

    def __init__(self, builder: Builder, dtype: str) -> None:
        self.b = builder
        self.memory = Memory(builder)
        self.dtype = dtype

    def entry(self, index: int, kind: str) -> str:
        """An address (`ptr`) or number (`i64`) of the table."""
        place = self.memory.offset("%table", str(index), "i64")
        name = f"%{self.b.fresh('t')}"
        self.b.emit(f"{name} = load {kind}, ptr {place}")
        return name

    def integer(self, instruction: str, a: str | int, b: str | int) -> str:
        """`instruction a, b`."""
        a, b = _known(a), _known(b)
        if (instruction == "mul" and 0 in (a, b)) or (instruction, b) == ("srem", 1):
            return "0"
        if (instruction, a) == ("add", 0):
            return str(b)
        return self.b.integer(instruction, a, b)

    def affine(self, index: str | int, step: str | int, start: str | int) -> str:
        """index * step + start."""
        return self.integer("add", self.integer("mul", index, step), start)

    def move(self, base: str, index: str | int, step: str | int = 1) -> str:
        """The pointer `index * step` elements further on."""
        count = self.integer("mul", index, step)
        if count == "0":
            return base
        return self.memory.offset(base, count, MEMORY_TYPES[self.dtype])

    def each(self, count: int) -> AbstractContextManager[str]:
        """A loop over range(count); none for a single turn."""
        return nullcontext("0") if count == 1 else self.b.loop("0", str(count))

    def total(self, vector: Value) -> Value:
        """The sum of a vector's lanes, in a fixed order."""
        suffix = f"v{vector.lanes}f{8 * dtypes.itemsize(vector.dtype)}"
        name, kind = f"@llvm.vector.reduce.fadd.{suffix}", TYPES[vector.dtype]
        self.b.declarations.add(f"declare {kind} {name}({kind}, {vector.type})")
        text = f"call reassoc {kind} {name}({kind} -0.0, {vector.type} {vector.text})"
        return self.b.let(text, vector.dtype)

    def first_lanes(self, live: str) -> str:
        """A mask: the first `live` of the lanes, a name."""
        limit = self.b.splat(Value(live, "int64"))
        numbers = self.numbers(range(self.b.lanes))
        return self.b.binary("icmp slt", numbers, limit, "bool").text

    def numbers(self, lanes: Iterable[int]) -> Value:
        """A constant integer for each lane."""
        text = ", ".join(f"i64 {number}" for number in lanes)
        return Value(f"<{text}>", "int64", self.b.lanes)


def _known(number: str | int) -> str | int:
    """What digits say; names stay."""
    if isinstance(number, str) and not number.startswith("%"):
        return int(number)
    return number


def mask(live: int, lanes: int) -> str | None:
    """A constant: the first `live` of the lanes exist; None: all of them do."""
    if live == lanes:
        return None
    bits = (f"i1 {'true' if lane < live else 'false'}" for lane in range(lanes))
    return f"<{', '.join(bits)}>"
