"""Loads and stores of vectors: whole, under a mask, gathered; bools are bytes."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    Builder,
    Value,
    vector_type,
)


class Memory:
    """Emits loads and stores with a builder.

    Addresses are the names of pointers, strides and indices those of 64-bit integers.
    """

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def entry(self, index: int, kind: str = "i64") -> str:
        """A word of the table."""
        place = self.offset("%table", str(index), "i64")
        return self.b.let(f"load {kind}, ptr {place}", "int64").text

    def offset(self, base: str, count: str, kind: str = "i8") -> str:
        """The address of the element `count` of type `kind` after `base`."""
        name = f"%{self.b.fresh('q')}"
        self.b.emit(f"{name} = getelementptr {kind}, ptr {base}, i64 {count}")
        return name

    def times(self, a: str, b: str) -> str:
        """The product of two integers."""
        name = f"%{self.b.fresh('m')}"
        self.b.emit(f"{name} = mul i64 {a}, {b}")
        return name

    def scalar(self, place: str, dtype: str) -> Value:
        """One element."""
        if dtype == "bool":
            byte = self.b.let(f"load i8, ptr {place}", "int8")
            return self.b.let(f"icmp ne i8 {byte.text}, 0", "bool")
        return self.b.let(f"load {MEMORY_TYPES[dtype]}, ptr {place}", dtype)

    def put(self, value: Value, place: str) -> None:
        """Write one element: the first lane of a vector."""
        if value.dtype == "bool":
            value = self.b.convert("zext", value, "int8")
        text = f"extractelement {value.type} {value.text}, i64 0"
        element = self.b.let(text, value.dtype)
        self.b.emit(f"store {element.type} {element.text}, ptr {place}")

    def load(self, base: str, index: str, dtype: str, mask: str | None) -> Value:
        """The vector that starts at element `index`."""
        place = self.offset(base, index, MEMORY_TYPES[dtype])
        stored, vector, size = self._stored(dtype)
        if mask is None:
            text = f"load {vector}, ptr {place}, align {size}"
            return self._loaded(self.b.let(text, stored, self.b.lanes), dtype)
        bits = f"<{self.b.lanes} x i1>"
        name = f"@llvm.masked.load.{self._suffix(stored)}.p0"
        self.b.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
        text = (
            f"call {vector} {name}(ptr {place}, i32 {size}, {bits} {mask}, "
            f"{vector} zeroinitializer)"
        )
        return self._loaded(self.b.let(text, stored, self.b.lanes), dtype)

    def gather(
        self, base: str, stride: str, index: str, dtype: str, mask: str | None
    ) -> Value:
        """Elements `stride` bytes apart, from element `index` on."""
        b, lanes = self.b, self.b.lanes
        stored, vector, size = self._stored(dtype)
        numbers = Value(
            f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", "int64", lanes
        )
        steps = b.binary("mul", numbers, b.splat(Value(stride, "int64")))
        start = b.splat(Value(self.times(index, stride), "int64"))
        offsets = b.binary("add", start, steps)
        pointers = f"%{b.fresh('g')}"
        b.emit(
            f"{pointers} = getelementptr i8, ptr {base}, {offsets.type} {offsets.text}"
        )
        bits, name = f"<{lanes} x i1>", f"@llvm.masked.gather.{self._suffix(stored)}"
        name = f"{name}.v{lanes}p0"
        b.declarations.add(
            f"declare {vector} {name}(<{lanes} x ptr>, i32, {bits}, {vector})"
        )
        mask = mask or f"<{', '.join(['i1 true'] * lanes)}>"
        text = (
            f"call {vector} {name}(<{lanes} x ptr> {pointers}, i32 {size}, "
            f"{bits} {mask}, {vector} zeroinitializer)"
        )
        return self._loaded(b.let(text, stored, lanes), dtype)

    def store(self, value: Value, base: str, index: str, mask: str | None) -> None:
        """Write a vector from element `index` on."""
        b = self.b
        if value.dtype == "bool":
            value = b.convert("zext", value, "int8")
        size = dtypes.itemsize(value.dtype)
        place = self.offset(base, index, MEMORY_TYPES[value.dtype])
        if mask is None:
            b.emit(f"store {value.type} {value.text}, ptr {place}, align {size}")
            return
        bits = f"<{b.lanes} x i1>"
        name = f"@llvm.masked.store.{self._suffix(value.dtype)}.p0"
        b.declarations.add(f"declare void {name}({value.type}, ptr, i32, {bits})")
        b.emit(
            f"call void {name}({value.type} {value.text}, ptr {place}, i32 {size}, "
            f"{bits} {mask})"
        )

    def _stored(self, dtype: str) -> tuple[str, str, int]:
        """The dtype in memory, the type of a vector of it, and an element's bytes."""
        stored = "int8" if dtype == "bool" else dtype
        vector = vector_type(MEMORY_TYPES[dtype], self.b.lanes)
        return stored, vector, dtypes.itemsize(dtype)

    def _loaded(self, value: Value, dtype: str) -> Value:
        if dtype != "bool":
            return value
        return self.b.binary("icmp ne", value, self.b.constant(0, value), "bool")

    def _suffix(self, dtype: str) -> str:
        bits = 8 * dtypes.itemsize(dtype)
        return f"v{self.b.lanes}{'f' if dtypes.is_float(dtype) else 'i'}{bits}"
