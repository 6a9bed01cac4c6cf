"""The forward pass: the output, and the row statistics for the backward pass."""

from __future__ import annotations

from functools import partial

from toolkit.backends.numpy.jit.builder import Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.attention.loops import (
    BlockFunction,
    emit_attention_loops,
)
from toolkit.backends.numpy.jit.kernels.attention.masks import LogitMasks
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    INITIAL_MAXIMUM,
    VECTORS,
    AttentionPlan,
    AttentionWriter,
)

INPUTS = ("query", "key", "value")
OUTPUTS = ("out", "peak", "total")
# The number of independent maxima per iteration.
_UNROLL = 4


def operands(plan: AttentionPlan) -> tuple[str, ...]:
    """Return the arrays in the order of the table."""
    return (*INPUTS, *(extra.name for extra in plan.extras), *OUTPUTS)


def scratch(plan: AttentionPlan) -> list[int]:
    """Return the scratch lines of queries, sums, factors, logits, and extras."""
    sizes = [plan.features, plan.value_features, 1, plan.keys]
    return sizes + [plan.keys] * len(plan.per_target)


def emit_attention(plan: AttentionPlan) -> Kernel:
    """Emit the kernel of a plan."""
    return emit_attention_loops(plan, operands(plan), _Block, sum(scratch(plan)))


class _Block:
    """Emits the function for one block of queries."""

    def __init__(self, writer: AttentionWriter, function: BlockFunction) -> None:
        self.w = writer
        self.b = writer.b
        self.plan = writer.plan
        self.function = function
        areas = writer.areas(scratch(self.plan))
        self.queries, self.sums, self.factors, self.logits, *extras = areas
        self.masks = LogitMasks(writer, function.bases, function.first, extras)

    def emit(self) -> None:
        w, b, plan, bases = self.w, self.b, self.plan, self.function.bases
        first, end = self.function.first, self.function.end
        step = w.row_stride("query")
        w.transpose_in(
            bases["query"], step, first, self.queries, plan.features, plan.scale
        )
        lowest = b.constant(INITIAL_MAXIMUM[plan.dtype], w.zero)
        initial = [lowest] * VECTORS + [w.zero] * VECTORS
        with b.accumulate(0, end, plan.keys, initial) as iteration:
            iteration.next(self._keys(iteration.index, iteration.values))
        peaks, totals = iteration.values[:VECTORS], iteration.values[VECTORS:]
        if plan.causal and self.masks.has_extras:
            needs_rest = self._needs_masked_keys(peaks)
            with b.when(needs_rest):
                self.function.call_again(b, w.n["sources"])
            with b.when(b.opposite(needs_rest)):
                self._apply_epilogue(peaks, totals)
        else:
            self._apply_epilogue(peaks, totals)

    def _apply_epilogue(self, peaks: list[Value], totals: list[Value]) -> None:
        w, b, plan, bases = self.w, self.b, self.plan, self.function.bases
        first, step = self.function.first, w.row_stride("out")
        one = b.constant(1.0, w.zero)
        w.store_line([b.binary("fdiv", one, x) for x in totals], self.factors, 0)
        w.transpose_out(
            self.sums, bases["out"], step, first, plan.value_features, self.factors
        )
        w.store_rows(peaks, bases["peak"], first)
        w.store_rows(totals, bases["total"], first)

    def _needs_masked_keys(self, peaks: list[Value]) -> Value:
        """Return whether skipped keys matter because all earlier keys are masked."""
        is_short = self.function.end < self.w.n["sources"]
        is_masked = self.masks.are_all_masked(peaks)
        return self.b.let(f"and i1 {is_short}, {is_masked}", "bool")

    def _keys(self, start: Number, values: list[Value]) -> list[Value]:
        """Process a block of keys. The values are maxima and sums of weights."""
        w, b, plan, bases = self.w, self.b, self.plan, self.function.bases
        old_peaks, totals = values[:VECTORS], values[VECTORS:]
        count = b.min(self.function.end - start, plan.keys)
        key_step, value_step = w.row_stride("key"), w.row_stride("value")
        keys, item = bases["key"] + start * key_step, w.itemsize
        w.multiply(
            keys,
            self.queries,
            self.logits,
            count,
            plan.features,
            (key_step, item, w.line, w.line),
        )
        peaks = self._peaks(start, count, old_peaks)
        shifts = [b.binary("fsub", x, y) for x, y in zip(old_peaks, peaks, strict=True)]
        factors = [w.exponential(x) for x in shifts]
        earlier = b.min(start, 1)
        with b.loop(0, earlier * plan.value_features) as feature:
            line = w.load_line(self.sums, feature)
            pairs = zip(line, factors, strict=True)
            w.store_line([b.binary("fmul", x, y) for x, y in pairs], self.sums, feature)
        pairs = zip(totals, factors, strict=True)
        totals = [b.binary("fmul", x, y) for x, y in pairs]
        totals = self._exponentiate(count, peaks, totals)
        rows = bases["value"] + start * value_step
        w.multiply(
            rows,
            self.logits,
            self.sums,
            plan.value_features,
            count,
            (item, value_step, w.line, w.line),
            earlier,
        )
        return [*peaks, *totals]

    def _peaks(self, start: Number, count: Number, peaks: list[Value]) -> list[Value]:
        """Apply bias and masks to the logits, and return their maxima."""
        w, limits = self.w, self.masks
        limits.prepare(start, count)
        unmasked = self.function.unmasked_keys(self.b, start, count)

        def apply_masks(key: Number, maxima: list[Value], causal: bool) -> list[Value]:
            logits = w.load_line(self.logits, key)
            logits, _ = limits.apply(logits, start, key, causal)
            w.store_line(logits, self.logits, key)
            return [w.maximum(x, y) for x, y in zip(logits, maxima, strict=True)]

        if limits.has_extras:
            peaks = w.each_key(0, unmasked, peaks, partial(apply_masks, causal=False))
        else:
            peaks = self._unmasked_peaks(unmasked, peaks)
        if self.plan.causal:
            peaks = w.each_key(
                unmasked, count, peaks, partial(apply_masks, causal=True)
            )
        return peaks

    def _unmasked_peaks(self, count: Number, peaks: list[Value]) -> list[Value]:
        w, b = self.w, self.b

        def body(key: Number, maxima: list[Value]) -> list[Value]:
            logits = w.load_line(self.logits, key)
            return [w.maximum(x, y) for x, y in zip(logits, maxima, strict=True)]

        full = count & -_UNROLL
        with b.accumulate(0, full, _UNROLL, peaks * _UNROLL) as iteration:
            maxima: list[Value] = []
            for i in range(_UNROLL):
                chunk = iteration.values[i * VECTORS : (i + 1) * VECTORS]
                maxima += body(iteration.index + i, chunk)
            iteration.next(maxima)
        maxima = iteration.values
        while len(maxima) > VECTORS:
            half = len(maxima) // 2
            pairs = zip(maxima[:half], maxima[half:], strict=True)
            maxima = [w.maximum(x, y) for x, y in pairs]
        return w.each_key(full, count, maxima, body)

    def _exponentiate(
        self, count: Number, peaks: list[Value], totals: list[Value]
    ) -> list[Value]:
        """Replace logits by weights, and return the sums of weights."""
        w, b = self.w, self.b

        def body(key: Number, sums: list[Value]) -> list[Value]:
            logits = w.load_line(self.logits, key)
            pairs = zip(logits, peaks, strict=True)
            weights = [w.exponential(b.binary("fsub", x, y)) for x, y in pairs]
            w.store_line(weights, self.logits, key)
            return [b.binary("fadd", x, y) for x, y in zip(sums, weights, strict=True)]

        return w.each_key(0, count, totals, body)
