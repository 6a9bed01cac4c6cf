"""Products of matrices that fit the cache: one function for each width.

    c[i] += sum of a[i, k] * b[k] over k

The terms of `a` are scalars at any strides. The rows of `b` and `c` are a few vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask
from toolkit.backends.numpy.jit.kernels.gemm.writer import (
    LINES_PER_POINTER,
    MatrixWriter,
    line_addresses,
)
from toolkit.backends.numpy.jit.processor import current

# The addresses of a, b and c, the number of rows and terms, byte strides, and whether
# (0 or 1) the sums start from c.
_PARAMETERS = (
    "ptr noalias %a",
    "ptr noalias %b",
    "ptr noalias %c",
    "i64 %rows",
    "i64 %depth",
    "i64 %a_row",
    "i64 %a_term",
    "i64 %b_term",
    "i64 %c_row",
    "i64 %earlier",
)


def heights() -> tuple[int, ...]:
    """Return the heights of register blocks: the largest, then the remainders."""
    return (8, 4, 1) if current().registers >= 32 else (6, 2, 1)


def product_function(
    name: str, dtype: str, lanes: int, vectors: int, tail: int
) -> set[str]:
    """Return the function and its declarations.

    Args:
        name: of the function.
        dtype, lanes: of its vectors.
        vectors: the vectors in a row of b and c.
        tail: the lanes of the last vector that are valid, or 0 for all.
    """
    w = MatrixWriter(Kernel(lanes), dtype)
    masks: list[Mask] = [None] * vectors
    if tail:
        masks[-1] = constant_mask(tail, lanes)
    first: Number = 0
    for height in heights():
        remaining = w.b.parameter("rows") - first
        full = remaining // height * height
        end = first + full
        with w.b.loop(first, end, height) as row:
            _tile(w, row, height, masks)
        first = end
    return w.b.internal_function(name, _PARAMETERS)


def _tile(w: MatrixWriter, row: Number, height: int, masks: Sequence[Mask]) -> None:
    """Sum some rows in registers."""
    b = w.b
    a = b.pointer_parameter("a") + row * b.parameter("a_row")
    c = b.pointer_parameter("c") + row * b.parameter("c_row")
    rows = [c + i * w.b.parameter("c_row") for i in range(height)]
    destinations = w.vectors_of(rows, masks)
    zeros = [w.zero] * len(destinations)
    with w.b.accumulate(0, w.b.parameter("earlier"), 1, zeros) as iteration:
        iteration.next([w.load_vector(address, mask) for address, mask in destinations])
    sums = _sums(w, a, height, masks, iteration.values)
    for value, (address, mask) in zip(sums, destinations, strict=True):
        w.store_vector(value, address, mask)


def _sums(
    w: MatrixWriter,
    a: Pointer,
    height: int,
    masks: Sequence[Mask],
    sums: Sequence[Value],
) -> list[Value]:
    b, zero = w.b, Value("0", "int64")
    firsts = [a + i * b.parameter("a_row") for i in range(0, height, LINES_PER_POINTER)]
    third = b.parameter("a_row") * 3
    with b.accumulate(0, b.parameter("depth"), 1, [zero, zero, *sums]) as iteration:
        a_offset, b_offset = iteration.index_of(0), iteration.index_of(1)
        sums = iteration.values[2:]
        columns = b.pointer_parameter("b") + b_offset
        ys = [
            w.load_vector(columns + j * w.vector_bytes, mask)
            for j, mask in enumerate(masks)
        ]
        pointers = [first + a_offset for first in firsts]
        rows = line_addresses(pointers, height, b.parameter("a_row"), third)
        for i, address in enumerate(rows):
            x = b.splat(w.b.scalar(address, w.dtype))
            for j, y in enumerate(ys):
                k = i * len(ys) + j
                sums[k] = b.intrinsic("fma", x, y, sums[k])
        a_next = a_offset + b.parameter("a_term")
        b_next = b_offset + b.parameter("b_term")
        iteration.next([a_next, b_next, *sums])
    return iteration.values[2:]
