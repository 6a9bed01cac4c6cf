"""The kernel writer: the call table, vector loads and stores, masks, and loops.

Loads and stores access whole vectors, masked vectors, or gathered elements. In memory a
bool is a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    TYPES,
    Builder,
    Index,
    Mask,
    Number,
    Pointer,
    Value,
    mangled,
    vector_type,
)

# Lanes with addresses relative to one register: 0, 1, 2 and 3 strides.
_ADDRESSED_LANES = 4
# A named tuple of integers of the table.
Numbers = TypeVar("Numbers", bound=NamedTuple)


class Kernel(Builder):
    """Writer of one kernel. Strides are in bytes, indices in elements."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)
        self._read = 0  # the number of table entries read in order

    # --- the table --------------------------------------------------------------------

    def entry(self, number: int) -> Index:
        """Load an integer of the table."""
        return self.index(f"load i64, ptr {self.table.element(number, 'i64')}")

    def address(self, number: int, dtype: str = "int8") -> Pointer:
        """Load an address of the table, for elements of a dtype."""
        entry = self.table.element(number, "i64")
        return self.pointer(f"load ptr, ptr {entry}", MEMORY_TYPES[dtype])

    def next_entry(self) -> Index:
        """Load the next integer of a table that is read in order."""
        return self.entry(self._next())

    def next_entries(self, kind: type[Numbers]) -> Numbers:
        """Load the next integers of a table that is read in order, as a named tuple."""
        return kind._make(self.next_entry() for _ in kind._fields)

    def next_address(self, dtype: str = "int8") -> Pointer:
        """Load the next address of a table that is read in order."""
        return self.address(self._next(), dtype)

    def _next(self) -> int:
        self._read += 1
        return self._read - 1

    @contextmanager
    def of_lanes(self, lanes: int) -> Iterator[None]:
        """Use vectors of this number of lanes; LLVM splits wide vectors."""
        before, self.lanes = self.lanes, lanes
        yield
        self.lanes = before

    # --- arithmetic -------------------------------------------------------------------

    def ceil_div(self, a: Number, b: Number) -> Number:
        """Emit a / b, rounded up."""
        return (a + (b - 1)) // b

    def is_inside(self, index: Number, extent: Number) -> Value:
        """Emit 0 <= index < extent."""
        return self.compare("ult", index, extent)

    def split(self, index: Number, count: Number) -> tuple[Number, Number]:
        """Emit index // count and index % count."""
        quotient = index // count
        return quotient, index - quotient * count

    def tile_range(
        self, index: Number, size: Number, extent: Number
    ) -> tuple[Number, Number]:
        """Emit the range of tile `index`, of `size` elements, of an extent."""
        low = index * size
        return low, self.min(low + size, extent)

    # --- one element ------------------------------------------------------------------

    def at(self, base: Pointer, index: Number, dtype: str) -> Pointer:
        """Emit the address of an element of an array."""
        return base.element(index, MEMORY_TYPES[dtype])

    def scalar(self, address: Pointer, dtype: str) -> Value:
        """Load one element."""
        if dtype == "bool":
            byte = self.let(f"load i8, ptr {address}", "int8")
            return self.let(f"icmp ne i8 {byte}, 0", "bool")
        return self.let(f"load {MEMORY_TYPES[dtype]}, ptr {address}", dtype)

    def integer_at(self, address: Pointer, dtype: str) -> Index:
        """Load one signed integer, extended to 64 bits."""
        kind = MEMORY_TYPES[dtype]
        integer = self.index(f"load {kind}, ptr {address}")
        return integer if kind == "i64" else self.index(f"sext {kind} {integer} to i64")

    def put_scalar(self, value: Value, address: Pointer) -> None:
        """Store one element."""
        self.emit(f"store {value.type} {value}, ptr {address}")

    def put_first(self, value: Value, address: Pointer) -> None:
        """Store one element: the first lane of a vector."""
        if value.dtype == "bool":
            value = self.convert("zext", value, "int8")
        self.put_scalar(self.first_lane(value), address)

    def first_lane(self, x: Value) -> Value:
        """Extract the first lane of a vector."""
        return self.let(f"extractelement {x.type} {x}, i64 0", x.dtype)

    # --- vectors ----------------------------------------------------------------------

    def load(self, base: Pointer, index: Number, dtype: str, mask: Mask) -> Value:
        """Load the vector that starts at element `index`."""
        address = self.at(base, index, dtype)
        stored, vector, size = self._memory_type(dtype)
        if mask is None:
            text = f"load {vector}, ptr {address}, align {size}"
            return self._from_memory(self.let(text, stored, self.lanes), dtype)
        bits = f"<{self.lanes} x i1>"
        name = f"@llvm.masked.load.{self._suffix(stored)}.p0"
        self.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
        text = (
            f"call {vector} {name}(ptr {address}, i32 {size}, {bits} {mask}, "
            f"{vector} zeroinitializer)"
        )
        return self._from_memory(self.let(text, stored, self.lanes), dtype)

    def gather(
        self, base: Pointer, stride: Number, index: Number, dtype: str, mask: Mask
    ) -> Value:
        """Gather elements with a stride in bytes, from element `index` on."""
        if mask is None:
            first = Pointer(self, base.text) + index * stride
            return self._load_lanes(first, stride, dtype)
        numbers = self.lane_numbers("int64")
        steps = self.binary("mul", numbers, self.splat(self.int64(stride)))
        start = self.splat(self.int64(index * stride))
        return self.gather_at(base, self.binary("add", start, steps), "i8", dtype, mask)

    def _load_lanes(self, address: Pointer, stride: Number, dtype: str) -> Value:
        """Load each lane by itself.

        Processors prefetch for single loads, and not for gathers. Measured: a column of
        [2e6, 5] takes 1.5 ms instead of 5.5.
        """
        stored, vector, _ = self._memory_type(dtype)
        kind, value = MEMORY_TYPES[dtype], Value("poison", stored, self.lanes)
        for lane in range(self.lanes):
            if lane and lane % _ADDRESSED_LANES == 0:
                address = address + stride * _ADDRESSED_LANES
            at = address + stride * (lane % _ADDRESSED_LANES)
            element = self.let(f"load {kind}, ptr {at}", stored)
            text = f"insertelement {vector} {value.text}, {kind} {element}, i64 {lane}"
            value = self.let(text, stored, self.lanes)
        return self._from_memory(value, dtype)

    def load_strided(
        self, base: Pointer, step: int, index: Number, dtype: str, mask: Mask
    ) -> Value:
        """Load elements with a small stride, from strided element `index` on.

        Args:
            step: the stride in elements: -1, or more than 1.
        """
        size, lanes = dtypes.itemsize(dtype), self.lanes
        stored, first = self._memory_type(dtype)[0], index * step
        if step == -1:
            reversed_lanes = range(lanes - 1, -1, -1)
            mask = mask and self.shuffled(mask, mask, reversed_lanes)
            vector = self.load(base, first - (lanes - 1), stored, mask)
            return self._from_memory(
                self.shuffled(vector, vector, reversed_lanes), dtype
            )
        if mask is not None:
            return self.gather(base, step * size, index, dtype, mask)
        # The last vector ends at the last element, so no load is out of bounds.
        starts = [*range(0, (step - 1) * lanes, lanes), (lanes - 1) * (step - 1)]
        offsets = range(0, lanes * step, step)
        vector = self.load(base, first, stored, None)
        # The lanes of the elements loaded so far, and the number of covered elements.
        old_lanes, loaded_count = list(offsets), lanes
        for start in starts[1:]:
            next_vector = self.load(base, first + start, stored, None)
            new_lanes = [
                min(lanes + offset - start, 2 * lanes - 1) for offset in offsets
            ]
            selected_lanes = [
                old if offset < loaded_count else new
                for offset, old, new in zip(offsets, old_lanes, new_lanes, strict=True)
            ]
            vector = self.shuffled(vector, next_vector, selected_lanes)
            old_lanes, loaded_count = list(range(lanes)), start + lanes
        return self._from_memory(vector, dtype)

    def gather_at(
        self, base: Pointer, numbers: Value, kind: str, dtype: str, mask: Mask
    ) -> Value:
        """Gather the elements with these indices, of an LLVM type, from an address."""
        lanes = self.lanes
        stored, vector, size = self._memory_type(dtype)
        pointers = f"%{self.fresh('g')}"
        self.emit(
            f"{pointers} = getelementptr {kind}, ptr {base}, {numbers.type} {numbers}"
        )
        bits = f"<{lanes} x i1>"
        name = f"@llvm.masked.gather.{self._suffix(stored)}.v{lanes}p0"
        self.declarations.add(
            f"declare {vector} {name}(<{lanes} x ptr>, i32, {bits}, {vector})"
        )
        all_lanes = f"<{', '.join(['i1 true'] * lanes)}>"
        text = (
            f"call {vector} {name}(<{lanes} x ptr> {pointers}, i32 {size}, "
            f"{bits} {mask or all_lanes}, {vector} zeroinitializer)"
        )
        return self._from_memory(self.let(text, stored, lanes), dtype)

    def store(self, value: Value, base: Pointer, index: Number, mask: Mask) -> None:
        """Store a vector from element `index` on."""
        if value.dtype == "bool":
            value = self.convert("zext", value, "int8")
        size = dtypes.itemsize(value.dtype)
        address = self.at(base, index, value.dtype)
        if mask is None:
            if value.text in self.selected:
                value = self._freeze(value)
            self.emit(f"store {value.type} {value}, ptr {address}, align {size}")
            return
        bits = f"<{self.lanes} x i1>"
        name = f"@llvm.masked.store.{self._suffix(value.dtype)}.p0"
        self.declarations.add(f"declare void {name}({value.type}, ptr, i32, {bits})")
        self.emit(
            f"call void {name}({value.type} {value}, ptr {address}, i32 {size}, "
            f"{bits} {mask})"
        )

    def _freeze(self, value: Value) -> Value:
        """Hide from LLVM that a selected value can equal the value in memory.

        LLVM would otherwise emit a masked store of the changed lanes. That instruction
        takes ten times as long on AMD processors without mask registers.
        """
        return self.let(f"freeze {value.type} {value}", value.dtype, value.lanes)

    def _memory_type(self, dtype: str) -> tuple[str, str, int]:
        """Return the dtype in memory, its vector type, and its item size in bytes."""
        stored = "int8" if dtype == "bool" else dtype
        vector = vector_type(MEMORY_TYPES[dtype], self.lanes)
        return stored, vector, dtypes.itemsize(dtype)

    def _from_memory(self, value: Value, dtype: str) -> Value:
        if dtype != "bool":
            return value
        return self.binary("icmp ne", value, self.constant(0, value), "bool")

    def _suffix(self, dtype: str) -> str:
        return f"v{self.lanes}{mangled(dtype)}"

    # --- lanes ------------------------------------------------------------------------

    def filled(self, number: float, dtype: str) -> Value:
        """Return a vector with one number in every lane."""
        return self.constant(number, Value("", dtype, self.lanes))

    def lane_numbers(self, dtype: str = "int32") -> Value:
        """Return the vector 0, 1, 2, ..."""
        return integers(range(self.lanes), dtype)

    def int32(self, number: Value | int) -> Value:
        """Return a vector with one integer in every lane."""
        if isinstance(number, int):
            return self.filled(number, "int32")
        return self.splat(self.convert("trunc", number, "int32"))

    def first_lanes(self, count: Number, dtype: str = "int32") -> Value:
        """Emit a mask of the first `count` lanes, or of all lanes for a larger count.

        Args:
            count: the number of lanes.
            dtype: "int64" if the count can have more than 31 bits.
        """
        limit = self.int64(count)
        if dtype == "int32":
            limit = self.convert("trunc", limit, dtype)
        lanes = self.lane_numbers(dtype)
        return self.binary("icmp slt", lanes, self.splat(limit), "bool")

    def existing(self, count: int) -> Mask:
        """Return a constant mask of the first `count` lanes."""
        return constant_mask(count, self.lanes)

    def first_of_vectors(self, count: Number, vectors: int) -> list[Value]:
        """Emit masks of the first `count` lanes of several vectors."""
        starts = range(0, vectors * self.lanes, self.lanes)
        return [self.first_lanes(count - start) for start in starts]

    def shuffled(self, x: Value, y: Value, lanes: Iterable[int]) -> Value:
        """Emit a shuffle of the lanes of x, followed by the lanes of y."""
        numbers = [f"i32 {lane}" for lane in lanes]
        return self.let(
            f"shufflevector {x.type} {x}, {y.type} {y}, "
            f"<{len(numbers)} x i32> <{', '.join(numbers)}>",
            x.dtype,
            len(numbers),
        )

    def select_lanes(
        self, vectors: Sequence[Value], sources: Sequence[tuple[int, int]]
    ) -> Value:
        """Emit a vector of lanes of several vectors.

        Args:
            vectors: vectors with the number of lanes of the result.
            sources: the index of the vector and its lane, for each lane of the result.
        """
        first, *later = sorted({vector for vector, _ in sources})
        lanes = [lane for _, lane in sources]
        result = self.shuffled(vectors[first], vectors[first], lanes)
        # Each later shuffle replaces the lanes of one more vector.
        for other in later:
            lanes = [
                len(sources) + lane if vector == other else i
                for i, (vector, lane) in enumerate(sources)
            ]
            result = self.shuffled(result, vectors[other], lanes)
        return result

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """Transpose adjacent square blocks of a power of two of rows.

        Off-diagonal blocks of 1, 2, 4, ... elements are exchanged.
        """
        lanes, columns = rows[0].lanes, list(rows)
        step = 1
        while step < len(columns):
            upper = [i + lanes - step if i & step else i for i in range(lanes)]
            lower = [i + lanes if i & step else i + step for i in range(lanes)]
            for i in range(len(columns)):
                if not i & step:
                    x, y = columns[i], columns[i + step]
                    columns[i] = self.shuffled(x, y, upper)
                    columns[i + step] = self.shuffled(x, y, lower)
            step *= 2
        return columns

    # --- errors -----------------------------------------------------------------------

    def note_bad_index(self, error: Pointer, index: Value, limit: Number) -> None:
        """Record an index that is out of range: the program stops early."""
        for k, word in enumerate((1, index, limit)):
            self.emit(f"store i64 {word}, ptr {error.element(k, 'i64')}")

    def prefetch(self, address: Pointer, write: bool = False, near: int = 3) -> None:
        """Prefetch a cache line for a read or a write."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        kind = f"i32 {int(write)}, i32 {near}, i32 1"
        self.emit(f"call void @llvm.prefetch.p0(ptr {address}, {kind})")

    # --- runs -------------------------------------------------------------------------

    def run(self, low: Number, high: Number) -> Iterator[tuple[Index, Mask]]:
        """Emit vector loops over range(low, high).

        Yield (index, mask) twice, for the bodies of two loops. The first loop visits
        whole vectors, the second the remainder.
        """
        vectors_end = self.whole_vectors(low, high, self.lanes)
        with self.loop(low, vectors_end, self.lanes) as index:
            yield index, None
        with self.loop(vectors_end, high, self.lanes) as index:
            yield index, self.first_lanes(high - index)

    @contextmanager
    def elidable_loop(self, count: int, step: int = 1) -> Iterator[Number]:
        """Emit range(0, count, step), without a loop for a single iteration."""
        if 0 < count <= step:
            yield 0
            return
        with self.loop(0, count, step) as index:
            yield index

    def whole_vectors(self, low: Number, high: Number, width: int) -> Number:
        """Emit the end of the largest multiple of `width` in range(low, high)."""
        return ((high - low) & -width) + low

    def copy(self, source: Pointer, target: Pointer, count: Number, dtype: str) -> None:
        """Copy contiguous elements."""
        four = range(0, 4 * self.lanes, self.lanes)
        wide = self.whole_vectors(0, count, 4 * self.lanes)
        with self.loop(0, wide, 4 * self.lanes) as index:
            values = [self.load(source, index + k, dtype, None) for k in four]
            for k, value in zip(four, values, strict=True):
                self.store(value, target, index + k, None)
        for index, mask in self.run(wide, count):
            self.store(self.load(source, index, dtype, mask), target, index, mask)


def constant_mask(count: int, lanes: int) -> Mask:
    """Return a mask of the first `count` lanes; None: all lanes."""
    if count == lanes:
        return None
    bits = (f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Value(f"<{', '.join(bits)}>", "bool", lanes)


def integers(numbers: Iterable[int], dtype: str) -> Value:
    """Return a vector of constant integers."""
    elements = [f"{TYPES[dtype]} {number}" for number in numbers]
    return Value(f"<{', '.join(elements)}>", dtype, len(elements))
