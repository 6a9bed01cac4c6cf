"""Radix sort of long rows: the stable order, or the sorted elements.

A record is moved once for each digit of its key, the lowest digit first. One pass over
the elements counts the digits of all moves (D. E. Knuth, The Art of Computer
Programming, volume 3, section 5.2.5). A digit that all keys share is skipped.
"""

from __future__ import annotations

from math import prod

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record
from toolkit.ir import Spec
from toolkit.plans.operands import align_up

# The bits of a digit in rows up to a number of elements, and in longer rows. Measured
# with 400 elements: 2048 counts of three digits take longer than a fourth move.
_SHORT_DIGIT, _LONG_DIGIT = 8, 11
_MAX_SHORT_DIGIT_ROW = 4096
# Infinity of each float as an integer. Larger magnitudes are NaN.
_INFINITY_BITS = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}


def has_ordered_key(dtype: str) -> bool:
    """Return whether elements have a key of an integer."""
    return dtype in _INFINITY_BITS or dtypes.is_integer(dtype)


def ordered_key(b: Builder, bits: Value, dtype: str) -> Value:
    """Return an unsigned integer with the order of an element, from its bits.

    Both zeros have one key, and NaN has the largest one.
    """
    if dtype.startswith("u"):
        return bits
    size = 8 * dtypes.itemsize(dtype)
    sign_bit = _sign_bit(b, bits, dtype)
    if not dtypes.is_float(dtype):
        return b.binary("xor", bits, sign_bit)
    positive_zero = b.select(_is_zero(b, bits, dtype), b.constant(0, bits), bits)
    sign = b.binary("ashr", positive_zero, b.constant(size - 1, bits))
    key = b.binary("xor", positive_zero, b.binary("or", sign, sign_bit))
    return b.select(_is_nan(b, bits, dtype), b.constant(-1, bits), key)


def _sign_bit(b: Builder, like: Value, dtype: str) -> Value:
    """Return the bit of the sign."""
    return b.constant(-(1 << (8 * dtypes.itemsize(dtype) - 1)), like)


def _magnitude(b: Builder, bits: Value, dtype: str) -> Value:
    """Return the bits of a float without the sign."""
    ones = (1 << (8 * dtypes.itemsize(dtype) - 1)) - 1
    return b.binary("and", bits, b.constant(ones, bits))


def _is_nan(b: Builder, bits: Value, dtype: str) -> Value:
    """Return whether the bits of a float are NaN."""
    infinity = b.constant(_INFINITY_BITS[dtype], bits)
    return b.binary("icmp ugt", _magnitude(b, bits, dtype), infinity, "bool")


def _is_zero(b: Builder, bits: Value, dtype: str) -> Value:
    """Return whether the bits of a float are 0.0 or -0.0."""
    zero = b.constant(0, bits)
    return b.binary("icmp eq", _magnitude(b, bits, dtype), zero, "bool")


@record
class RadixPlan:
    """The digits and the memory of the sort of a row.

    Attributes:
        dtype: the dtype of the elements.
        is_order: whether the result is the order, not the sorted elements.
        is_contiguous: whether the elements of a row are contiguous.
        digit: the bits of a digit.
    """

    dtype: str
    is_order: bool
    is_contiguous: bool
    digit: int

    @staticmethod
    def of_row(x: Spec, axis: int, is_order: bool) -> RadixPlan:
        """Return the plan for the rows of an array."""
        is_short = x.shape[axis] <= _MAX_SHORT_DIGIT_ROW
        is_narrow = dtypes.itemsize(x.dtype) <= 2
        digit = _SHORT_DIGIT if is_short or is_narrow else _LONG_DIGIT
        return RadixPlan(x.dtype, is_order, prod(x.shape[axis + 1 :]) == 1, digit)

    @property
    def bits(self) -> int:
        """The bits of an element."""
        return 8 * dtypes.itemsize(self.dtype)

    @property
    def digits(self) -> int:
        """The number of digits of a key."""
        return -(-self.bits // self.digit)

    @property
    def buckets(self) -> int:
        """The number of values of a digit."""
        return 1 << self.digit

    @property
    def fields(self) -> tuple[str, ...]:
        """The dtypes of the arrays of records.

        An order moves the index with the key, in one integer if both fit.
        """
        if not self.is_order:
            return (f"int{self.bits}",)
        return ("int64",) if self.bits <= 32 else ("int64", "int32")

    def field_bytes(self, extent: int) -> list[int]:
        """Return the bytes of a buffer of each field."""
        return [align_up(extent * dtypes.itemsize(field)) for field in self.fields]

    def task_bytes(self, extent: int) -> int:
        """Return the scratch memory of a task: two buffers of records, and counts."""
        counts = 4 * self.digits * self.buckets
        return 2 * sum(self.field_bytes(extent)) + align_up(counts)


def emit_radix_sort(plan: RadixPlan) -> Kernel:
    """Emit out[row, :, c] = the order or the sorted elements of x[row, :, c].

    A row of the call is a pair (row, c). The table holds x, the result and the work
    memory. The numbers are the extent, the columns, the bytes of a task's memory, and
    the bytes of a buffer of each field of the records.
    """
    b = _RadixSort(plan)
    with b.loop(b.low, b.high) as row:
        outer, column = b.split(row, b.columns)
        b.sort_row(outer * b.extent * b.columns + column)
    return b


class _RadixSort(Kernel):
    """Emits the sort of one row."""

    def __init__(self, plan: RadixPlan) -> None:
        super().__init__(current().lanes)
        self.plan, self.kind = plan, f"int{plan.bits}"
        self.x = self.address(0, self.kind)
        self.out = self.address(1, "int32" if plan.is_order else self.kind)
        self.extent, self.columns, task = map(self.entry, range(3, 6))
        memory = self.address(2) + self.slot * task
        # The address of each field in the first buffer, and the distance to the second.
        self.fields: list[tuple[Pointer, Index]] = []
        for number, _ in enumerate(plan.fields):
            nbytes = self.entry(6 + number)
            self.fields.append((memory, nbytes))
            memory = memory + nbytes + nbytes
        counts = [memory + 4 * plan.buckets * k for k in range(plan.digits)]
        self.counts = [Pointer(self, address.text, "i32") for address in counts]

    def sort_row(self, first: Number) -> None:
        """Sort the row that starts at an element."""
        self.clear_counts()
        if self.plan.is_order:
            self.fill_records(first)
            self.move_all()
            self.store_order(first)
            return
        is_ambiguous = self.fill_keys(first)
        self.move_all()
        self.store_elements(first)
        if dtypes.is_float(self.plan.dtype):
            with self.when(is_ambiguous):
                self.restore_bits(first)

    # --- keys and counts --------------------------------------------------------------

    def clear_counts(self) -> None:
        """Set all counts to 0."""
        zeros = self.filled(0, "int32")
        total = self.plan.digits * self.plan.buckets
        with self.loop(0, total, self.lanes) as i:
            self.store(zeros, self.counts[0], i, None)

    def fill_records(self, first: Number) -> None:
        """Write records of a key and its index, and count the digits."""
        (memory, _), *others = self.fields
        with self.loop(0, self.extent) as i:
            bits = self.scalar(self.x + (first + i * self.columns), self.kind)
            key = self.to_index(ordered_key(self, bits, self.plan.dtype))
            self.count_digits(key)
            if not others:
                key = self.integer("or", self.integer("shl", key, 32), i)
            self.put_scalar(key, self.at(memory, i, "int64"))
            for indices, _ in others:
                index = self.convert("trunc", i, "int32")
                self.put_scalar(index, self.at(indices, i, "int32"))

    def fill_keys(self, first: Number) -> Value:
        """Write the keys, and count the digits.

        Return whether the bits of an element are lost: of -0.0, or of NaN.
        """
        keys, _ = self.fields[0]
        is_ambiguous = self.compare("ne", self.zero(), 0)
        for low, high, lanes in self.ranges():
            start = [self.constant(0, Value("", self.kind, lanes))]
            with self.accumulate(low, high, max(lanes, 1), start) as iteration:
                i = iteration.index
                bits = self.load_bits(self.x, first, i, lanes)
                self.put(ordered_key(self, bits, self.plan.dtype), keys, i)
                lost = iteration.values[0]
                if dtypes.is_float(self.plan.dtype):
                    is_lost = self.convert("sext", self.has_lost_bits(bits), self.kind)
                    lost = self.binary("or", lost, is_lost)
                iteration.next([lost])
            (lost,) = iteration.values
            lost = self.binary("icmp ne", lost, self.constant(0, lost), "bool")
            is_ambiguous = self.binary(
                "or", is_ambiguous, self.across_lanes("or", lost)
            )
        with self.loop(0, self.extent) as i:
            self.count_digits(
                self.to_index(self.scalar(self.at(keys, i, self.kind), self.kind))
            )
        return is_ambiguous

    def ranges(self) -> list[tuple[Number, Number, int]]:
        """Return the ranges of a row and the lanes of their vectors; 0: scalars."""
        if not self.plan.is_contiguous:
            return [(0, self.extent, 0)]
        full = self.whole_vectors(0, self.extent, self.lanes)
        return [(0, full, self.lanes), (full, self.extent, 0)]

    def load_bits(self, x: Pointer, first: Number, i: Index, lanes: int) -> Value:
        """Load elements of a row as integers."""
        if lanes:
            return self.load(x, first + i, self.kind, None)
        return self.scalar(x + (first + i * self.columns), self.kind)

    def put(self, value: Value, base: Pointer, i: Number) -> None:
        """Store a vector or a scalar from an element on."""
        if value.lanes:
            self.store(value, base, i, None)
        else:
            self.put_scalar(value, self.at(base, i, value.dtype))

    def has_lost_bits(self, bits: Value) -> Value:
        """Return whether an element is -0.0 or NaN."""
        is_negative_zero = self.binary(
            "icmp eq", bits, _sign_bit(self, bits, self.plan.dtype), "bool"
        )
        return self.binary("or", is_negative_zero, _is_nan(self, bits, self.plan.dtype))

    def zero(self) -> Index:
        """Return 0 as a value of a register."""
        return self.index("add i64 0, 0")

    def to_index(self, key: Value) -> Index:
        """Return a key as an integer of 64 bits."""
        if self.plan.bits == 64:
            return Index(self, key.text)
        return self.index(f"zext {key.type} {key} to i64")

    def count_digits(self, key: Index) -> None:
        """Add a key to the counts of all digits."""
        for number, counts in enumerate(self.counts):
            count = counts + self.digit_of(key, number)
            previous = self.scalar(count, "int32")
            self.put_scalar(self.binary("add", previous, Value("1", "int32")), count)

    def digit_of(self, key: Index, number: int) -> Index:
        """Return a digit of a key, with the lowest digit first."""
        shifted = self.index(f"lshr i64 {key}, {number * self.plan.digit}")
        return shifted & (self.plan.buckets - 1)

    # --- moves ------------------------------------------------------------------------

    def move_all(self) -> None:
        """Sort the records by all digits. `sources` are then the sorted records."""
        self.sources, self.targets = self.buffers(self.zero())
        needs_moves = [self.needs_move(k) for k in range(self.plan.digits)]
        self.sum_counts()
        side = self.zero()
        for number, needs_move in enumerate(needs_moves):
            with self.when(needs_move):
                self.move_records(number)
            side = side ^ self.index(f"zext i1 {needs_move} to i64")
            self.sources, self.targets = self.buffers(side)

    def buffers(self, side: Index) -> tuple[list[Pointer], list[Pointer]]:
        """Return the fields of a buffer, and of the other buffer."""
        other = 1 - side
        return (
            [memory + side * nbytes for memory, nbytes in self.fields],
            [memory + other * nbytes for memory, nbytes in self.fields],
        )

    def key_at(self, i: Number) -> tuple[Value, Index]:
        """Return the first field of a record, and its key."""
        field = self.plan.fields[0]
        word = self.scalar(self.at(self.sources[0], i, field), field)
        if not self.plan.is_order:
            return word, self.to_index(word)
        key = Index(self, word.text)
        return word, self.index(f"lshr i64 {key}, 32") if self.plan.bits <= 32 else key

    def needs_move(self, number: int) -> Value:
        """Return whether the keys have different digits."""
        _, key = self.key_at(0)
        count = self.integer_at(
            self.counts[number] + self.digit_of(key, number), "int32"
        )
        return self.compare("ne", count, self.extent)

    def sum_counts(self) -> None:
        """Replace the count of each digit by the sum of the counts before it."""
        first: list[Value] = [self.zero() for _ in self.counts]
        with self.accumulate(0, self.plan.buckets, 1, first) as iteration:
            sums: list[Value] = []
            for number, counts in enumerate(self.counts):
                address, total = counts + iteration.index, iteration.index_of(number)
                count = self.integer_at(address, "int32")
                self.put_scalar(self.convert("trunc", total, "int32"), address)
                sums.append(total + count)
            iteration.next(sums)

    def move_records(self, number: int) -> None:
        """Move each record to its bucket. Records of one digit keep their order."""
        with self.loop(0, self.extent) as i:
            word, key = self.key_at(i)
            count = self.counts[number] + self.digit_of(key, number)
            position = self.integer_at(count, "int32")
            self.put_scalar(self.convert("trunc", position + 1, "int32"), count)
            self.put(word, self.targets[0], position)
            if self.plan.fields[1:]:
                index = self.scalar(self.at(self.sources[1], i, "int32"), "int32")
                self.put(index, self.targets[1], position)

    # --- results ----------------------------------------------------------------------

    def store_order(self, first: Number) -> None:
        """Store the indices of the sorted records."""
        with self.loop(0, self.extent) as i:
            # The index is in the lowest bits of a single field.
            index = self.scalar(
                self.at(self.sources[-1], i, self.plan.fields[-1]), "int32"
            )
            self.put_scalar(index, self.out + (first + i * self.columns))

    def store_elements(self, first: Number) -> None:
        """Store the elements of the sorted keys."""
        for low, high, lanes in self.ranges():
            with self.loop(low, high, max(lanes, 1)) as i:
                if lanes:
                    key = self.load(self.sources[0], i, self.kind, None)
                else:
                    key = self.scalar(self.at(self.sources[0], i, self.kind), self.kind)
                self.put(self.bits_of(key), self.out, first + i * self.columns)

    def bits_of(self, key: Value) -> Value:
        """Return the bits of the element with a key."""
        if self.plan.dtype.startswith("u"):
            return key
        if not dtypes.is_float(self.plan.dtype):
            return self.binary("xor", key, _sign_bit(self, key, self.plan.dtype))
        is_positive = self.binary("ashr", key, self.constant(self.plan.bits - 1, key))
        is_negative = self.binary("xor", is_positive, self.constant(-1, key))
        flipped = self.binary("or", is_negative, _sign_bit(self, key, self.plan.dtype))
        return self.binary("xor", key, flipped)

    def restore_bits(self, first: Number) -> None:
        """Store the zeros and the NaN of the row again, in their order.

        Zeros follow the negative numbers, and NaN follows all numbers.
        """
        with self.accumulate(0, self.extent, 1, [self.zero(), self.zero()]) as counts:
            bits = self.load_bits(self.x, first, counts.index, 0)
            is_nan = _is_nan(self, bits, self.plan.dtype)
            is_special = self.binary(
                "or", is_nan, _is_zero(self, bits, self.plan.dtype)
            )
            has_sign = self.binary("icmp slt", bits, self.constant(0, bits), "bool")
            is_negative = self.binary("and", has_sign, self.opposite(is_special))
            flags = is_negative, self.opposite(is_nan)
            counts.next(
                [self.added(counts.index_of(k), x) for k, x in enumerate(flags)]
            )
        positions = list(counts.values)
        with self.accumulate(0, self.extent, 1, positions) as iteration:
            bits = self.load_bits(self.x, first, iteration.index, 0)
            flags = (
                _is_zero(self, bits, self.plan.dtype),
                _is_nan(self, bits, self.plan.dtype),
            )
            for number, is_selected in enumerate(flags):
                position = first + iteration.index_of(number) * self.columns
                with self.when(is_selected):
                    self.put(bits, self.out, position)
            iteration.next(
                [self.added(iteration.index_of(k), x) for k, x in enumerate(flags)]
            )

    def added(self, count: Index, condition: Value) -> Index:
        """Return a count, increased by one where a condition holds."""
        return count + self.index(f"zext i1 {condition} to i64")
