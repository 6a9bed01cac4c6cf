"""Bias and masks of logits, for a block of keys at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.kernels.attention.transpose import (
    COLUMNS,
    gather_quad,
    load_quad,
    quad_mask,
    transpose_quads,
)
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    MASKED_LOGIT,
    VECTORS,
    AttentionWriter,
    Extra,
)


class LogitMasks:
    """The bias and the masks of a block of queries.

    Args:
        writer: the emitter of the function.
        bases: the pointers to the extras of this head, by name.
        first: the index of the block's first query.
        areas: scratch memory for each extra that is transposed, a line per key.
    """

    def __init__(
        self,
        writer: AttentionWriter,
        bases: Mapping[str, Pointer],
        first: Number,
        areas: Sequence[Pointer],
    ) -> None:
        self.w = writer
        self.b = writer.b
        self.bases = bases
        self.first = first
        self.queries: list[Value] = (
            writer.lane_numbers(first) if writer.plan.causal else []
        )
        names = [extra.name for extra in writer.plan.per_target]
        self.areas: dict[str, Pointer] = dict(zip(names, areas, strict=True))

    @property
    def has_extras(self) -> bool:
        """Return whether there is a bias or a mask that is not causal."""
        return bool(self.w.plan.extras)

    def prepare(self, start: Number, count: Number) -> None:
        """Transpose the extras of the keys from `start` on."""
        for extra in self.w.plan.per_target:
            self._transpose(extra, start, count)

    def _transpose(self, extra: Extra, start: Number, count: Number) -> None:
        w, b = self.w, self.b
        base = self.bases[extra.name] + start * w.steps[extra.name]
        row = w.strides[extra.name].row
        with b.loop(0, VECTORS) as vector:
            rows = w.rows(base, row, vector * w.plan.lanes + self.first)
            lines = self.areas[extra.name] + vector * w.vector_bytes
            with b.loop(0, count, COLUMNS) as key:
                for j, value in enumerate(
                    transpose_quads(b, self._quads(extra, rows, key, count))
                ):
                    w.store_vector(value, lines + (key + j) * w.line)

    def _quads(
        self, extra: Extra, rows: Sequence[Pointer], key: Number, count: Number
    ) -> list[Value]:
        """Return four sources of each row. Booleans become 1.0 and 0.0."""
        w, b, step = self.w, self.b, self.w.steps[extra.name]
        if extra.layout == "next":
            mask = quad_mask(b, count - key)
            addresses = [row + key * step for row in rows]
            quads = [load_quad(b, address, extra.dtype, mask) for address in addresses]
        else:
            last = count - 1
            numbers = [b.min(key + i, last) for i in range(COLUMNS)]
            offsets = [number * step for number in numbers]
            quads = [
                gather_quad(b, [row + offset for offset in offsets], extra.dtype)
                for row in rows
            ]
        if extra.dtype != "bool":
            return quads
        return [b.convert("uitofp", x, w.dtype) for x in quads]

    def _number(self, number: float) -> Value:
        return self.b.constant(number, self.w.zero)

    def apply(
        self, logits: Sequence[Value], start: Number, key: Number, causal: bool
    ) -> tuple[list[Value], list[Value] | None]:
        """Return the logits of a key with bias and masks, and the allowed lanes.

        Args:
            logits: the logits of the key for the block's queries.
            start, key: the first key of the block, and the index of this key in the
                block.
            causal: whether the key may be after a query.
        """
        b, result = self.b, list(logits)
        number = start + key
        allowed: list[Value] | None = None
        for extra in self.w.plan.extras:
            values = self._values(extra, key, number)
            if extra.name == "bias":
                result = [
                    b.binary("fadd", x, y) for x, y in zip(result, values, strict=True)
                ]
            else:
                allowed = values
        if causal:
            splat = b.splat(b.int64(number))
            visible = [b.binary("icmp sle", splat, q, "bool") for q in self.queries]
            if allowed is not None:
                visible = [
                    b.binary("and", x, y) for x, y in zip(visible, allowed, strict=True)
                ]
            allowed = visible
        if allowed is not None:
            masked = self._number(MASKED_LOGIT)
            pairs = zip(allowed, result, strict=True)
            result = [b.select(condition, x, masked) for condition, x in pairs]
        return result, allowed

    def _values(self, extra: Extra, key: Number, number: Number) -> list[Value]:
        w, b = self.w, self.b
        if extra.layout == "one":
            address = self.bases[extra.name] + number * w.steps[extra.name]
            return [b.splat(w.b.scalar(address, extra.dtype))] * VECTORS
        values = w.load_line(self.areas[extra.name], key)
        if extra.dtype == "bool":
            return [b.binary("fcmp one", x, w.zero, "bool") for x in values]
        return values

    def are_all_masked(self, peaks: Sequence[Value]) -> Value:
        """Return whether all logits of any row are masked, given their maxima."""
        b = self.b
        conditions = [
            b.binary("fcmp ole", x, self._number(MASKED_LOGIT), "bool") for x in peaks
        ]
        any_masked = conditions[0]
        for condition in conditions[1:]:
            any_masked = b.binary("or", any_masked, condition)
        return b.across_lanes("or", any_masked)
