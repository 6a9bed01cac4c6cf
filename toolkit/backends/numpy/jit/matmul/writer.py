"""What the writers of product kernels share: the table, addresses, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, Builder, Value
from toolkit.backends.numpy.jit.memory import Memory


class Batch(NamedTuple):
    """An axis of a batch: names of its extent, and of the factors' strides."""

    extent: str
    a: str
    b: str


class Writer:
    """Emits the code of matrices of one dtype; all strides are in bytes."""

    def __init__(self, builder: Builder, dtype: str) -> None:
        self.b = builder
        self.dtype = dtype
        self.memory = Memory(builder)
        self.kind = MEMORY_TYPES[dtype]
        self.itemsize = dtypes.itemsize(dtype)
        self.vector_bytes = builder.lanes * self.itemsize
        self._entries = 0

    def entry(self, kind: str = "i64") -> str:
        """The next address (`ptr`) or number of the table."""
        place = self.memory.offset("%table", str(self._entries), "i64")
        self._entries += 1
        name = f"%{self.b.fresh('t')}"
        self.b.emit(f"{name} = load {kind}, ptr {place}")
        return name

    def batch_entry(self) -> Batch:
        """The next axis of a batch in the table."""
        return Batch(self.entry(), self.entry(), self.entry())

    def at(self, base: str, index: str | int, stride: str | int = 1) -> str:
        """The pointer `index * stride` bytes further on."""
        if index in (0, "0"):
            return base
        return self.memory.offset(base, self.b.integer("mul", index, stride))

    def affine(self, index: str, step: str | int, start: str | int) -> str:
        """index * step + start."""
        return self.b.integer("add", self.b.integer("mul", index, step), start)

    def ceil_div(self, a: str, b: str | int) -> str:
        """a / b, rounded up."""
        more = self.b.integer("add", a, self.b.integer("sub", b, 1))
        return self.b.integer("sdiv", more, b)

    def split(self, index: str, count: str) -> tuple[str, str]:
        """index // count and index % count."""
        quotient = self.b.integer("sdiv", index, count)
        whole = self.b.integer("mul", quotient, count)
        return quotient, self.b.integer("sub", index, whole)

    def part(self, index: str, size: str, extent: str) -> tuple[str, str]:
        """The range of a part of so many of an extent."""
        low = self.b.integer("mul", index, size)
        return low, self.b.least(self.b.integer("add", low, size), extent)

    def moved(self, base: str, index: str, axes: Sequence[Batch], name: str) -> str:
        """Where the matrix of a factor, "a" or "b", is in its batch."""
        for axis in reversed(axes[1:]):
            index, step = self.split(index, axis.extent)
            base = self.at(base, step, getattr(axis, name))
        return self.at(base, index, getattr(axes[0], name)) if axes else base

    def is_less(self, a: str, b: str) -> str:
        """Whether a < b."""
        return self.b.binary(
            "icmp slt", Value(a, "int64"), Value(b, "int64"), "bool"
        ).text

    def vector(self, place: str, mask: str | None = None) -> Value:
        """A vector of elements."""
        return self.memory.load(place, "0", self.dtype, mask)

    def put(self, value: Value, place: str, mask: str | None = None) -> None:
        """Write a vector."""
        self.memory.store(value, place, "0", mask)

    def prefetch(self, place: str, write: bool = False, near: int = 3) -> None:
        """Ask for a cache line that will be read, or written, soon."""
        self.b.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        kind = f"i32 {int(write)}, i32 {near}, i32 1"
        self.b.emit(f"call void @llvm.prefetch.p0(ptr {place}, {kind})")

    def mask(self, count: str) -> str:
        """The first `count` lanes."""
        b = self.b
        numbers = ", ".join(f"i32 {lane}" for lane in range(b.lanes))
        limit = b.splat(b.convert("trunc", Value(count, "int64"), "int32"))
        lanes = Value(f"<{numbers}>", "int32", b.lanes)
        return b.binary("icmp slt", lanes, limit, "bool").text

    def masks(self, count: str, vectors: int) -> list[str | None]:
        """The first `count` lanes of so many vectors."""
        starts = range(0, vectors * self.b.lanes, self.b.lanes)
        return [self.mask(self.b.integer("sub", count, start)) for start in starts]

    @property
    def zero(self) -> Value:
        """A vector of zeros."""
        return self.b.constant(0.0, Value("", self.dtype, self.b.lanes))
