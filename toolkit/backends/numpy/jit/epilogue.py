"""Epilogues: elementwise nodes after an anchor, applied to its vectors in registers.

A convolution or product computes vectors of its result in registers. The epilogue adds
the bias, applies the activation, and stores the result. The raw result is never stored
in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import CACHE_LINE
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import Graph, Node, Value as GraphValue
from toolkit.ir.extents import fixed_texts
from toolkit.plans.loops.iteration_space import is_row_operand, uniform_value
from toolkit.plans.loops.rule_digests import rule_digest


class Epilogue:
    """The nodes after the anchor of a body, applied vector by vector.

    Args:
        body: the first node is the anchor; the other nodes are elementwise or reshapes.
            Their operands have the size of the result, one element for each column or
            for each row of the result, or one element.
        builder: the builder of the kernel.
        bases: pointers, in the order of the body's inputs and outputs.
    """

    def __init__(self, body: Graph, builder: Kernel, bases: Sequence[Pointer]) -> None:
        self.body = body
        self.b = builder
        self.anchor: Node = body.nodes[0]
        self.nodes: tuple[Node, ...] = body.nodes[1:]
        self.size: Any = self.anchor.outputs[0].spec.size
        operands = (*body.inputs, *body.outputs)
        self.addresses = bases
        self.bases: dict[Any, Pointer] = dict(zip(operands, bases, strict=True))
        read = {x for node in self.nodes for x in node.inputs}
        self.operands: list[Any] = [x for x in body.inputs if x in read]

    @classmethod
    def of_table(cls, body: BodyStructure, builder: Kernel) -> Epilogue:
        """Return the epilogue of a body whose addresses are the next of the table."""
        graph = body.body
        bases = [builder.next_address() for _ in (*graph.inputs, *graph.outputs)]
        return cls(graph, builder, bases)

    @property
    def has_columns(self) -> bool:
        """Whether an operand has one element for each column of the result."""
        return any(x.spec.size not in (1, self.size) for x in self.operands)

    @property
    def reads_elements(self) -> bool:
        """Whether an operand has one element for each element of the result."""
        return any(x.spec.size == self.size for x in self.operands)

    def columns(self, column: Number, mask: Mask = None) -> dict[GraphValue, Value]:
        """Load the operands that one column of the result shares."""
        loaded = {}
        for value in self.operands:
            base, dtype = self.bases[value], value.spec.dtype
            # Size 1 counts as full if the result has size 1: larger sizes use its code.
            if value.spec.size == self.size or is_row_operand(value, self.size):
                continue
            if value.spec.size == 1:
                loaded[value] = self.b.splat(self.b.scalar(base, dtype))
            else:
                loaded[value] = self.b.load(base, column, dtype, mask)
        return loaded

    def of_row(self, row: Number) -> dict[GraphValue, Value]:
        """Load the operands that one row of the result shares."""
        shared = [x for x in self.operands if is_row_operand(x, self.size)]
        return {
            x: self.b.splat(
                self.b.scalar(self.b.at(self.bases[x], row, x.spec.dtype), x.spec.dtype)
            )
            for x in shared
        }

    def prefetch(self, element: Number, count: int) -> None:
        """Prefetch the operands and outputs of `apply` for `count` elements.

        The hardware prefetchers do not track accesses with sums of tiles between them.
        """
        read = [x for x in self.operands if x.spec.size == self.size]
        outputs = set(self.body.outputs)
        for value in (*read, *self.body.outputs):
            start = self.b.at(self.bases[value], element, value.spec.dtype)
            is_written = value in outputs
            for byte in range(0, count * dtypes.itemsize(value.spec.dtype), CACHE_LINE):
                self.b.prefetch(start + byte, write=is_written)

    def apply(
        self,
        value: Value,
        element: Number,
        column: Number,
        mask: Mask = None,
        loaded: dict[GraphValue, Value] | None = None,
    ) -> None:
        """Compute and store one vector of every output.

        Args:
            value: a vector of the anchor's result.
            element: the index of its first element in the result.
            column: the index of its first element in the last axis.
            mask: the lanes that exist; None: all.
            loaded: the results of `columns` for this column and of `of_row` for this
                row.
        """
        values = dict(self.columns(column, mask) if loaded is None else loaded)
        values[self.anchor.outputs[0]] = value
        for x in self.operands:
            if x not in values:
                base = self.bases[x]
                values[x] = self.b.load(base, element, x.spec.dtype, mask)
        scalars = LLVMScalars(self.b)
        for node in self.nodes:
            arguments = [values.get(x) or self._literal(x) for x in node.inputs]
            rule = node.op.scalar
            values[node.outputs[0]] = (
                arguments[0]
                if rule is None
                else rule(scalars, *arguments, **node.attrs)
            )
        for y in self.body.outputs:
            self.b.store(values[y], self.bases[y], element, mask)

    def _literal(self, value: Any) -> Value:
        like = Value("", value.spec.dtype, self.b.lanes)
        return self.b.constant(uniform_value(value), like)


class BodyStructure:
    """A body as an argument of `Code`, identified by structure and not by extents.

    Two bodies are equal if the same nodes compute on values of the same dtypes with the
    same broadcasting.
    """

    def __init__(self, body: Graph) -> None:
        self.body = body
        with fixed_texts():  # an extent in an attribute is a constant in the code
            self.text: str = _describe_body(body)

    def __repr__(self) -> str:
        return self.text


def _describe_body(body: Graph) -> str:
    size = body.nodes[0].outputs[0].spec.size
    read = {x for node in body.nodes[1:] for x in node.inputs}
    names = {}
    for i, value in enumerate(body.inputs):
        # The extents of factors do not affect the epilogue.
        extent = _extent(value, size) if value in read else "factor"
        names[value] = f"x{i}:{value.spec.dtype}:{extent}"
    lines = []
    for i, node in enumerate(body.nodes):
        inputs = [names.get(x) or _constant(x) for x in node.inputs]
        attrs = tuple(sorted(node.attrs.items())) if i and node.op.scalar else ()
        formula_digest = rule_digest(node.op.scalar, len(inputs), attrs)
        for k, value in enumerate(node.outputs):
            names[value] = f"v{i}.{k}:{value.spec.dtype}"
        name = names[node.outputs[0]]
        lines.append(f"{name}={node.op.name}{formula_digest}({inputs}){attrs}")
    return ";".join([*lines, *(names[y] for y in body.outputs)])


def _extent(value: Any, size: int) -> str:
    if value.spec.size == size:
        return "full"
    if is_row_operand(value, size):
        return "rows"
    return "one" if value.spec.size == 1 else "columns"


def _constant(value: Any) -> str:
    return f"{value.spec.dtype}:{uniform_value(value).tobytes().hex()}"
