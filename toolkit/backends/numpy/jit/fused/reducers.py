"""Reductions of vectors to one value: sums, extremes, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.loops.plan import MERGES, identity

State = list[Value]
# The index of an initial state.
_LAST_INDEX = 2**31 - 1


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

    def add_following(self, state: State, element: State) -> State:
        """Accumulate an element that follows all elements of the state."""
        return self.merge(state, element)

    def merge(self, a: State, b: State) -> State:
        """Merge two states."""
        combine = getattr(self.scalars, MERGES[self.op])
        return [combine(a[0], b[0])]

    def finish(self, state: State) -> Value:
        """Reduce the lanes and return the result in every lane."""
        return self.b.splat(self.result(self.reduce_lanes(state, self.merge)))

    def finish_all(self, states: Sequence[State]) -> Value:
        """Merge the states of several accumulators, and finish."""
        states = list(states)
        while len(states) > 1:
            states = [self.merge(*pair) for pair in pairwise(states)][::2]
        return self.finish(states[0])

    def reduce_lanes(self, state: State, merge: Callable[..., State]) -> State:
        """Reduce the lanes by halves to scalars.

        Each half is a narrower vector. With whole vectors of which only the first lane
        is used, LLVM 22 adds the first lane of the last pair to itself.
        """
        width = self.b.lanes
        while width > 1:
            width //= 2
            low, high = (
                [self.extract_lanes(x, i, width) for x in state] for i in (0, width)
            )
            state = merge(low, high)
        return state

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
        """Return a state that no element is worse than, with a larger index."""
        worst = identity(self.op, self.dtype)
        last = Value("", "int32", self.b.lanes)
        return [
            self.b.constant(worst, self.like),
            self.b.constant(_LAST_INDEX, last),
        ]

    def add(self, state: State, value: Value, mask: Mask, index: Number) -> State:
        """Accumulate a vector of the elements at index, index + 1, ..."""
        start = self.b.int32(self.b.int64(index))
        indices = self.b.binary("add", start, self.b.lane_numbers())
        if mask is not None:
            worst, last = self.initial()
            value = self.b.select(mask, value, worst)
            indices = self.b.select(mask, indices, last)
        return self.add_following(state, [value, indices])

    def add_following(self, state: State, element: State) -> State:
        """Select the element where it is better; of equal elements the first one wins.

        The comparison is also true if one operand is NaN. A NaN of the state wins.
        """
        s = self.scalars
        (x, i), (y, k) = state, element
        if dtypes.is_float(self.dtype):
            condition = "ugt" if self.op == "argmax" else "ult"
            better = self.b.binary(f"fcmp {condition}", y, x, "bool")
            better = s.logical_and(better, self.b.binary("fcmp ord", x, x, "bool"))
        else:
            better = s.less(x, y) if self.op == "argmax" else s.less(y, x)
        return [s.select(better, y, x), s.select(better, k, i)]

    def finish(self, state: State) -> Value:
        """Reduce the lanes and return the result in every lane."""
        return self.finish_all([state])

    def finish_all(self, states: Sequence[State]) -> Value:
        """Return the first index of the best element, or of NaN, in every lane.

        A merge of indices takes several times as long as a merge of elements, so the
        best element is found first.
        """
        s, b = self.scalars, self.b
        best = reduce(self._best, (x for x, _ in states))
        (best,) = self.reduce_lanes([best], lambda x, y: [self._best(x[0], y[0])])
        target = b.splat(best)
        if dtypes.is_float(self.dtype):
            nan = reduce(s.logical_or, (s.isnan(x) for x, _ in states))
            has_nan = b.across_lanes("or", nan)
            target = b.select(has_nan, b.constant(float("nan"), target), target)
        indices = [self._index_of(target, state) for state in states]
        index = reduce(partial(b.intrinsic, "smin"), indices)
        (index,) = self.reduce_lanes(
            [index], lambda x, y: [b.intrinsic("smin", x[0], y[0])]
        )
        return b.splat(self.result([index, index]))

    def _best(self, x: Value, y: Value) -> Value:
        """Return the better element of each lane; any element if one is NaN."""
        s = self.scalars
        wins = s.less(y, x) if self.op == "argmax" else s.less(x, y)
        return s.select(wins, x, y)

    def _index_of(self, target: Value, state: State) -> Value:
        """Return the index of the lanes that are the target or NaN, else the last."""
        s, (x, index) = self.scalars, state
        is_match = s.equal(x, target)
        if dtypes.is_float(self.dtype):
            is_match = s.logical_or(is_match, s.isnan(x))
        return s.select(is_match, index, self.b.constant(_LAST_INDEX, index))

    def result(self, state: State) -> Value:
        """Return the index; 0 if no element is better than the initial state."""
        index = state[1]
        is_initial = self.scalars.equal(index, self.b.constant(_LAST_INDEX, index))
        return self.b.select(is_initial, self.b.constant(0, index), index)

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
