"""Code generation that convolution kernels share: addresses, and sums of lanes."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import TYPES, Pointer, Value
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter


class ConvolutionWriter(MatrixWriter):
    """Emits kernels of images of one dtype, the element type of all pointers."""

    def address(self, number: int) -> Pointer:
        """Return an address of the table."""
        return self.b.address(number, self.dtype)

    def total(self, vector: Value) -> Value:
        """Return the sum of a vector's lanes, in a fixed order."""
        suffix = f"v{vector.lanes}f{8 * dtypes.itemsize(vector.dtype)}"
        name, kind = f"@llvm.vector.reduce.fadd.{suffix}", TYPES[vector.dtype]
        self.b.declarations.add(f"declare {kind} {name}({kind}, {vector.type})")
        text = f"call reassoc {kind} {name}({kind} -0.0, {vector.type} {vector.text})"
        return self.b.let(text, vector.dtype)
