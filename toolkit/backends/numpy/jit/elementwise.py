"""Fused elementwise kernels: a graph of elementwise nodes as one loop nest.

A kernel takes one table of 64-bit numbers: the addresses of the outputs and inputs, the
extents of the loops, and for each array its strides in bytes. The stride in the
innermost loop is also part of the kernel: one element (1), none (0), or anything (-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.memory import Memory
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import Graph, Node

DTYPES = ("bool", "int32", "int64", "float32", "float64")
# What the scalar vocabulary can say in LLVM IR.
OPS = frozenset(
    "negative abs sign exp expm1 log log1p sqrt rsqrt sin cos tanh erf sigmoid floor "
    "ceil round trunc isnan isinf isfinite logical_not add subtract multiply divide "
    "power maximum minimum equal not_equal less less_equal logical_and logical_or "
    "logical_xor bitwise_and bitwise_or bitwise_xor where cast stop_gradient".split()
)
_FLOATING = frozenset(
    "exp expm1 log log1p sqrt rsqrt sin cos tanh erf sigmoid power".split()
)


def is_fusable(node: Node) -> bool:
    """Whether a node can be part of a generated kernel."""
    values = (*node.inputs, *node.outputs)
    if node.op.name not in OPS or any(v.spec.dtype not in DTYPES for v in values):
        return False
    source, target = node.inputs[0].spec.dtype, node.outputs[0].spec.dtype
    if node.op.name in _FLOATING:
        return dtypes.is_float(source)
    # Out of range the conversion is undefined here, and defined in NumPy.
    loses = dtypes.is_float(source) and dtypes.is_integer(target)
    return not (node.op.name == "cast" and loses)


def source(body: Graph, rank: int, inner: Sequence[int]) -> str:
    """The LLVM IR of a kernel."""
    builder = Builder(host().lanes)
    _Writer(builder, body, rank, inner).write()
    text = builder.function("kernel", ["ptr noalias %table"])
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" }'
    return "\n".join([*sorted(builder.declarations), text, attributes])


class _Writer:
    """Writes one kernel with a builder."""

    def __init__(
        self, builder: Builder, body: Graph, rank: int, inner: Sequence[int]
    ) -> None:
        self.b = builder
        self.body = body
        self.rank = rank
        self.inner = inner
        self.values = [*body.outputs, *body.inputs]
        self.memory = Memory(builder)

    def write(self) -> None:
        """The loop nest."""
        count = len(self.values)
        bases = [self._entry(i, "ptr") for i in range(count)]
        extents = [self._entry(count + i, "i64") for i in range(self.rank)]
        strides = [
            [
                self._entry(count + self.rank * (1 + k) + i, "i64")
                for i in range(self.rank)
            ]
            for k in range(count)
        ]
        self._loop(0, bases, extents, strides)

    def _entry(self, index: int, kind: str) -> str:
        place = f"%{self.b.fresh('p')}"
        self.b.emit(f"{place} = getelementptr i64, ptr %table, i64 {index}")
        name = f"%{self.b.fresh('t')}"
        self.b.emit(f"{name} = load {kind}, ptr {place}")
        return name

    def _loop(
        self,
        depth: int,
        bases: list[str],
        extents: list[str],
        strides: list[list[str]],
    ) -> None:
        if depth == self.rank - 1:
            self._row(bases, extents[-1], [row[-1] for row in strides])
            return
        with self.b.loop("0", extents[depth]) as index:
            moved = [
                self.memory.offset(base, self.memory.times(index, row[depth]))
                for base, row in zip(bases, strides, strict=True)
            ]
            self._loop(depth + 1, moved, extents, strides)

    def _row(self, bases: list[str], extent: str, strides: list[str]) -> None:
        """The innermost loop: whole vectors, then what is left under a mask."""
        b, lanes = self.b, self.b.lanes
        outputs = len(self.body.outputs)
        fixed = {
            k: b.splat(self.memory.scalar(bases[k], self.values[k].spec.dtype))
            for k in range(outputs, len(bases))
            if self.inner[k] == 0
        }
        rest = f"%{b.fresh('r')}"
        whole = f"%{b.fresh('w')}"
        b.emit(f"{rest} = and i64 {extent}, {lanes - 1}")
        b.emit(f"{whole} = sub i64 {extent}, {rest}")
        with b.loop("0", whole, lanes) as index:
            self._step(bases, strides, index, fixed, None)
        # A loop of one turn or none: the tail.
        with b.loop(whole, extent, lanes) as index:
            self._step(bases, strides, index, fixed, self._mask(rest))

    def _mask(self, rest: str) -> str:
        b, lanes = self.b, self.b.lanes
        count = b.convert("trunc", Value(rest, "int64"), "int32")
        numbers = ", ".join(f"i32 {i}" for i in range(lanes))
        spread = b.splat(count)
        return b.binary(
            "icmp slt", Value(f"<{numbers}>", "int32", lanes), spread, "bool"
        ).text

    def _step(
        self,
        bases: list[str],
        strides: list[str],
        index: str,
        fixed: dict[int, Value],
        mask: str | None,
    ) -> None:
        outputs = len(self.body.outputs)
        known: dict[int, Value] = {}
        for k, value in enumerate(self.values):
            if k >= outputs:
                known[id(value)] = fixed.get(k) or self._load(
                    k, bases[k], strides[k], index, mask
                )
        scalars = LLVMScalars(self.b)
        for node in self.body.nodes:
            arguments = [known.get(id(x)) or self._literal(x) for x in node.inputs]
            known[id(node.outputs[0])] = node.op.scalar(
                scalars, *arguments, **node.attrs
            )
        for k, value in enumerate(self.body.outputs):
            self.memory.store(known[id(value)], bases[k], index, mask)

    def _literal(self, value: Any) -> Value:
        like = Value("", value.spec.dtype, self.b.lanes)
        return self.b.constant(value.constant.reshape(())[()], like)

    def _load(
        self, k: int, base: str, stride: str, index: str, mask: str | None
    ) -> Value:
        dtype = self.values[k].spec.dtype
        if self.inner[k] < 0:
            return self.memory.gather(base, stride, index, dtype, mask)
        return self.memory.load(base, index, dtype, mask)
