"""How vectors are combined into one value: sums, extremes, and where they are."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.loops.plan import MERGES, identity
from toolkit.backends.numpy.jit.builder import Mask, Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.scalars import LLVMScalars

State = list[Value]


def reducer(op: str, dtype: str, builder: Kernel) -> Reducer:
    """The reducer of a primitive for elements of a dtype."""
    kind = Position if op.startswith("arg") else Reducer
    return kind(op, dtype, builder)


class Reducer:
    """Combines elements with an associative operation.

    A state is a list of vectors: what each lane has seen.
    """

    def __init__(self, op: str, dtype: str, builder: Kernel) -> None:
        self.op = op
        self.dtype = dtype
        self.b = builder
        self.scalars: LLVMScalars = LLVMScalars(builder)
        self.like: Value = Value("", dtype, builder.lanes)

    def initial(self) -> State:
        """What changes nothing."""
        return [self.b.constant(identity(self.op, self.dtype), self.like)]

    def add(self, state: State, value: Value, mask: Mask, index: Number) -> State:
        """One more vector.

        Args:
            mask: the lanes that count; None: all.
            index: the position of its first element in the row.
        """
        if mask is not None:
            value = self.b.select(mask, value, self.initial()[0])
        return self.merge(state, [value])

    def merge(self, a: State, b: State) -> State:
        """Two states as one."""
        combine = getattr(self.scalars, MERGES[self.op])
        return [combine(a[0], b[0])]

    def finish(self, state: State) -> Value:
        """The result, in every lane: halves are combined until one element is left.

        Halves are vectors of their own. In whole vectors, whose first lane alone counts
        at the end, LLVM 22 adds the first lane of the last pair to itself.
        """
        width = self.b.lanes
        while width > 1:
            width //= 2
            low, high = ([self.part(x, i, width) for x in state] for i in (0, width))
            state = self.merge(low, high)
        return self.b.splat(self.result(state))

    def result(self, state: State) -> Value:
        """The vector of a state that holds the result."""
        return state[-1]

    def part(self, x: Value, start: int, width: int) -> Value:
        """The lanes of a vector from `start` on; a single one as a scalar."""
        if width == 1:
            text = f"extractelement {x.type} {x.text}, i64 {start}"
            return self.b.let(text, x.dtype)
        lanes = ", ".join(f"i32 {i}" for i in range(start, start + width))
        return self.b.let(
            f"shufflevector {x.type} {x.text}, {x.type} poison, "
            f"<{width} x i32> <{lanes}>",
            x.dtype,
            width,
        )


class Position(Reducer):
    """Where the first greatest or least element is; NaN counts as beyond all."""

    def initial(self) -> State:
        """Worse than everything, and behind it."""
        worst = identity(self.op, self.dtype)
        last = Value("", "int32", self.b.lanes)
        return [
            self.b.constant(worst, self.like),
            self.b.constant(2**31 - 1, last),
        ]

    def add(self, state: State, value: Value, mask: Mask, index: Number) -> State:
        """One more vector, of the elements at index, index + 1, ..."""
        start = self.b.int32(self.b.int64(index))
        place = self.b.binary("add", start, self.b.lane_numbers())
        if mask is not None:
            worst, last = self.initial()
            value = self.b.select(mask, value, worst)
            place = self.b.select(mask, place, last)
        return self.merge(state, [value, place])

    def merge(self, a: State, b: State) -> State:
        """The better of each lane; of equals, the one in front."""
        s = self.scalars
        (x, i), (y, k) = a, b
        better = s.less(x, y) if self.op == "argmax" else s.less(y, x)
        same = s.equal(x, y)
        if dtypes.is_float(self.dtype):
            x_nan, y_nan = s.isnan(x), s.isnan(y)
            better = s.logical_or(better, s.logical_and(y_nan, s.logical_not(x_nan)))
            same = s.logical_or(same, s.logical_and(x_nan, y_nan))
        better = s.logical_or(better, s.logical_and(same, s.less(k, i)))
        return [s.select(better, y, x), s.select(better, k, i)]
