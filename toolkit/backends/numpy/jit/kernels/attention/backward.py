"""The backward pass of attention: it recomputes the weights, block by block."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Number, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.attention.loops import (
    BlockFunction,
    emit_attention_loops,
)
from toolkit.backends.numpy.jit.kernels.attention.masks import LogitMasks
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    AttentionPlan,
    AttentionWriter,
)

INPUTS = ("g", "delta", "peak", "total", "query", "key", "value")
OUTPUTS = ("query_grad", "key_grad", "value_grad")


def operands(plan: AttentionPlan) -> tuple[str, ...]:
    """Return the arrays in the order of the table."""
    return (*INPUTS, *(extra.name for extra in plan.extras), *OUTPUTS)


def scratch(plan: AttentionPlan) -> list[int]:
    """Return the scratch lines of queries, g, sums, weights, changes, and extras."""
    sizes = [plan.features, plan.value_features, plan.features, plan.keys, plan.keys]
    return sizes + [plan.keys] * len(plan.per_target)


def emit_attention_grad(plan: AttentionPlan) -> Kernel:
    """Emit the kernel of a plan."""
    lines = sum(scratch(plan))
    return emit_attention_loops(plan, operands(plan), _Block, lines, sums=OUTPUTS[1:])


class _Block:
    """Emits the function for one block of queries."""

    def __init__(self, writer: AttentionWriter, function: BlockFunction) -> None:
        self.w = writer
        self.b = writer.b
        self.plan = writer.plan
        self.function = function
        areas = writer.areas(scratch(self.plan))
        (
            self.queries,
            self.g,
            self.sums,
            self.weights,
            self.weight_gradients,
            *extras,
        ) = areas
        self.masks = LogitMasks(writer, function.bases, function.first, extras)

    def emit(self) -> None:
        w, b, plan, bases = self.w, self.b, self.plan, self.function.bases
        first = self.function.first
        step, g_step = w.row_stride("query"), w.row_stride("g")
        w.transpose_in(
            bases["query"], step, first, self.queries, plan.features, plan.scale
        )
        w.transpose_in(bases["g"], g_step, first, self.g, plan.value_features, 1.0)
        names = ("peak", "total", "delta")
        self.peaks, totals, self.deltas = (
            w.load_rows(name, bases[name], first) for name in names
        )
        one = b.constant(1.0, w.zero)
        self.inverses = [b.binary("fdiv", one, x) for x in totals]
        end = self._key_end()
        with b.loop(0, end, plan.keys) as start:
            self._keys(start, b.min(end - start, plan.keys))
        step = w.row_stride("query_grad")
        w.transpose_out(self.sums, bases["query_grad"], step, first, plan.features)

    def _key_end(self) -> Number:
        """Return the end of the keys: all keys if the earlier ones are masked."""
        b, end = self.b, self.function.end
        if not (self.plan.causal and self.masks.has_extras):
            return end
        is_masked = self.masks.are_all_masked(self.peaks)
        return b.choose(is_masked, self.w.n["sources"], end)

    def _keys(self, start: Number, count: Number) -> None:
        w, b, plan, bases = self.w, self.b, self.plan, self.function.bases
        steps = {name: w.row_stride(name) for name in w.strides}
        rows = {
            name: bases[name] + start * steps[name]
            for name in ("key", "value", "key_grad", "value_grad")
        }
        item, line = w.itemsize, w.line
        for factor, right, area, features in (
            ("key", self.queries, self.weights, plan.features),
            ("value", self.g, self.weight_gradients, plan.value_features),
        ):
            strides = (steps[factor], item, line, line)
            w.multiply(rows[factor], right, area, count, features, strides)
        self._compute_gradients(start, count)
        remaining = w.n["targets"] - self.function.first
        queries = b.min(remaining, plan.width)
        for name, factor, area, features in (
            ("value_grad", "g", self.weights, plan.value_features),
            ("key_grad", "query", self.weight_gradients, plan.features),
        ):
            first = bases[factor] + self.function.first * steps[factor]
            w.multiply_wide(
                area,
                first,
                rows[name],
                count,
                queries,
                (line, item, steps[factor], steps[name]),
                features,
            )
        w.multiply(
            rows["key"],
            self.weight_gradients,
            self.sums,
            plan.features,
            count,
            (item, steps["key"], line, line),
            b.min(start, 1),
        )

    def _compute_gradients(self, start: Number, count: Number) -> None:
        """Compute the weights, and the gradients of the logits."""
        w = self.w
        self.masks.prepare(start, count)
        unmasked = self.function.unmasked_keys(self.b, start, count)
        w.each_key(
            0, unmasked, [], lambda key, _: self._key_gradients(start, key, False)
        )
        if self.plan.causal:
            w.each_key(
                unmasked,
                count,
                [],
                lambda key, _: self._key_gradients(start, key, True),
            )

    def _key_gradients(self, start: Number, key: Number, causal: bool) -> list[Value]:
        w, b = self.w, self.b
        logits = w.load_line(self.weights, key)
        logits, allowed = self.masks.apply(logits, start, key, causal)
        products = w.load_line(self.weight_gradients, key)
        scale = b.constant(self.plan.scale, w.zero)
        weights, gradients = [], []
        for j, (x, gradient) in enumerate(zip(logits, products, strict=True)):
            weight = w.exponential(b.binary("fsub", x, self.peaks[j]))
            weight = b.binary("fmul", weight, self.inverses[j])
            gradient = b.binary("fsub", gradient, self.deltas[j])
            gradient = b.binary("fmul", b.binary("fmul", weight, gradient), scale)
            if allowed is not None:
                gradient = b.select(allowed[j], gradient, w.zero)
            weights.append(weight)
            gradients.append(gradient)
        w.store_line(weights, self.weights, key)
        w.store_line(gradients, self.weight_gradients, key)
        return []
