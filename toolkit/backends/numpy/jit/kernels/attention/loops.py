"""The loops of an attention kernel over heads and blocks of queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Range
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask
from toolkit.backends.numpy.jit.kernels.attention.writer import (
    PACKED,
    AttentionPlan,
    AttentionWriter,
)


class BlockFunction:
    """The parameters of the function for one block of queries, and calls of it.

    Attributes:
        bases: the addresses of this head in the arrays.
        first: the block's first query.
        end: the end of the range of keys that its queries attend to.
    """

    first: Index
    end: Index

    def __init__(
        self, plan: AttentionPlan, operands: Sequence[str], builder: Kernel
    ) -> None:
        self.plan = plan
        self.bases: dict[str, Pointer] = {
            name: builder.pointer_parameter(f"base_{name}") for name in operands
        }
        self.first, self.end = builder.parameter("first"), builder.parameter("end")

    @property
    def parameters(self) -> list[str]:
        """Return the parameters of the function."""
        pointers = [f"ptr {base}" for base in self.bases.values()]
        return ["ptr %table", "i64 %slot", *pointers, "i64 %first", "i64 %end"]

    def call(
        self, b: Kernel, bases: Sequence[Pointer], first: Number, end: Number
    ) -> None:
        """Emit a call."""
        values = [b.table, b.slot, *bases, first, end]
        kinds = [parameter.split()[0] for parameter in self.parameters]
        arguments = ", ".join(f"{k} {v}" for k, v in zip(kinds, values, strict=True))
        b.emit(f"call void @block({arguments})")

    def call_again(self, b: Kernel, end: Number) -> None:
        """Call the function for the same block with a different end of keys."""
        self.call(b, list(self.bases.values()), self.first, end)

    def unmasked_keys(self, b: Kernel, start: Number, count: Number) -> Number:
        """Return the number of keys in a block that all queries attend to."""
        if not self.plan.causal:
            return count
        visible = self.first + 1 - start
        return b.max(b.min(visible, count), 0)


def emit_attention_loops(
    plan: AttentionPlan,
    operands: Sequence[str],
    block: Callable[[AttentionWriter, BlockFunction], Any],
    lines: int,
    sums: Sequence[str] = (),
) -> Kernel:
    """Emit a kernel.

    Args:
        plan: the properties that the code depends on.
        operands: the names of its arrays.
        block: block(writer, visit).emit() emits the function for a block of queries.
        lines: of scratch memory that the function uses.
        sums: the arrays to which all blocks of a key head add.
    """
    inner = AttentionWriter(plan, operands)
    function = BlockFunction(plan, operands, inner.b)
    block(inner, function).emit()
    w = AttentionWriter(plan, operands)
    w.b.declarations |= inner.b.internal_function("block", function.parameters)
    _HeadLoops(w, function, lines, sums).emit()
    return w.b


class _HeadLoops:
    """Emits the loops."""

    def __init__(
        self,
        writer: AttentionWriter,
        function: BlockFunction,
        lines: int,
        sums: Sequence[str],
    ) -> None:
        self.w = writer
        self.b = writer.b
        self.plan = writer.plan
        self.function = function
        self.sums = sums
        # The addresses of the packed rows of `PACKED`, in order.
        self.packed_rows: dict[str, Pointer] = {}
        *_, address = writer.areas([lines, 0])
        for name in PACKED if self.plan.is_packed else ():
            self.packed_rows[name] = address
            size = self.plan.features_of(name) * writer.itemsize
            address = address + writer.n["sources"] * size

    def emit(self) -> None:
        b, n, w = self.b, self.w.n, self.w
        with b.loop(b.low, b.high) as unit:
            batch_group, piece = w.b.split(unit, n["pieces"])
            batch, head_group = w.b.split(batch_group, n["head_groups"])
            targets = w.b.tile_range(piece, n["piece"], n["targets"])
            first = head_group * n["heads"]
            with b.loop(first, first + n["heads"]) as key_head:
                self._group(batch, key_head, targets)

    def _group(self, batch: Number, key_head: Index, targets: Range) -> None:
        """Emit the loop over the query heads of a key head."""
        b, n, w = self.b, self.w.n, self.w
        names = [name for name in self.function.bases if name in PACKED]
        addresses = {name: w.head_address(name, batch, key_head) for name in names}
        rows = {
            name: self.packed_rows.get(name, address)
            for name, address in addresses.items()
        }
        for name in names:
            if name in self.sums:
                self._fill(name, rows[name], None)
            elif name in self.packed_rows:
                self._fill(name, rows[name], addresses[name])
        with b.loop(0, n["group"]) as query_head:
            head = key_head * n["group"] + query_head
            bases = [
                rows.get(name) or w.head_address(name, batch, head)
                for name in self.function.bases
            ]
            with b.loop(*targets, self.plan.width) as first:
                self.function.call(b, bases, first, self._key_end(first))
        for name in self.sums:
            if name in self.packed_rows:
                step = w.strides[name].row
                self._copy(name, rows[name], w.row_stride(name), addresses[name], step)

    def _fill(self, name: str, target: Pointer, source: Pointer | None) -> None:
        """Pack the rows of a head, or set the sums to 0."""
        step = self.w.row_stride(name)
        self._copy(name, source, self.w.strides[name].row, target, step)

    def _copy(
        self,
        name: str,
        source: Pointer | None,
        step: Number,
        target: Pointer,
        target_step: Number,
    ) -> None:
        """Copy a row for each source, or fill it with zeros without a source."""
        w, b, lanes = self.w, self.b, self.plan.lanes
        features = self.plan.features_of(name)
        with b.loop(0, w.n["sources"]) as row:
            row_target = target + row * target_step
            for first in range(0, features, lanes):
                mask = constant_mask(min(lanes, features - first), lanes)
                value, offset = w.zero, first * w.itemsize
                if source is not None:
                    value = w.load_vector(source + row * step + offset, mask)
                w.store_vector(value, row_target + offset, mask)

    def _key_end(self, first: Number) -> Number:
        sources = self.w.n["sources"]
        if not self.plan.causal:
            return sources
        return self.b.min(first + self.plan.width, sources)
