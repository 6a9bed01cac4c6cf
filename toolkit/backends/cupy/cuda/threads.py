"""Kernels with one thread per element of a shape, written in a few lines of C."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.launch import (
    Argument,
    Launch,
    Problem,
    Scalar,
    make_kernel,
)
from toolkit.backends.cupy.cuda.prelude import BITS, STORED
from toolkit.backends.cupy.cuda.scalars import SourceWriter, split
from toolkit.plans.operands import Operand

THREADS = 256


def span(operand: Operand) -> int:
    """Return the number of elements from the first to the last in memory."""
    size = dtypes.itemsize(operand.spec.dtype)
    axes = zip(operand.spec.shape, operand.strides, strict=True)
    return sum((n - 1) * abs(stride) // size for n, stride in axes if n)


class Threads(SourceWriter):
    """Kernel with one thread per index of a shape.

    Args:
        family: the prefix of its name.
        shape: of the indices.
        operands: the arrays that the indices address.

    Attributes:
        extra: helpers in addition to the prelude.
        indices: the names of the thread's indices, one per axis.
        number: the C type of an index.
    """

    def __init__(self, family: str, shape: Sequence[int], *operands: Operand) -> None:
        super().__init__()
        self.family = family
        self.extra = ""
        self.threads: int = prod(shape)
        limit = max([self.threads, *map(span, operands)])
        self.number = "int" if 2 * limit < 2**31 else "i64"
        self.parameters: list[tuple[str, str, Argument]] = []
        self(f"const i64 thread = (i64)blockIdx.x * {THREADS} + threadIdx.x;")
        # A parameter, not a literal: one kernel serves every extent of the first axis.
        self("if (thread >= threads) return;")
        self(f"const {self.number} i = thread;")
        self.indices: list[str] = split(self, "i", shape, "i", self.number)

    def array(self, ctype: str, name: str, argument: Argument) -> None:
        """Add a parameter."""
        self.parameters.append((ctype, name, argument))

    def source(self, name: str, dtype: str, argument: Argument) -> None:
        """Add an input array."""
        self.array(f"const {STORED[dtype]}*", name, argument)

    def target(self, name: str, dtype: str, argument: Argument) -> None:
        """Add an output array."""
        self.array(f"{STORED[dtype]}*", name, argument)

    def launch(self, problem: str = "") -> Launch:
        """Return the launch of the generated kernel."""
        self.array("i64", "threads", Scalar(self.threads))
        if problem:
            self.array("i64*", "problem", Problem())
        text = kernel_text(self.parameters, THREADS, self.text, self.extra)
        kernel = make_kernel(self.family, text, [p[0] for p in self.parameters])
        arguments = tuple(p[2] for p in self.parameters)
        grid = (-(-self.threads // THREADS), 1, 1)
        return Launch(kernel, grid, (THREADS, 1, 1), arguments, problem=problem)


def offset_text(operand: Operand, indices: Sequence[str], unit: int = 0) -> str:
    """Return the array offset of an index per axis, in elements or other units."""
    unit = unit or dtypes.itemsize(operand.spec.dtype)
    axes = zip(indices, operand.strides, operand.spec.shape, strict=True)
    terms = [
        name if stride == unit else f"{name} * {stride // unit}"
        for name, stride, n in axes
        if stride and n != 1
    ]
    return " + ".join(terms) or "0"


def in_units(
    operands: Sequence[Operand], aligned: bool, *counts: int
) -> tuple[int, list[Operand]]:
    """Return arrays whose last axis is accessed in units of several elements.

    Args:
        operands: of one dtype.
        aligned: whether their addresses are multiples of 16.
        counts: further element counts that must be divisible by the unit.

    Returns:
        The bytes of a unit, and the arrays with a last axis shorter by that factor.
    """
    size = dtypes.itemsize(operands[0].spec.dtype)
    for unit in (16, 8, 4, 2) if aligned else ():
        count = unit // size
        if count > 1 and all(_has_units(x, size, unit) for x in operands):
            if not any(n % count for n in counts):
                return unit, [_of_units(x, count, unit) for x in operands]
    return size, list(operands)


def lanes_of(operands: Sequence[Operand], aligned: bool) -> int:
    """Return the vector width along the last axis.

    Args:
        operands: the arrays; the first one fills the widest accesses, of 16 bytes.
        aligned: whether their addresses are multiples of 16.
    """
    sizes = [dtypes.itemsize(x.spec.dtype) for x in operands]
    lanes = 16 // sizes[0] if aligned else 1
    while lanes > 1 and not all(
        _has_units(x, size, lanes * size)
        for x, size in zip(operands, sizes, strict=True)
    ):
        lanes //= 2
    return lanes


def _has_units(x: Operand, size: int, unit: int) -> bool:
    if not x.spec.ndim or x.strides[-1] != size or x.spec.shape[-1] * size % unit:
        return False
    return not any(stride % unit for stride in x.strides[:-1])


def _of_units(x: Operand, count: int, unit: int) -> Operand:
    shape = (*x.spec.shape[:-1], x.spec.shape[-1] // count)
    return Operand(x.spec.with_shape(shape), (*x.strides[:-1], unit))


def unit_type(unit: int) -> str:
    """Return the C type of a unit with this number of bytes."""
    return BITS.get(unit, "Pack<u64, 2>")
