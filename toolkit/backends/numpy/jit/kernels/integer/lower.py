"""From an integer product to calls: both factors as words, and the product of those."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toolkit.backends.base import Operand, aligned
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.epilogue import Described
from toolkit.backends.numpy.jit.kernels.integer.pack import (
    WORD_BYTES,
    PanelNumbers,
    RowNumbers,
    emit_pack_panels,
    emit_pack_rows,
    panel_bytes,
)
from toolkit.backends.numpy.jit.kernels.integer.product import (
    IntegerNumbers,
    IntegerPlan,
    emit_integer_product,
)
from toolkit.backends.numpy.jit.kernels.integer.words import words_of
from toolkit.backends.numpy.jit.lowering import TASKS, Call, Lowered, Reference
from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph

# Products that are worth a task, and bytes that are.
_TASK_PRODUCTS = 1 << 22
_TASK_BYTES = 1 << 18


def lower_matmul_integer(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """A product of rows and one matrix, and the elementwise nodes on it."""
    anchor, places = body.nodes[0], {v: i for i, v in enumerate(body.inputs)}
    if any(x not in places for x in anchor.inputs):
        return None
    a, b = (places[x] for x in anchor.inputs)
    if inputs[b].spec.ndim != 2 or not all(x.is_contiguous for x in inputs):
        return None
    if not anchor.outputs[0].spec.size:
        return Lowered()
    return _Lowering(body, a, b).lowered()


class _Lowering:
    """The calls of one product.

    Args:
        body: its first node is the product.
        a, b: which inputs the factors are.
    """

    def __init__(self, body: Graph, a: int, b: int) -> None:
        self.body, self.a, self.b = body, a, b
        shape = body.inputs[a].spec.shape
        self.rows: int = prod(shape[:-1])
        self.depth: int = shape[-1]
        self.columns: int = body.inputs[b].spec.shape[-1]
        processor = current()
        self.words = words_of(processor)
        self.count: int = -(-self.depth // self.words.terms)
        lanes = processor.lanes
        rows, vectors = (6, 4) if processor.registers >= 32 else (4, 2)
        vectors = min(vectors, -(-self.columns // lanes))
        full, rest = divmod(self.columns, vectors * lanes)
        # Bytes in their order are words already where nothing is to be added to them.
        is_plain = self.words.terms == 4 and not self.words.offset
        self.plan = IntegerPlan(
            self.words,
            lanes,
            rows,
            vectors,
            full > 0,
            -(-rest // lanes),
            a if is_plain and self.depth % 4 == 0 else None,
        )
        self.panels: int = full + (rest > 0)

    def lowered(self) -> Lowered:
        """All calls, in order."""
        panels = panel_bytes(self.count, self.plan.width)
        of_rows: Reference = ("work", aligned(panels * self.panels))
        calls = [self._pack_panels(panels)]
        if self.plan.a is None:
            calls.append(self._pack_rows(of_rows))
        calls.append(self._multiply(of_rows, panels))
        work = aligned(self.rows * self.count * WORD_BYTES)
        return Lowered(calls, of_rows[1] + (work if self.plan.a is None else 0))

    def _pack_panels(self, size: int) -> Call:
        code = Code(emit_pack_panels, self.words, self.plan.lanes, self.plan.vectors)
        nbytes = self.depth * self.columns + size * self.panels
        return Call(
            code,
            (("in", self.b), ("work", 0)),
            PanelNumbers(self.columns, self.depth, size),
            self.panels,
            _grain(self.panels, nbytes // _TASK_BYTES),
            nbytes=nbytes,
            prepares=size * self.panels,
        )

    def _pack_rows(self, place: Reference) -> Call:
        nbytes = self.rows * (self.depth + self.count * WORD_BYTES)
        return Call(
            Code(emit_pack_rows, self.words, self.plan.lanes),
            (("in", self.a), place),
            RowNumbers(self.depth, self.count * WORD_BYTES),
            self.rows,
            _grain(self.rows, nbytes // _TASK_BYTES),
            nbytes=nbytes,
        )

    def _multiply(self, of_rows: Reference, panel: int) -> Call:
        body, plan = self.body, self.plan
        tiles = -(-self.rows // plan.rows)
        block = -(-tiles // TASKS) * plan.rows
        blocks = -(-self.rows // block)
        products = self.rows * self.depth * self.columns
        operands: list[Reference] = [("in", i) for i in range(len(body.inputs))]
        operands += [("out", i) for i in range(len(body.outputs))]
        operands += [] if plan.a is not None else [of_rows]
        row = self.depth if plan.a is not None else self.count * WORD_BYTES
        moved = sum(v.spec.nbytes for v in (*body.inputs, *body.outputs))
        return Call(
            Code(emit_integer_product, plan, Described(body)),
            (*operands, ("work", 0)),
            IntegerNumbers(
                self.rows, self.columns, self.count, row, panel, block, blocks
            ),
            blocks * self.panels,
            _grain(blocks * self.panels, products // _TASK_PRODUCTS),
            flops=2 * products,
            nbytes=moved,
        )


def _grain(rows: int, most: int) -> int:
    """The rows of a task, of no more than so many tasks."""
    return -(-rows // max(1, min(TASKS, rows, most)))
