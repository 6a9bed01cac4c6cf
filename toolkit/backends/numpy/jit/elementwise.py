"""Fused elementwise kernels: a graph of elementwise nodes as one loop nest.

A kernel takes one table of 64-bit numbers: the addresses of the outputs and inputs, the
extents of the loops, and for each array its strides in bytes in all loops but the
innermost. The stride in the innermost loop is part of the kernel: one element, zero, or
anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    Builder,
    Value,
    vector_type,
)
from toolkit.backends.numpy.jit.engine import compile_module, host
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import Graph, Node

Array = np.ndarray[Any, Any]

DTYPES = ("bool", "int32", "int64", "float32", "float64")
# What the scalar vocabulary can say in LLVM IR.
OPS = frozenset(
    "negative abs sign exp expm1 log log1p sqrt rsqrt sin cos tanh erf sigmoid floor "
    "ceil round trunc isnan isinf isfinite logical_not add subtract multiply divide "
    "power maximum minimum equal not_equal less less_equal logical_and logical_or "
    "logical_xor bitwise_and bitwise_or bitwise_xor where cast stop_gradient".split()
)
_FLOATING = frozenset("exp expm1 log log1p sqrt rsqrt sin cos tanh erf sigmoid power".split())


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


class FusedKernel:
    """A fused node as a kernel: `kernel(*arrays, out=...)`."""

    def __init__(self, body: Graph) -> None:
        self.body = body
        self.shape = body.outputs[0].spec.shape
        self.several = len(body.outputs) > 1
        self.text = _describe(body)

    def __call__(self, *arrays: Array, out: Any) -> Any:
        return self.prepared()(*arrays, out=out)

    def prepared(self) -> PreparedCall:
        """A kernel for one caller at a time, quick while the strides stay the same."""
        return PreparedCall(self)

    def lower(
        self, operands: Sequence[Array]
    ) -> tuple[Any, list[int], list[list[int]]]:
        """The machine code for arrays of these strides, the extents, the strides."""
        shape, strides = _collapse(self.shape, operands)
        inner = tuple(
            _stride_class(row[-1], a.itemsize)
            for row, a in zip(strides, operands, strict=True)
        )
        kernel = _kernel(self.text, _Body(self.body), len(shape), inner)
        return kernel, shape, strides


class PreparedCall:
    """A fused kernel with its table of addresses, extents and strides."""

    def __init__(self, kernel: FusedKernel) -> None:
        self.kernel = kernel
        self.layout: Any = None
        self.address: Any = None
        self.table: Any = None
        self.code: Any = None

    def __call__(self, *arrays: Array, out: Any) -> Any:
        operands = [*out, *arrays] if self.kernel.several else [out, *arrays]
        layout = [a.strides for a in operands]
        if layout != self.layout:
            self._lower(operands)
            self.layout = layout
        if self.code is not None:
            table = self.table
            for i, a in enumerate(operands):
                table[i] = a.__array_interface__["data"][0]
            self.code(self.address)
        return out

    def _lower(self, operands: Sequence[Array]) -> None:
        if 0 in self.kernel.shape:
            self.code = None
            return
        self.code, shape, strides = self.kernel.lower(operands)
        numbers = [0] * len(operands) + shape + [n for row in strides for n in row]
        self.table = (ctypes.c_int64 * len(numbers))(*numbers)
        self.address = ctypes.addressof(self.table)


def _stride_class(stride: int, itemsize: int) -> int:
    """1 for the next element, 0 for the same one, -1 for anything else."""
    return 1 if stride == itemsize else 0 if stride == 0 else -1


def _collapse(
    shape: tuple[int, ...], arrays: Sequence[Array]
) -> tuple[list[int], list[list[int]]]:
    """The fewest loops over `shape` that visit all arrays, and each array's strides."""
    rows = [
        [0] * (len(shape) - a.ndim)
        + [0 if n == 1 else s for n, s in zip(a.shape, a.strides, strict=True)]
        for a in arrays
    ]
    extents: list[int] = []
    strides: list[list[int]] = [[] for _ in arrays]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        if extents and all(
            kept[-1] == row[axis] * n for kept, row in zip(strides, rows, strict=True)
        ):
            extents[-1] *= n
            for kept, row in zip(strides, rows, strict=True):
                kept[-1] = row[axis]
        else:
            extents.append(n)
            for kept, row in zip(strides, rows, strict=True):
                kept.append(row[axis])
    if not extents:
        return [1], [[a.itemsize] for a in arrays]
    return extents, strides


def _describe(body: Graph) -> str:
    """The body as text that is equal for equal kernels, whatever their extents."""
    names = {id(v): f"x{i}:{v.spec.dtype}" for i, v in enumerate(body.inputs)}
    lines = []
    for i, node in enumerate(body.nodes):
        inputs = [names.get(id(x)) or _literal_text(x) for x in node.inputs]
        attrs = sorted(node.attrs.items())
        value = node.outputs[0]
        names[id(value)] = f"v{i}:{value.spec.dtype}"
        lines.append(f"{names[id(value)]}={node.op.name}({','.join(inputs)}){attrs}")
    results = ",".join(names[id(v)] for v in body.outputs)
    return ";".join([*lines, results])


def _literal_text(value: Any) -> str:
    return f"{value.spec.dtype}:{value.constant.tobytes().hex()}"


class _Body:
    """A graph that does not count in comparisons: the text beside it does."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Body)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4096)
def _kernel(text: str, body: _Body, rank: int, inner: tuple[int, ...]) -> Any:
    """The compiled kernel of a body for a number of loops and innermost strides."""
    module = compile_module(source(body.graph, rank, inner))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("kernel"))
    function.module = module  # type: ignore[attr-defined]
    return function


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

    def write(self) -> None:
        """The loop nest."""
        count = len(self.values)
        bases = [self._entry(i, "ptr") for i in range(count)]
        extents = [self._entry(count + i, "i64") for i in range(self.rank)]
        strides = [
            [self._entry(count + self.rank * (1 + k) + i, "i64") for i in range(self.rank)]
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
                self._offset(base, self._times(index, row[depth]))
                for base, row in zip(bases, strides, strict=True)
            ]
            self._loop(depth + 1, moved, extents, strides)

    def _times(self, a: str, b: str) -> str:
        name = f"%{self.b.fresh('m')}"
        self.b.emit(f"{name} = mul i64 {a}, {b}")
        return name

    def _offset(self, base: str, bytes_: str, kind: str = "i8") -> str:
        name = f"%{self.b.fresh('q')}"
        self.b.emit(f"{name} = getelementptr {kind}, ptr {base}, i64 {bytes_}")
        return name

    def _row(self, bases: list[str], extent: str, strides: list[str]) -> None:
        """The innermost loop: whole vectors, then what is left under a mask."""
        b, lanes = self.b, self.b.lanes
        outputs = len(self.body.outputs)
        fixed = {
            k: b.splat(self._load_scalar(bases[k], self.values[k].spec.dtype))
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
            self._store(known[id(value)], bases[k], index, mask)

    def _literal(self, value: Any) -> Value:
        like = Value("", value.spec.dtype, self.b.lanes)
        return self.b.constant(value.constant.reshape(())[()], like)

    def _load_scalar(self, place: str, dtype: str) -> Value:
        if dtype == "bool":
            byte = self.b.let(f"load i8, ptr {place}", "int8")
            return self.b.let(f"icmp ne i8 {byte.text}, 0", "bool")
        return self.b.let(f"load {MEMORY_TYPES[dtype]}, ptr {place}", dtype)

    def _load(
        self, k: int, base: str, stride: str, index: str, mask: str | None
    ) -> Value:
        b, dtype = self.b, self.values[k].spec.dtype
        stored = "int8" if dtype == "bool" else dtype
        kind = MEMORY_TYPES[dtype]
        vector = vector_type(kind, b.lanes)
        size = dtypes.itemsize(dtype)
        if self.inner[k] < 0:
            loaded = self._gather(base, stride, index, mask, stored)
        elif mask is None:
            place = self._offset(base, index, kind)
            loaded = b.let(f"load {vector}, ptr {place}, align {size}", stored, b.lanes)
        else:
            place = self._offset(base, index, kind)
            loaded = self._masked_load(place, vector, size, mask, stored)
        if dtype != "bool":
            return loaded
        zero = b.constant(0, loaded)
        return b.binary("icmp ne", loaded, zero, "bool")

    def _masked_load(
        self, place: str, vector: str, size: int, mask: str, dtype: str
    ) -> Value:
        b, bits = self.b, f"<{self.b.lanes} x i1>"
        name = f"@llvm.masked.load.{_suffix(dtype, b.lanes)}.p0"
        b.declarations.add(f"declare {vector} {name}(ptr, i32, {bits}, {vector})")
        return b.let(
            f"call {vector} {name}(ptr {place}, i32 {size}, {bits} {mask}, "
            f"{vector} zeroinitializer)",
            dtype,
            b.lanes,
        )

    def _gather(
        self, base: str, stride: str, index: str, mask: str | None, dtype: str
    ) -> Value:
        b, lanes = self.b, self.b.lanes
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        start = b.splat(Value(self._times(index, stride), "int64"))
        steps = b.binary(
            "mul", Value(f"<{numbers}>", "int64", lanes), b.splat(Value(stride, "int64"))
        )
        offsets = b.binary("add", start, steps)
        pointers = f"%{b.fresh('g')}"
        b.emit(f"{pointers} = getelementptr i8, ptr {base}, <{lanes} x i64> {offsets.text}")
        vector, bits = vector_type(MEMORY_TYPES[dtype], lanes), f"<{lanes} x i1>"
        name = f"@llvm.masked.gather.{_suffix(dtype, lanes)}.v{lanes}p0"
        b.declarations.add(
            f"declare {vector} {name}(<{lanes} x ptr>, i32, {bits}, {vector})"
        )
        mask = mask or f"<{', '.join(['i1 true'] * lanes)}>"
        return b.let(
            f"call {vector} {name}(<{lanes} x ptr> {pointers}, "
            f"i32 {dtypes.itemsize(dtype)}, {bits} {mask}, {vector} zeroinitializer)",
            dtype,
            lanes,
        )

    def _store(self, value: Value, base: str, index: str, mask: str | None) -> None:
        b = self.b
        if value.dtype == "bool":
            value = b.convert("zext", value, "int8")
        size = dtypes.itemsize(value.dtype)
        place = self._offset(base, index, MEMORY_TYPES[value.dtype])
        if mask is None:
            b.emit(f"store {value.type} {value.text}, ptr {place}, align {size}")
            return
        bits = f"<{b.lanes} x i1>"
        name = f"@llvm.masked.store.{_suffix(value.dtype, b.lanes)}.p0"
        b.declarations.add(f"declare void {name}({value.type}, ptr, i32, {bits})")
        b.emit(
            f"call void {name}({value.type} {value.text}, ptr {place}, i32 {size}, "
            f"{bits} {mask})"
        )


def _suffix(dtype: str, lanes: int) -> str:
    bits = 8 * dtypes.itemsize(dtype)
    return f"v{lanes}{'f' if dtypes.is_float(dtype) else 'i'}{bits}"
