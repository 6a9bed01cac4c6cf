"""Fused nodes as kernels: compiled once per structure, called through a table.

A call fills in the addresses of its arrays; the extents and strides stay as long as the
arrays keep theirs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from toolkit.backends.numpy.jit.elementwise import is_fusable, source
from toolkit.backends.numpy.jit.engine import compile_module
from toolkit.ir import Graph

__all__ = ["FusedKernel", "is_fusable"]

Array = np.ndarray[Any, Any]


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
