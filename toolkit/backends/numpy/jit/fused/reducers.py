"""Reductions of vectors to one value: sums, extremes, and positions of extremes."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.loops.plan import MERGES, identity

State = list[Value]


def reducer(op: str, dtype: str, builder: Kernel) -> Reducer:
    """Return the reducer of a primitive for elements of a dtype."""
    kind = ArgReducer if op.startswith("arg") else Reducer
    return kind(op, dtype, builder)


class Reducer:
    """Reducer with an associative operation.

    A state is a list of vectors: the partial result of each lane.
    """

    def __init__(self, op: str, dtype: str, builder: Kernel) -> None:
        self.op = op
        self.dtype = dtype
        self.b = builder
        self.scalars: LLVMScalars = LLVMScalars(builder)
        self.like: Value = Value("", dtype, builder.lanes)

    def initial(self) -> State:
        """Return the identity state."""
        return [self.b.constant(identity(self.op, self.dtype), self.like)]

    def add(self, state: State, value: Value, mask: Mask, index: Number) -> State:
        """Accumulate a vector.

        Args:
            mask: the active lanes; None: all lanes.
            index: the index of its first element in the row.
        """
        if mask is not None:
            value = self.b.select(mask, value, self.initial()[0])
        return self.merge(state, [value])

    def merge(self, a: State, b: State) -> State:
        """Merge two states."""
        combine = getattr(self.scalars, MERGES[self.op])
        return [combine(a[0], b[0])]

    def finish(self, state: State) -> Value:
        """Reduce the lanes by halves and return the result in every lane.

        Each half is a narrower vector. With whole vectors of which only the first lane
        is used, LLVM 22 adds the first lane of the last pair to itself.
        """
        width = self.b.lanes
        while width > 1:
            width //= 2
            low, high = (
                [self.extract_lanes(x, i, width) for x in state] for i in (0, width)
            )
            state = self.merge(low, high)
        return self.b.splat(self.result(state))

    def result(self, state: State) -> Value:
        """Return the vector of a state that contains the result."""
        return state[-1]

    def extract_lanes(self, x: Value, start: int, width: int) -> Value:
        """Extract the lanes of a vector from `start` on; one lane is a scalar."""
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


class ArgReducer(Reducer):
    """Reducer for the index of the first maximum or minimum; NaN is beyond all."""

    def initial(self) -> State:
        """Return a state that is worse than every element, with a larger index."""
        worst = identity(self.op, self.dtype)
        last = Value("", "int32", self.b.lanes)
        return [
            self.b.constant(worst, self.like),
            self.b.constant(2**31 - 1, last),
        ]

    def add(self, state: State, value: Value, mask: Mask, index: Number) -> State:
        """Accumulate a vector of the elements at index, index + 1, ..."""
        start = self.b.int32(self.b.int64(index))
        indices = self.b.binary("add", start, self.b.lane_numbers())
        if mask is not None:
            worst, last = self.initial()
            value = self.b.select(mask, value, worst)
            indices = self.b.select(mask, indices, last)
        return self.merge(state, [value, indices])

    def merge(self, a: State, b: State) -> State:
        """Select the better element of each lane; the lower index if equal."""
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
