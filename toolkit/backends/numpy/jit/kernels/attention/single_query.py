"""Attention of one query of each head. The lanes of a vector are features, or keys.

Text generation needs this for the next token. In a cache for the longest text, most
keys may be masked: a block whose keys are all masked is not read, nor are its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.attention.forward import operands
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    INITIAL_MAXIMUM,
    MASKED_LOGIT,
    AttentionPlan,
    AttentionWriter,
    Extra,
)

# Keys or values per iteration.
_ROWS = 4


def emit_single(plan: AttentionPlan) -> Kernel:
    """Emit the kernel of a plan. A row of the call is one query of one head."""
    w = AttentionWriter(plan, operands(plan))
    b, heads = w.b, w.n["heads"] * w.n["group"]
    with b.loop(b.low, b.high) as unit:
        batch_head, target = b.split(unit, w.n["targets"])
        _Query(w, *b.split(batch_head, heads), target).emit()
    return b


class _Query:
    """Emits the code for one query, with its logits in scratch memory."""

    def __init__(
        self, writer: AttentionWriter, batch: Number, head: Number, target: Number
    ) -> None:
        self.w, self.b, self.plan = writer, writer.b, writer.plan
        self.target = target
        self.sources = writer.n["sources"]
        self.bases = {name: self._base(name, batch, head) for name in writer.pointers}
        self.logits = writer.scratch

    def _base(self, name: str, batch: Number, head: Number) -> Pointer:
        """Return the address of an operand's rows for this query."""
        if name in ("key", "value"):
            return self.w.head_address(name, batch, head // self.w.n["group"])
        row = self.target * self.w.strides[name].row
        return self.w.head_address(name, batch, head) + row

    def emit(self) -> None:
        """Compute logits, weights, and the weighted mean of the values."""
        w, b = self.w, self.b
        lowest = b.constant(INITIAL_MAXIMUM[self.plan.dtype], w.zero)
        with b.accumulate(0, self.sources, b.lanes, [lowest]) as iteration:
            logits = self._block(iteration.index)
            iteration.next([w.maximum(iteration.values[0], logits)])
        peak = b.splat(self._reduce_lanes(iteration.values[0], w.maximum))
        with b.accumulate(0, self.sources, b.lanes, [w.zero]) as iteration:
            address = self._logit_address(iteration.index)
            weights = w.exponential(b.binary("fsub", w.load_vector(address), peak))
            w.store_vector(weights, address)
            iteration.next([b.binary("fadd", iteration.values[0], weights)])
        total = self._reduce_lanes(iteration.values[0], self._sum)
        b.put_scalar(b.first_lane(peak), self.bases["peak"])
        b.put_scalar(total, self.bases["total"])
        self._average_values(b.splat(total))

    def _logit_address(self, source: Number) -> Pointer:
        return self.logits + source * self.w.itemsize

    # --- logits -----------------------------------------------------------------------

    def _block(self, start: Number) -> Value:
        """Return the logits of a vector of keys. Extra lanes have no effect."""
        w, b = self.w, self.b
        exists = b.first_lanes(self.sources - start)
        allowed = self._allowed_mask(start, exists)
        masked = b.constant(MASKED_LOGIT, w.zero)
        if allowed is None:
            self._dots(start)
        else:
            w.store_vector(masked, self._logit_address(start))
            with b.when(self._any_lane(b.binary("and", allowed, exists))):
                self._dots(start)
        logits = w.load_vector(self._logit_address(start))
        for extra in self.plan.extras:
            if extra.name == "bias":
                bias = self._extra(extra, start, exists)
                logits = b.binary("fadd", logits, bias)
        if allowed is not None:
            logits = b.select(allowed, logits, masked)
        lowest = b.constant(INITIAL_MAXIMUM[self.plan.dtype], w.zero)
        logits = b.select(exists, logits, lowest)
        w.store_vector(logits, self._logit_address(start))
        return logits

    def _dots(self, start: Number) -> None:
        """Compute the products of the query with a vector of keys, a few at a time."""
        w, b = self.w, self.b
        query = [
            b.binary("fmul", x, b.constant(self.plan.scale, x))
            for x in self._features(self.bases["query"], self.plan.features)
        ]
        with b.loop(0, b.min(self.sources - start, b.lanes), _ROWS) as first:
            rows = self._rows("key", start + first)
            for i, row in enumerate(rows):
                total = w.zero
                keys = self._features(row, self.plan.features)
                for x, y in zip(query, keys, strict=True):
                    total = b.intrinsic("fma", x, y, total)
                dot = self._reduce_lanes(total, self._sum)
                b.put_scalar(dot, self._logit_address(start + first + i))

    def _allowed_mask(self, start: Number, exists: Mask) -> Mask:
        """Return the mask of the allowed keys of a vector. None allows all."""
        b, allowed = self.b, None
        for extra in self.plan.extras:
            if extra.name == "mask":
                allowed = self._extra(extra, start, exists)
        if self.plan.causal:
            causal_mask = b.first_lanes(self.target + 1 - start)
            allowed = (
                causal_mask
                if allowed is None
                else b.binary("and", allowed, causal_mask)
            )
        return allowed

    def _extra(self, extra: Extra, start: Number, exists: Mask) -> Value:
        """Return a vector of the bias or the mask."""
        b, step = self.b, self.w.steps[extra.name]
        address = self.bases[extra.name] + start * step
        if extra.layout == "next":
            return b.load(address, 0, extra.dtype, exists)
        return b.gather(address, step, 0, extra.dtype, exists)

    # --- the mean ---------------------------------------------------------------------

    def _average_values(self, total: Value) -> None:
        """Compute the mean of the values. Skip blocks whose weights are all 0."""
        w, b, count = self.w, self.b, self.plan.value_features
        vectors = -(-count // b.lanes)
        with b.accumulate(0, self.sources, b.lanes, [w.zero] * vectors) as blocks:
            weights = w.load_vector(self._logit_address(blocks.index))
            is_nonzero = b.binary("fcmp une", weights, w.zero, "bool")
            remaining = b.min(self.sources - blocks.index, b.lanes)
            end = b.choose(self._any_lane(is_nonzero), remaining, 0)
            with b.accumulate(0, end, _ROWS, blocks.values) as rows:
                first = blocks.index + rows.index
                sums = rows.values
                for i, row in enumerate(self._rows("value", first)):
                    weight = b.splat(b.scalar(self._logit_address(first + i), w.dtype))
                    pairs = zip(self._features(row, count), sums, strict=True)
                    sums = [b.intrinsic("fma", weight, x, y) for x, y in pairs]
                rows.next(sums)
            blocks.next(rows.values)
        for i, value in enumerate(blocks.values):
            mask = b.existing(min(b.lanes, count - i * b.lanes))
            address = self.bases["out"] + i * w.vector_bytes
            w.store_vector(b.binary("fdiv", value, total), address, mask)

    # --- rows -------------------------------------------------------------------------

    def _rows(self, name: str, first: Number) -> list[Pointer]:
        """Return the addresses of rows of keys or values, clamped to the last row.

        The result of a clamped row is not used, or its weight is 0.
        """
        b, step = self.b, self.w.row_stride(name)
        numbers = (b.min(first + i, self.sources - 1) for i in range(_ROWS))
        return [self.bases[name] + number * step for number in numbers]

    def _features(self, address: Pointer, count: int) -> list[Value]:
        """Return the vectors of a row. Lanes after the last feature are 0."""
        b, vectors = self.b, []
        for start in range(0, count, b.lanes):
            mask = b.existing(min(b.lanes, count - start))
            vectors.append(self.w.load_vector(address + start * self.w.itemsize, mask))
        return vectors

    def _any_lane(self, lanes: Value) -> Value:
        """Return whether any lane is true."""
        b, bits = self.b, f"i{self.b.lanes}"
        packed = b.let(f"bitcast {lanes.type} {lanes} to {bits}", "int64")
        return b.let(f"icmp ne {bits} {packed}, 0", "bool")

    def _sum(self, x: Value, y: Value) -> Value:
        return self.b.binary("fadd", x, y)

    def _reduce_lanes(
        self, value: Value, join: Callable[[Value, Value], Value]
    ) -> Value:
        """Reduce a vector to a scalar by a tree of shuffles."""
        b, step = self.b, self.b.lanes // 2
        while step:
            lanes: Sequence[int] = [(i + step) % b.lanes for i in range(b.lanes)]
            value = join(value, b.shuffled(value, value, lanes))
            step //= 2
        return b.first_lane(value)


def scratch_bytes(plan: AttentionPlan, sources: int) -> int:
    """Return the bytes of a task: the logits of a query, in whole vectors."""
    lines = max(plan.lanes, _ROWS)
    return -(-sources // lines) * lines * dtypes.itemsize(plan.dtype)
