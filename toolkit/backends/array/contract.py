"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from toolkit.backends.array.common import (
    HALVES,
    Array,
    Kernels,
    Scratch,
    is_half,
    scratch_bytes as _bytes,
)
from toolkit.backends.kernels import workspace
from toolkit.ir import Spec


def matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a batched matrix product with broadcast leading axes."""
    batch = len(a) - len(b)
    longer = (1,) * -batch + a[:-2], (1,) * batch + b[:-2]
    stacks = (m if n == 1 else n for m, n in zip(*longer, strict=True))
    return (*stacks, a[-2], b[-1])


def _matmul_bytes(a: Spec, b: Spec, **attrs: object) -> int:
    """Return the bytes of float32 operands and product, for half precision."""
    if a.dtype not in HALVES:
        return 0
    result = math.prod(matmul_shape(a.shape, b.shape))
    return _bytes(4 * a.size, 4 * b.size, 4 * result)


def _integer_bytes(a: Spec, b: Spec, **attrs: object) -> int:
    """Return the bytes of float64 operands and product, and of an int64 product."""
    result = math.prod(matmul_shape(a.shape, b.shape))
    return _bytes(8 * a.size, 8 * b.size, 8 * result, 8 * result)


class Contract(Kernels):
    """Batched matrix products."""

    @workspace(_matmul_bytes)
    def matmul(
        self,
        a: Array,
        b: Array,
        *,
        factors: str = "",
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the matrix product over the last two axes; leading axes broadcast."""
        if a.dtype.itemsize == 2 and is_half(a.dtype):
            return self._through_float32(a, b, out, work)
        return self.gemm(a, b, out) if a.ndim == 2 else self._matmul(a, b, out)

    @workspace(_integer_bytes)
    def matmul_integer(
        self, a: Array, b: Array, *, out: Any = None, work: Any = None
    ) -> Array:
        """Return the int32 product of int8; BLAS computes it exactly in float64."""
        memory = Scratch(self.xp, work)
        shape = matmul_shape(a.shape, b.shape)
        lhs, rhs = (self._copy_to(memory.take(x.shape, "float64"), x) for x in (a, b))
        product = self._matmul(lhs, rhs, memory.take(shape, "float64"))
        # A sum that overflows 32 bits keeps its low bits, as in all backends.
        integers = self._copy_to(memory.take(shape, "int64"), product)
        return self._copy_to(self._result(out, shape, "int32"), integers)

    def _matmul(self, a: Array, b: Array, out: Any) -> Array:
        """Compute one product of two matrices if possible, else one per pair."""
        if a.ndim == 2 or math.prod(b.shape[:-2]) != 1 or not a.flags.c_contiguous:
            return self.gemm(a, b, out=out)
        shape = matmul_shape(a.shape, b.shape)
        count = math.prod(a.shape[:-1])
        rows, matrix = a.reshape(count, a.shape[-1]), b.reshape(b.shape[-2:])
        if out is None:
            return self.gemm(rows, matrix).reshape(shape)
        self.gemm(rows, matrix, out=out.reshape(count, shape[-1]))
        return out

    def _through_float32(self, a: Array, b: Array, out: Any, work: Any) -> Array:
        memory = Scratch(self.xp, work)
        shape = matmul_shape(a.shape, b.shape)
        lhs, rhs = (self._copy_to(memory.take(x.shape, "float32"), x) for x in (a, b))
        product = self._matmul(lhs, rhs, memory.take(shape, "float32"))
        return self._copy_to(self._result(out, shape, a.dtype), product)
