"""The writer of kernels: the table, loads and stores of vectors, masks, runs.

Loads and stores are of whole vectors, under a mask, or gathered; bools are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

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


class Kernel(Builder):
    """Writes one kernel. Strides are in bytes, indices count elements."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)
        self._read = 0  # entries of the table, by those who read it in order

    # --- the table --------------------------------------------------------------------

    def entry(self, number: int) -> Index:
        """An integer of the table."""
        return self.index(f"load i64, ptr {self.table.element(number, 'i64')}")

    def address(self, number: int, dtype: str = "int8") -> Pointer:
        """An address of the table, of elements of a dtype."""
        place = self.table.element(number, "i64")
        return self.pointer(f"load ptr, ptr {place}", MEMORY_TYPES[dtype])

    def next_entry(self) -> Index:
        """The next integer of a table that is read in order."""
        return self.entry(self._next())

    def next_address(self, dtype: str = "int8") -> Pointer:
        """The next address of a table that is read in order."""
        return self.address(self._next(), dtype)

    def _next(self) -> int:
        self._read += 1
        return self._read - 1

    @contextmanager
    def of_lanes(self, lanes: int) -> Iterator[None]:
        """Inside, vectors have so many lanes; of too many, LLVM makes several."""
        before, self.lanes = self.lanes, lanes
        yield
        self.lanes = before

    # --- arithmetic -------------------------------------------------------------------

    def ceil_div(self, a: Number, b: Number) -> Number:
        """a / b, rounded up."""
        return (a + (b - 1)) // b

    def is_inside(self, place: Number, extent: Number) -> Value:
        """Whether 0 <= place < extent."""
        return self.compare("ult", place, extent)

    def split(self, index: Number, count: Number) -> tuple[Number, Number]:
        """index // count and index % count."""
        quotient = index // count
        return quotient, index - quotient * count

    def part(
        self, index: Number, size: Number, extent: Number
    ) -> tuple[Number, Number]:
        """The range of the index-th part, of `size`, of an extent."""
        low = index * size
        return low, self.least(low + size, extent)

    # --- one element ------------------------------------------------------------------

    def at(self, base: Pointer, index: Number, dtype: str) -> Pointer:
        """The address of an element of an array."""
        return base.element(index, MEMORY_TYPES[dtype])

    def scalar(self, place: Pointer, dtype: str) -> Value:
        """One element."""
        if dtype == "bool":
            byte = self.let(f"load i8, ptr {place}", "int8")
            return self.let(f"icmp ne i8 {byte}, 0", "bool")
        return self.let(f"load {MEMORY_TYPES[dtype]}, ptr {place}", dtype)

    def integer_at(self, place: Pointer, dtype: str) -> Index:
        """One signed integer, as 64 bits."""
        kind = MEMORY_TYPES[dtype]
        given = self.index(f"load {kind}, ptr {place}")
        return given if kind == "i64" else self.index(f"sext {kind} {given} to i64")

    def put_scalar(self, value: Value, place: Pointer) -> None:
        """Write one element."""
        self.emit(f"store {value.type} {value}, ptr {place}")

    def put_first(self, value: Value, place: Pointer) -> None:
        """Write one element: the first lane of a vector."""
        if value.dtype == "bool":
            value = self.convert("zext", value, "int8")
        self.put_scalar(self.first_lane(value), place)

    def first_lane(self, x: Value) -> Value:
        """The first lane of a vector."""
        return self.let(f"extractelement {x.type} {x}, i64 0", x.dtype)

    # --- vectors ----------------------------------------------------------------------

    def load(self, base: Pointer, index: Number, dtype: str, mask: Mask) -> Value:
        """The vector that starts at element `index`."""
        place = self.at(base, index, dtype)
        stored, vector, size = self._stored(dtype)
        if mask is None:
            text = f"load {vector}, ptr {place}, align {size}"
            return self._loaded(self.let(text, stored, self.lanes), dtype)
        bits = f"<{self.lanes} x i1>"
        name = f"@llvm.masked.load.{self._suffix(stored)}.p0"
        self.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
        text = (
            f"call {vector} {name}(ptr {place}, i32 {size}, {bits} {mask}, "
            f"{vector} zeroinitializer)"
        )
        return self._loaded(self.let(text, stored, self.lanes), dtype)

    def gather(
        self, base: Pointer, stride: Number, index: Number, dtype: str, mask: Mask
    ) -> Value:
        """Elements `stride` bytes apart, from element `index` on."""
        numbers = self.lane_numbers("int64")
        steps = self.binary("mul", numbers, self.splat(self.int64(stride)))
        start = self.splat(self.int64(index * stride))
        return self.gather_at(base, self.binary("add", start, steps), "i8", dtype, mask)

    def chosen(
        self, base: Pointer, step: int, index: Number, dtype: str, mask: Mask
    ) -> Value:
        """Elements that are a few apart, from the `index`-th of them on.

        Args:
            step: -1, or more than 1.
        """
        size, lanes = dtypes.itemsize(dtype), self.lanes
        stored, first = self._stored(dtype)[0], index * step
        if step == -1:
            turned = range(lanes - 1, -1, -1)
            mask = mask and self.shuffled(mask, mask, turned)
            found = self.load(base, first - (lanes - 1), stored, mask)
            return self._loaded(self.shuffled(found, found, turned), dtype)
        if mask is not None:
            return self.gather(base, step * size, index, dtype, mask)
        # Nothing is read behind the last element: the last vector ends there.
        starts = [*range(0, (step - 1) * lanes, lanes), (lanes - 1) * (step - 1)]
        places = range(0, lanes * step, step)
        found = self.load(base, first, stored, None)
        # The lanes of what is found so far, and how many elements that was found in.
        known, seen = list(places), lanes
        for start in starts[1:]:
            more = self.load(base, first + start, stored, None)
            fresh = [min(lanes + place - start, 2 * lanes - 1) for place in places]
            chosen = [
                old if place < seen else new
                for place, old, new in zip(places, known, fresh, strict=True)
            ]
            found = self.shuffled(found, more, chosen)
            known, seen = list(range(lanes)), start + lanes
        return self._loaded(found, dtype)

    def gather_at(
        self, base: Pointer, numbers: Value, kind: str, dtype: str, mask: Mask
    ) -> Value:
        """The elements at some numbers of an LLVM type from an address on."""
        lanes = self.lanes
        stored, vector, size = self._stored(dtype)
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
        return self._loaded(self.let(text, stored, lanes), dtype)

    def store(self, value: Value, base: Pointer, index: Number, mask: Mask) -> None:
        """Write a vector from element `index` on."""
        if value.dtype == "bool":
            value = self.convert("zext", value, "int8")
        size = dtypes.itemsize(value.dtype)
        place = self.at(base, index, value.dtype)
        if mask is None:
            if value.text in self.selected:
                value = self._settled(value)
            self.emit(f"store {value.type} {value}, ptr {place}, align {size}")
            return
        bits = f"<{self.lanes} x i1>"
        name = f"@llvm.masked.store.{self._suffix(value.dtype)}.p0"
        self.declarations.add(f"declare void {name}({value.type}, ptr, i32, {bits})")
        self.emit(
            f"call void {name}({value.type} {value}, ptr {place}, i32 {size}, "
            f"{bits} {mask})"
        )

    def _settled(self, value: Value) -> Value:
        """The value; LLVM is not told that it may be what is there already.

        It would store what differs alone, by an instruction that takes AMD's
        processors ten times as long where they have no registers for masks.
        """
        return self.let(f"freeze {value.type} {value}", value.dtype, value.lanes)

    def _stored(self, dtype: str) -> tuple[str, str, int]:
        """The dtype in memory, the type of a vector of it, and an element's bytes."""
        stored = "int8" if dtype == "bool" else dtype
        vector = vector_type(MEMORY_TYPES[dtype], self.lanes)
        return stored, vector, dtypes.itemsize(dtype)

    def _loaded(self, value: Value, dtype: str) -> Value:
        if dtype != "bool":
            return value
        return self.binary("icmp ne", value, self.constant(0, value), "bool")

    def _suffix(self, dtype: str) -> str:
        return f"v{self.lanes}{mangled(dtype)}"

    # --- lanes ------------------------------------------------------------------------

    def filled(self, number: float, dtype: str) -> Value:
        """A number in every lane."""
        return self.constant(number, Value("", dtype, self.lanes))

    def lane_numbers(self, dtype: str = "int32") -> Value:
        """0, 1, 2, ..."""
        return integers(range(self.lanes), dtype)

    def int32(self, number: Value | int) -> Value:
        """An integer in every lane."""
        if isinstance(number, int):
            return self.filled(number, "int32")
        return self.splat(self.convert("trunc", number, "int32"))

    def first_lanes(self, count: Number, dtype: str = "int32") -> Value:
        """The first `count` lanes, all of them if there are no more.

        Args:
            count: how many.
            dtype: "int64" where that may have more than 31 bits.
        """
        limit = self.int64(count)
        if dtype == "int32":
            limit = self.convert("trunc", limit, dtype)
        lanes = self.lane_numbers(dtype)
        return self.binary("icmp slt", lanes, self.splat(limit), "bool")

    def existing(self, count: int) -> Mask:
        """The first `count` lanes, a number that is known now."""
        return constant_mask(count, self.lanes)

    def first_of_vectors(self, count: Number, vectors: int) -> list[Value]:
        """The first `count` lanes of some vectors."""
        starts = range(0, vectors * self.lanes, self.lanes)
        return [self.first_lanes(count - start) for start in starts]

    def shuffled(self, x: Value, y: Value, chosen: Iterable[int]) -> Value:
        """Lanes of x, and of y behind them, in another order."""
        numbers = [f"i32 {lane}" for lane in chosen]
        return self.let(
            f"shufflevector {x.type} {x}, {y.type} {y}, "
            f"<{len(numbers)} x i32> <{', '.join(numbers)}>",
            x.dtype,
            len(numbers),
        )

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """The columns of square blocks, beside each other, of a power of two of rows.

        Blocks of 1, 2, 4, ... elements beside the diagonal change places.
        """
        lanes, found = rows[0].lanes, list(rows)
        step = 1
        while step < len(found):
            upper = [i + lanes - step if i & step else i for i in range(lanes)]
            lower = [i + lanes if i & step else i + step for i in range(lanes)]
            for i in range(len(found)):
                if not i & step:
                    x, y = found[i], found[i + step]
                    found[i] = self.shuffled(x, y, upper)
                    found[i + step] = self.shuffled(x, y, lower)
            step *= 2
        return found

    # --- errors -----------------------------------------------------------------------

    def note_bad_index(self, error: Pointer, index: Value, limit: Number) -> None:
        """Note an index that is out of range: the program stops before it ends."""
        for k, word in enumerate((1, index, limit)):
            self.emit(f"store i64 {word}, ptr {error.element(k, 'i64')}")

    def prefetch(self, place: Pointer, write: bool = False, near: int = 3) -> None:
        """Ask for a cache line that will be read, or written, soon."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        kind = f"i32 {int(write)}, i32 {near}, i32 1"
        self.emit(f"call void @llvm.prefetch.p0(ptr {place}, {kind})")

    # --- runs -------------------------------------------------------------------------

    def run(self, low: Number, high: Number) -> Iterator[tuple[Index, Mask]]:
        """Loops over range(low, high), a vector at a time.

        Yields (index, mask) twice, for the bodies of two loops: the first visits whole
        vectors, the second what is left.
        """
        whole = self.whole_vectors(low, high, self.lanes)
        with self.loop(low, whole, self.lanes) as index:
            yield index, None
        with self.loop(whole, high, self.lanes) as index:
            yield index, self.first_lanes(high - index)

    @contextmanager
    def each(self, count: int, step: int = 1) -> Iterator[Number]:
        """range(0, count, step), without a loop if that is one number."""
        if 0 < count <= step:
            yield 0
            return
        with self.loop(0, count, step) as index:
            yield index

    def whole_vectors(self, low: Number, high: Number, width: int) -> Number:
        """Where the part of range(low, high) that is a multiple of `width` ends."""
        return ((high - low) & -width) + low

    def copy(self, source: Pointer, target: Pointer, count: Number, dtype: str) -> None:
        """Copy a run of elements."""
        four = range(0, 4 * self.lanes, self.lanes)
        wide = self.whole_vectors(0, count, 4 * self.lanes)
        with self.loop(0, wide, 4 * self.lanes) as index:
            values = [self.load(source, index + k, dtype, None) for k in four]
            for k, value in zip(four, values, strict=True):
                self.store(value, target, index + k, None)
        for index, mask in self.run(wide, count):
            self.store(self.load(source, index, dtype, mask), target, index, mask)


def constant_mask(count: int, lanes: int) -> Mask:
    """The first `count` of some lanes; None: all of them."""
    if count == lanes:
        return None
    bits = (f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Value(f"<{', '.join(bits)}>", "bool", lanes)


def integers(numbers: Iterable[int], dtype: str) -> Value:
    """A vector of known integers."""
    found = [f"{TYPES[dtype]} {number}" for number in numbers]
    return Value(f"<{', '.join(found)}>", dtype, len(found))
